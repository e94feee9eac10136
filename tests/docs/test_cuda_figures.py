"""The figures of CUDA Graphs are those of the result that docs/cuda.md names."""

from __future__ import annotations

import json
import re
from typing import Final

import pytest
from helpers.support import ROOT

CUDA: Final = (ROOT / "docs/cuda.md").read_text(encoding="utf-8")
BENCHMARKS: Final = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
_NAME: Final = re.findall(r"\((\.\./bench/results/[\w-]+-h100\.json)\)", CUDA)[0]
FIGURES: Final = json.loads((ROOT / "docs" / _NAME).read_text(encoding="utf-8"))["µs"]

#: A row of docs/cuda.md, and the measure that it shows.
TIMES: Final = {
    "a chain of `ElementwiseKernel` calls": "chain of 1,000 calls",
    "array expressions (`x += y; x *= 0.5`)": "1,000 array expressions",
    "a kernel of one line in a chain": "1,000 launches in 1 chains",
    **{f"the same in {n} chains": f"1,000 launches in {n} chains" for n in (4, 8, 32)},
}


def ratio(measure: str, above: str = "replay", below: str = "cuda") -> float:
    return FIGURES[measure][above] / FIGURES[measure][below]


#: A row of docs/benchmarks.md, and its ratios.
RATIOS: Final = {
    "PyOpenCL ÷ replay, 1,000 calls in a chain": [ratio("chain of 1,000 calls", "PyOpenCL")],
    "PyOpenCL ÷ replay, 1,000 array expressions": [ratio("1,000 array expressions", "PyOpenCL")],
    "C loop ÷ replay, a chain; in 8 chains": [
        ratio("chain of 1,000 calls"),
        ratio("1,000 launches in 8 chains"),
    ],
    "C loop ÷ replay, kernels of one line in a chain, which start early": [
        ratio("1,000 launches in 1 chains")
    ],
    "a graph of 10 calls on a quiet queue: auto ÷ the better engine": [
        FIGURES["chain of 10 calls"]["auto ÷ the better engine"]
    ],
    "a Parameter of 1,000 launches: changed ÷ unchanged": [
        ratio("a Parameter of 1,000 launches", "changed", "unchanged")
    ],
    "`torch.cuda.graph` ÷ replay, launch and wait": [
        ratio("beside torch.cuda.graph", "torch: launch and wait", "fairlead: launch and wait")
    ],
}


def cells(page: str, row: str) -> list[str]:
    """The cells of the table's row that begins so, without the first one."""
    (line,) = re.findall(rf"^\| {re.escape(row)} \|(.*)\|$", page, re.M)
    return [cell.strip() for cell in line.split("|")]


def check(target: str, shown: str, value: float) -> None:
    """A ratio is as the page shows it, and bold if it misses its target."""
    digits = len(shown.strip("*").partition(".")[2])
    assert digits and float(shown.strip("*")) == round(value, digits)
    limit = re.fullmatch(r"([≤≥]) ([\d.]+)", target)
    missed = limit and (value > float(limit[2])) == (limit[1] == "≤")
    assert shown.startswith("**") == bool(missed), (target, shown)


@pytest.mark.parametrize("row", TIMES)
def test_the_times_are_those_of_the_result(row: str) -> None:
    figures = FIGURES[TIMES[row]]
    called, replay, cuda, shown, target, none_early = cells(CUDA, row)
    assert called == (f"{figures['PyOpenCL']:,.0f}" if "PyOpenCL" in figures else "")
    assert replay == f"{figures['replay']:,.0f}" and cuda == f"{figures['cuda']:,.0f}"
    assert none_early == f"{figures['cuda, none starts early']:,.0f}"
    check(target, shown, ratio(TIMES[row]))


@pytest.mark.parametrize("row", RATIOS)
def test_the_ratios_are_those_of_the_result(row: str) -> None:
    targets, shown = (cell.split("; ") for cell in cells(BENCHMARKS, row))
    for target, figure, value in zip(targets, shown, RATIOS[row], strict=True):
        check(target, figure, value)
