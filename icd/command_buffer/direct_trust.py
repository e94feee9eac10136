"""Whether the engine `direct` may call into a driver: a known version, and a passed self-test.

The self-test (direct_self_test.py) runs in a child process, once for each driver file
(self_tests.py). If it fails, crashes, hangs or cannot run, nothing is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...loader.base.forks import make_lock
from .._native import ffi
from ..abi import OPENCL
from ..calls import (
    call,
    find_device_profile,
    find_driver_file,
    get_address,
    identify_device,
)
from ..errors import OpenCLError, check
from ..pocl_kernels import PoclVersion, find_version
from . import self_tests

#: The module whose `main` is the self-test.
SELF_TEST: str = "fairlead.icd.command_buffer.direct_self_test"

_CPU, _NATIVE_KERNEL = OPENCL["CL_DEVICE_TYPE_CPU"], OPENCL["CL_EXEC_NATIVE_KERNEL"]


@dataclass(frozen=True)
class Trust:
    """What the engine knows of a device's driver.

    `version` is None if `why_not` says why it is off.
    """

    version: PoclVersion | None = None
    why_not: str | None = None


_known: Final[dict[tuple[str, ...], Trust]] = {}
_lock: Final = make_lock()


def find_trust(device: int) -> Trust:
    """Find out once for the process whether the engine may run kernels of a device (a handle).

    Threads that ask at the same time wait for one self-test.
    """
    try:
        identity = identify_device(device)
        with _lock:
            if identity not in _known:
                _known[identity] = _judge(device, identity)
            return _known[identity]
    except OpenCLError as error:
        return Trust(why_not=f"the driver does not describe the device, {error}")


def _judge(device: int, identity: Sequence[str]) -> Trust:
    _, platform_version, *_ = identity
    version = find_version(platform_version)
    if not find_device_profile(device).has_kernels_in_process:
        return Trust(why_not="the driver is not PoCL, whose kernels are functions of this process")
    if version is None:
        return Trust(why_not=f"{platform_version} is not a version of PoCL that it is proven for")
    if not _query_number(device, "CL_DEVICE_TYPE") & _CPU:
        return Trust(why_not="the device is not a CPU")
    if not _query_number(device, "CL_DEVICE_EXECUTION_CAPABILITIES") & _NATIVE_KERNEL:
        return Trust(why_not="the device runs no native kernels")
    why_not = self_tests.why_not_library(find_driver_file(device), "direct", SELF_TEST)
    return Trust(why_not=why_not) if why_not else Trust(version)


def try_library(path: str, platform_version: str) -> str | None:
    """Run the self-test of a driver's file anew; nothing is remembered.

    Args:
        path: of the file.
        platform_version: CL_PLATFORM_VERSION of its platform.

    Returns:
        Why it is not trusted, None if it is.
    """
    if find_version(platform_version) is None:
        return "its version is not one that the engine is proven for"
    return self_tests.try_library(path, SELF_TEST)


def _query_number(device: int, name: str) -> int:
    value = ffi.new("uint64_t *")
    code = call(device, "clGetDeviceInfo", OPENCL[name], 8, get_address(value), None)
    check(code, "clGetDeviceInfo")
    return value[0]
