"""The operations of a graph file: which memory each one names, and what its numbers are called.

`fl_command.n` has the numbers of a command in one row (icd/native/native.cdef.h). A file gives each
of them a name, so that it can be read without fairlead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

#: A number's place in `fl_command.n`, and how many there are; a single one is not a list in a file.
_Place = tuple[int, int]
_THREE: Final = 3


@dataclass(frozen=True)
class FileOperation:
    """What a command of a file is.

    Attributes:
        routine: the OpenCL function that enqueues it.
        source, target: the kinds of memory that it reads and writes, "" for none.
        numbers: the place of each number in `fl_command.n`, by name.
        has_pattern: whether it has a pattern or a colour.
        order: what the function takes between its queue and its wait list.
    """

    routine: str
    source: str = ""
    target: str = ""
    numbers: dict[str, _Place] = field(default_factory=dict)
    has_pattern: bool = False
    order: tuple[str, ...] = ()

    def read(self, native: Any) -> dict[str, Any]:
        """Return the numbers of a recorded command (fl_command), by name."""
        return {
            name: native.n[at] if count == 1 else list(native.n[at : at + count])
            for name, (at, count) in self.numbers.items()
        }


#: The kinds of memory that commands name. A sub-buffer is a buffer to them.
BUFFER: Final = "buffer"
IMAGE: Final = "image"
HOST: Final = "host"
SVM: Final = "svm"
_REGION: Final = {"region": (6, _THREE)}


def _make_rect_places(first: str, second: str) -> dict[str, _Place]:
    """Return the numbers of a rectangle's transfer between two memories."""
    return {
        f"{first}_origin": (0, _THREE),
        f"{second}_origin": (3, _THREE),
        **_REGION,
        f"{first}_row_pitch": (9, 1),
        f"{first}_slice_pitch": (10, 1),
        f"{second}_row_pitch": (11, 1),
        f"{second}_slice_pitch": (12, 1),
    }


_COPY: Final = {"source_offset": (0, 1), "target_offset": (1, 1), "size": (2, 1)}
_SPAN: Final = {"offset": (0, 1), "size": (1, 1)}
_IMAGE_SPAN: Final = {"origin": (0, _THREE), **_REGION}
_IMAGE_HOST: Final = {**_IMAGE_SPAN, "row_pitch": (9, 1), "slice_pitch": (10, 1)}

#: By the name that the operation has in `fl_op`. Launches and places in the order are not here.
OPERATIONS: Final[dict[str, FileOperation]] = {
    "copy": FileOperation(
        "clEnqueueCopyBuffer", BUFFER, BUFFER, _COPY, order=("source", "target", *_COPY)
    ),
    "copy_rect": FileOperation(
        "clEnqueueCopyBufferRect",
        BUFFER,
        BUFFER,
        _make_rect_places("source", "target"),
        order=("source", "target", *_make_rect_places("source", "target")),
    ),
    "fill": FileOperation(
        "clEnqueueFillBuffer", "", BUFFER, _SPAN, True, ("target", "pattern", *_SPAN)
    ),
    "read": FileOperation(
        "clEnqueueReadBuffer", BUFFER, HOST, _SPAN, order=("source", "", *_SPAN, "target")
    ),
    "write": FileOperation(
        "clEnqueueWriteBuffer", HOST, BUFFER, _SPAN, order=("target", "", *_SPAN, "source")
    ),
    "read_rect": FileOperation(
        "clEnqueueReadBufferRect",
        BUFFER,
        HOST,
        _make_rect_places("source", "target"),
        order=("source", "", *_make_rect_places("source", "target"), "target"),
    ),
    "write_rect": FileOperation(
        "clEnqueueWriteBufferRect",
        HOST,
        BUFFER,
        _make_rect_places("target", "source"),
        order=("target", "", *_make_rect_places("target", "source"), "source"),
    ),
    "copy_image": FileOperation(
        "clEnqueueCopyImage",
        IMAGE,
        IMAGE,
        {"source_origin": (0, _THREE), "target_origin": (3, _THREE), **_REGION},
        order=("source", "target", "source_origin", "target_origin", "region"),
    ),
    "copy_image_to_buffer": FileOperation(
        "clEnqueueCopyImageToBuffer",
        IMAGE,
        BUFFER,
        {"source_origin": (0, _THREE), "target_offset": (3, 1), **_REGION},
        order=("source", "target", "source_origin", "region", "target_offset"),
    ),
    "copy_buffer_to_image": FileOperation(
        "clEnqueueCopyBufferToImage",
        BUFFER,
        IMAGE,
        {"source_offset": (0, 1), "target_origin": (3, _THREE), **_REGION},
        order=("source", "target", "source_offset", "target_origin", "region"),
    ),
    "fill_image": FileOperation(
        "clEnqueueFillImage", "", IMAGE, _IMAGE_SPAN, True, ("target", "colour", *_IMAGE_SPAN)
    ),
    "read_image": FileOperation(
        "clEnqueueReadImage", IMAGE, HOST, _IMAGE_HOST, order=("source", "", *_IMAGE_HOST, "target")
    ),
    "write_image": FileOperation(
        "clEnqueueWriteImage",
        HOST,
        IMAGE,
        _IMAGE_HOST,
        order=("target", "", *_IMAGE_HOST, "source"),
    ),
    "svm_copy": FileOperation(
        "clEnqueueSVMMemcpy", SVM, SVM, {"size": (0, 1)}, order=("", "target", "source", "size")
    ),
    "svm_fill": FileOperation(
        "clEnqueueSVMMemFill", "", SVM, {"size": (1, 1)}, True, ("target", "pattern", "size")
    ),
}


def find_extent(
    command: Mapping[str, Any], side: str, own: Mapping[str, Any], other: Mapping[str, Any] | None
) -> tuple[int, int]:
    """Return the first byte of a memory that a transfer may use, and the one after the last.

    Args:
        command: of a file, one of OPERATIONS.
        side: "source" or "target".
        own: the memory on that side. Of an image the extent is all of it.
        other: the memory on the other side, None if there is none.
    """
    if own["kind"] == IMAGE:
        return 0, own["size"]
    first, region = command.get(f"{side}_start", 0), command.get("region")
    if region is None:
        if own["kind"] not in (HOST, SVM):
            first += command.get(f"{side}_offset", command.get("offset", 0))
        return first, first + command["size"]
    if f"{side}_origin" in command:
        x, y, z = command[f"{side}_origin"]
        length, row = region[0], command[f"{side}_row_pitch"] or region[0]
        slice_ = command[f"{side}_slice_pitch"] or region[1] * row
        first += z * slice_ + y * row + x
    else:
        assert other is not None  # an image
        first += command.get(f"{side}_offset", 0)
        length = region[0] * other["element_size"]
        row = command.get("row_pitch") or length
        slice_ = command.get("slice_pitch") or region[1] * row
        if other["type"] == "image1d_array":  # SPEC clEnqueueReadImage: its rows are slices
            row = command.get("slice_pitch") or row
    return first, first + (region[2] - 1) * slice_ + (region[1] - 1) * row + length
