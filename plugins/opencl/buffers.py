"""Buffers and sub-buffers of the OpenCL adapter, and what all memory objects have in common: flags
and native handles.
"""

from __future__ import annotations

import ctypes
from collections.abc import Container
from typing import Any, Final

from ...icd.abi import OPENCL
from ..sdk.buffers import BufferObject, declare_buffers
from ..sdk.rules import USE
from .contexts import URContext, check_native
from .core import (
    CLObject,
    adapter,
    convert_flags,
    create,
    failure,
    query_number,
    retain_unless_owned,
)
from .queues import share_memory

_FLAGS: Final = {
    "UR_MEM_FLAG_READ_WRITE": "CL_MEM_READ_WRITE",
    "UR_MEM_FLAG_WRITE_ONLY": "CL_MEM_WRITE_ONLY",
    "UR_MEM_FLAG_READ_ONLY": "CL_MEM_READ_ONLY",
    "UR_MEM_FLAG_USE_HOST_POINTER": "CL_MEM_USE_HOST_PTR",
    "UR_MEM_FLAG_ALLOC_HOST_POINTER": "CL_MEM_ALLOC_HOST_PTR",
    "UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER": "CL_MEM_COPY_HOST_PTR",
}


@adapter.kind
class URMemory(CLObject):
    """A cl_mem: a `URBuffer` or a `URImage`.

    Args:
        size: bytes.
        host: the address of the program's memory that it uses, or 0.
        owned: whether it has a reference to `cl`, which it releases at the end.
    """

    type = "ur_mem_handle_t"
    release, retain_function = "clReleaseMemObject", "clRetainMemObject"

    def __init__(
        self, cl: int, context: URContext, size: int, *, host: int = 0, owned: bool = True
    ) -> None:
        super().__init__(cl, context.table, owned)
        self.context, self.size, self.host = context, size, host

    def get_native(self) -> int:
        share_memory()
        return self.cl

    def describe_to_c(self) -> tuple[int, int, int, int]:
        """Return what native/calls.h says: C leaves images to Python."""
        return self.cl, self.context.cl, 0, 0


def convert_to_opencl_flags(value: int) -> int:
    """Return OpenCL's flags for ur_mem_flags_t."""
    return convert_flags(value, _FLAGS)


def query_memory(
    native: int, context: URContext, name: str, routine: str = "clGetMemObjectInfo"
) -> int:
    """Return a property of a cl_mem that is a number. Raises OpenCLError."""
    return query_number(context.table, routine, native, name)


def query_native_type(native: int, context: URContext, types: Container[int]) -> int:
    """Return the CL_MEM_TYPE of a native handle.

    Args:
        context: the context that it has to belong to.

    Raises:
        URError: INVALID_CONTEXT, or INVALID_MEM_OBJECT for another type.
    """
    check_native(native, context, "clGetMemObjectInfo", "CL_MEM_CONTEXT")
    found = query_memory(native, context, "CL_MEM_TYPE")
    if found not in types:
        raise failure("INVALID_MEM_OBJECT", "the native memory object is of another kind")
    share_memory()
    return found


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
