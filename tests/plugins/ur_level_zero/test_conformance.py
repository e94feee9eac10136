"""The conformance suite on the adapter on Level Zero, on fairlead's own driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from helpers.drivers import Driver
from helpers.suites import RunSuite, check_own_adapter

from fairlead.conformance.harness import find_suite, list_areas
from fairlead.plugins import level_zero_adapter

AREAS = list_areas(find_suite("ur"))
#: No case passes here, because no OpenCL driver has virtual memory.
WITHOUT = {"virtual-memory"}
#: The longest areas, for a process of their own.
LONG = ["bad-input"]
#: `make test` runs all areas on PoCL, and these on Intel's driver, which takes SPIR-V.
SAMPLE = ["images", "sampler", "program", "native-handles"]
BUFFERS = [area for area in AREAS if area.startswith(("command-buffer", "update"))]
#: A driver, areas that one process runs, and the path of command-buffers.
RUNS = [
    ("pocl_wheel", LONG, "auto"),
    ("pocl_wheel", [area for area in AREAS if area not in LONG], "auto"),
    ("intel_cpu", SAMPLE, "auto"),
]
THOROUGH = [
    ("pocl_wheel", BUFFERS, "wait-event"),
    ("intel_cpu", [area for area in AREAS if area not in SAMPLE], "auto"),
    ("intel_cpu", BUFFERS, "wait-event"),
]
#: The fewest cases that pass. Every other area has 3.
LEAST = {"images": 43, "sampler": 8}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("driver", "areas", "path"),
    [
        pytest.param(*run, marks=[pytest.mark.driver(run[0]), *marks])
        for runs, marks in ((RUNS, ()), (THOROUGH, (pytest.mark.thorough,)))
        for run in runs
    ],
)
def test_no_case_fails(
    driver: str,
    areas: Sequence[str],
    path: str,
    present_drivers: Sequence[Driver],
    run_suite: RunSuite,
    tmp_path: Path,
) -> None:
    library = next(one.library for one in present_drivers if one.name == driver)
    (tmp_path / "only.icd").write_text(f"{library}\n", encoding="utf-8")
    variables = {"OCL_ICD_VENDORS": str(tmp_path), "FAIRLEAD_ZE_COMMAND_BUFFER": path}
    report = run_suite(level_zero_adapter(), area=areas, environment=variables, timeout=120.0)
    check_own_adapter(report)
    passed = Counter(case.area for case in report.cases if case.outcome == "passed")
    for area in set(areas) - WITHOUT:
        assert passed[area] >= LEAST.get(area, 3), area
