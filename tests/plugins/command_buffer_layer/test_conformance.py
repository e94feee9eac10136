"""The conformance suite for OpenCL on a driver behind the layer."""

from __future__ import annotations

from collections import Counter

import pytest
from helpers.drivers import Driver
from helpers.suites import RunSuite

from fairlead.icd import driver_profiles
from fairlead.loader.base.search import Candidate

#: Puts the layer in front of the tables that the suite calls.
LAYERED = """
import ctypes
from fairlead.conformance.opencl import fixtures
from fairlead.icd.abi import SLOT_COUNT
from fairlead.plugins import command_buffer_layer

class Layer:
    def __init__(self, next):
        layer, count, table = ctypes.CDLL(library), ctypes.c_uint32(), ctypes.c_void_p()
        given = SLOT_COUNT, ctypes.c_void_p(next), ctypes.byref(count), ctypes.byref(table)
        assert layer.clInitLayer(*given) == 0
        self.next, self.address = next, table.value

def load_with_layer(candidate):
    driver = load(candidate)
    for platform in driver.platforms:
        if not platform.table.layers:
            platform.table.push(Layer(platform.table.top))
    return driver

library = command_buffer_layer.find_library()
load, fixtures.load = fixtures.load, load_with_layer
"""
#: The areas, and how many cases pass in each.
PASSED = {
    "command-buffer": 36,
    "command-buffer-arguments": 49,
    "command-buffer-events": 19,
    "command-buffer-objects": 29,
    "command-buffer-queries": 19,
    "command-buffer-recording": 157,
    "command-buffer-submission": 15,
    "mutable-dispatch": 20,
    "mutable-dispatch-errors": 47,
    "mutable-dispatch-info": 14,
    "mutable-dispatch-range": 9,
}
#: What drivers themselves answer otherwise: PoCL takes three bytes of an int.
HABITS = {"mutable-dispatch-errors::argument_size[3]"}


@pytest.mark.slow
def test_a_driver_behind_the_layer_passes(each_driver: Driver, run_suite: RunSuite) -> None:
    library = driver_profiles.locate(Candidate(each_driver.library, "test"))[0]
    report = run_suite(library, area=tuple(PASSED), timeout=120.0, before=LAYERED)
    failed = {case.name for case in report.cases if case.outcome == "failed"}
    assert not report.trouble and failed <= HABITS
    passed = Counter(case.area for case in report.cases if case.outcome == "passed")
    assert all(passed[area] >= least for area, least in PASSED.items()), passed
