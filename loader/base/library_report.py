"""What the probe of a library found, whatever its API is. icd/probe.py says more of OpenCL's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from .children import Outcome, Request, add_printed, run_all
from .search import Candidate

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class LibraryReport:
    """The result of probing a candidate.

    Attributes:
        ok: whether it works. True if `probed` is False.
        reason: why it does not work, in plain words; `remedy` says what to do about it.
        seconds: how long the probe took.
        real_path: the file that was opened.
        version: the version of its interface.
        idle: why it has no device.
        missing: the shared libraries that it needs and that were not found.
        warnings: what is wrong although it works.
        probed: whether a child could be started.
    """

    candidate: Candidate
    ok: bool
    reason: str = ""
    remedy: str = ""
    seconds: float = 0.0
    real_path: str = ""
    version: str = ""
    idle: str = ""
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    probed: bool = True

    #: What makes the members of its other lists of what JSON has, by the list's name.
    parts: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}

    @classmethod
    def probe_all(
        cls, module: str, given: Iterable[tuple[Candidate, dict[str, Any]]], timeout: float | None
    ) -> list[Self]:
        """Probe candidates on all cores, and return the reports in their order.

        Args:
            module: the module whose `main` probes, in a child process.
            given: the candidates, and what `main` gets.
            timeout: the limit for each in seconds, None for FAIRLEAD_PROBE_TIMEOUT.
        """
        candidates, requests = [], []
        for candidate, data in given:
            candidates.append(candidate)
            requests.append(Request(module, data))
        return list(map(cls._make, candidates, run_all(requests, timeout)))

    @classmethod
    def _make(cls, candidate: Candidate, outcome: Outcome) -> Self:
        """Return the report of what `main` returned, or of how the child ended without that."""
        told = outcome.report
        if told is None:
            words = outcome.reason, outcome.remedy, outcome.seconds
            ended = not outcome.probed, *words
            return cls(candidate, *ended, warnings=outcome.notes, probed=outcome.probed)
        fields = {**told, "seconds": outcome.seconds}
        if not told["ok"]:  # a library can only print why it refuses
            fields["reason"] = add_printed(told["reason"], outcome.printed)
        for name, make in {"notes": str, "warnings": str, "missing": str, **cls.parts}.items():
            fields[name] = tuple(map(make, told.get(name, ())))
        fields["warnings"] += outcome.notes
        return cls(candidate, **fields)
