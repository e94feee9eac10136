"""Devices of CUDA and HIP, with their primary contexts and streams. They live as long as their
platform, which is the driver of this machine: there is one platform, or none.
"""

from __future__ import annotations

import ctypes
from contextlib import AbstractContextManager
from functools import cache, cached_property
from typing import Any, Final

from ...icd.command_buffer.cuda_order import EARLY_SINCE
from ...loader.base.forks import make_lock
from ...loader.cuda.abi import CUDA
from ...loader.ur.abi import UR
from ..sdk._native import ffi
from ..sdk.gpu.api import GpuDriver
from ..sdk.platforms import declare_devices, declare_platforms, find_by_native
from .core import (
    API,
    NAMES,
    Object,
    adapter,
    check,
    failure,
    find_driver,
    find_routine,
    get_constant,
)


@adapter.kind
class CuPlatform(Object):
    """The driver. It lives as long as the process.

    Attributes:
        table: its functions, under the names that it exports.
    """

    type, counted = "ur_platform_handle_t", False

    def __init__(self, driver: GpuDriver) -> None:
        self.driver, self.table = driver, driver.table

    @property
    def version(self) -> str:
        """Return the API and its version, such as "CUDA 13.0"."""
        return "{} {}.{}".format(API.name, *self.driver.version)

    def get_native(self) -> int:
        return self.handle  # drivers have no platforms

    @property
    def devices(self) -> tuple[CuDevice, ...]:
        """Return the platform's devices, always the same objects."""
        return list_devices(self)


_opening: Final = make_lock()


def list_platforms() -> tuple[CuPlatform, ...]:
    """Return all platforms, always the same objects. The first call opens the driver."""
    with _opening:
        return _open_platforms()


@cache
def _open_platforms() -> tuple[CuPlatform, ...]:
    driver = find_driver()
    adapter.at_exit()
    return () if driver is None else (CuPlatform(driver),)


declare_platforms(
    adapter,
    list_platforms,  # the driver's compiler always optimizes, so it has no options
    NAME=f"{API.name} (fairlead)",
    VENDOR_NAME=API.vendor,
    VERSION=lambda platform: platform.version,
    EXTENSIONS="",
)


#: Streams of a context. More of them make graphs slower for good (measured on an H200).
MOST_STREAMS: Final = 12
_NON_BLOCKING: Final = get_constant("CU_STREAM_NON_BLOCKING")
_ALONE: Final = 1 << 32  # users of a stream that is not shared


class CuStream:
    """A stream of a device. Several queues share it if there are more queues than streams.

    Args:
        priority: the driver's; lower numbers come first.

    Attributes:
        users: how many queues have it.
    """

    def __init__(self, handle: int, priority: int) -> None:
        self.handle, self.priority, self.users = handle, priority, 0


@adapter.kind
class CuDevice(Object):
    """A device of the driver.

    Args:
        found: what the driver says of it.
    """

    type, counted = "ur_device_handle_t", False

    def __init__(self, platform: CuPlatform, found: Any) -> None:
        self.platform, self.found, self.table = platform, found, platform.table
        self.native = found.handle
        self._attributes: dict[str, int] = {}
        self._streams: list[CuStream] = []
        self._lock = make_lock()
        self._in_c: Any = None

    def get_native(self) -> int:
        return self.native

    # calls

    @property
    def in_c(self) -> Any:
        """Return what C knows of it, an `fl_gpu_device` (native/launches.cdef.h).

        It is always the same one, because queues and command-buffers have its address.
        """
        if self._in_c is None:
            made = self._make_in_c()
            with self._lock:
                self._in_c = self._in_c or made  # another thread may have been quicker
        return self._in_c

    def _make_in_c(self) -> Any:
        slots = (API.abi.functions[name].slot for name in API.context_calls)
        made = {
            **dict(zip(("current", "enter", "leave"), slots, strict=True)),
            "table": ffi.cast("void *const *const *", self.table.address_of_top),
            "is_device": API.contexts_are_devices,
            "context": self.native if API.contexts_are_devices else self.context,
        }
        return ffi.new("fl_gpu_device *", made)

    def find_slot(self, name: str) -> int:
        """Return where a function is in the driver's table. `name`: its neutral name."""
        found = API.abi.functions[find_routine(name)].slot
        assert found is not None
        return found

    @cached_property
    def context(self) -> int:
        """Return the primary context, retained from now on. Raises DriverError."""
        made = ctypes.c_void_p()
        self.call_here("DevicePrimaryCtxRetain", ctypes.byref(made), self.native)
        return made.value or 0

    def make_current(self) -> AbstractContextManager[None]:
        """Make the device's context that of this thread, in a block."""
        return API.make_current(self)

    def ask(self, name: str, *arguments: Any) -> int:
        """Call a function of the driver in this device's context, and return its code.

        Args:
            name: its neutral name, such as "MemAlloc".
        """
        function = getattr(self.table, find_routine(name))
        with self.make_current():
            return function(*arguments)

    def call_here(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver in this thread's context. Raises DriverError.

        Args:
            name: its neutral name, such as "EventRecord".
        """
        routine = find_routine(name)
        check(getattr(self.table, routine)(*arguments), routine)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver in this device's context. Raises DriverError.

        Args:
            name: its neutral name, such as "MemAlloc".
        """
        check(self.ask(name, *arguments), find_routine(name))

    def make(self, name: str, *arguments: Any) -> int:
        """Call a function that writes a handle or an address first, and return that.

        Args:
            name: its neutral name, such as "EventCreate".
            arguments: what it takes after the output.
        """
        made = ctypes.c_uint64()
        self.call(name, ctypes.byref(made), *arguments)
        return made.value

    def has(self, name: str) -> bool:
        """Return whether the driver has a function, by its neutral name."""
        return name in NAMES and bool(self.platform.driver.library.find_symbol(NAMES[name]))

    @cached_property
    def is_cooperative(self) -> bool:
        """Return whether the device can launch kernels whose work-groups run at the same time."""
        return bool(self.query_attribute("COOPERATIVE_LAUNCH")) and self.has(
            "LaunchCooperativeKernel"
        )

    @cached_property
    def local_memory(self) -> int:
        """Return how many bytes of local memory a work-group can have.

        A kernel that needs more than 48 KiB has to ask CUDA for it (kernels.py, `allow_local`).
        """
        names = ("MAX_SHARED_MEMORY_PER_BLOCK", "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        return max(map(self.query_attribute, names if API.asks_for_local else names[:1]))

    @cached_property
    def has_clusters(self) -> bool:
        """Return whether work-groups of a launch can form clusters."""
        return self.has("LaunchKernelEx") and bool(self.query_attribute("CLUSTER_LAUNCH"))

    @cached_property
    def early_threads(self) -> int:
        """Return up to how many threads a launch may let the next one start while it runs.

        Half of those that are on the device at the same time. 0: no launch starts before the end of
        the one before it (programmatic dependent launch).
        """
        edges = "GraphAddDependencies", "GraphRemoveDependencies"
        if API.abi is not CUDA or self.found.capability < EARLY_SINCE:
            return 0
        names = "MULTIPROCESSOR_COUNT", "MAX_THREADS_PER_MULTIPROCESSOR"
        count, most = map(self.query_attribute, names)
        return count * most // 2 if all(map(self.has, edges)) else 0

    def query_attribute(self, name: str) -> int:
        """Return an attribute (CU_DEVICE_ATTRIBUTE_…), 0 if the driver does not know it."""
        if name not in self._attributes:
            self._attributes[name] = self._ask_attribute(f"CU_DEVICE_ATTRIBUTE_{name}")
        return self._attributes[name]

    def _ask_attribute(self, name: str) -> int:
        value = ctypes.c_int()
        try:
            number = get_constant(name)
        except KeyError:  # the API does not have it
            return 0
        function = getattr(self.table, find_routine("DeviceGetAttribute"))
        return 0 if function(ctypes.byref(value), number, self.native) else value.value

    # streams

    @cached_property
    def priorities(self) -> tuple[int, int]:
        """Return the priorities of streams: the lowest and the highest one."""
        least, greatest = ctypes.c_int(), ctypes.c_int()
        self.call("CtxGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(greatest))
        return least.value, greatest.value

    def take_stream(self, priority: int = 0) -> CuStream:
        """Return a stream for a queue: an unused one, a new one, or the least used one.

        Args:
            priority: the driver's, 0 for the usual one.
        """
        with self._lock:
            shared = [one for one in self._streams if one.users < _ALONE]
            same = [one for one in shared if one.priority == priority]
            best = min(same, key=lambda one: one.users, default=None)
            if not shared or ((best is None or best.users) and len(self._streams) < MOST_STREAMS):
                best = self._make_stream(priority)
            if best is None:
                best = min(shared, key=lambda one: one.users)
            best.users += 1
            return best

    def _make_stream(self, priority: int) -> CuStream:
        handle = self.make("StreamCreateWithPriority", _NON_BLOCKING, priority)
        made = CuStream(handle, priority)
        self._streams.append(made)
        return made

    def take_alone(self, stream: CuStream) -> CuStream:
        """Return a stream that no other queue gets: a queue's, or another one if it is shared."""
        with self._lock:
            made = stream
            if stream.users > 1:
                unused = (one for one in self._streams if not one.users)
                same = (one for one in unused if one.priority == stream.priority)
                made = next(same, None) or self._make_stream(stream.priority)
            made.users += _ALONE
            return made

    def share(self, stream: CuStream) -> None:
        """Give a stream that one queue had alone back to all queues."""
        with self._lock:
            stream.users -= _ALONE

    def has_stream(self, native: int) -> bool:
        """Return whether a stream of the driver is one of ours, which queues share."""
        with self._lock:
            return any(one.handle == native for one in self._streams)

    def give_stream(self, stream: CuStream) -> None:
        """Take a stream back. It is never destroyed: a context counts every one it ever had."""
        with self._lock:
            stream.users -= 1

    @cached_property
    def clock_stream(self) -> CuStream:
        """Return the stream on which the time is taken, and copies without a queue run.

        Queues share any other stream first.
        """
        made = self.take_stream()
        made.users += 1 << 30
        return made

    def copy(self, target: int, source: int, size: int) -> None:
        """Copy bytes now, on a stream of its own. Raises DriverError."""
        stream = self.clock_stream.handle
        self.call("MemcpyAsync", *API.list_copy_arguments(target, source, size), stream)
        self.call("StreamSynchronize", stream)

    def drain(self) -> None:
        """Wait for everything on the device. Raises DriverError."""
        self.call("CtxSynchronize")


_lock = make_lock()
_devices: Final[dict[CuPlatform, tuple[CuDevice, ...]]] = {}


def list_devices(platform: CuPlatform) -> tuple[CuDevice, ...]:
    """Return the devices of a platform, always the same objects."""
    with _lock:
        if platform not in _devices:
            found = platform.driver.devices
            _devices[platform] = tuple(CuDevice(platform, one) for one in found)
        return _devices[platform]


def list_all_devices() -> list[CuDevice]:
    """Return the devices of all platforms."""
    return [device for platform in list_platforms() for device in list_devices(platform)]


_OURS: Final = frozenset(UR[f"UR_DEVICE_TYPE_{name}"] for name in ("ALL", "DEFAULT", "GPU"))


def _find_devices(platform: CuPlatform, kind: int) -> tuple[CuDevice, ...]:
    devices = list_devices(platform) if kind in _OURS else ()
    return devices[:1] if kind == UR["UR_DEVICE_TYPE_DEFAULT"] else devices


def _refuse_parts(device: CuDevice, asked: list[Any], room: int) -> Any:
    raise failure("INVALID_VALUE", f"{API.name}'s devices have no sub-devices")


declare_devices(
    adapter,
    find=_find_devices,
    take_native=lambda native, properties: find_by_native(list_all_devices(), native),
    divide=_refuse_parts,
    list_targets=lambda device: API.targets,
)
