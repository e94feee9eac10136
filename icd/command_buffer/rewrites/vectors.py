"""Vectors for the memory of fused kernels on GPUs: a work-item loads and stores several elements.

A GPU moves 16 bytes by one instruction. The items of a vector are calculated one after the other.
Each has zeros of its own (isolation.py), so a compiler shares nothing between them. All elements
are loaded before the first is stored. That changes nothing: no item meets what another one wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

from ...calls import query_integer
from .launches import RecordedLaunch
from .opaque import measure_kind
from .used_bytes import find_root
from .uses import Root

if TYPE_CHECKING:
    from .places import ElementPlace

#: Bytes that a GPU moves by one instruction, and the most elements of a vector.
_BYTES: Final = 16
_MOST_LANES: Final = 4
#: Work-items that a compute unit needs before vectors are faster. On an H100 they were from 1 Mi
#: floats on (3.7 µs instead of 5.0), and made no difference at 64 Ki.
_WORK_ITEMS: Final = 1024


def count_lanes(
    launches: Sequence[RecordedLaunch],
    places: Mapping[int, ElementPlace],
    device: int,
    roots: dict[int, Root | None],
) -> int:
    """Return how many items a work-item of a fused kernel takes, 1 if there can be no vectors.

    Args:
        launches: that are fused. No two of their memory arguments share bytes.
        places: where an item's element of their memory is, by the memory's handle.
        device: a handle.
        roots: of memory (`find_root`).
    """
    kinds = {one.kind for one in places.values()}
    widths = {0 if kind[-1].isdigit() else measure_kind(kind) for kind in kinds}
    if not widths or 0 in widths:  # a vector of vectors has no type
        return 1
    lanes, items = min(_MOST_LANES, _BYTES // max(widths)), launches[0].items
    if items % lanes or items < lanes * _WORK_ITEMS * _query(device, "CL_DEVICE_MAX_COMPUTE_UNITS"):
        return 1
    if _query(device, "CL_DEVICE_MEM_BASE_ADDR_ALIGN") < 8 * _BYTES:
        return 1
    used = [one for launch in launches for one in chain(*launch.memory) if one.handle in places]
    if any(
        one.stride != measure_kind(places[one.handle].kind) or one.first % (one.stride * lanes)
        for one in used
    ):
        return 1
    # a Parameter may become any memory, and memory of the program's own may begin anywhere
    given = [one for launch in launches for one in launch.arguments if one.key in places]
    if any(one.address for one in given) or any(
        find_root(one.root, roots).is_of_host for one in used
    ):
        return 1
    return lanes


def _query(device: int, name: str) -> int:
    return query_integer(device, "clGetDeviceInfo", name) or 0
