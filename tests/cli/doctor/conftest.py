"""Fixtures of the tests of `fairlead doctor`."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.doctor import Machine
from helpers.support import RunPython


@pytest.fixture
def machine(run_python: RunPython, tmp_path: Path) -> Machine:
    (tmp_path / "vendors").mkdir()
    return Machine(run_python, tmp_path / "vendors")
