"""Images of the adapter on Level Zero: made, described, and moved to and from host memory.

An image of Level Zero belongs to a device: the first one of its context.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any, Final

from ...loader.base.operations import TransferCommand
from ...loader.ur.abi import UR
from ..sdk.conversions import failure
from ..sdk.images import (
    IMAGE_KINDS,
    ImageObject,
    count_element_bytes,
    declare_images,
    declare_samplers,
    find_transfer_pitches,
)
from ..sdk.rectangles import Rect
from ..sdk.rules import COPY, USE
from ..sdk.transfers import declare_image_transfers
from ..sdk.ze.image_formats import ADDRESSING, FILTERS, convert_to_ze
from .contexts import LZContext
from .core import ZE, LZObject, adapter, create, is_owned, make_struct
from .devices import LZDevice
from .enqueue import Call, LZEnqueue, enqueues
from .events import LZEvent
from .memory import LZMemory
from .queues import create_queue

_COPY: Final = "zeCommandListAppendImageCopy"
_Format: Final = ZE.get_struct("ze_image_format_t")
_Region: Final = ZE.get_struct("ze_image_region_t")
_READ_ONLY: Final = UR["UR_MEM_FLAG_READ_ONLY"]
_WRITTEN: Final = ZE["ZE_IMAGE_FLAG_KERNEL_WRITE"]
#: Level Zero's types, and the fields of ze_device_image_properties_t that limit their sizes.
_TYPES: Final = {
    UR[f"UR_MEM_TYPE_{name}"]: (ZE[f"ZE_IMAGE_TYPE_{ze}"], limits.split())
    for name, ze, limits in (
        ("IMAGE1D", "1D", "maxImageDims1D"),
        ("IMAGE1D_ARRAY", "1DARRAY", "maxImageDims1D maxImageArraySlices"),
        ("IMAGE2D", "2D", "maxImageDims2D maxImageDims2D"),
        ("IMAGE2D_ARRAY", "2DARRAY", "maxImageDims2D maxImageDims2D maxImageArraySlices"),
        ("IMAGE3D", "3D", "maxImageDims3D maxImageDims3D maxImageDims3D"),
    )
}


class LZImage(ImageObject, LZMemory):
    """An image.

    Args:
        desc: the ur_image_desc_t that it was made with.
        format: its channel order and channel type, as Unified Runtime's numbers.
        owned: whether it is destroyed at the end.

    Attributes:
        extent: its pixels along x, y and z.
        pixel: the bytes of a pixel.
    """

    destroy = "zeImageDestroy"

    def __init__(
        self, ze: int, context: LZContext, desc: Any, format: tuple[int, int], owned: bool = True
    ) -> None:
        self.kind, self.format = IMAGE_KINDS[desc.type], format
        self.extent, self.pixel = self.kind.find_extent(desc), count_element_bytes(*format)
        x, y, z = self.extent
        super().__init__(ze, context, self.pixel * x * y * z, owned=owned)


def check_images(device: LZDevice) -> None:
    """Raise URError (UNSUPPORTED_FEATURE) if a device has no images."""
    if not device.has_images:
        raise failure("UNSUPPORTED_FEATURE", "the device has no images")


def _check_size(device: LZDevice, desc: Any) -> None:
    """Raise URError (INVALID_IMAGE_SIZE) if an image is empty or too large."""
    sizes, limits = IMAGE_KINDS[desc.type].find_extent(desc), _TYPES[desc.type][1]
    pairs = zip(sizes, limits, strict=False)
    if not all(0 < size <= getattr(device.images, limit) for size, limit in pairs):
        raise failure("INVALID_IMAGE_SIZE", f"the device has no images of {sizes} pixels")


def _create(
    context: LZContext, flags: int, format: tuple[int, int], desc: Any, host: int
) -> LZImage:
    device = context.devices[0]
    check_images(device)
    _check_size(device, desc)
    fields = convert_to_ze(*format)
    if fields is None:
        raise failure("UNSUPPORTED_IMAGE_FORMAT", "Level Zero has no such format")
    described = make_struct(
        "image_desc",
        flags=0 if flags & _READ_ONLY else _WRITTEN,
        type=_TYPES[desc.type][0],
        width=desc.width,
        height=desc.height,
        depth=desc.depth,
        arraylevels=desc.arraySize if "arraySize" in IMAGE_KINDS[desc.type].sizes else 0,
    )
    described.format = _Format(**fields)
    ze = create(context.table, "zeImageCreate", context.ze, device.ze, ctypes.byref(described))
    made = LZImage(ze, context, desc, format)
    if host and flags & (USE | COPY):
        queue = create_queue(context, device, 0)
        pitches = desc.rowPitch, desc.slicePitch
        for routine, arguments in _list_transfers(
            made, (0, 0, 0), made.extent, host, False, *pitches
        ):
            queue.append(routine, *arguments)
        queue.drain()
    return made


def _take_native(
    native: int, context: LZContext, format: tuple[int, int], desc: Any, properties: Any
) -> LZImage:
    """Make an image of a native handle. The program has to give its format and type correctly."""
    return LZImage(native, context, desc, format, is_owned(properties))


declare_images(adapter, _create, _take_native)


# transfers


def _make_region(origin: Rect, size: Rect) -> Any:
    return ctypes.byref(_Region(*origin, *size))


def _list_transfers(
    image: LZImage, origin: Rect, size: Rect, host: int, reads: bool, row: int, slice_: int
) -> Iterator[Call]:
    """Yield the commands that move a region to host memory (`reads`), or from it.

    Memory with gaps is one command where the driver has the extension, else one for each row.

    Raises:
        URError: INVALID_SIZE.
    """
    row, slice_ = find_transfer_pitches(image.kind, image.pixel, size, row, slice_)
    lines = image.kind.is_lines
    width = image.pixel * size[0]
    row_bytes = slice_ if lines else row
    row_bytes = row_bytes or width
    slice_bytes = row_bytes * size[1] if lines else slice_ or row_bytes * size[1]
    name = f"{_COPY}{'To' if reads else 'From'}Memory"

    def call(name: str, at: Rect, part: Rect, place: int, *pitches: int) -> Call:
        ends = (place, image.ze) if reads else (image.ze, place)
        return name, (*ends, _make_region(at, part), *pitches)

    rows_touch = row_bytes == width or size[1] == 1
    if rows_touch and (slice_bytes == width * size[1] or size[2] == 1):
        yield call(name, origin, size, host)
        return
    if not lines and image.context.platform.has(f"{name}Ext"):
        distance = slice_bytes if image.kind.has_slices else 0  # 0, says the extension
        yield call(f"{name}Ext", origin, size, host, row_bytes, distance)
        return
    x, y, z = origin
    for k in range(size[2]):
        for j in range(size[1]):
            place = host + j * row_bytes + k * slice_bytes
            yield call(name, (x, y + j, z + k), (size[0], 1, 1), place)


def _run(enqueue: LZEnqueue, transfer: TransferCommand) -> LZEvent | None:
    """Enqueue a transfer (sdk/transfers.py). Returns the event, if one is wanted."""
    operands, images = transfer.operands, transfer.keep
    size = operands["region"]
    if len(images) == 1:
        (image,), reads = images, transfer.operation == "read_image"
        given = operands["origin"], size, operands["target" if reads else "source"], reads
        pitches = operands["row_pitch"], operands["slice_pitch"]
        return enqueue.call_each(list(_list_transfers(image, *given, *pitches)), image)
    ends = "target", "source"
    handles = [operands[one].ze for one in ends]
    regions = [_make_region(operands[f"{one}_origin"], size) for one in ends]
    return enqueue.call(f"{_COPY}Region", *handles, *regions, keep=images)


declare_image_transfers(enqueues, _run, lambda one, other: bool(one.ze == other.ze), check_images)


_ADDRESSING: Final = {ur: ze for ze, ur in ADDRESSING.items()}
_FILTERS: Final = {ur: ze for ze, ur in FILTERS.items()}


@adapter.kind
class LZSampler(LZObject):
    """A sampler.

    Args:
        normalized: whether its coordinates are from 0 to 1.
        addressing: a ur_sampler_addressing_mode_t.
        filtering: a ur_sampler_filter_mode_t.
    """

    type = "ur_sampler_handle_t"
    destroy = "zeSamplerDestroy"

    def __init__(
        self, ze: int, context: LZContext, normalized: bool, addressing: int, filtering: int
    ) -> None:
        super().__init__(ze, context.table)
        self.context, self.normalized = context, normalized
        self.addressing, self.filtering = addressing, filtering


def _create_sampler(
    context: LZContext, normalized: bool, addressing: int, filtering: int
) -> LZSampler:
    device = context.devices[0]
    check_images(device)
    desc = make_struct(
        "sampler_desc",
        addressMode=_ADDRESSING[addressing],
        filterMode=_FILTERS[filtering],
        isNormalized=normalized,
    )
    ze = create(context.table, "zeSamplerCreate", context.ze, device.ze, ctypes.byref(desc))
    return LZSampler(ze, context, normalized, addressing, filtering)


declare_samplers(adapter, _create_sampler)
