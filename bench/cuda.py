"""The engine `cuda` on an NVIDIA GPU: `python -m bench.cuda [FILE.json]`.

Each figure is the best of several runs, after a warm-up. A replay is waited for unless the line
says otherwise. The C loop is the engine `replay`, which calls the driver's own enqueue functions.
Rows are printed as they come. All of it takes a minute and a half at most. Where torch is installed
a row compares with `torch.cuda.graph`.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

_COUNT: Final = 1000
_OPENCL: Final = "FAIRLEAD_BENCH_OPENCL"


def best(run: Callable[[], object], times: int = 20) -> float:
    """Return the shortest of several runs, in µs."""
    shortest = float("inf")
    for _ in range(times):
        begin = time.perf_counter()
        run()
        shortest = min(shortest, time.perf_counter() - begin)
    return shortest * 1e6


def replays(queue: Any, body: Callable[[], object], times: int = 20) -> dict[str, float]:
    """Return what a replay of a body takes by each engine, in µs, and what explain says."""
    import fairlead

    with fairlead.capture(queue) as graph:
        body()
    found: dict[str, float] = {}
    for engine in ("replay", "cuda", "auto"):
        os.environ["FAIRLEAD_COMMAND_BUFFER"] = engine
        loop = graph.finalize()
        for _ in range(3):
            loop.replay(queue, wait=True)
        found[engine] = best(lambda loop=loop: loop.replay(queue, wait=True), times)
        if engine == "cuda":
            if "a CUDA Graph of" not in loop.explain(queue):
                sys.exit(loop.explain(queue))
            found["cuda, not waited for"] = best(
                lambda loop=loop: (loop.replay(queue), queue.finish()), times
            )
    with none_early(queue):
        os.environ["FAIRLEAD_COMMAND_BUFFER"] = "cuda"
        loop = graph.finalize()
        loop.replay(queue, wait=True)
        found["cuda, none starts early"] = best(lambda: loop.replay(queue, wait=True), times)
    found["auto ÷ the better engine"] = found["auto"] / min(found["replay"], found["cuda"])
    return found


@contextmanager
def none_early(queue: Any) -> Iterator[None]:
    """Let no kernel of graphs that are built in a block start before the one before it ends."""
    from fairlead.icd.cuda_sharing import find_shared_device

    device = find_shared_device(queue.device.int_ptr)
    if device is None:
        sys.exit("the memory is not shared")
    before, device.early_threads = device.early_threads, 0
    yield
    device.early_threads = before


def chain(queue: Any, count: int) -> Callable[[], None]:
    """Return a body of so many calls of one ElementwiseKernel."""
    import numpy as np
    import pyopencl.array as cl_array
    from pyopencl.elementwise import ElementwiseKernel

    x = cl_array.to_device(queue, np.linspace(0, 1, 1000).astype(np.float32))
    y = cl_array.zeros(queue, 1000, np.float32)
    kernel = ElementwiseKernel(
        queue.context, "float *y, float *x, float a", "y[i] = y[i] * 0.5f + a * x[i]"
    )

    def body() -> None:
        for number in range(count):
            kernel(y, x, np.float32(number % 7), queue=queue)

    body()
    queue.finish()
    return body


def expressions(queue: Any) -> Callable[[], None]:
    """Return a body of array expressions, one kernel each."""
    import numpy as np
    import pyopencl.array as cl_array

    x, y = (cl_array.to_device(queue, np.ones(1000, np.float32)) for _ in range(2))

    def body() -> None:
        nonlocal x
        for _ in range(_COUNT // 2):
            x += y
            x *= 0.5

    body()
    queue.finish()
    return body


def chains(queue: Any, width: int) -> Callable[[], None]:
    """Return a body of independent chains, on an out-of-order queue."""
    import numpy as np
    import pyopencl as cl

    source = "kernel void add(global float *y, float a) { y[get_global_id(0)] += a; }"
    kernel = cl.Program(queue.context, source).build().add
    buffers = [cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4000) for _ in range(width)]

    def body() -> None:
        last: list[Any] = [None] * width
        for number in range(_COUNT):
            place = number % width
            waits = [last[place]] if last[place] else None
            event = kernel(queue, (1000,), None, buffers[place], np.float32(1), wait_for=waits)
            last[place] = event

    return body


def parameter(queue: Any) -> dict[str, float]:
    """Return what a replay takes before which a Parameter of 1,000 launches changes, in µs."""
    import numpy as np
    import pyopencl as cl

    import fairlead

    source = "kernel void add(global float *y, float a) { y[get_global_id(0)] += a; }"
    kernel = cl.Program(queue.context, source).build().add
    y = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4000)
    by = fairlead.Parameter(np.float32(1), name="by")
    with fairlead.capture(queue) as graph:
        for _ in range(_COUNT):
            kernel(queue, (1000,), None, y, by)
    os.environ["FAIRLEAD_COMMAND_BUFFER"] = "cuda"
    loop = graph.finalize()
    loop.replay(queue, wait=True)
    plain = best(lambda: loop.replay(queue, wait=True))
    values = iter(range(1_000_000))

    def changed() -> None:
        loop.set(by=float(next(values)))
        loop.replay(queue, wait=True)

    found = {"unchanged": plain, "changed": best(changed)}
    return {**found, "changed ÷ unchanged": found["changed"] / plain}


def until(queue: Any) -> dict[str, float]:
    """Return what a turn of a loop takes that looks at a flag after each turn, in µs."""
    import pyopencl as cl

    import fairlead

    source = "kernel void count(global int *n, global int *flag) { n[0]++; flag[0] = 0; }"
    kernel = cl.Program(queue.context, source).build().count
    n, flag = (cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4) for _ in range(2))
    with fairlead.capture(queue) as graph:
        kernel(queue, (1,), None, n, flag)
    found: dict[str, float] = {}
    for engine in ("replay", "cuda"):
        os.environ["FAIRLEAD_COMMAND_BUFFER"] = engine
        loop = graph.finalize()
        loop.replay(queue, wait=True)

        def turns(loop: Any = loop) -> None:
            loop.replay(queue, times=_COUNT, until=flag)

        turns()
        found[engine] = best(turns, 5) / _COUNT
    return found


def beside_torch(queue: Any) -> dict[str, float]:
    """Return what 1,000 kernels of 1,000 numbers take here and by torch.cuda.graph, in µs.

    Without torch there are no rows of it.
    """
    import fairlead

    body, found = chain(queue, _COUNT), dict[str, float]()
    os.environ["FAIRLEAD_COMMAND_BUFFER"] = "cuda"

    def captured() -> Any:
        with fairlead.capture(queue) as graph:
            body()
        return graph

    graph = captured()
    found["fairlead: capture"] = best(captured, 5)
    found["fairlead: instantiate"] = best(lambda: graph.finalize().explain(queue), 5)
    loop = graph.finalize()
    loop.replay(queue, wait=True)
    found["fairlead: launch and wait"] = best(lambda: loop.replay(queue, wait=True))
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        return found
    y = torch.zeros(1000, device="cuda")

    def make() -> Any:
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(graph):
            for number in range(_COUNT):
                y.add_(number % 7)
        return graph

    torch.add(y, 1)
    theirs = make()
    found["torch: capture"] = best(make, 5)
    found["torch: instantiate"] = best(theirs.instantiate, 5)

    def launch() -> None:
        theirs.replay()
        torch.cuda.synchronize()

    launch()
    found["torch: launch and wait"] = best(launch)
    ratio = found["torch: launch and wait"] / found["fairlead: launch and wait"]
    return {**found, "torch ÷ fairlead, launch and wait": ratio}


def interleaved(queue: Any) -> dict[str, float]:
    """Return what a small replay and a launch of OpenCL's take in turns, in µs."""
    import fairlead

    body, one = chain(queue, 10), chain(queue, 1)
    with fairlead.capture(queue) as graph:
        body()
    loops: dict[str, Any] = {}
    found: dict[str, float] = {}
    for turn in range(5):  # the engines take turns, because speeds drift
        for engine in ("replay", "cuda", "auto"):
            os.environ["FAIRLEAD_COMMAND_BUFFER"] = engine
            loop = loops.setdefault(engine, graph.finalize())

            def both(loop: Any = loop) -> None:
                one()
                loop.replay(queue, wait=True)

            took = best(both)
            if turn:  # in the first one `auto` learns
                found[engine] = min(took, found.get(engine, took))
    better = min(found["replay"], found["cuda"])
    return {**found, "auto ÷ the better engine": found["auto"] / better}


def choice(queue: Any) -> dict[str, float]:
    """Return what a graph of 10 takes that runs only if a flag is set, in µs.

    `if_else` looks at the flag by CUDA. Beside it PyOpenCL reads the flag.
    """
    import numpy as np
    import pyopencl as cl

    import fairlead
    from fairlead.runtime.interop import context_of

    word = np.ones(1, np.uint32)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    flag = cl.Buffer(queue.context, flags, hostbuf=word)
    os.environ["FAIRLEAD_COMMAND_BUFFER"] = "cuda"
    body = chain(queue, 10)
    with fairlead.capture(queue) as graph:
        body()
    loop = graph.finalize()
    loop.replay(queue, wait=True)
    segment: Any = loop.find_executable(context_of(queue.context)).only

    def decided() -> None:
        place = queue.int_ptr, 1, (flag.int_ptr, 0)
        segment.run_until_here(*place, is_set=False, looks_first=True)

    def host() -> None:
        cl.enqueue_copy(queue, word, flag)
        if word[0]:
            loop.replay(queue, wait=True)

    found: dict[str, float] = {}
    for what in ("set", "not set"):
        found[f"if_else, {what}"] = best(decided)
        found[f"PyOpenCL reads the flag, {what}"] = best(host)
        cl.enqueue_copy(queue, flag, np.zeros(1, np.uint32))
    return found


def opencl(queue: Any) -> dict[str, float]:
    """Return what OpenCL's own calls take, with or without sharing."""
    import pyopencl as cl

    import fairlead

    context, flags = queue.context, cl.mem_flags.READ_WRITE
    kept: list[Any] = []

    def create() -> None:
        kept.extend(cl.Buffer(context, flags, 256) for _ in range(_COUNT))

    size = 1 << 30
    source, target = cl.Buffer(context, flags, size), cl.Buffer(context, flags, size)
    cl.enqueue_copy(queue, target, source)
    queue.finish()

    def copy() -> None:
        cl.enqueue_copy(queue, target, source)
        queue.finish()

    body = chain(queue, _COUNT)
    os.environ["FAIRLEAD_COMMAND_BUFFER"] = "replay"
    with fairlead.capture(queue) as graph:
        body()
    loop = graph.finalize()
    found = {
        "a small buffer, creation": best(create, 5) / _COUNT,
        "copy of 1 GiB": best(copy, 10),
        "1,000 calls of PyOpenCL": best(lambda: (body(), queue.finish()), 5),
        "1,000 enqueues from C": best(lambda: loop.replay(queue, wait=True), 10),
    }
    kept.clear()
    return found


def _queue(out_of_order: bool = False) -> Any:
    import pyopencl as cl

    import fairlead

    device = next(one for one in fairlead.platforms() if "NVIDIA" in one.name).devices[0]
    context = cl.Context([device.to_pyopencl()])
    if not out_of_order:
        return cl.CommandQueue(context)
    return cl.CommandQueue(
        context, properties=cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    )


def in_process(sharing: str) -> dict[str, float]:
    """Return `opencl` of a process of its own; `sharing` is its FAIRLEAD_CUDA."""
    command = [sys.executable, "-m", "bench.cuda"]
    environment = {**os.environ, _OPENCL: "1", "FAIRLEAD_CUDA": sharing}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def beside_sharing(rounds: int = 5) -> dict[str, dict[str, float]]:
    """Return what OpenCL's calls take without and with sharing: the best of processes in turns."""
    found: dict[str, dict[str, float]] = {"0": {}, "1": {}}
    for _ in range(rounds):
        for sharing, row in found.items():
            for what, value in in_process(sharing).items():
                row[what] = min(value, row.get(what, value))
    off, on = found.values()
    ratios = {what: on[what] / off[what] for what in off}
    return {"OpenCL, not shared": off, "OpenCL, shared": on, "OpenCL, shared ÷ not shared": ratios}


def main() -> None:
    """Measure, print a table, and write a file if one is named."""
    if os.environ.get(_OPENCL):
        print(json.dumps(opencl(_queue())))
        return
    rows: dict[str, dict[str, float]] = {}

    def add(name: str, row: dict[str, float]) -> None:
        rows[name] = row
        print(name, {what: round(value, 2) for what, value in row.items()}, flush=True)

    for name, row in beside_sharing().items():
        add(name, row)
    import fairlead
    import fairlead.cuda_sharing

    queue = _queue()
    device = queue.device
    for name, count in (("chain of 1,000 calls", _COUNT), ("chain of 10 calls", 10)):
        body = chain(queue, count)
        calls = best(lambda body=body: (body(), queue.finish()), 10)
        add(name, {"PyOpenCL": calls, **replays(queue, body)})
    body = expressions(queue)
    calls = best(lambda: (body(), queue.finish()), 10)
    add("1,000 array expressions", {"PyOpenCL": calls, **replays(queue, body)})
    free = _queue(out_of_order=True)
    for width in (1, 4, 8, 32):
        add(f"1,000 launches in {width} chains", replays(free, chains(free, width)))
    add("a Parameter of 1,000 launches", parameter(queue))
    add("a turn of a loop until a flag is set", until(queue))
    add("a launch of OpenCL's between replays of 10", interleaved(queue))
    add("a choice", choice(queue))
    add("beside torch.cuda.graph", beside_torch(queue))
    found = {
        "device": device.name,
        "driver": device.driver_version,
        "cuda": "{}.{}".format(*fairlead.cuda().version),
        "python": platform.python_version(),
        "µs": rows,
    }
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(
            json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
