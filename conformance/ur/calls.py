"""Calls of an adapter's functions whose answers are checked.

>>> ur.ok("urQueueFinish", queue)                        # UR_RESULT_SUCCESS, or the case fails
>>> ur.fails("urQueueFinish", "INVALID_NULL_HANDLE", None)
>>> queue = ur.new("urQueueCreate", context, device)

Arguments at the end may be left out: see `complete`.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from fairlead.conformance.arrays import complete
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
_NO_SUCH_QUERY: Final = "UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION"

#: Native handles that may be 0: CUDA and HIP number their devices.
_MAY_BE_ZERO: Final = frozenset({"urDeviceGetNativeHandle"})


class URCalls:
    """The functions of an adapter, by name.

    `device` answers the queries about what may be unsupported, unless `conditional` is false.
    """

    def __init__(self, plugin: Plugin, device: int, conditional: bool = True) -> None:
        self.plugin, self.device, self.conditional = plugin, device, conditional

    @property
    def table(self) -> DispatchTable:
        """The adapter's dispatch table. Its functions return codes as numbers."""
        return self.plugin.table

    def has(self, routine: str) -> bool:
        """Return whether the adapter has the function at all."""
        return self.plugin.has(routine)

    def code(self, routine: str, *arguments: Any) -> str:
        """Call a function and return the symbolic name of its code."""
        return name_of(UR, self._call(routine, *arguments))

    def _call(self, routine: str, *arguments: Any) -> int:
        given = complete(UR.functions[routine], arguments)
        return getattr(self.table, routine)(*given)

    def ok(self, routine: str, *arguments: Any) -> None:
        """Call a function that must succeed.

        If it answers that it is not implemented, the case is unsupported.
        """
        code = self._call(routine, *arguments)
        self.check_supported(routine, code)
        if routine.endswith("Info") and name_of(UR, code) == _NO_SUCH_QUERY:
            unsupported(f"{routine} answers {_NO_SUCH_QUERY}")
        self.expect_ok(routine, code)

    def expect_ok(self, routine: str, code: int) -> None:
        """Check that the code of a call is UR_RESULT_SUCCESS."""
        expect(UR, code, _SUCCESS, what=routine)

    def fails(self, routine: str, error: str, *arguments: Any) -> None:
        """Check that a call answers one of the errors ("INVALID_SIZE", or
        "INVALID_SIZE|INVALID_VALUE")."""
        code = self._call(routine, *arguments)
        errors = [_PREFIX + name for name in error.split("|")]
        if not set(errors) & set(_UNSUPPORTED):
            self.check_supported(routine, code)
        expect(UR, code, *errors, what=routine)

    def new(self, routine: str, *arguments: Any) -> int:
        """Call a function and return the handle or address that it writes to its last parameter."""
        made = ctypes.c_void_p()
        self.ok(routine, *complete(UR.functions[routine], arguments, ctypes.byref(made)))
        if not made.value and routine not in _MAY_BE_ZERO:
            failed(f"{routine}: an object", f"{routine}: NULL")
        return made.value or 0

    def check_supported(self, routine: str, code: int) -> None:
        """End the case as unsupported if the code says that a function is not implemented.

        If the device says that it has what the function is for, the case has failed.
        """
        name = name_of(UR, code)
        if name not in _UNSUPPORTED or (name == _UNSUPPORTED[1] and self.has(routine)):
            return
        listed = LISTED.get(routine)  # None: the newest version has no such function
        condition = listed.condition if listed and self.conditional else ""
        if condition and self.device_says(condition):
            failed(f"an implementation, because the device has {condition}", name)
        unsupported(f"{routine} answers {name}")

    def device_says(self, query: str) -> int:
        """Return the device's answer to a query for a number; 0 if it has no answer."""
        try:
            answer = self.plugin.info("urDeviceGetInfo", self.device, query)
        except FairleadError:
            return 0
        return int(answer) if isinstance(answer, int) else 0

    def require(self, query: str, bits: int = 0) -> None:
        """End the case as unsupported unless the device answers a query with these bits, or with
        non-zero."""
        answer = self.device_says(query)
        if not answer or answer & bits != bits:
            unsupported(f"the device answers {query} with {answer:#x}")

    def info(self, routine: str, handle: int, query: str, *more: Any) -> Any:
        """Return the answer to a query as a Python value.

        `more` are the arguments between the handle and the query.
        """
        return decode(UR, UR.constants[query].answer, self.raw_info(routine, handle, query, *more))

    def raw_info(self, routine: str, handle: int, query: str, *more: Any) -> bytes:
        """Return the bytes of the answer to a query."""
        name, size = UR[query], ctypes.c_size_t()
        self.ok(routine, handle, *more, name, 0, None, ctypes.byref(size))
        value = ctypes.create_string_buffer(max(size.value, 1))
        if size.value:
            self.ok(routine, handle, *more, name, size.value, value, None)
        return value.raw[: size.value]

    def is_complete(self, event: int) -> bool:
        """Return whether the status of an event is UR_EVENT_STATUS_COMPLETE."""
        status = self.info("urEventGetInfo", event, "UR_EVENT_INFO_COMMAND_EXECUTION_STATUS")
        return status == UR["UR_EVENT_STATUS_COMPLETE"]

    def struct(self, name: str, **fields: Any) -> Any:
        """Return a struct with its `stype`."""
        tag = "UR_STRUCTURE_TYPE_" + name.removeprefix("ur_").removesuffix("_t").upper()
        if tag in UR.constants and "stype" in (field.name for field in UR.structs[name].fields):
            fields = {"stype": UR[tag], **fields}
        return UR.get_struct(name)(**fields)


def address(function: Any) -> int:
    """Return the address of a ctypes function, as a callback parameter takes it."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0
