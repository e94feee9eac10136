"""What a program sees of its buffers: the answer of every call and query about them.

`observe` calls the driver as a C program does, with whatever it may and may not ask. Its answers
have no addresses in them. So those of shared buffers (icd/native/cuda_buffers.c) must be equal to
those of the driver's own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyopencl as cl

from fairlead.icd.abi import OPENCL
from fairlead.icd.calls import call

SMALL: Final = 1000
LARGE: Final = 3 << 20
_QUERIES: Final = (
    *("TYPE", "FLAGS", "SIZE", "HOST_PTR", "MAP_COUNT", "REFERENCE_COUNT", "CONTEXT"),
    *("ASSOCIATED_MEMOBJECT", "OFFSET", "USES_SVM_POINTER", "PROPERTIES"),
)
_ACCESS: Final = ("READ_WRITE", "READ_ONLY", "WRITE_ONLY")
_HOST_ACCESS: Final = ("HOST_READ_ONLY", "HOST_WRITE_ONLY", "HOST_NO_ACCESS")
_FORMAT: Final = (ctypes.c_uint32 * 2)(0x10B0, 0x10DC)  # CL_R, CL_UNSIGNED_INT32
_GONE: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


def flags_of(*names: str) -> int:
    """Memory flags by their names, without CL_MEM_."""
    return sum(OPENCL[f"CL_MEM_{name}"] for name in names)


def named(code: int) -> str:
    """A code of OpenCL's by its name."""
    return OPENCL.errors.get(code, (str(code), ""))[0]


class Program:
    """A program with one queue. It knows handles, as C does.

    Args:
        queue: of PyOpenCL.
    """

    def __init__(self, queue: cl.CommandQueue) -> None:
        self.queue, self.context = queue.int_ptr, queue.context.int_ptr
        self.most: int = queue.device.max_mem_alloc_size
        self.host = (ctypes.c_ubyte * LARGE)(*(number % 251 for number in range(LARGE)))
        self.names: dict[int, str] = {0: "none", self.context: "the context"}

    def make(
        self, flags: int, size: int, host: int | None = None, properties: Any = False
    ) -> tuple[int, str]:
        """A buffer, and the code. `properties` is False for clCreateBuffer."""
        code = ctypes.c_int32(77)
        where = ctypes.addressof(code)
        if properties is False:
            made = call(self.context, "clCreateBuffer", flags, size, host, where)
        else:
            listed = (
                None if properties is None else (ctypes.c_uint64 * len(properties))(*properties)
            )
            given = None if listed is None else ctypes.addressof(listed)
            name = "clCreateBufferWithProperties"
            made = call(self.context, name, given, flags, size, host, where)
        return made or 0, named(code.value)

    def part(self, memory: int, origin: int, size: int, flags: int = 0) -> tuple[int, str]:
        """A part of a buffer, and the code."""
        region, code = (ctypes.c_size_t * 2)(origin, size), ctypes.c_int32(77)
        kind = OPENCL["CL_BUFFER_CREATE_TYPE_REGION"]
        given = (flags, kind, ctypes.addressof(region), ctypes.addressof(code))
        return call(memory, "clCreateSubBuffer", *given) or 0, named(code.value)

    def release(self, *memory: int) -> None:
        """Release objects; 0 is none."""
        for one in filter(None, memory):
            call(one, "clReleaseMemObject")

    def answers(self, memory: int) -> Iterator[tuple[str, Any]]:
        """What each query of an object returns: the code, the size, and the value."""
        for name in _QUERIES:
            size, room = ctypes.c_size_t(77), (ctypes.c_ubyte * 64)()
            given = OPENCL[f"CL_MEM_{name}"], 64, ctypes.addressof(room), ctypes.addressof(size)
            code = named(call(memory, "clGetMemObjectInfo", *given))
            value: Any = int.from_bytes(bytes(room)[: min(size.value, 64)], "little")
            if name in ("CONTEXT", "ASSOCIATED_MEMOBJECT"):
                value = self.names.get(value, "another object")
            if name == "HOST_PTR":
                place = value - ctypes.addressof(self.host)
                value = "none" if not value else f"{place} in ours"
            yield name, (code, size.value, value)
            less = size.value - 1 if size.value else 0
            given = given[0], less, ctypes.addressof(room), None
            yield f"{name}, too little room", named(call(memory, "clGetMemObjectInfo", *given))
            arguments = memory, "clGetMemObjectInfo", given[0], 0, None, ctypes.addressof(size)
            yield (f"{name}, its size", (named(call(*arguments)), size.value))
        yield "an unknown query", named(call(memory, "clGetMemObjectInfo", 0x9999, 0, None, None))

    def enqueued(self, name: str, *given: Any) -> str:
        """The code of an enqueue, or of what came of it."""
        code = call(self.queue, name, *given, 0, None, None)
        return named(code or call(self.queue, "clFinish"))

    def read(self, memory: int, offset: int, size: int) -> tuple[str, int]:
        """The code of a read, and a sum of what was read."""
        into = (ctypes.c_ubyte * max(size, 1))()
        place = memory, 1, offset, size, ctypes.addressof(into)
        return self.enqueued("clEnqueueReadBuffer", *place), sum(into) if size <= 4096 else 0


def _creations(program: Program) -> Iterator[tuple[str, Any]]:
    host = ctypes.addressof(program.host)
    ways: dict[str, tuple[int, int | None]] = {
        "no flags": (0, None),
        **{name: (flags_of(name), None) for name in (*_ACCESS, *_HOST_ACCESS)},
        "copied": (flags_of("COPY_HOST_PTR"), host),
        "copied, read only": (flags_of("READ_ONLY", "COPY_HOST_PTR"), host),
        "copied, not for the host": (flags_of("HOST_NO_ACCESS", "COPY_HOST_PTR"), host),
        "host memory": (flags_of("USE_HOST_PTR"), host),
        "pinned": (flags_of("READ_WRITE", "ALLOC_HOST_PTR"), None),
        "pinned and copied": (flags_of("ALLOC_HOST_PTR", "COPY_HOST_PTR"), host),
        "both accesses": (flags_of("READ_ONLY", "WRITE_ONLY"), None),
        "both accesses of the host": (flags_of("HOST_READ_ONLY", "HOST_NO_ACCESS"), None),
        "used and copied": (flags_of("USE_HOST_PTR", "COPY_HOST_PTR"), host),
        "unknown flags": (1 << 40, None),
        "copied from nothing": (flags_of("COPY_HOST_PTR"), None),
        "a pointer without a flag": (flags_of("READ_WRITE"), host),
    }
    for size in (1, SMALL, 4096, 1 << 20, LARGE):
        for way, (flags, pointer) in ways.items():
            for properties in (False, None, [0]):
                name = f"{way}, {size} bytes, properties {properties}"
                memory, code = program.make(flags, size, pointer, properties)
                yield name, code
                if memory:
                    for query, answer in program.answers(memory):
                        yield f"{name}: {query}", answer
                    if "copied" in way and "not for" not in way:
                        yield f"{name}: read", program.read(memory, 0, size)
                program.release(memory)
    for size in (0, program.most + 1, 1 << 60):
        yield f"{size} bytes", program.make(0, size)[1]
    memory, code = program.make(0, SMALL, None, [0x1234567, 1, 0])
    yield "unknown properties", code
    program.release(memory)


def _parts(program: Program) -> Iterator[tuple[str, Any]]:
    host = ctypes.addressof(program.host)
    places = [(0, 100), (512, 100), (512, SMALL - 512), (512, SMALL), (SMALL, 1), (4, 8)]
    places += [(0, 0), (4096, 512), (1 << 20, 4096), (LARGE - 512, 1024), (1 << 60, 1)]
    kinds = {
        "plain": 0,
        "copied": flags_of("COPY_HOST_PTR"),
        "read only": flags_of("READ_ONLY"),
        "host reads": flags_of("HOST_READ_ONLY"),
    }
    for size in (SMALL, LARGE):
        for kind, flags in kinds.items():
            whole, _ = program.make(flags, size, host if kind == "copied" else None)
            program.names[whole] = "the whole"
            for origin, length in places:
                name = f"{length} bytes at {origin} of {size}, {kind}"
                part, code = program.part(whole, origin, length)
                yield name, code
                if part:
                    for query, answer in program.answers(part):
                        yield f"{name}: {query}", answer
                    if kind == "copied":
                        yield f"{name}: read", program.read(part, 0, length)
                        yield f"{name}: read too far", program.read(part, 0, length + 1)
                    program.names[part] = "the part"
                    inner, code = program.part(part, 0, 1)
                    yield f"{name}: a part of it", code
                    if inner:
                        for query, answer in program.answers(inner):
                            yield f"{name}: a part of it: {query}", answer
                    del program.names[part]
                    program.release(inner)
                program.release(part)
            for names in (
                *(["READ_ONLY"], ["WRITE_ONLY"], ["HOST_NO_ACCESS"], ["HOST_WRITE_ONLY"]),
                *(["COPY_HOST_PTR"], ["USE_HOST_PTR"], ["READ_ONLY", "WRITE_ONLY"]),
            ):
                part, code = program.part(whole, 0, 64, flags_of(*names))
                yield f"a part of {size}, {kind}, with {names}", code
                if part:
                    yield from (
                        (f"a part of {size}, {kind}, with {names}: {query}", answer)
                        for query, answer in program.answers(part)
                    )
                program.release(part)
            del program.names[whole]
            program.release(whole)


def _uses(program: Program) -> Iterator[tuple[str, Any]]:
    host = ctypes.addressof(program.host)
    copied = flags_of("COPY_HOST_PTR")
    for size in (SMALL, LARGE):
        one, other = (program.make(copied, size, host)[0] for _ in range(2))
        for offset, length in (
            (0, 1),
            (size - 1, 1),
            (size, 1),
            (0, size + 1),
            (1 << 60, 1),
            (0, 0),
        ):
            name = f"{length} bytes at {offset} of {size}"
            yield f"read of {name}", program.read(one, offset, length)
            pattern = ctypes.addressof(program.host)
            fill = "clEnqueueFillBuffer", one, pattern, 1, offset, length
            yield f"fill of {name}", program.enqueued(*fill)
            copy = "clEnqueueCopyBuffer", one, other, offset, 0, length
            yield f"copy of {name}", program.enqueued(*copy)
            write = "clEnqueueWriteBuffer", one, 1, offset, min(length, size), host
            yield f"write of {name}", program.enqueued(*write)
        yield f"overlap in {size}", program.enqueued("clEnqueueCopyBuffer", one, one, 0, 4, 64)
        yield f"within {size}", program.enqueued("clEnqueueCopyBuffer", one, one, 0, 128, 64)
        listed = (ctypes.c_void_p * 2)(one, other)
        migrate = "clEnqueueMigrateMemObjects", 2, ctypes.addressof(listed)
        for name, bits in (("device", 0), ("host", 1), ("undefined", 2), ("unknown", 1 << 20)):
            yield f"migrate {size} to {name}", program.enqueued(*migrate, bits)
        yield from _maps(program, one, size)
        program.release(one, other)
    for kind in _HOST_ACCESS:
        memory, _ = program.make(flags_of(kind), SMALL)
        yield f"read, {kind}", program.read(memory, 0, 4)[0]
        write = "clEnqueueWriteBuffer", memory, 1, 0, 4, host
        yield f"write, {kind}", program.enqueued(*write)
        yield f"map, {kind}", _mapped(program, memory, 1, 0, 4)[1]
        program.release(memory)


def _mapped(program: Program, memory: int, how: int, offset: int, size: int) -> tuple[int, str]:
    code = ctypes.c_int32(77)
    given = memory, 1, how, offset, size, 0, None, None, ctypes.addressof(code)
    pointer = call(program.queue, "clEnqueueMapBuffer", *given)
    return pointer or 0, named(code.value)


def _count(program: Program, memory: int, name: str) -> Any:
    return dict(program.answers(memory))[name]


def _maps(program: Program, memory: int, size: int) -> Iterator[tuple[str, Any]]:
    for how in (1, 2, 4, 3, 5):
        pointer, code = _mapped(program, memory, how, 0, 64)
        yield f"map {size} as {how}", code
        if pointer:
            yield f"map {size} as {how}: count", _count(program, memory, "MAP_COUNT")
            ctypes.memset(pointer, 7, 64)
            unmap = "clEnqueueUnmapMemObject", memory, pointer
            yield f"unmap {size}", program.enqueued(*unmap)
            yield f"map {size} as {how}: then", _count(program, memory, "MAP_COUNT")
            yield f"map {size} as {how}: read", program.read(memory, 0, 64) if how > 1 else None
    yield f"map {size} too far", _mapped(program, memory, 1, size, 1)[1]
    unmap = "clEnqueueUnmapMemObject", memory, ctypes.addressof(program.host)
    yield f"unmap of {size} what is not mapped", program.enqueued(*unmap)


def _lives(program: Program) -> Iterator[tuple[str, Any]]:
    """References, and the calls of destructor callbacks."""
    for size in (SMALL, LARGE):
        said: list[int] = []

        def note(memory: int, data: int | None, said: list[int] = said) -> None:
            said.append(data or 0)

        gone = [_GONE(note) for _ in range(3)]
        memory, _ = program.make(0, size)
        for number, one in enumerate(gone):
            given = ctypes.cast(one, ctypes.c_void_p).value, number + 1
            arguments = memory, "clSetMemObjectDestructorCallback", *given
            yield (f"callback of {size}", named(call(*arguments)))
        yield "no callback", named(call(memory, "clSetMemObjectDestructorCallback", None, None))
        part, _ = program.part(memory, 0, 64)
        call(memory, "clRetainMemObject")
        yield f"references of {size}", _count(program, memory, "REFERENCE_COUNT")
        program.release(memory)
        yield f"references of {size}, later", _count(program, memory, "REFERENCE_COUNT")
        program.release(memory)
        yield f"before the part of {size} is gone", list(said)
        program.release(part)
        call(program.queue, "clFinish")
        while len(said) < 3:
            pass
        yield f"after the part of {size}", list(said)
        del gone


def _images(program: Program) -> Iterator[tuple[str, Any]]:
    """An image of a buffer's pixels (CL_MEM_OBJECT_IMAGE1D_BUFFER)."""
    host = ctypes.addressof(program.host)
    for size in (4096, LARGE):
        memory, _ = program.make(flags_of("COPY_HOST_PTR"), size, host)
        program.names[memory] = "the buffer"
        desc, code = (ctypes.c_size_t * 9)(), ctypes.c_int32(77)
        desc[0], desc[1], desc[8] = 0x10F5, 64, memory
        given = ctypes.addressof(_FORMAT), ctypes.addressof(desc), None, ctypes.addressof(code)
        image = call(program.context, "clCreateImage", 0, *given)
        yield f"an image of {size}", named(code.value)
        if image:
            yield f"an image of {size}: part of", _count(program, image, "ASSOCIATED_MEMOBJECT")
            into = (ctypes.c_uint32 * 64)()
            first, region = (ctypes.c_size_t * 3)(), (ctypes.c_size_t * 3)(64, 1, 1)
            place = ctypes.addressof(first), ctypes.addressof(region), 0, 0, ctypes.addressof(into)
            arguments = "clEnqueueReadImage", image, 1, *place
            yield (f"an image of {size}: read", program.enqueued(*arguments))
            yield f"an image of {size}: pixels", list(into)
            program.release(image)
        del program.names[memory]
        program.release(memory)


def observe(queue: cl.CommandQueue) -> dict[str, Any]:
    """What a program sees, by what it does. All of it can be JSON."""
    program, seen = Program(queue), dict[str, Any]()
    parts: tuple[Callable[[Program], Iterator[tuple[str, Any]]], ...]
    parts = _creations, _parts, _uses, _lives, _images
    for part in parts:
        for name, answer in part(program):
            times = sum(key.split("#")[0] == name for key in seen) if name in seen else 0
            seen[f"{name}#{times}" if times else name] = answer
    return seen
