"""Dispatch tables: C function pointers that Python calls by name.

`DispatchTable` creates the ctypes function of a slot at its first use and stores it as an
attribute. The second `table.clGetPlatformInfo(...)` is only an attribute look-up and a ctypes call.
The object owns no memory, because C tables are never freed (docs/architecture.md).

A trace or a validation puts a *layer* in front of a table (`push`, `remove`). A layer is a table
too, and calls go to it. Without a layer nothing is checked or looked up. `list_tables` and `watch`
find the tables of the process.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable

from .abi import Api
from .forks import make_lock
from .never_copied import NeverCopied
from .search import filter_environ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final, Protocol

    class TableLayer(Protocol):
        """What `DispatchTable.push` accepts: a table that forwards to `next` (`layers.Layer`)."""

        address: int
        next: int

        def redirect(self, next: int) -> None: ...
        def release(self) -> None: ...


POINTER_SIZE = ctypes.sizeof(ctypes.c_void_p)


#: The variables that start a trace (loader/trace/environment.py).
TRACE_VARIABLES: Final = (
    "SYCL_PI_TRACE",
    "SYCL_UR_TRACE",
    "UR_ENABLE_LAYERS",
    "FAIRLEAD_TRACE",
    "ZE_ENABLE_TRACING_LAYER",
)


class DispatchTable(NeverCopied):
    """The table of an API's slots at an address. `table.NAME(...)` calls a slot's function.

    Args:
        address: the address of the C table.
        label: the name of the table in traces.
    """

    def __init__(self, api: Api, address: int, label: str = "") -> None:
        self.api = api
        self.address = address
        self.label = label
        self.layers: tuple[TableLayer, ...] = ()
        self._top = ctypes.c_void_p(address)
        _follow_environment()
        with _lock:
            _live.add(self)
            watchers = tuple(_watchers)
        for watcher in watchers:
            watcher(self)

    @property
    def top(self) -> int:
        """The address of the table that receives the calls: the last layer's, else its own."""
        return self.layers[-1].address if self.layers else self.address

    @property
    def address_of_top(self) -> int:
        """The address of a pointer that is always `top`, for C. It is valid as long as `self`."""
        return ctypes.addressof(self._top)

    def push(self, layer: TableLayer) -> None:
        """Send calls through `layer`, which must forward to `top`."""
        with layers_lock:
            self.layers += (layer,)
            self._top.value = self.top
            self._forget_functions()

    def remove(self, layer: TableLayer) -> None:
        """Remove a layer. The layer in front of it forwards to the next table from now on.

        Calls that are running finish through the removed layer.
        """
        with layers_lock:
            for front in (
                front
                for behind, front in zip(self.layers, self.layers[1:], strict=False)
                if behind is layer
            ):
                front.redirect(layer.next)
            self.layers = tuple(other for other in self.layers if other is not layer)
            self._top.value = self.top
            self._forget_functions()

    def get_pointer(self, slot: int) -> int:
        """Return the function pointer in a slot of the table itself, 0 if it is NULL."""
        return ctypes.c_void_p.from_address(self.address + slot * POINTER_SIZE).value or 0

    def __getattr__(self, name: str) -> Any:
        function = self.api.functions.get(name)
        if function is None or function.slot is None:
            raise AttributeError(f"no slot of the dispatch table is called {name}")
        if not self.get_pointer(function.slot):
            raise AttributeError(f"the slot of {name} is NULL in this table")
        top = self.top
        address = ctypes.c_void_p.from_address(top + function.slot * POINTER_SIZE).value
        call = function.prototype(address)
        setattr(self, name, call)
        if self.top != top:  # another thread has pushed or removed a layer meanwhile
            self._forget_functions()
        return call

    def __dir__(self) -> list[str]:
        """Return the attributes and the functions, for completion in a shell."""
        return [*super().__dir__(), *(function.name for function in self.api.slots)]

    def refresh(self) -> None:
        """Forget the ctypes functions, because the slots of the table have changed."""
        self._forget_functions()

    def _forget_functions(self) -> None:
        for name in list(self.__dict__):  # a copy, because other threads may add functions
            if name in self.api.functions:
                self.__dict__.pop(name, None)

    def __repr__(self) -> str:
        return (
            f"<DispatchTable {self.label} at {self.address:#x}>"
            if self.label
            else f"<DispatchTable at {self.address:#x}>"
        )


def list_tables() -> list[DispatchTable]:
    """Return every table object of this process, in no particular order."""
    with _lock:
        return list(_live)


def watch(watcher: Callable[[DispatchTable], None]) -> None:
    """Call `watcher` with every table object that is created from now on."""
    with _lock:
        _watchers.append(watcher)


def unwatch(watcher: Callable[[DispatchTable], None]) -> None:
    """Stop calling `watcher` for new tables."""
    with _lock:
        _watchers.remove(watcher)


def _follow_environment() -> None:
    """Start the traces that the environment asks for, once, before the first table is announced."""
    global _followed
    with layers_lock:
        if _followed:
            return
        _followed = True
        environ = filter_environ()
        if any(environ.get(name) for name in TRACE_VARIABLES):
            from ..trace import environment  # a late import: most processes do not trace

            environment.follow_environment(environ)


#: A caller holds it from reading `top` until `push`, so that two layers never forward to one `top`.
layers_lock = make_lock()
_followed = False
_lock = make_lock()
_live: weakref.WeakSet[DispatchTable] = weakref.WeakSet()
_watchers: list[Callable[[DispatchTable], None]] = []
