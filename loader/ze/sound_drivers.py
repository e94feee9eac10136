"""Which Level Zero drivers passed their probe. Nothing that opens drivers is imported for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..base.search import Candidate, Refusal, find_exclusions
from .discovery import OWN, find_drivers

TYPE_CHECKING = False
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
    unsound = find_unsound(found.candidates)
    return [one.library for one in found.candidates if one not in unsound]


def find_unsound(candidates: Sequence[Candidate]) -> dict[Candidate, Refusal]:
    """Return why some candidates failed their probe, or FAIRLEAD_EXCLUDE leaves them out."""
    excluded = find_exclusions(candidates)
    others = [one for one in candidates if one not in excluded and one.library != OWN]
    if not others:
        return excluded
    from ..base.probe_verdicts import judge  # `fairlead run` waits for what this imports

    return excluded | judge(others, _probe_all, "ze")


def _probe_all(unknown: Sequence[Candidate]) -> Iterable[Report]:
    from . import probe  # which imports all that opens a driver

    return probe.probe_all(unknown)
