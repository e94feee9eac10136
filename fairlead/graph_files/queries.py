"""What drivers tell of programs, kernels, memory objects and samplers, for a file."""

from __future__ import annotations

import gc
import shlex
from collections.abc import Sequence
from typing import Any, Final

from ..icd._native import ffi
from ..icd.abi import OPENCL
from ..icd.calls import address, call, kernel_name
from ..icd.errors import OpenCLError
from ..icd.program_binaries import binaries_of
from .errors import cannot_save

#: Flags of memory that mean the same in another process. Others lead to the saved program's memory.
FLAGS: Final = (
    "READ_WRITE",
    "WRITE_ONLY",
    "READ_ONLY",
    "ALLOC_HOST_PTR",
    "HOST_WRITE_ONLY",
    "HOST_READ_ONLY",
    "HOST_NO_ACCESS",
)
IMAGE_TYPES: Final = {
    OPENCL[f"CL_MEM_OBJECT_{name.upper()}"]: name
    for name in (
        "image1d",
        "image1d_array",
        "image1d_buffer",
        "image2d",
        "image2d_array",
        "image3d",
    )
}
_KERNEL_ARG: Final = {"type": "CL_KERNEL_ARG_TYPE_NAME", "name": "CL_KERNEL_ARG_NAME"}


#: What says that a kernel does not write an argument: the query, the bits of its answer, and these.
NOT_WRITTEN: Final = (
    ("ADDRESS_QUALIFIER", -1, OPENCL["CL_KERNEL_ARG_ADDRESS_CONSTANT"]),
    ("ACCESS_QUALIFIER", -1, OPENCL["CL_KERNEL_ARG_ACCESS_READ_ONLY"]),
    (
        "TYPE_QUALIFIER",
        OPENCL["CL_KERNEL_ARG_TYPE_CONST"],
        OPENCL["CL_KERNEL_ARG_TYPE_CONST"],
    ),
)


def data_of(handle: int, routine: str, name: str | int, *between: int) -> bytes:
    """What a query answers, b"" if the driver does not answer it."""
    query = OPENCL[name] if isinstance(name, str) else name
    size = ffi.new("size_t *")
    if call(handle, routine, *between, query, 0, None, address(size)) or not size[0]:
        return b""
    room = ffi.new("char[]", size[0])
    if call(handle, routine, *between, query, size[0], address(room), None):
        return b""
    return bytes(ffi.buffer(room, size[0]))


def number_in(handle: int, routine: str, name: str | int, *between: int) -> int:
    """The same as a number, 0 if the driver does not answer."""
    return int.from_bytes(data_of(handle, routine, name, *between), "little")


def text_in(handle: int, routine: str, name: str | int, *between: int) -> str:
    """The same as a text."""
    data = data_of(handle, routine, name, *between)
    return data.rstrip(b"\0").decode("utf-8", "replace").replace("\0", "")


def program_of(kernel: int) -> int:
    """The program of a kernel, a handle."""
    return number_in(kernel, "clGetKernelInfo", "CL_KERNEL_PROGRAM")


def program_record(
    program: int, device: int, number: int, binaries: bool
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """A program as a file has it, and the members that it refers to.

    Args:
        program, device: handles.
        number: of the program in the file.
        binaries: whether the binary of the device is wanted, too.

    Raises:
        GraphFileError: its source, IL and binary are unknown.
    """
    routine = "clGetProgramInfo"
    options = text_in(program, "clGetProgramBuildInfo", "CL_PROGRAM_BUILD_OPTIONS", device)
    record: dict[str, Any] = {"options": without_includes(options)}
    members: dict[str, bytes] = {}
    source = text_in(program, routine, "CL_PROGRAM_SOURCE") or _known_source(program)
    il = data_of(program, routine, "CL_PROGRAM_IL")
    if source.strip():
        record["source"] = f"programs/{number}.cl"
        members[record["source"]] = source.encode()
    elif il:
        record["il"] = f"programs/{number}.spv"
        members[record["il"]] = il
    if binaries or not members:
        binary = _binary_of(program, device)
        if not binary and not members:
            raise cannot_save(
                "the driver tells neither source nor IL nor binary of a program",
                "keep the pyopencl.Program of each kernel alive until the graph is saved",
            )
        if binary:
            name = f"programs/{number}.bin"
            record["binaries"] = [{**identity_of(device), "file": name}]
            members[name] = binary
    return record, members


def without_includes(options: str) -> str:
    """Build options without PyOpenCL's own folder, which it adds to every build."""
    from pyopencl import _find_pyopencl_include_path

    own = _find_pyopencl_include_path()
    try:
        words = shlex.split(options)
    except ValueError:  # quotes that no shell has
        return options
    kept: list[str] = []
    for word in words:
        if word == own and kept and kept[-1] == "-I":
            kept.pop()
        elif word != f"-I{own}":
            kept.append(word)
    return shlex.join(kept)


def identity_of(device: int) -> dict[str, str]:
    """What a binary is for: a device, and a version of its driver."""
    return {
        "device": text_in(device, "clGetDeviceInfo", "CL_DEVICE_NAME"),
        "driver": text_in(device, "clGetDeviceInfo", "CL_DRIVER_VERSION"),
    }


def _known_source(program: int) -> str:
    """The source that a living program or kernel of PyOpenCL was made of.

    PyOpenCL's cache makes programs from binaries, of which the driver does not know the source.
    Intel's driver tells nothing of a program that only its kernels keep.
    """
    import pyopencl as cl

    for one in gc.get_objects():
        try:
            if type(one) is cl.Kernel:
                handle = program_of(one.int_ptr)
            elif type(one) is cl.Program:
                handle = one.int_ptr
            else:
                continue
            source = getattr(one, "_source", "") if handle == program else ""
        except Exception:  # one that was never built, or was made of a binary
            continue
        if source:
            return source if isinstance(source, str) else source.decode("utf-8", "replace")
    return ""


def _binary_of(program: int, device: int) -> bytes:
    routine = "clGetProgramInfo"
    devices = ffi.from_buffer("uintptr_t[]", data_of(program, routine, "CL_PROGRAM_DEVICES"))
    try:
        binaries = dict(zip(devices, binaries_of(program), strict=True))
    except (OpenCLError, ValueError):  # the driver tells no binaries, or not those of all devices
        return b""
    return binaries.get(device, b"")


def kernel_record(kernel: int, program: int, count: int) -> dict[str, Any]:
    """A kernel as a file has it.

    Args:
        kernel: a handle.
        program: the number of its program.
        count: how many arguments it has.
    """
    record: dict[str, Any] = {"program": program, "name": kernel_name(kernel)}
    routine = "clGetKernelArgInfo"
    arguments: list[dict[str, Any]] = []
    for index in range(count):
        found: dict[str, Any] = {
            name: text_in(kernel, routine, query, index) for name, query in _KERNEL_ARG.items()
        }
        if not found["type"]:
            return record
        found["constant"] = any(
            number_in(kernel, routine, f"CL_KERNEL_ARG_{query}", index) & mask == wanted
            for query, mask, wanted in NOT_WRITTEN
        )
        arguments.append(found)
    return {**record, "arguments": arguments}


def flags_of(memory: int) -> list[str]:
    """The flags of a memory object that another process can use."""
    return flag_names(number_in(memory, "clGetMemObjectInfo", "CL_MEM_FLAGS"))


def flag_names(flags: int) -> list[str]:
    """The names of flags of memory that another process can use."""
    return [name.lower() for name in FLAGS if flags & OPENCL[f"CL_MEM_{name}"]]


def memory_record(memory: int) -> tuple[dict[str, Any], int]:
    """A memory object as a file has it, and what it is a part of or made from (a handle, 0)."""
    routine = "clGetMemObjectInfo"
    kind = IMAGE_TYPES.get(number_in(memory, routine, "CL_MEM_TYPE"))
    whole = number_in(memory, routine, "CL_MEM_ASSOCIATED_MEMOBJECT")
    size = number_in(memory, routine, "CL_MEM_SIZE")
    record: dict[str, Any] = {"kind": "buffer", "size": size, "flags": flags_of(memory)}
    if kind is not None:
        return {**record, **_image(memory, kind, whole)}, whole
    if whole:
        offset = number_in(memory, routine, "CL_MEM_OFFSET")
        record |= {"kind": "sub_buffer", "offset": offset}
    return record, whole


def _image(image: int, kind: str, whole: int) -> dict[str, Any]:
    def asked(name: str) -> int:
        return number_in(image, "clGetImageInfo", f"CL_IMAGE_{name}")

    layers = asked("ARRAY_SIZE")
    extent = [max(1, asked(name)) for name in ("WIDTH", "HEIGHT", "DEPTH")]
    if kind == "image1d_array":
        extent = [extent[0], layers, 1]
    elif kind == "image2d_array":
        extent[2] = layers
    record = image_row(
        kind, number_in(image, "clGetImageInfo", "CL_IMAGE_FORMAT"), asked("ELEMENT_SIZE"), extent
    )
    return {**record, "row_pitch": asked("ROW_PITCH")} if whole else record


def image_row(kind: str, form: int, element: int, extent: Sequence[int]) -> dict[str, Any]:
    """An image as a file has it.

    Args:
        kind: the type, one of IMAGE_TYPES.
        form: the bytes of its cl_image_format, as a number.
        element: the size of an element in bytes.
        extent: pixels, rows and slices; layers of an array are in the last one that it has.
    """
    import pyopencl as cl

    return {
        "kind": "image",
        "size": extent[0] * extent[1] * extent[2] * element,
        "type": kind,
        "order": cl.channel_order.to_string(form & 0xFFFFFFFF),
        "channel_type": cl.channel_type.to_string(form >> 32),
        "element_size": element,
        "extent": list(extent),
    }


def sampler_record(sampler: int) -> dict[str, Any]:
    """A sampler as a file has it."""

    def asked(name: str) -> int:
        return number_in(sampler, "clGetSamplerInfo", f"CL_SAMPLER_{name}")

    return sampler_row(asked("NORMALIZED_COORDS"), asked("ADDRESSING_MODE"), asked("FILTER_MODE"))


def sampler_row(normalized: int, addressing: int, filtering: int) -> dict[str, Any]:
    """A sampler as a file has it, of OpenCL's numbers."""
    import pyopencl as cl

    return {
        "normalized": bool(normalized),
        "addressing": cl.addressing_mode.to_string(addressing),
        "filter": cl.filter_mode.to_string(filtering),
    }
