"""Transfers of images: read, write, copy. Origins and regions are in pixels, pitches in bytes.

What OpenCL leaves to drivers to refuse is refused here, with the codes that the specification
lists: INVALID_SIZE for everything that does not fit.
"""

from __future__ import annotations

import ctypes
from typing import Any

from .core import adapter, failure
from .events import UREvent
from .images import Extent, URImage, checked_images, has_images
from .memory import URMemory
from .queues import URQueue
from .transfers import offset_of, region_of, transfer


def _check_region(image: URImage, origin: Extent, region: Extent) -> None:
    """Raise URError (INVALID_SIZE) for what goes beyond an image."""
    ends = [start + size for start, size in zip(origin, region, strict=True)]
    if any(end > size for end, size in zip(ends, image.extent, strict=True)):
        raise failure("INVALID_SIZE", f"pixels up to {ends} of an image of {image.extent}")


def _pitches(image: URImage, region: Extent, row: int, slice_: int) -> tuple[int, int]:
    """Row and slice pitch as drivers take them. The lines of an array of 1D images are as far
    apart as the slice pitch says, else the row pitch. Raises URError (INVALID_SIZE)."""
    least = region[0] * image.element_size
    lines = image.kind.is_lines
    if lines:
        row = slice_ = slice_ or row
    if row and row < least:
        raise failure("INVALID_SIZE", f"a row of {least} bytes with a pitch of {row}")
    if not image.kind.has_slices:
        return row, 0  # there is one slice
    height = 1 if lines else region[1]
    if slice_ and slice_ < (row or least) * height:
        raise failure("INVALID_SIZE", f"a slice of {height} rows with a pitch of {slice_}")
    return row, slice_


def _check_queue(queue: URQueue) -> None:
    """Raise URError (UNSUPPORTED_FEATURE) if the queue's device has no images."""
    if not has_images(queue.device):
        raise failure("UNSUPPORTED_FEATURE", "the device has no images")


def _sizes(value: Extent) -> Any:
    return (ctypes.c_size_t * 3)(*value)


def _with_host(
    queue: URQueue,
    routine: str,
    command: str,
    memory: URMemory,
    blocking: bool,
    area: tuple[Any, Any],
    pitches: tuple[int, int],
    host: int,
    waits: list[UREvent],
    wanted: bool,
) -> UREvent | None:
    """Between an image and host memory. `area` is origin and region in the image."""
    _check_queue(queue)
    (image,) = checked_images(queue.context, memory)
    origin, region = offset_of(area[0]), region_of(area[1])
    _check_region(image, origin, region)
    blocks = queue.split_blocking(blocking)[0]
    places = _sizes(origin), _sizes(region), *_pitches(image, region, *pitches)
    arguments = image.cl, blocks, *places, host
    return transfer(queue, routine, command, arguments, 1, waits, wanted, blocking)


@adapter.entry
def urEnqueueMemImageRead(
    hQueue: URQueue,
    hImage: URMemory,
    blockingRead: bool,
    origin: Any,
    region: Any,
    rowPitch: int,
    slicePitch: int,
    pDst: int,
    phEventWaitList: list[UREvent],
    phEvent: bool,
) -> UREvent | None:
    what = hQueue, "clEnqueueReadImage", "MEM_IMAGE_READ", hImage, blockingRead
    pitches = rowPitch, slicePitch
    return _with_host(*what, (origin, region), pitches, pDst, phEventWaitList, phEvent)


@adapter.entry
def urEnqueueMemImageWrite(
    hQueue: URQueue,
    hImage: URMemory,
    blockingWrite: bool,
    origin: Any,
    region: Any,
    rowPitch: int,
    slicePitch: int,
    pSrc: int,
    phEventWaitList: list[UREvent],
    phEvent: bool,
) -> UREvent | None:
    what = hQueue, "clEnqueueWriteImage", "MEM_IMAGE_WRITE", hImage, blockingWrite
    pitches = rowPitch, slicePitch
    return _with_host(*what, (origin, region), pitches, pSrc, phEventWaitList, phEvent)


@adapter.entry
def urEnqueueMemImageCopy(
    hQueue: URQueue,
    hImageSrc: URMemory,
    hImageDst: URMemory,
    srcOrigin: Any,
    dstOrigin: Any,
    region: Any,
    phEventWaitList: list[UREvent],
    phEvent: bool,
) -> UREvent | None:
    _check_queue(hQueue)
    source, target = checked_images(hQueue.context, hImageSrc, hImageDst)
    if source.format != target.format:
        raise failure("INVALID_IMAGE_FORMAT_DESCRIPTOR", "the images differ in their formats")
    start, to, size = offset_of(srcOrigin), offset_of(dstOrigin), region_of(region)
    _check_region(source, start, size)
    _check_region(target, to, size)
    if source.cl == target.cl and _overlap(start, to, size):
        raise failure("OVERLAPPING_REGIONS", "the regions of one image overlap")
    arguments = source.cl, target.cl, _sizes(start), _sizes(to), _sizes(size)
    return hQueue.enqueue(
        "clEnqueueCopyImage", "MEM_IMAGE_COPY", arguments, phEventWaitList, phEvent
    )


def _overlap(start: Extent, to: Extent, size: Extent) -> bool:
    return all(abs(a - b) < length for a, b, length in zip(start, to, size, strict=True))
