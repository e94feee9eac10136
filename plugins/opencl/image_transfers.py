"""Transfers of images: read, write, copy. Origins and regions are in pixels, pitches in bytes."""

from __future__ import annotations

from typing import Any, Final

from ...loader.base.operations import TransferCommand
from ...loader.ur.abi import UR
from ..sdk.transfers import declare_image_transfers
from .core import failure
from .devices import URDevice
from .enqueue import Enqueue, enqueues
from .events import UREvent
from .images import URImage, has_images
from .queues import URQueue, create_queue
from .transfers import convert_sizes

_PROFILING: Final = UR["UR_QUEUE_FLAG_PROFILING_ENABLE"]


def _check_device(device: URDevice) -> None:
    """Raise URError (UNSUPPORTED_FEATURE) if a device has no images."""
    if not has_images(device):
        raise failure("UNSUPPORTED_FEATURE", "the device has no images")


def _run(enqueue: Enqueue, transfer: TransferCommand) -> UREvent | None:
    """Enqueue a transfer (sdk/transfers.py). Returns the event, if one is wanted."""
    on_whole_device, operands = _needs_whole_device(enqueue.queue), transfer.operands
    for name, value in operands.items():
        if isinstance(value, URImage):
            operands[name] = value.cl
        elif isinstance(value, tuple):
            operands[name] = convert_sizes(value)
    routine, arguments = transfer.make_call("cl", enqueue.blocks and not on_whole_device)
    if on_whole_device:
        return _call_on_whole_device(enqueue, routine, *arguments)
    return enqueue.call(routine, *arguments)


declare_image_transfers(enqueues, _run, lambda one, other: bool(one.cl == other.cl), _check_device)


def _needs_whole_device(queue: URQueue) -> bool:
    """Return whether the driver crashes if a queue transfers images."""
    profile = queue.context.platform.profile
    return profile.transfers_images_on_whole_devices and queue.device.parent is not None


def _call_on_whole_device(enqueue: Enqueue, routine: str, *arguments: Any) -> UREvent | None:
    """Enqueue a transfer on a queue of the root device, in the order of the sub-device's queue.

    It must not be a transfer that blocks in the driver.
    """
    queue = enqueue.queue
    enqueue.block_by_event()
    other = create_queue(queue.context, queue.device.root, queue.flags & _PROFILING)
    before = queue.mark(enqueue.waits)
    queue.flush()
    event = other.enqueue(routine, enqueue.command, arguments, [before], True)
    assert event is not None
    other.flush()
    event.queue = queue
    queue.mark([event])  # what comes after it in the queue waits for it
    return enqueue.complete(event)
