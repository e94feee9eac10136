"""Remembers which drivers passed their probe, so that the next process opens them at once.

`judge` is what `drivers()` asks. Verdicts are kept in `$XDG_CACHE_HOME/fairlead/probes.json`: a good one for as long as neither the
driver's file nor fairlead changes; a bad one for an hour at most, and no longer than what a user would change to follow its remedy
stays the same. In a process with more rights than its user nothing is read or written.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from ..loader.library import find_library
from ..loader.search import Candidate, Refusal, in_secure_process, secure_environ
from . import quirks

_BAD_VERDICT_LASTS: Final = 3600.0  # seconds
_MOST_VERDICTS: Final = 500


@dataclass(frozen=True)
class _Verdict:
    """What a probe came to, when (seconds since the epoch), and in what surroundings."""

    ok: bool
    reason: str
    remedy: str
    at: float
    around: str

    def holds(self, candidate: Candidate) -> bool:
        """Whether it needs no new probe."""
        return self.ok or (0 <= time.time() - self.at < _BAD_VERDICT_LASTS and self.around == _surroundings(candidate))


def judge(candidates: Sequence[Candidate]) -> dict[Candidate, Refusal]:
    """The candidates that failed their probe, now or within the last hour, each with the reason."""
    verdicts = _read()
    identities = {candidate: _identity(candidate) for candidate in candidates}
    refusals: dict[Candidate, Refusal] = {}
    unknown: list[Candidate] = []
    for candidate, identity in identities.items():
        verdict = verdicts.get(identity or "")
        if verdict is None or not verdict.holds(candidate):
            if identity is not None:  # a file that is not there needs no child: opening it runs no code and says why
                unknown.append(candidate)
        elif not verdict.ok:
            reason = f"{verdict.reason} (remembered; `fairlead doctor` tries it again)"
            refusals[candidate] = Refusal(candidate.library, reason, verdict.remedy, candidate.found_via)
    if unknown:
        refusals.update(_probe(unknown, identities, verdicts))
        _write(verdicts)
    return refusals


def _probe(
    candidates: Sequence[Candidate], identities: dict[Candidate, str | None], verdicts: dict[str, _Verdict]
) -> dict[Candidate, Refusal]:
    """Probe, enter the verdicts, and give a Refusal for each bad one."""
    from .probe import probe_all  # a process whose drivers are all known does without it

    refusals: dict[Candidate, Refusal] = {}
    for report in probe_all(candidates):
        candidate, identity = report.candidate, identities[report.candidate]
        if not report.ok:
            refusals[candidate] = Refusal(candidate.library, report.reason, report.remedy, candidate.found_via)
        if identity and report.probed:
            verdicts[identity] = _Verdict(report.ok, report.reason, report.remedy, time.time(), _surroundings(candidate))
    return refusals


def _file() -> Path | None:
    """Where verdicts are kept; None in a process with more rights than its user."""
    if in_secure_process():
        return None
    directory = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    return directory / "fairlead" / "probes.json" if directory.is_absolute() else None


def _identity(candidate: Candidate) -> str | None:
    """What a verdict is about: the file and its age, the Python environment, fairlead itself.

    None when there is no file to open, "" when only ld.so knows which file it is: such a driver is always probed.
    """
    path, _ = quirks.locate(candidate)
    found = path if "/" in path else find_library(path)
    if found is None:
        return ""
    try:
        status = os.stat(found)
    except OSError:
        return None
    ours = max(file.stat().st_mtime_ns for file in Path(__file__).parent.glob("*.py"))
    switches = secure_environ().get("FAIRLEAD_QUIRKS", "")
    return "|".join(map(str, (os.path.realpath(found), status.st_mtime_ns, status.st_size, sys.prefix, ours, switches)))


def _surroundings(candidate: Candidate) -> str:
    """What may change when a user follows a remedy: libraries beside the driver, the linker's cache and search path."""
    path, _ = quirks.locate(candidate)
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
        return verdicts if all(isinstance(verdict.at, float) for verdict in verdicts.values()) else {}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _write(verdicts: dict[str, _Verdict]) -> None:
    """Remember the newest verdicts, those of other processes among them. The rename makes the file whole or leaves it as it was."""
    file = _file()
    if file is None:
        return
    newest = sorted({**_read(), **verdicts}.items(), key=lambda item: item[1].at, reverse=True)[:_MOST_VERDICTS]
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            temporary.write_text(json.dumps({key: asdict(verdict) for key, verdict in newest}), encoding="utf-8")
            os.replace(temporary, file)
        finally:
            temporary.unlink(missing_ok=True)
