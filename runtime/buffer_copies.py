"""Copies and fills of buffers, of parts of them, and of memory by address; copies of
images to and from host memory, and between images. Unified Runtime has no others.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy

from .accessor import Accessor, find_rectangle, find_span
from .commands import Command, Empty
from .errors import make_invalid_error, make_unsupported_error
from .handles import make_struct
from .image import Image, find_image_area
from .memory import Memory
from .transfers import Transfer, check_byte_count, encode_element, find_copy_row
from .usm import find_host_memory, find_pointer


def check_use(accessor: Accessor, routine: str, *, writes: bool) -> None:
    """Raise SYCLError (invalid) unless an accessor lets a command write, or read."""
    if not (accessor.writes if writes else accessor.reads):
        can, needed = ("written to", "write") if writes else ("read", "read")
        raise make_invalid_error(
            f"the accessor's mode is {accessor.mode!r}: it cannot be {can}",
            routine=routine,
            remedy=f'access(buffer, "{needed}")',
        )


def make_accessor_copy(source: Accessor, destination: Accessor) -> Transfer:
    """Return the command that copies a part of a buffer to a part of another one.

    Raises:
        SYCLError: invalid.
    """
    if source.nbytes != destination.nbytes:
        message = f"the parts differ in size: {source.nbytes} and {destination.nbytes} bytes"
        raise make_invalid_error(message, routine="copy", remedy="copy equal parts")
    (src, plain), (dst, also_plain) = find_span(source), find_span(destination)
    if plain and also_plain:
        fields: tuple[Any, ...] = (source.buffer, destination.buffer, src, dst, source.nbytes)
        return Transfer("buffer_copy", fields)
    if tuple(source.shape) != tuple(destination.shape):
        raise make_invalid_error(
            "parts that are not contiguous have to be of one shape", routine="copy"
        )
    origin, region, *pitches = find_rectangle(source)
    other_origin, _, *other_pitches = find_rectangle(destination)
    origins = origin, other_origin
    fields = source.buffer, destination.buffer, *origins, region, *pitches, *other_pitches
    return Transfer("buffer_copy_rect", fields)


def make_host_copy(row: str, accessor: Accessor, memory: Any) -> Transfer:
    """Return the command that copies a part of a buffer to memory, or memory to it.

    Args:
        row: "buffer_read" or "buffer_write".
        memory: USM, a NumPy array or an address.

    Raises:
        SYCLError: invalid.
    """
    address, owner = find_host_memory(memory, accessor, writable=row == "buffer_read")
    begin, contiguous = find_span(accessor)
    if contiguous:
        fields: tuple[Any, ...] = (accessor.buffer, begin, accessor.nbytes, address)
        return Transfer(row, fields, owner)
    origin, region, pitch, slice_pitch = find_rectangle(accessor)
    zero = make_struct("ur_rect_offset_t")
    tight = region.width, region.width * region.height
    fields = (accessor.buffer, origin, zero, region, pitch, slice_pitch, *tight, address)
    return Transfer(f"{row}_rect", fields, owner)


def make_accessor_fill(accessor: Accessor, pattern: Any) -> Transfer:
    """Return the command that fills a part of a buffer with an element.

    Raises:
        SYCLError: invalid; feature_not_supported, for an image.
    """
    buffer = accessor.buffer
    if is_image_accessor(accessor):
        raise make_unsupported_error(
            "Unified Runtime has no fill of an image",
            routine="fill",
            remedy="launch a kernel, or make the Image of an array: numpy.full(…)",
        )
    data = encode_element(pattern, buffer.dtype)
    kept = ctypes.create_string_buffer(data, len(data))
    begin, contiguous = find_span(accessor)
    if not contiguous:
        remedy = "fill rows one by one, or launch a kernel"
        raise make_invalid_error(
            "a part that is not contiguous cannot be filled", routine="fill", remedy=remedy
        )
    check_use(accessor, "fill", writes=True)
    fields = buffer, ctypes.addressof(kept), len(data), begin, accessor.nbytes
    return Transfer("buffer_fill", fields, kept)


def make_memory_copy(destination: Any, source: Any, nbytes: int | None, routine: str) -> Command:
    """Return the command that copies bytes between memory by address and PyOpenCL's objects.

    Args:
        nbytes: how many bytes; None means as many as the smaller of the two has.
        routine: named in errors.

    Raises:
        SYCLError: invalid.
    """
    to, room, owner = find_pointer(destination, writable=True, routine=routine, objects=True)
    start, there, other = find_pointer(source, routine=routine, objects=True)
    count = check_byte_count(nbytes, room, there, routine)
    row, fields = find_copy_row(to, start, count)
    return Transfer(row, fields, (owner, other)) if count else Empty()


def make_memory_fill(row: str, destination: Any, pattern: bytes, nbytes: int | None) -> Command:
    """Return the command that fills memory with a pattern.

    Args:
        row: "memset" or "usm_fill".
        destination: USM memory, or another object with memory.
        nbytes: how many bytes; None means all.

    Raises:
        SYCLError: invalid.
    """
    routine = row.removeprefix("usm_")
    if not pattern:
        raise make_invalid_error(
            "the pattern is empty", routine=routine, remedy="give an element, or bytes"
        )
    to, room, owner = find_pointer(destination, writable=True, routine=routine, objects=True)
    count = check_byte_count(nbytes, room, room, routine) // len(pattern) * len(pattern)
    kept = ctypes.create_string_buffer(pattern, len(pattern))
    fields: tuple[Any, ...] = (to, ctypes.addressof(kept), len(pattern), count)
    if isinstance(to, Memory):
        row, fields = "buffer_fill", (*fields[:3], to.offset, count)
    return Transfer(row, fields, (owner, kept)) if count else Empty()


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
