"""Lets graphs of captured PyOpenCL code run as CUDA Graphs on NVIDIA's devices.

    import fairlead.cuda_sharing  # before the program creates buffers
    import pyopencl

From then on the buffers that the program creates on NVIDIA's platform are made of memory that CUDA
has, too. FAIRLEAD_CUDA=1 does the same when fairlead is imported. docs/cuda.md says what runs as a
CUDA Graph, and what it costs.

In a context of several devices NVIDIA's OpenCL can give such memory to one of them only. There a
buffer is shared if the program says which device it is for:

    with fairlead.cuda_sharing.on_device(queue.device):
        x = pyopencl.array.zeros(queue, 1024, numpy.float32)

Raises NotFoundError at the import where no device can share its memory. It says why.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Final

from .icd.abi import OPENCL
from .icd.cuda_sharing import SharedMemory, find_shared_device, make_buffers_on, share_memory
from .icd.errors import error

#: The devices that share their memory, and why others do not.
SHARED: Final[SharedMemory] = share_memory()


def on_device(device: Any) -> AbstractContextManager[None]:
    """Let the buffers that this thread creates in a block be shared for one device of their
    context.

    OpenCL's commands can use such a buffer on queues of this device only. Graphs that run as CUDA
    Graphs can use it on all devices that reach its memory. In contexts of one device it changes
    nothing.

    Args:
        device: a pyopencl.Device.

    Raises:
        OpenCLError: the memory of the device is not shared.
    """
    if find_shared_device(device.int_ptr) is None:
        raise error(
            OPENCL.codes["CL_INVALID_DEVICE"],
            "on_device",
            f"The memory of {device.name} is not shared with CUDA.",
            "fairlead.cuda_sharing.SHARED says which devices share theirs, and why others do not",
        )
    return make_buffers_on(device.int_ptr)
