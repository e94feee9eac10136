"""Platforms: the drivers that are open, as far as they can be used."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from helpers.support import RunPython

from fairlead.loader.ze.abi import LevelZeroError
from fairlead.plugins.ur_level_zero import platforms


def test_a_driver_that_cannot_be_asked_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    said = list[str]()

    def make_platform(driver: Any, handle: int) -> Any:
        if handle == 1:
            raise LevelZeroError.from_code(0x70000001, "zeDriverGetExtensionProperties")
        return SimpleNamespace(driver=driver, roots=(handle,))

    drivers = [SimpleNamespace(path=f"driver{n}", handles=(n,)) for n in (1, 2)]
    opened: Any = type("Drivers", (list,), {"reasons": ()})(drivers)
    monkeypatch.setattr(platforms, "open_drivers", lambda: opened)
    monkeypatch.setattr(platforms, "LZPlatform", make_platform)
    monkeypatch.setattr(platforms, "_found", [])
    monkeypatch.setattr(platforms, "_opened", [])
    monkeypatch.setattr(platforms.adapter, "log", lambda _, text: said.append(text))
    monkeypatch.setattr(platforms.adapter, "at_exit", lambda: None)
    monkeypatch.setattr(platforms.libze_loader, "start", lambda drivers: None)
    assert [one.driver for one in platforms.list_platforms()] == drivers[1:]
    assert "driver1" in said[0] and "zeDriverGetExtensionProperties" in said[0]


def test_other_libraries_find_a_loader(
    run_python: RunPython, wheel_drivers: dict[str, str]
) -> None:
    """dpctl looks for an open libze_loader.so.1, and calls it without an init."""
    code = """
import ctypes, os
from fairlead import plugins
from fairlead.loader.ur.adapters import load
from fairlead.loader.ur.discovery import PluginCandidate

adapter = load(PluginCandidate(plugins.level_zero_adapter(), "test", backend="level_zero"))
assert adapter.devices
loader = ctypes.CDLL("libze_loader.so.1", os.RTLD_NOLOAD)
handle = ctypes.c_void_p()
get = adapter.table.urDeviceGetNativeHandle
assert get(adapter.devices[0].handle, ctypes.byref(handle)) == 0
assert loader.zeDeviceGetStatus(handle) == 0
assert "ZE_ENABLE_ALT_DRIVERS" not in os.environ
"""
    run_python(code, env=wheel_drivers, fresh=True)
