"""Level Zero drivers in `fairlead doctor`.

`survey` searches as programs do, and probes every candidate in a child process. No driver is loaded
into this process. fairlead's own driver is only named: its devices are those of OpenCL.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ...loader.base.search import Place, Refusal, Variable, explain_variables
from ...loader.ze.discovery import OWN, VARIABLES, find_drivers
from ...loader.ze.probe import ZEDeviceReport, ZEDriverReport, probe_all
from .states import LibraryState, explain_exclusion, format_reason, read_report


@dataclass(frozen=True)
class ZEDriverState(LibraryState):
    """A Level Zero driver that was found, and its state.

    Attributes:
        tables: the version of its tables, at most that of fairlead.
    """

    tables: str = ""
    devices: tuple[ZEDeviceReport, ...] = ()


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
    excluded = {candidate: explain_exclusion(candidate) for candidate in found.candidates}
    wanted = [candidate for candidate, why in excluded.items() if not why]
    reports = {report.candidate: report for report in probe_all(wanted, timeout)}
    states = (
        ZEDriverState(**why) if why else _make_state(reports[candidate])
        for candidate, why in excluded.items()
    )
    own = OWN if os.path.exists(OWN) else ""
    return ZESurvey(found.places, tuple(states), found.refusals, own)


def _make_state(report: ZEDriverReport) -> ZEDriverState:
    fields = read_report(report, has_device=bool(report.devices))
    return ZEDriverState(**fields, tables=report.tables, devices=report.devices)


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
        yield from format_reason(driver)
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
