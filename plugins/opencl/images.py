"""Images of the OpenCL adapter: formats, descriptions, creation, queries and transfers; samplers.
Origins and regions are in pixels, pitches in bytes.

OpenCL leaves some refusals to drivers. They are made here, with the codes that the specification
lists. Unified Runtime has no 1D image of a buffer. A native handle of one becomes a 1D image.

A context has one cl_sampler for each description. PoCL frees a released sampler before the kernels
that use it have ended. So a cl_sampler lives as long as its context.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from ...icd.abi import OPENCL
from ...loader.base.forks import make_lock
from ...loader.base.operations import TransferCommand
from ...loader.ur.abi import UR
from ..sdk.images import (
    IMAGE_KINDS,
    ImageKind,
    ImageObject,
    declare_images,
    declare_samplers,
    make_extent,
)
from ..sdk.rectangles import Rect
from ..sdk.rules import USE
from ..sdk.transfers import declare_image_transfers
from .buffers import URMemory, convert_to_opencl_flags, query_memory, query_native_type
from .contexts import URContext, check_native
from .core import (
    CLObject,
    adapter,
    check,
    create,
    failure,
    query,
    query_number,
    retain_unless_owned,
)
from .devices import URDevice
from .enqueue import Enqueue, enqueues
from .events import UREvent
from .queues import URQueue, create_queue
from .transfers import convert_sizes

_ORDERS: Final = ("A", "R", "RG", "RA", "RGB", "RGBA", "BGRA", "ARGB", "ABGR", "INTENSITY")
_TYPES: Final = (
    *("SNORM_INT8", "SNORM_INT16", "UNORM_INT8", "UNORM_INT16"),
    *("UNORM_SHORT_565", "UNORM_SHORT_555", "SIGNED_INT8", "SIGNED_INT16", "SIGNED_INT32"),
    *("UNSIGNED_INT8", "UNSIGNED_INT16", "UNSIGNED_INT32", "HALF_FLOAT", "FLOAT"),
)
_OTHERS: Final = {
    "LUMINANCE": "LUMINANCE",
    "RX": "Rx",
    "RGX": "RGx",
    "RGBX": "RGBx",
    "SRGBA": "sRGBA",
}

#: OpenCL's numbers by Unified Runtime's.
_CL_ORDERS: Final = {
    UR[f"UR_IMAGE_CHANNEL_ORDER_{name}"]: OPENCL[f"CL_{other}"]
    for name, other in (dict(zip(_ORDERS, _ORDERS, strict=True)) | _OTHERS).items()
}
_CL_TYPES: Final = {
    UR[f"UR_IMAGE_CHANNEL_TYPE_{name}"]: OPENCL[f"CL_{name}"] for name in _TYPES
} | {UR["UR_IMAGE_CHANNEL_TYPE_INT_101010"]: OPENCL["CL_UNORM_INT_101010"]}
_UR_ORDERS: Final = {opencl: number for number, opencl in _CL_ORDERS.items()}
_UR_TYPES: Final = {opencl: number for number, opencl in _CL_TYPES.items()}


_FLAT: Final = "IMAGE2D_MAX_WIDTH", "IMAGE2D_MAX_HEIGHT"
#: The properties of devices that limit the sizes of a type of images, after CL_DEVICE_.
_LIMITS: Final = {
    "IMAGE1D": _FLAT[:1],
    "IMAGE1D_ARRAY": (_FLAT[0], "IMAGE_MAX_ARRAY_SIZE"),
    "IMAGE2D": _FLAT,
    "IMAGE2D_ARRAY": (*_FLAT, "IMAGE_MAX_ARRAY_SIZE"),
    "IMAGE3D": ("IMAGE3D_MAX_WIDTH", "IMAGE3D_MAX_HEIGHT", "IMAGE3D_MAX_DEPTH"),
}
_CL_KINDS: Final = {
    number: OPENCL[f"CL_MEM_OBJECT_{kind.name}"] for number, kind in IMAGE_KINDS.items()
}
_OF_CL: Final = {cl: number for number, cl in _CL_KINDS.items()} | {
    OPENCL["CL_MEM_OBJECT_IMAGE1D_BUFFER"]: UR["UR_MEM_TYPE_IMAGE1D"]
}
_CL_FIELDS: Final = {
    "width": "image_width",
    "height": "image_height",
    "depth": "image_depth",
    "arraySize": "image_array_size",
}


class URImage(ImageObject, URMemory):
    """A cl_mem that is an image.

    Attributes:
        format: its channel order and channel type, as Unified Runtime's numbers.
        extent: its pixels along x, y and z. The images of an array are the last dimension. It is 1
            for a dimension that the image lacks.
        pixel: bytes of a pixel.
    """

    def __init__(
        self, cl: int, context: URContext, kind: int, format: tuple[int, int], *, host: int = 0
    ) -> None:
        super().__init__(cl, context, query_memory(cl, context, "CL_MEM_SIZE"), host=host)
        self.kind, self.format = IMAGE_KINDS[kind], format
        self.pixel = self.query_image("ELEMENT_SIZE")
        sizes = (self.query_image(_CL_FIELDS[name][6:].upper()) for name in self.kind.sizes)
        self.extent = make_extent(*sizes)

    def query_image(self, name: str) -> int:
        """Return the answer of clGetImageInfo to a property without CL_IMAGE_ in its name."""
        return query_memory(self.cl, self.context, f"CL_IMAGE_{name}", "clGetImageInfo")


def has_images(device: URDevice) -> bool:
    """Return whether a device has images."""
    return bool(device.icd.info("CL_DEVICE_IMAGE_SUPPORT"))


def check_images(context: URContext) -> None:
    """Raise URError (UNSUPPORTED_FEATURE) if no device of the context has images."""
    if not any(map(has_images, context.devices)):
        raise failure("UNSUPPORTED_FEATURE", "no device of the context has images")


def make_opencl_format(order: int, channel: int) -> Any:
    """Return the cl_image_format for the order and the type of a ur_image_format_t.

    Raises:
        URError: INVALID_IMAGE_FORMAT_DESCRIPTOR if OpenCL has neither.
    """
    if order not in _CL_ORDERS or channel not in _CL_TYPES:
        raise failure("INVALID_IMAGE_FORMAT_DESCRIPTOR", "there is no such order or type")
    return OPENCL.get_struct("cl_image_format")(_CL_ORDERS[order], _CL_TYPES[channel])


def has_format(context: URContext, access: int, kind: int, format: Any) -> bool:
    """Return whether a context has images of a format.

    Args:
        access: cl_mem_flags that say what kernels do with the image, 0 for anything.
        kind: a cl_mem_object_type.
        format: a cl_image_format.
    """
    wanted = format.image_channel_order, format.image_channel_data_type
    return wanted in _list_supported(context, access or OPENCL["CL_MEM_READ_WRITE"], kind)


def _list_supported(context: URContext, flags: int, kind: int) -> Iterator[tuple[int, int]]:
    """Yield the formats that the driver has for a type of images: OpenCL's order and type."""
    ask_driver, count = context.table.clGetSupportedImageFormats, ctypes.c_uint32()
    code = ask_driver(context.cl, flags, kind, 0, None, ctypes.byref(count))
    check(code, "clGetSupportedImageFormats")
    found = (OPENCL.get_struct("cl_image_format") * count.value)()
    if count.value:
        code = ask_driver(context.cl, flags, kind, count.value, found, None)
        check(code, "clGetSupportedImageFormats")
    for each in found:
        yield each.image_channel_order, each.image_channel_data_type


def _check_size(context: URContext, kind: ImageKind, sizes: Rect) -> None:
    """Raise URError (INVALID_IMAGE_SIZE) if an image is empty, or too large for every device."""

    def fits(device: URDevice) -> bool:
        info = device.icd.info
        return has_images(device) and all(
            size <= info(f"CL_DEVICE_{limit}")
            for size, limit in zip(sizes, _LIMITS[kind.name], strict=False)
        )

    if 0 in sizes or not any(map(fits, context.devices)):
        shown = " by ".join(map(str, sizes[: len(kind.sizes)]))
        raise failure("INVALID_IMAGE_SIZE", f"no device has images of {shown} pixels")


def _describe(desc: Any, kind: ImageKind, host: int) -> Any:
    """Return a cl_image_desc with the fields that the type of images has."""
    made = OPENCL.get_struct("cl_image_desc")(image_type=_CL_KINDS[desc.type])
    for name in kind.sizes:
        setattr(made, _CL_FIELDS[name], getattr(desc, name))
    if host:
        made.image_row_pitch = desc.rowPitch
        made.image_slice_pitch = desc.slicePitch if kind.has_slices else 0
    return made


def create_image(
    context: URContext, flags: int, numbers: tuple[int, int], desc: Any, host: int
) -> URImage:
    """Create an image.

    Args:
        flags: ur_mem_flags_t.
        numbers: its channel order and channel type, as Unified Runtime's numbers.
        desc: a ur_image_desc_t.
        host: the address of host memory, or 0.

    Raises:
        URError: INVALID_IMAGE_FORMAT_DESCRIPTOR, UNSUPPORTED_FEATURE, INVALID_IMAGE_SIZE,
            UNSUPPORTED_IMAGE_FORMAT.
    """
    format = make_opencl_format(*numbers)
    check_images(context)
    kind = IMAGE_KINDS[desc.type]
    _check_size(context, kind, kind.find_extent(desc))
    bits = convert_to_opencl_flags(flags)
    access = bits & ~(OPENCL["CL_MEM_USE_HOST_PTR"] | OPENCL["CL_MEM_COPY_HOST_PTR"])
    if not has_format(context, access, _CL_KINDS[desc.type], format):
        raise failure(
            "UNSUPPORTED_IMAGE_FORMAT", "no device of the context has images of this format"
        )
    described = ctypes.byref(_describe(desc, kind, host))
    given = bits, ctypes.byref(format), described, host or None
    cl = create(context.table, "clCreateImage", context.cl, *given)
    return URImage(cl, context, desc.type, numbers, host=host if flags & USE else 0)


def _take_native(
    native: int, context: URContext, numbers: tuple[int, int], desc: Any, properties: Any
) -> URImage:
    """Make an image of a native handle. The program has to give its format and type correctly."""
    found = _OF_CL[query_native_type(native, context, _OF_CL)]
    told = query(context.table, "clGetImageInfo", native, OPENCL["CL_IMAGE_FORMAT"])
    format = OPENCL.get_struct("cl_image_format").from_buffer_copy(told)
    order, channel = format.image_channel_order, format.image_channel_data_type
    if order not in _UR_ORDERS or channel not in _UR_TYPES:
        raise failure("UNSUPPORTED_IMAGE_FORMAT", "Unified Runtime does not have its format")
    if (_UR_ORDERS[order], _UR_TYPES[channel]) != numbers or found != desc.type:
        raise failure(
            "INVALID_IMAGE_FORMAT_DESCRIPTOR", "the native image has another format or type"
        )
    retain_unless_owned(URImage, native, context.table, properties)
    host = query_memory(native, context, "CL_MEM_HOST_PTR")
    return URImage(native, context, found, numbers, host=host)


declare_images(
    adapter,
    create_image,
    _take_native,
    # A driver's images may have gaps.
    ROW_PITCH=lambda image: image.query_image("ROW_PITCH"),
    SLICE_PITCH=lambda image: image.query_image("SLICE_PITCH"),
)


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


_PROPERTIES: Final = (
    "CL_SAMPLER_NORMALIZED_COORDS",
    "CL_SAMPLER_ADDRESSING_MODE",
    "CL_SAMPLER_FILTER_MODE",
)
_ADDRESSING: Final = {
    UR[f"UR_SAMPLER_ADDRESSING_MODE_{name}"]: OPENCL[f"CL_ADDRESS_{name}"]
    for name in ("NONE", "CLAMP_TO_EDGE", "CLAMP", "REPEAT", "MIRRORED_REPEAT")
}
_FILTERS: Final = {
    UR[f"UR_SAMPLER_FILTER_MODE_{name}"]: OPENCL[f"CL_FILTER_{name}"]
    for name in ("NEAREST", "LINEAR")
}
_lock: Final = make_lock()  # for the samplers of all contexts


@adapter.kind
class URSampler(CLObject):
    """A cl_sampler.

    Args:
        cl: its handle, a reference to which is ours.
        normalized: whether its coordinates are from 0 to 1.
        addressing: a ur_sampler_addressing_mode_t.
        filtering: a ur_sampler_filter_mode_t.
    """

    type = "ur_sampler_handle_t"
    release, retain_function = "clReleaseSampler", "clRetainSampler"

    def __init__(
        self, cl: int, context: URContext, normalized: bool, addressing: int, filtering: int
    ) -> None:
        super().__init__(cl, context.table)
        self.context, self.normalized = context, normalized
        self.addressing, self.filtering = addressing, filtering

    def describe_to_c(self) -> tuple[int, int, int, int]:
        """Return what launches.c knows of the sampler."""
        return self.cl, self.context.cl, 0, 0


def create_sampler(
    context: URContext, normalized: bool, addressing: int, filtering: int
) -> URSampler:
    """Return a new sampler, by the arguments of `URSampler`. Raises URError, OpenCLError."""
    check_images(context)
    described = int(normalized), _ADDRESSING[addressing], _FILTERS[filtering]
    with _lock:
        cl = context.samplers.get(described) or _create(context, described)
        context.samplers[described] = cl
    check(context.table.clRetainSampler(cl), "clRetainSampler")
    return URSampler(cl, context, normalized, addressing, filtering)


def _create(context: URContext, described: tuple[int, ...]) -> int:
    """Return a new cl_sampler. Raises OpenCLError."""
    if context.platform.icd.version_number < (2, 0):
        return create(context.table, "clCreateSampler", context.cl, *described)
    values = zip(_PROPERTIES, described, strict=True)
    pairs = [number for name, value in values for number in (OPENCL[name], value)]
    properties = (ctypes.c_uint64 * (len(pairs) + 1))(*pairs)
    return create(context.table, "clCreateSamplerWithProperties", context.cl, properties)


declare_samplers(adapter, create_sampler)


@adapter.entry
def urSamplerCreateWithNativeHandle(
    hNativeSampler: int, hContext: URContext, pProperties: Any
) -> URSampler:
    check_native(hNativeSampler, hContext, "clGetSamplerInfo", "CL_SAMPLER_CONTEXT")
    ask = partial(query_number, hContext.table, "clGetSamplerInfo", hNativeSampler)
    normalized, cl_addressing, cl_filtering = map(ask, _PROPERTIES)
    addressing = {opencl: mode for mode, opencl in _ADDRESSING.items()}[cl_addressing]
    filtering = {opencl: mode for mode, opencl in _FILTERS.items()}[cl_filtering]
    retain_unless_owned(URSampler, hNativeSampler, hContext.table, pProperties)
    return URSampler(hNativeSampler, hContext, bool(normalized), addressing, filtering)
