"""Probes adapters and plugins in child processes, because they may crash or hang.

The child (`main`, called by `children`) loads the candidate with `adapters.load` and describes it.
The parent (`probe_all`) returns a `PluginReport` for each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from ..base.children import make_refusal
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

    @staticmethod
    def from_dict(data: dict[str, Any]) -> PluginPlatformReport:
        """Return the platform that `asdict` and JSON have made a dictionary of."""
        devices = tuple(PluginDeviceReport(**device) for device in data["devices"])
        return PluginPlatformReport(**{**data, "devices": devices})


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
    parts: ClassVar = {"platforms": PluginPlatformReport.from_dict}


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
    variables = dict(environment or {})
    given = ((one, {"candidate": asdict(one), "environment": variables}) for one in candidates)
    return PluginReport.probe_all(__name__, given, timeout)


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
    devices: list[PluginDeviceReport] = []
    name = version = ""
    try:
        name, version = platform.name, platform.version
    except FairleadError as error:
        warnings.append(f"its platform {number} failed to describe itself: {error}")
    try:
        for one in platform.devices:
            told = one.name, one.type, one.driver_version, one.backend
            devices.append(PluginDeviceReport(*told))
    except FairleadError as error:
        warnings.append(f"its platform {number} failed to describe its devices: {error}")
    return asdict(PluginPlatformReport(name, version, platform.backend, tuple(devices)))
