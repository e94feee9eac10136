"""Buffers and sub-buffers of the OpenCL adapter."""

from __future__ import annotations

import ctypes
from typing import Any

from ...icd.abi import OPENCL
from ..sdk.buffers import BufferObject, declare_buffers
from ..sdk.rules import USE
from .contexts import URContext
from .core import CLObject, adapter, create, retain_unless_owned
from .memory import URMemory, convert_to_opencl_flags, query_memory, query_native_type


class URBuffer(BufferObject, URMemory):
    """A cl_mem that is a buffer.

    Args:
        size: bytes.
        parent: the buffer that a sub-buffer is a part of.
        host: the address of the program's memory that it uses, or 0.
        owned: whether it has a reference to `cl`, which it releases at the end.

    Attributes:
        whole: the cl_mem that it is in, and its offset there in bytes.
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

    def describe_to_c(self) -> tuple[int, int, int, int]:
        return self.cl, self.context.cl, 1, self.size


def _create(context: URContext, flags: int, size: int, host: int) -> URBuffer:
    given = convert_to_opencl_flags(flags), size, host or None
    cl = create(context.table, "clCreateBuffer", context.cl, *given)
    return URBuffer(cl, context, size, host=host if flags & USE else 0)


def _divide(buffer: URBuffer, flags: int, origin: int, size: int, host: int) -> URBuffer:
    return create_sub_buffer(buffer, origin, size, convert_to_opencl_flags(flags))


def create_sub_buffer(buffer: URBuffer, origin: int, size: int, cl_flags: int = 0) -> URBuffer:
    """Create a sub-buffer.

    Args:
        origin: the first byte of the part.
        size: the bytes of the part.
        cl_flags: OpenCL's flags.

    Raises:
        OpenCLError: CL_MISALIGNED_SUB_BUFFER_OFFSET where no sub-buffer can begin.
    """
    cl = create_part(buffer, origin, size, cl_flags)
    made = URBuffer(
        cl, buffer.context, size, parent=buffer, host=buffer.host + origin if buffer.host else 0
    )
    made.whole = buffer.whole[0], buffer.whole[1] + origin
    return made


def create_part(memory: CLObject, origin: int, size: int, cl_flags: int = 0) -> int:
    """Create the cl_mem of a sub-buffer. Arguments and errors are those of `create_sub_buffer`."""
    region = OPENCL.get_struct("cl_buffer_region")(origin, size)
    kind = OPENCL["CL_BUFFER_CREATE_TYPE_REGION"]
    return create(
        memory.table, "clCreateSubBuffer", memory.cl, cl_flags, kind, ctypes.byref(region)
    )


def _take_native(native: int, context: URContext, properties: Any) -> URBuffer:
    query_native_type(native, context, (OPENCL["CL_MEM_OBJECT_BUFFER"],))
    retain_unless_owned(URBuffer, native, context.table, properties)
    size, host = (query_memory(native, context, f"CL_MEM_{name}") for name in ("SIZE", "HOST_PTR"))
    made = URBuffer(native, context, size, host=host)
    whole = query_memory(native, context, "CL_MEM_ASSOCIATED_MEMOBJECT")
    made.whole = whole or native, query_memory(native, context, "CL_MEM_OFFSET")
    return made


declare_buffers(adapter, _create, _divide, _take_native)
