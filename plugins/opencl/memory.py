"""OpenCL adapter: what all memory objects have in common: flags and native handles.

buffers.py and images.py have the rest.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from .contexts import URContext, check_native
from .core import CLObject, adapter, convert_flags, failure, query_number
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
