"""Tries the CUDA driver in a child process, because it may crash or hang.

The child (`main`, called by loader/base/children.py) opens the driver and lists its devices. The
parent (`probe_all`) makes a `CudaReport` of each outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..base.children import Outcome, Request, candidate_from, run_all
from ..base.errors import FairleadError, reason_of
from ..base.search import Candidate
from .driver import open_driver


@dataclass(frozen=True)
class CudaReport:
    """The result of a probe.

    Attributes:
        candidate: the driver.
        ok: whether it has a device. True if `probed` is False.
        reason: why it cannot be used.
        remedy: what to do about it.
        version: the version of CUDA, such as "13.0".
        devices: the names of its devices.
        real_path: of the library.
        probed: whether a child could be started.
    """

    candidate: Candidate
    ok: bool
    reason: str = ""
    remedy: str = ""
    version: str = ""
    devices: tuple[str, ...] = ()
    real_path: str = ""
    probed: bool = True


def probe_all(candidates: Sequence[Candidate]) -> list[CudaReport]:
    """Probe candidates in child processes; the reports are in their order."""
    outcomes = run_all([Request(__name__, asdict(one)) for one in candidates])
    return [_report(*both) for both in zip(candidates, outcomes, strict=True)]


def _report(candidate: Candidate, outcome: Outcome) -> CudaReport:
    if outcome.report is None:
        words = outcome.reason, outcome.remedy
        return CudaReport(candidate, not outcome.probed, *words, probed=outcome.probed)
    found = outcome.report
    return CudaReport(candidate, **{**found, "devices": tuple(found["devices"])})


def main(data: dict[str, Any], progress: Callable[[str], None]) -> dict[str, Any]:
    """Called in the child: open the candidate whose `asdict` is `data`."""
    candidate = candidate_from(data)
    progress("opening the CUDA driver and asking for its devices")
    try:
        driver = open_driver(candidate.library, candidate.found_via)
    except FairleadError as error:
        reason = reason_of(error, with_code=True)
        return {"ok": False, "reason": reason, "remedy": error.remedy, "devices": ()}
    return {
        "ok": True,
        "version": "{}.{}".format(*driver.version),
        "devices": [device.name for device in driver.devices],
        "real_path": driver.path,
    }
