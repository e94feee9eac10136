"""Unified Runtime adapters and DPC++ PI plugins in `fairlead doctor`.

`survey` searches as programs do, but ignores the device selector. It probes every candidate in a
child process, with the OpenCL drivers that programs would register. It numbers the devices as
selectors do. No plugin is loaded into this process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ...loader.base.log import LEGAL, LEVELS, Settings, parse, read_trace_bits
from ...loader.base.search import Place, Refusal, filter_environ
from ...loader.trace.trace import APIS
from ...loader.ur.discovery import FIND, PluginCandidate
from ...loader.ur.plugin_config import find_shipped_config
from ...loader.ur.plugin_variables import explain_variables
from ...loader.ur.plugins import read_selector
from ...loader.ur.selector import Selector, make_selector_strings
from ...loader.ur.selector_grammar import (
    ONEAPI_DEVICE_SELECTOR,
    SYCL_BE,
    SYCL_DEVICE_FILTER,
    SelectorError,
)
from ...loader.ur.validation import parse_layer_names
from .states import LibraryState, explain_exclusion, read_report

if TYPE_CHECKING:
    from ...icd.probe import PlatformReport
    from ...loader.ur.plugin_probe import PluginPlatformReport, PluginReport
    from .diagnosis import DriverReport

_PARTS: Final = 64  # of a device, in a selector
_SELECTORS: Final = (ONEAPI_DEVICE_SELECTOR, SYCL_DEVICE_FILTER, SYCL_BE)
#: What the bits of a variable print.
_TRACES: Final = {
    "SYCL_PI_TRACE": (
        (1, "prints the plugins that are found"),
        (2, "prints the calls of PI and Unified Runtime to stdout"),
    ),
    "SYCL_UR_TRACE": (
        (1, "prints the adapters that are found"),
        (2, "prints the calls of Unified Runtime to stdout"),
    ),
}
#: The loggers that fairlead has, and what they say.
_LOGS: Final = {
    "LOADER": "messages about adapters that are searched and loaded",
    "TRACING": "calls (with UR_ENABLE_LAYERS=UR_LAYER_TRACING)",
    "VALIDATION": "what UR_ENABLE_LAYERS finds wrong",
}


@dataclass(frozen=True)
class PluginDeviceFacts:
    """A root device.

    Attributes:
        selector: the value of ONEAPI_DEVICE_SELECTOR that selects it alone.
        selected: whether the environment's device selector selects it. The selector's terms for
            sub-devices are not tried: a device counts if parts of it may be selected.
    """

    selector: str
    selected: bool
    type: str
    name: str
    driver_version: str


@dataclass(frozen=True)
class PluginPlatformFacts:
    """A platform of a plugin and its root devices."""

    name: str
    version: str
    backend: str
    devices: tuple[PluginDeviceFacts, ...]


@dataclass(frozen=True)
class PluginState(LibraryState):
    """An adapter or plugin that was found, and its state, which may also be "duplicate".

    Attributes:
        interface: "UR" or "PI".
        layout: the release whose tables it has.
        opened: the library of its backend that it found, "" if none. For OpenCL it is the
            libOpenCL.so.1 that it uses.
    """

    interface: str = ""
    backend: str = ""
    layout: str = ""
    opened: str = ""
    platforms: tuple[PluginPlatformFacts, ...] = ()

    @property
    def devices(self) -> tuple[PluginDeviceFacts, ...]:
        """The root devices of all its platforms."""
        return tuple(device for platform in self.platforms for device in platform.devices)


@dataclass(frozen=True)
class SelectorReport:
    """The device selector of the environment: what it means, or why it cannot be understood."""

    variable: str
    explanation: str = ""
    error: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class PluginSurvey:
    """All adapters and plugins.

    Attributes:
        drivers: the OpenCL drivers that are registered for the OpenCL loaders of plugins.
        reference: the path of fairlead's own adapter, "" if it is missing. The search finds it only
            if a variable names it.
        own_devices: the devices that it has in fairlead.runtime: those of the OpenCL drivers.
    """

    config: str = ""
    selector: SelectorReport | None = None
    places: tuple[Place, ...] = ()
    plugins: tuple[PluginState, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    drivers: tuple[str, ...] = ()
    reference: str = ""
    own_devices: tuple[PluginDeviceFacts, ...] = ()


def survey(usable: Sequence[DriverReport], timeout: float | None = None) -> PluginSurvey:
    """Search and probe.

    Args:
        timeout: seconds for each probe; None means FAIRLEAD_PROBE_TIMEOUT.
    """
    from ...api import register_drivers
    from ...loader.ur.plugin_probe import probe_all
    from ...plugins import reference_adapter

    found = {interface: find() for interface, find in FIND.items()}
    candidates = [
        c for search in found.values() for c in search.candidates if isinstance(c, PluginCandidate)
    ]
    excluded = {candidate: explain_exclusion(candidate) for candidate in candidates}
    wanted = [candidate for candidate, why in excluded.items() if not why]
    drivers = [driver.real_path for driver in usable]
    environment = register_drivers(drivers) if wanted else {}
    reports = {report.candidate: report for report in probe_all(wanted, timeout, environment)}
    selector, report = _read_selector()
    states: list[PluginState] = []
    for candidate in candidates:
        what: dict[str, Any] = {"interface": candidate.interface, "backend": candidate.backend}
        if excluded[candidate]:
            states.append(PluginState(**excluded[candidate], **what))
        else:
            states.append(_mark_duplicate(_make_state(reports[candidate], what), states))
    platforms = [
        _make_platform(platform, "opencl") for driver in usable for platform in driver.platforms
    ]
    own = PluginState("", "", "usable", interface="UR", platforms=tuple(platforms))
    return PluginSurvey(
        config=filter_environ().get("SYCL_PI_CONFIG") or str(find_shipped_config()),
        selector=report,
        places=tuple(place for search in found.values() for place in search.places),
        plugins=tuple(_number_devices(states, selector)),
        refusals=tuple(refusal for search in found.values() for refusal in search.refusals),
        drivers=tuple(drivers) if environment else (),
        reference=reference_adapter() if os.path.exists(reference_adapter()) else "",
        own_devices=next(_number_devices([own], selector)).devices,
    )


def _read_selector() -> tuple[Selector | None, SelectorReport | None]:
    try:
        selector = read_selector()
    except SelectorError as error:
        return None, SelectorReport(error.code, error=error.message, remedy=error.remedy)
    return selector, SelectorReport(selector.variable, selector.explain()) if selector else None


def _make_state(report: PluginReport, what: Mapping[str, Any]) -> PluginState:
    """Return the report of a probe, with its state. The selectors of its devices are not known
    yet."""
    return PluginState(
        **read_report(report, has_device=any(one.devices for one in report.platforms)),
        **what,
        layout=report.layout,
        opened=report.opened,
        platforms=tuple(_make_platform(one, one.backend) for one in report.platforms),
    )


def _make_platform(
    platform: PluginPlatformReport | PlatformReport, backend: str
) -> PluginPlatformFacts:
    devices = tuple(
        PluginDeviceFacts("", True, d.type.lower(), d.name, d.driver_version)
        for d in platform.devices
    )
    return PluginPlatformFacts(platform.name, platform.version, backend, devices)


def _mark_duplicate(state: PluginState, before: Sequence[PluginState]) -> PluginState:
    """Mark a plugin whose file is that of one before it; bare names tell that only once opened."""
    paths = {(other.interface, other.real_path): other for other in before if other.real_path}
    same = paths.get((state.interface, state.real_path))
    return (
        replace(state, state="duplicate", reason=f"same file as {same.library}", platforms=())
        if same
        else state
    )


# Which devices the selector selects


@dataclass(frozen=True, eq=False)
class _ProbedDevice:
    """A device as selectors see it.

    No probe divides it: it has as many parts as a number may name.
    """

    backend: str
    type: str
    root: _ProbedDevice | None = None
    level: int = 0

    def sub_devices(self) -> Sequence[_ProbedDevice]:
        parts = _PARTS if self.level < 2 else 0
        return [
            _ProbedDevice(self.backend, self.type, self.root or self, self.level + 1)
            for _ in range(parts)
        ]


def _number_devices(
    states: Sequence[PluginState], selector: Selector | None
) -> Iterator[PluginState]:
    """Yield the states with the selector strings of their devices; each interface counts its
    own."""
    seen = {
        id(device): _ProbedDevice(platform.backend, device.type)
        for state in states
        for platform in state.platforms
        for device in platform.devices
    }
    strings: dict[int, str] = {}
    selected: set[_ProbedDevice] = set()
    for interface in FIND:
        own = [
            id(device)
            for state in states
            if state.interface == interface
            for device in state.devices
        ]
        devices = [seen[key] for key in own]
        strings |= zip(own, make_selector_strings(devices), strict=True)
        selected |= {
            device.root or device for device in (selector.select(devices) if selector else devices)
        }
    for state in states:
        platforms = tuple(
            replace(
                platform,
                devices=tuple(
                    replace(d, selector=strings[id(d)], selected=seen[id(d)] in selected)
                    for d in platform.devices
                ),
            )
            for platform in state.platforms
        )
        yield replace(state, platforms=platforms)


# Variables


def report_variables() -> Iterator[tuple[str, str, str]]:
    """Name, value and effect of each variable that is set and bears on adapters and plugins."""
    environ = filter_environ()
    _, report = _read_selector()
    told = set(_SELECTORS)
    for used in explain_variables():
        if used.variable.name not in told:
            yield used.variable.name, used.value, used.outcome
    for name in sorted(os.environ):
        effect = _explain_effect(name, report)
        if effect:
            yield (
                name,
                os.environ[name],
                effect if name in environ else "ignored: this process is set-uid or set-gid",
            )


def _explain_effect(name: str, selector: SelectorReport | None) -> str:
    """Return what a variable does that has no part in the search; "" for one of other programs."""
    if name in _SELECTORS:
        return _explain_selector(name, selector)
    if name in _TRACES:
        bits = read_trace_bits(name)
        done = [text for bit, text in _TRACES[name] if bits & bit]
        return "; ".join(done) or "no effect: 1 prints what is found, 2 prints calls, -1 everything"
    if name.startswith("UR_LOG_"):
        return _explain_log(name.removeprefix("UR_LOG_"))
    return _EFFECTS[name](os.environ[name]) if name in _EFFECTS else ""


def _explain_selector(name: str, selector: SelectorReport | None) -> str:
    if not os.environ[name]:
        return "empty, which counts as not set"
    if selector is None:
        return ""
    if selector.variable == name:
        return selector.explanation or "illegal: see the verdict"
    return f"no effect: {selector.variable} is set, and wins over it"


def _explain_layers(value: str) -> str:
    unknown: list[str] = []
    on = sorted(parse_layer_names(report=unknown.append))
    done = [f"checks the calls through adapters: {', '.join(on)}"] if on else []
    done += ["prints them where UR_LOG_TRACING says"] if "UR_LAYER_TRACING" in value else []
    return "; ".join([*done, *unknown]) or "names no layer"


def _explain_trace(value: str) -> str:
    names = [name.strip() for name in value.split(",")]
    apis = ", ".join(name for name in APIS if name in names)
    if not apis:
        return f"no effect: it is a comma list of {', '.join(APIS)}"
    to_file = os.environ.get("FAIRLEAD_TRACE_FILE")
    where = "records them for FAIRLEAD_TRACE_FILE" if to_file else "prints them to stderr"
    return f"traces the calls of {apis}; {where}"


def _explain_trace_file(value: str) -> str:
    asked = os.environ.get("FAIRLEAD_TRACE")
    saved = "the calls that FAIRLEAD_TRACE names are saved there"
    return saved if asked else "no effect: FAIRLEAD_TRACE is not set"


_EFFECTS: Final = {
    "UR_ENABLE_LAYERS": _explain_layers,
    "FAIRLEAD_TRACE": _explain_trace,
    "FAIRLEAD_TRACE_FILE": _explain_trace_file,
}


def _explain_log(name: str) -> str:
    if name not in _LOGS:
        return "no effect on fairlead, which has no such messages; an adapter may heed it"
    try:
        chosen = parse(filter_environ().get(f"UR_LOG_{name}", ""), Settings(LEVELS.index("quiet")))
    except ValueError as error:
        return f"ignored: {error}; write {LEGAL}"
    where = chosen.path or chosen.output
    return f"{_LOGS[name]}, from level {LEVELS[chosen.level]}, go to {where}"
