"""Calls of a Level Zero driver by its tables, as a loader makes them."""

from __future__ import annotations

import ctypes
from typing import Any

from fairlead.conformance.ze.calls import ZECalls, new
from fairlead.conformance.ze.calls import handles as array
from fairlead.loader.ze.abi import API_VERSION, TABLES, ZE, name_getter

__all__ = "ZeCalls", "array", "new"


class ZeCalls(ZECalls):
    """The functions of a driver, by their names.

    Args:
        library: the path of its library.
        version: the version that the caller of its getters names.
    """

    def __init__(self, library: str, version: int = API_VERSION) -> None:
        self.library = ctypes.CDLL(library)
        self._functions: dict[str, Any] = {}
        for table, names in TABLES.items():
            slots = (ctypes.c_void_p * len(names))()
            code = self.library[name_getter(table)](ctypes.c_uint32(version), slots)
            assert code == 0, (table, code)
            for name, address in zip(names, slots, strict=True):
                if address:
                    self._functions[name] = ZE.functions[name].prototype(address)

    @property
    def names(self) -> list[str]:
        """Return the names of the functions that the driver's tables have."""
        return list(self._functions)

    def function(self, name: str) -> Any:
        """Return a function of the driver."""
        return self._functions[name]

    def code(self, name: str, *arguments: Any) -> str:
        """Call a function, and return the name of its code without ZE_RESULT_ and ERROR_."""
        return super().code(name, *arguments).removeprefix("ZE_RESULT_").removeprefix("ERROR_")

    make = ZECalls.create

    def listed(self, name: str, *arguments: Any) -> list[int]:
        """Return the handles that a function lists."""
        count = ctypes.c_uint32()
        self.ok(name, *arguments, ctypes.byref(count), None)
        handles = (ctypes.c_void_p * count.value)()
        if count.value:
            self.ok(name, *arguments, ctypes.byref(count), handles)
        return [handle or 0 for handle in handles]

    def properties(self, name: str, struct: str, *arguments: Any, chained: Any = None) -> Any:
        """Return the struct that a function fills."""
        row = new(struct, pNext=chained)
        self.ok(name, *arguments, ctypes.byref(row))
        return row
