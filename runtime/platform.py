"""Platforms and devices of the adapters that the runtime uses.

The first one is the reference adapter that ships with fairlead, which serves every OpenCL driver.
The adapters of other backends follow, as `loader.ur.plugins` finds them. UR_ADAPTERS_FORCE_LOAD
replaces them all. ONEAPI_DEVICE_SELECTOR and its like choose among the devices.

What opens adapters (adapters.py) is imported by the first program that asks for one: a captured
graph that is only replayed needs none.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final

from ..loader.base.forks import make_lock
from ..loader.base.never_copied import NeverCopied
from ..loader.ur.abi import UR
from ..loader.ur.devices import PluginDevice, PluginPlatform
from .checks import as_list
from .errors import Errc, SYCLError, make_invalid_error, make_unsupported_error
from .handles import RuntimeAdapter, make_struct

if TYPE_CHECKING:
    from ..loader.ur.plugin import Plugin

_UPDATES: Final = "UR_DEVICE_COMMAND_BUFFER_UPDATE_CAPABILITY_FLAG_"
#: What a device must be able to update for `Aspect` "ext_oneapi_graph"; with less it has the
#: limited one.
_ALL_UPDATES: Final = (
    "KERNEL_ARGUMENTS",
    "LOCAL_WORK_SIZE",
    "GLOBAL_WORK_SIZE",
    "GLOBAL_WORK_OFFSET",
    "KERNEL_HANDLE",
)
_ACCESS: Final = UR["UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_ACCESS"]
_ATOMIC: Final = UR["UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_ATOMIC_CONCURRENT_ACCESS"]
#: Aspects that a query tells: its name, and the bits of the answer of which one has to be set.
_ASPECTS: Final = {
    "atomic64": ("ATOMIC_64", 1),
    "image": ("IMAGE_SUPPORT", 1),
    "online_compiler": ("COMPILER_AVAILABLE", 1),
    "online_linker": ("LINKER_AVAILABLE", 1),
    "queue_profiling": ("QUEUE_PROPERTIES", UR["UR_QUEUE_FLAG_PROFILING_ENABLE"]),
    "usm_device_allocations": ("USM_DEVICE_SUPPORT", _ACCESS),
    "usm_host_allocations": ("USM_HOST_SUPPORT", _ACCESS),
    "usm_atomic_host_allocations": ("USM_HOST_SUPPORT", _ATOMIC),
    "usm_shared_allocations": ("USM_SINGLE_SHARED_SUPPORT", _ACCESS),
    "usm_atomic_shared_allocations": ("USM_SINGLE_SHARED_SUPPORT", _ATOMIC),
    "usm_system_allocations": ("USM_SYSTEM_SHARED_SUPPORT", _ACCESS),
}


_PARTS: Final = "partition(equally=1), partition(counts=[1, 2])"


class Device(NeverCopied):
    """A device of an adapter. There is one object for each device, so `is` and `==` compare
    devices."""

    def __init__(
        self,
        platform: Platform,
        handle: int,
        parent: Device | None = None,
        found: PluginDevice | None = None,
    ) -> None:
        self.platform, self.handle, self.parent = platform, handle, parent
        self.adapter = platform.adapter
        self._found = found or PluginDevice(handle, platform.found)
        _known[self._found] = self

    def info(self, name: str) -> Any:
        """Return the answer to a query of urDeviceGetInfo: `info("MAX_COMPUTE_UNITS")`."""
        return self._found.info(name)

    @property
    def name(self) -> str:
        """Its driver's name for it."""
        return self._found.name

    @property
    def type(self) -> str:
        """ "cpu", "gpu", "acc", "custom" or "unknown"."""
        return self._found.type

    @property
    def backend(self) -> str:
        """The name of its backend in device selectors, "opencl"."""
        return self.platform.backend

    @cached_property
    def aspects(self) -> frozenset[str]:
        """What it can do, by SYCL's names: "fp64", "usm_device_allocations", "ext_oneapi_graph".
        (SYCL 2020, section 4.6.4.5)"""
        found = {self.type} | {
            name for name, (query, bits) in _ASPECTS.items() if self._query_number(query) & bits
        }
        extensions = self._query_number("EXTENSIONS", "").split()
        found.update(name for name in ("fp64", "fp16") if f"cl_khr_{name}" in extensions)
        if self._query_number("COMMAND_BUFFER_SUPPORT_EXP"):
            found.add("ext_oneapi_limited_graph")
            able = self._query_number("COMMAND_BUFFER_UPDATE_CAPABILITIES_EXP")
            if all(able & UR[_UPDATES + name] for name in _ALL_UPDATES):
                found.add("ext_oneapi_graph")
        return frozenset(found)

    @cached_property
    def local_memory(self) -> int:
        """The local memory that a work-group can have, in bytes. (UR_DEVICE_INFO_LOCAL_MEM_SIZE)"""
        return self.info("LOCAL_MEM_SIZE")

    def has(self, aspect: str) -> bool:
        """Whether the device has an aspect."""
        return aspect in self.aspects

    def _query_number(self, name: str, otherwise: Any = 0) -> Any:
        """Return the answer to a query that an adapter may not know."""
        try:
            return self.info(name)
        except Exception:
            return otherwise

    def partition(self, *, equally: int = 0, counts: Sequence[int] = ()) -> tuple[Device, ...]:
        """Divide the device into sub-devices. (urDevicePartition)

        Args:
            equally: the number of compute units of each.
            counts: the number of compute units of each, one by one.

        Raises:
            SYCLError: feature_not_supported, if it cannot be divided so; invalid, for numbers that
                are not whole or less than 1.
        """
        kind, values = (
            ("EQUALLY", [equally])
            if equally
            else ("BY_COUNTS", as_list(counts, int, "partition", _PARTS))
        )
        if not all(isinstance(value, int) and value > 0 for value in values) or not values:
            raise make_invalid_error(
                "a part has at least one compute unit", routine="partition", remedy=_PARTS
            )
        property_type = UR.get_struct("ur_device_partition_property_t")
        properties = (property_type * len(values))()
        for one, value in zip(properties, values, strict=True):
            one.type = UR[f"UR_DEVICE_PARTITION_{kind}"]
            setattr(one.value, "equally" if equally else "count", value)
        how = make_struct(
            "ur_device_partition_properties_t",
            pProperties=ctypes.addressof(properties),
            PropCount=len(values),
        )
        count = ctypes.c_uint32()
        try:
            self.adapter.call(
                "urDevicePartition", self.handle, ctypes.byref(how), 0, None, ctypes.byref(count)
            )
        except SYCLError as error:
            raise make_unsupported_error(
                f"{self.name} cannot be divided so: {error.message}", routine="partition"
            ) from error
        handles = (ctypes.c_void_p * count.value)()
        self.adapter.call(
            "urDevicePartition", self.handle, ctypes.byref(how), count.value, handles, None
        )
        return tuple(self.sub_device(handle) for handle in handles if handle)

    def sub_device(self, handle: int) -> Device:
        """Return the object for a sub-device's handle. The reference is taken over."""
        self.adapter.plugin.device_handles.append(handle)
        parts = self.platform.parts
        with _lock:
            if handle not in parts:
                parts[handle] = Device(self.platform, handle, self)
            return parts[handle]

    def native(self) -> int:
        """Return the native handle behind it (OpenCL: cl_device_id)."""
        return self.adapter.obtain("urDeviceGetNativeHandle", self.handle)

    def __repr__(self) -> str:
        return f"<Device {self.name!r} ({self.backend} {self.type}, {self.platform.name})>"


class Platform(NeverCopied):
    """A platform of an adapter.

    Attributes:
        devices: its root devices.
        parts: sub-devices of these, by handle.
    """

    def __init__(self, adapter: RuntimeAdapter, found: PluginPlatform) -> None:
        self.adapter, self.found, self.handle = adapter, found, found.handle
        self.parts: dict[int, Device] = {}
        self._devices: tuple[Device, ...] | None = None

    @property
    def name(self) -> str:
        """Its driver's name for it."""
        return self.found.name

    @property
    def version(self) -> str:
        """The version that the platform reports, "OpenCL 3.0 …"."""
        return self.found.version

    @property
    def backend(self) -> str:
        """The name of its backend in device selectors."""
        return self.found.backend

    @property
    def devices(self) -> tuple[Device, ...]:
        """The platform's root devices."""
        with _lock:  # threads that ask at the same time get the same objects
            if self._devices is None:
                self._devices = tuple(
                    Device(self, found.handle, None, found) for found in self.found.devices
                )
            return self._devices

    def __repr__(self) -> str:
        return f"<Platform {self.name!r} ({self.backend})>"


_lock: Final = make_lock()


def platforms(plugins: Iterable[Plugin] | Plugin | None = None) -> tuple[Platform, ...]:
    """Return the platforms of the runtime's adapters.

    Args:
        plugins: adapters of `fairlead.adapters()`, one or several, to use instead.
    """
    from .adapters import find_plugins

    return _find_platforms(find_plugins(plugins, "platforms"))


def _find_platforms(plugins: Iterable[Plugin]) -> tuple[Platform, ...]:
    with _lock:
        return tuple(platform for plugin in plugins for platform in _list_platforms(plugin))


def devices(plugins: Iterable[Plugin] | Plugin | None = None) -> tuple[Device, ...]:
    """Return the devices that ONEAPI_DEVICE_SELECTOR and its like pick, by default all, in the
    order of the platforms.

    Args:
        plugins: adapters of `fairlead.adapters()`, one or several, to use instead of the runtime's.

    Raises:
        SYCLError: runtime, if there is none.
    """
    from ..loader.ur.plugins import read_selector
    from .adapters import REFERENCE, find_plugins

    adapters = find_plugins(plugins, "devices")
    everything = [device for platform in _find_platforms(adapters) for device in platform.devices]
    selector = read_selector()
    chosen = everything
    if selector is not None:
        chosen = [
            _get_device(found)
            for found in selector.select([device._found for device in everything])
        ]
    if not chosen:
        # An adapter without a platform says why, and what is missing. Ours needs drivers alone.
        others = [plugin for plugin in adapters if plugin.candidate.library != REFERENCE]
        idle = [plugin for plugin in others if plugin.idle]
        why = "".join(f"; {plugin.path}: {plugin.idle}" for plugin in idle)
        variable = selector.variable if selector else ""
        remedy = f"correct or unset {variable}, `fairlead devices` shows what there is"
        if not everything:
            remedy = "; ".join([*(plugin.remedy for plugin in idle), "run `fairlead doctor`"])
        raise SYCLError(
            Errc.runtime,
            f"there is no device that the runtime can use{why}",
            routine="devices",
            remedy=remedy,
        )
    return tuple(chosen)


#: The Device for what `loader` found, sub-devices among them.
_known: Final[dict[PluginDevice, Device]] = {}


def _get_device(found: PluginDevice) -> Device:
    """Return the object for a device, the same one each time."""
    with _lock:
        if found not in _known:
            assert found.parent is not None  # a platform has entered its own devices
            parent = _get_device(found.parent)
            Device(parent.platform, found.handle, parent, found)  # which enters itself
        return _known[found]


@cache
def _list_platforms(plugin: Plugin) -> tuple[Platform, ...]:
    adapter = RuntimeAdapter(plugin)
    return tuple(Platform(adapter, found) for found in plugin.platforms)
