"""urDeviceGetInfo of the adapter on Level Zero: answers by tables. Properties that they lack are
UNSUPPORTED_ENUMERATION.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from ...loader.base.query import decode_text
from ...loader.ur.abi import UR
from ...loader.ze.abi import LevelZeroError
from .allocations import can_import
from .captures import can_capture
from .core import ZE, adapter, ask
from .devices import DOMAINS, LZDevice, find_type

#: Bytes to which sub-buffers are aligned: what any driver aligns memory to.
BUFFER_ALIGNMENT: Final = 64
_GPU: Final = UR["UR_DEVICE_TYPE_GPU"]
_LARGEST: Final = (1 << 64) - 1


def _make_flag_conversion(pairs: dict[str, str], ur: str, ze: str) -> Callable[[int], int]:
    """Return a function that converts flags of Level Zero to those of Unified Runtime.

    Args:
        pairs: the ends of Unified Runtime's names by those of Level Zero's.
        ur: how Unified Runtime's names begin.
        ze: how Level Zero's names begin.
    """
    bits = {ZE[f"{ze}_{theirs}"]: UR[f"{ur}_{ours}"] for theirs, ours in pairs.items()}
    return lambda value: sum(ours for bit, ours in bits.items() if value & bit)


_convert_fp_flags: Final = _make_flag_conversion(
    {
        "DENORM": "DENORM",
        "INF_NAN": "INF_NAN",
        "ROUND_TO_NEAREST": "ROUND_TO_NEAREST",
        "ROUND_TO_ZERO": "ROUND_TO_ZERO",
        "ROUND_TO_INF": "ROUND_TO_INF",
        "FMA": "FMA",
        "ROUNDED_DIVIDE_SQRT": "CORRECTLY_ROUNDED_DIVIDE_SQRT",
        "SOFT_FLOAT": "SOFT_FLOAT",
    },
    "UR_DEVICE_FP_CAPABILITY_FLAG",
    "ZE_DEVICE_FP_FLAG",
)
_convert_access: Final = _make_flag_conversion(
    {
        "RW": "ACCESS",
        "ATOMIC": "ATOMIC_ACCESS",
        "CONCURRENT": "CONCURRENT_ACCESS",
        "CONCURRENT_ATOMIC": "ATOMIC_CONCURRENT_ACCESS",
    },
    "UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG",
    "ZE_MEMORY_ACCESS_CAP_FLAG",
)
_convert_updates: Final = _make_flag_conversion(
    {
        "KERNEL_ARGUMENTS": "KERNEL_ARGUMENTS",
        "GROUP_SIZE": "LOCAL_WORK_SIZE",
        "GROUP_COUNT": "GLOBAL_WORK_SIZE",
        "GLOBAL_OFFSET": "GLOBAL_WORK_OFFSET",
        "KERNEL_INSTRUCTION": "KERNEL_HANDLE",
    },
    "UR_DEVICE_COMMAND_BUFFER_UPDATE_CAPABILITY_FLAG",
    "ZE_MUTABLE_COMMAND_EXP_FLAG",
)
_EVENTS: Final = (
    ZE["ZE_MUTABLE_COMMAND_EXP_FLAG_SIGNAL_EVENT"] | ZE["ZE_MUTABLE_COMMAND_EXP_FLAG_WAIT_EVENTS"]
)


def list_updates(device: LZDevice) -> int:
    """Return what updates of a command-buffer can change."""
    mutable = device.mutable_flags
    events = UR["UR_DEVICE_COMMAND_BUFFER_UPDATE_CAPABILITY_FLAG_EVENTS"]
    return _convert_updates(mutable) | (events if mutable & _EVENTS == _EVENTS else 0)


def _count_units(device: LZDevice) -> int:
    row = device.properties
    return max(1, row.numSlices * row.numSubslicesPerSlice * row.numEUsPerSubslice)


def _list_sizes(device: LZDevice) -> list[int]:
    row = device.compute
    return [row.maxGroupSizeX, row.maxGroupSizeY, row.maxGroupSizeZ]


def _list_group_counts(device: LZDevice) -> bytes:
    row = device.compute
    return struct.pack("@3N", row.maxGroupCountX, row.maxGroupCountY, row.maxGroupCountZ)


def _query_pci_address(device: LZDevice) -> str | None:
    if not device.platform.has("zeDevicePciGetPropertiesExt"):
        return None
    with suppress(LevelZeroError):
        row = ask(device.table, "zeDevicePciGetPropertiesExt", device.ze, "pci_ext_properties")
        place = row.address
        return f"{place.domain:04x}:{place.bus:02x}:{place.device:02x}.{place.function:x}"
    return None


def _list_sub_groups(device: LZDevice) -> list[int]:
    row = device.compute
    return list(row.subGroupSizes)[: row.numSubGroupSizes] or [1]


def _list_extensions(device: LZDevice) -> str:
    flags = device.module.flags
    known = {
        "cl_khr_fp16": "FP16",
        "cl_khr_fp64": "FP64",
        "cl_khr_int64_base_atomics": "INT64_ATOMICS",
        "cl_khr_int64_extended_atomics": "INT64_ATOMICS",
    }
    found = [name for name, bit in known.items() if flags & ZE[f"ZE_DEVICE_MODULE_FLAG_{bit}"]]
    forms = {"cl_khr_il_program": device.takes_spirv, "fairlead_opencl_c": device.takes_text}
    return " ".join([*(name for name, there in forms.items() if there), *found])


def _format_il_version(device: LZDevice) -> str:
    version = device.module.spirvVersionSupported
    return f"SPIR-V_{version >> 16}.{version >> 8 & 0xFF}" if version else ""


def _sum_memory_sizes(device: LZDevice) -> int:
    return sum(row.totalSize for row in device.memories) or device.properties.maxMemAllocSize


def _is_integrated(device: LZDevice) -> bool:
    return bool(device.properties.flags & ZE["ZE_DEVICE_PROPERTY_FLAG_INTEGRATED"])


def _make_usm_query(field: str) -> Callable[[LZDevice], int]:
    return lambda device: _convert_access(getattr(device.access, f"{field}Capabilities"))


def _make_requirement(*entries: str) -> Callable[[LZDevice], bool]:
    """Return a function that says whether the adapter has all of these entry points."""
    return lambda device: adapter.declared.issuperset(entries)


def _make_function_query(function: str) -> Callable[[LZDevice], bool]:
    """Return a function that says whether the device's driver has a function."""
    return lambda device: device.platform.has(function)


#: What a sub-device was made by: one ur_device_partition_property_t, two 32-bit numbers.
_PARTITION: Final = struct.pack("@II", UR["UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN"], DOMAINS[-1])

_ORDERS: Final = sum(
    UR[f"UR_MEMORY_ORDER_CAPABILITY_FLAG_{name}"]
    for name in ("RELAXED", "ACQUIRE", "RELEASE", "ACQ_REL", "SEQ_CST")
)
_SCOPES: Final = sum(
    UR[f"UR_MEMORY_SCOPE_CAPABILITY_FLAG_{name}"]
    for name in ("WORK_ITEM", "SUB_GROUP", "WORK_GROUP", "DEVICE")
)
_QUEUES: Final = (
    UR["UR_QUEUE_FLAG_OUT_OF_ORDER_EXEC_MODE_ENABLE"] | UR["UR_QUEUE_FLAG_PROFILING_ENABLE"]
)
_WIDTHS: Final = {"CHAR": 16, "SHORT": 8, "INT": 4, "LONG": 1, "LONG_LONG": 1, "FLOAT": 1}

_FUNCTIONS: Final[dict[str, Callable[[LZDevice], Any]]] = {
    "TYPE": find_type,
    "VENDOR_ID": lambda device: device.properties.vendorId,
    "DEVICE_ID": lambda device: device.properties.deviceId,
    "MAX_COMPUTE_UNITS": _count_units,
    "NUM_COMPUTE_UNITS": _count_units,
    "MAX_WORK_ITEM_SIZES": _list_sizes,
    "MAX_WORK_GROUPS_3D": _list_group_counts,
    "MAX_WORK_GROUP_SIZE": lambda device: device.compute.maxTotalGroupSize,
    "SINGLE_FP_CONFIG": lambda device: _convert_fp_flags(device.module.fp32flags),
    "HALF_FP_CONFIG": lambda device: _convert_fp_flags(device.module.fp16flags),
    "DOUBLE_FP_CONFIG": lambda device: _convert_fp_flags(device.module.fp64flags),
    "MAX_CLOCK_FREQUENCY": lambda device: device.properties.coreClockRate,
    "MAX_MEM_ALLOC_SIZE": lambda device: device.properties.maxMemAllocSize,
    "MAX_PARAMETER_SIZE": lambda device: device.module.maxArgumentsSize,
    "GLOBAL_MEM_SIZE": _sum_memory_sizes,
    "GLOBAL_MEM_CACHE_SIZE": lambda device: max(
        (row.cacheSize for row in device.caches), default=0
    ),
    "MAX_CONSTANT_BUFFER_SIZE": lambda device: device.properties.maxMemAllocSize,
    "LOCAL_MEM_SIZE": lambda device: device.compute.maxSharedLocalMemory,
    "HOST_UNIFIED_MEMORY": _is_integrated,
    "IS_INTEGRATED_GPU": lambda device: find_type(device) == _GPU and _is_integrated(device),
    "PROFILING_TIMER_RESOLUTION": lambda device: max(1, device.convert_to_nanoseconds(1)),
    "PLATFORM": lambda device: device.platform,
    "PARENT_DEVICE": lambda device: device.parent or 0,
    "REFERENCE_COUNT": lambda device: device.references,
    "NAME": lambda device: decode_text(device.properties.name),
    "VENDOR": lambda device: f"{device.properties.vendorId:#06x}",
    "DRIVER_VERSION": lambda device: device.platform.driver_version,
    "VERSION": lambda device: device.platform.api_version,
    "BACKEND_RUNTIME_VERSION": lambda device: device.platform.api_version,
    "EXTENSIONS": _list_extensions,
    "IL_VERSION": _format_il_version,
    "PRINTF_BUFFER_SIZE": lambda device: device.module.printfBufferSize,
    "PARTITION_MAX_SUB_DEVICES": lambda device: len(device.parts),
    "SUPPORTED_PARTITIONS": lambda device: (
        [UR["UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN"]] if device.parts else []
    ),
    "PARTITION_AFFINITY_DOMAIN": lambda device: sum(DOMAINS) if device.parts else 0,
    "PARTITION_TYPE": lambda device: _PARTITION if device.parent is not None else b"",
    "MAX_NUM_SUB_GROUPS": lambda device: max(
        1, device.compute.maxTotalGroupSize // min(_list_sub_groups(device))
    ),
    "SUB_GROUP_SIZES_INTEL": _list_sub_groups,
    "USM_HOST_SUPPORT": _make_usm_query("hostAlloc"),
    "USM_DEVICE_SUPPORT": _make_usm_query("deviceAlloc"),
    "USM_SINGLE_SHARED_SUPPORT": _make_usm_query("sharedSingleDeviceAlloc"),
    "USM_CROSS_SHARED_SUPPORT": _make_usm_query("sharedCrossDeviceAlloc"),
    "USM_SYSTEM_SHARED_SUPPORT": _make_usm_query("sharedSystemAlloc"),
    "PCI_ADDRESS": _query_pci_address,
    "UUID": lambda device: bytes(device.properties.uuid.id),
    "GPU_EU_COUNT": lambda device: _count_units(device) if find_type(device) == _GPU else None,
    "GPU_EU_SIMD_WIDTH": lambda device: device.properties.physicalEUSimdWidth,
    "GPU_EU_SLICES": lambda device: device.properties.numSlices,
    "GPU_EU_COUNT_PER_SUBSLICE": lambda device: device.properties.numEUsPerSubslice,
    "GPU_SUBSLICES_PER_SLICE": lambda device: device.properties.numSubslicesPerSlice,
    "GPU_HW_THREADS_PER_EU": lambda device: device.properties.numThreadsPerEU,
    "MAX_COMPUTE_QUEUE_INDICES": lambda device: device.compute_group.queues,
    "IMAGE_SUPPORT": lambda device: device.has_images,
    **{
        name: lambda device, field=field: getattr(device.images, field)
        for name, field in {
            "MAX_READ_IMAGE_ARGS": "maxReadImageArgs",
            "MAX_WRITE_IMAGE_ARGS": "maxWriteImageArgs",
            "IMAGE2D_MAX_WIDTH": "maxImageDims2D",
            "IMAGE2D_MAX_HEIGHT": "maxImageDims2D",
            "IMAGE3D_MAX_WIDTH": "maxImageDims3D",
            "IMAGE3D_MAX_HEIGHT": "maxImageDims3D",
            "IMAGE3D_MAX_DEPTH": "maxImageDims3D",
            "IMAGE_MAX_BUFFER_SIZE": "maxImageBufferSize",
            "IMAGE_MAX_ARRAY_SIZE": "maxImageArraySlices",
            "MAX_SAMPLERS": "maxSamplers",
        }.items()
    },
    "ATOMIC_64": lambda device: bool(
        device.module.flags & ZE["ZE_DEVICE_MODULE_FLAG_INT64_ATOMICS"]
    ),
    "COMMAND_BUFFER_UPDATE_CAPABILITIES_EXP": lambda device: (
        list_updates(device) if "urCommandBufferCreateExp" in adapter.declared else 0
    ),
    "COMMAND_BUFFER_EVENT_SUPPORT_EXP": _make_requirement("urCommandBufferUpdateSignalEventExp"),
    "COMMAND_BUFFER_SUPPORT_EXP": _make_requirement(
        "urCommandBufferCreateExp", "urEnqueueCommandBufferExp"
    ),
    "TIMESTAMP_RECORDING_SUPPORT_EXP": _make_requirement("urEnqueueTimestampRecordingExp"),
    "ENQUEUE_NATIVE_COMMAND_SUPPORT_EXP": _make_requirement("urEnqueueNativeCommandExp"),
    "ENQUEUE_HOST_TASK_SUPPORT_EXP": _make_function_query("zeCommandListAppendHostFunction"),
    "USM_POOL_SUPPORT": _make_requirement("urUSMPoolCreate"),
    "ASYNC_USM_ALLOCATIONS_SUPPORT_EXP": _make_requirement("urEnqueueUSMDeviceAllocExp"),
    "USM_CONTEXT_MEMCPY_SUPPORT_EXP": _make_requirement("urUSMContextMemcpyExp"),
    "MULTI_DEVICE_COMPILE_SUPPORT_EXP": _make_requirement("urProgramBuildExp"),
    "KERNEL_LAUNCH_CAPABILITIES": lambda device: (
        UR["UR_KERNEL_LAUNCH_PROPERTIES_FLAG_COOPERATIVE"] * device.compute_group.is_cooperative
    ),
    "GRAPH_RECORD_AND_REPLAY_SUPPORT_EXP": can_capture,
    "USM_P2P_SUPPORT_EXP": _make_requirement("urUsmP2PEnablePeerAccessExp"),
    "USM_HOST_ALLOC_REGISTER_SUPPORT_EXP": can_import,
    "DEVICE_WAIT_SUPPORT_EXP": _make_requirement("urDeviceWaitExp"),
    "GLOBAL_VARIABLE_SUPPORT": lambda device: device.takes_spirv,  # device globals are in SPIR-V
}

#: Answers that are the same for every device.
_FIXED: Final[dict[str, Any]] = {
    "MAX_WORK_ITEM_DIMENSIONS": 3,
    "MAX_WORK_GROUPS": _LARGEST,
    "QUEUE_PROPERTIES": _QUEUES,
    "QUEUE_ON_HOST_PROPERTIES": _QUEUES,
    "QUEUE_ON_DEVICE_PROPERTIES": 0,
    "ADDRESS_BITS": 64,
    "MAX_READ_WRITE_IMAGE_ARGS": 0,
    "MEM_BASE_ADDR_ALIGN": 8 * BUFFER_ALIGNMENT,
    "GLOBAL_MEM_CACHE_TYPE": UR["UR_DEVICE_MEM_CACHE_TYPE_READ_WRITE_CACHE"],
    "GLOBAL_MEM_CACHELINE_SIZE": BUFFER_ALIGNMENT,
    "MAX_CONSTANT_ARGS": 64,
    "LOCAL_MEM_TYPE": UR["UR_DEVICE_LOCAL_MEM_TYPE_LOCAL"],
    "ERROR_CORRECTION_SUPPORT": False,
    "ENDIAN_LITTLE": True,
    "AVAILABLE": True,
    "COMPILER_AVAILABLE": True,
    "LINKER_AVAILABLE": True,
    "EXECUTION_CAPABILITIES": UR["UR_DEVICE_EXEC_CAPABILITY_FLAG_KERNEL"],
    "PROFILE": "FULL_PROFILE",
    "BUILT_IN_KERNELS": "",
    "PREFERRED_INTEROP_USER_SYNC": True,
    "SUB_GROUP_INDEPENDENT_FORWARD_PROGRESS": False,
    "BUILD_ON_SUBDEVICE": True,
    "ATOMIC_MEMORY_ORDER_CAPABILITIES": _ORDERS,
    "ATOMIC_FENCE_ORDER_CAPABILITIES": _ORDERS,
    "ATOMIC_MEMORY_SCOPE_CAPABILITIES": _SCOPES,
    "ATOMIC_FENCE_SCOPE_CAPABILITIES": _SCOPES,
    "BFLOAT16_CONVERSIONS_NATIVE": False,
    "USE_NATIVE_ASSERT": False,
    "ESIMD_SUPPORT": False,
    "ASYNC_BARRIER": False,
    "MEM_CHANNEL_SUPPORT": False,
    "LOW_POWER_EVENTS_SUPPORT_EXP": False,
    "PER_EVENT_PROFILING_SUPPORT_EXP": False,
    "COMMAND_BUFFER_SUBGRAPH_SUPPORT_EXP": False,
    "2D_BLOCK_ARRAY_CAPABILITIES_EXP": 0,
    "HOST_PIPE_READ_WRITE_SUPPORT": False,
    "VIRTUAL_MEMORY_SUPPORT": False,
    "IMAGE_SRGB": False,  # Level Zero has no such format
    **dict.fromkeys(
        (
            *("BINDLESS_IMAGES_SUPPORT_EXP", "BINDLESS_IMAGES_SHARED_USM_SUPPORT_EXP"),
            *("BINDLESS_IMAGES_1D_USM_SUPPORT_EXP", "BINDLESS_IMAGES_2D_USM_SUPPORT_EXP"),
            *("BINDLESS_SAMPLE_1D_USM_SUPPORT_EXP", "BINDLESS_SAMPLE_2D_USM_SUPPORT_EXP"),
            "BINDLESS_IMAGES_GATHER_SUPPORT_EXP",
            *(f"BINDLESS_SAMPLED_IMAGE_FETCH_{n}D_SUPPORT_EXP" for n in (1, 2, 3)),
            *(f"BINDLESS_SAMPLED_IMAGE_FETCH_{n}D_USM_SUPPORT_EXP" for n in (1, 2)),
            "BINDLESS_UNIQUE_ADDRESSING_PER_DIM_SUPPORT_EXP",
            *("MIPMAP_SUPPORT_EXP", "MIPMAP_ANISOTROPY_SUPPORT_EXP"),
            *("MIPMAP_LEVEL_REFERENCE_SUPPORT_EXP", "IMAGE_ARRAY_SUPPORT_EXP"),
            *("CUBEMAP_SUPPORT_EXP", "CUBEMAP_SEAMLESS_FILTERING_SUPPORT_EXP"),
            *("EXTERNAL_MEMORY_IMPORT_SUPPORT_EXP", "EXTERNAL_SEMAPHORE_IMPORT_SUPPORT_EXP"),
            *("MEMORY_EXPORT_EXPORTABLE_DEVICE_MEM_EXP", "IPC_EVENT_SUPPORT_EXP"),
            "IPC_PHYSICAL_MEMORY_SUPPORT_EXP",
            *(f"CLOCK_{scope}_SUPPORT_EXP" for scope in ("SUB_GROUP", "WORK_GROUP", "DEVICE")),
        ),
        False,
    ),
    "IPC_MEMORY_SUPPORT_EXP": False,
    "REUSABLE_EVENTS_SUPPORT_EXP": False,
    "DYNAMIC_LINK_SUPPORT_EXP": lambda device: device.takes_spirv,
    "KERNEL_SET_SPECIALIZATION_CONSTANTS": False,
    "PROGRAM_SET_SPECIALIZATION_CONSTANTS": lambda device: device.takes_spirv,
    **{
        f"{kind}_VECTOR_WIDTH_{name}": width
        for kind in ("PREFERRED", "NATIVE")
        for name, width in {**_WIDTHS, "DOUBLE": 1, "HALF": 8}.items()
    },
}

adapter.info("urDeviceGetInfo", {**_FIXED, **_FUNCTIONS}, "UR_DEVICE_INFO_")
