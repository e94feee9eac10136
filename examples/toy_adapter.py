"""A complete Unified Runtime adapter: one device that can copy memory of the host."""

import ctypes

from fairlead.plugins import UR, Adapter

adapter = Adapter("toy", backend="UR_BACKEND_OPENCL")
adapter.codes[KeyError] = "INVALID_VALUE"

Platform = adapter.kind("ur_platform_handle_t", counted=False)
Device = adapter.kind("ur_device_handle_t", counted=False)
Context = adapter.kind("ur_context_handle_t")
Queue = adapter.kind("ur_queue_handle_t")
Event = adapter.kind("ur_event_handle_t")

platform, device = Platform(), Device()
types = [UR[f"UR_DEVICE_TYPE_{name}"] for name in ("DEFAULT", "ALL", "CPU")]
memory = {}  # address → block

adapter.info(
    "urPlatformGetInfo",
    {
        "UR_PLATFORM_INFO_BACKEND": adapter.backend,
        "UR_PLATFORM_INFO_NAME": "Toy platform",
        "UR_PLATFORM_INFO_VENDOR_NAME": "fairlead",
        "UR_PLATFORM_INFO_VERSION": "1.0",
    },
)
adapter.info(
    "urDeviceGetInfo",
    {
        "UR_DEVICE_INFO_TYPE": UR["UR_DEVICE_TYPE_CPU"],
        "UR_DEVICE_INFO_NAME": "Toy device",
        "UR_DEVICE_INFO_VENDOR": "fairlead",
        "UR_DEVICE_INFO_DRIVER_VERSION": "1.0",
        "UR_DEVICE_INFO_EXTENSIONS": "",
        "UR_DEVICE_INFO_PLATFORM": platform,
        "UR_DEVICE_INFO_PARENT_DEVICE": None,
        "UR_DEVICE_INFO_MAX_COMPUTE_UNITS": 1,
        "UR_DEVICE_INFO_MAX_WORK_ITEM_SIZES": (1, 1, 1),
        "UR_DEVICE_INFO_USM_DEVICE_SUPPORT": UR["UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_ACCESS"],
        "UR_DEVICE_INFO_USE_NATIVE_ASSERT": False,
        "UR_DEVICE_INFO_HOST_UNIFIED_MEMORY": True,
    },
)
adapter.declare(
    urPlatformGet=lambda: [platform],
    urDeviceGet=lambda DeviceType: [device] if DeviceType in types else [],
    urDeviceSelectBinary=lambda: 0,
    urContextCreate=Context,
    urQueueCreate=Queue,
    urQueueFinish=lambda: None,
    urEventWait=lambda: None,
)


@adapter.entry
def urUSMDeviceAlloc(size):
    block = ctypes.create_string_buffer(size)
    memory[ctypes.addressof(block)] = block
    return ctypes.addressof(block)


@adapter.entry
def urUSMGetMemAllocInfo(pMem, propName):
    if propName == UR["UR_USM_ALLOC_INFO_TYPE"]:
        return UR["UR_USM_TYPE_DEVICE"] if pMem in memory else UR["UR_USM_TYPE_UNKNOWN"]
    return None


@adapter.entry
def urUSMFree(pMem):
    del memory[pMem]


@adapter.entry
def urEnqueueUSMMemcpy(pDst, pSrc, size, phEvent):
    ctypes.memmove(pDst, pSrc, size)
    return Event() if phEvent else None
