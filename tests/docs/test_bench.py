"""`make bench` and `make bench-gpu` take all measures, and say which ones they leave out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from helpers.support import ROOT

from bench.__main__ import ALL, TABLES, why_not

#: Programs that are parts of measures, or show results.
_PARTS: Final = {"__main__", "report", "picture", "first_replay", "dpctl_work", "intel_kernel"}


def test_every_measure_is_taken() -> None:
    texts = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "bench").glob("*.py")}
    measures = {
        name
        for name, text in texts.items()
        if "def measure(quick" in text or '__name__ == "__main__"' in text
    }
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    on_gpus = re.findall(r"for one in ([\w ]+); do \S+ -m bench", makefile)[0].split()
    assert measures - _PARTS == {*ALL, *on_gpus} and not set(ALL) & set(on_gpus)


def test_what_is_left_out_has_a_reason(tmp_path: Path) -> None:
    calls = TABLES["calls"]
    assert "Intel's driver" in why_not(calls, "PoCL", {"UR_PLUGINS": str(tmp_path)})
    for environ in ({}, {"UR_PLUGINS": str(tmp_path / "none")}):
        assert "UR_PLUGINS names no folder" in why_not(calls, "Intel(R) OpenCL", environ)
    assert not why_not(calls, "Intel(R) OpenCL", {"UR_PLUGINS": str(tmp_path)})
    assert not why_not(TABLES["ze_calls"], "PoCL", {})
