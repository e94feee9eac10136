"""Whether the engine `direct` may call into a driver: it has passed a self-test.

The self-test (direct_self_test.py) runs in a child process, once for each driver file
(self_tests.py). If it fails, crashes, hangs or cannot run, nothing is called. No version of PoCL is
trusted without it, and none is refused for its number. A row of driver_profiles.py can forbid one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...loader.base.forks import make_lock
from .._native import lib
from ..abi import OPENCL
from ..calls import find_device_profile, find_driver_file, identify_device, query_number
from ..errors import OpenCLError
from . import self_tests

#: The module whose `main` is the self-test.
SELF_TEST: str = "fairlead.icd.command_buffer.direct_self_test"

_OTHER_PROCESSOR: Final = "it is for x86-64 and aarch64, whose floating point flags it knows"
_CPU, _NATIVE_KERNEL = OPENCL["CL_DEVICE_TYPE_CPU"], OPENCL["CL_EXEC_NATIVE_KERNEL"]

_known: Final[dict[tuple[str, ...], str | None]] = {}
_lock: Final = make_lock()


def why_not_device(device: int) -> str | None:
    """Find out once for the process why the engine may not run kernels of a device (a handle).

    Threads that ask at the same time wait for one self-test.

    Returns:
        None if it may.
    """
    try:
        identity = identify_device(device)
        with _lock:
            if identity not in _known:
                _known[identity] = _judge(device, identity)
            return _known[identity]
    except OpenCLError as error:
        return f"the driver does not describe the device, {error}"


def _judge(device: int, identity: Sequence[str]) -> str | None:
    if not lib.fl_direct_runs_here():
        return _OTHER_PROCESSOR
    if not find_device_profile(device).has_kernels_in_process:
        return "the driver is not PoCL, or a row of driver_profiles.py forbids its version"
    ask, kind = "clGetDeviceInfo", "uint64_t"
    if not query_number(device, ask, "CL_DEVICE_TYPE", kind) & _CPU:
        return "the device is not a CPU"
    if not query_number(device, ask, "CL_DEVICE_EXECUTION_CAPABILITIES", kind) & _NATIVE_KERNEL:
        return "the device runs no native kernels"
    return self_tests.why_not_library(find_driver_file(device), "direct", SELF_TEST)


def judge_libraries(paths: Sequence[str]) -> dict[str, str | None]:
    """Return why drivers' files are not trusted, None for one that is, as programs get to know it.

    Args:
        paths: the paths of the files. They are tested side by side, unless they have passed before.
    """
    if not lib.fl_direct_runs_here():
        return dict.fromkeys(paths, _OTHER_PROCESSOR)
    return self_tests.judge_libraries(paths, "direct", SELF_TEST)
