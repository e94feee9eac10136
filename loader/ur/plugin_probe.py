"""Probes adapters and plugins in child processes, because they may crash or hang.

The child (`main`, called by `children`) loads the candidate with `adapters.load` and describes it.
The parent (`probe_all`) returns a `PluginReport` for each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..base.children import Outcome, Request, make_refusal, read_fields, run_all
from ..base.errors import FairleadError
from ..base.library_report import LibraryReport
from ..base.process_state import ProcessState
from .adapters import find_backend_library, load
from .devices import PluginPlatform
from .discovery import PluginCandidate


@dataclass(frozen=True)
class PluginDeviceReport:
    """A device as the child saw it."""

    name: str
    type: str
    driver_version: str
    backend: str


@dataclass(frozen=True)
class PluginPlatformReport:
    """A platform as the child saw it."""

    name: str
    version: str
    backend: str
    devices: tuple[PluginDeviceReport, ...]


@dataclass(frozen=True)
class PluginReport(LibraryReport):
    """The result of probing an adapter or plugin.

    Attributes:
        layout: the release whose tables an adapter has.
        opened: the real path of its backend's library, "" if it opened none.
    """

    layout: str = ""
    opened: str = ""
    platforms: tuple[PluginPlatformReport, ...] = ()


def probe_all(
    candidates: Sequence[PluginCandidate],
    timeout: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> list[PluginReport]:
    """Probe candidates on all cores, and return the reports in their order.

    Args:
        timeout: the limit for each in seconds, None for the default of `children`.
        environment: variables that are set while a plugin loads (`adapters.load`).
    """
    requests = [
        Request(__name__, {"candidate": asdict(candidate), "environment": dict(environment or {})})
        for candidate in candidates
    ]
    outcomes = run_all(requests, timeout)
    return [_make_report(*both) for both in zip(candidates, outcomes, strict=True)]


def main(data: Any, progress: Callable[[str], None]) -> dict[str, Any]:
    """Load the candidate, describe it, and close it. Runs in the child."""
    candidate = PluginCandidate(**{**data["candidate"], "manifest": None})
    os.environ.update(data["environment"])  # adapters in Python see them, too
    state = ProcessState.read()
    try:
        plugin = load(candidate, progress=progress)
    except FairleadError as error:
        return make_refusal(error)
    progress("asking its platforms for their devices")
    warnings = list(plugin.warnings)
    platforms = [
        _describe(number, platform, warnings) for number, platform in enumerate(plugin.platforms)
    ]
    warnings += state.describe_changes()
    answer = {
        "ok": True,
        "real_path": plugin.path,
        "version": plugin.version,
        "layout": plugin.binding.layout,
        "idle": plugin.idle,
        "remedy": plugin.remedy,
        "opened": find_backend_library(plugin.backend),
        "notes": plugin.notes,
        "platforms": platforms,
    }
    progress("closing it")
    before = len(plugin.warnings)
    plugin.close()
    return {**answer, "warnings": [*warnings, *plugin.warnings[before:]]}


def _describe(number: int, platform: PluginPlatform, warnings: list[str]) -> dict[str, Any]:
    """Describe a platform and its devices, as far as they answer."""
    devices: list[dict[str, str]] = []
    about = {"name": "", "version": "", "backend": platform.backend}
    try:
        about |= {"name": platform.name, "version": platform.version}
    except FairleadError as error:
        warnings.append(f"its platform {number} failed to describe itself: {error}")
    try:
        for device in platform.devices:
            devices.append(
                {
                    "name": device.name,
                    "type": device.type,
                    "driver_version": device.driver_version,
                    "backend": device.backend,
                }
            )
    except FairleadError as error:
        warnings.append(f"its platform {number} failed to describe its devices: {error}")
    return {**about, "devices": devices}


def _make_report(candidate: PluginCandidate, outcome: Outcome) -> PluginReport:
    fields = read_fields(outcome)
    platforms = tuple(
        PluginPlatformReport(
            **{
                **platform,
                "devices": tuple(PluginDeviceReport(**device) for device in platform["devices"]),
            }
        )
        for platform in fields.pop("platforms", ())
    )
    return PluginReport(candidate, platforms=platforms, **fields)
