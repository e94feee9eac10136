"""The Level Zero driver on each OpenCL driver, called by its tables as a loader calls it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers.drivers import Driver
from helpers.ze_bench import ZeBench
from helpers.ze_calls import ZeCalls

from fairlead.icd.drivers import platforms
from fairlead.plugins import level_zero_driver


@pytest.fixture(scope="session")
def ze() -> ZeCalls:
    """The driver's functions. It stays open until the process ends."""
    calls = ZeCalls(level_zero_driver())
    calls.ok("zeInit", 0)
    return calls


@pytest.fixture
def bench(ze: ZeCalls, each_driver: Driver) -> Iterator[ZeBench]:
    """A context, a queue and some memory on each OpenCL driver."""
    found = [platform for platform in platforms() if platform.devices]
    place = next(number for number, one in enumerate(found) if each_driver.has(one))
    made = ZeBench(ze, ze.listed("zeDriverGet")[place])
    yield made
    made.close()
