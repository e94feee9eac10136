"""Copies the source tree without built files. It reads .gitignore; git need not be installed."""

from __future__ import annotations

import shutil
from fnmatch import fnmatch
from pathlib import Path


def copy_sources(root: Path, target: Path) -> None:
    """Copy a tree without .git and what its .gitignore names.

    In patterns it knows a slash at either end, `*` and `[…]`.
    """
    patterns = [
        line.rstrip("/") for line in (root / ".gitignore").read_text(encoding="utf-8").split()
    ]

    def ignored(folder: str, names: list[str]) -> set[str]:
        place = Path(folder).relative_to(root)
        return {
            name
            for name in names
            if name == ".git" or any(_matches(place / name, pattern) for pattern in patterns)
        }

    shutil.copytree(root, target, symlinks=True, ignore=ignored, dirs_exist_ok=True)


def _matches(path: Path, pattern: str) -> bool:
    """Return whether a pattern names a path.

    With a leading slash it is the path from the root, else the last part of any path.
    """
    return (
        fnmatch(str(path), pattern[1:]) if pattern.startswith("/") else fnmatch(path.name, pattern)
    )
