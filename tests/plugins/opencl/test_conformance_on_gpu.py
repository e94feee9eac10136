"""The conformance suite on the reference adapter, on NVIDIA's OpenCL with memory that CUDA has."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest
from helpers.drivers import Driver, chosen_drivers
from helpers.suites import RunSuite

from fairlead import plugins
from fairlead.api import register_drivers

pytestmark = [pytest.mark.slow, pytest.mark.driver("nvidia")]

#: Areas whose cases compute.
AREAS: Final = (
    *("command-buffer-commands", "command-buffer-enqueue", "command-buffer-events"),
    *("update", "update-events", "update-rules", "enqueue", "kernel", "memory", "program"),
)


#: What the driver itself does not refuse: docs/reference_adapter.md, NVIDIA's driver.
HABITS: Final = {"memory::misaligned", "program::no_binary"}


def test_no_case_fails_with_shared_memory(run_suite: RunSuite, pytestconfig: pytest.Config) -> None:
    driver: Driver = next(one for one in chosen_drivers(pytestconfig) if one.name == "nvidia")
    shared = {"FAIRLEAD_CUDA": "1", "FAIRLEAD_COMMAND_BUFFER": "cuda"}
    environment = register_drivers([driver.library]) | shared
    report = run_suite(
        plugins.reference_adapter(), area=AREAS, timeout=60.0, environment=environment, env=shared
    )
    failed = {case.name: case.got for case in report.cases if case.outcome == "failed"}
    assert failed.keys() <= HABITS and not report.trouble, failed
    passed = Counter(case.area for case in report.cases if case.outcome == "passed")
    for area in AREAS:
        assert passed[area] > 2, area
