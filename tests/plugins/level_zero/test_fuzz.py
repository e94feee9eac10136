"""Random legal and illegal calls of the driver's C ABI, in child processes (helpers/ze_fuzz.py).

`make test` makes the same calls each time. FAIRLEAD_FUZZ=SECONDS makes others for so long.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from pathlib import Path

import pytest
from helpers.drivers import Driver
from helpers.support import CHILD_TIMEOUT, ROOT, run_program

from fairlead.icd.drivers import platforms
from fairlead.plugins import level_zero_driver

CALLS = 3000
SECONDS = float(os.environ.get("FAIRLEAD_FUZZ") or 0)


def _run(place: int, trail: Path, seed: int) -> None:
    command = [sys.executable, "-m", "helpers.ze_fuzz", level_zero_driver()]
    done = run_program(
        *command,
        place,
        trail,
        seed,
        CALLS,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        timeout=5 * CHILD_TIMEOUT,
    )
    last = trail.read_text(encoding="utf-8").splitlines()[-1:] if trail.exists() else []
    assert done.code == 0, f"seed {seed}\n{done.out}\n{done.err}\nlast call: {last}"
    assert " entry points succeeded" in done.out
    assert " failed\n" not in done.err, "an entry point has raised what it should not"


@pytest.mark.timeout(SECONDS + 600)
@pytest.mark.fuzz
def test_no_call_does_what_it_should_not(each_driver: Driver, tmp_path: Path) -> None:
    found = [platform for platform in platforms() if platform.devices]
    place = next(number for number, one in enumerate(found) if each_driver.has(one))
    begun = time.monotonic()
    for seed in itertools.count(int(begun) if SECONDS else 0):
        _run(place, tmp_path / "trail", seed)
        if time.monotonic() - begun >= SECONDS:
            break
