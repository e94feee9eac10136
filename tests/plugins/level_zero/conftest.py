"""The Level Zero driver on each OpenCL driver, called by its tables as a loader calls it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers.drivers import Driver
from helpers.ze_bench import ZeBench
from helpers.ze_calls import ZeCalls

from fairlead.icd.drivers import platforms
from fairlead.loader.ze.abi import ZE
from fairlead.plugins import level_zero_driver


@pytest.fixture(scope="session")
def ze() -> ZeCalls:
    """The driver's functions. It stays open until the process ends."""
    calls = ZeCalls(level_zero_driver())
    calls.ok("zeInit", 0)
    return calls


@pytest.fixture(scope="session")
def contexts() -> dict[int, int]:
    """The contexts that tests share, by the device."""
    return {}


@pytest.fixture
def bench(ze: ZeCalls, each_driver: Driver, contexts: dict[int, int]) -> Iterator[ZeBench]:
    """A context, a queue and some memory on each OpenCL driver.

    On a GPU the tests of a process share a context. There each takes hundreds of megabytes, until
    all is destroyed that was made in it.
    """
    found = [platform for platform in platforms() if platform.devices]
    place = next(number for number, one in enumerate(found) if each_driver.has(one))
    driver = ze.listed("zeDriverGet")[place]
    device = ze.listed("zeDeviceGet", driver)[0]
    made = ZeBench(ze, driver, context=contexts.get(device, 0))
    row = ze.properties("zeDeviceGetProperties", "ze_device_properties_t", device)
    if row.type == ZE["ZE_DEVICE_TYPE_GPU"]:
        contexts[device], made.owns_context = made.context, False
    yield made
    made.close()
