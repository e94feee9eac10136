"""The conformance suite on the adapters for CUDA and HIP, with the drivers of the tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from helpers.suites import RunSuite, check_own_adapter

from .conftest import LIBRARIES, Installed

#: Areas whose cases compute, or take much of the adapter. `fairlead conformance` runs all.
AREAS = (
    *("command-buffer-commands", "command-buffer-enqueue", "command-buffer-events"),
    *("update", "update-events", "update-rules", "enqueue", "native-handles", "pools"),
    *("arguments", "images", "kernel", "memory", "program", "sampler"),
    "queue-captures",
)
#: `make test` runs all areas on CUDA, and on HIP these: there the profiles differ from CUDA.
SAMPLES = {
    "hip-6.4": (
        "command-buffer-commands",
        "update",
        "native-handles",
        "pools",
        "program",
        "images",
    ),
    "hip-5.2": ("native-handles", "pools", "memory", "images", "queue-captures"),
}
#: Each library, with areas that one process runs.
CASES = [
    *((library, SAMPLES.get(library, AREAS)) for library in LIBRARIES),
    *(
        pytest.param(
            library, [area for area in AREAS if area not in areas], marks=pytest.mark.thorough
        )
        for library, areas in SAMPLES.items()
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("installed", "areas"), CASES, indirect=["installed"])
def test_no_case_fails(areas: Sequence[str], run_suite: RunSuite, installed: Installed) -> None:
    report = run_suite(installed.library, area=areas, timeout=60.0, env=installed.environment)
    check_own_adapter(report)
    passed = Counter(case.area for case in report.cases if case.outcome == "passed")
    for area in areas:
        assert passed[area] > 2, area
