"""What the probe of a library found, whatever its API is. icd/probe.py says more of OpenCL's."""

from __future__ import annotations

from dataclasses import dataclass

from .search import Candidate


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
