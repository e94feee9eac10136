"""The first example, as its reader runs it: it must be right on every driver, and say so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.drivers import Driver
from helpers.examples import RUN_SCRIPT, check_claims
from helpers.support import ROOT, RunPython

from fairlead.loader.base.search import Candidate

pytestmark = pytest.mark.slow

EXAMPLE = ROOT / "examples" / "wave.py"

#: Runs the example on the first device whose platform's name contains the second argument. The
#: third argument is a module that is imported first.
RUN = """
import importlib, os, runpy, sys
path, platform, first = sys.argv[1:]
sys.path.insert(0, os.path.dirname(path))
importlib.import_module(first)
import fairlead
names = [f"{device.platform.name} {device.platform.version}" for device in fairlead.devices()]
number = next(number for number, name in enumerate(names) if platform in name)
sys.argv = [path, "--device", str(number)]
runpy.run_path(path, run_name="__main__")
"""

WHAT = "64×64 points, 1000 steps in 40 replays; the graph has 125 nodes"


def check(out: str, platform: str) -> None:
    """Check that every claim is printed, and that the numbers agree with it."""
    check_claims(out, f".*{re.escape(platform)}", WHAT, "command")
    assert "DIFFER" not in out


def test_it_is_right(each_driver: Driver, run_python: RunPython) -> None:
    version = each_driver.version
    check(run_python(RUN, str(EXAMPLE), version, "fairlead").out, version)


@pytest.mark.thorough
def test_pyopencl_may_be_imported_first(each_driver: Driver, run_python: RunPython) -> None:
    """`make test` imports it first in captured_graphs/test_processes.py."""
    version = each_driver.version
    check(run_python(RUN, str(EXAMPLE), version, "pyopencl").out, version)


def test_it_takes_the_pocl_wheel_unless_told(pocl_wheel: Candidate, run_python: RunPython) -> None:
    check(run_python(RUN_SCRIPT, str(EXAMPLE)).out, "PoCL 3.0-rc2")


def test_it_lists_the_devices(pocl_wheel: Candidate, run_python: RunPython) -> None:
    lines = run_python(RUN_SCRIPT, str(EXAMPLE), "--list").out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        str(number) for number in range(len(lines))
    ]
    assert any("PoCL 3.0-rc2" in line for line in lines)


def test_it_is_a_short_read() -> None:
    assert len(Path(EXAMPLE).read_text(encoding="utf-8").splitlines()) < 120
