"""Graphs on an NVIDIA GPU beside torch, cupy and cuda.core: `python -m bench.cuda_graphs [FILE]`.

Each library makes the graph of 1,000 launches in a chain, of 1,000 numbers each, in the way that is
fastest there. All make `y[i] += a * x[i]`; torch has an operator for it, the others have a kernel.
`fairlead.graph` runs on the adapter for CUDA. Captured PyOpenCL code runs on the engine `cuda`.
All actions of a line run in turns. A figure is the median. A library that is not installed has no
figures. Libraries that cannot update a graph capture it anew: that is their line then. The update
of all gives every launch another factor.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from itertools import cycle
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final, NamedTuple, Protocol

_NODES: Final = 1000
_ITEMS: Final = 1000
_ROUNDS: Final = 15
_OPENCL: Final = (
    "kernel void axpy(global float *y, global const float *x, float a) "
    "{ size_t i = get_global_id(0); y[i] += a * x[i]; }"
)
_CUDA: Final = (
    'extern "C" __global__ void axpy(float *y, const float *x, float a) '
    "{ unsigned i = blockIdx.x * blockDim.x + threadIdx.x; if (i < 1000) y[i] += a * x[i]; }"
)


class Library(Protocol):
    """One library's graph of the same launches.

    Attributes:
        name: what the lines call it.
        finalizes: whether making and finalizing are two steps.

    `build` makes a graph with a factor. `prepare` makes what can be updated.
    """

    name: str
    finalizes: bool

    def build(self, value: float = 1.0) -> Any: ...
    def finalize(self, graph: Any) -> Any: ...
    def prepare(self, graph: Any) -> Any: ...
    def launch(self, executable: Any) -> None: ...
    def wait(self) -> None: ...
    def update_one(self, executable: Any, value: float) -> None: ...
    def update_all(self, executable: Any, graph: Any) -> None: ...
    def result(self) -> Any: ...


class _Made(NamedTuple):
    """A graph or an executable graph, the parameter of its first node, and that node."""

    what: Any
    parameter: Any
    node: Any


class _Fairlead:
    """`fairlead.graph` on the adapter for CUDA."""

    name, finalizes = "fairlead.graph", True

    def __init__(self) -> None:
        import numpy

        from fairlead.graph import CommandGraph, DynamicParameter
        from fairlead.runtime import Program, Queue, devices, malloc_device

        self.numpy, self.graph, self.parameter = numpy, CommandGraph, DynamicParameter
        device = next(one for one in devices() if one.platform.backend == "cuda")
        self.queue = Queue(device, in_order=True)
        self.kernel = Program(self.queue.context, _OPENCL).kernel("axpy")
        self.y, self.x = (malloc_device(_ITEMS, numpy.float32, self.queue) for _ in range(2))
        self.queue.memset(self.y, 0).wait()
        self.queue.memcpy(self.x, numpy.ones(_ITEMS, numpy.float32)).wait()

    def build(self, value: float = 1.0) -> Any:
        graph, one = self.graph(self.queue), self.numpy.float32(value)
        first = self.parameter(graph, one)
        node = before = graph.add(
            lambda h: h.parallel_for(_ITEMS, self.kernel, self.y, self.x, first)
        )
        for _ in range(_NODES - 1):
            before = graph.add(
                lambda h: h.parallel_for(_ITEMS, self.kernel, self.y, self.x, one),
                depends_on=before,
            )
        return _Made(graph, first, node)

    def finalize(self, graph: Any) -> Any:
        return graph._replace(what=graph.what.finalize())

    def prepare(self, graph: Any) -> Any:
        return graph._replace(what=graph.what.finalize(updatable=True))

    def launch(self, executable: Any) -> None:
        self.queue.graph(executable.what)

    def wait(self) -> None:
        self.queue.wait()

    def update_one(self, executable: Any, value: float) -> None:
        executable.parameter.update(self.numpy.float32(value))
        executable.what.update(executable.node)

    def update_all(self, executable: Any, graph: Any) -> None:
        executable.what.update(graph.what)

    def result(self) -> Any:
        found = self.numpy.empty(_ITEMS, self.numpy.float32)
        self.queue.memcpy(found, self.y).wait()
        return found


class _Plain:
    """A library whose graphs can all be updated, or none."""

    def prepare(self, graph: Any) -> Any:
        return self.finalize(graph)

    def finalize(self, graph: Any) -> Any:
        raise NotImplementedError


class _Captured(_Plain):
    """Captured PyOpenCL code on the engine `cuda`."""

    name, finalizes = "captured PyOpenCL", True

    def __init__(self) -> None:
        import numpy
        import pyopencl

        import fairlead

        found = [one for one in fairlead.platforms() if "NVIDIA" in one.name]
        if not found:
            raise ImportError("NVIDIA's OpenCL is not there")
        import_module("fairlead.cuda_sharing")
        self.fairlead, self.numpy = fairlead, numpy
        context = pyopencl.Context([found[0].devices[0].to_pyopencl()])
        self.queue, flags = pyopencl.CommandQueue(context), pyopencl.mem_flags.READ_WRITE
        self.kernel = pyopencl.Program(context, _OPENCL).build().axpy
        self.kernel.set_scalar_arg_dtypes([None, None, numpy.float32])
        self.y, self.x = (pyopencl.Buffer(context, flags, 4 * _ITEMS) for _ in range(2))
        for memory, value in ((self.y, 0), (self.x, 1)):
            pyopencl.enqueue_copy(self.queue, memory, numpy.full(_ITEMS, value, numpy.float32))

    def build(self, value: float = 1.0) -> Any:
        with self.fairlead.capture(self.queue) as graph:
            for _ in range(_NODES):
                self.kernel(self.queue, (_ITEMS,), None, self.y, self.x, value)
        return graph

    def finalize(self, graph: Any) -> Any:
        return self._checked(graph.finalize())

    def prepare(self, graph: Any) -> Any:
        loop = self._checked(graph.finalize(updatable=True))
        self.node = graph.nodes[0]
        return loop

    def _checked(self, loop: Any) -> Any:
        if "a CUDA Graph of" not in loop.explain(self.queue):
            sys.exit(loop.explain(self.queue))
        return loop

    def launch(self, executable: Any) -> None:
        executable.replay(self.queue)

    def wait(self) -> None:
        self.queue.finish()

    def update_one(self, executable: Any, value: float) -> None:
        executable.set(self.node, 2, self.numpy.float32(value))

    def update_all(self, executable: Any, graph: Any) -> None:
        executable.update(graph)

    def result(self) -> Any:
        import pyopencl

        found = self.numpy.empty(_ITEMS, self.numpy.float32)
        pyopencl.enqueue_copy(self.queue, found, self.y)
        return found


class _Torch(_Plain):
    """`torch.cuda.graph`."""

    name, finalizes = "torch", True

    def __init__(self) -> None:
        self.torch: Any = import_module("torch")
        self.y = self.torch.zeros(_ITEMS, device="cuda")
        self.x = self.torch.ones(_ITEMS, device="cuda")
        self.torch.add(self.y, self.x, alpha=0.0, out=self.y)

    def build(self, value: float = 1.0) -> Any:
        graph = self.torch.cuda.CUDAGraph(keep_graph=True)
        with self.torch.cuda.graph(graph):
            for _ in range(_NODES):
                self.torch.add(self.y, self.x, alpha=value, out=self.y)
        return graph

    def finalize(self, graph: Any) -> Any:
        graph.instantiate()
        return graph

    def launch(self, executable: Any) -> None:
        executable.replay()

    def wait(self) -> None:
        self.torch.cuda.synchronize()

    def update_one(self, executable: Any, value: float) -> None:
        self.finalize(self.build())

    def update_all(self, executable: Any, graph: Any) -> None:
        self.finalize(self.build())

    def result(self) -> Any:
        return self.y.cpu().numpy()


class _Cupy(_Plain):
    """cupy's capture of a stream, which instantiates at its end."""

    name, finalizes = "cupy", False

    def __init__(self) -> None:
        self.cupy: Any = import_module("cupy")
        self.stream = self.cupy.cuda.Stream(non_blocking=True)
        self.kernel = self.cupy.RawKernel(_CUDA, "axpy")
        with self.stream:
            self.y = self.cupy.zeros(_ITEMS, self.cupy.float32)
            self.x = self.cupy.ones(_ITEMS, self.cupy.float32)
            self.kernel((4,), (256,), (self.y, self.x, self.cupy.float32(0)))
        self.wait()

    def build(self, value: float = 1.0) -> Any:
        one, kernel = self.cupy.float32(value), self.kernel
        with self.stream:
            self.stream.begin_capture()
            for _ in range(_NODES):
                kernel((4,), (256,), (self.y, self.x, one))
            return self.stream.end_capture()

    def finalize(self, graph: Any) -> Any:
        return graph

    def launch(self, executable: Any) -> None:
        executable.launch(self.stream)

    def wait(self) -> None:
        self.stream.synchronize()

    def update_one(self, executable: Any, value: float) -> None:
        self.build()

    def update_all(self, executable: Any, graph: Any) -> None:
        self.build()

    def result(self) -> Any:
        return self.cupy.asnumpy(self.y)


class _CudaCore(_Plain):
    """NVIDIA's cuda.core, by capture of a stream, its faster way, and updates of whole graphs."""

    name, finalizes = "cuda.core", True

    def __init__(self) -> None:
        import numpy

        core: Any = import_module("cuda.core")
        if not hasattr(core, "Device"):
            core = import_module("cuda.core.experimental")
        self.core, self.numpy = core, numpy
        device = core.Device(0)
        device.set_current()
        self.stream = device.create_stream()
        arch = "sm_" + "".join(map(str, device.compute_capability))
        program = core.Program(_CUDA, code_type="c++", options=core.ProgramOptions(arch=arch))
        self.kernel = program.compile("cubin").get_kernel("axpy")
        self.config = core.LaunchConfig(grid=4, block=256)
        self.y, self.x = (device.allocate(4 * _ITEMS, stream=self.stream) for _ in range(2))
        self.driver: Any = import_module("cuda.bindings.driver")
        self.stream.sync()
        for memory, value in ((self.x, 1), (self.y, 0)):
            numbers = numpy.full(_ITEMS, value, numpy.float32)
            self.driver.cuMemcpyHtoD(int(memory.handle), numbers.ctypes.data, numbers.nbytes)

    def build(self, value: float = 1.0) -> Any:
        builder = self.stream.create_graph_builder()
        builder.begin_building()
        launch, one = self.core.launch, self.numpy.float32(value)
        y, x, kernel, config = self.y, self.x, self.kernel, self.config
        for _ in range(_NODES):
            launch(builder, config, kernel, y, x, one)
        builder.end_building()
        return builder

    def finalize(self, graph: Any) -> Any:
        return graph.complete()

    def launch(self, executable: Any) -> None:
        executable.launch(self.stream)

    def wait(self) -> None:
        self.stream.sync()

    def update_one(self, executable: Any, value: float) -> None:
        executable.update(self.build(value))

    def update_all(self, executable: Any, graph: Any) -> None:
        executable.update(graph)

    def result(self) -> Any:
        found = self.numpy.empty(_ITEMS, self.numpy.float32)
        self.driver.cuMemcpyDtoH(found.ctypes.data, int(self.y.handle), found.nbytes)
        return found


def _turns(actions: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median of each action's runs, in µs. The actions of a round come in any order."""
    names, lot, taken = list(actions), Random(1), {name: [] for name in actions}
    for turn in range(rounds + 2):
        lot.shuffle(names)
        for name in names:
            begin = time.perf_counter()
            kept = actions[name]()
            end = time.perf_counter()
            del kept
            if turn > 1:
                taken[name].append((end - begin) * 1e6)
    return {name: median(found) for name, found in taken.items()}


def _installed() -> list[Library]:
    found: list[Library] = []
    for kind in (_Fairlead, _Captured, _Torch, _Cupy, _CudaCore):
        try:
            found.append(kind())
        except ImportError as missing:
            print(f"{kind.name}: {missing}", file=sys.stderr)
    return found


def _check(one: Library, executable: Any) -> None:
    """Refuse figures of a graph that computes something else."""
    before = one.result()[0]
    one.launch(executable)
    one.wait()
    if one.result()[0] - before != _NODES:
        sys.exit(f"{one.name}: {one.result()[0]} after {before}")


def measure(libraries: list[Library]) -> dict[str, dict[str, float]]:
    """Return the lines, each with the µs of every library."""
    graphs = {one.name: one.build() for one in libraries}
    ready = {one.name: one.finalize(graphs[one.name]) for one in libraries}
    for one in libraries:
        _check(one, ready[one.name])
    changed = {one.name: one.prepare(graphs[one.name]) for one in libraries}
    others = {one.name: cycle((one.build(2.0), graphs[one.name])) for one in libraries}
    two_steps = [one for one in libraries if one.finalizes]

    def whole(one: Library) -> Any:
        return one.finalize(one.build())

    def launched(one: Library) -> None:
        one.launch(ready[one.name])
        one.wait()

    lines: dict[str, tuple[list[Library], Callable[[Library], object]]] = {
        "build": (two_steps, lambda one: one.build()),
        "finalize": (two_steps, lambda one: one.finalize(graphs[one.name])),
        "finalize for updates": (two_steps, lambda one: one.prepare(graphs[one.name])),
        "build and finalize": (libraries, whole),
        "launch and wait": (libraries, launched),
        "update of one launch": (libraries, lambda one: one.update_one(changed[one.name], 1.0)),
        "update of all": (
            libraries,
            lambda one: one.update_all(changed[one.name], next(others[one.name])),
        ),
    }
    found: dict[str, dict[str, float]] = {}
    for line, (those, action) in lines.items():
        actions = {one.name: lambda one=one, action=action: action(one) for one in those}
        found[line] = _turns(actions, _ROUNDS)
        print(line, {name: round(value, 1) for name, value in found[line].items()}, flush=True)
    for one in libraries:
        _check(one, one.finalize(one.build()))
    return found


def main() -> None:
    """Measure, print the lines, and write a file if one is named."""
    # Captured code needs the adapter for OpenCL, for updates of single launches.
    names = "libur_adapter_fairlead_cuda.so.0", "libur_adapter_fairlead.so.0"
    adapters = (str(Path(__file__).parents[1] / "plugins" / name) for name in names)
    os.environ.setdefault("UR_ADAPTERS_FORCE_LOAD", ",".join(adapters))
    os.environ["FAIRLEAD_COMMAND_BUFFER"] = "cuda"
    libraries = _installed()
    import fairlead

    packages = {"torch": "torch", "cupy": "cupy-cuda13x", "cuda.core": "cuda-core"}
    found = {
        "device": fairlead.cuda().devices[0].name,
        "cuda": "{}.{}".format(*fairlead.cuda().version),
        "python": platform.python_version(),
        "versions": {
            one.name: version(packages[one.name]) for one in libraries if one.name in packages
        },
        "µs": measure(libraries),
    }
    if len(sys.argv) > 1:
        text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
        Path(sys.argv[1]).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
