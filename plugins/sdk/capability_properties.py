"""Properties of devices that say which entry points an adapter has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Properties that are true if the adapter has all of these entry points.
CAPABILITY_PROPERTIES: Final[Mapping[str, tuple[str, ...]]] = {
    "COMMAND_BUFFER_SUPPORT_EXP": ("urCommandBufferCreateExp", "urEnqueueCommandBufferExp"),
    "COMMAND_BUFFER_EVENT_SUPPORT_EXP": (
        "urCommandBufferUpdateSignalEventExp",
        "urCommandBufferUpdateWaitEventsExp",
    ),
    "KERNEL_SET_SPECIALIZATION_CONSTANTS": ("urKernelSetSpecializationConstants",),
    "HOST_PIPE_READ_WRITE_SUPPORT": ("urEnqueueReadHostPipe", "urEnqueueWriteHostPipe"),
    "VIRTUAL_MEMORY_SUPPORT": ("urVirtualMemReserve", "urPhysicalMemCreate"),
    "USM_POOL_SUPPORT": ("urUSMPoolCreate",),
    "TIMESTAMP_RECORDING_SUPPORT_EXP": ("urEnqueueTimestampRecordingExp",),
    "ENQUEUE_NATIVE_COMMAND_SUPPORT_EXP": ("urEnqueueNativeCommandExp",),
    "ENQUEUE_HOST_TASK_SUPPORT_EXP": ("urEnqueueHostTaskExp",),
    "ASYNC_USM_ALLOCATIONS_SUPPORT_EXP": ("urEnqueueUSMDeviceAllocExp", "urEnqueueUSMFreeExp"),
    "IPC_MEMORY_SUPPORT_EXP": ("urIPCGetMemHandleExp",),
    "IPC_PHYSICAL_MEMORY_SUPPORT_EXP": ("urIPCGetPhysMemHandleExp",),
    "IPC_EVENT_SUPPORT_EXP": ("urIPCGetEventHandleExp",),
    "REUSABLE_EVENTS_SUPPORT_EXP": ("urEventCreateExp",),
    "GRAPH_RECORD_AND_REPLAY_SUPPORT_EXP": (
        "urQueueBeginGraphCaptureExp",
        "urGraphInstantiateGraphExp",
    ),
    "USM_HOST_ALLOC_REGISTER_SUPPORT_EXP": ("urUSMHostAllocRegisterExp",),
    "USM_P2P_SUPPORT_EXP": ("urUsmP2PEnablePeerAccessExp",),
    "USM_CONTEXT_MEMCPY_SUPPORT_EXP": ("urUSMContextMemcpyExp",),
    "MULTI_DEVICE_COMPILE_SUPPORT_EXP": ("urProgramBuildExp",),
    "DYNAMIC_LINK_SUPPORT_EXP": ("urProgramDynamicLinkExp",),
    "DEVICE_WAIT_SUPPORT_EXP": ("urDeviceWaitExp",),
    "MEMORY_EXPORT_EXPORTABLE_DEVICE_MEM_EXP": ("urMemoryExportAllocExportableMemoryExp",),
    "EXTERNAL_MEMORY_IMPORT_SUPPORT_EXP": ("urBindlessImagesImportExternalMemoryExp",),
    "EXTERNAL_SEMAPHORE_IMPORT_SUPPORT_EXP": ("urBindlessImagesImportExternalSemaphoreExp",),
    **dict.fromkeys(
        (
            "BINDLESS_IMAGES_SUPPORT_EXP",
            "BINDLESS_IMAGES_SHARED_USM_SUPPORT_EXP",
            "BINDLESS_IMAGES_1D_USM_SUPPORT_EXP",
            "BINDLESS_IMAGES_2D_USM_SUPPORT_EXP",
            "MIPMAP_SUPPORT_EXP",
            "MIPMAP_ANISOTROPY_SUPPORT_EXP",
            "MIPMAP_LEVEL_REFERENCE_SUPPORT_EXP",
            "CUBEMAP_SUPPORT_EXP",
            "CUBEMAP_SEAMLESS_FILTERING_SUPPORT_EXP",
            "BINDLESS_SAMPLED_IMAGE_FETCH_1D_USM_SUPPORT_EXP",
            "BINDLESS_SAMPLED_IMAGE_FETCH_1D_SUPPORT_EXP",
            "BINDLESS_SAMPLED_IMAGE_FETCH_2D_USM_SUPPORT_EXP",
            "BINDLESS_SAMPLED_IMAGE_FETCH_2D_SUPPORT_EXP",
            "BINDLESS_SAMPLED_IMAGE_FETCH_3D_SUPPORT_EXP",
            "IMAGE_ARRAY_SUPPORT_EXP",
            "BINDLESS_UNIQUE_ADDRESSING_PER_DIM_SUPPORT_EXP",
            "BINDLESS_SAMPLE_1D_USM_SUPPORT_EXP",
            "BINDLESS_SAMPLE_2D_USM_SUPPORT_EXP",
            "BINDLESS_IMAGES_GATHER_SUPPORT_EXP",
        ),
        ("urBindlessImagesSampledImageCreateExp",),
    ),
}
