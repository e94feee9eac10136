"""What devices say of themselves.

Programs for Level Zero take GPUs of Intel and nothing else. So every device says that it is one,
unless FAIRLEAD_ZE_IDENTITY is `driver`: then it says what the OpenCL driver says. Its name is true
in any case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ...loader.base.search import filter_environ
from ..opencl.device_info import query_pci_numbers
from ..opencl.devices import can_take_spirv
from ..opencl.usm.strategies import STRATEGIES
from ..sdk._native_ze import ffi
from .core import ZE, driver, make_failure, walk_chain
from .devices import LARGEST, MUTABLE, ZeDevice, list_structs

_INTEL: Final = 0x8086
#: Bits of CL_DEVICE_…_FP_CONFIG, and the flags for them that have other numbers in Level Zero.
_MOVED: Final = (
    (1 << 7, ZE["ZE_DEVICE_FP_FLAG_ROUNDED_DIVIDE_SQRT"]),
    (1 << 6, ZE["ZE_DEVICE_FP_FLAG_SOFT_FLOAT"]),
)


def has_intel_id() -> bool:
    """Return whether devices say that they are GPUs of Intel."""
    name = filter_environ().get("FAIRLEAD_ZE_IDENTITY", "").strip().lower()
    if name not in ("", "gpu", "driver"):
        driver.log("warning", f"FAIRLEAD_ZE_IDENTITY={name} is ignored: it may be gpu or driver")
    return name != "driver"


def _fill_mutable(address: int) -> None:
    row = ffi.cast("ze_mutable_command_list_exp_properties_t *", address)
    row.mutableCommandListFlags, row.mutableCommandFlags = 0, MUTABLE


def _fill_graphs(address: int) -> None:
    row = ffi.cast("ze_record_replay_graph_ext_properties_t *", address)
    row.graphFlags = ZE["ZE_RECORD_REPLAY_GRAPH_EXT_FLAG_IMMUTABLE_GRAPH"]


def _fill_timestamps(address: int) -> None:
    row = ffi.cast("ze_event_query_kernel_timestamps_ext_properties_t *", address)
    names = "KERNEL", "SYNCHRONIZED"
    row.flags = sum(ZE[f"ZE_EVENT_QUERY_KERNEL_TIMESTAMPS_EXT_FLAG_{name}"] for name in names)


#: What fills a struct that a caller chains to the properties of a device.
_CHAINED: Final[dict[int, Callable[[int], None]]] = {
    ZE["ZE_STRUCTURE_TYPE_MUTABLE_COMMAND_LIST_EXP_PROPERTIES"]: _fill_mutable,
    ZE["ZE_STRUCTURE_TYPE_RECORD_REPLAY_GRAPH_EXT_PROPERTIES"]: _fill_graphs,
    ZE["ZE_STRUCTURE_TYPE_EVENT_QUERY_KERNEL_TIMESTAMPS_EXT_PROPERTIES"]: _fill_timestamps,
}


@driver.entry
def zeDeviceGetProperties(hDevice: ZeDevice, pDeviceProperties: Any) -> None:
    icd, row = hDevice.ur.icd, pDeviceProperties
    units = hDevice.query_number("CL_DEVICE_MAX_COMPUTE_UNITS", 1)
    kinds = {"CPU": "CPU", "GPU": "GPU", "ACCELERATOR": "FPGA"}
    kind = "GPU" if has_intel_id() else kinds.get(str(icd.type), "CPU")
    row.type = ZE[f"ZE_DEVICE_TYPE_{kind}"]
    row.vendorId = _INTEL if has_intel_id() else hDevice.query_number("CL_DEVICE_VENDOR_ID")
    row.deviceId, row.subdeviceId = 0, hDevice.place[-1] if hDevice.root is not None else 0
    row.flags = ZE["ZE_DEVICE_PROPERTY_FLAG_INTEGRATED"] | (
        ZE["ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE"] if hDevice.root is not None else 0
    )
    row.coreClockRate = hDevice.query_number("CL_DEVICE_MAX_CLOCK_FREQUENCY")
    row.maxMemAllocSize = hDevice.query_number("CL_DEVICE_MAX_MEM_ALLOC_SIZE")
    row.maxHardwareContexts, row.maxCommandQueuePriority = LARGEST, 0
    row.numThreadsPerEU = row.numEUsPerSubslice = row.numSubslicesPerSlice = 1
    row.numSlices = units
    row.physicalEUSimdWidth = max(hDevice.query_number("CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT", 1), 1)
    # Both units of the specification: nanoseconds a tick, and since 1.2 ticks a second.
    in_hertz = row.stype == ZE["ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2"]
    row.timerResolution = 1_000_000_000 if in_hertz else 1
    row.timestampValidBits = row.kernelTimestampValidBits = 64
    row.uuid.id = hDevice.uuid
    row.name = icd.name.encode()[: ZE["ZE_MAX_DEVICE_NAME"] - 1]
    for stype, address in walk_chain(row.pNext):
        if stype in _CHAINED:
            _CHAINED[stype](address)


@driver.entry
def zeDeviceGetComputeProperties(hDevice: ZeDevice, pComputeProperties: Any) -> None:
    row, limits = pComputeProperties, hDevice.group_limits
    row.maxTotalGroupSize = hDevice.query_number("CL_DEVICE_MAX_WORK_GROUP_SIZE", 1)
    row.maxGroupSizeX, row.maxGroupSizeY, row.maxGroupSizeZ = (
        min(limit, row.maxTotalGroupSize) for limit in limits
    )
    row.maxGroupCountX = row.maxGroupCountY = row.maxGroupCountZ = LARGEST
    row.maxSharedLocalMemory = min(hDevice.query_number("CL_DEVICE_LOCAL_MEM_SIZE"), LARGEST)
    sizes = hDevice.sub_group_sizes
    row.numSubGroupSizes = len(sizes)
    for index, size in enumerate(sizes):
        row.subGroupSizes[index] = size


def _query_fp_flags(hDevice: ZeDevice, kind: str) -> int:
    config = hDevice.query_number(f"CL_DEVICE_{kind}_FP_CONFIG")
    return config & 0x3F | sum(flag for bit, flag in _MOVED if config & bit)


@driver.entry
def zeDeviceGetModuleProperties(hDevice: ZeDevice, pModuleProperties: Any) -> None:
    row, extensions = pModuleProperties, hDevice.ur.icd.extensions
    row.spirvVersionSupported = (1 << 16 | 2 << 8) if can_take_spirv(hDevice.ur) else 0
    row.fp32flags = _query_fp_flags(hDevice, "SINGLE")
    row.fp64flags = _query_fp_flags(hDevice, "DOUBLE")
    row.fp16flags = _query_fp_flags(hDevice, "HALF") if "cl_khr_fp16" in extensions else 0
    row.flags = (
        (ZE["ZE_DEVICE_MODULE_FLAG_FP16"] if row.fp16flags else 0)
        | (ZE["ZE_DEVICE_MODULE_FLAG_FP64"] if row.fp64flags else 0)
        | (
            ZE["ZE_DEVICE_MODULE_FLAG_INT64_ATOMICS"]
            if "cl_khr_int64_base_atomics" in extensions
            else 0
        )
    )
    row.maxArgumentsSize = min(hDevice.query_number("CL_DEVICE_MAX_PARAMETER_SIZE", 1024), LARGEST)
    row.printfBufferSize = min(hDevice.query_number("CL_DEVICE_PRINTF_BUFFER_SIZE"), LARGEST)
    row.nativeKernelSupported.id = bytes(16)  # there are no kernels of the host


@driver.entry
def zeDeviceGetCommandQueueGroupProperties(
    hDevice: ZeDevice, pCount: Any, pCommandQueueGroupProperties: Any
) -> None:
    def fill(row: Any) -> None:
        row.flags = (
            ZE["ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE"]
            | ZE["ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY"]
            | ZE["ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COOPERATIVE_KERNELS"]
        )
        row.maxMemoryFillPatternSize, row.numQueues = (1 << 63) - 1, 1

    list_structs(pCount, pCommandQueueGroupProperties, [fill])


@driver.entry
def zeDeviceGetMemoryProperties(hDevice: ZeDevice, pCount: Any, pMemProperties: Any) -> None:
    def fill(row: Any) -> None:
        row.flags = row.maxClockRate = row.maxBusWidth = 0
        row.totalSize = hDevice.query_number("CL_DEVICE_GLOBAL_MEM_SIZE")
        row.name = b"global memory"

    list_structs(pCount, pMemProperties, [fill])


@driver.entry
def zeDeviceGetMemoryAccessProperties(hDevice: ZeDevice, pMemAccessProperties: Any) -> None:
    row = pMemAccessProperties
    found = next((one for one in STRATEGIES.values() if one.support(hDevice.ur)), None)
    support = found.support(hDevice.ur) if found is not None else {}
    row.hostAllocCapabilities = support.get("host", 0)
    row.deviceAllocCapabilities = support.get("device", 0)
    row.sharedSingleDeviceAllocCapabilities = support.get("shared", 0)
    row.sharedCrossDeviceAllocCapabilities = support.get("cross", 0)
    row.sharedSystemAllocCapabilities = support.get("system", 0)


@driver.entry
def zeDeviceGetCacheProperties(hDevice: ZeDevice, pCount: Any, pCacheProperties: Any) -> None:
    def fill(row: Any) -> None:
        row.flags, row.cacheSize = 0, hDevice.query_number("CL_DEVICE_GLOBAL_MEM_CACHE_SIZE")

    list_structs(pCount, pCacheProperties, [fill])


@driver.entry
def zeDeviceGetExternalMemoryProperties(hDevice: ZeDevice, pExternalMemoryProperties: Any) -> None:
    row = pExternalMemoryProperties
    row.memoryAllocationImportTypes = row.memoryAllocationExportTypes = 0
    row.imageImportTypes = row.imageExportTypes = 0


@driver.entry
def zeDevicePciGetPropertiesExt(hDevice: ZeDevice, pPciProperties: Any) -> None:
    numbers = query_pci_numbers(hDevice.ur)
    if not numbers:
        raise make_failure("UNSUPPORTED_FEATURE", "the device has no cl_khr_pci_bus_info")
    address, speed = pPciProperties.address, pPciProperties.maxSpeed
    address.domain, address.bus, address.device, address.function = numbers
    speed.genVersion = speed.width = speed.maxBandwidth = -1  # unknown


#: The types of numbers whose vector widths are told.
_NUMBERS: Final = "char", "short", "int", "long", "float", "double", "half"


@driver.entry
def zeDeviceGetVectorWidthPropertiesExt(
    hDevice: ZeDevice, pCount: Any, pVectorWidthProperties: Any
) -> None:
    """Say how many numbers of each type a vector has. Its size is in bytes."""

    def fill(row: Any) -> None:
        for kind in ("preferred", "native"):
            for name in _NUMBERS:
                asked = f"CL_DEVICE_{kind.upper()}_VECTOR_WIDTH_{name.upper()}"
                setattr(row, f"{kind}_vector_width_{name}", hDevice.query_number(asked))
        row.vector_width_size = row.native_vector_width_char

    list_structs(pCount, pVectorWidthProperties, [fill])
