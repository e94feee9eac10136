"""A dispatch table seen from Python: a run of C function pointers whose entries are called by name.

`DispatchTable` makes a ctypes function for a slot when the slot is first used and keeps it in the instance, so that the second
`table.clGetPlatformInfo(...)` is an attribute look-up and a ctypes call and nothing else. It owns no memory: the table it looks at
is immortal (docs/architecture.md).
"""

from __future__ import annotations

import ctypes
from typing import Any

from .abi import Api

POINTER_SIZE = ctypes.sizeof(ctypes.c_void_p)


class DispatchTable:
    """The table of `api`'s slots at `address`. `table.NAME(...)` calls the slot's function with converted arguments."""

    def __init__(self, api: Api, address: int) -> None:
        self.api = api
        self.address = address

    def pointer(self, slot: int) -> int:
        """The function pointer in a slot, 0 if it is NULL."""
        return ctypes.c_void_p.from_address(self.address + slot * POINTER_SIZE).value or 0

    def __getattr__(self, name: str) -> Any:
        function = self.api.functions.get(name)
        if function is None or function.slot is None:
            raise AttributeError(f"no slot of the dispatch table is called {name}")
        address = self.pointer(function.slot)
        if not address:
            raise AttributeError(f"the slot of {name} is NULL in this table")
        call = function.prototype(address)
        setattr(self, name, call)
        return call

    def __repr__(self) -> str:
        return f"<DispatchTable at {self.address:#x}>"
