"""Every capture test runs on every driver that is present: the PoCL wheel, Intel's CPU driver, and those of the system."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyopencl as cl
import pytest

from fairlead.icd.discovery import find
from fairlead.icd.drivers import platforms

#: Part of the library's name → what tests call the driver. The first two are in the test extra and have to be there.
_REQUIRED = {"libpocl-21062cec.so": "pocl-wheel", "libintelocl.so": "intel-cpu"}


def _drivers() -> list[str]:
    names = [os.path.basename(os.path.realpath(candidate.library)) for candidate in find({}).candidates]
    system = [name for name in names if name.startswith("libpocl.so")]
    return [*_REQUIRED, *system]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        drivers = _drivers()
        metafunc.parametrize(
            "device", drivers, ids=[_REQUIRED.get(name, name) for name in drivers], indirect=True, scope="session"
        )


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> cl.Device:
    """The first device of a driver, as PyOpenCL sees it."""
    for platform in platforms():
        if os.path.basename(platform.driver.path).startswith(request.param.removesuffix(".so")):
            return platform.devices[0].to_pyopencl()
    raise AssertionError(f"{request.param} gives no platform: run `fairlead doctor`")


@pytest.fixture
def context(device: cl.Device) -> cl.Context:
    return cl.Context([device])


@pytest.fixture
def queue(context: cl.Context) -> Iterator[cl.CommandQueue]:
    queue = cl.CommandQueue(context)
    yield queue
    queue.finish()


@pytest.fixture
def out_of_order(context: cl.Context) -> Iterator[cl.CommandQueue]:
    queue = cl.CommandQueue(context, properties=cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)
    yield queue
    queue.finish()
