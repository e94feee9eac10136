"""The ABI of the CUDA driver API: the contents of `cuda.abi`, and the error class.

CUDA has no dispatch table. fairlead makes one of the driver's functions (driver.py), so that calls
from Python and from C can be traced.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import ClassVar, Final

from ..base.abi import Api
from ..base.errors import CodeError

CUDA: Final = Api(os.path.join(os.path.dirname(__file__), "cuda.abi"))


def find_neutral_name(name: str) -> str:
    """Return the neutral name of a function of CUDA's: MemAlloc of cuMemAlloc_v2."""
    return re.sub(r"^cu|_v\d+$", "", name)


#: The names that CUDA exports, by neutral names: MemAlloc is cuMemAlloc_v2.
NAMES: Final = {find_neutral_name(name): name for name in CUDA.functions}


class CudaError(CodeError):
    """A function of the CUDA driver returned an error code (CUresult). `value` is the number."""

    api = CUDA
    api_name = "CUDA"
    unknown = "CUDA_{value}"
    remedies: ClassVar[Mapping[str, str]] = {
        "CUDA_ERROR_NO_DEVICE": "look at `nvidia-smi` and CUDA_VISIBLE_DEVICES; a container "
        "needs the NVIDIA container toolkit",
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "restart the machine after the driver's update",
        "CUDA_ERROR_STUB_LIBRARY": "remove the folder with CUDA's stubs from LD_LIBRARY_PATH",
    }


check: Final = CudaError.check
