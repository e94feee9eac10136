"""What a capture costs for each node: the block, from entry to exit, and dropping the graph."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path
from statistics import median
from typing import Any

import fairlead

from .measuring import Row, Target, summary
from .work import WORK_ITEMS, Launches, make_queue


def _capture(launches: Launches) -> tuple[float, float]:
    """Return microseconds for each node: to capture it, and to drop it with its graph."""
    start = time.perf_counter_ns()
    with fairlead.capture(launches.queue) as graph:
        launches.call()
    captured = time.perf_counter_ns()
    assert len(graph) == launches.count
    del graph
    gc.collect()
    dropped = time.perf_counter_ns()
    return (captured - start) / 1000 / launches.count, (dropped - captured) / 1000 / launches.count


def _enqueue(launches: Launches) -> float:
    """Return microseconds for each PyOpenCL call outside a block.

    Only enqueuing counts; the commands are waited for afterwards.
    """
    start = time.perf_counter_ns()
    launches.call()
    taken = (time.perf_counter_ns() - start) / 1000 / launches.count
    launches.queue.finish()
    return taken


def _resident() -> int:
    """Return how many bytes of memory this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _memory(queue: Any, count: int) -> Row:
    """Measure what a launch takes in a graph, each with another number.

    Nothing was captured before it, so no memory is there already.
    """
    launches = Launches(queue, 1)
    kernel, ((a, b, _),), size = launches.typed_kernel, launches.arguments, (WORK_ITEMS,)
    gc.collect()
    before = _resident()
    with fairlead.capture(queue) as graph:
        for number in range(count):
            kernel(queue, size, size, a, b, number * 1e-6)
    assert len(graph) == count
    each = (_resident() - before) / count
    what = f"memory of a captured launch, {count:,} nodes"
    return Row(what, each, "bytes", Target("≤", 400))


def measure(quick: bool) -> list[Row]:
    """Measure graphs of several sizes in turns, each beside the same number of direct calls."""
    queue = make_queue()
    memory = _memory(queue, 100_000 if quick else 1_000_000)
    rounds_of = {100: 3, 1000: 3} if quick else {1_000: 21, 10_000: 11, 100_000: 5}
    blocks = {count: Launches(queue, count) for count in rounds_of}
    samples: dict[int, dict[str, list[float]]] = {
        count: {"capture": [], "PyOpenCL call": [], "drop": []} for count in blocks
    }
    smallest, small, large = min(blocks), *sorted(blocks)[-2:]
    for _ in range(2):
        _capture(blocks[smallest])
        _enqueue(blocks[smallest])
    for turn in range(max(rounds_of.values())):
        for count, launches in blocks.items():
            if turn < rounds_of[count]:
                captured, dropped = _capture(launches)
                for name, value in (
                    ("capture", captured),
                    ("drop", dropped),
                    ("PyOpenCL call", _enqueue(launches)),
                ):
                    samples[count][name].append(value)
    rows = [memory]
    for count, taken in samples.items():
        series = {name: summary(taken[name]) for name in ("capture", "PyOpenCL call")}
        what = f"capture, {count:,} nodes"
        rows.append(
            Row(
                what,
                series["capture"]["median"],
                "µs per node",
                Target("≤", 15),
                series,
                "µs per node",
            )
        )
    captures = {f"{count:,} nodes": samples[count]["capture"] for count in (large, small)}
    names, least = list(captures), min(map(len, captures.values()))
    what = f"a node of {large:,} ÷ one of {small:,}"
    series = {name: summary(values) for name, values in captures.items()}
    rounds = median(a / b for a, b in zip(*(captures[name][:least] for name in names), strict=True))
    value = series[names[0]]["median"] / series[names[1]]["median"]
    rows.append(Row(what, value, "×", Target("≤", 1.2), series, "µs per node", rounds))
    dropped = summary(samples[large]["drop"])
    rows.append(
        Row(
            f"dropping a graph of {large:,}",
            dropped["median"],
            "µs per node",
            None,
            {"drop": dropped},
            "µs per node",
        )
    )
    return rows
