"""Facts about libraries that one process keeps for later ones, in files of
`$XDG_CACHE_HOME/fairlead`.

A fact is a few JSON values under a key. The key says what the fact is about. `identify_library` is
the part of it that changes when the library's file, its Python environment or fairlead changes. A
process with more rights than its user reads and writes nothing.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from .forks import make_lock
from .search import filter_environ, is_secure_process

#: Where the code lies that facts depend on, and the ABI data.
_FOLDERS: Final = ("loader", "icd", "plugins")
#: Threads share the file that replaces a cache.
_lock: Final = make_lock()


class FactCache:
    """Facts of one kind. Each has the time `at` which it was found, in seconds since the epoch.

    Args:
        name: what the file is called.
        most: how many facts are kept: the newest.
    """

    def __init__(self, name: str, most: int = 500) -> None:
        self._name, self._most = name, most

    def read(self) -> dict[str, dict[str, Any]]:
        """All facts by key. A file that cannot be read or has another form is as good as none."""
        file = self._find_file()
        try:
            data = json.loads(file.read_text(encoding="utf-8")) if file else {}
            facts = {key: dict(fact) for key, fact in data.items()}
            are_dated = all(isinstance(fact["at"], float) for fact in facts.values())
        except (OSError, ValueError, AttributeError, TypeError, KeyError, RecursionError):
            return {}
        return facts if are_dated else {}

    def add(self, facts: Mapping[str, Mapping[str, Any]]) -> None:
        """Write facts beside those of other processes.

        The file is replaced atomically. Failures are ignored.
        """
        file = self._find_file()
        if file is None:
            return
        temporary = file.with_name(f"{file.name}.{os.getpid()}")
        with _lock, suppress(OSError):
            known = {**self.read(), **facts}
            newest = sorted(known.items(), key=lambda item: item[1]["at"], reverse=True)
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                temporary.write_text(json.dumps(dict(newest[: self._most])), encoding="utf-8")
                os.replace(temporary, file)
            finally:
                temporary.unlink(missing_ok=True)

    def _find_file(self) -> Path | None:
        directory = find_cache_directory()
        return directory / self._name if directory else None


def find_cache_directory() -> Path | None:
    """Return fairlead's directory in the user's cache.

    It is None in a process with more rights than its user.
    """
    if is_secure_process():
        return None
    directory = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    return directory / "fairlead" if directory.is_absolute() else None


def identify_library(kind: str, path: str) -> str | None:
    """Return what identifies a library, its present contents, and its surroundings.

    A file that was rebuilt or replaced has another inode or another time of change (ctime). Its
    size and its time of modification (mtime) may be the same.

    Args:
        kind: the kind of the facts: an API, for example.
        path: the library's.

    Returns:
        None if there is no such file.
    """
    try:
        status = os.stat(path)
    except OSError:
        return None
    facts = (
        os.path.realpath(path),
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_ino,
        status.st_size,
        sys.prefix,
        _find_newest_change(),
    )
    return "|".join(map(str, (kind, *facts, filter_environ().get("FAIRLEAD_QUIRKS", ""))))


@cache
def _find_newest_change() -> int:
    """When the newest of its files was made, its compiled parts included, in ns since the epoch."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return max(
        os.stat(os.path.join(folder, name)).st_mtime_ns
        for top in _FOLDERS
        for folder, _, names in os.walk(os.path.join(root, top))
        for name in names
        if name.endswith((".py", ".abi")) or ".so" in name
    )
