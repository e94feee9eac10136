"""Platforms of the reference adapter."""

from __future__ import annotations

import ctypes

import pytest
from helpers.ur_calls import Calls, array

from fairlead.loader.ur.devices import PluginDevice
from fairlead.loader.ur.plugin import Plugin


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
