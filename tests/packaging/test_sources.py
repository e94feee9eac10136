"""The copy of the sources that wheels are built from, and fresh systems are given."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.sources import copy_sources
from helpers.support import ROOT

#: What a tree holds, and what of it is copied.
TREE = {
    "README.md": True,
    "setup.py": True,
    "icd/native/replay.c": True,
    "docs/build/page.md": True,
    ".git/config": False,
    ".venv/bin/python": False,
    "build/lib/fairlead/api.py": False,
    "icd/_native.abi3.so": False,
    "fairlead/__pycache__/api.pyc": False,
    "plugins/libur_adapter_x.so.0": False,
    "fairlead.egg-info/PKG-INFO": False,
}


# in a second working tree of a repository, .git is a file
@pytest.mark.parametrize("git", ["folder", "file"])
def test_what_was_built_is_not_copied_and_git_is_not_asked(
    git: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    source = tmp_path / "source"
    expected = set()
    for name, copied in TREE.items():
        if git == "file" and name.startswith(".git/"):
            name = ".git"
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).touch()
        expected |= {name} if copied else set()
    (source / ".gitignore").write_bytes((ROOT / ".gitignore").read_bytes())
    copy_sources(source, tmp_path / "copy")
    found = {
        str(path.relative_to(tmp_path / "copy"))
        for path in (tmp_path / "copy").rglob("*")
        if path.is_file()
    }
    assert found == expected | {".gitignore"}
