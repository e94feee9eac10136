"""The public functions that list what this machine has: platforms, devices, adapters, plugins.

Each returns everything that is usable, or raises an error with every reason why nothing is.

An adapter for OpenCL looks for OpenCL drivers itself, through the libOpenCL that it finds. That
loader misses drivers that only fairlead finds, above all those that pip installed. So
`make_nested_environment` registers every usable driver in a directory of manifests. The adapter is
loaded while OCL_ICD_VENDORS names that directory.
"""

from __future__ import annotations

import atexit
import os
import warnings
from collections.abc import Sequence
from functools import cache

from .icd.drivers import drivers
from .icd.errors import PlatformNotFoundError
from .icd.objects import CLDevice, CLPlatform
from .loader.base.errors import FairleadError, NotFoundError, explain_error
from .loader.base.forks import make_lock

TYPE_CHECKING = False
if TYPE_CHECKING:  # programs that use OpenCL alone do without them
    from typing import Final

    from .loader.ur.plugins import Plugins
    from .loader.ze.drivers import ZEDrivers

_REMEDY: Final = "run `fairlead doctor`"

_opened: Final[dict[str, Plugins]] = {}
_lock = make_lock()


def platforms() -> tuple[CLPlatform, ...]:
    """Return the platforms of every usable driver, always in the same order; opened once for the
    process.

    Returns:
        One platform at least. (OpenCL specification, clGetPlatformIDs; cl_khr_icd.)

    Raises:
        PlatformNotFoundError: there is none (CL_PLATFORM_NOT_FOUND_KHR). Its `reasons` name every
            place that was searched and everything that was refused, with the remedy.
    """
    found = drivers()
    if not found.platforms:
        raise PlatformNotFoundError(
            "no OpenCL platform can be used",
            found.reasons,
            routine="clGetPlatformIDs",
            code="CL_PLATFORM_NOT_FOUND_KHR",
            remedy=_REMEDY,
        )
    return _Platforms(found.platforms)


class _Platforms(tuple[CLPlatform, ...]):
    """A tuple that notebooks show as a table."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        from .loader.base.drawing import format_table

        rows = ((number, one.name, one.version, one.driver.path) for number, one in enumerate(self))
        return format_table(("platform", "name", "version", "driver"), rows)


def devices() -> tuple[CLDevice, ...]:
    """Return the devices of all platforms, in the order of the platforms.

    A platform whose list of devices is faulty gets a RuntimeWarning.

    Returns:
        One device at least. (OpenCL specification, clGetDeviceIDs.)

    Raises:
        PlatformNotFoundError: there is no platform.
        NotFoundError: no platform has a device (CL_DEVICE_NOT_FOUND).
    """
    found, failures = find_usable_devices()
    for failure in failures:
        warnings.warn(failure, RuntimeWarning, stacklevel=2)
    return _Devices(found)


class _Devices(tuple[CLDevice, ...]):
    """A tuple that notebooks show as a table."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        from .loader.base.drawing import format_table

        order = platforms()
        rows = (
            (
                f"{order.index(one.platform)}:{one.platform.devices.index(one)}",
                *(one.type.lower(), one.name, one.platform.name, one.driver_version),
            )
            for one in self
        )
        return format_table(("device", "type", "name", "platform", "driver"), rows)


def find_usable_devices() -> tuple[tuple[CLDevice, ...], tuple[str, ...]]:
    """Return the devices of all platforms, and a sentence for each faulty list of devices.

    Raises:
        PlatformNotFoundError, NotFoundError: as `devices`.
    """
    found: list[CLDevice] = []
    empty: list[str] = []
    failures: list[str] = []
    for platform in platforms():
        who = f"the platform {platform.name!r}"
        path = platform.driver.path
        try:
            found += platform.devices
            failures += (f"{who} ({path}): {fault}" for fault in platform.device_faults)
            if not platform.devices and not platform.device_faults:
                empty.append(f"{who} has no device ({path})")
        except FairleadError as error:
            reason = explain_error(error, with_code=True)
            failures.append(f"{who} failed to list its devices ({path}): {reason}")
    if not found:
        raise NotFoundError(
            "no OpenCL device can be used",
            (*empty, *failures),
            routine="clGetDeviceIDs",
            code="CL_DEVICE_NOT_FOUND",
            remedy=_REMEDY,
        )
    return tuple(found), tuple(failures)


def adapters() -> Plugins:
    """Return the Unified Runtime adapters that can be used, opened once for the process.

    `adapters().select()` returns the devices that ONEAPI_DEVICE_SELECTOR, SYCL_DEVICE_FILTER or
    SYCL_BE select.

    Returns:
        The adapters. Its `reasons` say what was refused, and why.

    Raises:
        SelectorError: the selector of the environment cannot be understood.
    """
    return _open("UR")


def pi_plugins() -> Plugins:
    """Return the DPC++ PI plugins that can be used, opened once for the process.

    It is otherwise like `adapters`.
    """
    return _open("PI")


def _open(interface: str) -> Plugins:
    from .loader.ur.plugins import open_plugins

    with _lock:
        known = _opened.get(interface)
        if known is None or known.closed or any(plugin.closed for plugin in known):
            _opened[interface] = open_plugins(interface, environment=make_nested_environment)
        return _opened[interface]


def level_zero() -> ZEDrivers:
    """Return the Level Zero drivers that can be used, opened once for the process.

    The drivers are those of ZE_ENABLE_ALT_DRIVERS, else those that are installed, else fairlead's
    own. `level_zero().select()` returns their devices, or says why there is none.

    Returns:
        The drivers. Its `reasons` say what was refused, and why.
    """
    with _lock:
        return _open_level_zero()


@cache
def _open_level_zero() -> ZEDrivers:
    from .loader.ze.drivers import open_drivers

    return open_drivers()


@cache
def make_nested_environment() -> dict[str, str]:
    """Return the variables by which a plugin's own OpenCL loader finds fairlead's drivers, or
    {}."""
    return register_drivers([driver.path for driver in drivers().drivers])


def register_drivers(libraries: Sequence[str]) -> dict[str, str]:
    """Return the variables by which an OpenCL loader finds these drivers and no others.

    Args:
        libraries: the drivers' paths.

    Returns:
        The variables, {} without libraries. They name a directory that goes with this process.
    """
    if not libraries:
        return {}
    import tempfile

    directory = tempfile.mkdtemp(prefix="fairlead-vendors-")
    atexit.register(_remove, directory, os.getpid())
    for number, library in enumerate(libraries):
        with open(os.path.join(directory, f"{number:03}.icd"), "wb") as file:
            file.write(os.fsencode(f"{library}\n"))
    # Every loader takes a directory here. OCL_ICD_FILENAMES would name the same drivers again.
    return {"OCL_ICD_VENDORS": directory, "OCL_ICD_FILENAMES": ""}


def _remove(directory: str, owner: int) -> None:
    """Remove a directory at the end of the process that made it, but not in a forked child."""
    if os.getpid() == owner:
        import shutil

        shutil.rmtree(directory, ignore_errors=True)
