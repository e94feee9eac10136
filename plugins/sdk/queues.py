"""Queues of all adapters: how they are made, and waits for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .adapter import Adapter

_INFO: Final = {
    "UR_QUEUE_INFO_CONTEXT": lambda queue: queue.context,
    "UR_QUEUE_INFO_DEVICE": lambda queue: queue.device,
    "UR_QUEUE_INFO_FLAGS": lambda queue: queue.flags,
    "UR_QUEUE_INFO_REFERENCE_COUNT": lambda queue: queue.references,
    "UR_QUEUE_INFO_EMPTY": lambda queue: queue.is_empty,
}


def declare_queues(
    adapter: Adapter,
    *,
    create: Callable[[Any, Any, int], Any],
    take_native: Callable[[int, Any, Any, Any], Any],
    finish: Callable[[Any], None],
    flush: Callable[[Any], object],
    drain_device: Callable[[Any], None],
) -> None:
    """Declare how queues are made, waits for them, and the queries about them.

    Args:
        create: gets a context, a device and ur_queue_flags_t.
        take_native: gets a native handle, a context, a device or None, and properties.
        finish: waits for everything in a queue.
        flush: starts what is enqueued.
        drain_device: waits for everything on a device.
    """
    adapter.declare(
        urQueueCreate=lambda hContext, hDevice, pProperties: create(
            hContext, hDevice, pProperties.flags if pProperties else 0
        ),
        urQueueCreateWithNativeHandle=lambda hNativeQueue, hContext, hDevice, pProperties: (
            take_native(hNativeQueue, hContext, hDevice, pProperties)
        ),
        urQueueFinish=lambda hQueue: finish(hQueue),
        urQueueFlush=lambda hQueue: flush(hQueue),
        urDeviceWaitExp=lambda hDevice: drain_device(hDevice),
    )
    adapter.info("urQueueGetInfo", _INFO)
