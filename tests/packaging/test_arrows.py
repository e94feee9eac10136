"""Who may import whom: the arrows of docs/architecture.md, downwards only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.support import ROOT

ALLOWED = {
    "loader": set[str](),
    "icd": {"loader"},
    "runtime": {"loader"},
    "graph": {"runtime", "loader"},
    "plugins": {"icd", "loader"},
    "conformance": {"icd", "loader"},
    "fairlead": {"loader", "icd", "runtime", "graph", "plugins", "conformance"},
}


def imported_folders(path: Path, folder: str, root: Path) -> Iterator[str]:
    """The folders of fairlead that a module imports from, its own excluded. `root` is where its own is."""
    package = [
        "fairlead",
        *([] if folder == "fairlead" else [folder]),
        *path.parent.relative_to(root).parts,
    ]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join(filter(None, [*above, node.module]))
            names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            if (
                parts[0] == "fairlead"
                and len(parts) > 1
                and parts[1] in ALLOWED
                and parts[1] != folder
            ):
                yield parts[1]


@pytest.mark.parametrize("folder", ALLOWED)
def test_imports_go_downwards_only(folder: str) -> None:
    root = ROOT / folder
    for path in sorted(root.rglob("*.py")):
        wrong = set(imported_folders(path, folder, root)) - ALLOWED[folder]
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


def test_the_test_sees_what_it_forbids(tmp_path: Path) -> None:
    module, deeper = tmp_path / "m.py", tmp_path / "sub" / "m.py"
    module.write_text(
        "from ..icd.abi import OPENCL\nimport fairlead.plugins.x\nfrom .search import find\n"
    )
    assert set(imported_folders(module, "loader", tmp_path)) == {"icd", "plugins"}
    module.write_text("from .icd.abi import OPENCL\nfrom fairlead import capture, graph\n")
    assert set(imported_folders(module, "fairlead", tmp_path)) == {"icd", "graph"}
    deeper.parent.mkdir()
    deeper.write_text(
        "from ...icd.abi import OPENCL\nfrom ..adapter import Adapter\nfrom .graph import x\nfrom ... import loader\n"
    )
    assert set(imported_folders(deeper, "plugins", tmp_path)) == {"icd", "loader"}


def test_the_native_code_knows_no_python() -> None:
    for path in (
        *(ROOT / "icd/native").glob("*.[ch]"),
        *(ROOT / "plugins/sdk/native").glob("*.[ch]"),
    ):
        assert "Python.h" not in path.read_text(encoding="utf-8")
