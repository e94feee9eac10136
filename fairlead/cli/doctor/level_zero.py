"""Level Zero drivers in `fairlead doctor`.

`survey` searches as programs do, and probes every candidate in a child process. No driver is loaded
into this process. fairlead's own driver is only named: its devices are those of OpenCL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ...loader.base.search import (
    Candidate,
    Place,
    Refusal,
    Variable,
    explain_variables,
    find_excluding_pattern,
)
from ...loader.ze.discovery import OWN, VARIABLES, find_drivers
from ...loader.ze.probe import ZEDeviceReport, ZEDriverReport, probe_all


@dataclass(frozen=True)
class ZEDriverState:
    """A Level Zero driver that was found, and its state.

    `state` is "usable", "idle" (it loads, and has no device), "refused", "unprobed" (its child
    process did not start) or "excluded" by FAIRLEAD_EXCLUDE.

    Attributes:
        library: what was found via `found_via`.
        real_path: the file that was opened, "" if none was.
        reason: why it is not usable; `remedy` says what to do.
        missing: the libraries that it needs and that were not found.
        version: the version of Level Zero that it reports.
        tables: the version of its tables, at most that of fairlead.
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
    tables: str = ""
    devices: tuple[ZEDeviceReport, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class ZESurvey:
    """All Level Zero drivers.

    Attributes:
        own: the path of fairlead's own driver, "" if it is missing.
    """

    places: tuple[Place, ...] = ()
    drivers: tuple[ZEDriverState, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    own: str = ""


def survey(timeout: float | None = None) -> ZESurvey:
    """Search and probe.

    Args:
        timeout: seconds for each probe; None means FAIRLEAD_PROBE_TIMEOUT.
    """
    found = find_drivers(own=None)
    patterns = {
        candidate: find_excluding_pattern(candidate.library) for candidate in found.candidates
    }
    wanted = [candidate for candidate, pattern in patterns.items() if not pattern]
    reports = {report.candidate: report for report in probe_all(wanted, timeout)}
    states = (
        _make_state(reports[candidate])
        if candidate in reports
        else _make_excluded_state(candidate, pattern)
        for candidate, pattern in patterns.items()
    )
    own = str(OWN) if OWN.exists() else ""
    return ZESurvey(found.places, tuple(states), found.refusals, own)


def _make_excluded_state(candidate: Candidate, pattern: str) -> ZEDriverState:
    reason = f"FAIRLEAD_EXCLUDE leaves it out ({pattern})"
    return ZEDriverState(candidate.library, candidate.found_via, "excluded", reason=reason)


def _make_state(report: ZEDriverReport) -> ZEDriverState:
    state = "refused" if not report.ok else "usable" if report.devices else "idle"
    why = report.idle or ("it has no device" if state == "idle" else "")
    if not report.probed:
        state, why = "unprobed", "; ".join(report.warnings)
    return ZEDriverState(
        report.candidate.library,
        report.candidate.found_via,
        state,
        real_path=report.real_path,
        reason=report.reason or why,
        remedy=report.remedy,
        missing=report.missing,
        seconds=round(report.seconds, 3),
        version=report.version,
        tables=report.tables,
        devices=report.devices,
        notes=report.notes,
        warnings=report.warnings if report.probed else (),
    )


def report_variables() -> Iterator[tuple[str, str, str]]:
    """Name, value and effect of each variable that is set and bears on Level Zero."""
    for used in explain_variables(VARIABLES, _explain_no_effect):
        yield used.variable.name, used.value, used.outcome


def _explain_no_effect(variable: Variable, environ: Mapping[str, str]) -> str:
    is_switch = variable.name != VARIABLES[0].name
    return (
        "no effect: only 1 means something" if is_switch and environ[variable.name] != "1" else ""
    )


def format_lines(survey: ZESurvey, painted: Callable[[str], str]) -> Iterator[str]:
    """Yield the lines of a report.

    Args:
        painted: returns a state in its colour.
    """
    for driver in survey.drivers:
        about = f" (Level Zero {driver.version}, probed in {driver.seconds:.2f} s)"
        path = driver.real_path or driver.library
        yield f"{painted(driver.state)}: {path}{about if driver.version else ''}"
        if driver.real_path and driver.real_path != driver.library:
            yield f"  found as: {driver.library}"
        yield f"  found via: {driver.found_via}"
        for name, text in (("why", driver.reason), ("next", driver.remedy)):
            if text:
                yield f"  {name}: {text}"
        for device in driver.devices:
            yield f"  {device.type}: {device.name}, driver {device.driver_version}"
        yield from (f"  note: {note}" for note in (*driver.notes, *driver.warnings))
    for refusal in survey.refusals:
        yield f"{refusal.what}: {refusal.reason}"
    if not survey.drivers:
        yield "no Level Zero driver of a device's vendor here"
    if survey.own:
        yield f"fairlead brings a driver for every OpenCL device: {survey.own}"
    for place in survey.places:
        yield f"looked in {place.path}: {place.state} ({place.found_via})"
