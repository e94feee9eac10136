"""What all memory objects have: how they are made, what they tell of themselves, their native
handles. buffers.py and images.py have the rest."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final

from ...icd.abi import OPENCL
from ...loader.ur.abi import UR
from .contexts import URContext, check_native
from .core import CLObject, adapter, failure, flags, query, retain_unless_owned
from .devices import URDevice

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
USE: Final = UR["UR_MEM_FLAG_USE_HOST_POINTER"]
ALLOC: Final = UR["UR_MEM_FLAG_ALLOC_HOST_POINTER"]
COPY: Final = UR["UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER"]


@adapter.kind
class URMemory(CLObject):
    """A cl_mem: a URBuffer or a URImage. `size` is in bytes; `host` is the memory of the program's
    that it uses, or 0."""

    type = "ur_mem_handle_t"
    release, retain_function = "clReleaseMemObject", "clRetainMemObject"

    def __init__(
        self, cl: int, context: URContext, size: int, *, host: int = 0, owned: bool = True
    ) -> None:
        super().__init__(cl, context.table, owned)
        self.context, self.size, self.host = context, size, host

    def describe_to_c(self) -> tuple[int, int, int, int]:
        """Return what launches.c knows of it."""
        return self.cl, self.context.cl, 0, 0


def check_flags(value: int, host: int) -> None:
    """Raise URError for flags that exclude each other (INVALID_VALUE), and for a host pointer
    without its flags or the reverse (INVALID_HOST_PTR). Drivers differ in what they refuse."""
    if bool(host) != bool(value & (USE | COPY)):
        raise failure(
            "INVALID_HOST_PTR", "a host pointer goes with the flags that say what it is for"
        )
    if sum(bool(value & flag) for flag in _ACCESS) > 1:
        raise failure("INVALID_VALUE", "a memory object has one kind of access")
    if value & USE and value & (ALLOC | COPY):
        raise failure(
            "INVALID_VALUE", "memory of the program's is used, or else memory is allocated"
        )


def opencl_flags(value: int) -> int:
    """OpenCL's flags for ur_mem_flags_t."""
    return flags(value, _FLAGS)


def ask(native: int, context: URContext, name: str, routine: str = "clGetMemObjectInfo") -> int:
    """A property of a cl_mem as a number. Raises OpenCLError."""
    return int.from_bytes(query(context.table, routine, native, OPENCL[name]), "little")


def native_type(native: int, context: URContext, types: Container[int]) -> int:
    """The CL_MEM_TYPE of a native handle. Raises URError for one of another context
    (INVALID_CONTEXT), or of none of the types (INVALID_MEM_OBJECT)."""
    check_native(native, context, "clGetMemObjectInfo", "CL_MEM_CONTEXT")
    found = ask(native, context, "CL_MEM_TYPE")
    if found not in types:
        raise failure("INVALID_MEM_OBJECT", "the native memory object is of another kind")
    return found


def take_native(kind: type[URMemory], native: int, context: URContext, properties: Any) -> None:
    """Take a reference to a native handle, unless the program hands its own over."""
    owned = bool(properties and properties.isNativeHandleOwned)
    retain_unless_owned(kind, native, context.table, owned)


adapter.info(
    "urMemGetInfo",
    {
        "UR_MEM_INFO_SIZE": lambda memory: memory.size,
        "UR_MEM_INFO_CONTEXT": lambda memory: memory.context,
        "UR_MEM_INFO_REFERENCE_COUNT": lambda memory: memory.references,
    },
)


@adapter.entry
def urMemGetNativeHandle(hMem: URMemory, hDevice: URDevice | None) -> int:
    if hDevice is not None:
        hMem.context.check_device(hDevice)
    return hMem.cl
