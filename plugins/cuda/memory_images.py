"""Images as memory objects: creation, queries, transfers. Each is an array of CUDA's.

A kernel takes one as a surface object, a parameter of 8 bytes. Images are on the context's only
device: a context of several has none.

Samplers only describe modes: in CUDA texture objects have these (bindless.py).
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from ...loader.base.forks import make_lock
from ...loader.base.operations import TransferCommand
from ...loader.cuda.abi import CUDA
from ..sdk.conversions import is_owned
from ..sdk.gpu.api import CopyPlace
from ..sdk.images import IMAGE_KINDS, ImageObject, declare_images, declare_samplers, read_format
from ..sdk.rules import COPY, USE
from ..sdk.transfers import declare_image_transfers
from .arrays import CuArray, ImageShape, make_copies
from .contexts import CuContext
from .core import Object, adapter, failure
from .devices import CuDevice
from .enqueue import CuEnqueue, enqueues
from .events import CuEvent

_Array: Any = CUDA.get_struct("CUDA_ARRAY3D_DESCRIPTOR")
_SURFACE: Final = CUDA["CUDA_ARRAY3D_SURFACE_LDST"]


class CuImage(ImageObject, Object):
    """An image.

    Args:
        owned: whether the array is ours.
    """

    type = "ur_mem_handle_t"

    def __init__(self, context: CuContext, array: CuArray, *, owned: bool = True) -> None:
        self.context, self.array = context, array
        self.shape, self.size = array.shape, array.shape.size
        self.kind, self.format, self.extent = self.shape
        self.pixel = self.shape.pixel
        self.owned, self._surface = owned, 0
        self._lock = make_lock()

    def close(self) -> None:
        if self._surface:
            self.array.device.ask("SurfObjectDestroy", self._surface)
        if self.owned:
            self.array.destroy()

    @property
    def address(self) -> int:
        """Return what a kernel takes: its surface object, made at first use. Raises DriverError."""
        with self._lock:
            self._surface = self._surface or self.array.make_surface()
            return self._surface

    def get_native(self) -> int:
        """Return the image's native handle, the CUarray."""
        return self.array.handle


def make_shape(pImageFormat: Any, pImageDesc: Any) -> ImageShape:
    """Return the shape that a format and a description ask for.

    Raises:
        URError: INVALID_IMAGE_FORMAT_DESCRIPTOR.
    """
    return _make_shape(read_format(pImageFormat, pImageDesc), pImageDesc)


def _make_shape(numbers: tuple[int, int], desc: Any) -> ImageShape:
    kind = IMAGE_KINDS[desc.type]
    return ImageShape(kind, numbers, kind.find_extent(desc))


def _get_only_device(context: CuContext) -> CuDevice:
    if len(context.devices) > 1:
        raise failure("UNSUPPORTED_FEATURE", "a context of several devices has no images")
    return context.device


def _create(
    context: CuContext, flags: int, numbers: tuple[int, int], desc: Any, host: int
) -> CuImage:
    shape, device = _make_shape(numbers, desc), _get_only_device(context)
    made = CuImage(context, CuArray.create(device, shape))
    if flags & (USE | COPY):
        whole, stream = shape.extent, device.clock_stream.handle
        memory = shape.make_host_place(host, whole, desc.rowPitch, desc.slicePitch)
        image = made.array.make_place((0, 0, 0), whole)
        for copy in make_copies(image, memory, shape.convert_to_bytes(whole)):
            device.call("Memcpy3DAsync", ctypes.byref(copy), stream)
        device.call("StreamSynchronize", stream)
    return made


def _take_native(
    native: int, context: CuContext, numbers: tuple[int, int], desc: Any, properties: Any
) -> CuImage:
    """Make an image of a CUarray. The program has to give its format and sizes correctly.

    HIP before 5.6 does not tell them. There the program is believed.
    """
    shape, found, device = _make_shape(numbers, desc), _Array(), _get_only_device(context)
    shape.check(device)
    if device.has("Array3DGetDescriptor"):
        device.call("Array3DGetDescriptor", ctypes.byref(found), native)
        found.Flags |= _SURFACE
    else:
        found = shape.describe()
    if bytes(found) != bytes(shape.describe()):
        raise failure("INVALID_IMAGE_FORMAT_DESCRIPTOR", "the array has another format or size")
    return CuImage(context, CuArray(device, native, shape), owned=is_owned(properties))


declare_images(adapter, _create, _take_native)


# transfers


def copy_pixels(enqueue: CuEnqueue, copies: Any, keep: Any = None) -> CuEvent | None:
    """Enqueue copies (`make_copies`) as one command."""
    return enqueue.run(
        lambda stream: [
            enqueue.call("Memcpy3DAsync", ctypes.byref(copy), stream) for copy in copies
        ],
        keep,
    )


def _run(enqueue: CuEnqueue, transfer: TransferCommand) -> CuEvent | None:
    """Enqueue a transfer (sdk/transfers.py). Returns the event, if one is wanted."""
    operands, images = transfer.operands, transfer.keep
    region, shape = operands["region"], images[0].shape
    if len({image.kind.is_lines for image in images}) > 1 and region[1:] != (1, 1):
        raise failure("INVALID_SIZE", "from lines to rows, or back, one line is copied at once")

    def make_place(side: str) -> CopyPlace:
        memory = operands[side]
        if isinstance(memory, CuImage):
            origin = operands["origin" if "origin" in operands else f"{side}_origin"]
            return memory.array.make_place(origin, region)
        return CopyPlace(memory, False, row=operands["row_pitch"], slice=operands["slice_pitch"])

    ends = make_place("target"), make_place("source")
    return copy_pixels(enqueue, make_copies(*ends, shape.convert_to_bytes(region)), images)


declare_image_transfers(enqueues, _run, lambda one, other: one is other)


@adapter.kind
class CuSampler(Object):
    """A sampler.

    Args:
        normalized: whether its coordinates are from 0 to 1.
        addressing: a ur_sampler_addressing_mode_t.
        filtering: a ur_sampler_filter_mode_t.
    """

    type = "ur_sampler_handle_t"

    def __init__(
        self, context: CuContext, normalized: bool, addressing: int, filtering: int
    ) -> None:
        self.context, self.normalized = context, normalized
        self.addressing, self.filtering = addressing, filtering


declare_samplers(adapter, CuSampler)
