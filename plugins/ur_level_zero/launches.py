"""Launches of kernels, queries about kernels, and the local size that suits a launch.

An empty launch has a global size of 0. It only has its place in the queue's order, as in the
reference adapter.
"""

from __future__ import annotations

import ctypes
import struct as packing
from typing import Any, Final

from ...loader.ur.abi import UR
from ..sdk.kernels import (
    check_local_size,
    count_groups_by_local_memory,
    declare_launches,
    declare_suggestions,
)
from .core import adapter, call
from .devices import LZDevice
from .enqueue import LZEnqueue, enqueues
from .events import LZEvent
from .kernels import GroupCount, LaunchSizes, LZKernel
from .queues import LZQueue

LAUNCH: Final = "zeCommandListAppendLaunchKernel"
_LAUNCH_TOGETHER: Final = "zeCommandListAppendLaunchCooperativeKernel"


def _launch(
    enqueue: LZEnqueue,
    kernel: LZKernel,
    offset: list[int] | None,
    size: list[int],
    local: list[int] | None,
    arguments: list[Any],
    together: bool,
    cluster: None,
) -> LZEvent | None:
    """Launch a kernel (sdk/kernels.py, `declare_launches`)."""
    queue = enqueue.queue
    sizes = LaunchSizes.from_program(len(size), offset, size, local)
    with kernel.lock:
        if arguments:
            kernel.set(arguments)
        kernel.check_complete()
        if 0 in size:
            return enqueue.mark()
        shape = kernel.find_shape(queue.device, sizes)
        handle, groups = kernel.apply(queue.device, shape), GroupCount(*shape.counts)
        keep = kernel, list(kernel.arguments.values())
        routine = _LAUNCH_TOGETHER if together else LAUNCH
        return enqueue.call(routine, handle, ctypes.byref(groups), keep=keep)


declare_launches(enqueues, _launch, lambda device: device.compute_group.is_cooperative)


# queries

adapter.info(
    "urKernelGetInfo",
    {
        "UR_KERNEL_INFO_FUNCTION_NAME": lambda kernel: kernel.name,
        "UR_KERNEL_INFO_NUM_ARGS": lambda kernel: kernel.argument_count,
        "UR_KERNEL_INFO_REFERENCE_COUNT": lambda kernel: kernel.references,
        "UR_KERNEL_INFO_CONTEXT": lambda kernel: kernel.context,
        "UR_KERNEL_INFO_PROGRAM": lambda kernel: kernel.program,
        "UR_KERNEL_INFO_ATTRIBUTES": lambda kernel: kernel.attributes,
        "UR_KERNEL_INFO_SPILL_MEM_SIZE": lambda kernel: [
            kernel.query_properties(device).spillMemSize for device in kernel.handles
        ],
    },
)


def _pack_triple(sizes: tuple[int, int, int]) -> bytes:
    return packing.pack("@3N", *sizes)


_GROUP: Final = {
    UR[f"UR_KERNEL_GROUP_INFO_{name}"]: function
    for name, function in {
        "WORK_GROUP_SIZE": lambda kernel, device: kernel.find_largest_group(device),
        "COMPILE_WORK_GROUP_SIZE": lambda kernel, device: _pack_triple(
            kernel.required or (0, 0, 0)
        ),
        "LOCAL_MEM_SIZE": lambda kernel, device: kernel.query_properties(device).localMemSize,
        "PREFERRED_WORK_GROUP_SIZE_MULTIPLE": lambda kernel, device: kernel.find_preferred_multiple(
            device
        ),
        "PRIVATE_MEM_SIZE": lambda kernel, device: kernel.query_properties(device).privateMemSize,
    }.items()
}


@adapter.entry
def urKernelGetGroupInfo(hKernel: LZKernel, hDevice: LZDevice, propName: int) -> Any:
    answer = _GROUP.get(propName)
    return answer(hKernel, hDevice) if answer is not None else None


_SUB_GROUP: Final = {
    UR[f"UR_KERNEL_SUB_GROUP_INFO_{name}"]: field
    for name, field in {
        "MAX_SUB_GROUP_SIZE": "maxSubgroupSize",
        "MAX_NUM_SUB_GROUPS": "maxNumSubgroups",
        "COMPILE_NUM_SUB_GROUPS": "requiredNumSubGroups",
        "SUB_GROUP_SIZE_INTEL": "requiredSubgroupSize",
    }.items()
}


@adapter.entry
def urKernelGetSubGroupInfo(hKernel: LZKernel, hDevice: LZDevice, propName: int) -> int:
    return getattr(hKernel.query_properties(hDevice), _SUB_GROUP[propName])


@adapter.entry
def urKernelSuggestMaxCooperativeGroupCount(
    hKernel: LZKernel,
    hDevice: LZDevice,
    workDim: int,
    pLocalWorkSize: list[int],
    dynamicSharedMemorySize: int,
) -> int:
    check_local_size(pLocalWorkSize)
    sizes, count = (
        LaunchSizes.from_program(workDim, None, pLocalWorkSize, pLocalWorkSize),
        ctypes.c_uint32(),
    )
    with hKernel.lock:
        handle = hKernel.apply(hDevice, hKernel.find_shape(hDevice, sizes))
        routine = "zeKernelSuggestMaxCooperativeGroupCount"
        call(hKernel.table, routine, handle, ctypes.byref(count))
    room = count_groups_by_local_memory(
        dynamicSharedMemorySize,
        hKernel.query_properties(hDevice).localMemSize,
        hDevice.compute.maxSharedLocalMemory,
        max(1, hDevice.properties.numSlices * hDevice.properties.numSubslicesPerSlice),
    )
    return min(count.value, room)


def _suggest(
    kernel: LZKernel, queue: LZQueue, offsets: list[int], sizes: list[int], arguments: list[Any]
) -> list[int]:
    shape = LaunchSizes.from_program(len(sizes), None, sizes, None)
    with kernel.lock:
        kernel.set(arguments)
        return list(kernel.find_shape(queue.device, shape).local[: len(sizes)])


declare_suggestions(adapter, _suggest)
