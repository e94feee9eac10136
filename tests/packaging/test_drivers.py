"""Which drivers a run of the tests uses (tests/helpers/drivers.py): a test is left out where one of
its drivers is not here, and OCL_ICD_FILENAMES brings more."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from helpers.support import ROOT, FakeDriver, run_program

pytestmark = pytest.mark.slow

TESTS = """
import pytest

@pytest.mark.driver("no_such_driver")
def test_of_another_machine() -> None:
    raise AssertionError

def test_of_each(each_driver) -> None:
    print("ran on", each_driver.platform)
"""


def test_a_run_says_which_drivers_it_has_and_would_like(
    fake_driver: FakeDriver, tmp_path: Path
) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    env = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    env |= {"PYTHONPATH": str(ROOT / "tests"), "OCL_ICD_FILENAMES": str(fake_driver())}
    options = "-p", "conftest", "-p", "no:cacheprovider", "-rsP", f"--rootdir={tmp_path}"
    done = run_program(
        sys.executable, "-m", "pytest", *options, "test_some.py", env=env, cwd=tmp_path
    )
    assert done.code == 0, done.out + done.err
    assert "needs no_such_driver, not here" in done.out
    assert "ran on Fake 0" in done.out
    (line,) = [line for line in done.out.splitlines() if line.startswith("drivers: ran on ")]
    assert "fake" in line.partition(";")[0]
