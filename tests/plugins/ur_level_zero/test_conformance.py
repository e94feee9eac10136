"""The conformance suite on the adapter on Level Zero, on fairlead's own driver.

docs/level_zero_adapter.md tells the truth about what is missing.

Every kind of update of a SYCL graph, on this adapter: bit for bit what the reference adapter
gives.

Graph → this adapter → fairlead's Level Zero driver → each OpenCL driver, by each path.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from helpers.drivers import Driver
from helpers.graph_updates import compare_updates
from helpers.suites import RunSuite, check_own_adapter
from helpers.support import ROOT, RunPython

from fairlead import plugins
from fairlead.conformance.harness import find_suite, list_areas
from fairlead.loader.ur.abi import UR
from fairlead.plugins import level_zero_adapter
from fairlead.plugins.ur_level_zero import adapter
from fairlead.plugins.ur_level_zero.command_buffer.paths import VARIABLE

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


_PAGE = (ROOT / "docs/level_zero_adapter.md").read_text(encoding="utf-8")


def test_every_entry_point_is_implemented_or_has_one_reason() -> None:
    every = {name for names in next(iter(UR.layouts.values())).values() for name in names if name}
    part = _PAGE.partition("## What is missing")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in part.splitlines() if line.startswith("| `ur")]
    patterns = [name.replace("…", r"\w+") for cell in cells for name in re.findall("`(.*?)`", cell)]
    found = [[one for one in patterns if re.fullmatch(one, name)] for name in sorted(every)]
    there = [name in adapter.declared for name in sorted(every)]
    assert [len(reasons) for reasons in found] == [0 if known else 1 for known in there]
    assert all(any(re.fullmatch(one, name) for name in every) for one in patterns)
    assert f"implements {sum(there)} of the {len(every)} entry points" in part


PATHS = ("auto", "immediate-append", "wait-event")


def test_updates_give_what_the_reference_adapter_gives(
    each_driver: Driver, run_python: RunPython
) -> None:
    each_driver.skip_unless_it_shares(run_python)
    env = {"OCL_ICD_FILENAMES": each_driver.library, "OCL_ICD_VENDORS": each_driver.library}
    reference = {**env, "UR_ADAPTERS_FORCE_LOAD": str(plugins.reference_adapter())}
    ours = {**env, "UR_ADAPTERS_FORCE_LOAD": str(plugins.level_zero_adapter())}
    compare_updates(run_python, reference, *({**ours, VARIABLE: path} for path in PATHS))
