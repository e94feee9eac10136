"""Calls of a Level Zero driver by its tables, as a loader makes them."""

from __future__ import annotations

import ctypes
from typing import Any

from fairlead.loader.ze.abi import API_VERSION, TABLES, ZE, name_getter


class ZeCalls:
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

    def code(self, name: str, *arguments: Any) -> str:
        """Call a function, and return the name of its code without ZE_RESULT_ and ERROR_."""
        value = self._functions[name](*arguments) & 0xFFFFFFFF
        return ZE.errors[value][0].removeprefix("ZE_RESULT_").removeprefix("ERROR_")

    def ok(self, name: str, *arguments: Any) -> None:
        """Call a function, which has to succeed."""
        found = self.code(name, *arguments)
        assert found == "SUCCESS", f"{name}: {found}"

    def make(self, name: str, *arguments: Any) -> int:
        """Call a function whose last argument is a handle or an address that it makes."""
        out = ctypes.c_void_p()
        self.ok(name, *arguments, ctypes.byref(out))
        return out.value or 0

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


#: The names of structure types that are not those of their structs.
_STYPES = {
    "ze_module_program_exp_desc_t": "MODULE_PROGRAM_EXP_DESC",
    "ze_event_pool_counter_based_exp_desc_t": "COUNTER_BASED_EVENT_POOL_EXP_DESC",
}


def new(struct: str, **fields: Any) -> Any:
    """Return a struct with its type set.

    A field that is a pointer may be given a ctypes object, which lives as long as the struct.
    """
    row = ZE.get_struct(struct)()
    name = _STYPES.get(struct) or struct.removeprefix("ze_").removesuffix("_t").upper()
    if f"ZE_STRUCTURE_TYPE_{name}" in ZE.constants:
        row.stype = ZE[f"ZE_STRUCTURE_TYPE_{name}"]
    row.kept = fields
    for field, value in fields.items():
        if (
            isinstance(value, (ctypes.Structure, ctypes.Array))
            or hasattr(value, "contents")
            or isinstance(value, ctypes._SimpleCData)
        ):
            value = ctypes.addressof(value)
        setattr(row, field, value)
    return row


def array(*handles: int) -> Any:
    """Return an array of handles."""
    return (ctypes.c_void_p * len(handles))(*handles)
