"""Images as memory objects: creation, queries, transfers. Each is an array of CUDA's.

A kernel takes one as a surface object, a parameter of 8 bytes. Images are on the context's only
device: a context of several has none.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from ...loader.base.forks import make_lock
from ...loader.cuda.abi import CUDA
from ..sdk._native import ffi
from ..sdk.images import check_description, check_host_pitches, count_element_bytes, overlap
from ..sdk.rectangles import read_offset, read_region
from ..sdk.rules import COPY, USE, check_memory_flags
from .arrays import CuArray, ImageShape, make_copies
from .buffers import CuBuffer
from .contexts import CuContext
from .core import Object, adapter, failure
from .devices import CuDevice
from .enqueue import CuEnqueue, declare_enqueue, enqueues
from .events import CuEvent

_Array: Any = CUDA.get_struct("CUDA_ARRAY3D_DESCRIPTOR")
_SURFACE: Final = CUDA["CUDA_ARRAY3D_SURFACE_LDST"]


class CuImage(Object):
    """An image.

    Args:
        context: its context.
        array: its array.
        owned: whether the array is ours.
    """

    type = "ur_mem_handle_t"

    def __init__(self, context: CuContext, array: CuArray, *, owned: bool = True) -> None:
        self.context, self.array = context, array
        self.shape, self.size = array.shape, array.shape.size
        self._owned, self._surface = owned, 0
        self._lock = make_lock()

    def close(self) -> None:
        if self._surface:
            self.array.device.ask("SurfObjectDestroy", self._surface)
        if self._owned:
            self.array.destroy()

    @property
    def address(self) -> int:
        """Return what a kernel takes: its surface object, made at first use. Raises DriverError."""
        with self._lock:
            self._surface = self._surface or self.array.make_surface()
            return self._surface

    @property
    def native(self) -> int:
        """Return its native handle, the CUarray."""
        return self.array.handle


def make_shape(pImageFormat: Any, pImageDesc: Any, host: int = 0) -> ImageShape:
    """Return the shape that a format and a description ask for.

    Raises:
        URError: INVALID_IMAGE_FORMAT_DESCRIPTOR.
    """
    kind = check_description(pImageDesc, host)
    numbers = pImageFormat.channelOrder, pImageFormat.channelType
    check_host_pitches(pImageDesc, kind, count_element_bytes(*numbers))
    return ImageShape(kind, numbers, kind.find_extent(pImageDesc))


def _get_only_device(context: CuContext) -> CuDevice:
    if len(context.devices) > 1:
        raise failure("UNSUPPORTED_FEATURE", "a context of several devices has no images")
    return context.device


@adapter.entry
def urMemImageCreate(
    hContext: CuContext, flags: int, pImageFormat: Any, pImageDesc: Any, pHost: int
) -> CuImage:
    check_memory_flags(flags, pHost)
    shape = make_shape(pImageFormat, pImageDesc, pHost)
    device = _get_only_device(hContext)
    made = CuImage(hContext, CuArray.create(device, shape))
    if flags & (USE | COPY):
        whole, stream = shape.extent, device.clock_stream.handle
        host = shape.make_host_place(pHost, whole, pImageDesc.rowPitch, pImageDesc.slicePitch)
        image = made.array.make_place((0, 0, 0), whole)
        for copy in make_copies(image, host, shape.convert_to_bytes(whole)):
            device.call("Memcpy3DAsync", ctypes.byref(copy), stream)
        device.call("StreamSynchronize", stream)
    return made


@adapter.entry
def urMemImageCreateWithNativeHandle(
    hNativeMem: int, hContext: CuContext, pImageFormat: Any, pImageDesc: Any, pProperties: Any
) -> CuImage:
    """Make an image of a CUarray. The program has to give its format and sizes correctly.

    HIP before 5.6 does not tell them. There the program is believed.
    """
    if not hNativeMem:
        raise failure("INVALID_NULL_HANDLE")
    shape, found = make_shape(pImageFormat, pImageDesc), _Array()
    device = _get_only_device(hContext)
    shape.check(device)
    if device.has("Array3DGetDescriptor"):
        device.call("Array3DGetDescriptor", ctypes.byref(found), hNativeMem)
        found.Flags |= _SURFACE
    else:
        found = shape.describe()
    if bytes(found) != bytes(shape.describe()):
        raise failure("INVALID_IMAGE_FORMAT_DESCRIPTOR", "the array has another format or size")
    owned = bool(pProperties and pProperties.isNativeHandleOwned)
    return CuImage(hContext, CuArray(device, hNativeMem, shape), owned=owned)


# queries


def _get_image(memory: CuBuffer | CuImage) -> CuImage:
    if not isinstance(memory, CuImage):
        raise failure("INVALID_MEM_OBJECT", "a buffer is not an image")
    return memory


def _compute_row_pitch(shape: ImageShape) -> int:
    return shape.pixel * shape.extent[0]


def _slice_pitch(shape: ImageShape) -> int:
    rows = 1 if shape.kind.is_lines else shape.extent[1]
    return _compute_row_pitch(shape) * rows if shape.kind.has_slices else 0


#: What is said of an image, by the names of queries after UR_IMAGE_INFO_.
IMAGE_ANSWERS: Final[Mapping[str, Callable[[ImageShape], Any]]] = {
    "FORMAT": lambda shape: bytes(ffi.buffer(ffi.new("ur_image_format_t *", shape.format))),
    "ELEMENT_SIZE": lambda shape: shape.pixel,
    "ROW_PITCH": _compute_row_pitch,
    "SLICE_PITCH": _slice_pitch,
    "WIDTH": lambda shape: shape.get_field("width"),
    "HEIGHT": lambda shape: shape.get_field("height"),
    "DEPTH": lambda shape: shape.get_field("depth"),
    "ARRAY_SIZE": lambda shape: shape.get_field("arraySize"),
    "NUM_MIP_LEVELS": lambda shape: 0,
    "NUM_SAMPLES": lambda shape: 0,
}
adapter.info(
    "urMemImageGetInfo",
    {
        f"UR_IMAGE_INFO_{name}": lambda image, answer=answer: answer(_get_image(image).shape)
        for name, answer in IMAGE_ANSWERS.items()
    },
)


# transfers


def _check_images(context: CuContext, *memory: CuBuffer) -> list[CuImage]:
    images = [_get_image(one) for one in memory]
    context.check_same("an image", *images)
    return images


def copy_pixels(enqueue: CuEnqueue, copies: Any, keep: Any = None) -> CuEvent | None:
    """Enqueue copies (`make_copies`) as one command."""
    return enqueue.run(
        lambda stream: [
            enqueue.call("Memcpy3DAsync", ctypes.byref(copy), stream) for copy in copies
        ],
        keep,
    )


def _transfer(
    reads: bool,
    enqueue: CuEnqueue,
    memory: CuBuffer,
    host: int,
    origin: Any,
    region: Any,
    *pitches: int,
) -> CuEvent | None:
    """Read or write a region. `pitches` are two for host memory."""
    (image,) = _check_images(enqueue.queue.context, memory)
    size = read_region(region)
    here = image.array.make_place(read_offset(origin), size)
    there = image.shape.make_host_place(host, size, *pitches)
    ends = (there, here) if reads else (here, there)
    return copy_pixels(enqueue, make_copies(*ends, image.shape.convert_to_bytes(size)), image)


for _name, _command, _reads, _host in (
    ("urEnqueueMemImageRead", "MEM_IMAGE_READ", True, "pDst"),
    ("urEnqueueMemImageWrite", "MEM_IMAGE_WRITE", False, "pSrc"),
):
    _parameters = "hImage", _host, "origin", "region", "rowPitch", "slicePitch"
    declare_enqueue(_name, _command, partial(_transfer, _reads), *_parameters)


@enqueues("MEM_IMAGE_COPY")
def urEnqueueMemImageCopy(
    enqueue: CuEnqueue,
    hImageSrc: CuBuffer,
    hImageDst: CuBuffer,
    srcOrigin: Any,
    dstOrigin: Any,
    region: Any,
) -> CuEvent | None:
    source, target = _check_images(enqueue.queue.context, hImageSrc, hImageDst)
    if source.shape.format != target.shape.format:
        raise failure("INVALID_IMAGE_FORMAT_DESCRIPTOR", "the images differ in their formats")
    start, to, size = read_offset(srcOrigin), read_offset(dstOrigin), read_region(region)
    ends = target.array.make_place(to, size), source.array.make_place(start, size)
    if source is target and overlap(start, to, size):
        raise failure("OVERLAPPING_REGIONS", "the regions of one image overlap")
    if source.shape.kind.is_lines != target.shape.kind.is_lines and size[1:] != (1, 1):
        raise failure("INVALID_SIZE", "from lines to rows, or back, one line is copied at once")
    copies = make_copies(*ends, source.shape.convert_to_bytes(size))
    return copy_pixels(enqueue, copies, (source, target))
