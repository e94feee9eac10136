"""Calls of the driver under test, with checks, and structs with their types.

Arguments at the end may be left out: see `complete`.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from fairlead.conformance.arrays import complete
from fairlead.conformance.checks import expect, name_of
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.ze.abi import ZE

FOREVER: Final = (1 << 64) - 1
_SUCCESS: Final = "ZE_RESULT_SUCCESS"

#: The names of structure types that are not those of their structs.
_STYPES: Final = {"ze_event_pool_counter_based_exp_desc_t": "COUNTER_BASED_EVENT_POOL_EXP_DESC"}


class ZECalls:
    """The functions of a driver by their names."""

    def __init__(self, table: DispatchTable) -> None:
        self.table = table

    def number(self, name: str, *arguments: Any) -> int:
        """Call a function, and return its code."""
        given = complete(ZE.functions[name], arguments)
        return self.function(name)(*given) & 0xFFFFFFFF

    def function(self, name: str) -> Any:
        """Return a function of the driver."""
        return getattr(self.table, name)

    def code(self, name: str, *arguments: Any) -> str:
        """Call a function, and return the name of its code."""
        return name_of(ZE, self.number(name, *arguments))

    def ok(self, name: str, *arguments: Any) -> None:
        """Call a function, which has to succeed."""
        expect(ZE, self.number(name, *arguments), _SUCCESS, what=name)

    def answers(self, result: str, name: str, *arguments: Any) -> None:
        """Call a function that has to return ZE_RESULT_… of this name."""
        expect(ZE, self.number(name, *arguments), f"ZE_RESULT_{result}", what=name)

    def refuses(self, error: str, name: str, *arguments: Any) -> None:
        """Call a function that has to return ZE_RESULT_ERROR_… of this name."""
        self.answers(f"ERROR_{error}", name, *arguments)

    def create(self, name: str, *arguments: Any) -> int:
        """Call a function whose last argument is a handle or an address that it makes."""
        out = ctypes.c_void_p()
        self.ok(name, *complete(ZE.functions[name], arguments, ctypes.byref(out)))
        return out.value or 0


def new(struct: str, **fields: Any) -> Any:
    """Return a struct with its type set.

    A pointer may be given a ctypes object, which lives as long as the struct.
    """
    row = ZE.get_struct(struct)()
    name = _STYPES.get(struct) or struct.removeprefix("ze_").removesuffix("_t").upper()
    if f"ZE_STRUCTURE_TYPE_{name}" in ZE.constants:
        row.stype = ZE[f"ZE_STRUCTURE_TYPE_{name}"]
    row.kept = fields
    for field, value in fields.items():
        if isinstance(value, (ctypes.Structure, ctypes.Array, ctypes._SimpleCData)):
            value = ctypes.addressof(value)
        setattr(row, field, value)
    return row


def handles(*given: int) -> Any:
    """Return a C array of handles."""
    return (ctypes.c_void_p * len(given))(*given)
