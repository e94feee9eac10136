"""Partitions of command graphs: microseconds for each node, by the graph's shape and size.

It is measured once for the machine. Every node of a random graph comes after two of the 100 nodes
before it, and one in five is a host task. There "seed" is invalid, so both policies are paid for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from fairlead.graph.partition import partition

from .measuring import Row, Target, in_turns, summary

_SIZES = (1_000, 10_000, 100_000)

#: Which nodes a node comes after.
_SHAPES: dict[str, Callable[[int, int, Random], Sequence[int]]] = {
    "a path of kernels": lambda node, size, lot: range(node)[-1:],
    "a path, every tenth node a host task": lambda node, size, lot: range(node)[-1:],
    "one node, many after it, one after all": lambda node, size, lot: (
        range(1, node) if node == size - 1 else range(node)[:1]
    ),
    "a random graph, every fifth node a host task": lambda node, size, lot: sorted(
        {*lot.choices(range(node)[-100:], k=2)} if node else ()
    ),
}
_HOST_EVERY = {
    "a path, every tenth node a host task": 10,
    "a random graph, every fifth node a host task": 5,
}


def measure(quick: bool) -> list[Row]:
    """Return a row for each shape: microseconds a node of the largest graph, beside the smaller
    ones."""
    samples = {size: _of_size(size, quick) for size in (_SIZES[:1] if quick else _SIZES)}
    rows = []
    for shape in _SHAPES:
        series = {f"{size:,} nodes": summary(taken[shape]) for size, taken in samples.items()}
        value = [*series.values()][-1]["median"]
        rows.append(
            Row(f"partitions of {shape}", value, "µs", Target("≤", 5), series, "µs per node")
        )
    return rows


def _of_size(size: int, quick: bool) -> dict[str, list[float]]:
    actions = {shape: _action(shape, size) for shape in _SHAPES}
    return in_turns(actions, 3 if quick else 9, size)


def _action(shape: str, size: int) -> Callable[[], object]:
    lot, every = Random(1), _HOST_EVERY.get(shape, size + 1)
    predecessors = [list(_SHAPES[shape](node, size, lot)) for node in range(size)]
    successors: list[list[int]] = [[] for _ in range(size)]
    for node, before in enumerate(predecessors):
        for earlier in before:
            successors[earlier].append(node)
    host = [node % every == every - 1 for node in range(size)]
    return lambda: partition(successors, predecessors, host=host)
