"""Transfers of images: read, write, copy. Origins and regions are in pixels, pitches in bytes."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from ...loader.ur.abi import UR
from ..sdk.images import check_region, find_transfer_pitches, overlap
from ..sdk.rectangles import read_offset, read_region
from .core import failure
from .enqueue import Enqueue, declare_enqueue, enqueues
from .events import UREvent
from .images import has_images, require_images
from .memory import URMemory
from .queues import URQueue, create_queue
from .transfers import convert_sizes

_PROFILING: Final = UR["UR_QUEUE_FLAG_PROFILING_ENABLE"]


def _check_queue(queue: URQueue) -> None:
    """Raise URError (UNSUPPORTED_FEATURE) if the queue's device has no images."""
    if not has_images(queue.device):
        raise failure("UNSUPPORTED_FEATURE", "the device has no images")


def _transfer_host(
    routine: str,
    enqueue: Enqueue,
    memory: URMemory,
    host: int,
    image_origin: Any,
    image_region: Any,
    *pitches: int,
) -> UREvent | None:
    """Read or write a region of an image. `pitches` are two for host memory."""
    _check_queue(enqueue.queue)
    (image,) = require_images(enqueue.queue.context, memory)
    origin, region = read_offset(image_origin), read_region(image_region)
    check_region(image.extent, origin, region)
    row, slice_ = find_transfer_pitches(image.kind, image.element_size, region, *pitches)
    places = convert_sizes(origin), convert_sizes(region), row, slice_
    if _needs_whole_device(enqueue.queue):
        return _call_on_whole_device(enqueue, routine, image.cl, False, *places, host)
    return enqueue.call(routine, image.cl, enqueue.blocks, *places, host)


for _name, _command, _routine, _host in (
    ("urEnqueueMemImageRead", "MEM_IMAGE_READ", "clEnqueueReadImage", "pDst"),
    ("urEnqueueMemImageWrite", "MEM_IMAGE_WRITE", "clEnqueueWriteImage", "pSrc"),
):
    _parameters = "hImage", _host, "origin", "region", "rowPitch", "slicePitch"
    declare_enqueue(_name, _command, partial(_transfer_host, _routine), *_parameters)


@enqueues("MEM_IMAGE_COPY")
def urEnqueueMemImageCopy(
    enqueue: Enqueue,
    hImageSrc: URMemory,
    hImageDst: URMemory,
    srcOrigin: Any,
    dstOrigin: Any,
    region: Any,
) -> UREvent | None:
    _check_queue(enqueue.queue)
    source, target = require_images(enqueue.queue.context, hImageSrc, hImageDst)
    if source.format != target.format:
        raise failure("INVALID_IMAGE_FORMAT_DESCRIPTOR", "the images differ in their formats")
    start, to, size = read_offset(srcOrigin), read_offset(dstOrigin), read_region(region)
    check_region(source.extent, start, size)
    check_region(target.extent, to, size)
    if source.cl == target.cl and overlap(start, to, size):
        raise failure("OVERLAPPING_REGIONS", "the regions of one image overlap")
    given = source.cl, target.cl, convert_sizes(start), convert_sizes(to), convert_sizes(size)
    if _needs_whole_device(enqueue.queue):
        return _call_on_whole_device(enqueue, "clEnqueueCopyImage", *given)
    return enqueue.call("clEnqueueCopyImage", *given)


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
