"""What `fairlead doctor` says of each adapter, plugin and driver, whatever its API is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from ...loader.base.library_report import LibraryReport
from ...loader.base.search import Candidate, find_excluding_pattern


@dataclass(frozen=True)
class LibraryState:
    """A library that was found, and its state.

    `state` is "usable", "idle" (it loads, and has no device), "refused", "unprobed" (its child
    process did not start) or "excluded" by FAIRLEAD_EXCLUDE.

    Attributes:
        library: what was found via `found_via`.
        real_path: the file that was opened, "" if none was.
        reason: why it is not usable; `remedy` says what to do.
        missing: the libraries that it needs and that were not found.
        warnings: what is odd about it although it works.
    """

    library: str
    found_via: str
    state: str
    real_path: str = ""
    reason: str = ""
    remedy: str = ""
    missing: tuple[str, ...] = ()
    seconds: float = 0.0
    version: str = ""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class WithReason(Protocol):
    """What may say why it cannot be used."""

    @property
    def reason(self) -> str: ...
    @property
    def remedy(self) -> str: ...


def read_report(report: LibraryReport, *, has_device: bool) -> dict[str, Any]:
    """Return the fields of a `LibraryState` by name, as a probe found them."""
    candidate = report.candidate
    found = {"library": candidate.library, "found_via": candidate.found_via}
    if not report.probed:
        reason = report.reason or "; ".join(report.warnings)
        return {**found, "state": "unprobed", "reason": reason, "remedy": report.remedy}
    state = "usable" if report.ok and has_device else "idle"
    state = state if report.ok or report.idle else "refused"
    why = "it has no device" if state == "idle" else ""
    return {
        **found,
        "state": state,
        "real_path": report.real_path,
        "reason": report.reason or report.idle or why,
        "remedy": report.remedy,
        "missing": report.missing,
        "seconds": round(report.seconds, 3),
        "version": report.version,
        "notes": report.notes,
        "warnings": report.warnings,
    }


def explain_exclusion(candidate: Candidate) -> dict[str, Any]:
    """Return the fields of a `LibraryState`, if FAIRLEAD_EXCLUDE leaves it out; else nothing."""
    pattern = find_excluding_pattern(candidate.library)
    if not pattern:
        return {}
    return {
        "library": candidate.library,
        "found_via": candidate.found_via,
        "state": "excluded",
        "reason": f"FAIRLEAD_EXCLUDE leaves it out ({pattern})",
    }


def format_reason(refused: WithReason) -> Iterator[str]:
    """Yield the lines that say why something cannot be used, and what to do."""
    for name, text in (("why", refused.reason), ("next", refused.remedy)):
        if text:
            yield f"  {name}: {text}"
