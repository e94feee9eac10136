"""Images: their types, the bytes of a pixel, and the rules that adapters check themselves;
samplers.

OpenCL and Level Zero leave some refusals to drivers. They are made here, with the codes that the
specification lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ...loader.ur.abi import UR
from ._native import ffi
from .adapter import Adapter
from .conversions import failure
from .rectangles import Rect

_WRONG: Final = "INVALID_IMAGE_FORMAT_DESCRIPTOR"


class ImageKind(NamedTuple):
    """A type of images.

    Attributes:
        name: its name after UR_MEM_TYPE_, "IMAGE2D".
        sizes: the fields of ur_image_desc_t that are its sizes along x, y and z.
    """

    name: str
    sizes: tuple[str, ...]

    @property
    def is_lines(self) -> bool:
        """Return whether the image is an array of 1D images, whose distance is the slice pitch."""
        return self.sizes == ("width", "arraySize")

    @property
    def has_slices(self) -> bool:
        """Return whether a slice pitch matters."""
        return self.is_lines or len(self.sizes) == 3

    def find_extent(self, desc: Any) -> Rect:
        """Return the pixels along x, y and z that a ur_image_desc_t asks for."""
        return make_extent(*(getattr(desc, name) for name in self.sizes))

    def get_size(self, extent: Rect, field: str) -> int:
        """Return a field of the ur_image_desc_t of an extent, 0 if the type lacks it."""
        return dict(zip(self.sizes, extent, strict=False)).get(field, 0)


#: The types of images, by their ur_mem_type_t.
IMAGE_KINDS: Final = {
    UR[f"UR_MEM_TYPE_{name}"]: ImageKind(name, tuple(sizes.split()))
    for name, sizes in {
        "IMAGE1D": "width",
        "IMAGE1D_ARRAY": "width arraySize",
        "IMAGE2D": "width height",
        "IMAGE2D_ARRAY": "width height arraySize",
        "IMAGE3D": "width height depth",
    }.items()
}

#: Channels by order. Bytes of a channel by type, for a packed type those of a pixel.
_CHANNELS: Final = {
    UR[f"UR_IMAGE_CHANNEL_ORDER_{name}"]: count
    for count, names in {
        1: ("A", "R", "INTENSITY", "LUMINANCE"),
        2: ("RG", "RA", "RX"),
        3: ("RGB", "RGX"),
        4: ("RGBA", "BGRA", "ARGB", "ABGR", "RGBX", "SRGBA"),
    }.items()
    for name in names
}
_PACKED: Final = {
    UR["UR_IMAGE_CHANNEL_TYPE_UNORM_SHORT_565"]: 2,
    UR["UR_IMAGE_CHANNEL_TYPE_UNORM_SHORT_555"]: 2,
    UR["UR_IMAGE_CHANNEL_TYPE_INT_101010"]: 4,
}
_BYTES: Final = {
    UR[f"UR_IMAGE_CHANNEL_TYPE_{name}"]: size
    for size, names in {
        1: ("SNORM_INT8", "UNORM_INT8", "SIGNED_INT8", "UNSIGNED_INT8"),
        2: ("SNORM_INT16", "UNORM_INT16", "SIGNED_INT16", "UNSIGNED_INT16", "HALF_FLOAT"),
        4: ("SIGNED_INT32", "UNSIGNED_INT32", "FLOAT"),
    }.items()
    for name in names
}


def make_extent(width: int, height: int = 1, depth: int = 1) -> Rect:
    """Return the pixels along x, y and z of an image that may lack some of them."""
    return width, height, depth


def count_element_bytes(order: int, channel: int) -> int:
    """Return the bytes of a pixel.

    Args:
        order: a ur_image_channel_order_t.
        channel: a ur_image_channel_type_t.

    Raises:
        URError: INVALID_IMAGE_FORMAT_DESCRIPTOR if there is no such order or type.
    """
    if order not in _CHANNELS or not (channel in _PACKED or channel in _BYTES):
        raise failure(_WRONG, "there is no such order or type")
    return _PACKED.get(channel) or _CHANNELS[order] * _BYTES[channel]


def check_description(desc: Any, host: int) -> ImageKind:
    """Return the type of the image that a ur_image_desc_t describes.

    Args:
        host: the address of host memory, or 0.

    Raises:
        URError: INVALID_IMAGE_FORMAT_DESCRIPTOR if it does not describe an image.
    """
    for wrong, why in (
        (desc.stype != UR["UR_STRUCTURE_TYPE_IMAGE_DESC"], "pImageDesc->stype"),
        (desc.type not in IMAGE_KINDS, "pImageDesc->type is not a type of images"),
        (desc.numMipLevel or desc.numSamples, "an image has no mipmaps and no samples"),
        (not host and (desc.rowPitch or desc.slicePitch), "pitches need host memory"),
    ):
        if wrong:
            raise failure(_WRONG, why)
    return IMAGE_KINDS[desc.type]


def check_host_pitches(desc: Any, kind: ImageKind, pixel: int) -> None:
    """Check that the pitches of a ur_image_desc_t can be those of host memory.

    Args:
        pixel: the bytes of a pixel.

    Raises:
        URError: INVALID_IMAGE_FORMAT_DESCRIPTOR if they cannot.
    """
    sizes = kind.find_extent(desc)
    row = desc.rowPitch or sizes[0] * pixel
    if row < sizes[0] * pixel or row % pixel:
        raise failure(_WRONG, f"a row pitch of {row} bytes")
    least, given = row if kind.is_lines else row * sizes[1], desc.slicePitch
    if kind.has_slices and given and (given < least or given % row):
        raise failure(_WRONG, f"a slice pitch of {given} bytes")


class ImageObject:
    """What an image of an adapter is, besides an `Object`.

    Attributes:
        format: its channel order and channel type, as Unified Runtime's numbers.
        extent: its pixels along x, y and z. The images of an array are the last dimension.
        pixel: the bytes of a pixel.
    """

    context: Any
    kind: ImageKind
    format: tuple[int, int]
    extent: Rect
    pixel: int


def check_images(context: Any, *memory: Any) -> None:
    """Check that memory objects are images of a context.

    Raises:
        URError: INVALID_MEM_OBJECT for a buffer, INVALID_CONTEXT.
    """
    if not all(isinstance(one, ImageObject) for one in memory):
        raise failure("INVALID_MEM_OBJECT", "a buffer is not an image")
    context.check_shared("an image", *memory)


# queries


def _compute_slice_pitch(image: ImageObject) -> int:
    rows = 1 if image.kind.is_lines else image.extent[1]
    return image.pixel * image.extent[0] * rows if image.kind.has_slices else 0


#: What is said of an image whose pixels have no gaps, by the names of queries after UR_IMAGE_INFO_.
IMAGE_ANSWERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "FORMAT": lambda image: bytes(ffi.buffer(ffi.new("ur_image_format_t *", image.format))),
    "ELEMENT_SIZE": lambda image: image.pixel,
    "ROW_PITCH": lambda image: image.pixel * image.extent[0],
    "SLICE_PITCH": _compute_slice_pitch,
    "WIDTH": lambda image: image.kind.get_size(image.extent, "width"),
    "HEIGHT": lambda image: image.kind.get_size(image.extent, "height"),
    "DEPTH": lambda image: image.kind.get_size(image.extent, "depth"),
    "ARRAY_SIZE": lambda image: image.kind.get_size(image.extent, "arraySize"),
    "NUM_MIP_LEVELS": lambda image: 0,
    "NUM_SAMPLES": lambda image: 0,
}


def read_format(format: Any, desc: Any, host: int = 0) -> tuple[int, int]:
    """Return the channel order and the channel type of an image.

    Args:
        format: a ur_image_format_t.
        desc: a ur_image_desc_t.
        host: the address of host memory, or 0.

    Raises:
        URError: INVALID_IMAGE_FORMAT_DESCRIPTOR if they do not describe an image.
    """
    kind, numbers = check_description(desc, host), (format.channelOrder, format.channelType)
    check_host_pitches(desc, kind, count_element_bytes(*numbers))
    return numbers


def declare_images(
    adapter: Adapter,
    create: Callable[[Any, int, tuple[int, int], Any, int], Any],
    take_native: Callable[[int, Any, tuple[int, int], Any, Any], Any],
    **own: Callable[[Any], Any],
) -> None:
    """Declare how images are made, and urMemImageGetInfo.

    Args:
        create: gets a context, flags, what `read_format` returns, the ur_image_desc_t, and the
            address of host memory or 0.
        take_native: gets a native handle, a context, what `read_format` returns, the
            ur_image_desc_t, and properties.
        own: answers that are not those of `IMAGE_ANSWERS`, by the same names.
    """

    def create_image(
        hContext: Any, flags: int, pImageFormat: Any, pImageDesc: Any, pHost: int
    ) -> Any:
        numbers = read_format(pImageFormat, pImageDesc, pHost)
        return create(hContext, flags, numbers, pImageDesc, pHost)

    def take_image(
        hNativeMem: int, hContext: Any, pImageFormat: Any, pImageDesc: Any, pProperties: Any
    ) -> Any:
        numbers = read_format(pImageFormat, pImageDesc)
        return take_native(hNativeMem, hContext, numbers, pImageDesc, pProperties)

    adapter.declare(urMemImageCreate=create_image, urMemImageCreateWithNativeHandle=take_image)

    def make_answer(answer: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def check_and_answer(memory: Any) -> Any:
            check_images(memory.context, memory)
            return answer(memory)

        return check_and_answer

    answers = {**IMAGE_ANSWERS, **own}
    checked = {name: make_answer(answer) for name, answer in answers.items()}
    adapter.info("urMemImageGetInfo", checked, "UR_IMAGE_INFO_")


# transfers


def check_region(image: Rect, origin: Rect, region: Rect) -> None:
    """Raise URError (INVALID_SIZE) if a region ends outside an image of some extent."""
    ends = [start + size for start, size in zip(origin, region, strict=True)]
    if any(end > size for end, size in zip(ends, image, strict=True)):
        raise failure("INVALID_SIZE", f"pixels up to {ends} of an image of {image}")


def find_transfer_pitches(
    kind: ImageKind, pixel: int, region: Rect, row: int, slice_: int
) -> tuple[int, int]:
    """Return row and slice pitch of host memory, as OpenCL's drivers take them.

    The slice pitch, or else the row pitch, says how far apart the lines of an array of 1D images
    are.

    Args:
        pixel: the bytes of a pixel.
        row: the row pitch in bytes, 0 for no gap.
        slice_: the slice pitch in bytes, 0 for no gap.

    Raises:
        URError: INVALID_SIZE if the region does not fit.
    """
    least = region[0] * pixel
    lines = kind.is_lines
    if lines:
        row = slice_ = slice_ or row
    if row and row < least:
        raise failure("INVALID_SIZE", f"a row of {least} bytes with a pitch of {row}")
    if not kind.has_slices:
        return row, 0  # there is only one slice
    height = 1 if lines else region[1]
    if slice_ and slice_ < (row or least) * height:
        raise failure("INVALID_SIZE", f"a slice of {height} rows with a pitch of {slice_}")
    return row, slice_


def overlap(start: Rect, to: Rect, size: Rect) -> bool:
    """Return whether two regions of one image have pixels in common."""
    return all(abs(a - b) < length for a, b, length in zip(start, to, size, strict=True))


def declare_samplers(adapter: Adapter, create: Callable[[Any, bool, int, int], Any]) -> None:
    """Declare how samplers are made, and the queries about them.

    Args:
        create: gets a context, whether coordinates are from 0 to 1, a ur_sampler_addressing_mode_t
            and a ur_sampler_filter_mode_t.
    """

    def create_sampler(hContext: Any, pDesc: Any) -> Any:
        normalized = bool(pDesc.normalizedCoords)
        return create(hContext, normalized, pDesc.addressingMode, pDesc.filterMode)

    adapter.declare(urSamplerCreate=create_sampler)
    adapter.info(
        "urSamplerGetInfo",
        {
            "REFERENCE_COUNT": lambda sampler: sampler.references,
            "CONTEXT": lambda sampler: sampler.context,
            "NORMALIZED_COORDS": lambda sampler: sampler.normalized,
            "ADDRESSING_MODE": lambda sampler: sampler.addressing,
            "FILTER_MODE": lambda sampler: sampler.filtering,
        },
        "UR_SAMPLER_INFO_",
    )
