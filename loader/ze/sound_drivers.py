"""Which Level Zero drivers passed their probe. Nothing that opens drivers is imported for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..base.search import Candidate, Refusal, SearchResult, find_excluding_pattern
from .discovery import OWN, find_drivers

if TYPE_CHECKING:
    from ..base.probe_verdicts import Report


def find_sound_drivers(environ: Mapping[str, str] | None = None) -> list[str] | None:
    """Return the paths of the drivers that passed their probe, in search order. Opens none here.

    Args:
        environ: where the variables are read, `os.environ` by default.

    Returns:
        The paths; None if the search finds no file at all.
    """
    found = find_drivers(environ)
    if not found.candidates:
        return None
    wanted = filter_excluded(found, [])
    unsound = find_unsound(wanted)
    return [candidate.library for candidate in wanted if candidate not in unsound]


def find_unsound(candidates: Sequence[Candidate]) -> dict[Candidate, Refusal]:
    """Return why some candidates failed their probe."""
    others = [candidate for candidate in candidates if candidate.library != str(OWN)]
    if not others:
        return {}
    from ..base.probe_verdicts import judge  # `fairlead run` waits for what this imports

    return judge(others, _probe_all, "ze")


def _probe_all(unknown: Sequence[Candidate]) -> Iterable[Report]:
    from . import probe  # which imports all that opens a driver

    return probe.probe_all(unknown)


def filter_excluded(found: SearchResult, refusals: list[Refusal]) -> list[Candidate]:
    """Return the candidates that FAIRLEAD_EXCLUDE leaves, and append the others to `refusals`."""
    wanted: list[Candidate] = []
    for candidate in found.candidates:
        if pattern := find_excluding_pattern(candidate.library):
            reason = f"excluded by FAIRLEAD_EXCLUDE ({pattern})"
            remedy = "change FAIRLEAD_EXCLUDE"
            refusals.append(Refusal(candidate.library, reason, remedy, candidate.found_via))
        else:
            wanted.append(candidate)
    return wanted
