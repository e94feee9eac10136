"""Compares every kind of update of a SYCL graph on two adapters, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from helpers.support import ROOT, RunPython

_CODE: Final = f"""
import sys
sys.path.insert(0, {str(ROOT / "tests")!r})
from helpers.graph_updates_program import main
main()
"""
_STEPS: Final = 10


def compare_updates(run_python: RunPython, *environments: Mapping[str, str]) -> None:
    """Run the program of updates in each environment, and compare what the memory holds.

    Args:
        run_python: the fixture.
        environments: variables that choose an adapter and its driver, of one device.
    """
    first, *others = (run_python(_CODE, env=env).out for env in environments)
    assert all(other == first for other in others)
    states = first.splitlines()
    assert len(states) == len({tuple(line.split()[-2:]) for line in states}) == _STEPS
