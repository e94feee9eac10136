"""Platforms and devices of all adapters: lists, options of compilers, parts of devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from ...loader.ur.abi import API_VERSION
from .adapter import Adapter
from .conversions import failure
from .rules import select_binary

#: The options of DPC++ for which a platform may have one of its driver's compiler.
_OPTIONS: Final = frozenset({"", "-O0", "-O1", "-O2", "-O3", "-ftarget-compile-fast"})


def declare_platforms(
    adapter: Adapter,
    find: Callable[[], Sequence[Any]],
    options: Mapping[str, str | Callable[[Any], str]] = MappingProxyType({}),
    **info: Any,
) -> None:
    """Declare the entry points about platforms.

    Args:
        find: returns all platforms, always the same objects.
        options: what the driver's compiler has for an option of DPC++, unless it has nothing. A
            function gets the platform.
        info: the answers of urPlatformGetInfo, by their names after UR_PLATFORM_INFO_.
    """

    def translate(hPlatform: Any, pFrontendOption: str) -> str:
        if pFrontendOption not in _OPTIONS:
            raise failure("INVALID_VALUE", f"drivers have no option for {pFrontendOption}")
        found = options.get(pFrontendOption, "")
        return found(hPlatform) if callable(found) else found

    def take_native(hNativePlatform: int) -> Any:
        for platform in find():
            if platform.get_native() == hNativePlatform:
                return platform
        raise failure("INVALID_PLATFORM", "no driver that fairlead has found has this platform")

    adapter.declare(
        urPlatformGet=find,
        urPlatformGetApiVersion=lambda hPlatform: API_VERSION,
        urPlatformGetBackendOption=translate,
        urPlatformCreateWithNativeHandle=take_native,
    )
    given = {"PROFILE": "FULL_PROFILE", "BACKEND": adapter.backend, "ADAPTER": adapter, **info}
    adapter.info("urPlatformGetInfo", given, "UR_PLATFORM_INFO_")


def declare_devices(
    adapter: Adapter,
    *,
    find: Callable[[Any, int], Sequence[Any]],
    take_native: Callable[[int, Any], Any],
    divide: Callable[[Any, list[Any], int], Sequence[Any]],
    list_targets: Callable[[Any], Sequence[str]],
) -> None:
    """Declare which devices there are, how they are divided, and which binaries they take.

    Args:
        find: returns the root devices of a platform, of a ur_device_type_t.
        take_native: returns the device of a native handle, None if there is none. It gets
            properties, too.
        divide: returns the parts of a device. It gets ur_device_partition_property_t of one type,
            and for how many handles there is room. Without room as many numbers do.
        list_targets: returns the targets of binaries that a device takes, the best first.
    """

    def partition(hDevice: Any, pProperties: Any, NumDevices: int) -> Sequence[Any]:
        asked = [pProperties.pProperties[index] for index in range(pProperties.PropCount)]
        if len({one.type for one in asked}) != 1:
            raise failure("INVALID_VALUE", "all properties have to be of one type")
        return divide(hDevice, asked, NumDevices)

    def find_native(hNativeDevice: int, pProperties: Any) -> Any:
        found = take_native(hNativeDevice, pProperties)
        if found is None:
            code = "INVALID_VALUE" if hNativeDevice else "INVALID_NULL_HANDLE"
            raise failure(code, "no driver that fairlead has found has this device")
        return found

    adapter.declare(
        urDeviceGet=lambda hPlatform, DeviceType: find(hPlatform, DeviceType),
        urDeviceCreateWithNativeHandle=find_native,
        urDevicePartition=partition,
        urDeviceSelectBinary=lambda hDevice, pBinaries, NumBinaries: select_binary(
            pBinaries, NumBinaries, list_targets(hDevice)
        ),
    )


def find_by_native(devices: Sequence[Any], native: int) -> Any:
    """Return the device that has a native handle, None if no device has it."""
    return next((device for device in devices if device.get_native() == native), None)
