"""Layers: dispatch tables that stand in front of another table and see every call.

A `Layer` is a C table of thunks (native/layer.h). Each thunk puts its arguments into an array, asks the handler `before`, calls the
next table, tells the handler `after`. A handler is C (`log`: the call is written down in memory) or Python (`handle`). A layer with
no next table is one that Python answers altogether. Its table can be given to C code: it is never freed, and once its handlers are
gone, or Python is, it only forwards.

An API can have 16 layers at a time: C has no closures, so each layer has compiled thunks of its own.
"""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from ._native import ffi, lib
from .abi import Api
from .errors import FairleadError
from .forks import new_lock

#: Told of a call before it is forwarded: (slot, arguments). None forwards it, a number answers it.
Before: TypeAlias = Callable[[int, Sequence[int]], int | None]
#: Told of a call that came back: (slot, arguments, result).
After: TypeAlias = Callable[[int, Sequence[int], int], object]

_POINTER: Final = "void *const *"

#: What was generated for an API, `fl_thunks`: that of Unified Runtime and PI is in `_native`.
_thunks: dict[Api, Any] = {}
_leases: dict[
    int, Layer
] = {}  # every layer that was ever taken, by its key, and who has it or had it last
_idle: list[Layer] = []  # given back, the longest ago first
_handled: dict[Any, Layer] = {}  # by their C layer
_lock = new_lock()


def provide(api: Api, thunks: int) -> None:
    """Make layers possible for another API: `thunks` is the address of its `fl_thunks` (native/build.py generates it)."""
    _thunks[api] = ffi.cast("const fl_thunks *", thunks)


def _thunks_of(api: Api) -> Any:
    if api not in _thunks:
        _thunks[api] = getattr(lib, f"fl_{api.path.stem}_thunks")()
    return _thunks[api]


def stubs(api: Api, name: str) -> list[int]:
    """The addresses of an API's stubs, "unsupported" or "uninitialized": one for each slot, each of them answers that code."""
    table = getattr(_thunks_of(api), name)
    return [int(ffi.cast("uintptr_t", table[slot])) for slot in range(_thunks_of(api).slots)]


def new_table(api: Api) -> tuple[int, Any]:
    """The address of a new table full of "unsupported" stubs, and an array to write its slots with. The array owns nothing."""
    address = int(ffi.cast("uintptr_t", lib.fl_new_table_of(_thunks_of(api))))
    if not address:
        raise MemoryError("no memory for a dispatch table")
    return address, (ctypes.c_void_p * _thunks_of(api).slots).from_address(address)


class Layer:
    """A table in front of the table at the address `next` (0: nothing is behind it, and what no handler answers gets `orphan`).

    It is a lease: `give_back` ends it, and another one may get the same C table. Raises FairleadError when all layers of the API are
    taken.
    """

    def __init__(self, api: Api, next: int, orphan: int = 0) -> None:
        self.api = api
        self.next = next
        self.orphan = orphan
        self.given_back = False
        with _lock:
            self.pointer = _c_layer(api, next, orphan)
            _leases[int(ffi.cast("uintptr_t", self.pointer))] = self
        self.address = int(ffi.cast("uintptr_t", lib.fl_layer_table(self.pointer)))
        self.key = int(ffi.cast("uintptr_t", self.pointer))  # what records in a log call it
        self._before: Before | None = None
        self._after: After | None = None

    def give_back(self) -> None:
        """Forward everything from now on; nobody should keep a function of its table. A second call does nothing."""
        with _lock:
            if self.given_back:
                return
            self.given_back = True
            self.log(None)
            _handled.pop(self.pointer, None)
            _idle.append(self)

    def turn(self, next: int) -> None:
        """Lead to another table from now on: what was in between has been taken out."""
        with _lock:
            self.next = next
            lib.fl_turn_layer(
                self.pointer, ffi.cast(_POINTER, next), self.orphan & 0xFFFFFFFFFFFFFFFF
            )

    def log(self, log: Log | None) -> None:
        """Write the calls into `log`, without Python in the way; None forwards everything again."""
        lib.fl_log_calls(self.pointer, log.pointer if log else ffi.NULL)

    def handle(self, before: Before | None = None, after: After | None = None) -> None:
        """Hand the calls to Python. The handlers run on the calling thread; an exception in one is printed and the call forwarded."""
        self._before, self._after = before, after
        with _lock:
            _handled[self.pointer] = self
        lib.fl_set_handlers(
            self.pointer,
            lib.fl_python_before if before else ffi.NULL,
            lib.fl_python_after if after else ffi.NULL,
        )


def _c_layer(api: Api, next: int, orphan: int) -> Any:
    """A C layer that leads to `next`: one that did so before, a new one, or the one that was given back the longest time ago."""
    behind = ffi.cast(_POINTER, next), orphan & 0xFFFFFFFFFFFFFFFF
    idle = [layer for layer in _idle if layer.api is api]
    same = [layer for layer in idle if next and layer.next == next]
    fresh = None if same else lib.fl_new_layer(_thunks_of(api), *behind)
    if fresh:
        return fresh
    in_use = _led_through(api)
    spare = same or [layer for layer in idle if layer.key not in in_use]
    if not spare:
        raise FairleadError(
            f"all {api.path.stem} layers are taken: a process can have 16 traced, validated or served tables of an API",
            remedy="trace or validate fewer adapters at a time",
        )
    _idle.remove(spare[0])
    lib.fl_turn_layer(spare[0].pointer, *behind)
    return spare[0].pointer


def _led_through(api: Api) -> set[int]:
    """The keys of the layers through which calls still go: those that are taken, and those to which such a one leads."""
    by_address = {layer.address: layer for layer in _leases.values() if layer.api is api}
    found: set[int] = set()
    for layer in by_address.values():
        here: Layer | None = None if layer.given_back else layer
        while here is not None and here.key not in found:
            found.add(here.key)
            here = by_address.get(here.next)
    return found


class Log:
    """Calls that were written down in memory, `limit` bytes at most; what comes later is only counted (`lost`)."""

    def __init__(self, limit: int = 1 << 30) -> None:
        self.pointer = lib.fl_new_log(limit)
        if not self.pointer:
            raise MemoryError("no memory for a log")

    def words(self, start: int = 0) -> memoryview:
        """What was logged after the first `start` words, as 64-bit words; native/log.c says what they mean."""
        size = max(lib.fl_log_size(self.pointer) - 8 * start, 0)
        data = bytearray(size)
        done = lib.fl_log_copy(self.pointer, 8 * start, ffi.from_buffer(data), size) if size else 0
        return memoryview(data)[:done].cast("Q")

    @property
    def lost(self) -> int:
        """The number of calls for which there was no room."""
        return lib.fl_log_lost(self.pointer)

    def clear(self) -> None:
        """Give up what was logged."""
        lib.fl_clear_log(self.pointer)


def _called(call: Any) -> tuple[Layer | None, list[int]]:
    count = call.count
    return _handled.get(call.layer), ffi.unpack(call.arguments, count) if count else []


@ffi.def_extern(name="fl_python_before", error=0)
def _python_before(call: Any) -> int:
    layer, arguments = _called(call)
    answer = layer._before(call.function, arguments) if layer and layer._before else None
    if answer is None:
        return 0
    call.result = answer & 0xFFFFFFFFFFFFFFFF
    return 1


@ffi.def_extern(name="fl_python_after")
def _python_after(call: Any) -> None:
    layer, arguments = _called(call)
    if layer and layer._after:
        layer._after(call.function, arguments, call.result)


@atexit.register
def _forward_everything() -> None:
    """The interpreter ends: whoever still holds one of our tables gets its calls forwarded."""
    for layer in list(_handled.values()):
        lib.fl_set_handlers(layer.pointer, ffi.NULL, ffi.NULL)
