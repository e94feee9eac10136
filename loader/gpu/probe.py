"""Tries the driver of a GPU in a child process, because it may crash or hang.

The child (`main`, called by loader/base/children.py) opens the driver and lists its devices. The
parent (`probe_all`) makes a `GpuReport` of each outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

from ..base.children import Outcome, Request, decode_candidate, run_all
from ..base.errors import FairleadError, explain_error
from ..base.search import Candidate


@dataclass(frozen=True)
class GpuReport:
    """The result of a probe.

    Attributes:
        ok: whether it has a device. True if `probed` is False.
        idle: whether it works, and has no device.
        reason: why it cannot be used.
        remedy: what to do about it.
        version: the version of its API, such as "13.0".
        devices: the names of its devices.
        seconds: how long the probe took.
        notes: what is odd about it.
        probed: whether a child could be started; if not, a note says why.
    """

    candidate: Candidate
    ok: bool
    idle: bool = False
    reason: str = ""
    remedy: str = ""
    version: str = ""
    devices: tuple[str, ...] = ()
    real_path: str = ""
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    probed: bool = True


def probe_all(
    api: str, candidates: Sequence[Candidate], timeout: float | None = None
) -> list[GpuReport]:
    """Probe candidates in child processes.

    Args:
        api: the folder of the API, such as "cuda".
        timeout: seconds for each; None means FAIRLEAD_PROBE_TIMEOUT.

    Returns:
        The reports, in the order of the candidates.
    """
    requests = [Request(__name__, {**asdict(one), "api": api}) for one in candidates]
    outcomes = run_all(requests, timeout)
    return [_make_report(*both) for both in zip(candidates, outcomes, strict=True)]


def _make_report(candidate: Candidate, outcome: Outcome) -> GpuReport:
    seconds = outcome.seconds
    if outcome.report is None:
        return GpuReport(
            candidate,
            not outcome.probed,
            reason=outcome.reason,
            remedy=outcome.remedy,
            seconds=seconds,
            notes=outcome.notes,
            probed=outcome.probed,
        )
    found = {**outcome.report, "devices": tuple(outcome.report["devices"])}
    return GpuReport(candidate, seconds=seconds, notes=outcome.notes, **found)


def main(data: dict[str, Any], progress: Callable[[str], None]) -> dict[str, Any]:
    """Called in the child: open the candidate whose `asdict` is `data`."""
    api = data.pop("api")
    search = import_module(f"...{api}.driver", __name__).SEARCH
    candidate = decode_candidate(data)
    progress(f"opening the {search.driver.error.api_name} driver and asking for its devices")
    try:
        driver = search.driver.open(candidate.library, candidate.found_via)
    except FairleadError as error:
        return {
            "ok": False,
            "idle": error.code in search.driver.no_device,
            "reason": explain_error(error, with_code=True),
            "remedy": error.remedy,
            "devices": (),
        }
    return {
        "ok": True,
        "version": "{}.{}".format(*driver.version),
        "devices": [device.description for device in driver.devices],
        "real_path": driver.path,
    }
