"""Lets graphs of captured PyOpenCL code run as CUDA Graphs on NVIDIA's devices.

    import fairlead.cuda_sharing  # before the program creates buffers
    import pyopencl

From then on the buffers that the program creates on NVIDIA's platform are made of memory that CUDA
has, too. FAIRLEAD_CUDA=1 does the same when fairlead is imported. docs/cuda.md says what runs as a
CUDA Graph, and what it costs.

Raises NotFoundError at the import where no device can share its memory. It says why.
"""

from __future__ import annotations

from typing import Final

from .icd.cuda_sharing import SharedMemory, share_memory

#: The devices that share their memory, and why others do not.
SHARED: Final[SharedMemory] = share_memory()
