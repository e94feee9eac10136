"""Whether the engine `direct` may call into a driver: a known version, and a passed self-test.

The self-test (direct_test.py) runs in a child process, once for each driver file. Its result is
remembered like those of probes (loader/base/verdicts.py). If it fails, crashes, hangs or cannot
run, nothing is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from ...loader.base.children import Outcome, Request, run_all
from ...loader.base.forks import new_lock
from ...loader.base.library import file_of
from ...loader.base.search import Candidate, secure_environ
from ...loader.base.verdicts import judge
from .._native import ffi, lib
from ..abi import OPENCL
from ..calls import address, call, device_identity, profile_of_device
from ..errors import OpenCLError, check
from ..pocl_kernels import PoclVersion, version_of

#: The module whose `main` is the self-test.
SELF_TEST: str = "fairlead.icd.command_buffer.direct_test"

_SECONDS: Final = 60.0  # it compiles kernels, on a machine that may be busy
_CPU, _NATIVE_KERNEL = OPENCL["CL_DEVICE_TYPE_CPU"], OPENCL["CL_EXEC_NATIVE_KERNEL"]


@dataclass(frozen=True)
class Trust:
    """What the engine knows of a device's driver.

    `version` is None if `why_not` says why it is off.
    """

    version: PoclVersion | None = None
    why_not: str | None = None


@dataclass(frozen=True)
class _Report:
    """What a self-test came to, as `judge` takes it."""

    candidate: Candidate
    ok: bool
    reason: str
    remedy: str
    probed: bool


_known: Final[dict[tuple[str, ...], Trust]] = {}
_lock: Final = new_lock()


def trust_of(device: int) -> Trust:
    """Whether the engine may run kernels of a device (a handle); known once for the process.

    Threads that ask at the same time wait for one self-test.
    """
    try:
        identity = device_identity(device)
        with _lock:
            if identity not in _known:
                _known[identity] = _judge(device, identity)
            return _known[identity]
    except OpenCLError as error:
        return Trust(why_not=f"the driver does not describe the device, {error}")


def _judge(device: int, identity: Sequence[str]) -> Trust:
    _, platform_version, *_ = identity
    version = version_of(platform_version)
    if not profile_of_device(device).has_kernels_in_process:
        return Trust(why_not="the driver is not PoCL, whose kernels are functions of this process")
    if version is None:
        return Trust(why_not=f"{platform_version} is no version of PoCL that it is proven for")
    if not _number(device, "CL_DEVICE_TYPE") & _CPU:
        return Trust(why_not="the device is no CPU")
    if not _number(device, "CL_DEVICE_EXECUTION_CAPABILITIES") & _NATIVE_KERNEL:
        return Trust(why_not="the device runs no native kernels")
    why_not = why_not_library(_library_of(device))
    return Trust(why_not=why_not) if why_not else Trust(version)


def why_not_library(path: str) -> str | None:
    """Why a driver's file is not trusted, None if its self-test has passed.

    Args:
        path: of the file.
    """
    if not path:
        return "the driver's file is not known"
    if secure_environ().get("FAIRLEAD_PROBE") == "0":
        return "FAIRLEAD_PROBE=0 forbids its self-test"
    candidate = Candidate(path, "the driver of a device", None)
    refusals = judge((candidate,), _test, "direct")
    return refusals[candidate].reason if refusals else None


def try_library(path: str, platform_version: str) -> str | None:
    """Run the self-test of a driver's file anew; nothing is remembered.

    Args:
        path: of the file.
        platform_version: CL_PLATFORM_VERSION of its platform.

    Returns:
        Why it is not trusted, None if it is.
    """
    if version_of(platform_version) is None:
        return "its version is not one that the engine is proven for"
    (report,) = _test((Candidate(path, "the driver of a device", None),))
    return report.reason or None


def _test(candidates: Sequence[Candidate]) -> list[_Report]:
    outcomes = run_all([Request(SELF_TEST, asdict(one)) for one in candidates], _SECONDS)
    return [_report(*both) for both in zip(candidates, outcomes, strict=True)]


def _report(candidate: Candidate, outcome: Outcome) -> _Report:
    found = outcome.report
    reason = (
        "its self-test did not run" if not outcome.probed else f"its self-test: {outcome.reason}"
    )
    if found is not None:
        reason = f"its self-test: {found['difference']}" if found["difference"] else ""
    if not outcome.probed:
        reason = "; ".join((reason, *outcome.notes))
    return _Report(candidate, not reason, reason, "the other engines do its work", outcome.probed)


def _number(device: int, name: str) -> int:
    value = ffi.new("uint64_t *")
    code = call(device, "clGetDeviceInfo", OPENCL[name], 8, address(value), None)
    check(code, "clGetDeviceInfo")
    return value[0]


def _library_of(device: int) -> str:
    """The file that the driver's functions lie in."""
    table = lib.fl_table_of(ffi.cast("void *", device))
    slot = OPENCL.functions["clCreateContext"].slot
    return file_of(address(table[slot]))
