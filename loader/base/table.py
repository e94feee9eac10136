"""A dispatch table seen from Python: a run of C function pointers whose entries are called by name.

`DispatchTable` makes a ctypes function for a slot when the slot is first used and keeps it in the instance, so that the second
`table.clGetPlatformInfo(...)` is an attribute look-up and a ctypes call and nothing else. It owns no memory: the table it looks at
is immortal (docs/architecture.md).

What wants to see the calls (a trace, a validation) puts a *layer*, which is a table too, in front: `push` and `remove`. Calls then
go to the layer's table, and without one nothing is tested or looked up. `live_tables` and `watch` tell who there is to put one in
front of.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import Any, Final, Protocol

from .abi import Api
from .forks import new_lock
from .search import secure_environ

POINTER_SIZE = ctypes.sizeof(ctypes.c_void_p)


#: The variables that start a trace (trace.follow_environment).
TRACE_VARIABLES: Final = ("SYCL_PI_TRACE", "SYCL_UR_TRACE", "UR_ENABLE_LAYERS", "FAIRLEAD_TRACE")


class TableLayer(Protocol):
    """What `push` takes: the address of a table that leads on to the one that was on top, `next` (`layers.Layer` is one)."""

    address: int
    next: int

    def turn(self, next: int) -> None: ...
    def give_back(self) -> None: ...


class DispatchTable:
    """The table of `api`'s slots at `address`. `table.NAME(...)` calls the slot's function with converted arguments.

    `label` says in traces whose table it is.
    """

    def __init__(self, api: Api, address: int, label: str = "") -> None:
        self.api = api
        self.address = address
        self.label = label
        self.layers: tuple[TableLayer, ...] = ()
        _follow_environment()
        with _lock:
            _live.add(self)
            watchers = tuple(_watchers)
        for watcher in watchers:
            watcher(self)

    @property
    def top(self) -> int:
        """The address of the table that calls go to: that of the last layer, else its own."""
        return self.layers[-1].address if self.layers else self.address

    def push(self, layer: TableLayer) -> None:
        """Send calls through `layer`, which must lead on to `top`."""
        with changing:
            self.layers += (layer,)
            self._forget_functions()

    def remove(self, layer: TableLayer) -> None:
        """Take a layer out again. The one in front of it leads past it from now on; calls that are under way end as they began."""
        with changing:
            for front in (
                front
                for behind, front in zip(self.layers, self.layers[1:], strict=False)
                if behind is layer
            ):
                front.turn(layer.next)
            self.layers = tuple(other for other in self.layers if other is not layer)
            self._forget_functions()

    def pointer(self, slot: int) -> int:
        """The function pointer in a slot of the table itself, 0 if it is NULL."""
        return ctypes.c_void_p.from_address(self.address + slot * POINTER_SIZE).value or 0

    def __getattr__(self, name: str) -> Any:
        function = self.api.functions.get(name)
        if function is None or function.slot is None:
            raise AttributeError(f"no slot of the dispatch table is called {name}")
        if not self.pointer(function.slot):
            raise AttributeError(f"the slot of {name} is NULL in this table")
        top = self.top
        address = ctypes.c_void_p.from_address(top + function.slot * POINTER_SIZE).value
        call = function.prototype(address)
        setattr(self, name, call)
        if self.top != top:  # another thread has put a layer in front, or has taken one away, since
            self._forget_functions()
        return call

    def __dir__(self) -> list[str]:
        """What can be called, too: a shell completes it."""
        return [*super().__dir__(), *(function.name for function in self.api.slots)]

    def refresh(self) -> None:
        """The table's slots have changed: make its functions anew."""
        self._forget_functions()

    def _forget_functions(self) -> None:
        for name in list(
            self.__dict__
        ):  # a copy: another thread may call a function for the first time just now
            if name in self.api.functions:
                self.__dict__.pop(name, None)

    def __repr__(self) -> str:
        return (
            f"<DispatchTable {self.label} at {self.address:#x}>"
            if self.label
            else f"<DispatchTable at {self.address:#x}>"
        )


def live_tables() -> list[DispatchTable]:
    """Every table object of this process, in no particular order."""
    with _lock:
        return list(_live)


def watch(watcher: Callable[[DispatchTable], None]) -> None:
    """Tell `watcher` about every table object that is made from now on."""
    with _lock:
        _watchers.append(watcher)


def unwatch(watcher: Callable[[DispatchTable], None]) -> None:
    """Do not tell it any longer."""
    with _lock:
        _watchers.remove(watcher)


def _follow_environment() -> None:
    """Once, before the first table is told of: start the traces that the environment asks for."""
    global _followed
    with changing:
        if _followed:
            return
        _followed = True
        environ = secure_environ()
        if any(environ.get(name) for name in TRACE_VARIABLES):
            from ..trace import (
                trace,
            )  # it imports this module, and most processes need nothing of it

            trace.follow_environment(environ)


#: Held from the look at `top` to the `push` of what leads on to it: one at a time puts layers in front of tables.
changing = new_lock()
_followed = False
_lock = new_lock()
_live: weakref.WeakSet[DispatchTable] = weakref.WeakSet()
_watchers: list[Callable[[DispatchTable], None]] = []
