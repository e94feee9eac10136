"""Opens drivers: makes platforms of the candidates of `discovery.find`, or reasons why not.

    >>> from fairlead.icd.drivers import drivers
    >>> for platform in drivers().platforms:
    ...     print(platform.name, platform.devices)

`load` opens one driver in this process: dlopen, the ICD protocol (cl_khr_icd, "Supporting ICDs"),
`tables.bind` for each platform, the required queries, the repairs of `driver_profiles`. `drivers`
does that, once for the process, for every candidate whose probe in a child process passed
(`probe_verdicts.judge`).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from ..loader.base import search
from ..loader.base.elf import check_file
from ..loader.base.errors import FairleadError, explain_error
from ..loader.base.forks import make_lock
from ..loader.base.frozen_value import Value
from ..loader.base.library import Library, dlopen, open_library
from ..loader.base.probe_verdicts import judge
from ..loader.base.search import Candidate, Refusal, SearchResult, filter_environ
from . import discovery, driver_profiles
from .abi import CL_SUCCESS
from .errors import PlatformNotFoundError, error
from .objects import CLPlatform
from .tables import DriverError, bind, forget

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from ..loader.base.probe_verdicts import Report
    from .probe import PlatformReport

MOST_PLATFORMS: Final = 1024
#: The rank of a platform that fails to list its devices: its place is that of those without GPUs.
UNKNOWN: Final = True, 0
_CL_INVALID_PLATFORM: Final = -32

# void *clGetExtensionFunctionAddress(const char *name)
_GetExtensionFunction = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)
# cl_int clIcdGetPlatformIDsKHR(cl_uint room, cl_platform_id *, cl_uint *count)
_GetPlatformIDs = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p
)

_loaded: dict[str, Driver] = {}  # real path → driver
_owners: dict[int, Driver] = {}  # platform handle → driver
_lock: Final = make_lock()
_drivers: Drivers | None = None


class Driver:
    """An open driver library with its platforms.

    Attributes:
        path: the real path of its file.
        platforms: the platforms that can be used.
        quirks: the ids of the repairs that were applied (`driver_profiles`).
    """

    def __init__(self, candidate: Candidate, library: Library, applied: Sequence[str]) -> None:
        self.candidate = candidate
        self.library = library
        self.path = library.path
        self.platforms: tuple[CLPlatform, ...] = ()
        self.refusals: tuple[Refusal, ...] = ()
        self.quirks: tuple[str, ...] = tuple(applied)
        entry = library.find_symbol("clGetExtensionFunctionAddress")
        self._get_extension_function: Any = _GetExtensionFunction(entry) if entry else None

    def extension_function(self, name: str) -> int | None:
        """What the library's clGetExtensionFunctionAddress answers, None if it is not exported."""
        return self._get_extension_function(name.encode()) if self._get_extension_function else None

    def find_icd_function(self, name: str) -> int | None:
        """The address of one of the clIcd… functions (cl_khr_icd); None if the driver has none.

        It is asked for by clGetExtensionFunctionAddress, then among the exported symbols.
        """
        return self.extension_function(name) or self.library.find_symbol(name)

    def unload(self) -> None:
        """Close the driver's library. Nothing that came from its platforms may be used afterwards.

        Raises:
            DriverError: a platform does not allow it (cl_khr_icd_unloadable,
                CL_PLATFORM_UNLOADABLE_KHR).
        """
        global _drivers
        for platform in self.platforms:
            extension = "cl_khr_icd_unloadable" in platform.extensions
            if not extension or not platform.info("CL_PLATFORM_UNLOADABLE_KHR"):
                raise DriverError(
                    f"the platform {platform.name!r} does not allow its driver to be unloaded",
                    remedy="leave it open: the end of the process closes it",
                )
        with _lock:
            _loaded.pop(self.path, None)
            for platform in self.platforms:
                _owners.pop(platform.handle, None)
                forget(platform.handle)
            self.platforms, _drivers = (), None
            self.library.close()

    def __repr__(self) -> str:
        return f"<Driver {self.path} with {len(self.platforms)} platforms>"


class Drivers(Value):
    """The result of a search: the drivers that were opened, and what was refused and why."""

    drivers: tuple[Driver, ...]
    refusals: tuple[Refusal, ...]
    search: SearchResult

    @property
    def platforms(self) -> tuple[CLPlatform, ...]:
        """The platforms of all drivers: those with most GPUs first, those without devices last.

        Among equal ones the search decides; with OCL_ICD_PLATFORM_SORT=none it does alone. With
        devices, CPUs count after GPUs, and then all devices.
        """
        found = tuple(platform for driver in self.drivers for platform in driver.platforms)
        return found if len(found) < 2 else tuple(sorted(found, key=rank, reverse=True))

    @property
    def reasons(self) -> tuple[str, ...]:
        """A sentence for each refusal, and for each place that was searched.

        What there is nothing to do about comes after the other refusals.
        """
        refused = (
            f"{r.what}: {r.reason}" + (f" ({r.remedy})" if r.remedy else "")
            for r in sorted(self.refusals, key=lambda r: not r.remedy)
        )
        return (*refused, *(f"{place.path}: {place.state}" for place in self.search.places))


def drivers(*, refresh: bool = False) -> Drivers:
    """Every usable driver of this machine, opened once for the process.

    Args:
        refresh: search again; what is open stays open.
    """
    global _drivers
    with _lock:
        if _drivers is None or refresh:
            _drivers = _open_all(discovery.find())
        return _drivers


def platforms() -> tuple[CLPlatform, ...]:
    """The platforms of all drivers, in order."""
    return drivers().platforms


def name_first_driver(machine: str = os.uname().machine) -> str:
    """Return what to do on a machine without a driver.

    Args:
        machine: the architecture. PyPI has PoCL for x86-64 alone.
    """
    if machine == "x86_64":
        return "install a driver; `pip install 'fairlead[pocl]'` brings one that runs on the CPU"
    return (
        "install a driver; PoCL runs on the CPU "
        "(Debian: apt-get install pocl-opencl-icd; Fedora: dnf install pocl)"
    )


def default_platform() -> CLPlatform:
    """The platform that OCL_ICD_DEFAULT_PLATFORM (an index) names, else the first one.

    Raises:
        PlatformNotFoundError: there is no platform; it has every reason.
        OpenCLError: there is no platform of that index (CL_INVALID_PLATFORM).
    """
    found = drivers()
    if not found.platforms:
        raise PlatformNotFoundError(
            "no OpenCL platform was found",
            found.reasons,
            code="CL_PLATFORM_NOT_FOUND_KHR",
            remedy=f"{name_first_driver()}; or run `fairlead doctor`",
        )
    index = filter_environ().get("OCL_ICD_DEFAULT_PLATFORM", "0") or "0"
    if not index.isdecimal() or int(index) >= len(found.platforms):
        last = len(found.platforms) - 1
        detail = (
            f"OCL_ICD_DEFAULT_PLATFORM is {index!r}, and the platforms are numbered 0 to {last}."
        )
        raise error(
            _CL_INVALID_PLATFORM,
            "default_platform",
            detail,
            "correct or unset OCL_ICD_DEFAULT_PLATFORM",
        )
    return found.platforms[int(index)]


def load(candidate: Candidate, *, progress: Callable[[str], None] = lambda step: None) -> Driver:
    """Open one driver in this process, without a probe. An open driver is returned as it is.

    Args:
        progress: is called with a sentence before each step; a driver may never return from one.

    Raises:
        LibraryError: the library cannot be opened.
        DriverError: no platform of it can be used.
    """
    with _lock:
        path, applied = driver_profiles.locate(candidate)
        progress("opening the library")
        library, more = _open(path)
        if library.path in _loaded:
            library.close()  # dlopen has counted it once more
            return _loaded[library.path]
        driver = Driver(candidate, library, (*applied, *more))
        progress("listing its platforms")
        handles = _query_platform_ids(driver)
        found: list[CLPlatform] = []
        refused: list[Refusal] = []
        for index, handle in enumerate(handles):
            progress(f"binding its platform {index}")
            try:
                found.append(_bind_platform(driver, handle))
            except FairleadError as error:
                refused.append(
                    _make_refusal(f"{library.path}, platform {index}", error, candidate.found_via)
                )
        if not found:
            reasons = "; ".join(
                f"platform {index}: {refusal.reason}" for index, refusal in enumerate(refused)
            )
            raise DriverError(
                f"none of its platforms can be used: {reasons}",
                remedy="update or reinstall the driver",
            )
        driver.platforms, driver.refusals = tuple(found), tuple(refused)
        _repair_platforms(driver)
        _loaded[library.path] = driver
        return driver


def _open_all(search: SearchResult) -> Drivers:
    """Open the candidates that are neither excluded nor unsound, one driver for each real file."""
    refusals = list(search.refusals)
    refused = find_unusable(search.candidates, _probe_all)
    opened: dict[str, Driver] = {}
    for candidate in search.candidates:
        if candidate in refused:
            refusals.append(refused[candidate])
            continue
        try:
            driver = load(candidate)
        except FairleadError as error:
            refusals.append(_make_refusal(candidate.library, error, candidate.found_via))
            continue
        if driver.path in opened:
            first = opened[driver.path].candidate.library
            reason = f"it is the same file as {first}, which is open already"
            refusals.append(
                Refusal(
                    candidate.library,
                    reason,
                    "remove one of the two manifests",
                    candidate.found_via,
                )
            )
            continue
        opened[driver.path] = driver
        refusals += driver.refusals
    return Drivers(tuple(opened.values()), tuple(refusals), search)


def _probe_all(unknown: Sequence[Candidate]) -> Iterable[Report]:
    from . import probe  # a process whose drivers are all known does without it

    return probe.probe_all(unknown)


def find_unusable(
    candidates: Sequence[Candidate], probe_all: Callable[[Sequence[Candidate]], Iterable[Report]]
) -> dict[Candidate, Refusal]:
    """The candidates that FAIRLEAD_EXCLUDE names, or that failed their probe.

    Args:
        candidates: what is about to be opened.
        probe_all: probes those about which nothing is known. With FAIRLEAD_PROBE=0 it is not
            called.
    """
    excluded = search.find_exclusions(candidates, find_excluding_pattern)
    others = [candidate for candidate in candidates if candidate not in excluded]
    return excluded | judge(others, probe_all, "cl", lambda one: driver_profiles.locate(one)[0])


def find_excluding_pattern(candidate: Candidate) -> str:
    """Return the pattern of FAIRLEAD_EXCLUDE that fits the library's path or base name, or ""."""
    return search.find_excluding_pattern(candidate.library, driver_profiles.locate(candidate)[0])


def _open(path: str) -> tuple[Library, tuple[str, ...]]:
    """Open a driver's library. If dlopen fails, the repairs try; then `open_library` says why."""
    if "/" in path:
        check_file(path)
    try:
        return dlopen(path), ()
    except OSError:
        for row in driver_profiles.list_active():
            library = row.repair_open and row.repair_open(path)
            if library:
                return library, (row.id,)
    return open_library(path), ()


def _query_platform_ids(driver: Driver) -> list[int | None]:
    """The handles that clIcdGetPlatformIDsKHR gives."""
    name = "clIcdGetPlatformIDsKHR"
    if driver.extension_function("clGetICDLoaderInfoOCLICD"):
        raise DriverError(
            "it is an OpenCL loader, not a driver", remedy="name the driver itself in the manifest"
        )
    address = driver.find_icd_function(name)
    if not address:
        raise DriverError(
            f"it has no {name}, so it is not an OpenCL driver",
            remedy="name the driver's own library, or update the driver",
        )
    call = _GetPlatformIDs(address)
    count = ctypes.c_uint32()
    code = call(0, None, ctypes.byref(count))
    has_none = code == CL_SUCCESS and not count.value
    if has_none or driver_profiles.means_no_platform(driver.path, code):
        raise DriverError(
            "it has no platform: it found no device that it can drive",
            routine=name,
            remedy="check the device and its permissions",
        )
    if code != CL_SUCCESS:
        raise _make_error(code, name, "It was asked for the number of platforms.")
    if count.value > MOST_PLATFORMS:
        raise DriverError(
            f"it says that it has {count.value} platforms, which cannot be",
            routine=name,
            remedy="reinstall the driver",
        )
    handles = (ctypes.c_void_p * count.value)()
    code = call(count.value, handles, None)
    if code != CL_SUCCESS:
        raise _make_error(code, name, f"It was asked for its {count.value} platforms.")
    return list(handles)


def _make_error(code: int, routine: str, detail: str) -> DriverError:
    answer = error(code, routine, detail)
    return DriverError(answer.message, routine=routine, code=answer.code)


def _bind_platform(driver: Driver, handle: int | None) -> CLPlatform:
    """Bind one platform, and ask what every ICD must answer (cl_khr_icd, and what names it).

    Raises:
        DriverError, OpenCLError: the platform must be refused.
    """
    if not handle:
        raise DriverError("its handle is NULL")
    owner = _owners.get(handle)
    if owner is not None:
        raise DriverError(f"it is the same platform as one of {owner.path}")
    binding = bind(handle, driver.find_icd_function)
    platform = CLPlatform(
        handle,
        binding.table,
        driver,
        binding.icd_version,
        binding.notes,
        binding.foreign_dispatch_data,
    )
    _ = platform.suffix, platform.version, platform.name, platform.vendor
    if (
        not filter_environ().get("OCL_ICD_ASSUME_ICD_EXTENSION")  # some drivers exit if asked
        and "cl_khr_icd" not in platform.extensions
    ):
        note = "it does not list cl_khr_icd among its extensions; some loaders refuse it for that"
        platform = platform.copy_with(notes=(*platform.notes, note))
    _owners[handle] = driver
    return platform


def _repair_platforms(driver: Driver) -> None:
    for row in driver_profiles.list_active():
        repair = row.repair_platform
        if repair is None:
            continue
        for platform in driver.platforms:
            with suppress(FairleadError):  # its devices cannot be listed: who asks for them is told
                if repair(platform) and row.id not in driver.quirks:
                    driver.quirks += (row.id,)


def count_devices(platform: CLPlatform | PlatformReport) -> tuple[int, int, int]:
    """GPUs, CPUs, all devices: what ocl-icd sorts by. What does not answer does not count."""
    types: list[str] = []
    with suppress(FairleadError):
        for device in platform.devices:
            types.append("")
            with suppress(FairleadError):
                types[-1] = device.type
    return sum("GPU" in type for type in types), sum("CPU" in type for type in types), len(types)


def rank(platform: CLPlatform | PlatformReport) -> tuple[int, ...]:
    """What platforms are sorted by, the highest first. Programs often take the first one."""
    order = filter_environ().get("OCL_ICD_PLATFORM_SORT")
    if order == "none":
        return ()
    if order == "devices":
        return count_devices(platform)
    with suppress(FairleadError):
        return bool(platform.devices or platform.device_faults), count_devices(platform)[0]
    return UNKNOWN


def _make_refusal(what: str, error: FairleadError, found_via: str) -> Refusal:
    return Refusal(what, explain_error(error, with_code=True), error.remedy, found_via)
