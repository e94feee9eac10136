"""The ABI of HIP: the contents of `hip.abi`, the error class, and what HIP calls CUDA's things.

HIP has most functions of the CUDA driver under other names. So code for CUDA runs on HIP with
another table of names: `NAMES` for functions, `CONSTANTS` for constants. HIP's error codes are
CUDA's numbers, where CUDA has the error. What differs in more than the name is in other places:

- parameters: `hip.abi` has HIP's own;
- layouts: `hip.abi` has HIP's own structs, and `find_name` chooses among those of several versions.

HIP 6.0 changed some layouts and numbers, and so did a version after 5.2. `OLDER` has the endings of
the older ones' names.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import ClassVar, Final

from ..base.abi import Api
from ..base.errors import CodeError
from ..cuda.abi import CUDA
from ..cuda.abi import NAMES as CUDA_NAMES

HIP: Final = Api(os.path.join(os.path.dirname(__file__), "hip.abi"))
_DEVICES: Final = (
    "look at HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES; a container needs the options "
    "--device=/dev/kfd --device=/dev/dri; AMD_LOG_LEVEL=3 says more"
)


class HipError(CodeError):
    """A function of HIP returned an error code (hipError_t). `value` is the number."""

    api = HIP
    api_name = "HIP"
    unknown = "HIP_{value}"
    remedies: ClassVar[Mapping[str, str]] = {
        "hipErrorNoDevice": _DEVICES,
        "hipErrorInvalidDevice": _DEVICES,
        "hipErrorInsufficientDriver": "update the kernel's driver, amdgpu",
        "hipErrorNoBinaryForGpu": "compile the program for the device's architecture, such as "
        "gfx90a",
    }


check: Final = HipError.check


#: Neutral names of functions that HIP lacks, or has for other objects only.
MISSING: Final = frozenset(
    (
        "FuncGetModule",
        "FuncGetName",
        "FuncGetParamInfo",
        "FuncSetAttribute",  # hipFuncSetAttribute takes functions of the host
        "GraphAddDependencies",  # with kinds of edges; the engine cuda uses these three
        "GraphAddNode",
        "GraphConditionalHandleCreate",
        "GraphRemoveDependencies",
        "LaunchKernelEx",  # there are no clusters
        "LinkAddData",  # AMD's compiler library links
        "LinkComplete",
        "LinkCreate",
        "LinkDestroy",
        "MemsetD2D16Async",
        "MemsetD2D32Async",
        "ModuleEnumerateFunctions",
        "ModuleGetFunctionCount",
    )
)
#: Neutral name to HIP's name, where HIP's is not "hip" and the neutral name.
_OTHER_NAMES: Final = {
    "CtxDisablePeerAccess": "hipDeviceDisablePeerAccess",  # takes a device's number
    "CtxEnablePeerAccess": "hipDeviceEnablePeerAccess",  # takes a device's number
    "CtxGetStreamPriorityRange": "hipDeviceGetStreamPriorityRange",
    "CtxSynchronize": "hipDeviceSynchronize",  # hipCtxSynchronize always fails
    "DeviceGetCount": "hipGetDeviceCount",
    "EventCreate": "hipEventCreateWithFlags",
    "LaunchCooperativeKernel": "hipModuleLaunchCooperativeKernel",
    "LaunchKernel": "hipModuleLaunchKernel",
    "MemAlloc": "hipMalloc",
    "MemAllocFromPoolAsync": "hipMallocFromPoolAsync",
    "MemAllocManaged": "hipMallocManaged",
    "MemFree": "hipFree",
    "MemFreeAsync": "hipFreeAsync",
    "MemFreeHost": "hipHostFree",
    "MemHostAlloc": "hipHostMalloc",
    "MemHostRegister": "hipHostRegister",
    "MemHostUnregister": "hipHostUnregister",
    "Memcpy3DAsync": "hipMemcpy3DAsync",  # takes hipMemcpy3DParms, as nodes of graphs do
    "MemsetD2D8Async": "hipMemset2DAsync",
    "OccupancyMaxActiveBlocksPerMultiprocessor": (
        "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor"
    ),
    "StreamCreate": "hipStreamCreateWithFlags",
    "StreamGetCaptureInfo": "hipStreamGetCaptureInfo_v2",  # without kinds of edges
    "StreamGetCtx": "hipStreamGetDevice",  # writes a device's number
    "SurfObjectCreate": "hipCreateSurfaceObject",  # reads less of the struct than CUDA
    "SurfObjectDestroy": "hipDestroySurfaceObject",
}
#: The names that HIP exports, by neutral names: MemAlloc is hipMalloc.
NAMES: Final = {
    name: _OTHER_NAMES.get(name, f"hip{name}") for name in CUDA_NAMES if name not in MISSING
}

#: What begins the names of constants, in CUDA's header and in HIP's. The rest is the same.
_SAME_ENDS: Final = {
    "CU_FUNC_ATTRIBUTE_": "HIP_FUNC_ATTRIBUTE_",
    "CU_POINTER_ATTRIBUTE_": "HIP_POINTER_ATTRIBUTE_",
}
#: What begins them where HIP writes the rest in another way: WARP_SIZE is WarpSize.
_CAMEL_ENDS: Final = {
    "CU_DEVICE_ATTRIBUTE_": "hipDeviceAttribute",
    "CU_DEVICE_P2P_ATTRIBUTE_": "hipDevP2PAttr",
    "CU_EVENT_": "hipEvent",
    "CU_MEMHOSTREGISTER_": "hipHostRegister",
    "CU_MEMORYTYPE_": "hipMemoryType",
    "CU_MEM_ADVISE_": "hipMemAdvise",
    "CU_MEMPOOL_ATTR_": "hipMemPoolAttr",
    "CU_MEM_ALLOCATION_TYPE_": "hipMemAllocationType",
    "CU_MEM_ALLOC_GRANULARITY_": "hipMemAllocationGranularity",
    "CU_MEM_ATTACH_": "hipMemAttach",
    "CU_MEM_HANDLE_TYPE_": "hipMemHandleType",
    "CU_MEM_LOCATION_TYPE_": "hipMemLocationType",
    "CU_STREAM_CAPTURE_MODE_": "hipStreamCaptureMode",
    "CU_STREAM_CAPTURE_STATUS_": "hipStreamCaptureStatus",
    "CU_STREAM_": "hipStream",
}
_OTHER_CONSTANTS: Final = {
    "CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH": "hipDeviceAttributeMemoryBusWidth",
    "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": (
        "hipDeviceAttributeSharedMemPerBlockOptin"
    ),
    **{
        f"CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE{dimensions}_{side.upper()}": (
            f"hipDeviceAttributeMaxTexture{dimensions}{side}"
        )
        for dimensions, sides in {
            "1D": ("Width",),
            "2D": ("Width", "Height"),
            "3D": ("Width", "Height", "Depth"),
        }.items()
        for side in sides
    },
    "CU_MEMHOSTALLOC_DEVICEMAP": "hipHostMallocMapped",
    "CU_MEMHOSTALLOC_PORTABLE": "hipHostMallocPortable",
    "CU_MEM_ACCESS_FLAGS_PROT_NONE": "hipMemAccessFlagsProtNone",
    "CU_MEM_ACCESS_FLAGS_PROT_READ": "hipMemAccessFlagsProtRead",
    "CU_MEM_ACCESS_FLAGS_PROT_READWRITE": "hipMemAccessFlagsProtReadWrite",
}


def _find_constant(name: str) -> str:
    """Return HIP's name of a constant of CUDA's, whether HIP has it or not."""
    if name in _OTHER_CONSTANTS:
        return _OTHER_CONSTANTS[name]
    for begin, other in {**_SAME_ENDS, **_CAMEL_ENDS}.items():
        if name.startswith(begin):
            end = name.removeprefix(begin)
            return other + (end if begin in _SAME_ENDS else end.title().replace("_", ""))
    return ""


#: HIP's names of CUDA's constants, of those that HIP has.
CONSTANTS: Final = {
    name: _find_constant(name) for name in CUDA.constants if _find_constant(name) in HIP.constants
}


#: What ends the name of an older layout or number, and the first version that has the newer one.
#: The header of 5.5 is the first after that of 5.2 that was looked at.
OLDER: Final = {"_52": (5, 3), "_5": (6, 0)}


def find_name(name: str, version: tuple[int, int]) -> str:
    """Return the name in hip.abi of a struct or constant, as a version of HIP has it.

    Args:
        name: such as "hipMemoryTypeHost" or "HIP_MEMCPY3D".
        version: HIP's version, major and minor.
    """
    older = (name + ending for ending, newer in OLDER.items() if version < newer)
    return next((one for one in older if one in HIP.structs or one in HIP.constants), name)
