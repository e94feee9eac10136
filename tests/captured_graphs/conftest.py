"""Every capture test runs on every driver that is present: the PoCL wheel, Intel's CPU driver, and those of the system."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyopencl as cl
import pytest
from helpers.captures import Numbers

from fairlead.icd.drivers import platforms
from fairlead.icd.objects import CLPlatform


def _name(platform: CLPlatform) -> str:
    """What tests call a driver: the file that it is."""
    return os.path.basename(platform.driver.path)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", platforms(), ids=_name, indirect=True, scope="session")


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> cl.Device:
    """The first device of a driver, as PyOpenCL sees it."""
    return request.param.devices[0].to_pyopencl()


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
    queue = cl.CommandQueue(
        context, properties=cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    )
    yield queue
    queue.finish()


@pytest.fixture
def numbers(queue: cl.CommandQueue) -> Numbers:
    return Numbers(queue)
