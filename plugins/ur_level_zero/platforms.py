"""Platforms and devices of the adapter on Level Zero: the drivers of Level Zero that fairlead
finds, and what they list.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final

from ...loader.base.errors import FairleadError
from ...loader.base.forks import make_lock
from ...loader.base.query import decode_text
from ...loader.ur.abi import UR
from ...loader.ze import libze_loader
from ...loader.ze.binding import format_version
from ...loader.ze.driver import ZEDriver
from ...loader.ze.drivers import open_drivers
from ..sdk.objects import Object
from ..sdk.platforms import declare_devices, declare_platforms, find_by_native
from .core import (
    LevelZeroError,
    adapter,
    ask,
    ask_list,
    call,
    create,
    make_handle_array,
    make_struct,
)
from .devices import LZDevice, divide_device, find_type, list_targets


@adapter.kind
class LZPlatform(Object):
    """A driver handle of Level Zero. It lives as long as the process.

    Args:
        driver: the open library that lists it.
    """

    type, counted = "ur_platform_handle_t", False

    def __init__(self, driver: ZEDriver, ze: int) -> None:
        self.driver, self.ze, self.table = driver, ze, driver.table
        rows = ask_list(
            self.table, "zeDriverGetExtensionProperties", ze, "driver_extension_properties"
        )
        self.extensions = {decode_text(row.name): row.version for row in rows}
        found = [device.handle for device in driver.devices if device.driver_handle == ze]
        self.roots = tuple(LZDevice(handle, self) for handle in found)

    def get_native(self) -> int:
        return self.ze

    def has(self, function: str) -> bool:
        """Return whether the driver has a function."""
        return function not in self.driver.binding.missing

    def find_extension_function(self, name: str) -> int:
        """Return the address of a function that only this driver has, 0 if it has none."""
        with contextlib.suppress(LevelZeroError):
            routine = "zeDriverGetExtensionFunctionAddress"
            return create(self.table, routine, self.ze, name.encode())
        return 0

    @cached_property
    def api_version(self) -> str:
        """Return the driver's version of Level Zero, such as "1.13"."""
        version = ctypes.c_uint32()
        call(self.table, "zeDriverGetApiVersion", self.ze, ctypes.byref(version))
        return format_version(version.value)

    @cached_property
    def driver_version(self) -> str:
        """Return the number that the driver calls its version."""
        row = ask(self.table, "zeDriverGetProperties", self.ze, "driver_properties")
        return str(row.driverVersion)


_lock: Final = make_lock()
_found: Final[list[LZPlatform]] = []
_opened: Final[list[bool]] = []


def _make_platforms(driver: ZEDriver) -> Iterator[LZPlatform]:
    """Yield the platforms of a driver. One that the driver does not describe is left out."""
    for handle in driver.handles:
        try:
            yield LZPlatform(driver, handle)
        except FairleadError as error:
            adapter.log("warning", f"{driver.path} cannot be used: {error}")


def _start_loader(drivers: Sequence[str]) -> None:
    """Open a loader for other libraries, such as dpctl, which expects that an adapter has one."""
    try:
        libze_loader.start(drivers)
    except (OSError, FairleadError) as error:
        adapter.log("debug", f"no libze_loader.so.1 for other libraries: {error}")


def list_platforms() -> Sequence[LZPlatform]:
    """Return all platforms. The first call opens the drivers."""
    with _lock:
        if not _opened:
            _opened.append(True)
            drivers = open_drivers()
            for reason in drivers.reasons:
                adapter.log("debug", reason)
            for driver in drivers:
                _found.extend(_make_platforms(driver))
            if _found:
                _start_loader([driver.path for driver in drivers if driver.handles])
            if not any(platform.roots for platform in _found):
                adapter.log(
                    "warning",
                    "no Level Zero driver can be used; `fairlead doctor`, in the same environment, "
                    "says why",
                )
            adapter.at_exit()
        return tuple(_found)


def _get_file_name(platform: LZPlatform) -> str:
    return platform.driver.path.rsplit("/", 1)[-1]


declare_platforms(
    adapter,
    list_platforms,
    {
        "-O0": "-ze-opt-disable",
        "-O1": "-ze-opt-level=1",
        "-O2": "-ze-opt-level=2",
        "-O3": "-ze-opt-level=2",
    },
    NAME=lambda platform: f"Level Zero, {_get_file_name(platform)}",
    VENDOR_NAME="fairlead",
    VERSION=lambda platform: platform.api_version,
    EXTENSIONS=lambda platform: " ".join(platform.extensions),
)


def _find_devices(platform: LZPlatform, kind: int) -> Sequence[LZDevice]:
    if kind == UR["UR_DEVICE_TYPE_ALL"]:
        return platform.roots
    if kind == UR["UR_DEVICE_TYPE_DEFAULT"]:
        return platform.roots[:1]
    return [device for device in platform.roots if find_type(device) == kind]


def _take_native(native: int, properties: Any) -> LZDevice | None:
    roots = [device for platform in list_platforms() for device in platform.roots]
    return find_by_native([one for root in roots for one in (root, *root.parts)], native)


declare_devices(
    adapter,
    find=_find_devices,
    take_native=_take_native,
    divide=divide_device,
    list_targets=lambda device: list_targets(device)[1:],
)


def make_context(platform: LZPlatform, devices: Sequence[LZDevice]) -> int:
    """Return a new ze_context_handle_t for devices of a platform. Raises LevelZeroError."""
    desc, given = make_struct("context_desc"), make_handle_array([device.ze for device in devices])
    if platform.has("zeContextCreateEx"):
        arguments = ctypes.byref(desc), len(devices), given
        return create(platform.table, "zeContextCreateEx", platform.ze, *arguments)
    return create(platform.table, "zeContextCreate", platform.ze, ctypes.byref(desc))
