"""OpenCL adapter: the adapter, the base of its objects, and the codes that OpenCL's errors become.

An object holds the driver's handle of one of OpenCL's objects (`cl`), which is also its native
handle. It calls the driver by the table of its platform. It also holds the Python objects that it
was made from. So a context lives as long as its queues.

What the driver answers is raised as OpenCLError. Docstrings name the other errors.
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
from ..sdk._native import ffi
from ..sdk.adapter import Adapter
from ..sdk.conversions import failure, is_owned
from ..sdk.objects import Object

adapter: Final = Adapter("FAIRLEAD", backend="UR_BACKEND_OPENCL", stoppable=True)

#: The codes of Unified Runtime for OpenCL's. CL_INVALID_X that is not here becomes INVALID_X.
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
    "CL_IMAGE_FORMAT_MISMATCH": "INVALID_IMAGE_FORMAT_DESCRIPTOR",
    "CL_INVALID_IMAGE_DESCRIPTOR": "INVALID_IMAGE_FORMAT_DESCRIPTOR",
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


def _find_code(error: OpenCLError) -> str:
    name = _CODES.get(error.code) or error.code.removeprefix("CL_")
    return name if f"UR_RESULT_ERROR_{name}" in UR.codes else "UR_RESULT_ERROR_UNKNOWN"


adapter.codes[OpenCLError] = _find_code


class CLObject(Object):
    """An object of the adapter over one of OpenCL's.

    Args:
        cl: the driver's handle.
        table: the table to call the driver by.
        owned: whether we have a reference to `cl`, which `close` releases.

    Attributes:
        release: OpenCL's function that releases it, "clReleaseContext".
        retain_function: OpenCL's function that retains it.
    """

    release: ClassVar[str]
    retain_function: ClassVar[str]

    def __init__(self, cl: int, table: DispatchTable, owned: bool = True) -> None:
        self.cl, self.table, self.owned = cl, table, owned

    def get_current(self) -> CLObject:
        """Return the object to call OpenCL with. Events of command-buffers have changing ones."""
        return self

    def get_native(self) -> int:
        """Return the object's native handle. Then the program may use it, too."""
        return self.cl

    def close(self) -> None:
        if self.owned and self.cl:
            getattr(self.table, self.release)(self.cl)

    def query(self, name: str) -> bytes:
        """Return the raw answer of clGet…Info to a property, such as "CL_QUEUE_PROPERTIES"."""
        routine = self.release.replace("Release", "Get") + "Info"
        present = self.get_current()
        return query(present.table, routine, present.cl, OPENCL[name], detail=f"({name})")

    def query_number(self, name: str) -> int:
        """Return the answer of clGet…Info to a property that is a number."""
        return int.from_bytes(self.query(name), "little")


def query_number(table: DispatchTable, routine: str, native: int, name: str) -> int:
    """Ask the driver about an object, and return the answer.

    Args:
        routine: the query, such as "clGetKernelInfo".
        native: the driver's handle.
        name: a property that is a number.
    """
    return int.from_bytes(query(table, routine, native, OPENCL[name], detail=f"({name})"), "little")


def retain_unless_owned(
    kind: type[CLObject], native: int, table: DispatchTable, properties: Any
) -> None:
    """Retain a native handle, unless the program gives its reference to us.

    Args:
        native: the driver's handle.
        properties: a struct with `isNativeHandleOwned`, or None.
    """
    if not is_owned(properties):
        check(getattr(table, kind.retain_function)(native), kind.retain_function)


def make_handle_array(things: Sequence[CLObject]) -> Any:
    """Return the OpenCL handles of objects as a C array, None for no objects."""
    if not things:
        return None
    present = [thing.get_current() for thing in things]
    array: Any = (ctypes.c_void_p * len(present))(*[thing.cl for thing in present])
    array.present = present  # the array keeps them alive
    return array


def create(table: DispatchTable, routine: str, *arguments: Any) -> int:
    """Call a function of OpenCL that returns a handle and has `errcode_ret` last.

    Args:
        routine: the function, such as "clCreateBuffer".
        arguments: its arguments without the last.

    Returns:
        The handle.
    """
    code = ctypes.c_int32()
    made = getattr(table, routine)(*arguments, ctypes.byref(code))
    check(code.value, routine)
    return made


def get_address(struct: Any) -> int:
    """Return the address of a struct that C reads."""
    return int(ffi.cast("uintptr_t", struct))


def convert_flags(value: int, table: dict[str, str], what: str = "") -> int:
    """Return OpenCL's flags for Unified Runtime's.

    Args:
        value: flags of Unified Runtime.
        table: the names of OpenCL's flags by those of Unified Runtime's.
        what: what the error says.

    Raises:
        URError: INVALID_VALUE for flags that are not in the table.
    """
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
    "convert_flags",
    "create",
    "failure",
    "get_address",
    "icd",
    "make_handle_array",
    "query",
    "query_number",
    "retain_unless_owned",
]
