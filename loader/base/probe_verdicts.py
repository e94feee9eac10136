"""Remembers which libraries passed their probe, so that the next process opens them at once.

`judge` is called before drivers ("cl", "ze"), adapters ("ur") or plugins ("pi") are opened. It
keeps verdicts in `$XDG_CACHE_HOME/fairlead/probes.json`. A good one holds until the library's file
or fairlead changes. A bad one holds for half a minute, or twenty times as long as its probe took.
So programs wait for probes for a twentieth of their time at most. It ends before that when
something changes that its remedy names, and by `fairlead doctor`. `fairlead devices` ends those of
probes that took no time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from .fact_cache import FactCache, describe_state, identify_library
from .frozen_value import Value
from .linker import find_library, look_for_dependencies
from .search import Candidate, Refusal, filter_environ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final, Protocol

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


_SHORTEST, _LONGEST, _PROBE_TIMES = 30.0, 3600.0, 20.0  # of a bad verdict; in seconds
#: What many drivers need. A container may get it later.
_SYSTEM: Final = ("/proc", "/sys", "/dev", "/dev/dri", "/etc/ld.so.cache")
_CACHE: Final = FactCache("probes.json")


class _Verdict(Value):
    """The result of a probe, as the file of verdicts has it.

    Attributes:
        at: when, in seconds since the epoch.
        around: what a refusal depends on: paths with their states (`describe_state`).
        linker_path: LD_LIBRARY_PATH.
        lasts: for how many seconds a bad one holds.
    """

    ok: bool
    reason: str
    remedy: str
    at: float
    around: dict[str, str]
    linker_path: str
    lasts: float

    def holds(self) -> bool:
        """Whether the verdict holds without a new probe."""
        return self.ok or (
            0 <= time.time() - self.at < self.lasts
            and self.linker_path == _get_linker_path()
            and all(describe_state(path) == state for path, state in self.around.items())
        )


#: What `json` makes of each field.
_TYPES: Final = {
    name: type(value)
    for name, value in _Verdict(True, "", "", 0.0, {}, "", 0.0).get_fields().items()
}


def is_probing() -> bool:
    """Whether libraries are probed at all: FAIRLEAD_PROBE is not 0."""
    return filter_environ().get("FAIRLEAD_PROBE") != "0"


def judge(
    candidates: Sequence[Candidate],
    probe_all: Callable[[Sequence[Candidate]], Iterable[Report]],
    kind: str,
    locate: Callable[[Candidate], str] = lambda candidate: candidate.library,
) -> dict[Candidate, Refusal]:
    """The candidates that failed their probe, now or a short time ago.

    Args:
        probe_all: probes those about which nothing is known.
        kind: the API: "cl", "ze", "ur" or "pi".
        locate: the path or soname that will be opened for a candidate.

    Returns:
        A refusal for each that failed; none if FAIRLEAD_PROBE is 0.
    """
    if not is_probing():
        return {}
    facts = _CACHE.read()
    paths = {candidate: locate(candidate) for candidate in candidates}
    identities = {candidate: _identify(kind, path) for candidate, path in paths.items()}
    refusals: dict[Candidate, Refusal] = {}
    unknown: list[Candidate] = []
    for candidate, identity in identities.items():
        verdict = _read(facts.get(identity or ""))
        if verdict is None or not verdict.holds():
            if identity is not None:  # opening a missing file runs no code, and says why
                unknown.append(candidate)
        elif not verdict.ok:
            reason = f"{verdict.reason} (remembered; `fairlead doctor` tries it again)"
            refusals[candidate] = Refusal(
                candidate.library, reason, verdict.remedy, candidate.found_via
            )
    if unknown:
        begun = time.monotonic()
        reports = list(probe_all(unknown))
        found: dict[str, dict[str, Any]] = {}
        lasts = find_duration(time.monotonic() - begun)
        for report in reports:
            candidate, identity = report.candidate, identities[report.candidate]
            if not report.ok:
                refusals[candidate] = Refusal(
                    candidate.library, report.reason, report.remedy, candidate.found_via
                )
            if identity and report.probed:
                around = () if report.ok else list_surroundings(paths[candidate])
                verdict = _Verdict(
                    report.ok,
                    report.reason,
                    report.remedy,
                    time.time(),
                    {path: describe_state(path) for path in around},
                    _get_linker_path(),
                    lasts,
                )
                found[identity] = verdict.get_fields()
        _CACHE.add(found)
    return refusals


def _identify(kind: str, path: str) -> str | None:
    """Return what a verdict is about: the API, the file, the Python environment, fairlead itself.

    Returns:
        None if there is no file to open. "" if only ld.so knows which file it is: such a library is
            always probed.
    """
    found = path if "/" in path else find_library(path)
    return "" if found is None else identify_library(kind, found)


def find_duration(seconds: float) -> float:
    """Return how long a refusal holds, in seconds, whose probe took some seconds."""
    return min(max(_SHORTEST, _PROBE_TIMES * seconds), _LONGEST)


def forget_refusals(*, slow: bool = True) -> None:
    """Let the next search probe libraries that were refused.

    Args:
        slow: whether also those whose probe took long, such as one that hangs.
    """
    _CACHE.forget(lambda fact: not fact.get("ok") and (slow or fact.get("lasts", 0) <= _SHORTEST))


def list_surroundings(path: str) -> Iterator[str]:
    """Yield the paths that change when a user follows the remedy of a refused library.

    They are its folder, what the system gives to drivers, and each place where a library that it
    misses was looked for.
    """
    yield from _SYSTEM
    found = path if "/" in path else find_library(path)
    if found:
        yield os.path.dirname(os.path.realpath(found))
        for places in look_for_dependencies(found).values():
            yield from map(os.path.abspath, places)


def _get_linker_path() -> str:
    return filter_environ().get("LD_LIBRARY_PATH", "")


def _read(fact: dict[str, Any] | None) -> _Verdict | None:
    """Return a fact of the file as a verdict, None for one that another version has written.

    That may have other fields, or other types in them.
    """
    if fact is None or {name: type(value) for name, value in fact.items()} != _TYPES:
        return None
    return _Verdict(**fact)
