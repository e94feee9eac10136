"""What `fairlead.platforms()` and `fairlead.devices()` answer: everything that is usable, or an error with every reason why
nothing is."""

from __future__ import annotations

import warnings
from typing import Final

from .icd.drivers import drivers
from .icd.errors import PlatformNotFoundError
from .icd.objects import Device, Platform
from .loader.base.errors import FairleadError, NotFoundError

_REMEDY: Final = "run `fairlead doctor`"


def platforms() -> tuple[Platform, ...]:
    """The platforms of every usable driver, always in the same order; opened once for the process.

    Raises PlatformNotFoundError (CL_PLATFORM_NOT_FOUND_KHR) if there is none. Its `reasons` name every place that was looked at
    and everything that was refused, with the remedy. (OpenCL specification, clGetPlatformIDs; cl_khr_icd.)
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
    return found.platforms


def devices() -> tuple[Device, ...]:
    """The devices of all platforms, in the order of the platforms; a platform that fails to list its devices gets a
    RuntimeWarning.

    Raises PlatformNotFoundError if there is no platform and NotFoundError (CL_DEVICE_NOT_FOUND) if none of them has a device.
    (OpenCL specification, clGetDeviceIDs.)
    """
    found, failures = usable_devices()
    for failure in failures:
        warnings.warn(failure, RuntimeWarning, stacklevel=2)
    return found


def usable_devices() -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """The devices of all platforms, and a sentence for each platform that failed to list its own. Raises what `devices`
    raises."""
    found: list[Device] = []
    empty: list[str] = []
    failures: list[str] = []
    for platform in platforms():
        try:
            found += platform.devices
            if not platform.devices:
                empty.append(
                    f"the platform {platform.name!r} has no device ({platform.driver.path})"
                )
        except FairleadError as error:
            failures.append(
                f"the platform {platform.name!r} failed to list its devices ({platform.driver.path}): {error}"
            )
    if not found:
        raise NotFoundError(
            "no OpenCL device can be used",
            (*empty, *failures),
            routine="clGetDeviceIDs",
            code="CL_DEVICE_NOT_FOUND",
            remedy=_REMEDY,
        )
    return tuple(found), tuple(failures)
