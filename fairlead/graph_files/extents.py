"""How far transfers of a graph file reach into memory.

The operations are those of loader/base/operations.ini; a file calls their operands as that table
does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..loader.base.operations import HOST, IMAGE, SVM


def find_extent(
    command: Mapping[str, Any], side: str, own: Mapping[str, Any], other: Mapping[str, Any] | None
) -> tuple[int, int]:
    """Return the first byte of a memory that a transfer may use, and the one after the last.

    Args:
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
