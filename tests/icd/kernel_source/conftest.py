"""Fixtures of the tests that run kernels."""

from __future__ import annotations

import pyopencl as cl
import pytest
from helpers.drivers import Driver

from fairlead.icd.drivers import platforms


@pytest.fixture
def context(each_driver: Driver) -> cl.Context:
    """A context of a driver; the test runs once on each."""
    platform = next(platform for platform in platforms() if each_driver.has(platform))
    return cl.Context([platform.devices[0].to_pyopencl()])
