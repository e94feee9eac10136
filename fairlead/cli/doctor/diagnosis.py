"""`fairlead doctor`: gathers the facts about drivers, adapters and plugins here.

`examine` searches, probes every candidate in child processes, and examines the surroundings of
drivers. The result is a `Diagnosis` of plain values: `dataclasses.asdict` makes JSON of it,
report.py makes text. No driver is loaded into this process. plugins.py examines adapters and
plugins; level_zero.py and gpus.py examine the drivers of Level Zero, CUDA and HIP; packages.py
examines what other packages register. problems.py says what is a problem, and which problems make
the exit code 1.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from ... import __version__
from ...icd import discovery, libopencl
from ...icd.command_buffer import cuda_trust, direct_trust
from ...icd.driver_profiles import ROWS, ProfileRow, find_profile_by_names, parse_switches
from ...icd.drivers import find_excluding_pattern
from ...icd.probe import PlatformReport, ProbeReport, probe_all
from ...loader.base import own_files, probe_verdicts
from ...loader.base.children import DEFAULT_TIMEOUT
from ...loader.base.search import Candidate, Place, Refusal, filter_environ
from . import clients, gpus, hiding, level_zero, loaders, packages
from . import machine as nodes
from . import plugins as plugin_doctor
from .plugins import PluginSurvey
from .problems import Problem, find_problems, is_gone

#: The refusal of a driver that loads and has no platform (cl_khr_icd: such drivers answer
#: CL_PLATFORM_NOT_FOUND_KHR).
_NO_PLATFORM: Final = "it has no platform"


@dataclass(frozen=True)
class VariableReport:
    """An environment variable that is set, and what it did."""

    name: str
    value: str
    outcome: str


@dataclass(frozen=True)
class DriverReport:
    """A candidate and what became of it.

    `state` is one of

    - "usable",
    - "idle": it loads, and has no device,
    - "refused": `reason` and `remedy` say why; also if none of its devices describes itself,
    - "unprobed": its child process did not start, so nothing is known; a note says why,
    - "absent": its package registers it and did not install it (see problems.py),
    - "excluded" by FAIRLEAD_EXCLUDE,
    - "duplicate": it is the same file as another one.

    Attributes:
        manifest: the file that names it, "" if a variable does.
        real_path: the file that `library` came to, "" if none was opened.
        missing: the libraries that it needs and that were not found.
        seconds: how long its probe took.
        quirks: the ids of the repairs that were applied.
        habits: the ids of the habits that apply.
        handlers: the signals whose handlers it changes in the process, "SIGINT".
        direct: on PoCL, whether the engine `direct` runs its kernels, "on: self-tested", or
            "off: " and why.
        cuda: on NVIDIA's driver, the same for the engine `cuda`.
        notes: what is odd about it although it works.
    """

    library: str
    found_via: str
    manifest: str
    state: str
    real_path: str = ""
    reason: str = ""
    remedy: str = ""
    missing: tuple[str, ...] = ()
    seconds: float = 0.0
    icd_version: int = 0
    platforms: tuple[PlatformReport, ...] = ()
    quirks: tuple[str, ...] = ()
    habits: tuple[str, ...] = ()
    handlers: tuple[str, ...] = ()
    direct: str = ""
    cuda: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class QuirkReport:
    """A row of docs/driver_profiles.md; `state` names the drivers that it is applied to, if any, or
    says that it is switched off.

    `when` says what it applies to, `answers` is the evidence for it, `active` says whether it is
    applied to a driver.
    """

    id: str
    when: str
    does: str
    answers: str
    state: str
    active: bool = False


@dataclass(frozen=True)
class Diagnosis:
    """All that `fairlead doctor` knows.
    `hidden` has the variables without which there would be more drivers, and their libraries.
    `default_loader` is the real path of the libOpenCL.so.1 that a program of this user gets.
    `no_cache` is what fairlead does not use as its cache, and why.
    """

    versions: dict[str, str]
    variables: tuple[VariableReport, ...]
    places: tuple[Place, ...]
    drivers: tuple[DriverReport, ...]
    hidden: dict[str, tuple[str, ...]]
    refusals: tuple[Refusal, ...]
    quirks: tuple[QuirkReport, ...]
    loaders: tuple[loaders.LoaderCopy, ...]
    default_loader: str
    pyopencl: loaders.PyOpenCL | None
    nodes: tuple[nodes.DeviceNode, ...]
    caches: tuple[nodes.CacheDirectory, ...]
    plugins: PluginSurvey = field(default_factory=PluginSurvey)
    level_zero: level_zero.ZESurvey = field(default_factory=level_zero.ZESurvey)
    gpus: tuple[gpus.GpuDriverState, ...] = ()
    packages: tuple[packages.PackageEntry, ...] = ()
    clients: tuple[clients.Client, ...] = ()
    misread: tuple[clients.MisreadManifest, ...] = ()
    problems: tuple[Problem, ...] = ()
    no_cache: tuple[str, str] | None = None

    @property
    def ok(self) -> bool:
        """Whether doctor has found no error. problems.py decides what an error is."""
        return all(problem.severity != "error" for problem in self.problems)

    @property
    def usable(self) -> tuple[DriverReport, ...]:
        """The drivers that have a device to offer."""
        return tuple(driver for driver in self.drivers if driver.state == "usable")

    def as_dict(self) -> dict[str, Any]:
        """Return what `--json` prints: `ok`, then every field of this class, in their order."""
        return {"ok": self.ok, **asdict(self)}


def examine(timeout: float | None = None) -> Diagnosis:
    """Gather the facts and judge them.

    Args:
        timeout: seconds for each probe; None means FAIRLEAD_PROBE_TIMEOUT, else 20.
    """
    libopencl.forget_refusals()  # programs see what this report says
    probe_verdicts.forget_refusals()
    search = discovery.find()
    drivers = _probe_drivers(search.candidates, timeout)
    pyopencl, default_loader = loaders.find_pyopencl(), loaders.find_default_copy()
    facts = Diagnosis(
        versions={
            "fairlead": __version__,
            "python": platform.python_version(),
            "executable": sys.executable,
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "user": nodes.find_user_name(),
        },
        variables=(
            *_report_variables(),
            *_report_own_variables(drivers),
            *(VariableReport(*used) for used in plugin_doctor.report_variables()),
            *(VariableReport(*used) for used in level_zero.report_variables()),
            *(VariableReport(*used) for used in gpus.report_variables()),
        ),
        places=search.places,
        drivers=drivers,
        hidden=hiding.find_hidden_drivers(drivers, timeout),
        refusals=search.refusals,
        quirks=_report_quirks(drivers),
        loaders=loaders.find_copies(pyopencl.loader if pyopencl else ""),
        default_loader=default_loader,
        pyopencl=pyopencl,
        nodes=nodes.find_device_nodes(),
        caches=nodes.find_cache_directories(driver.real_path for driver in drivers),
        no_cache=own_files.why_no_cache(),
        plugins=plugin_doctor.survey(
            [driver for driver in drivers if driver.state == "usable"], timeout
        ),
        level_zero=level_zero.survey(timeout),
        gpus=gpus.survey(timeout),
        packages=packages.survey(timeout),
        clients=clients.survey(pyopencl, default_loader, drivers, timeout),
        misread=tuple(clients.find_misread_manifests(drivers)),
    )
    return replace(facts, problems=find_problems(facts))


# The facts


def _report_variables() -> Iterator[VariableReport]:
    for used in discovery.explain_variables():
        yield VariableReport(used.variable.name, used.value, used.outcome)


#: What the other variables of docs/variables.md do, whatever the drivers are.
_EFFECTS: Final = {
    "CONDA_PREFIX": "its etc/OpenCL/vendors is searched after that of the Python environment",
    "FAIRLEAD_TRACE_ONLY": "only calls of these functions are printed",
    "FAIRLEAD_TRACE_DUMP": "sources and build logs of programs go there, if calls go to a file",
    "FAIRLEAD_TRACE_DEVICE": "a trace in a file also says what devices did",
    "FAIRLEAD_FUSE": "whether kernels of a graph are joined",
    "FAIRLEAD_COMMAND_BUFFER": "the engines that may run graphs and command-buffers",
    "FAIRLEAD_CUDA": "1 shares buffers on NVIDIA's platform with CUDA",
    "FAIRLEAD_CUDA_POOL": "how many MiB of released memory are kept where CUDA shares it",
    "ROCM_PATH": "the folder in which the adapter for HIP looks for OpenCL's declarations first",
    "FAIRLEAD_LAYER_LOG": "1 prints what the command-buffer layer refuses",
    "FAIRLEAD_CALLS": "c or python: where frequent calls begin in our adapters and drivers",
    "FAIRLEAD_ZE_COMMAND_BUFFER": "how the adapter on Level Zero runs command-buffers",
    "FAIRLEAD_ZE_EVENTS": "which events in-order lists signal in the adapter on Level Zero",
    "FAIRLEAD_USM": "what the reference adapter makes USM of",
    "FAIRLEAD_ZE_IDENTITY": "what devices of the Level Zero driver say that they are",
    "FAIRLEAD_PYTHON": "the Python that programs without one start; 0 is none for libOpenCL.so.1",
    "FAIRLEAD_UR_LAYOUT": "the layout of UR's tables",
    "FAIRLEAD_NULL_PLATFORM": "what a NULL platform means to libOpenCL.so.1",
    "FAIRLEAD_ZE_SUB_DEVICES": "how many sub-devices a device of the Level Zero driver has",
    "ZE_FLAT_DEVICE_HIERARCHY": "which parts of the Level Zero driver's devices are devices",
    "ZE_AFFINITY_MASK": "which devices and sub-devices of the Level Zero driver programs see",
    "ZE_ENABLE_NULL_DRIVER": "1 adds libze_null.so.1 of Intel's loader in libze_loader.so.1",
    "ZE_ENABLE_LOADER_DEBUG_TRACE": "1 has libze_loader.so.1 print which drivers it left out",
}


def _report_own_variables(drivers: Sequence[DriverReport]) -> Iterator[VariableReport]:
    """fairlead's own variables, which other loaders do not know."""
    left_out = ", ".join(driver.library for driver in drivers if driver.state == "excluded")
    probe_off = filter_environ().get("FAIRLEAD_PROBE") == "0"
    outcomes = {
        "FAIRLEAD_EXCLUDE": f"leaves out {left_out}"
        if left_out
        else "no effect: it fits no driver that was found",
        "FAIRLEAD_QUIRKS": _describe_switches(),
        "FAIRLEAD_PROBE": "programs open drivers without a probe; "
        "this report probes them all the same"
        if probe_off
        else "no effect: only 0 means something",
        "FAIRLEAD_PROBE_TIMEOUT": "the seconds that a probe may take, "
        f"{DEFAULT_TIMEOUT:g} if it is not a number",
        **_EFFECTS,
    }
    for name, outcome in outcomes.items():
        if name in os.environ:
            trusted = name in filter_environ()
            yield VariableReport(
                name,
                os.environ[name],
                outcome if trusted else "ignored: this process is set-uid or set-gid",
            )


def _probe_drivers(
    candidates: Sequence[Candidate], timeout: float | None
) -> tuple[DriverReport, ...]:
    """Probe what is not excluded; the reports are in the order of the search."""
    patterns = {candidate: find_excluding_pattern(candidate) for candidate in candidates}
    probed = iter(
        probe_all([candidate for candidate in candidates if not patterns[candidate]], timeout)
    )
    reports: list[DriverReport] = []
    for candidate in candidates:
        if patterns[candidate]:
            reason = f"FAIRLEAD_EXCLUDE leaves it out ({patterns[candidate]})"
            reports.append(
                replace(_report_driver(ProbeReport(candidate, False, reason)), state="excluded")
            )
        else:
            reports.append(_mark_duplicate(_report_driver(next(probed)), reports))
    folders = {os.path.dirname(driver.manifest) for driver in reports if driver.state == "usable"}
    reports = [_mark_absent(driver) if _is_spare(driver, folders) else driver for driver in reports]
    return tuple(_add_engines(reports))


def _report_driver(report: ProbeReport) -> DriverReport:
    """Return the report of a probe, with its state."""
    candidate = report.candidate
    devices = report.devices
    faults = [item.fault for item in (*report.platforms, *devices) if item.fault]
    broken = report.ok and bool(faults) and all(device.fault for device in devices)
    idle = (report.ok and not devices and not faults) or _NO_PLATFORM in report.reason
    states = {
        "unprobed": not report.probed,
        "idle": idle,
        "usable": report.ok and not broken,
        "refused": True,
    }
    state = next(name for name, applies in states.items() if applies)
    return DriverReport(
        library=candidate.library,
        found_via=candidate.found_via,
        manifest=str(candidate.manifest or ""),
        state=state,
        real_path=report.real_path,
        reason=report.reason
        or (faults[0] if broken else "it has no device" if state == "idle" else ""),
        remedy=report.remedy or ("update the driver" if broken else ""),
        missing=report.missing,
        seconds=round(report.seconds, 3),
        icd_version=report.icd_version,
        platforms=report.platforms,
        quirks=report.quirks,
        habits=report.habits,
        handlers=report.handlers,
        cuda=_describe_cuda(report) if state == "usable" else "",
        notes=report.notes,
    )


def _add_engines(drivers: Sequence[DriverReport]) -> Iterator[DriverReport]:
    """Say of drivers that are PoCL what the engine `direct` does with them.

    That is what programs do: who has passed the self-test is not tested again.
    """
    pocl = [driver.real_path for driver in drivers if _has_kernels_in_process(driver)]
    why_not = direct_trust.judge_libraries(pocl)
    for driver in drivers:
        is_judged = driver.state == "usable" and driver.real_path in why_not
        direct = _format_switch(why_not[driver.real_path]) if is_judged else ""
        yield replace(driver, direct=direct)


def _has_kernels_in_process(driver: DriverReport) -> bool:
    return driver.state == "usable" and any(
        find_profile_by_names(one.name, one.vendor, one.version).has_kernels_in_process
        for one in driver.platforms
    )


def _describe_cuda(report: ProbeReport) -> str:
    """Return what the engine `cuda` does with a driver; "" for one whose compiler gives no PTX."""
    profiles = (
        find_profile_by_names(one.name, one.vendor, one.version) for one in report.platforms
    )
    if any(profile.compiles_to_ptx for profile in profiles):
        return _format_switch(cuda_trust.try_library(report.real_path))
    return ""


def _format_switch(why_not: str | None) -> str:
    return f"off: {why_not}" if why_not else "on: self-tested"


def _mark_duplicate(driver: DriverReport, before: Iterable[DriverReport]) -> DriverReport:
    """Mark a driver whose file is that of one before it.

    The search tells paths apart; the file of a bare soname is known once it was opened.
    """
    same = next(
        (other for other in before if driver.real_path and other.real_path == driver.real_path),
        None,
    )
    return (
        replace(driver, state="duplicate", reason=f"same file as {same.library}")
        if same
        else driver
    )


def _is_spare(driver: DriverReport, folders: set[str]) -> bool:
    """Return whether the library is missing, and a manifest beside its own names a usable driver.

    Both manifests are in a Python environment.
    """
    return (
        is_gone(driver)
        and driver.found_via in ("Python prefix", "PoCL wheel")
        and os.path.dirname(driver.manifest) in folders
    )


def _mark_absent(driver: DriverReport) -> DriverReport:
    remedy = f"nothing; or, to have it no longer registered, delete {driver.manifest}"
    return replace(
        driver,
        state="absent",
        reason="the package that registers it did not install it",
        remedy=remedy,
    )


def _report_quirks(drivers: Sequence[DriverReport]) -> tuple[QuirkReport, ...]:
    off, _ = parse_switches()

    def report(row: ProfileRow) -> QuirkReport:
        applied = ", ".join(
            driver.real_path for driver in drivers if row.id in (*driver.quirks, *driver.habits)
        )
        state = f"applied to {applied}" if applied else "not needed"
        state = "switched off by FAIRLEAD_QUIRKS" if row.id in off else state
        return QuirkReport(row.id, str(row.applies), row.does, row.evidence, state, bool(applied))

    return tuple(map(report, ROWS))


def _describe_switches() -> str:
    """Return what FAIRLEAD_QUIRKS does."""
    off, unknown = parse_switches()
    ids = [row.id for row in ROWS if row.id in off]
    repairs = {row.id for row in ROWS if row.is_repair}
    what = "all repairs are" if off == repairs else f"{', '.join(ids)} {_choose_verb(ids)}"
    parts = [f"{what} switched off" if off else "no effect"]
    parts += [f"{', '.join(unknown)} {_choose_verb(unknown)} not understood"] if unknown else []
    hint = " (-ID switches off the row of that id, 0 all repairs)" if unknown else ""
    return "; ".join(parts) + hint


def _choose_verb(things: Sequence[str]) -> str:
    return "is" if len(things) == 1 else "are"
