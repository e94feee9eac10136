"""The fixture of tests/helpers/doctor.py."""

from __future__ import annotations

import pytest
from helpers.doctor import machine  # noqa: F401


@pytest.fixture(autouse=True)
def _hide_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands list the devices of the tests' drivers alone, also where there is a GPU."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
