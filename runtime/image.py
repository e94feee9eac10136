"""Images: pixels in memory that the scheduler keeps coherent, as it does a Buffer
(coherent_memory.py).

Kernels read images through samplers and write them by pixels. They convert between a pixel's format
and its numbers. (SYCL 2020, section 4.7.3; OpenCL C, "Image Read and Write Functions")

    picture = numpy.zeros((480, 640, 4), numpy.uint8)
    with Image(picture, channels=4, normalized=True) as image:
        queue.submit(lambda h: h.parallel_for((640, 480), blur, h.access(image, "read"), …))
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..loader.ur.abi import UR
from .coherent_memory import CoherentMemory
from .errors import make_invalid_error, make_unsupported_error
from .handles import make_struct

if TYPE_CHECKING:
    from .context import Context

#: The order of channels where none is given, by their number.
_ORDERS: Final = {1: "R", 2: "RG", 3: "RGB", 4: "RGBA"}

#: How many channels each order has.
_CHANNELS: Final = {
    **{name: number for number, name in _ORDERS.items()},
    "A": 1,
    "INTENSITY": 1,
    "LUMINANCE": 1,
    "RA": 2,
    "RX": 2,
    "RGX": 3,
    "BGRA": 4,
    "ARGB": 4,
    "ABGR": 4,
    "RGBX": 4,
    "SRGBA": 4,
}

#: The type of a channel, as it is and normalized, by the dtype.
_TYPES: Final = {
    "int8": ("SIGNED_INT8", "SNORM_INT8"),
    "int16": ("SIGNED_INT16", "SNORM_INT16"),
    "int32": ("SIGNED_INT32", ""),
    "uint8": ("UNSIGNED_INT8", "UNORM_INT8"),
    "uint16": ("UNSIGNED_INT16", "UNORM_INT16"),
    "uint32": ("UNSIGNED_INT32", ""),
    "float16": ("HALF_FLOAT", ""),
    "float32": ("FLOAT", ""),
}


class _Kind(NamedTuple):
    """A kind of images: ur_mem_type_t, the name in OpenCL C, and the fields of ur_image_desc_t that
    have its shape."""

    type: str
    declared: str
    fields: tuple[str, ...]


#: By the number of dimensions, and whether the first one counts images.
_KINDS: Final = {
    (1, False): _Kind("IMAGE1D", "image1d_t", ("width",)),
    (2, False): _Kind("IMAGE2D", "image2d_t", ("height", "width")),
    (3, False): _Kind("IMAGE3D", "image3d_t", ("depth", "height", "width")),
    (2, True): _Kind("IMAGE1D_ARRAY", "image1d_array_t", ("arraySize", "width")),
    (3, True): _Kind("IMAGE2D_ARRAY", "image2d_array_t", ("arraySize", "height", "width")),
}
_FORMATS: Final = (
    "8-, 16- and 32-bit integers, float16 and float32; integers of 8 and 16 bits can be normalized"
)


class Image(CoherentMemory):
    """An image of one to three dimensions, or an array of images, with or without first contents.

    The shape has NumPy's order: `image.shape` is (height, width) for an image whose pixels a kernel
    finds at (x, y). If a pixel has several channels, arrays have an axis for them, the last one.

    Args:
        data: a NumPy array, which belongs to the image until that is closed; a list of elements,
            which are copied; or the shape in pixels, a number or a tuple.
        dtype: the type of a channel: an integer of 8, 16 or 32 bits, float16 or float32.
        channels: how many numbers a pixel has. Every device has 4.
        order: which channels these are: "BGRA", "A", "INTENSITY" and so on, by default the first of
            red, green, blue and alpha (ur_image_channel_order_t).
        normalized: whether kernels see integers of 8 or 16 bits as numbers from 0 to 1, signed ones
            from -1 to 1. Then they call read_imagef, else read_imagei or read_imageui.
        image_array: whether the first dimension counts images of one or two dimensions.
        write_back: whether `close` writes the contents to the array, as of Buffer.

    Attributes:
        channels, order, normalized, image_array: as given.
        channel_type: a name of ur_image_channel_type_t, "UNORM_INT8".

    Raises:
        SYCLError: invalid. That a device lacks images, the format or the size is raised by what
            first uses the image there.
    """

    kind = "an image"
    noun = "image"
    made_of = (
        "Image(array, channels=4) with the channels as the last axis, or "
        "Image((height, width), numpy.uint8, channels=4)"
    )

    def __init__(
        self,
        data: Any,
        dtype: Any = None,
        *,
        channels: int = 1,
        order: str | None = None,
        normalized: bool = False,
        image_array: bool = False,
        write_back: bool | None = None,
    ) -> None:
        self._closed = True
        if channels not in _ORDERS:
            raise make_invalid_error(
                f"a pixel has 1 to 4 channels, not {channels!r}",
                routine="Image",
                remedy=self.made_of,
            )
        self.channels = channels
        self.order = _ORDERS[channels] if order is None else order
        if _CHANNELS.get(self.order) != channels:
            known = [name for name, number in _CHANNELS.items() if number == channels]
            raise make_invalid_error(
                f"{order!r} is not an order of {channels} channels",
                routine="Image",
                remedy=f"one of {', '.join(known)}",
            )
        self.normalized, self.image_array = normalized, image_array
        super().__init__(data, dtype, write_back=write_back)
        self.channel_type = self._find_channel_type()

    def _set_shape(self, array: tuple[int, ...] | None, given: tuple[int, ...]) -> tuple[int, ...]:
        axis = (self.channels,) if self.channels > 1 else ()
        whole = given + axis if array is None else array
        if axis and whole[-1:] != axis:
            raise make_invalid_error(
                f"the last axis of the array has {whole[-1] if whole else 'no'} elements, and a "
                f"pixel {self.channels} channels",
                routine="Image",
                remedy=self.made_of,
            )
        self.shape = whole[: len(whole) - len(axis)]
        if (len(self.shape), self.image_array) not in _KINDS or min(self.shape) <= 0:
            least = (
                "two or three dimensions with that of the images"
                if self.image_array
                else "one to three dimensions"
            )
            raise make_invalid_error(
                f"an image has {least}, and at least one pixel, not the shape {self.shape}",
                routine="Image",
                remedy=self.made_of,
            )
        self._kind = _KINDS[len(self.shape), self.image_array]
        return whole

    def _find_channel_type(self) -> str:
        found = _TYPES.get(self.dtype.name, ("", ""))[self.normalized]
        if not found or not self.dtype.isnative:
            how = "normalized channels" if self.normalized else "channels"
            raise make_invalid_error(
                f"an image has no {how} of {self.dtype}", routine="Image", remedy=_FORMATS
            )
        return found

    @property
    def declared(self) -> str:
        """The type of a kernel's parameter for the image, "image2d_t"."""
        return self._kind.declared

    def _create(self, context: Context, flags: int, host: int) -> int:
        if not any(device.has("image") for device in context.devices):
            raise make_unsupported_error(
                f"{context.devices[0].name} has no images",
                routine="Image",
                remedy='choose a device of which device.has("image") is true, or use a Buffer',
            )
        format = make_struct(
            "ur_image_format_t",
            channelOrder=UR[f"UR_IMAGE_CHANNEL_ORDER_{self.order}"],
            channelType=UR[f"UR_IMAGE_CHANNEL_TYPE_{self.channel_type}"],
        )
        sizes = dict(zip(self._kind.fields, self.shape, strict=True))
        desc = make_struct("ur_image_desc_t", type=UR[f"UR_MEM_TYPE_{self._kind.type}"], **sizes)
        given = ctypes.byref(format), ctypes.byref(desc), host or None
        return context.adapter.obtain(
            "urMemImageCreate", context.handle, flags, *given, detail=f"({self!r})"
        )

    def _transfer_by(self, direction: str) -> tuple[str, tuple[Any, ...]]:
        area = find_image_area((0,) * len(self.shape), self.shape)
        return f"urEnqueueMemImage{direction}", (*area, 0, 0)

    def __repr__(self) -> str:
        what = f"{self.order} {'normalized ' * self.normalized}{self.dtype}"
        array = " array" * self.image_array
        return f"<Image{array} {'×'.join(map(str, self.shape))} {what}>"


def find_image_area(offset: Any, shape: Any) -> tuple[Any, Any]:
    """Return a part of an image as origin and region in pixels.

    Args:
        offset, shape: in NumPy's order, one to three numbers each.
    """
    x, y, z = (*reversed(tuple(offset)), 0, 0)[:3]
    width, height, depth = (*reversed(tuple(shape)), 1, 1)[:3]
    return (
        make_struct("ur_rect_offset_t", x=x, y=y, z=z),
        make_struct("ur_rect_region_t", width=width, height=height, depth=depth),
    )
