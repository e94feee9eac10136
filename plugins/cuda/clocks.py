"""CUDA and HIP: the time of a device, in nanoseconds on the scale of the host's monotonic clock.

The driver only tells how long it took from one event to another, as a float of milliseconds. So
times are distances from a base: an event whose time is known. A float has 24 bits, so a base serves
for a second. Then the next one is recorded, and its time is its distance from the one before it.
"""

from __future__ import annotations

import ctypes
import time
import weakref
from typing import Final

from ...loader.base.forks import make_lock
from .core import adapter, get_constant
from .devices import CuDevice

#: Nanoseconds that a base serves for.
_SERVES: Final = 1_000_000_000


def make_event(device: CuDevice, timed: bool, *, shared: bool = False) -> int:
    """Return a new CUevent. The device's context is current. Raises DriverError.

    Args:
        timed: whether it has a time.
        shared: whether other processes may have it, too. Then it has no time.
    """
    made = ctypes.c_void_p()
    flags = get_constant("CU_EVENT_DEFAULT" if timed else "CU_EVENT_DISABLE_TIMING")
    flags |= get_constant("CU_EVENT_INTERPROCESS") if shared else 0
    device.call_here("EventCreate", ctypes.byref(made), flags)
    return made.value or 0


def measure(device: CuDevice, start: int, end: int) -> float:
    """Return the nanoseconds from one event to another. Raises DriverError."""
    found = ctypes.c_float()
    device.call("EventElapsedTime", ctypes.byref(found), start, end)
    return found.value * 1e6


class TimeBase:
    """An event whose time is known.

    Args:
        event: the CUevent, which is destroyed with the base.
        began: the host's time when it was recorded.
    """

    def __init__(self, device: CuDevice, event: int, began: int) -> None:
        self.device, self.event, self.began = device, event, began
        self.time = float(began)
        weakref.finalize(self, device.ask, "EventDestroy", event).atexit = False

    def measure_event(self, event: int) -> int:
        """Return the time of an event that is complete. Raises DriverError."""
        return int(self.time + measure(self.device, self.event, event))


class _Clock:
    """The bases of a device."""

    def __init__(self, device: CuDevice) -> None:
        self._device, self._lock = device, make_lock()
        self._base: TimeBase | None = None

    def make_base(self) -> TimeBase:
        """Return a base for an event that is recorded now. Raises DriverError."""
        with self._lock:
            now = time.monotonic_ns()
            if self._base is None or now - self._base.began > _SERVES:
                self._base = self._record_base(self._base)
            return self._base

    def _record_base(self, last: TimeBase | None) -> TimeBase:
        """Record an event on a stream of its own, and wait for it: nothing is before it."""
        device = self._device
        stream = device.clock_stream
        with device.make_current():
            event = make_event(device, True)
        began = time.monotonic_ns()
        device.call("EventRecord", event, stream.handle)
        device.call("EventSynchronize", event)
        made = TimeBase(device, event, (began + time.monotonic_ns()) // 2)
        if last is not None:
            made.time = last.time + measure(device, last.event, event)
        return made


_clocks: Final[dict[CuDevice, _Clock]] = {}
_lock = make_lock()


def make_base(device: CuDevice) -> TimeBase:
    """Return a base for an event of a device that is recorded now. Raises DriverError."""
    with _lock:
        clock = _clocks.setdefault(device, _Clock(device))
    return clock.make_base()


def measure_device_time(device: CuDevice) -> int:
    """Return the device's time now, in nanoseconds. Raises DriverError."""
    base = make_base(device)
    with device.make_current():
        event = make_event(device, True)
    try:
        device.call("EventRecord", event, device.clock_stream.handle)
        device.call("EventSynchronize", event)
        return base.measure_event(event)
    finally:
        device.ask("EventDestroy", event)


@adapter.entry
def urDeviceGetGlobalTimestamps(hDevice: CuDevice) -> tuple[int, int]:
    return measure_device_time(hDevice), time.monotonic_ns()
