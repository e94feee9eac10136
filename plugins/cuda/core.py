"""The adapter, the driver that it is on, and the codes that the driver's errors become.

Driver functions are called by neutral names, `device.call("MemAlloc", …)`. `NAMES` has the names
that CUDA exports. So an adapter on an API with the same functions under other names needs another
table and no other code.
"""

from __future__ import annotations

import re
from typing import Final

from ...loader.base.errors import FairleadError
from ...loader.cuda.abi import CUDA, CudaError, check
from ...loader.cuda.driver import CudaDriver, cuda
from ..sdk.adapter import Adapter
from ..sdk.conversions import failure
from ..sdk.objects import Object

adapter: Final = Adapter("FAIRLEAD", backend="UR_BACKEND_CUDA")

#: The exported names of the driver's functions by neutral names: MemAlloc is cuMemAlloc_v2.
NAMES: Final = {re.sub(r"^cu|_v\d+$", "", name): name for name in CUDA.functions}

#: The codes of Unified Runtime for CUDA's. What is not here becomes UNKNOWN.
_CODES: Final = {
    "INVALID_VALUE": "INVALID_VALUE",
    "OUT_OF_MEMORY": "OUT_OF_DEVICE_MEMORY",
    "NOT_INITIALIZED": "UNINITIALIZED",
    "DEVICE_UNAVAILABLE": "DEVICE_NOT_AVAILABLE",
    "NO_DEVICE": "DEVICE_NOT_FOUND",
    "INVALID_DEVICE": "INVALID_DEVICE",
    "INVALID_IMAGE": "INVALID_BINARY",
    "INVALID_CONTEXT": "INVALID_CONTEXT",
    "NO_BINARY_FOR_GPU": "INVALID_BINARY",
    "PEER_ACCESS_UNSUPPORTED": "UNSUPPORTED_FEATURE",
    "INVALID_PTX": "INVALID_BINARY",
    "UNSUPPORTED_PTX_VERSION": "INVALID_BINARY",
    "JIT_COMPILER_NOT_FOUND": "COMPILER_NOT_AVAILABLE",
    "JIT_COMPILATION_DISABLED": "COMPILER_NOT_AVAILABLE",
    "INVALID_SOURCE": "INVALID_BINARY",
    "INVALID_HANDLE": "INVALID_VALUE",
    "ILLEGAL_STATE": "INVALID_OPERATION",
    "NOT_FOUND": "INVALID_VALUE",
    "LAUNCH_OUT_OF_RESOURCES": "OUT_OF_RESOURCES",
    "HOST_MEMORY_ALREADY_REGISTERED": "INVALID_OPERATION",
    "HOST_MEMORY_NOT_REGISTERED": "INVALID_OPERATION",
    "PEER_ACCESS_ALREADY_ENABLED": "INVALID_OPERATION",
    "PEER_ACCESS_NOT_ENABLED": "INVALID_OPERATION",
    "COOPERATIVE_LAUNCH_TOO_LARGE": "INVALID_WORK_GROUP_SIZE",
    "NOT_PERMITTED": "INVALID_OPERATION",
    "NOT_SUPPORTED": "UNSUPPORTED_FEATURE",
    # After these the context cannot be used any more.
    **dict.fromkeys(
        (
            "ECC_UNCORRECTABLE",
            "NVLINK_UNCORRECTABLE",
            "ILLEGAL_ADDRESS",
            "LAUNCH_TIMEOUT",
            "CONTEXT_IS_DESTROYED",
            "ASSERT",
            "HARDWARE_STACK_ERROR",
            "ILLEGAL_INSTRUCTION",
            "MISALIGNED_ADDRESS",
            "INVALID_ADDRESS_SPACE",
            "INVALID_PC",
            "LAUNCH_FAILED",
        ),
        "DEVICE_LOST",
    ),
}

NOT_READY: Final = CUDA.codes["CUDA_ERROR_NOT_READY"]


def _code(error: CudaError) -> str:
    return _CODES.get(error.code.removeprefix("CUDA_ERROR_"), "UNKNOWN")


adapter.codes[CudaError] = _code


def find_driver() -> CudaDriver | None:
    """Return the driver, None without one. The log has the reason."""
    try:
        return cuda()
    except FairleadError as error:
        adapter.log("warning", f"no CUDA driver can be used: {error}")
        return None


__all__ = [
    "CUDA",
    "NAMES",
    "NOT_READY",
    "CudaDriver",
    "CudaError",
    "Object",
    "adapter",
    "check",
    "failure",
    "find_driver",
]
