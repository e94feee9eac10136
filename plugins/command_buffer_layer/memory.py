"""Command-buffer layer: memory objects as commands use them, and the errors of ranges, rectangles
and images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...icd.abi import OPENCL
from .buffers import LayerCommandBuffer
from .entries import ask, ask_all, make_error, read_numbers

_BUFFER: Final = OPENCL["CL_MEM_OBJECT_BUFFER"]
_INFO: Final = "clGetMemObjectInfo"
#: A rectangle's origin or region.
Three = tuple[int, int, int]
#: How many dimensions of its region an image has, and whether the last one counts layers.
_DIMENSIONS: Final = {
    "IMAGE1D": ("CL_IMAGE_WIDTH",),
    "IMAGE1D_BUFFER": ("CL_IMAGE_WIDTH",),
    "IMAGE1D_ARRAY": ("CL_IMAGE_WIDTH", "CL_IMAGE_ARRAY_SIZE"),
    "IMAGE2D": ("CL_IMAGE_WIDTH", "CL_IMAGE_HEIGHT"),
    "IMAGE2D_ARRAY": ("CL_IMAGE_WIDTH", "CL_IMAGE_HEIGHT", "CL_IMAGE_ARRAY_SIZE"),
    "IMAGE3D": ("CL_IMAGE_WIDTH", "CL_IMAGE_HEIGHT", "CL_IMAGE_DEPTH"),
}
_SIZES: Final = {OPENCL[f"CL_MEM_OBJECT_{name}"]: sizes for name, sizes in _DIMENSIONS.items()}


@dataclass(frozen=True)
class LayerMemory:
    """A memory object.

    Attributes:
        type: a cl_mem_object_type.
        size: in bytes.
        parent: what it is a part of or made from, 0 for none.
        offset: where it begins in its parent, in bytes.
    """

    handle: int
    type: int
    size: int
    parent: int
    offset: int

    @property
    def sizes(self) -> Three:
        """Width, height and depth of an image in pixels, or its layers; 1 for what it lacks."""
        names = _SIZES.get(self.type, ())
        found = [
            ask(self.handle, "clGetImageInfo", name, "size_t", "CL_INVALID_MEM_OBJECT")
            for name in names
        ]
        width, height, depth = (*found, 1, 1, 1)[:3]
        return width, height, depth

    @property
    def format(self) -> tuple[int, ...]:
        """The two numbers of an image's cl_image_format."""
        return tuple(ask_all(self.handle, "clGetImageInfo", "CL_IMAGE_FORMAT", "uint32_t", 2))

    @property
    def pixel_size(self) -> int:
        """The bytes of an image's pixel."""
        name = "CL_IMAGE_ELEMENT_SIZE"
        return ask(self.handle, "clGetImageInfo", name, "size_t", "CL_INVALID_MEM_OBJECT")

    def overlaps(self, start: int, size: int, other: LayerMemory, to: int) -> bool:
        """Whether a range overlaps a range of the same size in another object."""
        roots = {self.parent or self.handle, other.parent or other.handle}
        distance = abs(self.offset + start - other.offset - to)
        return len(roots) == 1 and distance < size


def get_memory(
    buffer: LayerCommandBuffer, handle: int | None, image: bool = False, device: int = 0
) -> LayerMemory:
    """Return a memory object that a transfer uses. The command-buffer keeps it.

    Args:
        image: whether it has to be an image, or else a buffer.
        device: the device that uses it, for the alignment of sub-buffers.

    Raises:
        OpenCLError: CL_INVALID_MEM_OBJECT, CL_INVALID_CONTEXT, CL_MISALIGNED_SUB_BUFFER_OFFSET.
    """
    if not handle:
        raise make_error("CL_INVALID_MEM_OBJECT", "a memory object is NULL")
    code = "CL_INVALID_MEM_OBJECT"
    kind = ask(handle, _INFO, "CL_MEM_TYPE", "uint32_t", code)
    if (kind != _BUFFER) is not image:
        raise make_error(code, f"a memory object is {'no image' if image else 'no buffer'}")
    if ask(handle, _INFO, "CL_MEM_CONTEXT", "uintptr_t", code) != buffer.context:
        raise make_error("CL_INVALID_CONTEXT", "a memory object is of another context")
    size = ask(handle, _INFO, "CL_MEM_SIZE", "size_t", code)
    parent = ask(handle, _INFO, "CL_MEM_ASSOCIATED_MEMOBJECT", "uintptr_t", code)
    offset = 0 if image else ask(handle, _INFO, "CL_MEM_OFFSET", "size_t", code)
    if device and offset:
        buffer.get_device(device).check_alignment(offset)
    keep_memory(buffer, handle)
    return LayerMemory(handle, kind, size, parent, offset)


def keep_memory(buffer: LayerCommandBuffer, handle: int) -> None:
    """Keep a memory object alive, and before it the object that has its bytes."""
    keep_parents(buffer, handle)
    buffer.hold("MemObject", handle)


def keep_parents(buffer: LayerCommandBuffer, handle: int) -> bool:
    """Keep what a memory object is a part of or made from: drivers do not.

    Returns:
        Whether there is something.
    """
    chain: list[int] = []
    at = handle
    while at and len(chain) < 4:  # an image, of an image, of a part of a buffer
        chain.append(at)
        at = ask_all(at, _INFO, "CL_MEM_ASSOCIATED_MEMOBJECT", "uintptr_t", 1)[0]
    for one in reversed(chain[1:]):
        buffer.hold("MemObject", one)
    return len(chain) > 1


def keep_part(buffer: LayerCommandBuffer, handle: int, device: int) -> None:
    """Keep what an argument is a part of or made from, and check where it begins for a device.

    Raises:
        OpenCLError: CL_MISALIGNED_SUB_BUFFER_OFFSET.
    """
    if keep_parents(buffer, handle):
        offset = ask_all(handle, _INFO, "CL_MEM_OFFSET", "size_t", 1)[0]
        buffer.get_device(device).check_alignment(offset)


def check_range(memory: LayerMemory, offset: int, size: int) -> None:
    """Check a range of a buffer, in bytes. Raises OpenCLError (CL_INVALID_VALUE)."""
    if not size or offset + size > memory.size:
        raise make_error(
            "CL_INVALID_VALUE", f"{size} bytes from byte {offset} on of a buffer of {memory.size}"
        )


def read_three(where: int | None, what: str) -> Three:
    """Read an origin or a region. Raises OpenCLError (CL_INVALID_VALUE) if it is NULL."""
    if not where:
        raise make_error("CL_INVALID_VALUE", f"the {what} is NULL")
    x, y, z = read_numbers(where, "size_t", 3)
    return x, y, z


def read_region(where: int | None) -> Three:
    """Read a region. Raises OpenCLError (CL_INVALID_VALUE) if it is empty."""
    region = read_three(where, "region")
    if not all(region):
        raise make_error("CL_INVALID_VALUE", f"the region {region} is empty")
    return region


def check_rect(
    memory: LayerMemory, origin: Three, region: Three, row: int, slice_: int
) -> tuple[int, int]:
    """Check a rectangle of a buffer, in bytes.

    Returns:
        The row pitch and the slice pitch, with 0 replaced.

    Raises:
        OpenCLError: CL_INVALID_VALUE.
    """
    rows = row or region[0]
    slices = slice_ or rows * region[1]
    if rows < region[0] or slices < rows * region[1] or slices % rows:
        raise make_error("CL_INVALID_VALUE", f"pitches {row}, {slice_} for a region of {region}")
    last = [start + size - 1 for start, size in zip(origin, region, strict=True)]
    if last[0] + last[1] * rows + last[2] * slices >= memory.size:
        raise make_error(
            "CL_INVALID_VALUE", f"a region of {region} at {origin} of a buffer of {memory.size}"
        )
    return rows, slices


def do_rects_overlap(
    starts: Sequence[Three], region: Three, pitches: tuple[int, int], offsets: Sequence[int]
) -> bool:
    """Whether two rectangles of one buffer with the same pitches overlap.

    Args:
        pitches: the row pitch and the slice pitch.
        offsets: where the two buffers begin in a buffer that both are parts of.
    """
    row, slices = pitches
    from_, to = (
        offset + start[0] + start[1] * row + start[2] * slices
        for start, offset in zip(starts, offsets, strict=True)
    )
    shift = abs(from_ - to)
    z, rest = divmod(shift, slices)
    for layer, inside in ((z, rest), (z + 1, rest - slices)):
        if layer >= region[2]:
            continue
        y, x = divmod(inside, row)
        for line, column in ((y, x), (y + 1, x - row)):
            if abs(line) < region[1] and abs(column) < region[0]:
                return True
    return False


def check_image(memory: LayerMemory, origin: Three, region: Three) -> None:
    """Check a region of an image, in pixels. Raises OpenCLError (CL_INVALID_VALUE)."""
    sizes = memory.sizes
    if any(start + size > most for start, size, most in zip(origin, region, sizes, strict=True)):
        raise make_error(
            "CL_INVALID_VALUE", f"a region of {region} at {origin} of an image of {sizes}"
        )
