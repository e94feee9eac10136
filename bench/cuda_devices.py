"""Several NVIDIA GPUs in one CUDA Graph: `python -m bench.cuda_devices [FILE.json]`.

1,000 launches in one chain for each GPU, against the same chains on the first GPU alone, by groups
of 256 work-items. Then copies from the first GPU to the second, and a ring of cells that exchanges
its halo. The figures are medians of 20 replays, which take turns. A replay is waited for.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

_COUNT: Final = 1000
_ITEMS: Final = 256
_GROUPS: Final = 1, 64, 256, 1024, 4096
_STEPS: Final = 100
_COPIES: Final = 10
_COPIED: Final = 1 << 26  # floats
_SOURCE: Final = """
kernel void scale(global float *y, float a, float b) {
    size_t i = get_global_id(0);
    y[i] = y[i] * a + b;
}
kernel void relax(global float *to, global const float *from) {  // a cell at each end is a halo
    size_t i = get_global_id(0) + 1;
    to[i] = from[i] * 0.5f + (from[i - 1] + from[i + 1]) * 0.25f;
}
"""


class Devices:
    """The GPUs of NVIDIA's platform in one context, and a queue on each."""

    def __init__(self) -> None:
        import pyopencl as cl

        platform = next(one for one in cl.get_platforms() if "NVIDIA" in one.name)
        self.context = cl.Context(platform.get_devices())
        self.queues = [cl.CommandQueue(self.context, one) for one in self.context.devices]
        self.program = cl.Program(self.context, _SOURCE).build()

    def buffer(self, place: int, floats: int) -> Any:
        """Make a buffer of zeros on a device."""
        import numpy as np
        import pyopencl as cl

        from fairlead.cuda_sharing import on_device

        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        with on_device(self.context.devices[place]):
            return cl.Buffer(self.context, flags, hostbuf=np.zeros(floats, np.float32))

    def capture_chains(self, places: Sequence[int], groups: int, engine: str) -> Any:
        """Capture a chain on each of some devices, and return the graph and its replay."""
        import numpy as np
        import pyopencl as cl

        import fairlead

        queues = [cl.CommandQueue(self.context, self.context.devices[place]) for place in places]
        size = groups * _ITEMS
        memory = [self.buffer(place, size) for place in places]
        kernel = cl.Kernel(self.program, "scale")
        kernel.set_scalar_arg_dtypes([None, np.float32, np.float32])
        with fairlead.capture(*queues) as graph:
            for _ in range(_COUNT // len(places)):
                for queue, y in zip(queues, memory, strict=True):
                    kernel(queue, (size,), (_ITEMS,), y, 0.5, 1)
        return finalize(graph, queues[0], engine)

    def capture_copies(self) -> Any:
        """Capture copies from the first device to the second, and return the graph's replay."""
        import pyopencl as cl

        import fairlead

        source, target = (self.buffer(place, _COPIED) for place in range(2))
        with fairlead.capture(self.queues[1]) as graph:
            for _ in range(_COPIES):
                cl.enqueue_copy(self.queues[1], target, source)
        return finalize(graph, self.queues[1], "cuda")

    def capture_ring(self, cells: int, engine: str) -> tuple[Any, Callable[[], Any]]:
        """Capture a ring of cells, a part of it on each device, which exchanges its halo.

        Returns:
            What finalize returns, and a function that returns whether the cells are right after the
                first replay.
        """
        import numpy as np
        import pyopencl as cl

        import fairlead

        count, kernel = len(self.queues), cl.Kernel(self.program, "relax")
        old = [self.buffer(place, cells + 2) for place in range(count)]
        new = [self.buffer(place, cells + 2) for place in range(count)]
        start = np.random.default_rng(1).random(count * cells, np.float32)
        for place, queue in enumerate(self.queues):
            cl.enqueue_copy(queue, old[place], start[place * cells :][:cells], dst_offset=4)
            queue.finish()
        with fairlead.capture(*self.queues) as graph:
            ended: list[Any] = [None] * count
            for _ in range(_STEPS):
                copies: list[list[Any]] = [[] for _ in range(count)]
                for place, queue in enumerate(self.queues):
                    for other, source, to in (
                        (place - 1, cells, 0),
                        ((place + 1) % count, 1, cells + 1),
                    ):
                        copy = cl.enqueue_copy(
                            queue,
                            old[place],
                            old[other],
                            src_offset=4 * source,
                            dst_offset=4 * to,
                            byte_count=4,
                            wait_for=[ended[other]] if ended[other] else None,
                        )
                        copies[place].append(copy)
                        copies[other].append(copy)
                ended = [
                    kernel(
                        queue, (cells,), (_ITEMS,), new[place], old[place], wait_for=copies[place]
                    )
                    for place, queue in enumerate(self.queues)
                ]
                old, new = new, old

        def is_right() -> bool:
            expected = start.astype(np.float64)
            for _ in range(_STEPS):
                expected = expected * 0.5 + (np.roll(expected, 1) + np.roll(expected, -1)) * 0.25
            found = np.empty(count * cells, np.float32)
            for place, queue in enumerate(self.queues):
                cl.enqueue_copy(queue, found[place * cells :][:cells], old[place], src_offset=4)
            return bool(np.allclose(found, expected, rtol=1e-5, atol=1e-6))

        return finalize(graph, self.queues[0], engine), is_right


def finalize(graph: Any, queue: Any, engine: str) -> tuple[Callable[[], Any], str]:
    """Return a function that replays a graph by an engine, and what explain says of that."""
    os.environ["FAIRLEAD_COMMAND_BUFFER"] = engine
    loop = graph.finalize()
    loop.replay(queue, wait=True)
    line = next(one for one in loop.explain(queue).splitlines() if f"  {engine}" in one)
    return lambda: loop.replay(queue, wait=True), line.strip()


def take_turns(*runs: Callable[[], Any], times: int = 20) -> list[float]:
    """Return the median of what each run takes, in µs."""
    taken: list[list[float]] = [[] for _ in runs]
    for turn in range(times + 2):
        for run, found in zip(runs, taken, strict=True):
            begin = time.perf_counter()
            run()
            if turn > 1:
                found.append((time.perf_counter() - begin) * 1e6)
    return list(map(median, taken))


def main(path: str = "") -> None:
    """Measure, print, and write a file if there is a path."""
    import fairlead.cuda_sharing as sharing

    devices, rows, speed = Devices(), dict[str, Any](), 0.0
    every = range(len(devices.queues))
    names = [device.name for device in devices.context.devices]
    version = devices.context.devices[0].driver_version
    print(f"{names}, shared: {len(sharing.SHARED.devices)}", flush=True)
    for groups in _GROUPS:
        (spread, said), (alone, _) = (
            devices.capture_chains(places, groups, "cuda") for places in (every, [0] * len(every))
        )
        driver, _ = devices.capture_chains(every, groups, "replay")
        one, other, third = take_turns(spread, alone, driver)
        rows[f"{groups} groups"] = {
            "a chain on each": one,
            "the same chains on one": other,
            "ratio": one / other,
            "a chain on each, by the driver": third,
        }
        print(f"{groups} groups", rows[f"{groups} groups"], said, flush=True)
    if len(devices.queues) > 1:
        run, said = devices.capture_copies()
        speed = _COPIES * 4 * _COPIED / take_turns(run)[0] / 1e3
        print("copies of 256 MiB, GB/s", speed, said, flush=True)
    for cells in 1 << 12, 1 << 20:
        (run, said), is_right = devices.capture_ring(cells, "cuda")
        right = is_right()
        rows[f"a ring of {cells} cells each"] = {
            "right": right,
            "step": take_turns(run)[0] / _STEPS,
        }
        print(f"ring {cells}", rows[f"a ring of {cells} cells each"], said, flush=True)
    if path:
        found = {"devices": names, "driver": version, "copies, GB/s": speed, "µs": rows}
        Path(path).write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:2])
