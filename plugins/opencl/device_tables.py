"""The properties of devices as tables. Together they have every property once.

`PLAIN` and `LATER` give OpenCL's properties. plugins/sdk/capability_properties.py has those that
are true if this adapter has certain entry points. `FIXED` gives answers for every device. `WITHOUT`
says why a property has no answer (UNSUPPORTED_ENUMERATION). device_info.py makes answers of the
tables, and has the properties that need more. Names are without UR_DEVICE_INFO_ and CL_DEVICE_.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: Properties that OpenCL has had since 1.0. `BITS` and `VALUES` translate flags and enumerations.
PLAIN: Final = {
    name: name
    for name in (
        "VENDOR_ID",
        "MAX_COMPUTE_UNITS",
        "MAX_WORK_ITEM_DIMENSIONS",
        "MAX_WORK_ITEM_SIZES",
        "MAX_WORK_GROUP_SIZE",
        "SINGLE_FP_CONFIG",
        "QUEUE_PROPERTIES",
        "PREFERRED_VECTOR_WIDTH_CHAR",
        "PREFERRED_VECTOR_WIDTH_SHORT",
        "PREFERRED_VECTOR_WIDTH_INT",
        "PREFERRED_VECTOR_WIDTH_LONG",
        "PREFERRED_VECTOR_WIDTH_FLOAT",
        "PREFERRED_VECTOR_WIDTH_DOUBLE",
        "MAX_CLOCK_FREQUENCY",
        "ADDRESS_BITS",
        "MAX_MEM_ALLOC_SIZE",
        "MAX_READ_IMAGE_ARGS",
        "MAX_WRITE_IMAGE_ARGS",
        "IMAGE2D_MAX_WIDTH",
        "IMAGE2D_MAX_HEIGHT",
        "IMAGE3D_MAX_WIDTH",
        "IMAGE3D_MAX_HEIGHT",
        "IMAGE3D_MAX_DEPTH",
        "MAX_SAMPLERS",
        "MAX_PARAMETER_SIZE",
        "MEM_BASE_ADDR_ALIGN",
        "GLOBAL_MEM_CACHE_TYPE",
        "GLOBAL_MEM_CACHELINE_SIZE",
        "GLOBAL_MEM_CACHE_SIZE",
        "GLOBAL_MEM_SIZE",
        "MAX_CONSTANT_BUFFER_SIZE",
        "MAX_CONSTANT_ARGS",
        "LOCAL_MEM_TYPE",
        "LOCAL_MEM_SIZE",
        "ERROR_CORRECTION_SUPPORT",
        "PROFILING_TIMER_RESOLUTION",
        "ENDIAN_LITTLE",
        "AVAILABLE",
        "COMPILER_AVAILABLE",
        "EXECUTION_CAPABILITIES",
        "NAME",
        "VENDOR",
        "PROFILE",
        "VERSION",
        "EXTENSIONS",
    )
} | {
    "NUM_COMPUTE_UNITS": "MAX_COMPUTE_UNITS",
    "PREFERRED_VECTOR_WIDTH_LONG_LONG": "PREFERRED_VECTOR_WIDTH_LONG",  # OpenCL's long has 64 bits
    "QUEUE_ON_HOST_PROPERTIES": "QUEUE_ON_HOST_PROPERTIES",
}

_1_1, _1_2, _2_0, _2_1, _NEVER = (1, 1), (1, 2), (2, 0), (2, 1), (99, 0)

#: Properties that came later: OpenCL's name, the version that has it, the extension that had it
#: before, and the answer without both.
LATER: Final[Mapping[str, tuple[str, tuple[int, int], str, Any]]] = {
    "PREFERRED_VECTOR_WIDTH_HALF": ("PREFERRED_VECTOR_WIDTH_HALF", _1_1, "", 0),
    **{
        f"NATIVE_VECTOR_WIDTH_{name}": (f"NATIVE_VECTOR_WIDTH_{name}", _1_1, "", 0)
        for name in ("CHAR", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "HALF")
    },
    "NATIVE_VECTOR_WIDTH_LONG_LONG": ("NATIVE_VECTOR_WIDTH_LONG", _1_1, "", 0),
    "HOST_UNIFIED_MEMORY": ("HOST_UNIFIED_MEMORY", _1_1, "", None),
    "HALF_FP_CONFIG": ("HALF_FP_CONFIG", _NEVER, "cl_khr_fp16", 0),
    "DOUBLE_FP_CONFIG": ("DOUBLE_FP_CONFIG", _1_2, "cl_khr_fp64", 0),
    "IMAGE_MAX_BUFFER_SIZE": ("IMAGE_MAX_BUFFER_SIZE", _1_2, "", 0),
    "IMAGE_MAX_ARRAY_SIZE": ("IMAGE_MAX_ARRAY_SIZE", _1_2, "", 0),
    "LINKER_AVAILABLE": ("LINKER_AVAILABLE", _1_2, "", False),
    "BUILT_IN_KERNELS": ("BUILT_IN_KERNELS", _1_2, "", ""),
    "PRINTF_BUFFER_SIZE": ("PRINTF_BUFFER_SIZE", _1_2, "", 0),
    "PREFERRED_INTEROP_USER_SYNC": ("PREFERRED_INTEROP_USER_SYNC", _1_2, "", True),
    "PARTITION_MAX_SUB_DEVICES": ("PARTITION_MAX_SUB_DEVICES", _1_2, "", 0),
    "PARTITION_AFFINITY_DOMAIN": ("PARTITION_AFFINITY_DOMAIN", _1_2, "", 0),
    "MAX_READ_WRITE_IMAGE_ARGS": ("MAX_READ_WRITE_IMAGE_ARGS", _2_0, "", 0),
    "IL_VERSION": ("IL_VERSION", _2_1, "cl_khr_il_program", ""),
    "SUB_GROUP_INDEPENDENT_FORWARD_PROGRESS": (
        "SUB_GROUP_INDEPENDENT_FORWARD_PROGRESS",
        _2_1,
        "",
        False,
    ),
    "UUID": ("UUID", _NEVER, "cl_khr_device_uuid", None),
    **{
        name: (f"{opencl}_INTEL", _NEVER, "cl_intel_device_attribute_query", None)
        for name, opencl in {
            "DEVICE_ID": "ID",
            "IP_VERSION": "IP_VERSION",
            "GPU_EU_SLICES": "NUM_SLICES",
            "GPU_SUBSLICES_PER_SLICE": "NUM_SUB_SLICES_PER_SLICE",
            "GPU_EU_COUNT_PER_SUBSLICE": "NUM_EUS_PER_SUB_SLICE",
            "GPU_HW_THREADS_PER_EU": "NUM_THREADS_PER_EU",
        }.items()
    },
}

#: Unified Runtime's flags for OpenCL's, by the type of the answer. Other flags have no counterpart.
BITS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "ur_device_fp_capability_flags_t": {
        f"CL_FP_{name}": (f"UR_DEVICE_FP_CAPABILITY_FLAG_{name}",)
        for name in (
            "CORRECTLY_ROUNDED_DIVIDE_SQRT",
            "ROUND_TO_NEAREST",
            "ROUND_TO_ZERO",
            "ROUND_TO_INF",
            "INF_NAN",
            "DENORM",
            "FMA",
            "SOFT_FLOAT",
        )
    },
    "ur_queue_flags_t": {
        f"CL_QUEUE_{name}": (f"UR_QUEUE_FLAG_{name}",)
        for name in (
            "OUT_OF_ORDER_EXEC_MODE_ENABLE",
            "PROFILING_ENABLE",
            "ON_DEVICE",
            "ON_DEVICE_DEFAULT",
        )
    },
    "ur_device_exec_capability_flags_t": {
        f"CL_EXEC_{name}": (f"UR_DEVICE_EXEC_CAPABILITY_FLAG_{name}",)
        for name in ("KERNEL", "NATIVE_KERNEL")
    },
    "ur_device_affinity_domain_flags_t": {
        f"CL_DEVICE_AFFINITY_DOMAIN_{name}": (f"UR_DEVICE_AFFINITY_DOMAIN_FLAG_{name}",)
        for name in ("NUMA", "L4_CACHE", "L3_CACHE", "L2_CACHE", "L1_CACHE", "NEXT_PARTITIONABLE")
    },
    "ur_memory_order_capability_flags_t": {
        f"CL_DEVICE_ATOMIC_ORDER_{name}": tuple(
            f"UR_MEMORY_ORDER_CAPABILITY_FLAG_{n}" for n in names
        )
        for name, names in {
            "RELAXED": ("RELAXED",),
            "ACQ_REL": ("ACQUIRE", "RELEASE", "ACQ_REL"),
            "SEQ_CST": ("SEQ_CST",),
        }.items()
    },
    # A wide scope includes the narrower ones (OpenCL C, "Memory scope"). Every atomic has the scope
    # of a work-item.
    "ur_memory_scope_capability_flags_t": {
        f"CL_DEVICE_ATOMIC_SCOPE_{name}": tuple(
            f"UR_MEMORY_SCOPE_CAPABILITY_FLAG_{n}" for n in names
        )
        for name, names in {
            "WORK_ITEM": ("WORK_ITEM",),
            "WORK_GROUP": ("WORK_ITEM", "SUB_GROUP", "WORK_GROUP"),
            "DEVICE": ("DEVICE",),
            "ALL_DEVICES": ("SYSTEM",),
        }.items()
    },
}

#: Unified Runtime's values for OpenCL's, by the type of the answer.
VALUES: Final[Mapping[str, Mapping[str, str]]] = {
    "ur_device_mem_cache_type_t": {
        f"CL_{name}": f"UR_DEVICE_MEM_CACHE_TYPE_{name}"
        for name in ("NONE", "READ_ONLY_CACHE", "READ_WRITE_CACHE")
    },
    "ur_device_local_mem_type_t": {
        f"CL_{name}": f"UR_DEVICE_LOCAL_MEM_TYPE_{name}" for name in ("NONE", "LOCAL", "GLOBAL")
    },
}

#: Answers that are the same for every device.
FIXED: Final[Mapping[str, Any]] = {
    "MAX_COMPUTE_QUEUE_INDICES": 1,  # OpenCL's queues have no index
    "QUEUE_ON_DEVICE_PROPERTIES": 0,  # urQueueCreate refuses queues on a device
    "ASYNC_BARRIER": False,
    "COMMAND_BUFFER_SUBGRAPH_SUPPORT_EXP": False,  # OpenCL's command-buffers cannot be nested
    "MEM_CHANNEL_SUPPORT": False,
    "LOW_POWER_EVENTS_SUPPORT_EXP": False,
    "PER_EVENT_PROFILING_SUPPORT_EXP": False,  # an OpenCL queue times all its commands or none
    "2D_BLOCK_ARRAY_CAPABILITIES_EXP": 0,
}

#: Properties without an answer, by the reason.
WITHOUT: Final[Mapping[str, tuple[str, ...]]] = {
    "OpenCL does not tell": (
        "MEMORY_CLOCK_RATE",
        "GLOBAL_MEM_FREE",
        "GPU_EU_SIMD_WIDTH",
        "MAX_MEMORY_BANDWIDTH",
        "MEMORY_BUS_WIDTH",
        "MAX_REGISTERS_PER_WORK_GROUP",
        "CURRENT_CLOCK_THROTTLE_REASONS",
        "FAN_SPEED",
        "MIN_POWER_LIMIT",
        "MAX_POWER_LIMIT",
        "XE_STACK_COUNT",
        "XE_REGIONS_PER_STACK",
        "XE_CLUSTERS_PER_REGION",
        "XE_CORES_PER_CLUSTER",
        "EUS_PER_XE_CORE",
        "MAX_LANES_PER_HW_THREAD",
    ),
    "OpenCL has no composite devices": ("COMPONENT_DEVICES", "COMPOSITE_DEVICE"),
    "OpenCL has no bindless images": (
        "IMAGE_PITCH_ALIGN_EXP",
        "MAX_IMAGE_LINEAR_WIDTH_EXP",
        "MAX_IMAGE_LINEAR_HEIGHT_EXP",
        "MAX_IMAGE_LINEAR_PITCH_EXP",
        "MIPMAP_MAX_ANISOTROPY_EXP",
    ),
    "deprecated: bfloat16 is not a type of OpenCL, and its conversions have another property": (
        "BFLOAT16",
    ),
}
