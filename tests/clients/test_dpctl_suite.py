"""dpctl's own tests, which its wheel brings: on Intel's driver, on both adapters."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import pytest
from helpers.clients import ADAPTERS, adapter_path, on, outcomes, run

pytestmark = [pytest.mark.slow, pytest.mark.thorough]

#: Tests that are left out. The first needs Cython. The second copies between sub-devices, where
#: Intel's driver hangs now and then on a busy machine, under Intel's adapter too.
_LEFT_OUT: Final = (
    "test_sycl_queue.py::test_cython_api",
    "test_sycl_context.py::test_context_multi_device",
)


@pytest.mark.parametrize("driver", on("intel_cpu"))
def test_what_passes_on_intel_s_adapter_passes_on_ours(
    driver: str, dpctl: Path, drivers: dict[str, str], tmp_path: Path
) -> None:
    left_out = [f"--deselect=dpctl/tests/{name}" for name in _LEFT_OUT]
    results = {}
    for adapter in ADAPTERS:
        report = tmp_path / f"{adapter}.xml"
        command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "dpctl/tests")
        run(
            [*command, f"--junitxml={report}", *left_out],
            dpctl,
            drivers[driver],
            adapter_path(adapter),
            PYTHONPATH=dpctl,
            PYTHONDONTWRITEBYTECODE="1",
        )
        results[adapter] = outcomes(report)
    passed = {name for name, outcome in results["intel"].items() if outcome == "passed"}
    assert len(passed) > 1000
    assert {name: results["fairlead"].get(name) for name in passed} == dict.fromkeys(
        passed, "passed"
    )
