"""Remembers which libraries passed their probe, so that the next process opens them at once.

`judge` is called before drivers ("cl", "ze"), adapters ("ur") or plugins ("pi") are opened. It
keeps verdicts in `$XDG_CACHE_HOME/fairlead/probes.json`. A good one holds until the library's file
or fairlead changes. A bad one holds for an hour at most, and ends when something changes that its
remedy names. A process with more rights than its user reads and writes nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from .fact_cache import FactCache, identify_library
from .frozen_value import Value
from .linker import find_library
from .search import Candidate, Refusal, filter_environ

_BAD_VERDICT_LASTS: Final = 3600.0  # seconds
_CACHE: Final = FactCache("probes.json")


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


class _Verdict(Value):
    """What a probe came to, when (seconds since the epoch), and in what surroundings."""

    ok: bool
    reason: str
    remedy: str
    at: float
    around: str

    def holds(self, path: str) -> bool:
        """Whether it needs no new probe."""
        return self.ok or (
            0 <= time.time() - self.at < _BAD_VERDICT_LASTS
            and self.around == _describe_surroundings(path)
        )


def is_probing() -> bool:
    """Whether libraries are probed at all: FAIRLEAD_PROBE is not 0."""
    return filter_environ().get("FAIRLEAD_PROBE") != "0"


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
        kind: the API: "cl", "ze", "ur" or "pi".
        locate: the path or soname that will be opened for a candidate.

    Returns:
        A refusal for each that failed; none if FAIRLEAD_PROBE is 0.
    """
    if not is_probing():
        return {}
    verdicts = _read()
    paths = {candidate: locate(candidate) for candidate in candidates}
    identities = {candidate: _identify(kind, path) for candidate, path in paths.items()}
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
                around = _describe_surroundings(paths[candidate])
                verdicts[identity] = _Verdict(
                    report.ok, report.reason, report.remedy, time.time(), around
                )
        _CACHE.add({key: verdict.get_fields() for key, verdict in verdicts.items()})
    return refusals


def _identify(kind: str, path: str) -> str | None:
    """Return what a verdict is about: the API, the file, the Python environment, fairlead itself.

    Returns:
        None if there is no file to open. "" if only ld.so knows which file it is: such a library is
            always probed.
    """
    found = path if "/" in path else find_library(path)
    return "" if found is None else identify_library(kind, found)


def _describe_surroundings(path: str) -> str:
    """Return what changes when a user follows a remedy.

    It is the library's folder, and the linker's cache and path.
    """
    ages = []
    for place in (os.path.dirname(os.path.realpath(path)), "/etc/ld.so.cache"):
        try:
            ages.append(os.stat(place).st_mtime_ns)
        except OSError:
            ages.append(0)
    return "|".join(map(str, (*ages, filter_environ().get("LD_LIBRARY_PATH", ""))))


def _read() -> dict[str, _Verdict]:
    """All that is remembered; verdicts of another form are as good as none."""
    try:
        return {key: _Verdict(**fact) for key, fact in _CACHE.read().items()}
    except TypeError:
        return {}
