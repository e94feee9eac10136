"""Memory objects and samplers as new arguments of captured launches: checks, and what they need.

A driver that gets a released object, or one of another type, may crash. So it is checked first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from sys import getrefcount
from typing import Any, Final

import numpy

from ..icd._native import ffi, lib
from ..icd.abi import OPENCL
from ..icd.calls import call, get_address
from ..icd.command_buffer.edits import (
    MEMORY,
    SAMPLER,
    UNSET,
    VALUE,
    count_arguments,
    get_argument,
    get_argument_bytes,
    get_cell,
    get_object,
)
from ..loader.base.memory import read_word
from ..runtime.errors import Errc, SYCLError

#: By kind of argument: the query of such an object, how its questions begin, and a word for it.
_QUERIES: Final = {
    MEMORY: ("clGetMemObjectInfo", "CL_MEM", "memory"),
    SAMPLER: ("clGetSamplerInfo", "CL_SAMPLER", "a sampler"),
}
_REMEDY: Final = "keep the type that the kernel expects"
#: What images are by CL_MEM_TYPE.
_IMAGES: Final = {
    OPENCL["CL_MEM_OBJECT_IMAGE1D"]: "a 1D image",
    OPENCL["CL_MEM_OBJECT_IMAGE1D_ARRAY"]: "a 1D image array",
    OPENCL["CL_MEM_OBJECT_IMAGE1D_BUFFER"]: "a 1D image of a buffer",
    OPENCL["CL_MEM_OBJECT_IMAGE2D"]: "a 2D image",
    OPENCL["CL_MEM_OBJECT_IMAGE2D_ARRAY"]: "a 2D image array",
    OPENCL["CL_MEM_OBJECT_IMAGE3D"]: "a 3D image",
}


def describe_argument(
    command: Any, index: int, declared: Any, parameters: Mapping[int, Any]
) -> Any:
    """Return an argument of a launch, for people. See `CapturedNode.args`."""
    import pyopencl

    kind, size, is_local = get_argument(command, index)
    if kind == UNSET:
        return None
    parameter = get_cell(command, index)
    if parameter in parameters:
        return parameters[parameter]
    if is_local:
        return pyopencl.LocalMemory(size)
    data = get_argument_bytes(command, index)
    if kind == VALUE and isinstance(declared, numpy.dtype) and declared.itemsize == size:
        return numpy.frombuffer(data, declared)[0]
    if kind == VALUE:
        return data
    word = int.from_bytes(data, "little")
    if kind == MEMORY:
        is_image = bool(find_image_type(word))
        return (pyopencl.Image if is_image else pyopencl.Buffer).from_int_ptr(word)
    return pyopencl.Sampler.from_int_ptr(word) if kind == SAMPLER else word


def make_argument_error(message: str, remedy: str) -> SYCLError:
    """Return the error of `set_arg`."""
    return SYCLError(Errc.kernel_argument, message, routine="set_arg", remedy=remedy)


def check_object(command: Any, index: int, kind: int, handle: int, context: int) -> None:
    """Check the object that an argument is to become.

    Args:
        command: the launch, an `fl_command *`.
        index: the argument's number.
        kind: what it is to become (icd/command_buffer/edits.py).
        handle: the object, if it is one; 0 for none.
        context: the context of the graph, a handle.

    Raises:
        SYCLError: kernel_argument, for an object of another context or driver, one that was
            released, and one of another type than the present one.
    """
    if handle and kind in _QUERIES:
        check_context(f"argument {index}", kind, handle, context)
    present_kind, present = get_object(command, index)
    if present_kind == UNSET:
        return
    if (kind == SAMPLER) != (present_kind == SAMPLER):
        what = "a sampler" if present_kind == SAMPLER else "not a sampler"
        raise make_argument_error(f"argument {index} is {what}", _REMEDY)
    had = find_image_type(present) if present_kind == MEMORY else ""
    if had != (find_image_type(handle) if kind == MEMORY and handle else ""):
        raise make_argument_error(f"argument {index} is {had or 'not an image'}", _REMEDY)


def check_context(name: str, kind: int, handle: int, context: int) -> None:
    """Raise SYCLError (kernel_argument) unless a handle is an object of a context.

    A released object is freed memory. What it was may still be there, with a count of 0.

    Args:
        name: what it has to be, for the message.
        kind: MEMORY or SAMPLER.
        context: the context of the graph, a handle.
    """
    routine, begin, what = _QUERIES[kind]
    if read_word(handle) != read_word(context):
        raise make_argument_error(
            f"{name} is not an object of the graph's driver", "give one that lives"
        )
    value, uses = ffi.new("uintptr_t *"), ffi.new("uint32_t *")
    code = call(handle, routine, OPENCL[f"{begin}_CONTEXT"], 8, get_address(value), None)
    if code == 0:
        count = OPENCL[f"{begin}_REFERENCE_COUNT"]
        code = call(handle, routine, count, 4, get_address(uses), None)
    if code or value[0] != context or not uses[0]:
        raise make_argument_error(
            f"{name} is {what} of another context, or was released",
            "give one of the context that was captured",
        )


def find_image_type(memory: int) -> str:
    """Return what image a memory object is, "" if it is none."""
    value = ffi.new("uint32_t *")
    call(memory, "clGetMemObjectInfo", OPENCL["CL_MEM_TYPE"], 4, get_address(value), None)
    return _IMAGES.get(value[0], "")


def has_own_contents(commands: Any, count: int, held: Sequence[Any]) -> bool:
    """Whether launches, copies and fills use memory that began with the host's contents, and that
    nobody else has.

    It was made in their block, and every replay goes on with what the one before has left there.

    Args:
        commands: an array of `fl_command`.
        count: how many they are.
        held: what the block holds (`CapturedBlock.held`).
    """
    import pyopencl

    # a buffer with USE_HOST_PTR, which is held with the host's memory
    buffers = [one[0] for one in held if isinstance(one, tuple)]
    # as many as Python counts for an object in a list that nobody else has
    (alone,), references = _count_references([object()]), _count_references(buffers)
    dropped = {
        one.int_ptr
        for one, number in zip(buffers, references, strict=True)
        if isinstance(one, pyopencl.MemoryObjectHolder) and number <= alone + 1
    }
    counted = ffi.gc(lib.fl_count_references(commands, count), lib.fl_free_references)
    return any(
        begins_with_contents(one)
        for one in list_memory(commands, count)
        if lib.fl_other_references(counted, ffi.cast("void *", one)) <= (one in dropped)
    )


def list_memory(commands: Any, count: int) -> set[int]:
    """Return the memory objects (handles) that commands use, an array of `fl_command`."""
    used = set[int]()
    for number in range(count):
        command = commands[number]
        used |= {get_address(command.source), get_address(command.target)}
        objects = (get_object(command, index) for index in range(count_arguments(command)))
        used |= {handle for kind, handle in objects if kind == MEMORY}
    return used - {0}


def find_root(memory: int) -> int:
    """Return the memory object that a memory object (a handle) is a part of, or itself."""
    told = ffi.new("uint64_t[4]")
    code = lib.fl_find_root(ffi.cast("void *", memory), told)
    return memory if code else told[0]


def _count_references(things: Sequence[Any]) -> list[int]:
    return [getrefcount(one) for one in things]


def begins_with_contents(memory: int) -> bool:
    """Whether a memory object (a handle) was made with contents of the host's memory."""
    return bool(
        _query_flags(memory) & (OPENCL["CL_MEM_COPY_HOST_PTR"] | OPENCL["CL_MEM_USE_HOST_PTR"])
    )


def is_constant(memory: int) -> bool:
    """Whether no kernel may write to a memory object (a handle)."""
    return bool(_query_flags(memory) & OPENCL["CL_MEM_READ_ONLY"])


def _query_flags(memory: int) -> int:
    value = ffi.new("uint64_t *")
    call(memory, "clGetMemObjectInfo", OPENCL["CL_MEM_FLAGS"], 8, get_address(value), None)
    return value[0]


def list_kept_objects(value: Any) -> list[Any]:
    """Return what an argument needs to be kept alive.

    An image of a buffer does not keep the buffer on every driver.
    """
    import pyopencl

    found, query = [value], pyopencl.mem_info.ASSOCIATED_MEMOBJECT
    while isinstance(found[-1], pyopencl.Image) and (source := found[-1].get_info(query)):
        found.append(source)
    return found
