"""What a driver overlaps in graphs whose branches wait for each other, in a C program.

The program is branches.c. It runs fork-joins and random layers, the graphs of schedules.py, in
every way that OpenCL has to order them. A program that waits at each join needs no events. So no
schedule of a graph can overlap more than the best of these. Last comes what one event between two
in-order queues costs: a path that changes the queue at every kernel. Each result is checked.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from random import Random
from statistics import median
from typing import Any, Final

from fairlead.icd.command_buffer.order import Order, spread_over_queues

from .measuring import Row, ratio, summary, turns_for
from .overlap import compiled_for_opencl
from .schedules import SHAPES, on_two_cores

_LONG: Final = 25  # µs that a kernel takes
_COUNT: Final = 64  # kernels of a graph, at least
_WIDTHS: Final = (2, 4, 8, 32)
_PLAIN: Final = "one in-order queue"
_EVENTS: Final = "two in-order queues, events"


@cache
def program() -> Any:
    """Return branches.c, compiled, with this process's device."""
    library = compiled_for_opencl("branches.c")
    library.way_name.restype, library.run.restype = ctypes.c_char_p, ctypes.c_double
    return library


def ways() -> dict[str, int]:
    """Return the numbers of the ways to run a graph, by their names."""
    return {program().way_name(n).decode(): n for n in range(program().way_count())}


class KernelOrder:
    """Kernels with these predecessors, and which of two queues each is on."""

    def __init__(self, before: Sequence[Sequence[int]], queue_of: Sequence[int]) -> None:
        first = [sum(map(len, before[:node])) for node in range(len(before) + 1)]
        lists = first, [node for nodes in before for node in nodes], queue_of
        self._lists = [(ctypes.c_uint32 * max(1, len(one)))(*one) for one in lists]
        self._count = len(before)

    def run(self, way: str, turns: int) -> float:
        """Return the microseconds of a kernel with so many turns of its loop."""
        taken = program().run(ways()[way], self._count, *self._lists, turns)
        if taken < 0:
            raise SystemExit(f"{way}: a call failed, or the order was not kept")
        return taken


def spread_graph(before: Sequence[Sequence[int]]) -> KernelOrder:
    """Return a graph on the queues that the schedule `queues` of a captured graph would take."""
    return KernelOrder(before, spread_over_queues(Order(before, [False] * len(before)), (0, 1)))


def path() -> KernelOrder:
    """Return kernels one after the other that change the queue each time."""
    before = [[node - 1] if node else [] for node in range(_COUNT)]
    return KernelOrder(before, [node % 2 for node in range(_COUNT)])


def _turns() -> int:
    """Return how many turns make a kernel of 25 µs."""
    many, graph = 1 << 14, path()
    empty, long = (min(graph.run(_PLAIN, n) for _ in range(31)) for n in (0, many))
    return turns_for(_LONG, many, long - empty)


def _samples(
    graph: KernelOrder, names: Sequence[str], turns: int, rounds: int
) -> dict[str, list[float]]:
    """Return the microseconds of a kernel in each way, measured in turns."""
    samples: dict[str, list[float]] = {name: [] for name in names}
    lot, order = Random(1), list(names)
    for _ in range(rounds):
        lot.shuffle(order)
        for name in order:
            samples[name].append(graph.run(name, turns))
    return samples


def _event_row(kind: str, turns: int, rounds: int) -> Row:
    """Return what an event between two in-order queues adds to a kernel."""
    samples = _samples(path(), (_PLAIN, _EVENTS), turns, rounds)
    cost = [two - one for two, one in zip(samples[_EVENTS], samples[_PLAIN], strict=True)]
    what = f"an event between two in-order queues, {kind} kernels"
    series = {name: summary(taken) for name, taken in samples.items()}
    return Row(what, median(cost), "µs", series=series, series_unit="µs per command")


def measure(quick: bool) -> list[Row]:
    """Measure each way to run a graph beside one in-order queue, and the cost of an event."""
    rounds, turns, rows = 3 if quick else 21, _turns(), list[Row]()
    for shape in ("fork-joins", "layers"):
        for width in _WIDTHS[:1] if quick else _WIDTHS:
            before = SHAPES[shape](width, _COUNT)
            samples = _samples(spread_graph(before), list(ways()), turns, rounds)
            best = min(samples, key=lambda name: median(samples[name]))
            for name in list(samples)[1:]:
                note = f"two cores allow {on_two_cores(before):.2f} ×"
                note += ", the best of them" * (name == best)
                what = f"{shape} of width {width}: {_PLAIN} ÷ {name}"
                rows.append(ratio(what, samples, _PLAIN, name, note=note))
    rows += [_event_row("tiny", 0, rounds), _event_row("25 µs", turns, rounds)]
    return rows
