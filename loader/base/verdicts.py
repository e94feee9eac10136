"""Remembers which libraries passed their probe, so that the next process opens them at once.

`judge` is called before drivers ("cl"), adapters ("ur") or plugins ("pi") are opened. Verdicts are kept
in `$XDG_CACHE_HOME/fairlead/probes.json`. A good one holds until the library's file or fairlead
changes. A bad one holds for an hour at most, and ends when something changes that its remedy names. A
process with more rights than its user reads and writes nothing.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Final, Protocol

from .linker import find_library
from .search import Candidate, Refusal, in_secure_process, secure_environ

_BAD_VERDICT_LASTS: Final = 3600.0  # seconds
_MOST_VERDICTS: Final = 500
_FOLDERS: Final = (
    "loader",
    "icd",
    "plugins",
)  # where the code lies, and the ABI facts, that a verdict depends on


class Report(Protocol):
    """What `judge` needs of a probe's report; `probed` is False if nothing is known."""

    @property
    def candidate(self) -> Candidate: ...
    @property
    def ok(self) -> bool: ...
    @property
    def reason(self) -> str: ...
    @property
    def remedy(self) -> str: ...
    @property
    def probed(self) -> bool: ...


@dataclass(frozen=True)
class _Verdict:
    """What a probe came to, when (seconds since the epoch), and in what surroundings."""

    ok: bool
    reason: str
    remedy: str
    at: float
    around: str

    def holds(self, path: str) -> bool:
        """Whether it needs no new probe."""
        return self.ok or (
            0 <= time.time() - self.at < _BAD_VERDICT_LASTS and self.around == _surroundings(path)
        )


def judge(
    candidates: Sequence[Candidate],
    probe_all: Callable[[Sequence[Candidate]], Iterable[Report]],
    kind: str,
    locate: Callable[[Candidate], str] = lambda candidate: candidate.library,
) -> dict[Candidate, Refusal]:
    """The candidates that failed their probe, now or within the last hour.

    Args:
        candidates: what is about to be opened.
        probe_all: probes those about which nothing is known.
        kind: the API: "cl", "ur" or "pi".
        locate: the path or soname that will be opened for a candidate.

    Returns:
        A refusal for each that failed; none if FAIRLEAD_PROBE is 0.
    """
    if secure_environ().get("FAIRLEAD_PROBE") == "0":
        return {}
    verdicts = _read()
    paths = {candidate: locate(candidate) for candidate in candidates}
    identities = {candidate: _identity(kind, path) for candidate, path in paths.items()}
    refusals: dict[Candidate, Refusal] = {}
    unknown: list[Candidate] = []
    for candidate, identity in identities.items():
        verdict = verdicts.get(identity or "")
        if verdict is None or not verdict.holds(paths[candidate]):
            if identity is not None:  # opening a missing file runs no code, and says why
                unknown.append(candidate)
        elif not verdict.ok:
            reason = f"{verdict.reason} (remembered; `fairlead doctor` tries it again)"
            refusals[candidate] = Refusal(
                candidate.library, reason, verdict.remedy, candidate.found_via
            )
    if unknown:
        for report in probe_all(unknown):
            candidate, identity = report.candidate, identities[report.candidate]
            if not report.ok:
                refusals[candidate] = Refusal(
                    candidate.library, report.reason, report.remedy, candidate.found_via
                )
            if identity and report.probed:
                around = _surroundings(paths[candidate])
                verdicts[identity] = _Verdict(
                    report.ok, report.reason, report.remedy, time.time(), around
                )
        _write(verdicts)
    return refusals


def _file() -> Path | None:
    """Where verdicts are kept; None in a process with more rights than its user."""
    if in_secure_process():
        return None
    directory = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    return directory / "fairlead" / "probes.json" if directory.is_absolute() else None


def _identity(kind: str, path: str) -> str | None:
    """What a verdict is about: the API, the file, the Python environment, fairlead itself.

    A file that was built anew or put in place of another has another inode or another time of change
    (ctime), even if its size and the time that it tells (mtime) are the same.

    Returns:
        None when there is no file to open. "" when only ld.so knows which file it is: such a library
        is always probed.
    """
    found = path if "/" in path else find_library(path)
    if found is None:
        return ""
    try:
        status = os.stat(found)
    except OSError:
        return None
    facts = (
        os.path.realpath(found),
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_ino,
        status.st_size,
        sys.prefix,
        _age_of_fairlead(),
    )
    return "|".join(map(str, (kind, *facts, secure_environ().get("FAIRLEAD_QUIRKS", ""))))


@cache
def _age_of_fairlead() -> int:
    """When the newest of its files was made, its compiled parts included, in ns since the epoch."""
    root = Path(__file__).parents[2]
    return max(
        file.stat().st_mtime_ns
        for folder in _FOLDERS
        for pattern in ("*.py", "*.abi", "*.so*")
        for file in (root / folder).rglob(pattern)
    )


def _surroundings(path: str) -> str:
    """What changes when a user follows a remedy: the library's folder, the linker's cache and path."""
    ages = []
    for place in (os.path.dirname(os.path.realpath(path)), "/etc/ld.so.cache"):
        try:
            ages.append(os.stat(place).st_mtime_ns)
        except OSError:
            ages.append(0)
    return "|".join(map(str, (*ages, secure_environ().get("LD_LIBRARY_PATH", ""))))


def _read() -> dict[str, _Verdict]:
    """All that is remembered; a file that cannot be read or has another form is as good as none."""
    file = _file()
    try:
        data = json.loads(file.read_text(encoding="utf-8")) if file else {}
        verdicts = {key: _Verdict(**value) for key, value in data.items()}
        return (
            verdicts if all(isinstance(verdict.at, float) for verdict in verdicts.values()) else {}
        )
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return {}


def _write(verdicts: dict[str, _Verdict]) -> None:
    """Remember the newest verdicts, those of other processes included. The file is replaced at once."""
    file = _file()
    if file is None:
        return
    newest = sorted({**_read(), **verdicts}.items(), key=lambda item: item[1].at, reverse=True)[
        :_MOST_VERDICTS
    ]
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            temporary.write_text(
                json.dumps({key: asdict(verdict) for key, verdict in newest}), encoding="utf-8"
            )
            os.replace(temporary, file)
        finally:
            temporary.unlink(missing_ok=True)
