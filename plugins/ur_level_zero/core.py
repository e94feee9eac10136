"""Adapter on Level Zero: the adapter, the base of its objects, the codes of Level Zero's errors,
and calls of a driver.

What the driver answers is raised as LevelZeroError. Docstrings name the other errors.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

from ...loader.base.interrupts import is_main_thread, mark_stoppable, stop_if_interrupted
from ...loader.base.table import DispatchTable
from ...loader.ur.abi import UR
from ...loader.ze.abi import ZE, LevelZeroError, check
from ..sdk._native import ffi
from ..sdk.adapter import Adapter
from ..sdk.conversions import failure, is_owned
from ..sdk.objects import Object

adapter: Final = Adapter("UR_LEVEL_ZERO", backend="UR_BACKEND_LEVEL_ZERO", stoppable=True)

#: The codes of Unified Runtime for Level Zero's. Others have the same name, or become UNKNOWN.
_CODES: Final = {
    "INVALID_ARGUMENT": "INVALID_VALUE",
    "INVALID_SYNCHRONIZATION_OBJECT": "INVALID_EVENT",
    "INVALID_KERNEL_HANDLE": "INVALID_KERNEL",
    "INVALID_GROUP_SIZE_DIMENSION": "INVALID_WORK_GROUP_SIZE",
    "INVALID_GLOBAL_WIDTH_DIMENSION": "INVALID_WORK_GROUP_SIZE",
    "INVALID_GLOBAL_NAME": "INVALID_VALUE",
    "INVALID_FUNCTION_NAME": "INVALID_KERNEL_NAME",
    "INVALID_COMMAND_LIST_TYPE": "INVALID_OPERATION",
    "UNSUPPORTED_SIZE": "INVALID_USM_SIZE",
    "UNSUPPORTED_ALIGNMENT": "INVALID_VALUE",
    "MODULE_BUILD_FAILURE": "PROGRAM_BUILD_FAILURE",
    "MODULE_LINK_FAILURE": "PROGRAM_LINK_FAILURE",
    "OUT_OF_DEVICE_MEMORY": "OUT_OF_DEVICE_MEMORY",
    "DEPENDENCY_UNAVAILABLE": "COMPILER_NOT_AVAILABLE",
}
NOT_READY: Final = ZE.codes["ZE_RESULT_NOT_READY"]
FOREVER: Final = (1 << 64) - 1
_STEP: Final = 50_000_000  # nanoseconds that a wait lasts before it looks for Ctrl-C


def _find_code(error: LevelZeroError) -> str:
    name = error.code.removeprefix("ZE_RESULT_ERROR_")
    name = _CODES.get(name, name)
    return name if f"UR_RESULT_ERROR_{name}" in UR.codes else "UNKNOWN"


adapter.codes[LevelZeroError] = _find_code


def call(table: DispatchTable, routine: str, *arguments: Any) -> None:
    """Call a function of a driver. Raises LevelZeroError."""
    check(getattr(table, routine)(*arguments), routine)


def create(table: DispatchTable, routine: str, *arguments: Any) -> int:
    """Call a function of a driver that writes a handle or an address last, and return that."""
    made = ctypes.c_void_p()
    check(getattr(table, routine)(*arguments, ctypes.byref(made)), routine)
    return made.value or 0


def make_struct(name: str, *, tag: str = "", **fields: Any) -> Any:
    """Return a struct of Level Zero with its `stype`.

    Args:
        name: its name between ze_ and _t, such as "event_desc".
        tag: the name of its ze_structure_type_t after ZE_STRUCTURE_TYPE_, if it differs.
        fields: its fields. A pointer may be `bytes`, a struct or an array, which is kept.
    """
    made = ZE.get_struct(f"ze_{name}_t")()
    made.stype = ZE[f"ZE_STRUCTURE_TYPE_{tag or name.upper()}"]
    made.kept = {}
    for field, value in fields.items():
        if isinstance(value, bytes):
            value = ctypes.create_string_buffer(value)
        if isinstance(value, ctypes.Structure | ctypes.Array):
            made.kept[field], value = value, ctypes.addressof(value)
        setattr(made, field, value)
    return made


def ask(table: DispatchTable, routine: str, handle: int, name: str, **how: Any) -> Any:
    """Return the struct that a zeXGetYProperties function fills.

    Args:
        name: see `make_struct`.
        how: see `make_struct`.
    """
    made = make_struct(name, **how)
    check(getattr(table, routine)(handle, ctypes.byref(made)), routine)
    return made


def ask_list(table: DispatchTable, routine: str, handle: int, name: str) -> list[Any]:
    """Return the structs that a zeXGetYProperties function lists. See `ask`."""
    count, call_ = ctypes.c_uint32(), getattr(table, routine)
    check(call_(handle, ctypes.byref(count), None), routine)
    rows = (ZE.get_struct(f"ze_{name}_t") * count.value)()
    for row in rows if name != "driver_extension_properties" else ():  # which has no stype
        row.stype = ZE[f"ZE_STRUCTURE_TYPE_{name.upper()}"]
    if count.value:
        check(call_(handle, ctypes.byref(count), rows), routine)
    return list(rows)[: count.value]


def make_handle_array(handles: Sequence[int]) -> Any:
    """Return handles as a C array, None for no handles."""
    return (ctypes.c_void_p * len(handles))(*handles) if handles else None


def wait_until_ready(function: Callable[[int], int], routine: str) -> None:
    """Wait by a function of a driver that has a timeout.

    In the main thread Ctrl-C ends the wait.

    Args:
        function: is called with nanoseconds. It returns NOT_READY after that time.
    """
    if is_main_thread():
        _wait_in_steps(function, routine)
    else:
        check(function(FOREVER), routine)


@mark_stoppable
def _wait_in_steps(function: Callable[[int], int], routine: str) -> None:
    stop_if_interrupted()
    code = NOT_READY
    while code == NOT_READY:
        code = function(_STEP)
    check(code, routine)


class LZObject(Object):
    """An object over one of Level Zero's.

    Args:
        ze: the driver's handle, which is also the native handle.
        owned: whether `close` destroys it.

    Attributes:
        destroy: the function of Level Zero that destroys it, "zeContextDestroy".
    """

    destroy: ClassVar[str]

    def __init__(self, ze: int, table: DispatchTable, owned: bool = True) -> None:
        self.ze, self.table, self.owned = ze, table, owned

    def get_native(self) -> int:
        return self.ze

    def close(self) -> None:
        if self.owned and self.ze:
            call(self.table, self.destroy, self.ze)


def get_address(pointer: Any) -> int:
    """Return the address of a pointer of cffi."""
    return int(ffi.cast("uintptr_t", pointer))


__all__ = [
    "FOREVER",
    "NOT_READY",
    "ZE",
    "LZObject",
    "LevelZeroError",
    "adapter",
    "ask",
    "ask_list",
    "call",
    "check",
    "create",
    "failure",
    "get_address",
    "is_owned",
    "make_handle_array",
    "make_struct",
    "wait_until_ready",
]
