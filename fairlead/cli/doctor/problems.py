"""What `fairlead doctor` calls a problem.

`find_problems` judges the facts of a `Diagnosis`. These problems are errors: `Diagnosis.ok` is
False, and the exit code of the command is 1:

- no driver with a device is usable (a warning if an adapter or plugin has a device);
- a driver, adapter or plugin was found and not probed, because no child process started;
- one was found and refused: it crashes, hangs, lacks a library, breaks the protocol, is another
  kind of file, or is missing;
- a manifest, or a directory of them, cannot be read or names no usable file;
- a variable names something that does not exist, or hides all drivers;
- PyOpenCL is installed, and the libOpenCL that it needs is not found;
- PyOpenCL, or a program that loads libOpenCL.so.1, has no platform although fairlead has one;
- a manifest says what fairlead understands and other loaders do not;
- a driver cannot write the cache without which it has no device;
- a driver links kernels by a program that PATH has not, or with libraries that are missing;
- a driver finds no device, and this user has no access to a device node;
- the device selector cannot be understood, or selects no device of any adapter or plugin (a
  warning if only fairlead's own adapter has devices).

These are warnings, and `ok` stays True:

- a manifest in a Python environment names a library that is missing, and a manifest beside it is
  that of a usable driver: Intel's wheel has such an `intel-fpga_emu.icd`;
- a driver finds no device, and all device nodes are accessible: its hardware is not in this
  machine;
- an adapter or plugin finds no device;
- what another package registers cannot be imported;
- PyOpenCL or libOpenCL.so.1 finds some of the usable drivers, and not all; or none, where only
  packages of this Python, such as Intel's, have drivers;
- something is odd about a usable driver, adapter or plugin: a platform was refused, a device does
  not describe itself, a context cannot be made, it crashes at exit, it changes the process;
- an item of FAIRLEAD_QUIRKS has no meaning;
- this user has no access to a device node; an NVIDIA or AMD device has no driver; another cache
  cannot be written.

These are not problems: a machine without adapters and plugins, a second path to a file, what
FAIRLEAD_EXCLUDE excludes, and own manifests of drivers that are not installed. On a machine without
a GPU these are none, either: an adapter that misses its vendor's library (libze_loader.so.1), and a
driver of Level Zero, CUDA or HIP that has no device.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from glob import glob
from typing import TYPE_CHECKING, Final

from ...icd.discovery import OF_PYTHON
from ...icd.driver_profiles import find_profile_by_names, parse_switches
from ...icd.drivers import name_first_driver
from ...loader.base.search import filter_environ
from .clients import ENV
from .hiding import explain_idle, find_disabled_repair

if TYPE_CHECKING:
    from .diagnosis import Diagnosis, DriverReport
    from .plugins import PluginState

#: What a C compiler's libraries are, and where LLVM looks for them, as patterns.
COMPILER_LIBRARIES: Final = {
    "libgcc.a": ("/usr/lib/gcc/*/*/libgcc.a", "/usr/lib64/gcc/*/*/libgcc.a"),
    "libc.so": ("/usr/lib/*/libc.so", "/usr/lib64/libc.so", "/usr/lib/libc.so"),
}

#: A second driver does not cure a wrong path.
_FIRST_CURE: Final = "cure what is named before, and run `fairlead doctor` again"

_UNPROBED: Final = (
    "run `fairlead doctor` by the Python that fairlead is installed for; "
    "FAIRLEAD_PROBE_TIMEOUT gives more time"
)


@dataclass(frozen=True)
class Problem:
    """What is wrong ("error") or odd ("warning"), why, and the next thing to do."""

    severity: str
    what: str
    reason: str
    remedy: str


def find_problems(facts: Diagnosis) -> tuple[Problem, ...]:
    """Return all problems, the errors first."""
    is_caused = any(
        driver.state == "refused" or (driver.state == "idle" and explain_idle(driver.library))
        for driver in facts.drivers
    ) or any(refusal.remedy for refusal in facts.refusals)
    # adapters and plugins with devices make it a warning that OpenCL has none
    severity = "warning" if any(plugin.devices for plugin in facts.plugins.plugins) else "error"
    hiding = () if facts.usable else tuple(_find_hiding_variables(facts, is_caused, severity))
    found = [
        *hiding,
        *_find_driver_problems(facts),
        *_find_client_problems(facts),
        *_find_plugin_problems(facts),
        *_find_gpu_problems(facts),
        *(problem for one in facts.packages for problem in one.problems),
        *_find_search_problems(facts),
        *_find_variable_problems(facts),
        *_find_machine_problems(facts),
    ]
    if not facts.usable:
        remedy = _FIRST_CURE if is_caused or hiding else name_first_driver()
        found.append(Problem(severity, "OpenCL", "no driver with a device is usable", remedy))
    # "error" < "warning"; the order within each stays
    return tuple(sorted(found, key=lambda problem: problem.severity))


def _find_hiding_variables(facts: Diagnosis, is_caused: bool, severity: str) -> Iterator[Problem]:
    """Yield the variables that hide drivers where none is usable.

    Args:
        is_caused: something else is wrong, too. What a variable names is then the cause, and not
            that it replaces other places.
    """
    for variable, libraries in facts.hidden.items():
        if variable == "FAIRLEAD_EXCLUDE" or not is_caused:
            yield Problem(
                "error", variable, f"it hides {', '.join(libraries)}", f"unset {variable}"
            )


def _find_driver_problems(facts: Diagnosis) -> Iterator[Problem]:
    closed = [node for node in facts.nodes if not node.accessible]
    for driver in facts.drivers:
        if driver.state == "refused":
            yield Problem("error", driver.library, driver.reason, _find_remedy(driver))
        elif driver.state == "idle" and (switch := explain_idle(driver.library)):
            severity = "warning" if facts.usable else "error"
            yield Problem(severity, driver.library, f"{driver.reason}: {switch[0]}", switch[1])
        elif driver.state == "idle" and closed:
            yield Problem(
                "error",
                driver.library,
                f"{driver.reason}; {closed[0].path} is closed to this user",
                closed[0].remedy,
            )
        elif driver.state == "idle":
            remedy = (
                driver.remedy
                or "check that its device is in this machine; if it is not, there is nothing to do"
            )
            yield Problem("warning", driver.library, driver.reason, remedy)
        if driver.state == "unprobed":
            for note in driver.notes:
                yield Problem("error", driver.library, note, _UNPROBED)
        if driver.state in ("usable", "idle"):
            for note in driver.notes:
                yield Problem(
                    "warning",
                    driver.library,
                    note,
                    f"update the driver, or leave it out: {_describe_exclusion(driver)}",
                )


def _find_client_problems(facts: Diagnosis) -> Iterator[Problem]:
    """Yield a problem for each driver that other loaders do not find."""
    is_pip = all(driver.found_via in OF_PYTHON for driver in facts.usable)
    for client in facts.clients:
        if facts.usable and client.reason:
            severity = "warning" if is_pip and client.answers else "error"
            yield Problem(severity, client.name, f"no platform: {client.reason}", ENV)
        elif client.misses:
            yield Problem(
                "warning", client.name, f"it does not find {', '.join(client.misses)}", ENV
            )
        for note in client.notes:
            remedy = "update the driver that crashes; `fairlead doctor` says which one"
            yield Problem("warning", client.name, note, remedy)
    for manifest in facts.misread:
        reason = f"other loaders misread it, because it {manifest.why}: {manifest.content}"
        yield Problem("error", manifest.path, reason, manifest.remedy)


def is_gone(driver: DriverReport) -> bool:
    """Whether a driver was refused because its library is missing."""
    return (
        driver.state == "refused"
        and os.path.isabs(driver.library)
        and not os.path.lexists(driver.library)
    )


def _find_remedy(driver: DriverReport) -> str:
    """Return what to do about a refused driver: leave out a file, or remove the name of a missing
    one."""
    if is_gone(driver) and (row := find_disabled_repair(driver)):
        return f"unset FAIRLEAD_QUIRKS, which switches off the repair {row}"
    if "FAIRLEAD_PROBE_TIMEOUT" in filter_environ() and "did not answer within" in driver.reason:
        return f"give it more time, or unset FAIRLEAD_PROBE_TIMEOUT; {driver.remedy}"
    if not driver.manifest:
        other = f"take it out of {driver.found_via}"
    elif is_gone(driver):
        other = f"delete {driver.manifest}"
    else:
        other = f"leave it out: {_describe_exclusion(driver)}"
    return f"{driver.remedy}; or {other}" if driver.remedy else other


def _describe_exclusion(driver: DriverReport | PluginState) -> str:
    already = filter_environ().get("FAIRLEAD_EXCLUDE", "")
    names = ":".join(filter(None, (already, os.path.basename(driver.library))))
    return f"export FAIRLEAD_EXCLUDE={shlex.quote(names)}"


def _find_gpu_problems(facts: Diagnosis) -> Iterator[Problem]:
    """Unusable drivers of Level Zero, CUDA and HIP, and their searches' refusals.

    On a machine without a GPU, a driver without devices is not a problem.
    """
    for driver in (*facts.level_zero.drivers, *facts.gpus):
        leave_out = f"FAIRLEAD_EXCLUDE='*{os.path.basename(driver.library)}'"
        remedy = f"{driver.remedy or 'update it'}; or leave it out: {leave_out}"
        if driver.state == "unprobed":
            yield Problem("error", driver.library, driver.reason, _UNPROBED)
        elif driver.state == "refused":
            yield Problem("error", driver.library, driver.reason, remedy)
        elif driver.state == "idle" and facts.nodes:
            reason, cure = explain_idle(driver.library) or (driver.reason, remedy)
            yield Problem("warning", driver.library, reason, cure)
        for warning in driver.warnings:
            yield Problem("warning", driver.library, warning, remedy)
    for refusal in facts.level_zero.refusals:
        if refusal.remedy:
            yield Problem("error", refusal.what, refusal.reason, refusal.remedy)


def _lacks_vendor_library(plugin: PluginState, facts: Diagnosis) -> bool:
    """Whether an adapter for GPUs misses its vendor's library on a machine without a GPU."""
    library = "is not found" in plugin.reason
    return library and plugin.backend != "opencl" and not facts.nodes


def _find_plugin_problems(facts: Diagnosis) -> Iterator[Problem]:
    """Unusable adapters and plugins, the selector, and refusals of their search."""
    survey = facts.plugins
    closed = [node for node in facts.nodes if not node.accessible]
    for plugin in survey.plugins:
        leave_out = f"leave it out: {_describe_exclusion(plugin)}"
        if plugin.state == "unprobed":
            yield Problem("error", plugin.library, plugin.reason, _UNPROBED)
        elif plugin.state == "refused":
            yield Problem(
                "error",
                plugin.library,
                plugin.reason,
                f"{plugin.remedy}; or {leave_out}" if plugin.remedy else leave_out,
            )
        elif plugin.state == "idle" and not _lacks_vendor_library(plugin, facts):
            on_gpu = plugin.backend != "opencl" and closed
            remedy = (
                closed[0].remedy
                if on_gpu
                else plugin.remedy or "run a program of its vendor's that lists devices"
            )
            yield Problem("warning", plugin.library, plugin.reason, remedy)
        for warning in plugin.warnings:
            yield Problem("warning", plugin.library, warning, f"update it, or {leave_out}")
    for refusal in survey.refusals:
        if refusal.remedy:
            yield Problem("error", refusal.what, refusal.reason, refusal.remedy)
    found = [device for plugin in survey.plugins for device in plugin.devices]
    devices = [*found, *survey.own_devices]
    if survey.selector and survey.selector.error:
        yield Problem(
            "error", survey.selector.variable, survey.selector.error, survey.selector.remedy
        )
    elif survey.selector and devices and not any(device.selected for device in devices):
        there = ", ".join(dict.fromkeys(device.selector for device in devices))
        reason = f"it selects none of the devices that are there: {there}"
        yield Problem(
            "error" if found else "warning",
            survey.selector.variable,
            reason,
            f"correct or unset {survey.selector.variable}",
        )


def _find_search_problems(facts: Diagnosis) -> Iterator[Problem]:
    """Return the refusals of the search, except those that nothing is to be done about, such as
    duplicates."""
    for refusal in facts.refusals:
        if refusal.remedy:
            yield Problem("error", refusal.what, refusal.reason, refusal.remedy)


def _find_variable_problems(facts: Diagnosis) -> Iterator[Problem]:
    """Return the variables that name something missing, except those that the search refuses."""
    environ = filter_environ()
    _, unknown = parse_switches()
    if unknown:
        yield Problem(
            "warning",
            "FAIRLEAD_QUIRKS",
            f"{', '.join(unknown)}: no row of the driver profiles has such an id",
            "name ids as -ID, with commas between them, or 0 for all repairs",
        )
    home, index = environ.get("PYOPENCL_HOME"), environ.get("OCL_ICD_DEFAULT_PLATFORM")
    if home and not os.path.isdir(home):
        yield Problem(
            "error", "PYOPENCL_HOME", f"{home} is not a directory", "correct or unset PYOPENCL_HOME"
        )
    count = sum(
        len(driver.platforms) for driver in facts.drivers if driver.state in ("usable", "idle")
    )
    if index and count and not (index.isdecimal() and int(index) < count):
        reason = f"there is no platform {index}: they are numbered 0 to {count - 1}"
        yield Problem(
            "error", "OCL_ICD_DEFAULT_PLATFORM", reason, "correct or unset OCL_ICD_DEFAULT_PLATFORM"
        )


#: Device nodes of a vendor, its drivers' libraries, and the remedy if no such driver is registered.
_VENDORS: Final = (
    (
        "/dev/nvidiactl",
        ("*nvidia-opencl*",),
        "write libnvidia-opencl.so.1 into /etc/OpenCL/vendors/nvidia.icd; start a container with "
        "the NVIDIA container toolkit and NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    ),
    (
        "/dev/kfd",
        ("*amdocl*", "*RusticlOpenCL*"),
        "install ROCm's package rocm-opencl-runtime, or Mesa's rusticl",
    ),
)


def _find_machine_problems(facts: Diagnosis) -> Iterator[Problem]:
    """Yield what is around the drivers: device nodes, caches, PyOpenCL's loader."""
    for node in facts.nodes:
        if not node.accessible:
            yield Problem(
                "warning",
                node.path,
                f"this user may not read and write it ({node.mode}, group {node.group})",
                node.remedy,
            )
    for path, patterns, remedy in _VENDORS:
        registered = any(
            fnmatch(driver.library, pattern) for driver in facts.drivers for pattern in patterns
        )
        if not registered and any(node.path == path for node in facts.nodes):
            yield Problem(
                "warning",
                path,
                "there is such a device, and no driver of its vendor is registered",
                remedy,
            )
    if facts.no_cache:
        place, reason = facts.no_cache
        yield Problem(
            "warning",
            place,
            f"fairlead keeps nothing there, and each program probes every driver anew: {reason}",
            "give it to the user who runs this, or name a folder of that user in XDG_CACHE_HOME",
        )
    for cache in facts.caches:
        if not (cache.writable or cache.essential):
            yield Problem(
                "warning",
                cache.path,
                "this user may not write it; a driver that keeps kernels there compiles each anew",
                f"make it writable, or name another directory in {cache.variable}",
            )
    for driver in facts.drivers:
        for missing, package in _list_missing_for_links(driver):
            yield Problem(
                "error",
                driver.library,
                f"it links kernels {missing}; without it the first launch of a kernel may end the "
                "process",
                f"install {package}",
            )
    pyopencl = facts.pyopencl
    if pyopencl and pyopencl.needs and not pyopencl.loader:
        reason = f"it needs {pyopencl.needs}, which is not found"
        yield Problem(
            "error",
            f"PyOpenCL {pyopencl.version}",
            reason,
            "pip install --force-reinstall pyopencl, or install an ICD loader",
        )


def _list_missing_for_links(driver: DriverReport) -> Iterator[tuple[str, str]]:
    """Yield what a usable driver needs to link kernels and has not, and the packages with it."""
    if driver.state != "usable":
        return
    profiles = [find_profile_by_names(p.name, p.vendor, p.version) for p in driver.platforms]
    for linker in sorted({profile.linker for profile in profiles if profile.linker}):
        if not shutil.which(linker):
            yield (
                f"by the program {linker}, which is not on PATH",
                "binutils (Debian: apt-get install binutils; Fedora: dnf install binutils)",
            )
    if any(profile.links_compiler_libraries for profile in profiles):
        for name, places in COMPILER_LIBRARIES.items():
            if not any(glob(place) for place in places):
                yield (
                    f"with {name}, which is not in {places[0]}",
                    "a C compiler's libraries (Debian: apt-get install gcc libc6-dev; Fedora: dnf "
                    "install gcc)",
                )
