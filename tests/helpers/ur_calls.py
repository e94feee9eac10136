"""Calls of an adapter's entry points in tests: codes by name, and what is made by a call."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from fairlead.loader.base.table import DispatchTable
from fairlead.loader.ur.abi import UR

_NAMES: Final = {
    value: name.removeprefix("UR_RESULT_").removeprefix("ERROR_")
    for name, value in UR.codes.items()
}


class Calls:
    """The functions of an adapter.

    `ur("urQueueFinish", queue)` returns the name of the code, "SUCCESS".
    """

    def __init__(self, table: DispatchTable) -> None:
        self.table = table

    def __call__(self, routine: str, *arguments: Any) -> str:
        return _NAMES[getattr(self.table, routine)(*arguments)]

    def ok(self, routine: str, *arguments: Any) -> None:
        """Call what has to succeed."""
        assert self(routine, *arguments) == "SUCCESS", routine

    def make(self, routine: str, *arguments: Any) -> ctypes.c_void_p:
        """Call a function and return the handle or address that it writes to its last parameter."""
        made = ctypes.c_void_p()
        self.ok(routine, *arguments, ctypes.byref(made))
        assert made.value
        return made

    def info(self, routine: str, handle: Any, name: str) -> bytes:
        """The raw answer of a query."""
        size = ctypes.c_size_t()
        self.ok(routine, handle, UR[name], 0, None, ctypes.byref(size))
        value = ctypes.create_string_buffer(max(size.value, 1))
        if size.value:
            self.ok(routine, handle, UR[name], size.value, value, None)
        return value.raw[: size.value]

    def number(self, routine: str, handle: Any, name: str) -> int:
        """The answer of a query as a number: a count, flags, a handle."""
        return int.from_bytes(self.info(routine, handle, name), "little")


def array(*handles: Any) -> Any:
    """Handles as a C array."""
    return (ctypes.c_void_p * len(handles))(
        *(getattr(handle, "value", handle) for handle in handles)
    )
