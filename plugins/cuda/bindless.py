"""Bindless images: arrays, and the texture and surface objects that kernels take as numbers."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from ...loader.base.forks import make_lock
from ...loader.cuda.abi import CUDA
from ...loader.ur.abi import UR, URError
from ..sdk.answers import list_encoders
from ..sdk.gpu.api import CopyPlace
from ..sdk.images import IMAGE_ANSWERS, IMAGE_KINDS
from ..sdk.rectangles import Rect, read_offset, read_region
from .allocations import find_foreign
from .arrays import CuArray, make_copies
from .contexts import CuContext
from .core import adapter, failure
from .devices import CuDevice
from .enqueue import CuEnqueue, enqueues
from .events import CuEvent
from .memory_images import copy_pixels, make_shape
from .transfers import is_on_device

_Texture: Any = CUDA.get_struct("CUDA_TEXTURE_DESC")
_INTEGERS, _NORMALIZED = CUDA["CU_TRSF_READ_AS_INTEGER"], CUDA["CU_TRSF_NORMALIZED_COORDINATES"]
_ADDRESSING: Final = {
    UR[f"UR_SAMPLER_ADDRESSING_MODE_{name}"]: CUDA[f"CU_TR_ADDRESS_MODE_{other}"]
    for name, other in {
        "NONE": "CLAMP",
        "CLAMP_TO_EDGE": "CLAMP",
        "CLAMP": "BORDER",
        "REPEAT": "WRAP",
        "MIRRORED_REPEAT": "MIRROR",
    }.items()
}
_FILTERS: Final = {
    UR[f"UR_SAMPLER_FILTER_MODE_{name}"]: CUDA[f"CU_TR_FILTER_MODE_{other}"]
    for name, other in {"NEAREST": "POINT", "LINEAR": "LINEAR"}.items()
}
_MEM_TO_IMAGE, _IMAGE_TO_MEM, _IMAGE_TO_IMAGE = (
    UR[f"UR_EXP_IMAGE_COPY_INPUT_TYPES_{name}"]
    for name in ("MEM_TO_IMAGE", "IMAGE_TO_MEM", "IMAGE_TO_IMAGE")
)

_ENCODERS: Final = list_encoders("ur_image_info_t")

_lock: Final = make_lock()
#: The arrays that programs have allocated, by their handles.
_arrays: Final[dict[int, CuArray]] = {}


def _get_array(handle: int) -> CuArray:
    """Return an array by its handle. Raises URError (INVALID_VALUE) if there is none."""
    with _lock:
        found = _arrays.get(handle)
    if found is None:
        raise failure("INVALID_VALUE", "no image memory has this handle")
    return found


@adapter.entry
def urBindlessImagesImageAllocateExp(
    hContext: CuContext, hDevice: CuDevice, pImageFormat: Any, pImageDesc: Any
) -> int:
    made = CuArray.create(hDevice, make_shape(pImageFormat, pImageDesc))
    with _lock:
        _arrays[made.handle] = made
    return made.handle


@adapter.entry
def urBindlessImagesImageFreeExp(hContext: CuContext, hDevice: CuDevice, hImageMem: int) -> None:
    found = _get_array(hImageMem)
    with _lock:  # before the driver may give the handle to another array
        _arrays.pop(hImageMem, None)
    found.destroy()


def _check_array(handle: int, pImageFormat: Any, pImageDesc: Any) -> CuArray:
    """Return an array. Raises URError if it is described wrongly."""
    shape, found = make_shape(pImageFormat, pImageDesc), _get_array(handle)
    if shape != found.shape:
        raise failure("INVALID_IMAGE_FORMAT_DESCRIPTOR", "the image memory has another shape")
    return found


@adapter.entry
def urBindlessImagesUnsampledImageCreateExp(
    hContext: CuContext, hDevice: CuDevice, hImageMem: int, pImageFormat: Any, pImageDesc: Any
) -> int:
    """Make a surface object."""
    return _check_array(hImageMem, pImageFormat, pImageDesc).make_surface()


@adapter.entry
def urBindlessImagesSampledImageCreateExp(
    hContext: CuContext,
    hDevice: CuDevice,
    hImageMem: int,
    pImageFormat: Any,
    pImageDesc: Any,
    pSamplerDesc: Any,
) -> int:
    """Make a texture object."""
    how = pSamplerDesc
    array = _check_array(hImageMem, pImageFormat, pImageDesc)
    texture = _Texture(filterMode=_FILTERS[how.filterMode])
    texture.addressMode[:] = [_ADDRESSING[how.addressingMode]] * 3
    flags = _NORMALIZED * bool(how.normalizedCoords) | _INTEGERS * array.shape.is_integer
    texture.flags = flags
    given = ctypes.byref(array.make_resource()), ctypes.byref(texture), None
    return hDevice.make("TexObjectCreate", *given)


@adapter.entry
def urBindlessImagesUnsampledImageHandleDestroyExp(
    hContext: CuContext, hDevice: CuDevice, hImage: int
) -> None:
    hDevice.call("SurfObjectDestroy", hImage)


@adapter.entry
def urBindlessImagesSampledImageHandleDestroyExp(
    hContext: CuContext, hDevice: CuDevice, hImage: int
) -> None:
    hDevice.call("TexObjectDestroy", hImage)


@enqueues("MEM_IMAGE_COPY")
def urBindlessImagesImageCopyExp(
    enqueue: CuEnqueue,
    pSrc: int,
    pDst: int,
    pSrcImageDesc: Any,
    pDstImageDesc: Any,
    pSrcImageFormat: Any,
    pDstImageFormat: Any,
    pCopyRegion: Any,
    imageCopyFlags: int,
    imageCopyInputTypes: int,
) -> CuEvent | None:
    """Copy between memory, of the host or a device, and image memory. Regions are in pixels."""
    if pSrcImageDesc.type not in IMAGE_KINDS or pDstImageDesc.type not in IMAGE_KINDS:
        raise failure("INVALID_IMAGE_FORMAT_DESCRIPTOR", "there is no such type of images")
    kind, size = imageCopyInputTypes, read_region(pCopyRegion.copyExtent)
    start, to = read_offset(pCopyRegion.srcOffset), read_offset(pCopyRegion.dstOffset)
    if kind not in (_MEM_TO_IMAGE, _IMAGE_TO_MEM, _IMAGE_TO_IMAGE):
        raise failure("UNSUPPORTED_FEATURE", "copies from memory to memory are those of USM")
    one = _get_array(pSrc if kind != _MEM_TO_IMAGE else pDst)
    shape = one.shape
    if kind == _IMAGE_TO_IMAGE:
        other = _get_array(pDst)
        ends = other.make_place(to, size), one.make_place(start, size)
    elif kind == _IMAGE_TO_MEM:
        ends = _make_place(enqueue, one, pDst, to, size, pDstImageDesc), one.make_place(start, size)
    else:
        ends = one.make_place(to, size), _make_place(enqueue, one, pSrc, start, size, pSrcImageDesc)
    return copy_pixels(enqueue, make_copies(*ends, shape.convert_to_bytes(size)))


def _make_place(
    enqueue: CuEnqueue, array: CuArray, address: int, origin: Rect, region: Rect, desc: Any
) -> CopyPlace:
    """Return the end of a copy that is memory, with the pitches of its description."""
    shape, context = array.shape, enqueue.queue.context
    found = context.allocations.find(address) or find_foreign(context, address)
    row = desc.rowPitch or desc.width * shape.pixel
    rows = 1 if shape.kind.is_lines else max(desc.height, 1)
    slice_ = (desc.slicePitch or row * rows) if shape.kind.has_slices else 0
    x, y, z = shape.convert_to_bytes(origin)
    made = shape.make_host_place(address + x + y * row + z * slice_, region, row, slice_)
    return made._replace(on_device=is_on_device(found))


@adapter.entry
def urBindlessImagesImageGetInfoExp(
    hContext: CuContext, hImageMem: int, propName: int, pPropValue: int
) -> int:
    """Write an answer, for which the program has room, and return its bytes."""
    name = UR.groups["ur_image_info_t"][propName].removeprefix("UR_IMAGE_INFO_")
    data = _ENCODERS[propName](IMAGE_ANSWERS[name](_get_array(hImageMem).shape), id)
    if pPropValue:
        ctypes.memmove(pPropValue, data, len(data))
    return len(data)


_OPAQUE: Final = UR["UR_EXP_IMAGE_MEM_TYPE_OPAQUE_HANDLE"]


def _supports(
    hContext: CuContext,
    hDevice: CuDevice,
    pImageDesc: Any,
    pImageFormat: Any,
    imageMemHandleType: int,
) -> bool:
    """Return whether a device has such images. USM is not one."""
    try:
        make_shape(pImageFormat, pImageDesc).check(hDevice)
    except URError:
        return False
    return imageMemHandleType == _OPAQUE


adapter.declare(
    urBindlessImagesGetImageMemoryHandleTypeSupportExp=_supports,
    urBindlessImagesGetImageUnsampledHandleSupportExp=_supports,
    urBindlessImagesGetImageSampledHandleSupportExp=_supports,
)
