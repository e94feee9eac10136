"""The conformance suite on the reference adapter: whole on each driver, and those areas again that
a variable sends another way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest
from helpers.drivers import Driver
from helpers.suites import RunSuite, check_own_adapter

from fairlead.api import register_drivers
from fairlead.conformance.harness import find_suite, list_areas
from fairlead.plugins import reference_adapter

AREAS = list_areas(find_suite("ur"))
#: The longest areas, for a process of their own.
LONG = ["arguments", "bad-input"]
REST = [area for area in AREAS if area not in LONG]
#: What begins in C, unless FAIRLEAD_CALLS says otherwise.
BEGUN_IN_C = ["enqueue", "event", "kernel", "launch", "queue", "usm"]
MEMORY = ["pools", "usm"]
COMMANDS = [area for area in AREAS if area.startswith(("command-buffer", "update"))]
#: Areas whose cases compute.
COMPUTING = [*COMMANDS, "enqueue", "kernel", "memory", "program"]
RUNS: list[tuple[str, list[str], dict[str, str]]] = [
    ("pocl_wheel", LONG, {}),
    ("pocl_wheel", REST, {}),
    ("intel_cpu", LONG, {}),
    ("intel_cpu", REST, {}),
    ("pocl_wheel", BEGUN_IN_C, {"FAIRLEAD_CALLS": "python"}),
    ("pocl_wheel", MEMORY, {"FAIRLEAD_USM": "buffer"}),
    ("intel_cpu", MEMORY, {"FAIRLEAD_USM": "buffer"}),
    ("intel_cpu", MEMORY, {"FAIRLEAD_USM": "svm"}),
    ("pocl_wheel", COMMANDS, {"FAIRLEAD_COMMAND_BUFFER": "replay"}),
    ("intel_cpu", COMMANDS, {"FAIRLEAD_COMMAND_BUFFER": "native"}),
    ("nvidia", COMPUTING, {"FAIRLEAD_CUDA": "1", "FAIRLEAD_COMMAND_BUFFER": "cuda"}),
]
#: No case passes here: no OpenCL driver has virtual memory, and this adapter captures no queues.
WITHOUT = {"virtual-memory", "queue-captures"}
#: What the drivers themselves do otherwise. NVIDIA's: docs/reference_adapter.md. Intel's says that
#: a command is complete that waited for an event that failed; clWaitForEvents knows better.
HABITS: Final = {
    "intel_cpu": {"event::failed_dependency"},
    "nvidia": {"memory::misaligned", "program::no_binary"},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("driver", "areas", "variables"),
    [pytest.param(*run, marks=pytest.mark.driver(run[0])) for run in RUNS],
)
def test_no_case_fails(
    driver: str,
    areas: Sequence[str],
    variables: Mapping[str, str],
    present_drivers: Sequence[Driver],
    run_suite: RunSuite,
    tmp_path: Path,
) -> None:
    library = next(one.library for one in present_drivers if one.name == driver)
    # The cache of other tests may have what PoCL compiled of the same source without linking it.
    env = {"POCL_CACHE_DIR": str(tmp_path), **variables}
    report = run_suite(
        reference_adapter(),
        area=areas,
        timeout=120.0,
        env=env,
        environment=register_drivers([library]) | dict(variables),
    )
    check_own_adapter(report, HABITS.get(driver, ()))
    passed = Counter(case.area for case in report.cases if case.outcome == "passed")
    for area in set(areas) - WITHOUT:
        assert passed[area] > 2, area
