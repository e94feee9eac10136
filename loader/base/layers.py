"""Layers: dispatch tables that see each call before they forward it to another table.

A `Layer` is a C table of thunks (native/layer.h). A thunk puts the arguments into an array, calls
the `before` handler, calls the next table, and calls the `after` handler. The handlers are either C
functions (`log`: write the call into memory) or Python functions (`handle`). A layer without a next
table is answered by Python alone. C code may use a layer's table: it is never freed. Once its
handlers or the interpreter are gone, it only forwards.

An API can have 16 layers at a time. C has no closures, so each layer has compiled thunks of its
own.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence

from ._native import ffi, lib
from .abi import Api
from .ends import call_at_end
from .errors import FairleadError
from .forks import make_lock
from .interrupts import mark_uninterrupted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final, TypeAlias

#: Called as (slot, arguments) before a call is forwarded. None forwards it, a number answers it.
Before: TypeAlias = Callable[[int, Sequence[int]], int | None]
#: Called as (slot, arguments, result) when a call has returned.
After: TypeAlias = Callable[[int, Sequence[int], int], object]

#: The functions that native/device.c calls or changes, in the order of `fl_device`.
_DEVICE_FUNCTIONS: Final = (
    "clGetEventInfo",
    "clGetEventProfilingInfo",
    "clRetainEvent",
    "clReleaseEvent",
    "clCreateCommandQueue",
    "clCreateCommandQueueWithProperties",
    "clEnqueueNDRangeKernel",
    "clEnqueueMapBuffer",
    "clEnqueueMapImage",
    "clGetDeviceInfo",
)
#: The functions that native/dump.c looks at or calls, in the order of `fl_dump`.
_PROGRAM_FUNCTIONS: Final = (
    "clCreateProgramWithSource",
    "clBuildProgram",
    "clCompileProgram",
    "clLinkProgram",
    "clGetProgramInfo",
    "clGetProgramBuildInfo",
)
_POINTER: Final = "void *const *"

#: The generated `fl_thunks` of each API. Those of OpenCL are in `icd`, the others in `_native`.
_thunks: dict[Api, Any] = {}
#: The key of each C layer that was ever used, and its current or latest owner.
_leases: dict[int, Layer] = {}
_idle: list[Layer] = []  # released layers, the oldest release first
_handled: dict[Any, Layer] = {}  # layers with Python handlers, by their C layer
_lock = make_lock()


def enable_api(api: Api, thunks: int) -> None:
    """Enable layers for another API.

    Args:
        thunks: the address of its `fl_thunks`, which native/build.py generates.
    """
    _thunks[api] = ffi.cast("const fl_thunks *", thunks)


def dump_programs(api: Api, folder: str) -> None:
    """Write the sources and build logs of OpenCL programs into a folder from now on.

    Args:
        api: OpenCL's ABI data. Its calls are seen while a log records them.
        folder: where the files go (native/dump.c).
    """
    slots = [api.functions[name].slot for name in _PROGRAM_FUNCTIONS]
    lib.fl_dump_programs(os.fsencode(folder), _find_thunks(api), ffi.new("fl_dump *", slots))


def _find_thunks(api: Api) -> Any:
    if api not in _thunks:
        _thunks[api] = getattr(lib, f"fl_{api.name}_thunks")()
    return _thunks[api]


def make_stubs(api: Api, name: str) -> list[int]:
    """Return the addresses of an API's stubs, one for each slot.

    Args:
        name: the code that the stubs return: "unsupported" or "uninitialized".
    """
    table = getattr(_find_thunks(api), name)
    return [int(ffi.cast("uintptr_t", table[slot])) for slot in range(_find_thunks(api).slots)]


def make_table(api: Api) -> tuple[int, Any]:
    """Allocate a table that is never freed, with "unsupported" stubs in all slots.

    Returns:
        The address of the table, and a ctypes array that writes its slots. The array owns no
        memory.

    Raises:
        MemoryError: no memory is left.
    """
    address = int(ffi.cast("uintptr_t", lib.fl_new_table_of(_find_thunks(api))))
    if not address:
        raise MemoryError("no memory for a dispatch table")
    return address, (ctypes.c_void_p * _find_thunks(api).slots).from_address(address)


class Layer:
    """A table whose entries see each call and forward it to the table at the address `next`.

    `release` frees the C table for another layer.

    Args:
        next: the address of the table to forward to; 0 if the handler answers every call.
        orphan: what a call returns that no handler answers, if `next` is 0.

    Raises:
        FairleadError: all 16 layers of the API are in use.
    """

    def __init__(self, api: Api, next: int, orphan: int = 0) -> None:
        self.api = api
        self.next = next
        self.orphan = orphan
        self.released = False
        with _lock:
            self.pointer = _make_c_layer(api, next, orphan)
            _leases[int(ffi.cast("uintptr_t", self.pointer))] = self
        self.address = int(ffi.cast("uintptr_t", lib.fl_layer_table(self.pointer)))
        self.key = int(ffi.cast("uintptr_t", self.pointer))  # its id in the records of a log
        self._before: Before | None = None
        self._after: After | None = None

    def release(self) -> None:
        """Forward every call from now on, and free the C table for another layer.

        The caller must not use functions of the table afterwards. A second call does nothing.
        """
        with _lock:
            if self.released:
                return
            self.released = True
            self.log(None)
            _handled.pop(self.pointer, None)
            self._before = self._after = None  # what they hold is not needed any more
            _idle.append(self)

    def redirect(self, next: int) -> None:
        """Forward calls to the table at `next` from now on."""
        with _lock:
            self.next = next
            lib.fl_redirect_layer(
                self.pointer, ffi.cast(_POINTER, next), self.orphan & 0xFFFFFFFFFFFFFFFF
            )

    def log(self, log: Log | None, device: bool = False) -> None:
        """Write the calls into `log`, without running Python. None stops that.

        Args:
            device: whether OpenCL's queues are made with profiling, and notes of their commands
                (native/device.c) are written, too.
        """
        if log and device:
            slots = [self.api.functions[name].slot for name in _DEVICE_FUNCTIONS]
            lib.fl_log_device(self.pointer, log.pointer, ffi.new("fl_device *", slots))
            return
        lib.fl_log_calls(self.pointer, log.pointer if log else ffi.NULL)

    def handle(self, before: Before | None = None, after: After | None = None) -> None:
        """Call Python before and after each call, on the calling thread.

        An exception in a handler is printed, and the call is forwarded.

        Args:
            before: called before the call is forwarded. It may answer the call itself.
            after: called when the call has returned.
        """
        self._before, self._after = before, after
        with _lock:
            _handled[self.pointer] = self
        lib.fl_set_handlers(
            self.pointer,
            lib.fl_python_before if before else ffi.NULL,
            lib.fl_python_after if after else ffi.NULL,
        )


def _make_c_layer(api: Api, next: int, orphan: int) -> Any:
    """Return a C layer that forwards to `next`.

    It is a released layer that forwarded there before, a new one, or the one that was released the
    longest time ago.
    """
    behind = ffi.cast(_POINTER, next), orphan & 0xFFFFFFFFFFFFFFFF
    idle = [layer for layer in _idle if layer.api is api]
    same = [layer for layer in idle if next and layer.next == next]
    fresh = None if same else lib.fl_new_layer(_find_thunks(api), *behind)
    if fresh:
        return fresh
    in_use = _find_forwarding(api)
    spare = same or [layer for layer in idle if layer.key not in in_use]
    if not spare:
        raise FairleadError(
            f"all {api.name} layers are in use: "
            "a process can trace, validate or serve 16 tables of an API at a time",
            remedy="trace or validate fewer adapters at a time",
        )
    _idle.remove(spare[0])
    lib.fl_redirect_layer(spare[0].pointer, *behind)
    return spare[0].pointer


def _find_forwarding(api: Api) -> set[int]:
    """Return the keys of the layers that still forward calls.

    These are the layers in use, and those that they forward to.
    """
    by_address = {layer.address: layer for layer in _leases.values() if layer.api is api}
    found: set[int] = set()
    for layer in by_address.values():
        here: Layer | None = None if layer.released else layer
        while here is not None and here.key not in found:
            found.add(here.key)
            here = by_address.get(here.next)
    return found


class Log:
    """Calls written into memory, at most `limit` bytes. Later calls are only counted (`lost`)."""

    def __init__(self, limit: int = 1 << 30) -> None:
        self.pointer = lib.fl_new_log(limit)
        if not self.pointer:
            raise MemoryError("no memory for a log")

    def copy_words(self, start: int = 0) -> memoryview:
        """Return the log after its first `start` words, as 64-bit words (format: native/log.c)."""
        size = max(lib.fl_log_size(self.pointer) - 8 * start, 0)
        data = bytearray(size)
        done = lib.fl_log_copy(self.pointer, 8 * start, ffi.from_buffer(data), size) if size else 0
        return memoryview(data)[:done].cast("Q")

    @property
    def lost(self) -> int:
        """The number of calls that were not logged because the log was full."""
        return lib.fl_log_lost(self.pointer)

    def clear(self) -> None:
        """Free the memory of the log."""
        lib.fl_clear_log(self.pointer)


def _find_called(call: Any) -> tuple[Layer | None, list[int]]:
    count = call.count
    return _handled.get(call.layer), ffi.unpack(call.arguments, count) if count else []


@ffi.def_extern(name="fl_python_before", error=0)
@mark_uninterrupted
def _call_before(call: Any) -> int:
    layer, arguments = _find_called(call)
    before = layer._before if layer else None  # another thread may release the layer
    answer = before(call.function, arguments) if before else None
    if answer is None:
        return 0
    call.result = answer & 0xFFFFFFFFFFFFFFFF
    return 1


@ffi.def_extern(name="fl_python_after")
@mark_uninterrupted
def _call_after(call: Any) -> None:
    layer, arguments = _find_called(call)
    after = layer._after if layer else None
    if after:
        after(call.function, arguments, call.result)


@call_at_end("tables")
def _forward_everything() -> None:
    """Remove all Python handlers before the interpreter ends: C code may still use the tables."""
    for layer in list(_handled.values()):
        lib.fl_set_handlers(layer.pointer, ffi.NULL, ffi.NULL)
