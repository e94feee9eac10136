"""Probes Level Zero drivers in child processes, because they may crash or hang.

The child (`main`, called by `children`) loads the candidate with `driver.load` and describes it.
The parent (`probe_all`) returns a `ZEDriverReport` for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from ..base.children import decode_candidate, make_refusal
from ..base.errors import FairleadError
from ..base.library_report import LibraryReport
from ..base.process_state import ProcessState
from ..base.search import Candidate
from .driver import ZEDriver, load


@dataclass(frozen=True)
class ZEDeviceReport:
    """A device as the child saw it."""

    name: str
    type: str
    driver_version: str


@dataclass(frozen=True)
class ZEDriverReport(LibraryReport):
    """The result of probing a driver.

    Attributes:
        tables: the version of its tables, as far as fairlead knows them.
    """

    tables: str = ""
    devices: tuple[ZEDeviceReport, ...] = ()
    parts: ClassVar = {"devices": lambda device: ZEDeviceReport(**device)}


def probe_all(
    candidates: Sequence[Candidate], timeout: float | None = None
) -> list[ZEDriverReport]:
    """Probe candidates on all cores, and return the reports in their order.

    Args:
        timeout: the limit for each in seconds, None for the default of `children`.
    """
    given = ((candidate, asdict(candidate)) for candidate in candidates)
    return ZEDriverReport.probe_all(__name__, given, timeout)


def main(data: Any, progress: Callable[[str], None]) -> dict[str, Any]:
    """Load the candidate and describe it. Runs in the child."""
    state = ProcessState.read()
    try:
        driver = load(decode_candidate(data), progress=progress)
    except FairleadError as error:
        return make_refusal(error, with_code=True)
    progress("asking its devices")
    warnings: list[str] = []
    devices = _describe(driver, warnings)
    about = {
        "ok": True,
        "real_path": driver.path,
        "version": _find_version(driver, warnings),
        "tables": driver.binding.version,
        "idle": driver.idle,
        "remedy": driver.remedy,
        "notes": driver.binding.notes,
        "devices": devices,
    }
    return {**about, "warnings": [*warnings, *state.describe_changes()]}


def _describe(driver: ZEDriver, warnings: list[str]) -> list[dict[str, str]]:
    """Describe the devices, as far as they answer."""
    devices: list[dict[str, str]] = []
    try:
        for device in driver.devices:
            told = ZEDeviceReport(device.name, device.type, device.driver_version)
            devices.append(asdict(told))
    except FairleadError as error:
        warnings.append(f"it failed to describe its devices: {error}")
    return devices


def _find_version(driver: ZEDriver, warnings: list[str]) -> str:
    try:
        return driver.api_version if driver.handles else ""
    except FairleadError as error:
        warnings.append(f"it failed to tell its version: {error}")
        return ""
