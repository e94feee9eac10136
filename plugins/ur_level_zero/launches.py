"""Launches of kernels of the adapter on Level Zero, queries about kernels, and the local size that
suits a launch.

An empty launch has a global size of 0. It only has its place in the queue's order, as in the
reference adapter.
"""

from __future__ import annotations

import ctypes
import struct as packing
from typing import Any, Final

from ..sdk.kernels import declare_launches, declare_suggestions
from .core import adapter
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


def _get_property(field: str) -> Any:
    return lambda kernel, device: getattr(kernel.query_properties(device), field)


adapter.info(
    "urKernelGetGroupInfo",
    {
        "WORK_GROUP_SIZE": LZKernel.find_largest_group,
        "COMPILE_WORK_GROUP_SIZE": lambda kernel, device: packing.pack(
            "@3N", *(kernel.required or (0, 0, 0))
        ),
        "LOCAL_MEM_SIZE": _get_property("localMemSize"),
        "PREFERRED_WORK_GROUP_SIZE_MULTIPLE": LZKernel.find_preferred_multiple,
        "PRIVATE_MEM_SIZE": _get_property("privateMemSize"),
    },
    "UR_KERNEL_GROUP_INFO_",
)
adapter.info(
    "urKernelGetSubGroupInfo",
    {
        "MAX_SUB_GROUP_SIZE": _get_property("maxSubgroupSize"),
        "MAX_NUM_SUB_GROUPS": _get_property("maxNumSubgroups"),
        "COMPILE_NUM_SUB_GROUPS": _get_property("requiredNumSubGroups"),
        "SUB_GROUP_SIZE_INTEL": _get_property("requiredSubgroupSize"),
    },
    "UR_KERNEL_SUB_GROUP_INFO_",
)


def _suggest(
    kernel: LZKernel, queue: LZQueue, offsets: list[int], sizes: list[int], arguments: list[Any]
) -> list[int]:
    shape = LaunchSizes.from_program(len(sizes), None, sizes, None)
    with kernel.lock:
        kernel.set(arguments)
        return list(kernel.find_shape(queue.device, shape).local[: len(sizes)])


declare_suggestions(adapter, _suggest)
