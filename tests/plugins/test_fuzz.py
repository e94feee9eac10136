"""Random legal and illegal calls of the adapter's C ABI, in child processes: no crash, no hang, the
code that the specification lists, and the results and references of a model
(helpers/fuzz/machine.py says what is generated and checked).

`make test` runs the same sequences each time. FAIRLEAD_FUZZ=SECONDS runs others for so long, on
each driver; what fails is printed with the FAIRLEAD_FUZZ_SEED that leads to it again.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from helpers.drivers import Driver
from helpers.support import CHILD_TIMEOUT, ROOT, run_program

CHILD = "helpers.fuzz.child"
#: How many sequences `make test` runs, and how many `make test-all` runs.
SEQUENCES, STEPS = (40, pytest.param(120, marks=pytest.mark.thorough)), 30
SECONDS = float(os.environ.get("FAIRLEAD_FUZZ") or 0)


@pytest.mark.timeout(SECONDS + 600)
@pytest.mark.fuzz
@pytest.mark.parametrize("sequences", SEQUENCES)
def test_no_sequence_of_calls_does_what_it_should_not(
    each_driver: Driver, tmp_path: Path, sequences: int
) -> None:
    trail = tmp_path / "trail"
    command = [sys.executable, "-m", CHILD, each_driver.version, trail, sequences, STEPS, SECONDS]
    done = run_program(
        *command,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        timeout=SECONDS + 5 * CHILD_TIMEOUT,
    )
    last = trail.read_text(encoding="utf-8").splitlines()[-1:] if trail.exists() else []
    assert done.code == 0, f"{done.out}\n{done.err}\nlast call: {last}"
    assert " calls of " in done.out
