"""Graphs from files: what a call costs beside a replay, a task of Dask beside a plain one, and how
much faster two workers are than one."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from distributed import Client, LocalCluster

import fairlead
import fairlead.dask

from .measuring import Row, Target, in_turns, ratio, summary
from .work import device, make_queue

_ITEMS: Final = 64
_BATCH: Final = 0.05  # seconds
_TURNS: Final = 1_000_000  # of the kernel's loop, to find out how long one takes
#: All work-items are one work-group, which runs on one core.
_SOURCE: Final = """
kernel void turn(global float *x, int turns) {
    float one = x[get_global_id(0)];
    for (int i = 0; i < turns; i++) one = one * 0.9999f + 0.5f;
    x[get_global_id(0)] = one;
}
"""


def measure(quick: bool) -> list[Row]:
    """Measure calls, tasks and workers."""
    queue = make_queue()
    program = cl.Program(queue.context, _SOURCE).build()
    x: Any = cl_array.zeros(queue, _ITEMS, np.float32)
    turns, kernel = fairlead.Parameter(np.int32(1)), program.turn
    with fairlead.capture(queue) as graph:
        kernel(queue, (_ITEMS,), (_ITEMS,), x.data, turns)
    stream = io.BytesIO()
    graph.save(stream)
    stream.seek(0)
    loaded = fairlead.load(stream, device())
    rows = [_call(loaded, 5 if quick else 501)]
    batch = max(1, round(_TURNS * _BATCH / _seconds_of(loaded)))
    return [*rows, _task(graph, 20 if quick else 300), _workers(graph, batch, 4 if quick else 40)]


def _call(graph: fairlead.LoadedGraph, rounds: int) -> Row:
    loop, queue, array = graph.finalize(), graph.new_queue(), np.ones(_ITEMS, np.float32)
    samples = in_turns(
        {"call": lambda: loop(x=array), "replay": lambda: loop.replay(queue, wait=True)}, rounds
    )
    series = {name: summary(taken) for name, taken in samples.items()}
    more = series["call"]["median"] - series["replay"]["median"]
    return Row(
        "loop(x=array): more than a replay", more, "µs", Target("≤", 30), series, "µs per call"
    )


def _seconds_of(graph: fairlead.LoadedGraph) -> float:
    """How long so many turns take, at least."""
    loop, found = graph.finalize(), []
    for _ in range(3):
        start = time.perf_counter()
        loop(turns=_TURNS)
        found.append(time.perf_counter() - start)
    return min(found)


def _plain(number: int, values: dict[str, Any]) -> dict[str, Any]:
    """A task that runs no graph, with the values and the result of one that does."""
    return {"x": np.zeros(_ITEMS, np.float32), "turns": (number, values)}


def _task(graph: fairlead.CapturedGraph, count: int) -> Row:
    """The processor's time of client, scheduler and worker, which are one process here."""
    batches = [{"turns": 1 + number} for number in range(count)]

    def cost(submit: Callable[[], Any]) -> float:
        start = time.process_time()
        client.gather(submit())
        return (time.process_time() - start) * 1000 / count

    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=""
        ) as cluster,
        Client(cluster) as client,
    ):
        ways: dict[str, Callable[[], Any]] = {
            "graph": lambda: fairlead.dask.map(graph, batches, client=client),
            "plain": lambda: [
                client.submit(_plain, number, values, pure=False, resources={"fairlead": 1})
                for number, values in enumerate(batches)
            ],
        }
        cost(ways["graph"])  # which gives the worker its device
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(5):
            for name, way in ways.items():
                taken[name].append(cost(way))
    series = {name: summary(samples) for name, samples in taken.items()}
    more = series["graph"]["median"] - series["plain"]["median"]
    return Row(
        "a Dask task: more than a plain one", more, "ms", Target("≤", 2), series, "ms of CPU"
    )


def _workers(graph: fairlead.CapturedGraph, turns: int, count: int) -> Row:
    batches = [{"turns": turns}] * count
    times: dict[int, list[float]] = {1: [], 2: []}
    for workers in (*times,) * 3:
        with (
            LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address="") as cluster,
            Client(cluster) as client,
        ):
            client.wait_for_workers(workers)
            for one in client.scheduler_info(n_workers=-1)["workers"]:  # each loads the graph
                first = fairlead.dask.map(graph, batches[:1], client=client, workers=[one])
                client.gather(first)
            start = time.perf_counter()
            client.gather(fairlead.dask.map(graph, batches, client=client))
            times[workers].append((time.perf_counter() - start) / count * 1000)
    return ratio(
        f"one worker ÷ two, batches of {1000 * _BATCH:.0f} ms",
        {"one": times[1], "two": times[2]},
        "one",
        "two",
        Target("≥", 1.7),
        unit="ms per batch",
    )
