"""The bodies of cases that several files share."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

from fairlead.conformance.arrays import ints
from fairlead.conformance.checks import each, equal, rule
from fairlead.conformance.opencl.objects import CLObjects
from fairlead.conformance.threads import in_threads

#: What is wrong with a wait list of sync-points, and its number and list.
WRONG_SYNC_POINTS: Final = {
    "the list is NULL and the number is not 0": (1, None),
    "the number is 0 and the list is not NULL": (0, (ctypes.c_uint32 * 1)(0)),
    "a sync-point is not valid": (1, (ctypes.c_uint32 * 1)(0xDEAD)),
}


def each_of(names: Sequence[str], text: str) -> pytest.MarkDecorator:
    """Return a case for each function, with the same rule."""
    return pytest.mark.parametrize("name", each(names, "{}", text))


def each_wrong_sync_points(names: Sequence[str], code: str) -> pytest.MarkDecorator:
    """Return a case for each function and each of WRONG_SYNC_POINTS, which `code` answers."""
    return pytest.mark.parametrize(
        ("name", "kind"),
        [
            pytest.param(name, kind, id=f"{name}-{kind}", marks=rule(name, f"{code} if {kind}"))
            for name in names
            for kind in WRONG_SYNC_POINTS
        ],
    )


def run_in_threads(
    objects: CLObjects, work: Callable[[CLObjects, int], tuple[list[int], list[int]]]
) -> None:
    """Run `work` in 8 threads.

    Args:
        objects: has the context and the program of all threads.
        work: takes a maker of the thread's own and the thread's number. It returns the numbers
            that it found, and those that it expected.
    """

    def run(number: int) -> None:
        own = objects.new_maker()
        try:
            found, expected = work(own, number)
            equal(found, expected, f"what thread {number} found")
        finally:
            own.close()

    in_threads(8, run)


def check_rectangles(
    objects: CLObjects,
    queue: int,
    buffers: tuple[int, int],
    functions: tuple[str, str, str],
    places: tuple[Any, Any, Any],
) -> None:
    """Write a box to a buffer, copy it to another buffer, and read it from there.

    Args:
        objects: calls the functions.
        queue: an in-order queue.
        buffers: two buffers of 64 zeros, which hold 4 × 4 × 4 numbers.
        functions: write, copy, read.
        places: the region of 2 × 2 × 2 numbers, its origin (1, 1, 1), and another (2, 2, 0).
    """
    (buffer, target), (write, copy, read), (region, origin, other) = buffers, functions, places
    data, out = ints(range(64)), ints([0] * 64)
    pitches, no_events = (16, 64, 16, 64), (0, None, None)
    box = (region, *pitches)
    objects.call(write, queue, buffer, True, origin, other, *box, data, *no_events)
    objects.call(copy, queue, buffer, target, origin, other, *box, *no_events)
    objects.call(read, queue, target, True, other, origin, *box, out, *no_events)
    expected = [0] * 64
    for z, y, x in ((z, y, x) for z in range(2) for y in range(2) for x in range(2)):
        expected[16 * (z + 1) + 4 * (y + 1) + x + 1] = 16 * z + 4 * (y + 2) + x + 2
    equal(list(out), expected, "what was read")


def global_ids(dimensions: int) -> tuple[tuple[int, ...], tuple[int, ...], list[int]]:
    """Return sizes, offsets and the numbers that the kernel `ids` writes with them."""
    size, offset = (4, 2, 3)[:dimensions], (5, 6, 7)[:dimensions]
    spans = [range(o, o + s) for o, s in zip(offset, size, strict=True)]
    i, j, k = (*spans, *[range(1)] * (3 - dimensions))
    return size, offset, [a + 100 * b + 10000 * c for c in k for b in j for a in i]
