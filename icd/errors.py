"""OpenCL's error codes as exceptions: the code, its symbolic name and its sentence come from the ABI data.

`check(code, routine)` raises `OpenCLError` for anything but CL_SUCCESS; `PlatformNotFoundError` is what a search raises.
"""

from __future__ import annotations

from ..loader.errors import FairleadError, NotFoundError
from .abi import OPENCL


class OpenCLError(FairleadError):
    """An OpenCL function answered with an error code; `value` is the number."""

    value: int = 0

    def __init__(self, message: str, *, routine: str = "", code: str = "", value: int = 0, remedy: str = "") -> None:
        super().__init__(message, routine=routine, code=code, remedy=remedy)
        self.value = value


class PlatformNotFoundError(NotFoundError):
    """No usable OpenCL platform (CL_PLATFORM_NOT_FOUND_KHR): `reasons` says what was looked at and why it was refused."""


_REMEDIES = {
    "CL_OUT_OF_RESOURCES": "an earlier command may have failed: finish the queue after each call to find it",
    "CL_BUILD_PROGRAM_FAILURE": "read the build log; `fairlead doctor` tells whether the driver's compiler works at all",
    "CL_INVALID_KERNEL_ARGS": "set every argument of the kernel before it is enqueued",
    "CL_MEM_OBJECT_ALLOCATION_FAILURE": "release buffers that are no longer used, or make smaller ones",
}


def describe(code: int) -> tuple[str, str]:
    """The symbolic name and the plain sentence of an OpenCL error code."""
    return OPENCL.errors.get(code, (f"CL_ERROR_{code}", "The driver returned a code that OpenCL does not define."))


def error(code: int, routine: str, detail: str = "", remedy: str = "") -> OpenCLError:
    """The exception for `code`; `detail` is put after the code's own sentence."""
    name, sentence = describe(code)
    text = f"{sentence} {detail}" if detail else sentence
    return OpenCLError(text, routine=routine, code=name, value=code, remedy=remedy or _REMEDIES.get(name, ""))


def check(code: int, routine: str, detail: str = "", remedy: str = "") -> None:
    """Raise unless `code` is CL_SUCCESS."""
    if code:
        raise error(code, routine, detail, remedy)
