"""Memory objects: buffers and sub-buffers. Images are not supported: docs/adapter_support.md lists them."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from ...icd.abi import OPENCL
from ...loader.ur.abi import UR
from .contexts import URContext
from .core import CLObject, adapter, create, failure, flags, query, retain_unless_owned
from .devices import URDevice
from .platforms import driver_of

_FLAGS: Final = {
    "UR_MEM_FLAG_READ_WRITE": "CL_MEM_READ_WRITE",
    "UR_MEM_FLAG_WRITE_ONLY": "CL_MEM_WRITE_ONLY",
    "UR_MEM_FLAG_READ_ONLY": "CL_MEM_READ_ONLY",
    "UR_MEM_FLAG_USE_HOST_POINTER": "CL_MEM_USE_HOST_PTR",
    "UR_MEM_FLAG_ALLOC_HOST_POINTER": "CL_MEM_ALLOC_HOST_PTR",
    "UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER": "CL_MEM_COPY_HOST_PTR",
}
_ACCESS: Final = tuple(
    UR[name]
    for name in ("UR_MEM_FLAG_READ_WRITE", "UR_MEM_FLAG_WRITE_ONLY", "UR_MEM_FLAG_READ_ONLY")
)
_USE: Final = UR["UR_MEM_FLAG_USE_HOST_POINTER"]
_ALLOC: Final = UR["UR_MEM_FLAG_ALLOC_HOST_POINTER"]
_COPY: Final = UR["UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER"]


@adapter.kind
class URBuffer(CLObject):
    """A cl_mem that is a buffer of `size` bytes. `parent` is the buffer that it is a part of; `host` the memory of the
    program's that it uses, or 0; `whole` the cl_mem that it lies in, itself if it is no part of another, and where it begins there.
    """

    type = "ur_mem_handle_t"
    release, retain_function = "clReleaseMemObject", "clRetainMemObject"

    def __init__(
        self,
        cl: int,
        context: URContext,
        size: int,
        *,
        parent: URBuffer | None = None,
        host: int = 0,
        owned: bool = True,
    ) -> None:
        super().__init__(cl, context.table, owned)
        self.context, self.size, self.parent, self.host = context, size, parent, host
        self.whole: tuple[int, int] = (cl, 0)
        self.words = cl, context.cl, 0, 0  # as launches.c knows it


def _check_flags(value: int) -> None:
    """Raise URError (INVALID_VALUE) for flags that exclude each other; drivers differ in what they refuse."""
    if sum(bool(value & flag) for flag in _ACCESS) > 1:
        raise failure("INVALID_VALUE", "a buffer has one kind of access")
    if value & _USE and value & (_ALLOC | _COPY):
        raise failure(
            "INVALID_VALUE", "memory of the program's is used, or else memory is allocated"
        )


@adapter.entry
def urMemBufferCreate(hContext: URContext, flags: int, size: int, pProperties: Any) -> URBuffer:
    if not size:
        raise failure("INVALID_BUFFER_SIZE", "a buffer has one byte at least")
    host = pProperties.pHost if pProperties else 0
    if bool(host) != bool(flags & (_USE | _COPY)):
        raise failure(
            "INVALID_HOST_PTR", "a host pointer goes with the flags that say what it is for"
        )
    _check_flags(flags)
    cl = create(
        hContext.table, "clCreateBuffer", hContext.cl, _opencl_flags(flags), size, host or None
    )
    return URBuffer(cl, hContext, size, host=host if flags & _USE else 0)


def _opencl_flags(value: int) -> int:
    return flags(value, _FLAGS)


@adapter.entry
def urMemBufferPartition(hBuffer: URBuffer, flags: int, pRegion: Any) -> URBuffer:
    if hBuffer.parent is not None:
        raise failure("INVALID_MEM_OBJECT", "a sub-buffer is not divided again")
    if not pRegion.size or pRegion.origin + pRegion.size > hBuffer.size:
        raise failure(
            "INVALID_BUFFER_SIZE",
            f"the region is empty, or goes beyond the {hBuffer.size} bytes of the buffer",
        )
    _check_flags(flags)
    if flags & (_USE | _ALLOC | _COPY):
        raise failure("INVALID_VALUE", "a sub-buffer has the memory of its buffer")
    return sub_buffer(hBuffer, pRegion.origin, pRegion.size, _opencl_flags(flags))


def sub_buffer(buffer: URBuffer, origin: int, size: int, opencl_flags: int = 0) -> URBuffer:
    """A part of a buffer. Raises OpenCLError (CL_MISALIGNED_SUB_BUFFER_OFFSET) where no part can begin."""
    cl = create_part(buffer, origin, size, opencl_flags)
    made = URBuffer(
        cl, buffer.context, size, parent=buffer, host=buffer.host + origin if buffer.host else 0
    )
    made.whole = buffer.whole[0], buffer.whole[1] + origin
    return made


def create_part(memory: CLObject, origin: int, size: int, opencl_flags: int = 0) -> int:
    """A new cl_mem for a part of another. Raises OpenCLError."""
    region = OPENCL.struct("cl_buffer_region")(origin, size)
    kind = OPENCL["CL_BUFFER_CREATE_TYPE_REGION"]
    return create(
        memory.table, "clCreateSubBuffer", memory.cl, opencl_flags, kind, ctypes.byref(region)
    )


adapter.info(
    "urMemGetInfo",
    {
        "UR_MEM_INFO_SIZE": lambda buffer: buffer.size,
        "UR_MEM_INFO_CONTEXT": lambda buffer: buffer.context,
        "UR_MEM_INFO_REFERENCE_COUNT": lambda buffer: buffer.references,
    },
)


@adapter.entry
def urMemGetNativeHandle(hMem: URBuffer, hDevice: URDevice | None) -> int:
    if hDevice is not None:
        hMem.context.check_device(hDevice)
    return hMem.cl


@adapter.entry
def urMemBufferCreateWithNativeHandle(
    hNativeMem: int, hContext: URContext, pProperties: Any
) -> URBuffer:
    if not hNativeMem:
        raise failure("INVALID_NULL_HANDLE")
    table = driver_of(hNativeMem).table

    def ask(name: str) -> int:
        return int.from_bytes(
            query(table, "clGetMemObjectInfo", hNativeMem, OPENCL[name]), "little"
        )

    if ask("CL_MEM_CONTEXT") != hContext.cl:
        raise failure("INVALID_CONTEXT", "the memory object is of another context")
    if ask("CL_MEM_TYPE") != OPENCL["CL_MEM_OBJECT_BUFFER"]:
        raise failure("INVALID_MEM_OBJECT", "the memory object is no buffer")
    retain_unless_owned(
        URBuffer, hNativeMem, hContext.table, bool(pProperties and pProperties.isNativeHandleOwned)
    )
    made = URBuffer(hNativeMem, hContext, ask("CL_MEM_SIZE"), host=ask("CL_MEM_HOST_PTR"))
    made.whole = ask("CL_MEM_ASSOCIATED_MEMOBJECT") or hNativeMem, ask("CL_MEM_OFFSET")
    return made
