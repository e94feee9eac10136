"""OpenCL adapter: what C does for this adapter without Python (plugins/sdk/native/calls.h): the
entry points that begin in C, and the queries whose answers C keeps.

Without this module everything runs in Python. So does it with FAIRLEAD_CALLS=python.
"""

from __future__ import annotations

import re
from typing import Final

from ...loader.ur.abi import UR
from ..sdk._native import ffi, lib
from .core import adapter

adapter.in_c |= {name[2:] for name in dir(lib.fl_in_c) if name.startswith("c_ur")}
adapter.in_c.remove("urEnqueueCommandBufferExp")  # C enqueues graphs of CUDA and HIP alone
# References are counted in C for every adapter.
adapter.in_c -= {name for name in adapter.in_c if re.search("(Retain|Release)(Exp)?$", name)}

#: Queries whose answers C keeps: C's number of each, and the type of its properties.
_QUERIES: Final = {
    "urPlatformGetInfo": (lib.FL_OF_PLATFORM, "ur_platform_info_t"),
    "urDeviceGetInfo": (lib.FL_OF_DEVICE, "ur_device_info_t"),
    "urContextGetInfo": (lib.FL_OF_CONTEXT, "ur_context_info_t"),
    "urKernelGetInfo": (lib.FL_OF_KERNEL, "ur_kernel_info_t"),
    "urKernelGetGroupInfo": (lib.FL_OF_GROUP, "ur_kernel_group_info_t"),
    "urKernelGetSubGroupInfo": (lib.FL_OF_SUB_GROUP, "ur_kernel_sub_group_info_t"),
}

#: Words in the names of properties that may change while their object lives. Arguments of kernels
#: change what local memory a kernel needs.
_CHANGING: Final = (
    *("REFERENCE_COUNT", "FREE", "CLOCK", "TEMPERATURE", "FAN", "POWER", "THROTTLE"),
    *("GROUP_INFO_LOCAL_MEM_SIZE", "PRIVATE_MEM_SIZE", "UTILIZATION", "AVAILABLE", "ASYNC_BARRIER"),
)


def _keep_answers() -> list[object]:
    """Tell C which answers last, and return what has to live as long as C."""
    kept: list[object] = []
    for number, group in _QUERIES.values():
        names = []
        for value, name in UR.groups[group].items():
            if any(word in name for word in _CHANGING):
                continue
            has_handles = "_handle_t" in UR.constants[name].answer
            names.append(-value - 1 if has_handles else value)
        array = ffi.new("int64_t[]", names)
        lib.fl_keep_answers(number, array, len(names))
        kept.append(array)
    return kept


_kept: Final = _keep_answers()
