"""docs/graph_files.md's examples run, one in another process than the other."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from helpers.support import ROOT, RunPython

from fairlead.graph_files.document import Document
from fairlead.loader.base.operations import OPERATIONS

TEXT = (ROOT / "docs/graph_files.md").read_text(encoding="utf-8")


def test_the_examples_run(run_python: RunPython, tmp_path: Path) -> None:
    saving, loading = re.findall(r"```python\n(.*?)```", TEXT, re.S)[:2]
    name = repr(str(tmp_path / "step.flg"))
    run_python(saving.replace('"step.flg"', name))
    code = "import fairlead, numpy as np\n" + loading.replace('"step.flg"', name)
    assert run_python(code).out == "[1.25 1.25]\n"


def test_every_member_and_operation_is_documented() -> None:
    transfers = [name for name, operation in OPERATIONS.items() if operation.target]
    for name in (*(one.name for one in fields(Document)), *transfers):
        assert f"`{name}`" in TEXT, name
