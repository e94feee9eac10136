"""The OpenCL ABI: `OPENCL` is the content of opencl.abi, and here are the other facts.

Sources: the OpenCL 3.1 headers (CL/cl_icd.h has the order of the slots), and
api/cl_khr_icd.asciidoc for the tag.
"""

from __future__ import annotations

import ctypes
import os

from ..loader.base.abi import Api

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

OPENCL: Final = Api(os.path.join(os.path.dirname(__file__), "opencl.abi"))

#: Number of slots of `struct _cl_icd_dispatch` in the headers of OpenCL 3.1.
SLOT_COUNT: Final = 150

#: The content of slots 0 and 31 of an ICD 2 driver's table: "OPENCL31", on 32 bits "CL31"
#: (CL/cl_ext.h).
ICD2_TAG: Final = 0x4F50454E434C3331 if ctypes.sizeof(ctypes.c_void_p) == 8 else 0x434C3331

#: The two slots with the tag: clGetPlatformIDs and clUnloadCompiler (cl_khr_icd, "ICD 2
#: detection").
TAG_SLOTS: Final = (0, 31)

CL_SUCCESS: Final = 0
CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST: Final = -14
CL_INVALID_CONTEXT: Final = -34
CL_INVALID_COMMAND_QUEUE: Final = -36
CL_INVALID_MEM_OBJECT: Final = -38
CL_INVALID_OPERATION: Final = -59


def count_slots(version: tuple[int, int]) -> int:
    """Return the smallest number of slots that the table of an ICD 1 driver has.

    A driver's table may be shorter than ours, and nothing in it says how long it is. Reading past
    its end is a crash. A slot's `since` is the version whose `cl_icd.h` first had it.

    Args:
        version: the OpenCL version of the driver's platform (major, minor).
    """
    return sum(function.since <= version for function in OPENCL.slots)
