"""Images, their views, and samplers of the Level Zero driver: made, described, destroyed.
image_copies.py moves the contents of images.

An image is one of the reference adapter, and so is a sampler. OpenCL has those formats of Level
Zero that plugins/sdk/ze/image_formats.py lists, as far as the OpenCL driver has them.

A view is another image of the same buffer. So a 2D image is made of a buffer, where the OpenCL
driver makes such images (cl_khr_image2d_from_buffer).
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from ...icd.abi import OPENCL
from ...icd.errors import OpenCLError
from ...loader.ur.abi import UR
from ...loader.ze.abi import LevelZeroError
from ..opencl.contexts import URContext
from ..opencl.core import create
from ..opencl.images import (
    URImage,
    URSampler,
    create_image,
    create_sampler,
    has_format,
    has_images,
    make_opencl_format,
)
from ..opencl.usm.strategy import CLMemory
from ..sdk._native import ffi as ur_ffi
from ..sdk.images import count_element_bytes
from ..sdk.objects import Object
from ..sdk.ze.image_formats import ADDRESSING, FILTERS, convert_to_ur
from .contexts import ZeContext, zeDriverGetDefaultContext
from .core import ZE, driver, find_struct, make_failure, walk_chain
from .devices import LARGEST, ZeDevice

#: Unified Runtime's and OpenCL's numbers for types of images. Unified Runtime has none for an image
#: of a buffer: there it is a 1D image.
_TYPES: Final = {
    ZE[f"ZE_IMAGE_TYPE_{name}"]: (UR[f"UR_MEM_TYPE_{other}"], OPENCL[f"CL_MEM_OBJECT_{more}"])
    for name, other, more in (
        ("1D", "IMAGE1D", "IMAGE1D"),
        ("1DARRAY", "IMAGE1D_ARRAY", "IMAGE1D_ARRAY"),
        ("2D", "IMAGE2D", "IMAGE2D"),
        ("2DARRAY", "IMAGE2D_ARRAY", "IMAGE2D_ARRAY"),
        ("3D", "IMAGE3D", "IMAGE3D"),
        ("BUFFER", "IMAGE1D", "IMAGE1D_BUFFER"),
    )
}
_2D, _BUFFER = ZE["ZE_IMAGE_TYPE_2D"], ZE["ZE_IMAGE_TYPE_BUFFER"]
#: Structs that ask for one plane of an image.
_PLANAR: Final = {ZE[f"ZE_STRUCTURE_TYPE_IMAGE_VIEW_PLANAR_{end}_DESC"] for end in ("EXT", "EXP")}
_WRITTEN: Final = ZE["ZE_IMAGE_FLAG_KERNEL_WRITE"]
_WHOLE_NUMBERS: Final = ZE["ZE_IMAGE_FORMAT_TYPE_UINT"], ZE["ZE_IMAGE_FORMAT_TYPE_SINT"]
_POINT, _LINEAR = (ZE[f"ZE_IMAGE_SAMPLER_FILTER_FLAG_{name}"] for name in ("POINT", "LINEAR"))


@driver.kind
class ZeImage(Object):
    """An image.

    Args:
        ur: the image of the reference adapter.
        kind: its ze_image_type_t.
        buffer: the buffer that it is made of, None if it has memory of its own.
    """

    type = "ze_image_handle_t"

    def __init__(
        self, context: ZeContext, ur: URImage, kind: int, buffer: CLMemory | None = None
    ) -> None:
        self.context, self.ur, self.kind, self.buffer = context, ur, kind, buffer


def _find_access(desc: Any) -> str:
    """Return what kernels do with an image, as names of flags end."""
    return "READ_WRITE" if desc.flags & _WRITTEN else "READ_ONLY"


def _find_format(context: URContext, desc: Any) -> tuple[int, int]:
    """Return the order and the type of channels that a ze_image_desc_t asks for.

    Raises:
        LevelZeroError: UNSUPPORTED_IMAGE_FORMAT if the OpenCL driver has no such images.
    """
    found = convert_to_ur(desc.format)
    if found is None:
        raise make_failure("UNSUPPORTED_IMAGE_FORMAT", "OpenCL has no such format")
    bits, kind = OPENCL[f"CL_MEM_{_find_access(desc)}"], _TYPES[desc.type][1]
    if not has_format(context, bits, kind, make_opencl_format(*found)):
        raise make_failure("UNSUPPORTED_IMAGE_FORMAT", "the OpenCL driver has no such images")
    return found


def _check_type(device: ZeDevice, desc: Any) -> None:
    """Raise LevelZeroError (UNSUPPORTED_FEATURE) if a device has no images of a type."""
    check_device(device)
    if desc.type == _BUFFER and not device.has_images_of_buffers:
        raise make_failure(
            "UNSUPPORTED_FEATURE", "kernels with images of buffers crash this driver"
        )


def check_device(device: ZeDevice) -> None:
    """Raise LevelZeroError (UNSUPPORTED_FEATURE) if a device has no images that it can move."""
    if not device.has_images:
        raise make_failure("UNSUPPORTED_FEATURE", "the device has no images")


def _create(context: URContext, desc: Any, format: tuple[int, int]) -> URImage:
    made = ur_ffi.new("ur_image_desc_t *")
    made.stype, made.type = UR["UR_STRUCTURE_TYPE_IMAGE_DESC"], _TYPES[desc.type][0]
    made.width, made.height, made.depth = desc.width, desc.height, desc.depth
    made.arraySize = desc.arraylevels
    return create_image(context, UR[f"UR_MEM_FLAG_{_find_access(desc)}"], format, made, 0)


def _create_of_buffer(
    context: URContext, device: ZeDevice, desc: Any, format: tuple[int, int]
) -> tuple[URImage, CLMemory]:
    """Make an image of a new buffer, and return both.

    Raises:
        LevelZeroError: UNSUPPORTED_SIZE for an empty image, and one that is too large.
    """
    is_lines = desc.type != _BUFFER
    names = ("2D_MAX_WIDTH", "2D_MAX_HEIGHT") if is_lines else ("_MAX_BUFFER_SIZE",)
    limits = [device.query_number(f"CL_DEVICE_IMAGE{name}") for name in names]
    sizes = (desc.width, desc.height)[: len(limits)]
    if not all(0 < size <= limit for size, limit in zip(sizes, limits, strict=True)):
        raise make_failure("UNSUPPORTED_SIZE", f"no such image has {sizes} pixels")
    pixel, pitch = count_element_bytes(*format), 0
    if is_lines:
        step = device.pitch_alignment * pixel
        pitch = -(-desc.width * pixel // step) * step
    flags, size = OPENCL["CL_MEM_READ_WRITE"], pitch * desc.height or desc.width * pixel
    given = context.cl, flags, size, None
    buffer = CLMemory(create(context.table, "clCreateBuffer", *given), context.table)
    return _make_image(context, buffer, desc, format, pitch), buffer


def _make_image(
    context: URContext, buffer: CLMemory, desc: Any, format: tuple[int, int], pitch: int
) -> URImage:
    """Make an image of a buffer. Raises OpenCLError.

    Args:
        desc: a ze_image_desc_t.
        format: the order and the type of channels.
        pitch: the bytes of a row, 0 for an image of one row.
    """
    kind, numbers = _TYPES[desc.type][0], {"image_width": desc.width, "image_row_pitch": pitch}
    if pitch:
        numbers["image_height"] = desc.height
    row = OPENCL.get_struct("cl_image_desc")(
        image_type=_TYPES[desc.type][1], buffer=buffer.cl, **numbers
    )
    flags, pixel = OPENCL[f"CL_MEM_{_find_access(desc)}"], make_opencl_format(*format)
    given = context.cl, flags, ctypes.byref(pixel), ctypes.byref(row), None
    return URImage(create(context.table, "clCreateImage", *given), context, kind, format)


def _check_desc(desc: Any) -> None:
    """Raise LevelZeroError for what no image has: UNSUPPORTED_FEATURE, INVALID_ARGUMENT."""
    if any(stype in _PLANAR for stype, _ in walk_chain(desc.pNext)):
        raise make_failure("UNSUPPORTED_FEATURE", "OpenCL has no images of several planes")
    if desc.pNext:
        raise make_failure("UNSUPPORTED_FEATURE", "no such extension of images is known")
    if desc.miplevels:
        raise make_failure("INVALID_ARGUMENT", "an image of Level Zero has no mipmaps")


@driver.entry
def zeImageCreate(hContext: ZeContext, hDevice: ZeDevice, desc: Any) -> ZeImage:
    hContext.check(hDevice)
    _check_type(hDevice, desc)
    _check_desc(desc)
    context, format = hContext.ur, _find_format(hContext.ur, desc)
    if desc.type == _BUFFER or (desc.type == _2D and hDevice.pitch_alignment):
        try:
            made, buffer = _create_of_buffer(context, hDevice, desc, format)
        except OpenCLError:
            if desc.type == _BUFFER:
                raise
        else:
            return ZeImage(hContext, made, desc.type, buffer)
    return ZeImage(hContext, _create(context, desc, format), desc.type)


@driver.entry
def zeImageViewCreateExt(
    hContext: ZeContext, hDevice: ZeDevice, desc: Any, hImage: ZeImage
) -> ZeImage:
    """Make another image of an image's buffer, whose pixels have the same size."""
    hContext.check(hDevice)
    check_image(hContext, hImage)
    _check_type(hDevice, desc)
    _check_desc(desc)
    image, buffer = hImage.ur, hImage.buffer
    if buffer is None:
        raise make_failure("UNSUPPORTED_FEATURE", "the OpenCL driver makes no views of such images")
    sizes = desc.width, desc.height if desc.type == _2D else 1, 1
    if desc.type != hImage.kind or sizes != image.extent:
        raise make_failure("INVALID_ARGUMENT", "a view has the type and the size of its image")
    format = _find_format(hContext.ur, desc)
    if count_element_bytes(*format) != image.pixel:
        raise make_failure("UNSUPPORTED_IMAGE_FORMAT", f"a pixel has {image.pixel} bytes")
    pitch = image.query_image("ROW_PITCH") if desc.type == _2D else 0
    made = _make_image(hContext.ur, buffer, desc, format, pitch)
    return ZeImage(hContext, made, desc.type, buffer)


driver.declare(zeImageViewCreateExp=zeImageViewCreateExt)


# queries


@driver.entry
def zeImageGetProperties(hDevice: ZeDevice, desc: Any, pImageProperties: Any) -> None:
    """Say how images of a format are sampled. A chained struct asks whether there are any."""
    row = find_struct(
        pImageProperties.pNext,
        "ZE_STRUCTURE_TYPE_IMAGE_FORMAT_SUPPORT_EXT_PROPERTIES",
        "ze_image_format_support_ext_properties_t",
    )
    pImageProperties.samplerFilterFlags = 0
    try:
        _check_type(hDevice, desc)
        _find_format(zeDriverGetDefaultContext(hDevice.platform).ur, desc)
    except LevelZeroError:
        if row is None:
            raise
        row.supported = False
        return
    if row is not None:
        row.supported = True
    has_linear = desc.format.type not in _WHOLE_NUMBERS
    pImageProperties.samplerFilterFlags = _POINT | (_LINEAR if has_linear else 0)


@driver.entry
def zeImageGetAllocPropertiesExt(
    hContext: ZeContext, hImage: ZeImage, pImageAllocProperties: Any
) -> None:
    check_image(hContext, hImage)
    pImageAllocProperties.id = hImage.ur.cl


@driver.entry
def zeImageGetMemoryPropertiesExp(hImage: ZeImage, pMemoryProperties: Any) -> None:
    row, image = pMemoryProperties, hImage.ur
    row.size = image.size
    row.rowPitch = image.query_image("ROW_PITCH")
    # OpenCL says 0 for an image of one slice.
    row.slicePitch = image.query_image("SLICE_PITCH") or row.rowPitch * image.extent[1]


def check_image(context: ZeContext, image: ZeImage) -> None:
    """Raise LevelZeroError (INVALID_ARGUMENT) for an image of another context."""
    if not image.context.shares(context):
        raise make_failure("INVALID_ARGUMENT", "the image is of another context")


@driver.entry
def zeContextMakeImageResident(hContext: ZeContext, hDevice: ZeDevice, hImage: ZeImage) -> None:
    """Do nothing: an OpenCL driver keeps all memory where its device reaches it."""
    hContext.check(hDevice)
    check_image(hContext, hImage)


@driver.entry
def zeContextEvictImage(hContext: ZeContext, hDevice: ZeDevice, hImage: ZeImage) -> None:
    hContext.check(hDevice)
    check_image(hContext, hImage)


_LIMITS: Final = {
    "maxImageDims1D": ("IMAGE2D_MAX_WIDTH",),
    "maxImageDims2D": ("IMAGE2D_MAX_WIDTH", "IMAGE2D_MAX_HEIGHT"),
    "maxImageDims3D": ("IMAGE3D_MAX_WIDTH", "IMAGE3D_MAX_HEIGHT", "IMAGE3D_MAX_DEPTH"),
    "maxImageArraySlices": ("IMAGE_MAX_ARRAY_SIZE",),
    "maxSamplers": ("MAX_SAMPLERS",),
    "maxReadImageArgs": ("MAX_READ_IMAGE_ARGS",),
    "maxWriteImageArgs": ("MAX_WRITE_IMAGE_ARGS",),
}


@driver.entry
def zeDeviceGetImageProperties(hDevice: ZeDevice, pImageProperties: Any) -> None:
    """Say how large images may be: zeros for a device without images."""
    there = hDevice.has_images
    size = hDevice.query_number("CL_DEVICE_IMAGE_MAX_BUFFER_SIZE")  # pixels of at least one byte
    pImageProperties.maxImageBufferSize = size if hDevice.has_images_of_buffers else 0
    for field, names in _LIMITS.items():
        sizes = (min(hDevice.query_number(f"CL_DEVICE_{name}"), LARGEST) for name in names)
        setattr(pImageProperties, field, min(sizes) if there else 0)


@driver.kind
class ZeSampler(Object):
    """A sampler.

    Args:
        ur: the sampler of the reference adapter.
    """

    type = "ze_sampler_handle_t"

    def __init__(self, context: ZeContext, ur: URSampler) -> None:
        self.context, self.ur = context, ur


@driver.entry
def zeSamplerCreate(hContext: ZeContext, hDevice: ZeDevice, desc: Any) -> ZeSampler:
    hContext.check(hDevice)
    if not has_images(hDevice.ur):
        raise make_failure("UNSUPPORTED_FEATURE", "the device has no images")
    modes = ADDRESSING[desc.addressMode], FILTERS[desc.filterMode]
    return ZeSampler(hContext, create_sampler(hContext.ur, bool(desc.isNormalized), *modes))
