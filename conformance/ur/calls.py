"""Calls of an adapter's functions whose answers are checked.

>>> ur.ok("urQueueFinish", queue)                        # UR_RESULT_SUCCESS, or the case fails
>>> ur.fails("urQueueFinish", "INVALID_NULL_HANDLE", None)
>>> queue = ur.new("urQueueCreate", context, device, None)
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

from fairlead.conformance.checks import expect, failed, name_of, unsupported
from fairlead.loader.base.errors import FairleadError
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.devices import decode
from fairlead.loader.ur.plugin import Plugin

from .listed import LISTED

_PREFIX: Final = "UR_RESULT_ERROR_"
_SUCCESS: Final = "UR_RESULT_SUCCESS"
_UNSUPPORTED: Final = ("UR_RESULT_ERROR_UNSUPPORTED_FEATURE", "UR_RESULT_ERROR_UNINITIALIZED")


class Calls:
    """The functions of an adapter, by name. `device` is the one whose queries say what may be unsupported."""

    def __init__(self, plugin: Plugin, device: int) -> None:
        self.plugin, self.device = plugin, device

    @property
    def table(self) -> DispatchTable:
        """The adapter's dispatch table: `ur.table.urQueueFinish(queue)` gives the code as a number."""
        return self.plugin.table

    def has(self, routine: str) -> bool:
        """Whether the adapter has the function at all."""
        return self.plugin.has(routine)

    def code(self, routine: str, *arguments: Any) -> str:
        """The symbolic name of what a function answers."""
        return name_of(UR, getattr(self.table, routine)(*arguments))

    def ok(self, routine: str, *arguments: Any) -> None:
        """It must succeed. If it may be unsupported and says that it is, so is the case."""
        code = getattr(self.table, routine)(*arguments)
        self.check_supported(routine, code)
        self.expect_ok(routine, code)

    def expect_ok(self, routine: str, code: int) -> None:
        """The code of a call must be UR_RESULT_SUCCESS."""
        expect(UR, code, _SUCCESS, what=routine)

    def fails(self, routine: str, error: str, *arguments: Any) -> None:
        """It must answer one of the errors ("INVALID_SIZE", several: "INVALID_SIZE|INVALID_VALUE")."""
        code = getattr(self.table, routine)(*arguments)
        errors = [_PREFIX + name for name in error.split("|")]
        if not set(errors) & set(_UNSUPPORTED):
            self.check_supported(routine, code)
        expect(UR, code, *errors, what=routine)

    def new(self, routine: str, *arguments: Any) -> int:
        """The handle, or the address, that it gives through its last parameter."""
        made = ctypes.c_void_p()
        self.ok(routine, *arguments, ctypes.byref(made))
        if not made.value:
            failed(f"{routine}: an object", f"{routine}: NULL")
        return made.value

    def check_supported(self, routine: str, code: int) -> None:
        """End the case as unsupported if the code says so and the specification lets this function say it."""
        name = name_of(UR, code)
        if name not in _UNSUPPORTED or (name == _UNSUPPORTED[1] and self.has(routine)):
            return
        if self.may_be_unsupported(routine):
            unsupported(f"{routine} answers {name}")

    def may_be_unsupported(self, routine: str) -> bool:
        """Whether the specification lets a function answer UNSUPPORTED_FEATURE on this device."""
        listed = LISTED.get(routine)
        if listed is None:  # a function that the newest version does not have any more
            return True
        return listed.optional and not (listed.condition and self.device_says(listed.condition))

    def device_says(self, query: str) -> int:
        """What the device answers to a query for a number; 0 if it has no answer."""
        try:
            answer = self.plugin.info("urDeviceGetInfo", self.device, query)
        except FairleadError:
            return 0
        return int(answer) if isinstance(answer, int) else 0

    def require(self, query: str, bits: int = 0) -> None:
        """End the case as unsupported unless the device answers a query with something else than 0, or with these bits."""
        answer = self.device_says(query)
        if not answer or answer & bits != bits:
            unsupported(f"the device answers {query} with {answer:#x}")

    def info(self, routine: str, handle: int, query: str, *more: Any) -> Any:
        """The answer to a query, as Python knows it. `more` are the arguments between the handle and the query."""
        return decode(UR, UR.constants[query].answer, self.raw_info(routine, handle, query, *more))

    def raw_info(self, routine: str, handle: int, query: str, *more: Any) -> bytes:
        """The bytes of the answer to a query."""
        name, size = UR[query], ctypes.c_size_t()
        self.ok(routine, handle, *more, name, 0, None, ctypes.byref(size))
        value = ctypes.create_string_buffer(max(size.value, 1))
        if size.value:
            self.ok(routine, handle, *more, name, size.value, value, None)
        return value.raw[: size.value]

    def struct(self, name: str, **fields: Any) -> Any:
        """A struct with its `stype`."""
        tag = "UR_STRUCTURE_TYPE_" + name.removeprefix("ur_").removesuffix("_t").upper()
        if tag in UR.constants and "stype" in (field.name for field in UR.structs[name].fields):
            fields = {"stype": UR[tag], **fields}
        return UR.struct(name)(**fields)


def address(function: Callable[..., Any]) -> int:
    """The address of a ctypes function, as a callback parameter takes it."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]
