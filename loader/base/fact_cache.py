"""Facts about libraries that one process keeps for later ones, in files of
`$XDG_CACHE_HOME/fairlead`.

A fact is a few JSON values under a key. The key says what the fact is about. `identify_library` is
the part of it that changes when the library's file, its Python environment or fairlead changes.
own_files.py says who has a cache, and which files are believed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache

from .forks import make_lock
from .own_files import OwnFolder
from .search import filter_environ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

#: Where the code lies that facts depend on, and the ABI data.
_FOLDERS: Final = ("loader", "icd", "plugins")
#: Threads share the file that replaces a cache.
_lock: Final = make_lock()
_FOLDER: Final = OwnFolder()


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
        try:
            data = _parse(_FOLDER.read(self._name).decode())
            facts = {key: dict(fact) for key, fact in data.items()}
            are_dated = all(isinstance(fact["at"], float) for fact in facts.values())
        except (OSError, ValueError, AttributeError, TypeError, KeyError, RecursionError):
            return {}
        return facts if are_dated else {}

    def add(self, facts: Mapping[str, Mapping[str, Any]]) -> None:
        """Write facts beside those of other processes. Failures are ignored."""
        with _lock:
            self._write({**self.read(), **facts})

    def forget(self, is_wrong: Callable[[Mapping[str, Any]], bool]) -> None:
        """Forget the facts for which a function returns True. Failures are ignored."""
        with _lock:
            known = self.read()
            kept = {key: fact for key, fact in known.items() if not is_wrong(fact)}
            if len(kept) < len(known):
                self._write(kept)

    def _write(self, facts: Mapping[str, Mapping[str, Any]]) -> None:
        import json

        newest = sorted(facts.items(), key=lambda item: item[1]["at"], reverse=True)
        with suppress(OSError):
            _FOLDER.replace(self._name, json.dumps(dict(newest[: self._most])).encode())


class _Json:
    """How the scanner of Python's `json` reads: as `json.loads` does."""

    strict = True
    object_hook = object_pairs_hook = array_hook = None
    parse_float, parse_int, parse_constant = float, int, float


def _parse(text: str) -> Any:
    """Return what `json.loads` would, whose package takes milliseconds for regular expressions.

    Its scanner in C is used without it; `json` itself reads what that cannot.
    """
    try:
        from _json import make_scanner

        scan: Any = make_scanner
        value, end = scan(_Json)(text, 0)
        if end == len(text):
            return value
    except (ImportError, AttributeError, TypeError, StopIteration):
        pass
    import json

    return json.loads(text)


def identify_library(kind: str, path: str) -> str | None:
    """Return what identifies a library, its present contents, and its surroundings.

    A file that was rebuilt or replaced has another inode or another time of change (ctime). Its
    size and its time of modification (mtime) may be the same.

    Args:
        kind: the kind of the facts: an API, for example.

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


def describe_state(path: str) -> str:
    """Return the time of change (mtime, in ns), inode and size of a file or folder.

    They are zeros if there is none. libOpenCL.so.1 compares this text
    (icd/libopencl/native/verdict_file.c).
    """
    try:
        status = os.stat(path)
    except OSError:
        return "0 0 0"
    return f"{status.st_mtime_ns} {status.st_ino} {status.st_size}"


@cache
def _find_newest_change() -> int:
    """When the newest of its files was made, its compiled parts included, in ns since the epoch."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    beside = os.path.dirname(root)
    for name in os.listdir(beside):  # an installer writes a list of what it has installed
        record = os.path.join(beside, name, "RECORD")
        if name.startswith("fairlead-") and name.endswith(".dist-info") and os.path.exists(record):
            return os.stat(record).st_ctime_ns
    return max(
        os.stat(os.path.join(folder, name)).st_mtime_ns
        for top in _FOLDERS
        for folder, _, names in os.walk(os.path.join(root, top))
        for name in names
        if name.endswith((".py", ".abi")) or ".so" in name
    )
