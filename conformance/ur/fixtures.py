"""The objects that cases for adapters use. Handles are ints."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator

import pytest

from fairlead.conformance.checks import unsupported
from fairlead.conformance.child import LibraryUnderTest
from fairlead.conformance.device import choose
from fairlead.icd.drivers import drivers
from fairlead.loader.base.errors import FairleadError
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.adapters import load
from fairlead.loader.ur.devices import PluginDevice
from fairlead.loader.ur.discovery import PluginCandidate
from fairlead.loader.ur.plugin import Plugin

from .calls import URCalls
from .objects import SIZE, URObjects
from .world import World


class Opened:
    """The open adapter, the device under test, and objects on it that all cases may use.

    `library` is what was opened. `plugin` has its functions as those of an adapter.
    """

    def __init__(self, library: Plugin, plugin: Plugin, device: PluginDevice) -> None:
        self.library, self.plugin, self.device = library, plugin, device
        self.ur = URCalls(plugin, device.handle, conditional=library is plugin)
        self.world = World(self.ur, plugin.handles[0], device.platform.handle, device.handle)

    def answer(self) -> tuple[int, ...]:
        """Ask for device memory and give it back. Returns the codes."""
        table, context, made = self.plugin.table, self.world.the_context, ctypes.c_void_p()
        given = context, self.device.handle, None, None, SIZE, ctypes.byref(made)
        code = table.urUSMDeviceAlloc(*given)
        return code, 0 if code else table.urUSMFree(context, made)

    def close(self) -> None:
        """Release everything, then the adapter."""
        self.world.close()
        self.library.close()


def open_library(
    target: LibraryUnderTest,
    interface: str = "UR",
    as_adapter: Callable[[Plugin], Plugin] = lambda plugin: plugin,
) -> Opened:
    """Open and bind the adapter, and choose one of its devices."""
    plugin = load(PluginCandidate(target.library, "conformance", interface=interface))
    try:
        if plugin.idle:
            raise FairleadError(plugin.idle, remedy=plugin.remedy)
        if plugin.backend == "opencl":
            # The adapter found the drivers itself. This call repairs them for the whole process.
            drivers()
        opened = Opened(plugin, as_adapter(plugin), choose(plugin.devices, target.device))
    except FairleadError:
        plugin.close()
        raise
    target.at_end(opened.close)
    device = opened.device
    target.answer = opened.answer
    target.report_facts(
        device=device.name,
        platform=f"{device.platform.name}, {device.platform.version}",
        **({"layout": plugin.binding.layout} if interface == "UR" else {"version": plugin.version}),
    )
    return opened


@pytest.fixture(scope="session")
def opened(target: LibraryUnderTest) -> Opened:
    """What `open_library` returned."""
    return target.opened


@pytest.fixture(scope="session")
def plugin(opened: Opened) -> Plugin:
    """The open adapter."""
    return opened.plugin


@pytest.fixture(scope="session")
def ur(opened: Opened) -> URCalls:
    """The adapter's functions, called with checks."""
    return opened.ur


@pytest.fixture(scope="session")
def adapter(plugin: Plugin) -> int:
    """The adapter's handle."""
    return plugin.handles[0]


@pytest.fixture(scope="session")
def platform(opened: Opened) -> int:
    """The platform of the device under test."""
    return opened.device.platform.handle


@pytest.fixture(scope="session")
def device(opened: Opened) -> int:
    """The device under test."""
    return opened.device.handle


@pytest.fixture(scope="session")
def world(opened: Opened) -> World:
    """Objects for all cases, each made at its first use.

    What a case changes it makes itself, with `make`.
    """
    return opened.world


@pytest.fixture(scope="session")
def context(world: World) -> int:
    """A context of the device."""
    return world.the_context


@pytest.fixture(scope="session")
def program(world: World) -> int:
    """The built program with the kernels of `kernels.py`."""
    return world.the_program


@pytest.fixture
def make(
    ur: URCalls, adapter: int, platform: int, device: int, world: World
) -> Iterator[URObjects]:
    """Makes objects that are released when the case is over."""
    made = URObjects(ur, adapter, platform, device, world)
    yield made
    made.close()


@pytest.fixture
def queue(make: URObjects) -> int:
    """An in-order queue."""
    return make.queue()


@pytest.fixture
def out_of_order(ur: URCalls, make: URObjects) -> int:
    """An out-of-order queue."""
    ur.require("UR_DEVICE_INFO_QUEUE_PROPERTIES", UR["UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE"])
    return make.queue("OUT_OF_ORDER_EXEC_MODE_ENABLE")


@pytest.fixture
def buffer(make: URObjects) -> int:
    """A buffer of SIZE bytes."""
    return make.buffer()


@pytest.fixture(params=("Host", "Device", "Shared"))
def usm(request: pytest.FixtureRequest, make: URObjects) -> int:
    """A USM allocation of SIZE bytes, of each kind in turn."""
    return make.usm(request.param)


@pytest.fixture
def memory(make: URObjects) -> int:
    """A device USM allocation of SIZE bytes."""
    return make.usm()


@pytest.fixture
def opencl(make: URObjects) -> None:
    """Ends the case as unsupported unless the adapter is on OpenCL."""
    make.require_opencl()


@pytest.fixture
def images(ur: URCalls) -> None:
    """Ends the case as unsupported unless the device has images."""
    if not ur.device_says("UR_DEVICE_INFO_IMAGE_SUPPORT"):
        unsupported("the device answers UR_DEVICE_INFO_IMAGE_SUPPORT with 0")


@pytest.fixture
def opened_objects(
    ur: URCalls, adapter: int, platform: int, device: int, world: World
) -> Iterator[Callable[[], URObjects]]:
    """A function that returns new `URObjects`, for a thread. At the end all of them are closed."""
    all_made: list[URObjects] = []

    def open_objects() -> URObjects:
        made = URObjects(ur, adapter, platform, device, world)
        all_made.append(made)
        return made

    yield open_objects
    with contextlib.ExitStack() as stack:
        for made in all_made:
            stack.callback(made.close)
