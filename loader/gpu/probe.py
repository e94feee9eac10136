"""Tries the driver of a GPU in a child process, because it may crash or hang.

The child (`main`, called by loader/base/children.py) opens the driver and lists its devices. The
parent (`probe_all`) makes a `GpuReport` of each outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any, ClassVar

from ..base.children import decode_candidate, make_refusal
from ..base.errors import FairleadError
from ..base.library_report import LibraryReport
from ..base.search import Candidate


@dataclass(frozen=True)
class GpuReport(LibraryReport):
    """The result of probing a driver: it works if it has a device."""

    devices: tuple[str, ...] = ()
    parts: ClassVar = {"devices": str}


def probe_all(
    api: str, candidates: Sequence[Candidate], timeout: float | None = None
) -> list[GpuReport]:
    """Probe candidates in child processes, and return the reports in their order.

    Args:
        api: the folder of the API, such as "cuda".
        timeout: seconds for each; None means FAIRLEAD_PROBE_TIMEOUT.
    """
    given = ((one, {**asdict(one), "api": api}) for one in candidates)
    return GpuReport.probe_all(__name__, given, timeout)


def main(data: dict[str, Any], progress: Callable[[str], None]) -> dict[str, Any]:
    """Called in the child: open the candidate whose `asdict` is `data`."""
    api = data.pop("api")
    search = import_module(f"...{api}.driver", __name__).SEARCH
    candidate = decode_candidate(data)
    progress(f"opening the {search.driver.error.api_name} driver and asking for its devices")
    try:
        driver = search.driver.open(candidate.library, candidate.found_via)
    except FairleadError as error:
        refusal = make_refusal(error, with_code=True)
        return {**refusal, "idle": refusal["reason"] * (error.code in search.driver.no_device)}
    return {
        "ok": True,
        "version": "{}.{}".format(*driver.version),
        "devices": [device.description for device in driver.devices],
        "real_path": driver.path,
    }
