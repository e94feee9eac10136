"""Who may import whom: the arrows of docs/architecture.md, downwards only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import ROOT

ALLOWED = {
    "loader": set[str](),
    "icd": {"loader"},
    "graph": {"loader"},
    "plugins": {"icd", "loader"},
    "fairlead": {"loader", "icd", "graph", "plugins"},
}


def imported_folders(path: Path, folder: str) -> Iterator[str]:
    """The folders of fairlead that a module imports from, its own excluded."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level == 0:
                names = [module] + ([f"fairlead.{alias.name}" for alias in node.names] if module == "fairlead" else [])
            elif node.level == 2 or folder == "fairlead":  # `..icd` in icd's neighbours, `.icd` in the front door
                names = [f"fairlead.{module}"]
        for name in names:
            parts = name.split(".")
            if parts[0] == "fairlead" and len(parts) > 1 and parts[1] in ALLOWED and parts[1] != folder:
                yield parts[1]


@pytest.mark.parametrize("folder", ALLOWED)
def test_imports_go_downwards_only(folder: str) -> None:
    for path in sorted((ROOT / folder).rglob("*.py")):
        wrong = set(imported_folders(path, folder)) - ALLOWED[folder]
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


def test_the_test_sees_what_it_forbids(tmp_path: Path) -> None:
    module = tmp_path / "m.py"
    module.write_text("from ..icd.abi import OPENCL\nimport fairlead.plugins.x\nfrom .search import find\n")
    assert set(imported_folders(module, "loader")) == {"icd", "plugins"}
    module.write_text("from .icd.abi import OPENCL\nfrom fairlead import capture, graph\n")
    assert set(imported_folders(module, "fairlead")) == {"icd", "graph"}


def test_the_native_code_knows_no_python() -> None:
    for path in (ROOT / "icd/native").glob("*.[ch]"):
        assert "Python.h" not in path.read_text(encoding="utf-8")
