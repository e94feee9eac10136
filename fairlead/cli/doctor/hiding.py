"""Environment variables that hide drivers and devices, for `fairlead doctor`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Final

from ...icd import discovery
from ...icd.driver_profiles import ROWS, list_active, locate
from ...icd.drivers import find_excluding_pattern
from ...icd.probe import probe_all
from ...loader.base.linker import can_find_library
from ...loader.base.search import Candidate, filter_environ
from .machine import find_cache_directories

if TYPE_CHECKING:
    from .diagnosis import DriverReport

#: Libraries of drivers, the variables by which their users choose devices, and the name of one.
_CHOOSING: Final = (
    ("*pocl*", ("POCL_DEVICES",)),
    ("lib*cuda.so*", ("CUDA_VISIBLE_DEVICES",)),
    ("libnvidia-opencl.so*", ("CUDA_VISIBLE_DEVICES",)),
    ("libam*", ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")),
    ("libigdrcl.so*", ("ZE_AFFINITY_MASK",)),
    ("libze_*", ("ZE_AFFINITY_MASK",)),
)


def find_hidden_drivers(
    drivers: Sequence[DriverReport], timeout: float | None = None
) -> dict[str, tuple[str, ...]]:
    """Return the variables without which there would be more OpenCL drivers, and their libraries.

    Args:
        drivers: what the search found with all variables.
        timeout: seconds for each probe.
    """
    environ = filter_environ()
    excluded = [_search(one) for one in drivers if one.state == "excluded"]
    excluded = [one for one in excluded if _is_there(one)]
    if not any(one.state == "usable" for one in drivers):  # what is broken would help nobody
        reports = probe_all(excluded, timeout)
        excluded = [one.candidate for one in reports if one.devices or not one.probed]
    hidden = {"FAIRLEAD_EXCLUDE": [one.library for one in excluded]}
    for name in dict.fromkeys(name for step in discovery.STEPS for name in step.replaced_by):
        others = discovery.find({key: environ[key] for key in environ if key != name}).candidates
        hidden[name] = [
            one.library for one in others if _is_there(one) and not find_excluding_pattern(one)
        ]
    found = {one.library for one in drivers if one.state != "excluded"}
    more = {name: tuple(set(libraries) - found) for name, libraries in hidden.items()}
    return {name: tuple(sorted(libraries)) for name, libraries in more.items() if libraries}


def _search(driver: DriverReport) -> Candidate:
    """Return what the search found."""
    return Candidate(driver.library, driver.found_via, driver.manifest or None)


def _is_there(candidate: Candidate) -> bool:
    path, _ = locate(candidate)
    return os.path.exists(path) if "/" in path else can_find_library(path)


def find_disabled_repair(driver: DriverReport) -> str:
    """Return the id of the row that FAIRLEAD_QUIRKS switches off and that would find the library of
    a driver, else ""."""
    candidate, active = _search(driver), list_active()
    rows = (row for row in ROWS if row not in active and row.locate)
    return next((row.id for row in rows if row.locate and row.locate(candidate)), "")


def explain_idle(library: str) -> tuple[str, str] | None:
    """Return the reason and the remedy if the environment leaves a driver without a device."""
    environ, file = filter_environ(), os.path.basename(library)
    if "rusticl" in file.lower() and not environ.get("RUSTICL_ENABLE"):
        return (
            "rusticl offers only the devices that RUSTICL_ENABLE names, which is not set",
            "export RUSTICL_ENABLE=llvmpipe, or the name of Mesa's driver for your GPU",
        )
    for pattern, names in _CHOOSING:
        for name in names:
            if fnmatch(file, pattern) and name in environ:
                return f"it offers only the devices that {name} names", f"unset {name}"
    for cache in find_cache_directories([library]):
        if cache.essential and not cache.writable:
            return (
                f"it keeps compiled kernels in {cache.path}, which this user may not write",
                f"export {cache.variable}=/tmp/{os.path.basename(cache.path)}, "
                "or another directory that you may write",
            )
    return None
