"""Branching graphs: `auto` beside every fixed schedule and engine, and beside a path.

The graphs are random layers, forks with joins, and independent chains. Each kernel is one
work-group. It adds up what the commands before it left, so that a wrong order gives a wrong result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from statistics import median
from typing import Any, Final

import numpy as np
import pyopencl as cl

import fairlead
from fairlead.icd.command_buffer.order import Order

from .measuring import Row, Target, in_turns, ratio, turns_for
from .work import device, finalize_for, make_queue

_ITEMS: Final = 64
_MANY, _FEW = 256, 64  # kernels of a graph: tiny ones, and long ones
_WARM: Final = 150  # replays after which `auto` has chosen
_LONG: Final = 25  # µs that a long kernel takes
_LEAST: Final = 20  # µs that it takes at least, or it is made longer: the machine got faster
_TRIES: Final = 3  # so often
_GAIN: Final = 0.8  # of what two cores allow: 1.6 times as fast for two chains
_SOURCE: Final = """
kernel void node(global float *x, global const int *first, global const int *before, int me,
                 int turns) {
    size_t i = get_global_id(0), n = get_global_size(0);
    float sum = me;
    for (int k = first[me]; k < first[me + 1]; k++)
        sum += x[before[k] * n + i];
    for (int t = 0; t < turns; t++)
        sum = sum * 0.75f + 1.0f;
    x[me * n + i] = sum;
}
"""
SCHEDULES: Final = ("in-order", "queues", "levels", "events")


def layered(width: int, count: int) -> list[list[int]]:
    """Return random layers: a node comes after one to three nodes of the layer before its own."""
    lot, nodes, layer = Random(width), list[list[int]](), list[int]()
    while len(nodes) < count:
        size = min(lot.randint(1, width), count - len(nodes))
        made = list(range(len(nodes), len(nodes) + size))
        nodes += [sorted({*lot.choices(layer, k=3)} if layer else ()) for _ in made]
        layer = made
    return nodes


def fork_joins(width: int, count: int) -> list[list[int]]:
    """Return forks: one node, `width` nodes after it, one after all of them, and so on."""
    nodes: list[list[int]] = [[]]
    while len(nodes) < count:
        fork = len(nodes) - 1
        nodes += [[fork] for _ in range(width)]
        nodes.append(list(range(fork + 1, fork + 1 + width)))
    return nodes


def chains(width: int, count: int) -> list[list[int]]:
    """Return `width` paths beside each other, recorded in turns."""
    return [[node - width] if node >= width else [] for node in range(count)]


SHAPES: Final[dict[str, Callable[[int, int], list[list[int]]]]] = {
    "layers": layered,
    "fork-joins": fork_joins,
    "chains": chains,
}
WIDTHS: Final = (1, 2, 4, 8, 32)


class CapturedKernels:
    """A captured graph of kernels with these predecessors, each of so many turns."""

    def __init__(self, before: Sequence[Sequence[int]], turns: int) -> None:
        self.queue, self.count = make_queue(out_of_order=True), len(before)
        context = self.queue.context
        self._program = cl.Program(context, _SOURCE).build()
        self.before, self._turns = before, np.int32(turns)
        first = np.cumsum([0, *map(len, before)], dtype=np.int32)
        listed = np.array([node for nodes in before for node in nodes] or [0], np.int32)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        self._lists = [cl.Buffer(context, flags, hostbuf=one) for one in (first, listed)]
        self._zeros = np.zeros((self.count, _ITEMS), np.float32)
        self._x = cl.Buffer(context, flags, hostbuf=self._zeros)

    def call(self) -> None:
        """Enqueue the kernels, each after those before it."""
        kernel, events = cl.Kernel(self._program, "node"), list[Any]()
        for number, before in enumerate(self.before):
            waits = [events[other] for other in before]
            arguments = self._x, *self._lists, np.int32(number), self._turns
            size = (_ITEMS,)
            events.append(kernel(self.queue, size, size, *arguments, wait_for=waits))

    def capture(self) -> Any:
        """Return the kernels as a captured graph."""
        with fairlead.capture(self.queue) as graph:
            self.call()
        return graph

    def result_of(self, action: Callable[[], object]) -> bytes:
        """Return what an action leaves in the buffer, bit for bit."""
        cl.enqueue_copy(self.queue, self._x, self._zeros)
        action()
        self.queue.finish()
        found = np.empty_like(self._zeros)
        cl.enqueue_copy(self.queue, found, self._x)
        return found.tobytes()


def _replayed(graph: CapturedKernels, loop: Any) -> Callable[[], None]:
    def run() -> None:
        loop.replay(graph.queue)
        graph.queue.finish()

    return run


def _find_turns() -> int:
    """Return how many turns make a long kernel on this device."""
    turns, count = 1 << 14, 32
    graphs = {
        "long": CapturedKernels([[]] * count, turns),
        "empty": CapturedKernels([[]] * count, 0),
    }
    actions = {
        name: _replayed(graph, graph.capture().finalize(schedule="in-order"))
        for name, graph in graphs.items()
    }
    taken = {name: min(samples) for name, samples in in_turns(actions, 31, count).items()}
    return turns_for(_LONG, turns, taken["long"] - taken["empty"])


def _loops(graph: CapturedKernels) -> dict[str, Any]:
    """Return the finalized graph by the name of each way to run it."""
    captured = graph.capture()
    fixed = {name: captured.finalize(schedule=name) for name in SCHEDULES}
    return {**fixed, **{name: finalize_for(captured, name) for name in ("direct", "auto")}}


def on_two_cores(before: Sequence[Sequence[int]]) -> float:
    """Return how many times as fast two cores can run kernels of equal length, level by level."""
    levels = Counter(Order(before, [False] * len(before)).levels)
    return len(before) / sum(-(-count // 2) for count in levels.values())


def _rows(what: str, graph: CapturedKernels, rounds: int, gain: Target | None = None) -> list[Row]:
    """Return what `auto` takes beside the best of the others, and the in-order replay beside it.

    The best one may only have had luck. So it is measured once more, beside `auto`. A replay of
    tiny kernels takes some 100 µs. Two builds by one engine differed by up to 6 % in 201 rounds.
    """
    loops = _loops(graph)
    actions = {name: _replayed(graph, loop) for name, loop in loops.items()}
    expected = graph.result_of(graph.call)
    for name, action in actions.items():
        for _ in range(_WARM if name == "auto" else 1):
            action()
        if graph.result_of(action) != expected:
            raise SystemExit(f"{what}: {name} does not compute what the PyOpenCL calls compute")
    samples = in_turns(actions, rounds // 4 + 1, graph.count)
    best = min((name for name in actions if name != "auto"), key=lambda one: median(samples[one]))
    compared = dict.fromkeys(("auto", best, "in-order"))
    samples = in_turns({name: actions[name] for name in compared}, rounds, graph.count)
    said = loops["auto"].explain(graph.queue).splitlines()[1:]
    taken = " ".join(next(line for line in said if "not chosen" not in line).split())
    note = f"best: {best}; auto: {taken}"
    first = ratio(f"{what}: auto ÷ best", samples, "auto", best, Target("≤", 1.05), note=note)
    least = min(samples["in-order"]) / min(samples["auto"])  # while both cores were free, perhaps
    note = f"two cores allow {on_two_cores(graph.before):.2f} ×; least times {least:.2f} ×"
    return [first, ratio(f"{what}: in-order ÷ auto", samples, "in-order", "auto", gain, note=note)]


def measure(quick: bool) -> list[Row]:
    """Measure every shape and width, with tiny and with long kernels."""
    widths, units = (4,) if quick else WIDTHS, device().info("CL_DEVICE_MAX_COMPUTE_UNITS")
    short_rounds, long_rounds = (3, 3) if quick else (801, 201)
    rows: list[Row] = []
    for shape, edges in SHAPES.items():
        for width in widths:
            graph = CapturedKernels(edges(width, _MANY), 1)
            rows += _rows(f"{shape} of width {width}, tiny kernels", graph, short_rounds)
    for shape, edges in SHAPES.items():
        for width in widths:
            before, what = edges(width, _FEW), f"{shape} of width {width}, {_LONG} µs kernels"
            can_gain = width > 1 and units > 1
            gain = Target("≥", round(_GAIN * on_two_cores(before), 2)) if can_gain else None
            found = list[Row]()
            for _ in range(_TRIES):
                found = _rows(what, CapturedKernels(before, _find_turns()), long_rounds, gain)
                if found[-1].series["in-order"]["median"] >= _LEAST:
                    break
            rows += found
    return rows
