"""urDeviceGetInfo of CUDA and HIP: `ATTRIBUTES` are the driver's, `FUNCTIONS` need more, `FIXED`
holds everywhere.

`API.extra` has the answers that differ between CUDA and HIP.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ...loader.ur.abi import UR
from ..sdk.capability_properties import CAPABILITY_PROPERTIES
from .core import API, adapter
from .devices import CuDevice

if TYPE_CHECKING:
    from .devices import CuDevice


def _make_limit_query(name: str) -> Callable[[CuDevice], int]:
    return lambda device: API.query_image_limit(device, name)


def has_images(device: CuDevice) -> bool:
    """Return whether a device has images. Some of AMD's have none."""
    return API.query_image_limit(device, "2D_WIDTH") > 0


def _has_arrays(device: CuDevice) -> bool:
    return API.query_image_limit(device, "2D_LAYERED_LAYERS") > 0


#: Answers by the names of queries. No kernel takes a sampler.
IMAGES: Final[Mapping[str, Any]] = {
    "IMAGE_SUPPORT": has_images,
    **dict.fromkeys(
        ("MAX_READ_IMAGE_ARGS", "MAX_WRITE_IMAGE_ARGS", "MAX_READ_WRITE_IMAGE_ARGS"),
        lambda device: 128 * has_images(device),
    ),
    "IMAGE2D_MAX_WIDTH": _make_limit_query("2D_WIDTH"),
    "IMAGE2D_MAX_HEIGHT": _make_limit_query("2D_HEIGHT"),
    "IMAGE3D_MAX_WIDTH": _make_limit_query("3D_WIDTH"),
    "IMAGE3D_MAX_HEIGHT": _make_limit_query("3D_HEIGHT"),
    "IMAGE3D_MAX_DEPTH": _make_limit_query("3D_DEPTH"),
    "IMAGE_MAX_ARRAY_SIZE": _make_limit_query("2D_LAYERED_LAYERS"),
    "BINDLESS_IMAGES_SUPPORT_EXP": has_images,
    "IMAGE_ARRAY_SUPPORT_EXP": _has_arrays,
    **{
        f"BINDLESS_SAMPLED_IMAGE_FETCH_{dimensions}D_SUPPORT_EXP": has_images
        for dimensions in (1, 2, 3)
    },
    **dict.fromkeys(
        (
            *("BINDLESS_IMAGES_SHARED_USM_SUPPORT_EXP", "BINDLESS_IMAGES_1D_USM_SUPPORT_EXP"),
            *("BINDLESS_IMAGES_2D_USM_SUPPORT_EXP", "BINDLESS_SAMPLE_1D_USM_SUPPORT_EXP"),
            *("BINDLESS_SAMPLE_2D_USM_SUPPORT_EXP", "BINDLESS_IMAGES_GATHER_SUPPORT_EXP"),
            *("MIPMAP_SUPPORT_EXP", "MIPMAP_ANISOTROPY_SUPPORT_EXP", "CUBEMAP_SUPPORT_EXP"),
            *("MIPMAP_LEVEL_REFERENCE_SUPPORT_EXP", "CUBEMAP_SEAMLESS_FILTERING_SUPPORT_EXP"),
            "BINDLESS_SAMPLED_IMAGE_FETCH_1D_USM_SUPPORT_EXP",
            "BINDLESS_SAMPLED_IMAGE_FETCH_2D_USM_SUPPORT_EXP",
            "BINDLESS_UNIQUE_ADDRESSING_PER_DIM_SUPPORT_EXP",
        ),
        False,
    ),
}


#: Properties that are an attribute of the driver's.
ATTRIBUTES: Final[Mapping[str, str]] = {
    "MAX_COMPUTE_UNITS": "MULTIPROCESSOR_COUNT",
    "NUM_COMPUTE_UNITS": "MULTIPROCESSOR_COUNT",
    "MAX_WORK_GROUP_SIZE": "MAX_THREADS_PER_BLOCK",
    "GLOBAL_MEM_CACHE_SIZE": "L2_CACHE_SIZE",
    "MAX_CONSTANT_BUFFER_SIZE": "TOTAL_CONSTANT_MEMORY",
    "MEMORY_BUS_WIDTH": "GLOBAL_MEMORY_BUS_WIDTH",
    "MAX_REGISTERS_PER_WORK_GROUP": "MAX_REGISTERS_PER_BLOCK",
    "DEVICE_ID": "PCI_DEVICE_ID",
}


def _convert_to_bits(kind: str, *names: str) -> int:
    return sum(UR[f"UR_{kind}_{name}"] for name in names)


_FP: Final = _convert_to_bits(
    "DEVICE_FP_CAPABILITY_FLAG",
    *("DENORM", "INF_NAN", "ROUND_TO_NEAREST", "ROUND_TO_ZERO", "ROUND_TO_INF", "FMA"),
)
_ORDERS: Final = _convert_to_bits(
    "MEMORY_ORDER_CAPABILITY_FLAG", *("RELAXED", "ACQUIRE", "RELEASE", "ACQ_REL", "SEQ_CST")
)
_SCOPES: Final = _convert_to_bits(
    "MEMORY_SCOPE_CAPABILITY_FLAG", *("WORK_ITEM", "SUB_GROUP", "WORK_GROUP", "DEVICE", "SYSTEM")
)
_QUEUE: Final = _convert_to_bits("QUEUE_FLAG", "OUT_OF_ORDER_EXEC_MODE_ENABLE", "PROFILING_ENABLE")
_ACCESS, _ATOMIC, _CONCURRENT = (
    UR[f"UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_{name}"]
    for name in ("ACCESS", "ATOMIC_ACCESS", "CONCURRENT_ACCESS")
)

#: Bytes to which buffers are aligned, so that every type fits.
BASE_ALIGNMENT: Final = 128

#: Answers that are the same for every device.
FIXED: Final[Mapping[str, Any]] = {
    "TYPE": UR["UR_DEVICE_TYPE_GPU"],
    "VENDOR": API.vendor,
    "PROFILE": "FULL_PROFILE",
    "MAX_WORK_ITEM_DIMENSIONS": 3,
    "ADDRESS_BITS": 64,
    "SINGLE_FP_CONFIG": _FP | UR["UR_DEVICE_FP_CAPABILITY_FLAG_CORRECTLY_ROUNDED_DIVIDE_SQRT"],
    "DOUBLE_FP_CONFIG": _FP,
    "HALF_FP_CONFIG": _FP,
    "QUEUE_PROPERTIES": _QUEUE,
    "QUEUE_ON_HOST_PROPERTIES": _QUEUE,
    "QUEUE_ON_DEVICE_PROPERTIES": 0,
    "EXECUTION_CAPABILITIES": UR["UR_DEVICE_EXEC_CAPABILITY_FLAG_KERNEL"],
    **{
        f"{use}_VECTOR_WIDTH_{kind}": width
        for use in ("PREFERRED", "NATIVE")
        for kind, width in {
            "CHAR": 4,
            "SHORT": 2,
            "INT": 1,
            "LONG": 1,
            "LONG_LONG": 1,
            "FLOAT": 1,
            "DOUBLE": 1,
            "HALF": 2,
        }.items()
    },
    "IMAGE_SRGB": False,
    "IMAGE_MAX_BUFFER_SIZE": 0,
    "MAX_SAMPLERS": 0,
    **IMAGES,
    "MAX_PARAMETER_SIZE": 4000,
    "MEM_BASE_ADDR_ALIGN": 8 * BASE_ALIGNMENT,
    "GLOBAL_MEM_CACHE_TYPE": UR["UR_DEVICE_MEM_CACHE_TYPE_READ_WRITE_CACHE"],
    "GLOBAL_MEM_CACHELINE_SIZE": 128,
    "MAX_CONSTANT_ARGS": 9,
    "LOCAL_MEM_TYPE": UR["UR_DEVICE_LOCAL_MEM_TYPE_LOCAL"],
    "PROFILING_TIMER_RESOLUTION": 1000,
    "ENDIAN_LITTLE": True,
    "AVAILABLE": True,
    "COMPILER_AVAILABLE": True,
    "LINKER_AVAILABLE": False,
    "BUILT_IN_KERNELS": "",
    "PRINTF_BUFFER_SIZE": 1 << 20,
    "PREFERRED_INTEROP_USER_SYNC": True,
    "PARTITION_MAX_SUB_DEVICES": 0,
    "PARTITION_AFFINITY_DOMAIN": 0,
    "SUPPORTED_PARTITIONS": [],
    "PARTITION_TYPE": b"",
    "PARENT_DEVICE": 0,
    # The last one says that urProgramCreateWithIL takes OpenCL C.
    "EXTENSIONS": "cl_khr_fp64 cl_khr_fp16 cl_khr_int64_base_atomics "
    "cl_khr_int64_extended_atomics fairlead_opencl_c",
    "IL_VERSION": "",
    "SUB_GROUP_INDEPENDENT_FORWARD_PROGRESS": True,
    "ATOMIC_64": True,
    "ATOMIC_MEMORY_ORDER_CAPABILITIES": _ORDERS,
    "ATOMIC_MEMORY_SCOPE_CAPABILITIES": _SCOPES,
    "ATOMIC_FENCE_ORDER_CAPABILITIES": _ORDERS,
    "ATOMIC_FENCE_SCOPE_CAPABILITIES": _SCOPES,
    "BFLOAT16_CONVERSIONS_NATIVE": False,
    "USE_NATIVE_ASSERT": True,
    "ESIMD_SUPPORT": False,
    "BUILD_ON_SUBDEVICE": False,
    "USM_HOST_SUPPORT": _ACCESS | _ATOMIC | _CONCURRENT,
    "USM_DEVICE_SUPPORT": _ACCESS | _ATOMIC | _CONCURRENT,
    "PROGRAM_SET_SPECIALIZATION_CONSTANTS": False,
    "GLOBAL_VARIABLE_SUPPORT": True,
    "MAX_COMPUTE_QUEUE_INDICES": 1,
    "ASYNC_BARRIER": False,
    "COMMAND_BUFFER_SUBGRAPH_SUPPORT_EXP": True,
    "MEM_CHANNEL_SUPPORT": False,
    "LOW_POWER_EVENTS_SUPPORT_EXP": False,
    "PER_EVENT_PROFILING_SUPPORT_EXP": True,
    "2D_BLOCK_ARRAY_CAPABILITIES_EXP": 0,
    "CLOCK_SUB_GROUP_SUPPORT_EXP": False,
    "CLOCK_WORK_GROUP_SUPPORT_EXP": False,
    "CLOCK_DEVICE_SUPPORT_EXP": False,
}


def _query_free_memory(device: CuDevice) -> int:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    device.call("MemGetInfo", ctypes.byref(free), ctypes.byref(total))
    return free.value


def _query_managed(device: CuDevice) -> int:
    """Return what a device can do with managed memory."""
    if not device.query_attribute("MANAGED_MEMORY"):
        return 0
    concurrent = bool(device.query_attribute("CONCURRENT_MANAGED_ACCESS"))
    return _ACCESS | (_ATOMIC | _CONCURRENT) * concurrent


def _format_pci_address(device: CuDevice) -> str:
    text = ctypes.create_string_buffer(32)
    device.call("DeviceGetPCIBusId", text, len(text), device.native)
    return text.value.decode()


def _query_clock(device: CuDevice) -> int:
    return device.query_attribute("CLOCK_RATE") // 1000  # kHz to MHz


def _compute_bandwidth(device: CuDevice) -> int:
    """Return bytes a second: two transfers a cycle of as many bits as the bus has."""
    rate = device.query_attribute("MEMORY_CLOCK_RATE") * 1000
    return 2 * rate * device.query_attribute("GLOBAL_MEMORY_BUS_WIDTH") // 8


def _list_updates(device: CuDevice) -> int:
    """Return what updates of command-buffers can change: everything that there is a flag for."""
    flags = UR.groups["ur_device_command_buffer_update_capability_flags_t"]
    return sum(flags) if "urCommandBufferUpdateKernelLaunchExp" in adapter.declared else 0


def _list_group_limits(device: CuDevice) -> list[int]:
    return [device.query_attribute(f"MAX_GRID_DIM_{axis}") for axis in "XYZ"]


FUNCTIONS: Final[dict[str, Callable[[CuDevice], Any]]] = {
    "PLATFORM": lambda device: device.platform,
    "NAME": lambda device: device.found.name,
    "REFERENCE_COUNT": lambda device: device.references,
    "DRIVER_VERSION": lambda device: device.platform.version,
    "UUID": lambda device: device.found.uuid,
    "GLOBAL_MEM_SIZE": lambda device: device.found.memory,
    "MAX_MEM_ALLOC_SIZE": lambda device: device.found.memory,
    "GLOBAL_MEM_FREE": _query_free_memory,
    "MAX_WORK_ITEM_SIZES": lambda device: [
        device.query_attribute(f"MAX_BLOCK_DIM_{axis}") for axis in "XYZ"
    ],
    "MAX_WORK_GROUPS": lambda device: max(_list_group_limits(device)),
    "MAX_WORK_GROUPS_3D": lambda device: struct.pack("@3N", *_list_group_limits(device)),
    "MAX_CLOCK_FREQUENCY": _query_clock,
    "MEMORY_CLOCK_RATE": lambda device: device.query_attribute("MEMORY_CLOCK_RATE") // 1000,
    "MAX_MEMORY_BANDWIDTH": _compute_bandwidth,
    "MAX_NUM_SUB_GROUPS": lambda device: (
        device.query_attribute("MAX_THREADS_PER_BLOCK") // device.query_attribute("WARP_SIZE")
    ),
    "SUB_GROUP_SIZES_INTEL": lambda device: [device.query_attribute("WARP_SIZE")],
    "ERROR_CORRECTION_SUPPORT": lambda device: bool(device.query_attribute("ECC_ENABLED")),
    "HOST_UNIFIED_MEMORY": lambda device: bool(device.query_attribute("INTEGRATED")),
    "IS_INTEGRATED_GPU": lambda device: bool(device.query_attribute("INTEGRATED")),
    "PCI_ADDRESS": _format_pci_address,
    "USM_SINGLE_SHARED_SUPPORT": _query_managed,
    "USM_CROSS_SHARED_SUPPORT": _query_managed,
    "USM_SYSTEM_SHARED_SUPPORT": lambda device: (
        _query_managed(device) * bool(device.query_attribute("PAGEABLE_MEMORY_ACCESS"))
    ),
    "LOCAL_MEM_SIZE": lambda device: device.local_memory,
    "KERNEL_LAUNCH_CAPABILITIES": lambda device: (
        UR["UR_KERNEL_LAUNCH_PROPERTIES_FLAG_COOPERATIVE"] * device.is_cooperative
        + UR["UR_KERNEL_LAUNCH_PROPERTIES_FLAG_CLUSTER_DIMENSION"] * device.has_clusters
    ),
    "COMMAND_BUFFER_UPDATE_CAPABILITIES_EXP": _list_updates,
    "VIRTUAL_MEMORY_SUPPORT": lambda device: bool(
        device.query_attribute("VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED")
    ),
    "USM_HOST_ALLOC_REGISTER_SUPPORT_EXP": lambda device: bool(
        device.query_attribute("HOST_REGISTER_SUPPORTED")
    ),
}


def _make_attribute_query(name: str) -> Callable[[CuDevice], int]:
    return lambda device: device.query_attribute(name)


def _make_requirement(entries: tuple[str, ...]) -> Callable[[CuDevice], bool]:
    return lambda device: adapter.declared.issuperset(entries)


adapter.info(
    "urDeviceGetInfo",
    {
        **{name: _make_attribute_query(of) for name, of in ATTRIBUTES.items()},
        **{name: _make_requirement(entries) for name, entries in CAPABILITY_PROPERTIES.items()},
        **FIXED,
        **FUNCTIONS,
        **API.extra,
    },
    "UR_DEVICE_INFO_",
)
