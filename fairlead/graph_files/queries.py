"""What drivers tell of kernels, memory objects and samplers, for a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..icd.abi import OPENCL
from ..icd.calls import query_bytes, query_kernel_name

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
    ("TYPE_QUALIFIER", OPENCL["CL_KERNEL_ARG_TYPE_CONST"], OPENCL["CL_KERNEL_ARG_TYPE_CONST"]),
)


def query_data(handle: int, routine: str, name: str | int, *between: int) -> bytes:
    """Return what `query_bytes` returns, b"" if the driver does not answer: for what a file may
    lack."""
    return query_bytes(handle, routine, name, *between) or b""


def query_number(handle: int, routine: str, name: str | int, *between: int) -> int:
    """Return what a query answers as a number, 0 if the driver does not answer it."""
    return int.from_bytes(query_data(handle, routine, name, *between), "little")


def query_text(handle: int, routine: str, name: str | int, *between: int) -> str:
    """Return what a query answers as a text, "" if the driver does not answer it."""
    return decode(query_data(handle, routine, name, *between))


def decode(text: bytes) -> str:
    """Return a driver's text."""
    return text.rstrip(b"\0").decode("utf-8", "replace").replace("\0", "")


def identify_device(device: int) -> dict[str, str]:
    """Return what a binary is for: a device, and a version of its driver."""
    return {
        "device": query_text(device, "clGetDeviceInfo", "CL_DEVICE_NAME"),
        "driver": query_text(device, "clGetDeviceInfo", "CL_DRIVER_VERSION"),
    }


def make_kernel_row(kernel: int, program: int, count: int) -> dict[str, Any]:
    """Return a kernel as a file has it.

    Args:
        kernel: a handle.
    """
    record: dict[str, Any] = {"program": program, "name": query_kernel_name(kernel)}
    routine = "clGetKernelArgInfo"
    arguments: list[dict[str, Any]] = []
    for index in range(count):
        found: dict[str, Any] = {
            name: query_text(kernel, routine, query, index) for name, query in _KERNEL_ARG.items()
        }
        if not found["type"]:
            return record
        found["constant"] = any(
            query_number(kernel, routine, f"CL_KERNEL_ARG_{query}", index) & mask == wanted
            for query, mask, wanted in NOT_WRITTEN
        )
        arguments.append(found)
    return {**record, "arguments": arguments}


def list_flags(memory: int) -> list[str]:
    """Return the flags of a memory object that another process can use."""
    return list_flag_names(query_number(memory, "clGetMemObjectInfo", "CL_MEM_FLAGS"))


def list_flag_names(flags: int) -> list[str]:
    """Return the names of flags of memory that another process can use."""
    return [name.lower() for name in FLAGS if flags & OPENCL[f"CL_MEM_{name}"]]


def make_memory_row(memory: int) -> tuple[dict[str, Any], int]:
    """Return a memory object as a file has it, and what it is a part of or made from (a handle,
    0)."""
    routine = "clGetMemObjectInfo"
    kind = IMAGE_TYPES.get(query_number(memory, routine, "CL_MEM_TYPE"))
    whole = query_number(memory, routine, "CL_MEM_ASSOCIATED_MEMOBJECT")
    size = query_number(memory, routine, "CL_MEM_SIZE")
    record: dict[str, Any] = {"kind": "buffer", "size": size, "flags": list_flags(memory)}
    if kind is not None:
        return {**record, **_make_image_row(memory, kind, whole)}, whole
    if whole:
        offset = query_number(memory, routine, "CL_MEM_OFFSET")
        record |= {"kind": "sub_buffer", "offset": offset}
    return record, whole


def _make_image_row(image: int, kind: str, whole: int) -> dict[str, Any]:
    def query_image(name: str) -> int:
        return query_number(image, "clGetImageInfo", f"CL_IMAGE_{name}")

    layers = query_image("ARRAY_SIZE")
    extent = [max(1, query_image(name)) for name in ("WIDTH", "HEIGHT", "DEPTH")]
    if kind == "image1d_array":
        extent = [extent[0], layers, 1]
    elif kind == "image2d_array":
        extent[2] = layers
    record = make_image_row(
        kind,
        query_number(image, "clGetImageInfo", "CL_IMAGE_FORMAT"),
        query_image("ELEMENT_SIZE"),
        extent,
    )
    return {**record, "row_pitch": query_image("ROW_PITCH")} if whole else record


def make_image_row(kind: str, form: int, element: int, extent: Sequence[int]) -> dict[str, Any]:
    """Return an image as a file has it.

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


def make_sampler_row(sampler: int) -> dict[str, Any]:
    """Return a sampler as a file has it."""

    def query_sampler(name: str) -> int:
        return query_number(sampler, "clGetSamplerInfo", f"CL_SAMPLER_{name}")

    return encode_sampler(
        query_sampler("NORMALIZED_COORDS"),
        query_sampler("ADDRESSING_MODE"),
        query_sampler("FILTER_MODE"),
    )


def encode_sampler(normalized: int, addressing: int, filtering: int) -> dict[str, Any]:
    """Return a sampler as a file has it, of OpenCL's numbers.

    Args:
        normalized: whether coordinates are from 0 to 1.
    """
    import pyopencl as cl

    return {
        "normalized": bool(normalized),
        "addressing": cl.addressing_mode.to_string(addressing),
        "filter": cl.filter_mode.to_string(filtering),
    }
