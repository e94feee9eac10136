"""The adapter on Level Zero, in the process of the tests, on fairlead's own driver on each OpenCL
driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from helpers.drivers import Driver
from helpers.launching import build_once
from helpers.ur_calls import Calls

from fairlead import plugins
from fairlead.api import make_nested_environment
from fairlead.conformance.ur import kernels
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import URObjects
from fairlead.icd.drivers import platforms
from fairlead.loader.ur.adapters import load
from fairlead.loader.ur.devices import PluginDevice
from fairlead.loader.ur.discovery import PluginCandidate
from fairlead.loader.ur.plugin import Plugin
from fairlead.plugins.ur_level_zero.core import adapter as python_adapter
from fairlead.plugins.ur_level_zero.devices import LZDevice


@pytest.fixture(scope="session")
def level_zero() -> Plugin:
    """The adapter. It stays open until the process ends."""
    candidate = PluginCandidate(plugins.level_zero_adapter(), "test", backend="level_zero")
    return load(candidate, environment=make_nested_environment())


@pytest.fixture
def device(each_driver: Driver, level_zero: Plugin) -> PluginDevice:
    """The device on each OpenCL driver."""
    found = [platform for platform in platforms() if platform.devices]
    place = next(number for number, one in enumerate(found) if each_driver.has(one))
    own = [one for one in level_zero.platforms if "libze_fairlead" in one.name]
    return own[place].devices[0]


@pytest.fixture
def calls(level_zero: Plugin, device: PluginDevice) -> URCalls:
    """The adapter's functions."""
    return URCalls(level_zero, device.handle)


@pytest.fixture
def make(level_zero: Plugin, device: PluginDevice, calls: URCalls) -> Iterator[URObjects]:
    """Makes objects, and releases them."""
    made = URObjects(calls, level_zero.handles[0], device.platform.handle, device.handle)
    yield made
    made.close()


@pytest.fixture
def context(make: URObjects) -> int:
    """A context of the device."""
    return make.the_context


@pytest.fixture
def queue(make: URObjects) -> int:
    """An in-order queue."""
    return make.queue()


@pytest.fixture
def build(level_zero: Plugin, make: URObjects, context: int) -> Callable[[bytes], int]:
    """Makes a built program of the context from OpenCL C, which a process compiles once."""
    ur = Calls(level_zero.table)
    return lambda source: make.own("urProgramRelease", build_once(ur, context, source))


@pytest.fixture
def program(build: Callable[[bytes], int]) -> int:
    """The kernels of the conformance suite, made of OpenCL C."""
    return build(kernels.SOURCE)


@pytest.fixture
def behind(device: PluginDevice) -> LZDevice:
    """The adapter's own object of the device."""
    return python_adapter.objects.list_owned("ur_device_handle_t")[device.handle]
