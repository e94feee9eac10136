"""Copies of images: to and from host memory, and between images. Unified Runtime has no others."""

from __future__ import annotations

from typing import Any

import numpy

from .accessor import Accessor
from .errors import make_invalid_error, make_unsupported_error
from .image import Image, find_image_area
from .transfers import Transfer
from .usm import find_host_memory


def is_image_accessor(value: Any) -> bool:
    """Whether a value is an accessor of an image."""
    return isinstance(value, Accessor) and isinstance(value.buffer, Image)


def make_image_copy(source: Any, destination: Any) -> Transfer:
    """Return the command that copies the parts of two accessors of images, or such a part to memory
    or from it. Raises SYCLError (invalid, feature_not_supported)."""
    if isinstance(source, Accessor) and isinstance(destination, Accessor):
        return _make_copy_between(source, destination)
    if isinstance(source, Accessor):
        return _make_host_copy("image_read", source, destination)
    return _make_host_copy("image_write", destination, source)


def _make_copy_between(source: Accessor, destination: Accessor) -> Transfer:
    first, second = source.buffer, destination.buffer
    if not (isinstance(first, Image) and isinstance(second, Image)):
        raise make_unsupported_error(
            "Unified Runtime has no copy between an image and a buffer",
            routine="copy",
            remedy="copy through a NumPy array, or launch a kernel",
        )
    if (first.order, first.channel_type) != (second.order, second.channel_type):
        raise make_invalid_error(
            f"the images have different formats: {first!r}, {second!r}",
            routine="copy",
            remedy="launch a kernel, which converts pixels",
        )
    (start, region), (to, other) = (
        find_image_area(accessor.offset, accessor.shape) for accessor in (source, destination)
    )
    if bytes(region) != bytes(other):
        raise make_invalid_error(
            f"the parts differ in shape: {tuple(source.shape)} and {tuple(destination.shape)}",
            routine="copy",
            remedy="copy equal parts",
        )
    return Transfer("image_copy", (first, second, start, to, region))


def _make_host_copy(row: str, accessor: Accessor, memory: Any) -> Transfer:
    image = accessor.buffer
    if isinstance(memory, numpy.ndarray) and memory.dtype != image.dtype:
        raise make_invalid_error(
            f"elements of {memory.dtype} cannot be copied to or from channels of {image.dtype}",
            routine="copy",
            remedy="convert them first (array.astype)",
        )
    address, owner = find_host_memory(memory, accessor, writable=row == "image_read")
    area = find_image_area(accessor.offset, accessor.shape)
    return Transfer(row, (image, *area, 0, 0, address), owner)
