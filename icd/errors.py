"""OpenCL's error codes as exceptions.

The names and sentences of the codes are in the section [errors] of opencl.abi.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..loader.base.errors import CodeError, NotFoundError
from .abi import OPENCL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar


class OpenCLError(CodeError):
    """An OpenCL function answered with an error code; `value` is its number."""

    api = OPENCL
    api_name = "OpenCL"
    unknown = "CL_ERROR_{value}"
    remedies: ClassVar[Mapping[str, str]] = {
        "CL_OUT_OF_RESOURCES": "an earlier command may have failed: "
        "finish the queue after each call to find it",
        "CL_BUILD_PROGRAM_FAILURE": "read the build log; "
        "`fairlead doctor` tells whether the driver works at all",
        "CL_INVALID_KERNEL_ARGS": "set every argument of the kernel before it is enqueued",
        "CL_MEM_OBJECT_ALLOCATION_FAILURE": "release buffers that are not used any more, "
        "or make smaller ones",
    }


class PlatformNotFoundError(NotFoundError):
    """There is no usable OpenCL platform (CL_PLATFORM_NOT_FOUND_KHR).

    `reasons` says what was searched, what was refused, and why.
    """


#: The symbolic name and the plain sentence of an OpenCL error code; the exception for one.
describe = OpenCLError.describe
error = OpenCLError.from_code


def check(code: int, routine: str, detail: str = "", remedy: str = "") -> None:
    """Raise OpenCLError unless `code` is CL_SUCCESS.

    Args:
        detail: a sentence to add to that of the code.
        remedy: what to do; "" takes the one that is known for the code.
    """
    if code:
        raise error(code, routine, detail, remedy)
