"""A complete Unified Runtime adapter: one device that can copy memory of the host."""

import ctypes

from fairlead.plugins import UR, Adapter, check_memory, failure, select_binary

adapter = Adapter("toy", backend="UR_BACKEND_OPENCL")
adapter.codes[KeyError] = "INVALID_VALUE"

platform = adapter.kind("ur_platform_handle_t", counted=False)()
device = adapter.kind("ur_device_handle_t", counted=False)()
Context, Queue, Event = (adapter.kind(f"ur_{x}_handle_t") for x in ("context", "queue", "event"))

types = [UR[f"UR_DEVICE_TYPE_{name}"] for name in ("DEFAULT", "ALL", "CPU")]
memory = {}  # address → end, block

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
    urDeviceSelectBinary=lambda pBinaries, NumBinaries: select_binary(
        pBinaries, NumBinaries, ["spir64"]
    ),
    urContextCreate=Context,
    urQueueCreate=Queue,
    urQueueFinish=lambda: None,
    urEventWait=lambda: None,
    urUSMFree=lambda pMem: memory.pop(pMem),
)


@adapter.entry
def urUSMDeviceAlloc(pUSMDesc, size):
    align = (pUSMDesc and pUSMDesc.align) or 1
    block = ctypes.create_string_buffer(size + align)
    address = -(-ctypes.addressof(block) // align) * align
    memory[address] = address + size, block
    return address


@adapter.entry
def urUSMGetMemAllocInfo(pMem, propName):
    kind = "UR_USM_TYPE_DEVICE" if pMem in memory else "UR_USM_TYPE_UNKNOWN"
    return UR[kind] if propName == UR["UR_USM_ALLOC_INFO_TYPE"] else None


@adapter.entry
def urEnqueueUSMMemcpy(pDst, pSrc, size, phEvent):
    for place in (pDst, pSrc):
        check_memory(place, size)
        if not size or any(a <= place < end < place + size for a, (end, _) in [*memory.items()]):
            raise failure("INVALID_SIZE", f"there are no {size} bytes at {place:#x}")
    ctypes.memmove(pDst, pSrc, size)
    return Event() if phEvent else None
