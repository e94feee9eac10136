"""The errors of runtime and graph: SYCL's error classes (`Errc`), each with its routine, plain
words and the remedy.

Upstream raises one class, `sycl::exception`, whose `code()` tells the kind of error. So it is here:
`except SYCLError as error`, and then `error.errc is Errc.invalid`. `error.code` is what a Unified
Runtime function returned, "UR_RESULT_ERROR_…". (SYCL 2020, section 4.13.)
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final

from ..loader.base.errors import FairleadError
from ..loader.ur.abi import URError


class Errc(enum.IntEnum):
    """Error classes, with the numbers that DPC++ gives them (SYCL 2020, section 4.13.2)."""

    success = 0
    runtime = 1
    kernel = 2
    accessor = 3
    nd_range = 4
    event = 5
    kernel_argument = 6
    build = 7
    invalid = 8
    memory_allocation = 9
    platform = 10
    profiling = 11
    feature_not_supported = 12
    kernel_not_supported = 13
    backend_mismatch = 14


class SYCLError(FairleadError):
    """An error of the runtime or of a graph. `errc` is its class. See FairleadError for the other
    attributes."""

    def __init__(
        self, errc: Errc, message: str, *, routine: str = "", code: str = "", remedy: str = ""
    ) -> None:
        super().__init__(message, routine=routine, code=code, remedy=remedy)
        self.errc = errc

    def with_message(self, message: str, routine: str) -> SYCLError:
        """Return the same error with another message, for another routine."""
        return SYCLError(self.errc, message, routine=routine, code=self.code, remedy=self.remedy)


def make_invalid_error(message: str, *, routine: str = "", remedy: str = "") -> SYCLError:
    """Return the error for a misuse.

    Args:
        routine: the function that was called.
    """
    return SYCLError(Errc.invalid, message, routine=routine, remedy=remedy)


def make_unsupported_error(message: str, *, routine: str = "", remedy: str = "") -> SYCLError:
    """Return the error for something that the device or its adapter cannot do.

    Args:
        message: what cannot be done.
        routine: the function that was called.
        remedy: what to do instead.
    """
    return SYCLError(Errc.feature_not_supported, message, routine=routine, remedy=remedy)


#: The class of an adapter's codes; every other one is `runtime`.
_CLASSES: Final = {
    "UR_RESULT_ERROR_UNSUPPORTED_FEATURE": Errc.feature_not_supported,
    "UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION": Errc.feature_not_supported,
    "UR_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT": Errc.feature_not_supported,
    "UR_RESULT_ERROR_INVALID_IMAGE_SIZE": Errc.invalid,
    "UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY": Errc.memory_allocation,
    "UR_RESULT_ERROR_OUT_OF_HOST_MEMORY": Errc.memory_allocation,
    "UR_RESULT_ERROR_OUT_OF_RESOURCES": Errc.memory_allocation,
    "UR_RESULT_ERROR_MEM_OBJECT_ALLOCATION_FAILURE": Errc.memory_allocation,
    "UR_RESULT_ERROR_PROGRAM_BUILD_FAILURE": Errc.build,
    "UR_RESULT_ERROR_PROGRAM_LINK_FAILURE": Errc.build,
    "UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE": Errc.nd_range,
    "UR_RESULT_ERROR_INVALID_WORK_ITEM_SIZE": Errc.nd_range,
    "UR_RESULT_ERROR_INVALID_WORK_DIMENSION": Errc.nd_range,
    "UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX": Errc.kernel_argument,
    "UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE": Errc.kernel_argument,
    "UR_RESULT_ERROR_INVALID_KERNEL_ARGS": Errc.kernel_argument,
    "UR_RESULT_ERROR_INVALID_KERNEL_NAME": Errc.invalid,
    "UR_RESULT_ERROR_INVALID_CONTEXT": Errc.invalid,
    "UR_RESULT_ERROR_INVALID_DEVICE": Errc.invalid,
    "UR_RESULT_ERROR_PROFILING_INFO_NOT_AVAILABLE": Errc.profiling,
}


_ARGUMENTS: Final = (
    "give each argument as the kernel declares it: numpy.float32(…) for a float, "
    "LocalMemory for a local pointer"
)
_GROUPS: Final = "use smaller work-groups: device.info({!r})"

#: What helps, where nobody says it better.
_REMEDIES: Final = {
    "UR_RESULT_ERROR_INVALID_CONTEXT": "make programs, memory and graphs for the queue that uses "
    "them: Program(queue, …)",
    "UR_RESULT_ERROR_INVALID_DEVICE": "give a device of the context: context.devices",
    "UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE": _ARGUMENTS,
    "UR_RESULT_ERROR_INVALID_KERNEL_ARGS": _ARGUMENTS,
    "UR_RESULT_ERROR_INVALID_WORK_GROUP_SIZE": _GROUPS.format("MAX_WORK_GROUP_SIZE"),
    "UR_RESULT_ERROR_INVALID_WORK_ITEM_SIZE": _GROUPS.format("MAX_WORK_ITEM_SIZES"),
    "UR_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT": "use the four channels that every device has: "
    "Image(…, channels=4)",
    "UR_RESULT_ERROR_INVALID_IMAGE_SIZE": 'use a smaller image: device.info("IMAGE2D_MAX_WIDTH") '
    "and its like",
    "UR_RESULT_ERROR_INVALID_USM_SIZE": 'allocate less: device.info("MAX_MEM_ALLOC_SIZE")',
}

#: Codes that only the adapter's last error explains.
_WITHOUT_MEANING: Final = ("UR_RESULT_ERROR_UNKNOWN", "UR_RESULT_ERROR_ADAPTER_SPECIFIC")


def check(
    code: int, routine: str, detail: str = "", remedy: str = "", read_error: Callable[[], str] = str
) -> None:
    """Raise SYCLError if `code` is an error. The message is the adapter's last error if it contains
    the code's sentence, or if the code has no meaning of its own; else that sentence. An adapter
    keeps the last error of earlier codes.

    Args:
        code: the code of a Unified Runtime function.
        detail: follows the sentence.
        remedy: what to do; by default what helps for the code.
        read_error: returns the adapter's last error.
    """
    if code:
        name, sentence = URError.describe(code)
        last = read_error()
        if sentence not in last:
            last = f"The adapter failed: {last}" if last and name in _WITHOUT_MEANING else sentence
        text = f"{last} {detail}".rstrip()
        raise SYCLError(
            _CLASSES.get(name, Errc.runtime),
            text,
            routine=routine,
            code=name,
            remedy=remedy or _REMEDIES.get(name, ""),
        )
