"""OpenCL's error codes as exceptions: the code, its symbolic name and its sentence come from the ABI data.

`check(code, routine)` raises `OpenCLError` for anything but CL_SUCCESS; `PlatformNotFoundError` is what a search raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ..loader.base.errors import CodeError, NotFoundError
from .abi import OPENCL


class OpenCLError(CodeError):
    """An OpenCL function answered with an error code; `value` is the number."""

    api = OPENCL
    api_name = "OpenCL"
    unknown = "CL_ERROR_{value}"
    remedies: ClassVar[Mapping[str, str]] = {
        "CL_OUT_OF_RESOURCES": "an earlier command may have failed: finish the queue after each call to find it",
        "CL_BUILD_PROGRAM_FAILURE": "read the build log; `fairlead doctor` tells whether the driver's compiler works at all",
        "CL_INVALID_KERNEL_ARGS": "set every argument of the kernel before it is enqueued",
        "CL_MEM_OBJECT_ALLOCATION_FAILURE": "release buffers that are no longer used, or make smaller ones",
    }


class PlatformNotFoundError(NotFoundError):
    """No usable OpenCL platform (CL_PLATFORM_NOT_FOUND_KHR): `reasons` says what was looked at and why it was refused."""


#: The symbolic name and the plain sentence of an OpenCL error code; the exception for one.
describe = OpenCLError.describe
error = OpenCLError.of


def check(code: int, routine: str, detail: str = "", remedy: str = "") -> None:
    """Raise unless `code` is CL_SUCCESS."""
    if code:
        raise error(code, routine, detail, remedy)
