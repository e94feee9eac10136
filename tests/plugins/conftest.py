"""The reference adapter, loaded into the process of the tests through fairlead's own loader, and
its devices: one of each driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from helpers.drivers import Driver
from helpers.ur_calls import Calls, array

from fairlead import plugins
from fairlead.api import make_nested_environment
from fairlead.loader.base.search import Candidate
from fairlead.loader.ur.adapters import load
from fairlead.loader.ur.devices import PluginDevice
from fairlead.loader.ur.discovery import PluginCandidate
from fairlead.loader.ur.plugin import Plugin

LIBRARY: Final = Path(plugins.__file__).with_name("libur_adapter_fairlead.so.0")


@pytest.fixture(scope="session")
def adapter() -> Plugin:
    """The adapter. It stays open until the process ends, as in every program that uses one."""
    return load(
        PluginCandidate(str(LIBRARY), "test", backend="opencl"),
        environment=make_nested_environment(),
    )


@pytest.fixture
def ur(adapter: Plugin) -> Iterator[Calls]:
    """Its functions. What a test makes by them and does not release is released in the end."""
    calls = Calls(adapter.table)
    yield calls
    calls.release()


@pytest.fixture
def device(each_driver: Driver, adapter: Plugin) -> PluginDevice:
    """A device of each driver; `device.handle` is what functions take."""
    return next(found for found in adapter.devices if each_driver.has(found.platform))


@pytest.fixture
def pocl_wheel_device(
    adapter: Plugin, pocl_wheel: Candidate, present_drivers: tuple[Driver, ...]
) -> PluginDevice:
    """The device of PyPI's PoCL, whatever other PoCL there is."""
    (driver,) = (driver for driver in present_drivers if driver.name == "pocl_wheel")
    return next(found for found in adapter.devices if driver.has(found.platform))


@pytest.fixture
def divisible(ur: Calls, device: PluginDevice) -> None:
    """Leave a test out if the device has no sub-devices: PoCL 7.1's has none."""
    name = "UR_DEVICE_INFO_PARTITION_MAX_SUB_DEVICES"
    if ur.number("urDeviceGetInfo", device.handle, name) < 2:
        pytest.skip("the device has no sub-devices")


@pytest.fixture
def context(device: PluginDevice, ur: Calls) -> int:
    """A context with the device alone."""
    return ur.make("urContextCreate", 1, array(device.handle)).value or 0


@pytest.fixture
def queue(device: PluginDevice, context: int, ur: Calls) -> int:
    """A queue of the context, in order."""
    return ur.make("urQueueCreate", context, device.handle).value or 0
