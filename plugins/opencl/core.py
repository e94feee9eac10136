"""What all of the reference adapter stands on: the adapter, its objects over OpenCL's, and what OpenCL's codes become.

An object of the adapter holds one of OpenCL's (`cl`, the driver's own handle, which is also its native handle) and the table of
its platform to call by. It holds the Python objects that it was made from, so that a context lives as long as its queues.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from ...icd import objects as icd
from ...icd.abi import OPENCL
from ...icd.errors import OpenCLError, check
from ...icd.tables import query
from ...loader.base.table import DispatchTable
from ...loader.ur.abi import UR
from ..sdk.adapter import Adapter
from ..sdk.objects import Object
from ..sdk.wrap import failure

adapter: Final = Adapter("FAIRLEAD", backend="UR_BACKEND_OPENCL", stoppable=True)

#: What an OpenCL code becomes where the names differ; else CL_INVALID_X becomes INVALID_X.
_CODES: Final = {
    "CL_DEVICE_NOT_FOUND": "DEVICE_NOT_FOUND",
    "CL_DEVICE_NOT_AVAILABLE": "DEVICE_NOT_AVAILABLE",
    "CL_COMPILER_NOT_AVAILABLE": "COMPILER_NOT_AVAILABLE",
    "CL_LINKER_NOT_AVAILABLE": "COMPILER_NOT_AVAILABLE",
    "CL_MEM_OBJECT_ALLOCATION_FAILURE": "MEM_OBJECT_ALLOCATION_FAILURE",
    "CL_OUT_OF_RESOURCES": "OUT_OF_RESOURCES",
    "CL_OUT_OF_HOST_MEMORY": "OUT_OF_HOST_MEMORY",
    "CL_PROFILING_INFO_NOT_AVAILABLE": "PROFILING_INFO_NOT_AVAILABLE",
    "CL_MEM_COPY_OVERLAP": "OVERLAPPING_REGIONS",
    "CL_IMAGE_FORMAT_NOT_SUPPORTED": "UNSUPPORTED_IMAGE_FORMAT",
    "CL_BUILD_PROGRAM_FAILURE": "PROGRAM_BUILD_FAILURE",
    "CL_COMPILE_PROGRAM_FAILURE": "PROGRAM_BUILD_FAILURE",
    "CL_LINK_PROGRAM_FAILURE": "PROGRAM_LINK_FAILURE",
    "CL_MISALIGNED_SUB_BUFFER_OFFSET": "MISALIGNED_SUB_BUFFER_OFFSET",
    "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST": "IN_EVENT_LIST_EXEC_STATUS",
    "CL_DEVICE_PARTITION_FAILED": "DEVICE_PARTITION_FAILED",
    "CL_INVALID_COMMAND_QUEUE": "INVALID_QUEUE",
    "CL_INVALID_DEVICE_TYPE": "INVALID_VALUE",
    "CL_INVALID_ARG_INDEX": "INVALID_KERNEL_ARGUMENT_INDEX",
    "CL_INVALID_ARG_SIZE": "INVALID_KERNEL_ARGUMENT_SIZE",
    "CL_INVALID_ARG_VALUE": "INVALID_VALUE",
    "CL_INVALID_BUILD_OPTIONS": "INVALID_VALUE",
    "CL_INVALID_COMPILER_OPTIONS": "INVALID_VALUE",
    "CL_INVALID_LINKER_OPTIONS": "INVALID_VALUE",
    "CL_INVALID_KERNEL_DEFINITION": "INVALID_VALUE",
    "CL_INVALID_GLOBAL_OFFSET": "INVALID_VALUE",
    "CL_INVALID_GLOBAL_WORK_SIZE": "INVALID_WORK_GROUP_SIZE",
    "CL_INVALID_PROPERTY": "INVALID_VALUE",
    "CL_INVALID_DEVICE_QUEUE": "INVALID_QUEUE",
}


def _code(error: OpenCLError) -> str:
    name = _CODES.get(error.code)
    if name is None and error.code.startswith("CL_INVALID_"):
        name = error.code.removeprefix("CL_")
    return (
        name
        if name is not None and f"UR_RESULT_ERROR_{name}" in UR.codes
        else "UR_RESULT_ERROR_UNKNOWN"
    )


adapter.codes[OpenCLError] = _code


class CLObject(Object):
    """An object over one of OpenCL's. `owned` says whether a reference to `cl` is ours, to be given back at the end."""

    release: ClassVar[str]  # "clReleaseContext"
    retain_function: ClassVar[str]  # "clRetainContext"

    def __init__(self, cl: int, table: DispatchTable, owned: bool = True) -> None:
        self.cl, self.table, self.owned = cl, table, owned

    def current_object(self) -> CLObject:
        """The object to call OpenCL with: itself, unless it stands for changing ones."""
        return self

    def close(self) -> None:
        if self.owned and self.cl:
            getattr(self.table, self.release)(self.cl)

    def query(self, name: str) -> bytes:
        """The raw answer of clGet…Info to `name`."""
        routine = self.release.replace("Release", "Get") + "Info"
        present = self.current_object()
        return query(present.table, routine, present.cl, OPENCL[name], detail=f"({name})")


def retain_unless_owned(
    kind: type[CLObject], native: int, table: DispatchTable, owned: bool
) -> None:
    """A native handle comes in: if the caller keeps his reference (`isNativeHandleOwned` is false) we take one of our own."""
    if not native:
        raise failure("INVALID_NULL_HANDLE")
    if not owned:
        check(getattr(table, kind.retain_function)(native), kind.retain_function)


def handles(things: Sequence[CLObject]) -> Any:
    """The OpenCL handles of objects as a C array, None for none: what OpenCL takes with a count."""
    if not things:
        return None
    present = [thing.current_object() for thing in things]
    array: Any = (ctypes.c_void_p * len(present))(*[thing.cl for thing in present])
    array.present = present  # they live as long as the array
    return array


def create(table: DispatchTable, routine: str, *arguments: Any) -> int:
    """Call one of the functions that return a handle and have `errcode_ret` last. Raises OpenCLError."""
    code = ctypes.c_int32()
    made = getattr(table, routine)(*arguments, ctypes.byref(code))
    check(code.value, routine)
    return made


LONGEST: Final = (
    1 << 16
)  # elements of a list of structs; more is taken for a count that is no count, and nothing of it is read


def check_count(count: int, code: str, what: str) -> None:
    """Raise URError (`code`) for a list of structs that no program has."""
    if count > LONGEST:
        raise failure(code, f"{count} {what}")


def flags(value: int, table: dict[str, str], what: str = "") -> int:
    """OpenCL's bits for Unified Runtime's, by a table of names; bits that the table does not have are INVALID_VALUE."""
    result = 0
    for name, opencl in table.items():
        if value & UR[name]:
            value &= ~UR[name]
            result |= OPENCL[opencl] if opencl else 0
    if value:
        raise failure("INVALID_VALUE", what)
    return result


__all__ = [
    "CLObject",
    "adapter",
    "check",
    "check_count",
    "create",
    "failure",
    "flags",
    "handles",
    "icd",
    "query",
    "retain_unless_owned",
]
