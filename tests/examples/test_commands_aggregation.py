"""The sample of task levels: right on every driver and in both modes, and beside its model."""

from __future__ import annotations

import re
import runpy
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.drivers import Driver
from helpers.support import ROOT, RunPython

pytestmark = pytest.mark.slow

EXAMPLE = ROOT / "examples" / "commands_aggregation.py"

RUN = """
import runpy, sys
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

#: The batches of the model, by the mode.
BATCHES = {
    "": "{1, 2, 3} {4, 5} {6, 7} {8, 9, 10}",
    "--in-order": " ".join(f"{{{number}}}" for number in range(1, 11)),
}


@pytest.mark.parametrize("mode", BATCHES)
def test_it_is_right(run_python: RunPython, each_driver: Driver, mode: str, tmp_path: Path) -> None:
    picture = tmp_path / "batches.svg"
    each_driver.skip_unless_it_runs(EXAMPLE, run_python)
    arguments = [*mode.split(), "--work-size", "2", "--device", "opencl:0", "--plot", str(picture)]
    env = {"OCL_ICD_VENDORS": each_driver.library}
    out = run_python(RUN, str(EXAMPLE), *arguments, env=env).out
    assert re.match(r"Work size: 2\nDevice: \S.*\nKernels execution: [\d.]+ s\nTotal: ", out), out
    execution, total = map(float, re.findall(r"(?:execution|Total): ([\d.]+) s", out))
    assert 0 < execution <= total
    assert f"\nbatches: {BATCHES[mode]}\n" in out
    ran = re.search(r"^on this device: (.*)$", out, re.MULTILINE)
    assert ran and sorted(map(int, re.findall(r"\d+", ran[1]))) == list(range(1, 11))
    assert out.endswith("every element is 1,000,000\n")
    texts = [one.text for one in ElementTree.parse(picture).iter() if one.tag.endswith("text")]
    assert {"ioq1", "ioq2", "ooq3", "10", "level 3"} <= set(texts)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({1: (0, 9), 2: (1, 5), 3: (5, 8), 4: (6, 7)}, [[1, 2], [3, 4]]),
        ({1: (4, 5), 2: (0, 4), 3: (3, 9)}, [[2, 3], [1]]),
        ({}, []),
    ],
)
def test_what_overlapped(times: dict[int, tuple[int, int]], expected: list[list[int]]) -> None:
    """A command is with others if it began before the first of them ended."""
    overlapping = runpy.run_path(str(EXAMPLE))["overlapping"]
    events = {
        number: SimpleNamespace(profiling={"start": start, "end": end}.__getitem__)
        for number, (start, end) in times.items()
    }
    assert overlapping(events) == expected


def test_it_is_a_short_read() -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) < 120
