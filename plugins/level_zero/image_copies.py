"""Copies of images: between images, to memory, and from memory.

Origins and sizes are in pixels, pitches in bytes. What an image lacks of x, y and z is ignored,
as in OpenCL: a region of a 2D image has one slice.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from ...loader.base.operations import TransferCommand
from ..opencl.images import URImage
from ..opencl.usm.addresses import locate
from ..sdk.images import check_region, find_transfer_pitches, overlap
from ..sdk.rectangles import Rect
from ..sdk.wrap import name_parameters
from .appends import append_operations
from .core import driver, make_failure
from .events import ZeEvent
from .images import ZeImage, check_device, check_image
from .lists import ZeCommandList

_NOWHERE: Final = (0, 0, 0)


def _fill_to_three(given: tuple[int, ...], rest: int) -> Rect:
    """Return three numbers: those that are given, then `rest`."""
    x, y, z = (*given, rest, rest)[:3]
    return x, y, z


def _read_region(image: URImage, given: Any) -> tuple[Rect, Rect]:
    """Return origin and size of a ze_image_region_t, or of the whole image.

    Raises:
        URError: INVALID_SIZE for a region that ends outside.
    """
    if given is None:
        return _NOWHERE, image.extent
    used = len(image.kind.sizes)
    origin = (given.originX, given.originY, given.originZ)[:used]
    size = (given.width, given.height, given.depth)[:used]
    start, pixels = _fill_to_three(origin, 0), _fill_to_three(size, 1)
    check_region(image.extent, start, pixels)
    return start, pixels


def _append_copy(
    made: ZeCommandList,
    target: ZeImage,
    source: ZeImage,
    target_region: Any,
    source_region: Any,
    signal: ZeEvent | None,
    waits: list[ZeEvent],
) -> None:
    check_device(made.device)
    for image in (target, source):
        check_image(made.context, image)
    if target.ur.format != source.ur.format:
        raise make_failure("INVALID_ARGUMENT", "the images differ in their formats")
    to, size = _read_region(target.ur, target_region)
    start, source_size = _read_region(source.ur, source_region)
    if size != source_size:
        raise make_failure("INVALID_SIZE", f"the regions differ in size: {source_size} to {size}")
    if not all(size):  # a copy of nothing signals its event
        append_operations(made, [], signal, waits)
        return
    if source is target and overlap(start, to, size):
        raise make_failure("OVERLAPPING_REGIONS", "the regions of one image overlap")
    places = {"source_origin": start, "target_origin": to, "region": size}
    operands = {"source": source.ur.cl, "target": target.ur.cl, **places}
    transfer = TransferCommand("copy_image", operands, (source.ur, target.ur))
    append_operations(made, [transfer], signal, waits)


@driver.entry
def zeCommandListAppendImageCopy(
    hCommandList: ZeCommandList,
    hDstImage: ZeImage,
    hSrcImage: ZeImage,
    hSignalEvent: ZeEvent | None,
    phWaitEvents: list[ZeEvent],
) -> None:
    given = hCommandList, hDstImage, hSrcImage, None, None
    _append_copy(*given, hSignalEvent, phWaitEvents)


@driver.entry
def zeCommandListAppendImageCopyRegion(
    hCommandList: ZeCommandList,
    hDstImage: ZeImage,
    hSrcImage: ZeImage,
    pDstRegion: Any,
    pSrcRegion: Any,
    hSignalEvent: ZeEvent | None,
    phWaitEvents: list[ZeEvent],
) -> None:
    given = hCommandList, hDstImage, hSrcImage, pDstRegion, pSrcRegion
    _append_copy(*given, hSignalEvent, phWaitEvents)


# memory


def _list_parts(size: Rect, pixel: int, row: int, slice_: int) -> Iterator[tuple[Rect, Rect, int]]:
    """Yield the parts of a region that lie in memory without gaps: place, size, offset in bytes."""
    row = row or size[0] * pixel
    slice_ = slice_ or row * size[1]
    if row == size[0] * pixel and slice_ == row * size[1]:
        yield _NOWHERE, size, 0
        return
    for z in range(size[2]):
        for y in range(size[1]):
            yield (0, y, z), (size[0], 1, 1), y * row + z * slice_


def _transfer(
    reads: bool,
    made: ZeCommandList,
    image: ZeImage,
    address: int,
    region: Any,
    signal: ZeEvent | None,
    waits: list[ZeEvent],
    row: int = 0,
    slice_: int = 0,
) -> None:
    """Append a copy of a region to memory (`reads`), or from memory."""
    check_device(made.device)
    check_image(made.context, image)
    ur, (start, size) = image.ur, _read_region(image.ur, region)
    if not all(size):
        append_operations(made, [], signal, waits)
        return
    pixel, kind = ur.pixel, ur.kind
    row, slice_ = find_transfer_pitches(kind, pixel, size, row, slice_)
    if kind.is_lines:  # each line is a slice
        row_bytes, slice_bytes = slice_, 0
    else:
        row_bytes, slice_bytes = row, slice_
    parts = list(_list_parts(size, pixel, row_bytes, slice_bytes))
    _, last, offset = parts[-1]
    place = locate(made.context.ur, address, offset + pixel * last[0] * last[1] * last[2])
    found = place.allocation
    memory = found.strategy.view_as_buffer(found) if found is not None else None
    if found is None or memory is None:
        source, to = (ur.cl, address) if reads else (address, ur.cl)
        area = {"origin": start, "region": size, "row_pitch": row, "slice_pitch": slice_}
        operands = {"source": source, "target": to, **area}
        name = "read_image" if reads else "write_image"
        append_operations(made, [TransferCommand(name, operands, (ur,))], signal, waits)
        return
    base = place.offset + (found.padding if memory is found.view else 0)
    operations: list[TransferCommand] = []
    for at, part, offset in parts:
        pixels = tuple(a + b for a, b in zip(start, at, strict=True))
        if reads:
            name, sides = "copy_image_to_buffer", {"source": ur.cl, "target": memory.cl}
            places = {"source_origin": pixels, "target_offset": base + offset}
        else:
            name, sides = "copy_buffer_to_image", {"source": memory.cl, "target": ur.cl}
            places = {"source_offset": base + offset, "target_origin": pixels}
        operands = {**sides, **places, "region": part}
        operations.append(TransferCommand(name, operands, (ur, memory)))
    append_operations(made, operations, signal, waits)


for _name, _reads, _parameters, _pitches in (
    ("ToMemory", True, ("hSrcImage", "dstptr", "pSrcRegion"), ("destRowPitch", "destSlicePitch")),
    ("FromMemory", False, ("hDstImage", "srcptr", "pDstRegion"), ("srcRowPitch", "srcSlicePitch")),
):
    _given = "hCommandList", *_parameters, "hSignalEvent", "phWaitEvents"
    for _end, _names in (("", _given), ("Ext", (*_given, *_pitches))):
        _function = name_parameters(partial(_transfer, _reads), *_names)
        driver.declare(**{f"zeCommandListAppendImageCopy{_name}{_end}": _function})
