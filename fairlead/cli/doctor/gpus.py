"""Drivers of CUDA and HIP in `fairlead doctor`.

`survey` looks in the places of both searches, and probes what is there in child processes. So it
does with the compilers of their adapters.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ...loader.base.children import Outcome, Request, run_all
from ...loader.base.linker import find_library
from ...loader.base.search import Candidate
from ...loader.gpu.probe import probe_all
from ..gpus import SEARCHES
from .states import LibraryState, explain_exclusion, format_reason, read_report

#: Variables of the drivers that hide devices.
_HIDING: Final = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
)
#: The modules that open the compilers of an adapter, by the interface.
_COMPILERS: Final = {
    "CUDA": "fairlead.plugins.cuda.compilers",
    "HIP": "fairlead.plugins.hip.compilers",
}


@dataclass(frozen=True)
class GpuDriverState(LibraryState):
    """A driver that was found, and its state.

    Attributes:
        interface: "CUDA" or "HIP".
        compilers: which compiler the adapter takes, or why it has none, by the language. Empty for
            a driver that does not load.
    """

    interface: str = ""
    devices: tuple[str, ...] = ()
    compilers: Mapping[str, str] = field(default_factory=dict[str, str])


def survey(timeout: float | None = None) -> tuple[GpuDriverState, ...]:
    """Search and probe.

    Args:
        timeout: seconds for each probe; None means FAIRLEAD_PROBE_TIMEOUT.
    """
    found = tuple(state for interface in SEARCHES for state in _find_states(interface, timeout))
    compilers = _find_compilers({one.interface for one in found if can_load(one)}, timeout)
    return tuple(
        replace(one, compilers=compilers[one.interface]) if can_load(one) else one for one in found
    )


def can_load(driver: GpuDriverState) -> bool:
    """Whether the compiler's library loads."""
    return driver.state in ("usable", "idle")


def _find_compilers(
    interfaces: Iterable[str], timeout: float | None
) -> Mapping[str, Mapping[str, str]]:
    """Return the compilers of adapters by the interface. A child process opens them."""
    names = sorted(interfaces)
    outcomes = run_all([Request(_COMPILERS[name], {}) for name in names], timeout)
    return {
        name: one.report["compilers"] if one.report else {"every language": _describe_failure(one)}
        for name, one in zip(names, outcomes, strict=True)
    }


def _describe_failure(outcome: Outcome) -> str:
    return f"unknown: {outcome.reason or '; '.join(outcome.notes)}"


def _find_states(interface: str, timeout: float | None) -> Iterator[GpuDriverState]:
    search = SEARCHES[interface]
    files: dict[str, Candidate] = {}
    for candidate in search.steps:
        name = candidate.library
        path = name if "/" in name else find_library(name)
        if path and os.path.exists(path):
            files.setdefault(os.path.realpath(path), candidate)
    excluded = {path: explain_exclusion(candidate) for path, candidate in files.items()}
    wanted = [candidate for path, candidate in files.items() if not excluded[path]]
    reports = iter(probe_all(search.name, wanted, timeout))
    for path, why in excluded.items():
        if why:
            yield GpuDriverState(**why, real_path=path, interface=interface)
        else:
            report = next(reports)
            fields = read_report(report, has_device=bool(report.devices))
            fields["real_path"] = path
            yield GpuDriverState(**fields, interface=interface, devices=report.devices)


def report_variables() -> Iterator[tuple[str, str, str]]:
    """Name, value and effect of each variable that is set and hides devices from a driver."""
    for name in _HIDING:
        if name in os.environ:
            yield name, os.environ[name], "its driver hides the devices that it does not name"


def format_lines(
    states: tuple[GpuDriverState, ...], painted: Callable[[str], str]
) -> Iterator[str]:
    """Yield the lines of a report.

    Args:
        painted: returns a state in its colour.
    """
    for one in states:
        version = f", {one.version}" if one.version else ""
        yield f"{painted(one.state)}: {one.interface} {one.real_path}{version}"
        yield f"  found via: {one.found_via}"
        yield from format_reason(one)
        yield from (f"  GPU: {device}" for device in one.devices)
        yield from (f"  compiler of {language}: {name}" for language, name in one.compilers.items())
        yield from (f"  note: {warning}" for warning in one.warnings)
    for interface, search in SEARCHES.items():
        if not any(one.interface == interface for one in states):
            names = ", ".join(candidate.library for candidate in search.steps)
            yield f"no {interface} driver here: looked for {names}"
