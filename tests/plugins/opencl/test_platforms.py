"""Platforms of the reference adapter."""

from __future__ import annotations

import ctypes

import pytest
from helpers.drivers import Driver
from helpers.ur_calls import Calls, array

from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.devices import PluginDevice
from fairlead.loader.ur.plugin import Plugin


def test_there_is_a_platform_of_each_driver_and_it_is_the_same_each_time(
    ur: Calls, adapter: Plugin, present_drivers: tuple[Driver, ...]
) -> None:
    count = ctypes.c_uint32()
    ur.ok("urPlatformGet", adapter.handles[0], 0, None, ctypes.byref(count))
    found = (ctypes.c_void_p * count.value)()
    ur.ok("urPlatformGet", adapter.handles[0], count.value, found, None)
    assert list(found) == [platform.handle for platform in adapter.platforms]
    for driver in present_drivers:
        assert any(driver.has(platform) for platform in adapter.platforms)


def test_a_platform_tells_of_itself(adapter: Plugin, device: PluginDevice) -> None:
    platform = device.platform
    assert platform.info("BACKEND") == UR["UR_BACKEND_OPENCL"]
    assert platform.info("ADAPTER") == adapter.handles[0]
    assert platform.info("PROFILE") == "FULL_PROFILE"
    assert platform.version.startswith("OpenCL 3.")
    assert "cl_khr_icd" in platform.extensions


def test_a_native_handle_leads_back_to_the_same_platform(
    ur: Calls, adapter: Plugin, device: PluginDevice
) -> None:
    native = ur.make("urPlatformGetNativeHandle", device.platform.handle).value
    again = ur.make("urPlatformCreateWithNativeHandle", native, adapter.handles[0], None)
    assert again.value == device.platform.handle
    assert (
        ur("urPlatformCreateWithNativeHandle", 0x1000, adapter.handles[0], None, array(None))
        == "INVALID_PLATFORM"
    )


@pytest.mark.parametrize(
    ("option", "expected"),
    [(b"", b""), (b"-O0", b"-cl-opt-disable"), (b"-O3", b""), (b"-ftarget-compile-fast", b"")],
)
def test_options_of_a_compiler_are_the_drivers(
    ur: Calls, device: PluginDevice, option: bytes, expected: bytes
) -> None:
    said = ctypes.c_char_p()
    ur.ok("urPlatformGetBackendOption", device.platform.handle, option, ctypes.byref(said))
    assert said.value == expected
    assert (
        ur("urPlatformGetBackendOption", device.platform.handle, b"-Ofast", ctypes.byref(said))
        == "INVALID_VALUE"
    )
