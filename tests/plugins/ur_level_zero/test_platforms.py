"""Platforms: the drivers that are open, as far as they can be used."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

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
    assert [one.driver for one in platforms.list_platforms()] == drivers[1:]
    assert "driver1" in said[0] and "zeDriverGetExtensionProperties" in said[0]
