"""Buffers and sub-buffers."""

from __future__ import annotations

import ctypes
from typing import Any

from ...icd.abi import OPENCL
from .contexts import URContext
from .core import CLObject, adapter, create, failure
from .memory import (
    ALLOC,
    COPY,
    USE,
    URMemory,
    ask,
    check_flags,
    native_type,
    opencl_flags,
    take_native,
)


class URBuffer(URMemory):
    """A cl_mem that is a buffer of `size` bytes. `parent` is the buffer that it is a part of; `host` the memory of the
    program's that it uses, or 0; `whole` the cl_mem that it lies in, itself if it is no part of another, and where it begins there.
    """

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
        super().__init__(cl, context, size, host=host, owned=owned)
        self.parent = parent
        self.whole: tuple[int, int] = (cl, 0)


def check_buffers(context: URContext, *buffers: URMemory) -> None:
    """Raise URError for what is no buffer (INVALID_MEM_OBJECT), or of another context (INVALID_CONTEXT)."""
    if not all(isinstance(buffer, URBuffer) for buffer in buffers):
        raise failure("INVALID_MEM_OBJECT", "an image is no buffer")
    context.check_same("a buffer", *buffers)


@adapter.entry
def urMemBufferCreate(hContext: URContext, flags: int, size: int, pProperties: Any) -> URBuffer:
    if not size:
        raise failure("INVALID_BUFFER_SIZE", "a buffer has one byte at least")
    host = pProperties.pHost if pProperties else 0
    check_flags(flags, host)
    cl = create(
        hContext.table, "clCreateBuffer", hContext.cl, opencl_flags(flags), size, host or None
    )
    return URBuffer(cl, hContext, size, host=host if flags & USE else 0)


@adapter.entry
def urMemBufferPartition(hBuffer: URBuffer, flags: int, pRegion: Any) -> URBuffer:
    check_buffers(hBuffer.context, hBuffer)
    if hBuffer.parent is not None:
        raise failure("INVALID_MEM_OBJECT", "a sub-buffer is not divided again")
    if not pRegion.size or pRegion.origin + pRegion.size > hBuffer.size:
        raise failure(
            "INVALID_BUFFER_SIZE",
            f"the region is empty, or goes beyond the {hBuffer.size} bytes of the buffer",
        )
    if flags & (USE | ALLOC | COPY):
        raise failure("INVALID_VALUE", "a sub-buffer has the memory of its buffer")
    check_flags(flags, 0)
    return sub_buffer(hBuffer, pRegion.origin, pRegion.size, opencl_flags(flags))


def sub_buffer(buffer: URBuffer, origin: int, size: int, cl_flags: int = 0) -> URBuffer:
    """A part of a buffer. Raises OpenCLError (CL_MISALIGNED_SUB_BUFFER_OFFSET) where no part can begin."""
    cl = create_part(buffer, origin, size, cl_flags)
    made = URBuffer(
        cl, buffer.context, size, parent=buffer, host=buffer.host + origin if buffer.host else 0
    )
    made.whole = buffer.whole[0], buffer.whole[1] + origin
    return made


def create_part(memory: CLObject, origin: int, size: int, cl_flags: int = 0) -> int:
    """A new cl_mem for a part of another. Raises OpenCLError."""
    region = OPENCL.struct("cl_buffer_region")(origin, size)
    kind = OPENCL["CL_BUFFER_CREATE_TYPE_REGION"]
    return create(
        memory.table, "clCreateSubBuffer", memory.cl, cl_flags, kind, ctypes.byref(region)
    )


@adapter.entry
def urMemBufferCreateWithNativeHandle(
    hNativeMem: int, hContext: URContext, pProperties: Any
) -> URBuffer:
    native_type(hNativeMem, hContext, (OPENCL["CL_MEM_OBJECT_BUFFER"],))
    take_native(URBuffer, hNativeMem, hContext, pProperties)
    size, host = (ask(hNativeMem, hContext, f"CL_MEM_{name}") for name in ("SIZE", "HOST_PTR"))
    made = URBuffer(hNativeMem, hContext, size, host=host)
    whole = ask(hNativeMem, hContext, "CL_MEM_ASSOCIATED_MEMOBJECT")
    made.whole = whole or hNativeMem, ask(hNativeMem, hContext, "CL_MEM_OFFSET")
    return made
