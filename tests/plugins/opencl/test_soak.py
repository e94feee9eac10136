"""Threads that update and enqueue command-buffers, for a second on each driver; `make bench` has
them do it for a minute."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.support import CHILD_TIMEOUT, ROOT

from fairlead.icd.drivers import drivers

pytestmark = pytest.mark.slow


def test_no_update_is_lost_among_threads(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "bench",
        "--only",
        "soak",
        "--quick",
        "--output",
        str(tmp_path / "soak.json"),
    ]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=CHILD_TIMEOUT, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "soak.json").read_text(encoding="utf-8"))["rows"]
    assert {row["driver"] for row in rows} == {
        f"{p.name} {p.devices[0].driver_version}" for p in drivers().platforms
    }
    for what in ("calls that failed", "results that are wrong"):
        values = {
            row["driver"]: (row["value"], row["note"]) for row in rows if row["what"].endswith(what)
        }
        assert len(values) == len(drivers().platforms) and not any(
            value for value, _ in values.values()
        ), values
