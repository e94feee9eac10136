"""Tries drivers in child processes, so that one that crashes or hangs does not harm the caller.

`probe_all` starts a child process for each candidate (loader/base/children.py). The child (`main`)
loads the driver with `drivers.load`, lists its platforms and devices, makes a context for each
device, and returns a `ProbeReport`. If a child ends too early, the parent makes the report.

Nothing is remembered here. `fairlead doctor` calls this module. `drivers()` calls
loader/base/probe_verdicts.py, which remembers.
"""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from ..loader.base.children import Outcome, Request, decode_candidate, run_all
from ..loader.base.errors import FairleadError, LibraryError, explain_error
from ..loader.base.frozen_value import Value, convert_for_json
from ..loader.base.process_state import ProcessState
from ..loader.base.search import Candidate
from .driver_profiles import list_habits
from .drivers import load
from .errors import check
from .objects import CLDevice, CLPlatform

#: How the steps begin that come after a driver has listed its platforms.
_BEHIND_THE_LIST: Final = ("asking ", "making ")


class DeviceReport(Value):
    """A device as the child saw it; `global_mem` in bytes.

    `fault` says which question it failed to answer; what was not asked then has its default.
    """

    name: str
    type: str = ""
    version: str = ""
    driver_version: str = ""
    compute_units: int = 0
    global_mem: int = 0
    fault: str = ""


class PlatformReport(Value):
    """A platform as the child saw it; `fault` says why its devices could not be listed."""

    name: str
    vendor: str
    version: str
    suffix: str
    icd_version: int
    notes: tuple[str, ...]
    devices: tuple[DeviceReport, ...]
    fault: str = ""

    @property
    def device_faults(self) -> tuple[str, ...]:
        """The fault, if there is one, under the name that `CLPlatform` has for it."""
        return (self.fault,) if self.fault else ()


class ProbeReport(Value):
    """The result of one probe: `ok`, or the reason and the remedy.

    Attributes:
        seconds: how long the child took to load and question the driver.
        icd_version: the highest of its platforms.
        quirks: the ids of the repairs that were applied (`driver_profiles`).
        habits: the ids of the habits that apply.
        handlers: the signals whose handlers it changes in the process, "SIGINT".
        missing: the libraries that it needs and that were not found.
        notes: what is odd about it although it works, refused platforms among them.
        probed: False if no child could be started: then nothing is known, and `ok` is True.
        listed: whether the driver did list its platforms, where it failed later.
    """

    candidate: Candidate
    ok: bool
    reason: str = ""
    remedy: str = ""
    seconds: float = 0.0
    real_path: str = ""
    icd_version: int = 0
    platforms: tuple[PlatformReport, ...] = ()
    quirks: tuple[str, ...] = ()
    habits: tuple[str, ...] = ()
    handlers: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    probed: bool = True
    listed: bool = False

    @property
    def devices(self) -> list[DeviceReport]:
        """Those of all of its platforms."""
        return [device for platform in self.platforms for device in platform.devices]

    def as_dict(self) -> dict[str, Any]:
        """The report in types that JSON has."""
        return json.loads(json.dumps(self.get_fields(), default=convert_for_json))

    @staticmethod
    def from_dict(data: dict[str, Any]) -> ProbeReport:
        """The report that `as_dict` gave."""
        lists = {
            name: tuple(data[name]) for name in ("quirks", "habits", "handlers", "missing", "notes")
        }
        platforms = tuple(map(_decode_platform, data["platforms"]))
        return ProbeReport(
            **{
                **data,
                **lists,
                "candidate": decode_candidate(data["candidate"]),
                "platforms": platforms,
            }
        )


def probe(candidate: Candidate, timeout: float | None = None) -> ProbeReport:
    """Probe one candidate."""
    return probe_all((candidate,), timeout)[0]


def probe_all(candidates: Sequence[Candidate], timeout: float | None = None) -> list[ProbeReport]:
    """Probe candidates in child processes, on all cores. Return the reports in their order.

    Args:
        timeout: seconds for each; None means FAIRLEAD_PROBE_TIMEOUT.
    """
    return _run(candidates, timeout, devices=True)


def list_all(candidates: Sequence[Candidate], timeout: float | None = None) -> list[ProbeReport]:
    """Probe candidates as `probe_all` does, but ask no driver for its devices."""
    return _run(candidates, timeout, devices=False)


def _run(
    candidates: Sequence[Candidate], timeout: float | None, *, devices: bool
) -> list[ProbeReport]:
    requests = [Request(__name__, {**one.get_fields(), "devices": devices}) for one in candidates]
    return list(map(_report, candidates, run_all(requests, timeout)))


def _report(candidate: Candidate, outcome: Outcome) -> ProbeReport:
    if outcome.report is None:
        words = (outcome.reason, outcome.remedy, outcome.seconds)
        return ProbeReport(
            candidate,
            not outcome.probed,
            *words,
            notes=outcome.notes,
            probed=outcome.probed,
            listed=outcome.step.startswith(_BEHIND_THE_LIST),
        )
    report = ProbeReport.from_dict(outcome.report)
    return report.copy_with(notes=(*report.notes, *outcome.notes))


# The child


def main(data: dict[str, Any], progress: Callable[[str], None]) -> dict[str, Any]:
    """Called in the child: probe the candidate whose `fields` are in `data`."""
    devices = data.pop("devices")
    return describe(decode_candidate(data), progress, devices=devices).as_dict()


def describe(
    candidate: Candidate, progress: Callable[[str], None], *, devices: bool = True
) -> ProbeReport:
    """Load the candidate in this process and ask it about its devices.

    Args:
        progress: is called with what comes next, such as "opening the library".
        devices: whether it is asked for them.
    """
    started, state = time.monotonic(), ProcessState.read()
    try:
        driver = load(candidate, progress=progress)
    except FairleadError as error:
        missing = error.missing if isinstance(error, LibraryError) else ()
        return ProbeReport(
            candidate,
            False,
            explain_error(error, with_code=True),
            error.remedy,
            time.monotonic() - started,
            missing=missing,
        )
    notes = [f"{refusal.what}: {refusal.reason}" for refusal in driver.refusals]
    platforms = tuple(
        _report_platform(platform, notes, progress, devices=devices)
        for platform in driver.platforms
    )
    notes += state.describe_changes()
    return ProbeReport(
        candidate,
        True,
        seconds=time.monotonic() - started,
        real_path=driver.path,
        icd_version=max(platform.icd_version for platform in platforms),
        platforms=platforms,
        quirks=driver.quirks,
        habits=_list_habits(driver.platforms),
        handlers=state.find_changed_handlers(),
        notes=tuple(notes),
    )


def _list_habits(platforms: Sequence[CLPlatform]) -> tuple[str, ...]:
    rows = [
        row.id
        for platform in platforms
        for row in list_habits(platform.name, platform.vendor, platform.version)
    ]
    return tuple(dict.fromkeys(rows))


def _report_platform(
    platform: CLPlatform, notes: list[str], progress: Callable[[str], None], *, devices: bool
) -> PlatformReport:
    found: list[DeviceReport] = []
    faults: list[str] = []
    fault = ""
    try:
        if devices:
            progress(f"asking the platform {platform.name!r} for its devices")
            for number, device in enumerate(platform.devices):
                report = _report_device(device, number, progress)
                found.append(report)
                faults.append(report.fault or _find_context_fault(device, progress))
            notes += platform.device_faults
    except FairleadError as error:
        fault = explain_error(error, with_code=True)
    notes += filter(None, (fault, *faults))
    values = (
        platform.name,
        platform.vendor,
        platform.version,
        platform.suffix,
        platform.icd_version,
        platform.notes,
    )
    return PlatformReport(*values, tuple(found), fault)


def _report_device(device: CLDevice, number: int, progress: Callable[[str], None]) -> DeviceReport:
    values: dict[str, Any] = {"name": f"device {number}"}
    try:
        progress(f"asking device {number} of the platform {device.platform.name!r} about itself")
        for name in ("name", "type", "version", "driver_version"):
            values[name] = getattr(device, name)
        values["compute_units"] = device.info("CL_DEVICE_MAX_COMPUTE_UNITS")
        values["global_mem"] = device.info("CL_DEVICE_GLOBAL_MEM_SIZE")
    except FairleadError as error:
        fault = f"the device {values['name']!r} fails to describe itself: "
        return DeviceReport(**values, fault=fault + explain_error(error, with_code=True))
    return DeviceReport(**values)


def _find_context_fault(device: CLDevice, progress: Callable[[str], None]) -> str:
    """Why no context can be made for a device; "" if one can."""
    progress(f"making a context for the device {device.name!r}")
    try:
        _try_context(device)
    except FairleadError as error:
        return explain_error(error, with_code=True)
    return ""


def _try_context(device: CLDevice) -> None:
    code, devices = ctypes.c_int32(), (ctypes.c_void_p * 1)(device.handle)
    context = device.table.clCreateContext(None, 1, devices, None, None, ctypes.byref(code))
    check(code.value, "clCreateContext", f"(device {device.name!r})")
    check(device.table.clReleaseContext(context), "clReleaseContext")


def _decode_platform(data: dict[str, Any]) -> PlatformReport:
    devices = tuple(DeviceReport(**device) for device in data["devices"])
    return PlatformReport(**{**data, "notes": tuple(data["notes"]), "devices": devices})
