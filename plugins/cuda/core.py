"""CUDA and HIP: the adapter, the API that it is on, and the codes that the driver's errors become.

Driver functions are called by neutral names, `device.call("MemAlloc", …)`. `NAMES` has the names
that the driver exports. What differs between CUDA and HIP is in `API` (sdk/gpu/api.py).

What the driver answers is raised as DriverError. Docstrings name the other errors.
"""

from __future__ import annotations

from typing import Any, Final

from ...loader.base.errors import CodeError, FairleadError
from ...loader.cuda.abi import CUDA
from ..sdk.adapter import Adapter
from ..sdk.conversions import failure
from ..sdk.objects import Object
from .api import API

adapter: Final = Adapter("FAIRLEAD", backend=API.backend)

#: The exported names of the driver's functions by neutral names.
NAMES: Final = API.names

#: The codes of Unified Runtime for CUDA's and HIP's, whose numbers are CUDA's. What is not here
#: becomes UNKNOWN.
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
    "INVALID_CLUSTER_SIZE": "INVALID_WORK_GROUP_SIZE",
    "NOT_PERMITTED": "INVALID_OPERATION",
    "NOT_SUPPORTED": "UNSUPPORTED_FEATURE",
    "STREAM_CAPTURE_UNSUPPORTED": "GRAPH_CAPTURE_UNSUPPORTED",
    "STREAM_CAPTURE_INVALIDATED": "GRAPH_CAPTURE_INVALIDATED",
    "STREAM_CAPTURE_MERGE": "GRAPH_CAPTURE_MERGE_ATTEMPT",
    "STREAM_CAPTURE_UNMATCHED": "INVALID_OPERATION",
    "STREAM_CAPTURE_UNJOINED": "GRAPH_UNJOINED_FORKS",
    "STREAM_CAPTURE_ISOLATION": "GRAPH_CAPTURE_UNSUPPORTED",
    "STREAM_CAPTURE_IMPLICIT": "GRAPH_CAPTURE_UNSUPPORTED",
    "CAPTURED_EVENT": "GRAPH_INTERNAL_EVENT",
    "STREAM_CAPTURE_WRONG_THREAD": "INVALID_OPERATION",
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

#: HIP has other errors of these numbers.
_CUDA_ONLY: Final = frozenset({"INVALID_CLUSTER_SIZE"})
_NUMBERS: Final = {
    CUDA.codes[f"CUDA_ERROR_{name}"]: code
    for name, code in _CODES.items()
    if API.abi is CUDA or name not in _CUDA_ONLY
}
INVALID_VALUE, NOT_FOUND, NOT_READY = (
    CUDA.codes[f"CUDA_ERROR_{name}"] for name in ("INVALID_VALUE", "NOT_FOUND", "NOT_READY")
)


#: The exception for a code of the driver. Its `value` is the number.
DriverError: Final = API.error


def _find_code(error: CodeError) -> str:
    return _NUMBERS.get(error.value, "UNKNOWN")


adapter.codes[DriverError] = _find_code


def check(code: int, routine: str, detail: str = "") -> None:
    """Raise DriverError unless `code` is 0."""
    if code:
        raise DriverError.from_code(code, routine, detail)


def get_constant(name: str) -> int:
    """Return a constant by CUDA's name."""
    return API.get_constant(name)


def find_routine(name: str) -> str:
    """Return the exported name of a function by its neutral name.

    Raises:
        URError: UNSUPPORTED_FEATURE if the API does not have it.
    """
    found = NAMES.get(name)
    if found is None:
        raise failure("UNSUPPORTED_FEATURE", f"{API.name} has no function like {name}")
    return found


def find_driver() -> Any:
    """Return the driver (`GpuDriver`), None without one. The log has the reason."""
    try:
        return API.open()
    except FairleadError as error:
        adapter.log("warning", f"no {API.name} driver can be used: {error}")
        return None


__all__ = [
    "API",
    "INVALID_VALUE",
    "NAMES",
    "NOT_FOUND",
    "NOT_READY",
    "DriverError",
    "Object",
    "adapter",
    "check",
    "failure",
    "find_driver",
    "find_routine",
    "get_constant",
]
