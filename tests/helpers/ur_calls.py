"""Calls of an adapter's entry points in tests: codes by name, and what is made by a call."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

from fairlead.conformance.arrays import complete
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.ur.abi import UR

NAMES: Final = {
    value: name.removeprefix("UR_RESULT_").removeprefix("ERROR_")
    for name, value in UR.codes.items()
}


#: The functions that release objects, by types. Devices and adapters are there without a test.
_RELEASES: Final = {
    function.parameters[0].type: name
    for name, function in UR.functions.items()
    if len(function.parameters) == 1 and "release" in function.parameters[0].words
}
del _RELEASES["ur_device_handle_t"], _RELEASES["ur_adapter_handle_t"]


class Calls:
    """The functions of an adapter.

    `ur("urQueueFinish", queue)` returns the name of the code, "SUCCESS". `release` releases what
    calls have made and no call has released. Arguments at the end may be left out: see `complete`.
    """

    #: What the table is of, where `fairlead.conformance.ur` makes objects by it, too.
    plugin: Any = None

    def __init__(self, table: DispatchTable) -> None:
        self.table = table
        self._made: list[tuple[str, int]] = []

    def __call__(self, routine: str, *arguments: Any) -> str:
        given = complete(UR.functions[routine], arguments)
        code = NAMES[getattr(self.table, routine)(*given)]
        if code == "SUCCESS":
            self._note(routine, given)
        return code

    def _note(self, routine: str, arguments: Sequence[Any]) -> None:
        for parameter, given in zip(UR.functions[routine].parameters, arguments, strict=True):
            release = _RELEASES.get(parameter.type)
            if release and {"release", routine} & {*parameter.words, "urUSMPoolDestroyExp"}:
                entry = release, getattr(given, "value", given)
                if entry in self._made:
                    self._made.remove(entry)
            elif release and parameter.is_out and not parameter.length and "Get" not in routine:
                handle = getattr(getattr(given, "_obj", None), "value", None)
                self._made += [(release, handle)] if handle else []

    def release(self) -> None:
        """Release objects, the last one first."""
        while self._made:
            self.ok(*self._made[-1])

    def ok(self, routine: str, *arguments: Any) -> None:
        """Call what has to succeed."""
        assert self(routine, *arguments) == "SUCCESS", routine

    def make(self, routine: str, *arguments: Any) -> ctypes.c_void_p:
        """Call a function and return the handle or address that it writes to its last parameter."""
        made = ctypes.c_void_p()
        self.ok(routine, *complete(UR.functions[routine], arguments, ctypes.byref(made)))
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
