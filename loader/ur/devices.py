"""Platforms and devices of an open plugin, and the names that its interface uses (`DIALECTS`).

Unified Runtime and PI differ little except in names: a platform lists devices, a device answers
queries and has sub-devices. `decode` converts answers to Python values by the types in the ABI
data.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from ..base.abi import Api
from ..base.errors import CodeError, FairleadError
from ..base.frozen_value import Value
from ..base.query import Check, decode_text, query_handles
from ..pi.abi import PI, PIError
from ..pi.abi import check as check_pi
from .abi import UR, URError
from .abi import check as check_ur

if TYPE_CHECKING:
    from .plugin import Plugin


class Dialect(Value):
    """The names in which the interfaces differ: functions, queries and constants."""

    api: Api
    check: Check
    error: type[CodeError]
    list_platforms: str
    platform_info: str
    list_devices: str
    device_info: str
    partition: str
    release_device: str
    platform_prefix: str
    device_prefix: str
    backend: str
    all_devices: str
    types: Mapping[str, str]


_TYPES: Final = {
    "CPU": "cpu",
    "GPU": "gpu",
    "FPGA": "acc",
    "ACC": "acc",
    "MCA": "acc",
    "VPU": "acc",
    "CUSTOM": "custom",
}

DIALECTS: Final = {
    "UR": Dialect(
        UR,
        check_ur,
        URError,
        "urPlatformGet",
        "urPlatformGetInfo",
        "urDeviceGet",
        "urDeviceGetInfo",
        "urDevicePartition",
        "urDeviceRelease",
        "UR_PLATFORM_INFO_",
        "UR_DEVICE_INFO_",
        "UR_PLATFORM_INFO_BACKEND",
        "UR_DEVICE_TYPE_ALL",
        {f"UR_DEVICE_TYPE_{name}": word for name, word in _TYPES.items()},
    ),
    "PI": Dialect(
        PI,
        check_pi,
        PIError,
        "piPlatformsGet",
        "piPlatformGetInfo",
        "piDevicesGet",
        "piDeviceGetInfo",
        "piDevicePartition",
        "piDeviceRelease",
        "PI_PLATFORM_INFO_",
        "PI_DEVICE_INFO_",
        "PI_EXT_PLATFORM_INFO_BACKEND",
        "PI_DEVICE_TYPE_ALL",
        {f"PI_DEVICE_TYPE_{name}": word for name, word in _TYPES.items()},
    ),
}


@dataclass(frozen=True, eq=False)
class PluginDevice:
    """A device of a plugin.

    Attributes:
        handle: its handle in the plugin's interface.
        parent: the device that it is a part of, None for a root device.
    """

    handle: int
    platform: PluginPlatform
    parent: PluginDevice | None = None

    def info(self, name: str) -> Any:
        """Query the device: `info("UR_DEVICE_INFO_NAME")` or `info("NAME")`. See `Plugin.info`."""
        dialect = self.platform.plugin.dialect
        return self.platform.plugin.info(
            dialect.device_info, self.handle, name, dialect.device_prefix
        )

    @cached_property
    def name(self) -> str:
        """The name that the plugin reports."""
        return self.info("NAME")

    @cached_property
    def driver_version(self) -> str:
        """The version of its driver."""
        return self.info("DRIVER_VERSION")

    @property
    def type(self) -> str:
        """ "cpu", "gpu", "acc" (an accelerator, an FPGA), "custom" or "unknown"."""
        return self._type

    @cached_property
    def _type(self) -> str:
        dialect, value = self.platform.plugin.dialect, self.info("TYPE")
        known = (
            name
            for name in dialect.types
            if name in dialect.api.constants and dialect.api[name] == value
        )
        return dialect.types.get(next(known, ""), "unknown")

    @property
    def backend(self) -> str:
        """The backend of its platform in device selectors, such as "opencl"."""
        return self.platform.backend

    @cached_property
    def _sub_devices(self) -> tuple[PluginDevice, ...]:
        plugin = self.platform.plugin
        try:
            found = _list_parts(plugin, self.handle)
        except FairleadError:  # it cannot be partitioned
            return ()
        plugin.device_handles += found
        return tuple(PluginDevice(handle, self.platform, self) for handle in found)

    def sub_devices(self) -> Sequence[PluginDevice]:
        """Return the parts by the device's next partitionable affinity domain, if there is one."""
        return self._sub_devices

    def __repr__(self) -> str:
        return (
            f"<{self.platform.plugin.interface} device {self.name!r} ({self.backend} {self.type})>"
        )


@dataclass(frozen=True, eq=False)
class PluginPlatform:
    """A platform of a plugin.

    Attributes:
        handle: its handle in the plugin's interface.
    """

    handle: int
    plugin: Plugin

    def info(self, name: str) -> Any:
        """Query the platform: `info("UR_PLATFORM_INFO_NAME")` or `info("NAME")`."""
        dialect = self.plugin.dialect
        return self.plugin.info(dialect.platform_info, self.handle, name, dialect.platform_prefix)

    @cached_property
    def name(self) -> str:
        """The name that the plugin reports."""
        return self.info("NAME")

    @cached_property
    def version(self) -> str:
        """The version that the platform reports, such as "OpenCL 3.0 …"."""
        return self.info("VERSION")

    @cached_property
    def extensions(self) -> frozenset[str]:
        """The extensions that the platform reports."""
        return frozenset(self.info("EXTENSIONS").split())

    @cached_property
    def backend(self) -> str:
        """Its backend in device selectors; the plugin's if the query fails."""
        dialect = self.plugin.dialect
        try:
            value = self.info(dialect.backend)
        except FairleadError:
            return self.plugin.candidate.backend
        group = dialect.api.groups["ur_backend_t" if dialect.api is UR else "pi_platform_backend"]
        word = group.get(value, "unknown").rsplit("BACKEND_", 1)[-1].lower()
        return word if word != "unknown" else self.plugin.candidate.backend

    @cached_property
    def devices(self) -> tuple[PluginDevice, ...]:
        """Its root devices in the plugin's order.

        Raises:
            CodeError: the plugin cannot list them (URError or PIError).
        """
        plugin, dialect = self.plugin, self.plugin.dialect
        call = getattr(plugin.table, dialect.list_devices)
        try:
            found = query_handles(
                call,
                dialect.list_devices,
                dialect.check,
                self.handle,
                dialect.api[dialect.all_devices],
            )
        except CodeError as error:
            if error.code.endswith("DEVICE_NOT_FOUND"):
                return ()
            raise
        plugin.device_handles += found
        return tuple(PluginDevice(handle, self) for handle in found)

    def __repr__(self) -> str:
        return f"<{self.plugin.interface} platform {self.name!r}>"


def _list_parts(plugin: Plugin, handle: int) -> list[int]:
    """Return the parts of a device by the next partitionable affinity domain."""
    api, dialect = plugin.dialect.api, plugin.dialect
    if api is UR:
        kind = api.get_struct("ur_device_partition_property_t")
        one = kind(type=api["UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN"])
        one.value.affinity_domain = api["UR_DEVICE_AFFINITY_DOMAIN_FLAG_NEXT_PARTITIONABLE"]
        how = api.get_struct("ur_device_partition_properties_t")(
            stype=api["UR_STRUCTURE_TYPE_DEVICE_PARTITION_PROPERTIES"],
            pProperties=ctypes.addressof(one),
            PropCount=1,
        )
        argument: Any = ctypes.byref(how)
    else:
        names = (
            "PI_DEVICE_PARTITION_BY_AFFINITY_DOMAIN",
            "PI_DEVICE_AFFINITY_DOMAIN_NEXT_PARTITIONABLE",
        )
        argument = (ctypes.c_ssize_t * 3)(*(api[name] for name in names), 0)
    return query_handles(
        getattr(plugin.table, dialect.partition), dialect.partition, dialect.check, handle, argument
    )


def decode(api: Api, answer: str, value: bytes) -> Any:
    """Convert the bytes of an answer to a Python value.

    Args:
        answer: the C type of the answer in the ABI data.
    """
    if answer == "char[]":
        return decode_text(value)
    name, is_array = answer.removesuffix("[]"), answer.endswith("[]")
    if not name or "*" in name or api.resolve(name) in ("struct", "callback"):
        return value
    ctype = api.make_ctype(name)
    size = ctypes.sizeof(ctype)
    if is_array:
        items = (ctype * (len(value) // size)).from_buffer_copy(value[: len(value) // size * size])
        return tuple(items)
    # Some plugins answer with fewer bytes than the type has.
    number = ctype.from_buffer_copy(value[:size].ljust(size, b"\0")).value
    return bool(number) if name.endswith("_bool_t") or name == "pi_bool" else number
