"""The objects that cases for PI plugins use. Handles are ints.

Building takes time, so the context and the program belong to the session. Queues, memory and
kernels belong to a case, which makes them with `objects`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial

import pytest

from fairlead.conformance.checks import unsupported
from fairlead.conformance.child import LibraryUnderTest
from fairlead.conformance.device import choose
from fairlead.conformance.pi.objects import OUT_OF_ORDER, PIObjects
from fairlead.conformance.pi.recorder import PIRecorder
from fairlead.icd.drivers import drivers
from fairlead.loader.base.errors import FairleadError
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.pi.abi import PI
from fairlead.loader.ur.adapters import load
from fairlead.loader.ur.devices import PluginDevice
from fairlead.loader.ur.discovery import PluginCandidate
from fairlead.loader.ur.plugin import Plugin

pytest_plugins = ["fairlead.conformance.shared"]


def open_library(target: LibraryUnderTest) -> Plugin:
    """Open and bind the plugin."""
    # A plugin over OpenCL finds the drivers itself. This call repairs them for the whole process.
    drivers()
    plugin = load(PluginCandidate(target.library, "conformance", interface="PI"))
    target.at_end(plugin.close)
    if target.device:
        choose(plugin.devices, target.device)
    return plugin


@pytest.fixture(scope="session")
def plugin(target: LibraryUnderTest) -> Plugin:
    """The open plugin."""
    return target.opened


@pytest.fixture(scope="session")
def pi(plugin: Plugin) -> DispatchTable:
    """Its function table."""
    return plugin.table


@pytest.fixture(scope="session")
def chosen(target: LibraryUnderTest, plugin: Plugin) -> PluginDevice:
    """The device under test."""
    if plugin.idle:
        raise FairleadError(plugin.idle, remedy=plugin.remedy)
    device = choose(plugin.devices, target.device)
    ask, platform = plugin.table.piPlatformGetInfo, device.platform.handle
    target.answer = lambda: ask(
        platform, PI["PI_PLATFORM_INFO_NAME"], 0, None, ctypes.byref(ctypes.c_size_t())
    )
    target.report_facts(device=device.name, platform=device.platform.name, version=plugin.version)
    return device


@pytest.fixture(scope="session")
def platform(chosen: PluginDevice) -> int:
    """The handle of its platform."""
    return chosen.platform.handle


@pytest.fixture(scope="session")
def make_objects(pi: DispatchTable, device: int) -> Callable[..., PIObjects]:
    """Returns a maker of objects: `make_objects(context)`."""
    return partial(PIObjects, pi, device)


@pytest.fixture(scope="session")
def opencl_c(chosen: PluginDevice) -> None:
    """Cases that use this fixture build OpenCL C. They are unsupported on other backends."""
    if chosen.backend != "opencl":
        unsupported("the cases with kernels are written in OpenCL C, and the backend is not OpenCL")


@pytest.fixture(scope="session")
def program(opencl_c: None, shared: PIObjects) -> int:
    """The program with the kernels of opencl/objects.py, built."""
    shared.program = shared.build()
    return shared.program


@pytest.fixture
def out_of_order(bare_objects: PIObjects) -> int:
    """An out-of-order queue."""
    supported = bare_objects.number(
        "piDeviceGetInfo", bare_objects.device, "PI_DEVICE_INFO_QUEUE_PROPERTIES"
    )
    if not supported & OUT_OF_ORDER:
        unsupported("the device has no queues out of order (PI_DEVICE_INFO_QUEUE_PROPERTIES)")
    return bare_objects.queue(OUT_OF_ORDER)


@pytest.fixture
def recorder(objects: PIObjects) -> PIRecorder:
    """A command-buffer that is being recorded."""
    return PIRecorder(objects)
