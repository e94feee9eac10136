"""CUDA's arrays: formats, sizes, the ends of copies. Memory objects and bindless images own one.

CUDA has the channels R, RG and RGBA. Normalized integers are stored as integers: a texture turns
them into floats, a surface does not.

HIP's structs and numbers for arrays and textures are CUDA's under other names. For a surface HIP
reads a struct that is shorter than CUDA's and begins like it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ...loader.cuda.abi import CUDA
from ...loader.ur.abi import UR
from ..sdk.gpu.api import CopyPlace
from ..sdk.images import ImageKind, check_region, count_element_bytes, find_transfer_pitches
from ..sdk.rectangles import Rect
from .core import API, failure
from .devices import CuDevice

_Array: Any = CUDA.get_struct("CUDA_ARRAY3D_DESCRIPTOR")
_Resource: Any = CUDA.get_struct("CUDA_RESOURCE_DESC")
_LAYERED, _SURFACE = CUDA["CUDA_ARRAY3D_LAYERED"], CUDA["CUDA_ARRAY3D_SURFACE_LDST"]

_CHANNELS: Final = {UR[f"UR_IMAGE_CHANNEL_ORDER_{name}"]: len(name) for name in ("R", "RG", "RGBA")}
_FORMATS: Final = {
    UR[f"UR_IMAGE_CHANNEL_TYPE_{name}"]: CUDA[f"CU_AD_FORMAT_{other}"]
    for name, other in {
        **{
            f"{kind}_INT{bits}": f"{kind}_INT{bits}"
            for kind in ("SIGNED", "UNSIGNED")
            for bits in (8, 16, 32)
        },
        **{f"SNORM_INT{bits}": f"SIGNED_INT{bits}" for bits in (8, 16)},
        **{f"UNORM_INT{bits}": f"UNSIGNED_INT{bits}" for bits in (8, 16)},
        "HALF_FLOAT": "HALF",
        "FLOAT": "FLOAT",
    }.items()
}
#: Channel types that a texture returns as integers.
_INTEGERS: Final = frozenset(
    UR[f"UR_IMAGE_CHANNEL_TYPE_{sign}_INT{bits}"]
    for sign in ("SIGNED", "UNSIGNED")
    for bits in (8, 16, 32)
)
#: The limits of a type of images, for `API.query_image_limit`.
_LIMITS: Final = {
    "IMAGE1D": ("1D_WIDTH",),
    "IMAGE1D_ARRAY": ("1D_LAYERED_WIDTH", "1D_LAYERED_LAYERS"),
    "IMAGE2D": ("2D_WIDTH", "2D_HEIGHT"),
    "IMAGE2D_ARRAY": ("2D_LAYERED_WIDTH", "2D_LAYERED_HEIGHT", "2D_LAYERED_LAYERS"),
    "IMAGE3D": ("3D_WIDTH", "3D_HEIGHT", "3D_DEPTH"),
}


class ImageShape(NamedTuple):
    """What an image looks like.

    Attributes:
        format: its channel order and channel type, as Unified Runtime's numbers.
        extent: its pixels along x, y and z. The images of an array are the last dimension.
    """

    kind: ImageKind
    format: tuple[int, int]
    extent: Rect

    @property
    def pixel(self) -> int:
        """Return the bytes of a pixel."""
        return count_element_bytes(*self.format)

    @property
    def size(self) -> int:
        """Return the bytes of all pixels."""
        x, y, z = self.extent
        return self.pixel * x * y * z

    @property
    def is_integer(self) -> bool:
        """Return whether a texture of the image returns integers."""
        return self.format[1] in _INTEGERS

    def check(self, device: CuDevice) -> None:
        """Check that a device has such images.

        Raises:
            URError: UNSUPPORTED_IMAGE_FORMAT, INVALID_IMAGE_SIZE; UNSUPPORTED_FEATURE if the
                device has no such type of images.
        """
        order, channel = self.format
        if order not in _CHANNELS or channel not in _FORMATS:
            raise failure("UNSUPPORTED_IMAGE_FORMAT", f"{API.name} has R, RG and RGBA")
        limits = [API.query_image_limit(device, name) for name in _LIMITS[self.kind.name]]
        if 0 in limits:
            raise failure("UNSUPPORTED_FEATURE", f"{API.name} has no images of this type here")
        if 0 in self.extent or any(
            size > limit for size, limit in zip(self.extent, limits, strict=False)
        ):
            raise failure("INVALID_IMAGE_SIZE", f"an image has up to {limits} pixels")

    def describe(self) -> Any:
        """Return the CUDA_ARRAY3D_DESCRIPTOR."""
        layers = self.kind.get_size(self.extent, "arraySize")
        order, channel = self.format
        return _Array(
            self.extent[0],
            self.kind.get_size(self.extent, "height"),
            layers or self.kind.get_size(self.extent, "depth"),
            _FORMATS[channel],
            _CHANNELS[order],
            _SURFACE | (_LAYERED if layers else 0),
        )

    def convert_to_bytes(self, pixels: Rect) -> Rect:
        """Return an origin or a region in bytes, rows and slices. CUDA has lines along z."""
        x, y, z = pixels
        return (x * self.pixel, z, y) if self.kind.is_lines else (x * self.pixel, y, z)

    def make_host_place(self, address: int, region: Rect, row: int, slice_: int) -> CopyPlace:
        """Return the end of a copy that is memory. Pitches are in bytes, 0 for no gap.

        Raises:
            URError: INVALID_SIZE if the region does not fit.
        """
        row, slice_ = find_transfer_pitches(self.kind, self.pixel, region, row, slice_)
        return CopyPlace(address, False, row=row, slice=slice_)


class CuArray:
    """An array of a device."""

    def __init__(self, device: CuDevice, handle: int, shape: ImageShape) -> None:
        self.device, self.handle, self.shape = device, handle, shape

    @classmethod
    def create(cls, device: CuDevice, shape: ImageShape) -> CuArray:
        """Make an array. Raises DriverError, and URError as `ImageShape.check`."""
        shape.check(device)
        handle = device.make("Array3DCreate", ctypes.byref(shape.describe()))
        return cls(device, handle, shape)

    def destroy(self) -> None:
        """Destroy the array when the device's commands have ended. Raises DriverError."""
        self.device.drain()
        self.device.call("ArrayDestroy", self.handle)

    def make_resource(self) -> Any:
        """Return the CUDA_RESOURCE_DESC of an object on it."""
        made = _Resource(CUDA["CU_RESOURCE_TYPE_ARRAY"])
        made.res[0] = self.handle
        return made

    def make_surface(self) -> int:
        """Make a surface object. Raises DriverError."""
        return self.device.make("SurfObjectCreate", ctypes.byref(self.make_resource()))

    def make_place(self, origin: Rect, region: Rect) -> CopyPlace:
        """Return the end of a copy that is a region. Raises URError (INVALID_SIZE)."""
        check_region(self.shape.extent, origin, region)
        start, pixel = self.shape.convert_to_bytes(origin), self.shape.pixel
        return CopyPlace(0, True, start, array=self.handle, pixel=pixel)


def make_copies(target: CopyPlace, source: CopyPlace, region: Rect) -> Sequence[Any]:
    """Return the driver's structs for a copy.

    Args:
        region: bytes, rows and slices.

    Returns:
        A copy, or one for each slice if a slice of memory does not end with a whole row.
    """
    if all(not one.slice % (one.row or region[0]) for one in (target, source)):
        return [API.make_copy(target, source, region)]
    size = region[0], region[1], 1
    return [API.make_copy(_slice(target, z), _slice(source, z), size) for z in range(region[2])]


def _slice(place: CopyPlace, number: int) -> CopyPlace:
    """Return the end of a copy of one slice."""
    x, y, z = place.origin
    if place.array:
        return place._replace(origin=(x, y, z + number))
    return place._replace(address=place.address + number * place.slice, slice=0)
