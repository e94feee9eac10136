"""Replays of one fused kernel on an NVIDIA GPU: `python -m bench.cuda_replays [FILE.json]`.

Ten operations of `pyopencl.array` become one kernel. Its replays run by CUDA, by OpenCL, and by
what `auto` takes, in the ways that programs replay: a hundred calls and a `finish`, the same of two
graphs in turns, calls that wait, and `times=100`. The last rows of each size are torch's: the same
operations by `torch.compile` in a CUDA graph, whose replays are called from Python and, where torch
says where its graph is, by a loop in C. That loop is what the driver takes at least.

Each figure is the median of 31 samples, in µs a replay. A way has its samples in a row, since the
GPU takes long to change between OpenCL and CUDA.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any, Final

from .fusion import compute

_SIZES: Final = {"1 Ki": 1 << 10, "64 Ki": 1 << 16, "1 Mi": 1 << 20, "16 Mi": 1 << 24}
_TURNS: Final = 100  # replays in a sample
_SAMPLES: Final = 31
_WARM: Final = 200  # replays after which a graph has decided how it runs


def measure(act: Callable[[], object], turns: int = _TURNS) -> float:
    """Return the median of what a turn of an action takes, in µs."""
    act()
    found: list[float] = []
    for _ in range(_SAMPLES):
        begin = time.perf_counter()
        act()
        found.append(time.perf_counter() - begin)
    return median(found) * 1e6 / turns


def measure_ours(graph: Any, queue: Any, engine: str, check: Callable[[], None]) -> dict[str, Any]:
    """Return what a replay takes by an engine, for each way of replaying."""
    os.environ["FAIRLEAD_COMMAND_BUFFER"] = engine
    found: dict[str, Any] = {}

    def ask(loop: Any, other: Any) -> None:
        for _ in range(_TURNS):
            loop.replay(queue)
        queue.finish()

    def alternate(loop: Any, other: Any) -> None:
        for _ in range(_TURNS // 2):
            loop.replay(queue)
            other.replay(queue)
        queue.finish()

    def wait(loop: Any, other: Any) -> None:
        for _ in range(_TURNS):
            loop.replay(queue, wait=True)

    def repeat(loop: Any, other: Any) -> None:
        loop.replay(queue, times=_TURNS).wait()

    ways: dict[str, Callable[[Any, Any], None]] = {
        "replays": ask,
        "in turns": alternate,
        "waited": wait,
        f"times={_TURNS}": repeat,
    }
    for name, act in ways.items():
        # graphs of its own: `auto` learns how they are used
        loop, other = graph.finalize(fuse="wait"), graph.finalize(fuse="wait")
        if not loop.fused or not other.fused:
            sys.exit(loop.explain(queue))
        for _ in range(2 * _WARM // _TURNS):
            act(loop, other)
        found[name] = measure(lambda act=act, loop=loop, other=other: act(loop, other))
        check()
        explained = loop.explain(queue)
        if engine == "cuda" and "a CUDA Graph of" not in explained:
            sys.exit(explained)
        if engine == "auto":
            found[f"{name}, taken"] = "cuda" if "a CUDA Graph of" in explained else "opencl"
    return found


def measure_torch(host: list[Any]) -> dict[str, float]:
    """Return what a replay takes by torch: called from Python, waited for, and by a loop in C."""
    torch: Any = import_module("torch")
    arrays = [torch.from_numpy(one).cuda() for one in host]
    torch.compiler.reset()
    made = torch.compile(compute)
    for _ in range(3):
        out = made(*arrays)
    graph, other = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = made(*arrays)
    with torch.cuda.graph(other):
        another = made(*arrays)

    def ask() -> None:
        for _ in range(_TURNS):
            graph.replay()
        torch.cuda.synchronize()

    def wait() -> None:
        for _ in range(_TURNS):
            graph.replay()
            torch.cuda.synchronize()

    def alternate() -> None:
        for _ in range(_TURNS // 2):
            graph.replay()
            other.replay()
        torch.cuda.synchronize()

    ask()
    found = {"replays": measure(ask), "in turns": measure(alternate), "waited": measure(wait)}
    if hasattr(graph, "raw_cuda_graph_exec"):
        launch = ctypes.CDLL("libcuda.so.1").cuGraphLaunch
        launch.argtypes = ctypes.c_void_p, ctypes.c_void_p
        executable, stream = graph.raw_cuda_graph_exec(), torch.cuda.current_stream()
        loop = make_loop()

        def run() -> None:
            loop(ctypes.cast(launch, ctypes.c_void_p), executable, stream.cuda_stream, _TURNS)
            torch.cuda.synchronize()

        found["C loop"] = measure(run)
    del out, another
    return found


_LOOP: Final = """
void loop(int (*launch)(void *, void *), void *graph, void *stream, int times) {
    while (times--)
        launch(graph, stream);
}
"""


def make_loop() -> Any:
    """Compile a loop of launches."""
    import subprocess
    from tempfile import mkdtemp

    folder = Path(mkdtemp())
    (folder / "loop.c").write_text(_LOOP, encoding="utf-8")
    command = [*os.environ.get("CC", "cc").split(), "-O2", "-shared", "-fPIC", "-o"]
    subprocess.run([*command, str(folder / "loop.so"), str(folder / "loop.c")], check=True)
    loop = ctypes.CDLL(str(folder / "loop.so")).loop
    loop.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int
    return loop


def measure_size(queue: Any, size: int) -> dict[str, Any]:
    """Return what replays on so many floats take, by who runs them."""
    import numpy as np
    import pyopencl.array as cl_array

    import fairlead

    host = list(np.random.default_rng(1).random((3, size), np.float32))
    arrays = [cl_array.to_device(queue, one) for one in host]
    with fairlead.capture(queue) as graph:
        out = compute(*arrays)
    expected = compute(*host).tobytes()

    def check() -> None:
        if out.get().tobytes() != expected:
            sys.exit("the array has other bits than NumPy's")

    found = {
        engine: measure_ours(graph, queue, engine, check) for engine in ("cuda", "auto", "replay")
    }
    found["torch"] = measure_torch(host)
    return found


def main() -> None:
    """Measure everything, print it, and write it to a file if one is named."""
    os.environ["FAIRLEAD_CUDA"] = "1"
    import pyopencl as cl

    import_module("fairlead")  # shares memory before the context is created
    nvidia = next(one for one in cl.get_platforms() if "NVIDIA" in one.name)
    device = nvidia.get_devices()[0]
    queue = cl.CommandQueue(cl.Context([device]))
    results: dict[str, Any] = {}
    for name, size in _SIZES.items():
        results[name] = measure_size(queue, size)
        print(name, json.dumps(results[name]), flush=True)
    versions = {
        "device": device.name,
        "driver": device.driver_version,
        "python": platform.python_version(),
        "torch": import_module("torch").__version__,
    }
    if len(sys.argv) > 1:
        text = json.dumps({**versions, "µs a replay": results}, indent=1, ensure_ascii=False)
        Path(sys.argv[1]).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
