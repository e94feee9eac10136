"""Fixtures of the tests of the reference adapter's memory and command-buffers."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import cast

import pytest
from helpers.command_bench import SOURCE, Bench
from helpers.drivers import chosen_drivers
from helpers.entries import calls_in
from helpers.launching import Exported, build_once
from helpers.ur_calls import Calls, array
from helpers.usm_ways import WAYS, Way, forget_answers

from fairlead.loader.base.table import DispatchTable
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.devices import PluginDevice
from fairlead.loader.ur.plugin import Plugin


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of `way` runs in each way of each driver."""
    if "way" in metafunc.fixturenames:
        parameters = [
            pytest.param(
                (driver, name), id=f"{driver}-{name}", marks=pytest.mark.driver(str(driver))
            )
            for driver in chosen_drivers(metafunc.config)
            for name in WAYS.get(driver.name, ("auto",))
        ]
        metafunc.parametrize("way", parameters, indirect=True)


@pytest.fixture
def way(
    request: pytest.FixtureRequest, adapter: Plugin, ur: Calls, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Way]:
    """USM on each driver, in each way that it can have it."""
    driver, name = request.param
    monkeypatch.setenv("FAIRLEAD_USM", name)
    forget_answers()
    device = next(found for found in adapter.devices if driver.has(found.platform))
    context = ur.make("urContextCreate", 1, array(device.handle)).value or 0
    queue = ur.make("urQueueCreate", context, device.handle).value or 0
    yield Way(ur, device, name, context, queue)
    ur.ok("urQueueRelease", queue)
    ur.ok("urContextRelease", context)
    forget_answers()


@pytest.fixture(params=["c", "python"])
def begins_in(request: pytest.FixtureRequest, adapter: Plugin) -> Iterator[None]:
    """Each test with the entry points in C, and with those that an author writes in Python."""
    with calls_in(request.param):
        yield


@pytest.fixture(scope="session")
def old(adapter: Plugin) -> Calls:
    """The adapter's functions, the older ones too."""
    return Calls(cast(DispatchTable, Exported(adapter.path)))


@pytest.fixture
def program(ur: Calls, context: int) -> int:
    """The kernels of helpers/launching.py."""
    return build_once(ur, context)


@pytest.fixture
def bench(device: PluginDevice, ur: Calls, context: int, queue: int) -> Iterator[Bench]:
    program = build_once(ur, context, SOURCE)
    names = ("bump", "scale", "sum", "where", "many", "fours")
    kernels = {name: ur.make("urKernelCreate", program, name.encode()).value or 0 for name in names}
    made = Bench(ur, device.handle, context, queue, kernels)
    yield made
    ur.ok("urQueueFinish", queue)
    ur.ok("urUSMFree", context, made.address)


@pytest.fixture(params=["replay", "native", "auto"])
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How command-buffers run; the drivers without cl_khr_command_buffer replay in each mode."""
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", request.param)
    return request.param


@pytest.fixture
def free_queue(ur: Calls, device: PluginDevice, context: int) -> int:
    """An out-of-order queue."""
    properties = UR.get_struct("ur_queue_properties_t")(
        UR["UR_STRUCTURE_TYPE_QUEUE_PROPERTIES"], None, 1
    )
    return ur.make("urQueueCreate", context, device.handle, ctypes.byref(properties)).value or 0
