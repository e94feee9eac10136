"""Images of every type for tests: how they are made, their commands, and kernels that use them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyopencl as cl
from pyopencl import _cl

from helpers.programs import build_once

#: Four numbers of four bytes a pixel, which every driver with images has.
FORMAT: Final = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.UNSIGNED_INT32)
_WIDTH, _HEIGHT, _DEPTH, _LAYERS = 8, 4, 3, 5


@dataclass(frozen=True)
class Kind:
    """A type of image: its name in OpenCL C, its shape and layers, and its size as a region."""

    name: str
    shape: tuple[int, int, int]
    layers: int
    region: tuple[int, int, int]
    coordinates: str

    @property
    def type(self) -> Any:
        return getattr(cl.mem_object_type, self.name.removesuffix("_t").upper())

    @property
    def pixels(self) -> int:
        return int(np.prod(self.region))

    def part(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Origin and region of a part that does not begin at the first pixel."""
        origin = tuple(int(size > 1) for size in self.region)
        return origin, tuple(max(1, size - 2) for size in self.region)


_X, _XY = "(int)get_global_id(0)", "(int2)(get_global_id(0), get_global_id(1))"
_XYZ = "(int4)(get_global_id(0), get_global_id(1), get_global_id(2), 0)"
KINDS: Final = tuple(
    Kind(*row)
    for row in (
        ("image1d_t", (_WIDTH, 0, 0), 0, (_WIDTH, 1, 1), _X),
        ("image1d_buffer_t", (_WIDTH, 0, 0), 0, (_WIDTH, 1, 1), _X),
        ("image1d_array_t", (_WIDTH, 0, 0), _LAYERS, (_WIDTH, _LAYERS, 1), _XY),
        ("image2d_t", (_WIDTH, _HEIGHT, 0), 0, (_WIDTH, _HEIGHT, 1), _XY),
        ("image2d_array_t", (_WIDTH, _HEIGHT, 0), _LAYERS, (_WIDTH, _HEIGHT, _LAYERS), _XYZ),
        ("image3d_t", (_WIDTH, _HEIGHT, _DEPTH), 0, (_WIDTH, _HEIGHT, _DEPTH), _XYZ),
    )
)
IMAGE2D: Final = KINDS[3]


def numbers(kind: Kind, first: int = 0) -> np.ndarray:
    """Different numbers for each pixel of an image."""
    return np.arange(first, first + 4 * kind.pixels, dtype=np.uint32)


class BufferImage(cl.Image):
    """An image of a buffer, which it holds: Intel's driver takes it for dead without it."""

    made_from: cl.Buffer


_COPIED: Final[Any] = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR


def make(
    context: cl.Context, kind: Kind, values: np.ndarray | None = None, flags: Any = _COPIED
) -> cl.Image:
    """An image with these numbers, or zeros."""
    values = np.zeros(4 * kind.pixels, np.uint32) if values is None else values
    description = cl.ImageDescriptor()
    description.image_type, description.shape = kind.type, kind.shape
    description.array_size, description.pitches = kind.layers, (0, 0)
    description.num_mip_levels = description.num_samples = 0
    if kind.name != "image1d_buffer_t":
        description.buffer = None
        return cl.Image(context, flags, FORMAT, desc=description, hostbuf=values)
    buffer = cl.Buffer(context, flags, hostbuf=values)
    description.buffer = buffer
    image = BufferImage(context, cl.mem_flags.READ_WRITE, FORMAT, desc=description)
    image.made_from = buffer
    return image


def read(queue: cl.CommandQueue, image: cl.Image, kind: Kind) -> np.ndarray:
    """The numbers of an image, after everything that is in the queue."""
    out = np.zeros(4 * kind.pixels, np.uint32)
    _cl._enqueue_read_image(queue, image, (0, 0, 0), kind.region, out)
    return out


def kernel(context: cl.Context, kind: Kind) -> cl.Kernel:
    """It writes three times the numbers of one image to another one."""
    read_it = f"read_imageui(source, {'' if 'buffer' in kind.name else 'near, '}{kind.coordinates})"
    source = f"""kernel void triple(read_only {kind.name} source, write_only {kind.name} target,
                                   sampler_t near) {{
        write_imageui(target, {kind.coordinates}, 3 * {read_it});
    }}"""
    if kind.name == "image3d_t":
        source = f"#pragma OPENCL EXTENSION cl_khr_3d_image_writes : enable\n{source}"
    return build_once(context, source).triple


def sampler(context: cl.Context, normalized: bool = False) -> cl.Sampler:
    """One that takes the nearest pixel. The kernels here need one that is not `normalized`."""
    mode = cl.addressing_mode.CLAMP_TO_EDGE
    return cl.Sampler(context, normalized, mode, cl.filter_mode.NEAREST)


@dataclass
class Scene:
    """Two images, a buffer and host memory with different numbers, and commands on them."""

    queue: cl.CommandQueue
    kind: Kind

    def __post_init__(self) -> None:
        context, kind = self.queue.context, self.kind
        self.one, self.two = (make(context, kind, numbers(kind, first)) for first in (1, 1000))
        self.buffer_values = numbers(kind, 5000)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        self.buffer = cl.Buffer(context, flags, hostbuf=self.buffer_values)
        self.host = numbers(kind, 9000)
        self.origin, self.region = kind.part()

    def state(self) -> list[np.ndarray]:
        """All numbers, after everything that is in the queue."""
        values = np.empty_like(self.buffer_values)
        cl.enqueue_copy(self.queue, values, self.buffer)
        given = self.queue, self.one, self.kind
        return [read(*given), read(self.queue, self.two, self.kind), values, self.host.copy()]

    def copy_image(self) -> Any:
        return _cl._enqueue_copy_image(
            self.queue, self.one, self.two, (0, 0, 0), self.origin, self.region
        )

    def copy_image_to_buffer(self) -> Any:
        return _cl._enqueue_copy_image_to_buffer(
            self.queue, self.one, self.buffer, self.origin, self.region, 16
        )

    def copy_buffer_to_image(self) -> Any:
        return _cl._enqueue_copy_buffer_to_image(
            self.queue, self.buffer, self.two, 32, self.origin, self.region
        )

    def fill_image(self) -> Any:
        color = np.array([1, 2, 3, 4], np.uint32)
        return cl.enqueue_fill_image(self.queue, self.two, color, self.origin, self.region)

    def read_image(self) -> Any:
        host = self.host
        return _cl._enqueue_read_image(
            self.queue, self.one, self.origin, self.region, host, is_blocking=False
        )

    def write_image(self) -> Any:
        host = self.host
        return _cl._enqueue_write_image(
            self.queue, self.two, self.origin, self.region, host, is_blocking=False
        )


COMMANDS: Final[dict[str, Callable[[Scene], Any]]] = {
    name: getattr(Scene, name)
    for name in (
        "copy_image",
        "copy_image_to_buffer",
        "copy_buffer_to_image",
        "fill_image",
        "read_image",
        "write_image",
    )
}
