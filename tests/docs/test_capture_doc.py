"""docs/capture.md's examples are one program that runs."""

from __future__ import annotations

import re

from helpers.support import ROOT, RunPython

TEXT = (ROOT / "docs/capture.md").read_text(encoding="utf-8")


def test_the_examples_run_one_after_the_other(run_python: RunPython) -> None:
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    assert len(blocks) == 11
    lines = run_python("\n".join(blocks)).out.splitlines()
    assert (
        lines[0].startswith("0 kernel add(1024) {'kernel': 'add'")
        and "read(4096 bytes)" in lines[1]
    )
    assert any(line.startswith("once more: ") for line in lines)
    parameters = "  2 nodes; Parameters: self.u, self.v, self.dt"
    assert lines[-2:] == ["Wave.step: 1 graphs", parameters]
    stopped, replays = lines[-3].split()
    assert stopped == "True" and 73 <= int(replays) < 73 + 16
