"""An enqueue of a command-buffer through the layer, beside a replay of the same captured launches.

Both run in one child process, in turns, and by the same engine. The layer has to be named before
the process loads OpenCL. The command-buffer is enqueued in a loop in C (c_loop.c), the graph in one
in Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from .measuring import Row, Samples, Target, in_turns, ratio

_LAUNCHES: Final = 1000
_ROUNDS: Final = 100
_ENQUEUES: Final = 10  # in a round
_SOURCE: Final = "kernel void add(global int *a, int n) { a[get_global_id(0)] += n; }"
_SIZE: Final = 64  # work-items of a launch, one work-group


def measure(quick: bool) -> list[Row]:
    """Take the measure."""
    from fairlead.plugins import command_buffer_layer

    environ = {**os.environ, "OPENCL_LAYERS": str(command_buffer_layer.find_library())}
    rounds = str(5 if quick else _ROUNDS)
    done = subprocess.run(
        [sys.executable, "-m", __name__, rounds],
        env=environ,
        cwd=Path(__file__).parents[1],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    samples: Samples = json.loads(done.stdout.splitlines()[-1])
    what = f"command-buffer layer, {_LAUNCHES} launches"
    return [ratio(what, samples, "layer", "replay", Target("≤", 1.02))]


def _child(rounds: int) -> Samples:
    """Measure both in this process."""
    import fairlead.preload  # noqa: I001  before PyOpenCL
    import ctypes

    import numpy as np
    import pyopencl as cl

    import fairlead
    from fairlead.icd.abi import OPENCL

    from .work import c_loop

    (device,) = cl.get_platforms()[0].get_devices()[:1]
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    add = cl.Program(context, _SOURCE).build().add
    memory = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4 * _SIZE)
    loader = ctypes.CDLL("libOpenCL.so.1")
    ask = loader.clGetExtensionFunctionAddressForPlatform
    ask.restype, ask.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)

    def function(name: str) -> Any:
        found = ask(device.platform.int_ptr, name.encode())
        return OPENCL.functions[name].prototype(found)

    def check(code: int) -> None:
        if code:
            raise SystemExit(f"the layer answers {code}")

    code = ctypes.c_int32()
    queues, size = (ctypes.c_void_p * 1)(queue.int_ptr), (ctypes.c_size_t * 1)(_SIZE)
    made = function("clCreateCommandBufferKHR")(1, queues, None, ctypes.addressof(code))
    check(code.value)
    record = function("clCommandNDRangeKernelKHR")
    enqueue = ask(device.platform.int_ptr, b"clEnqueueCommandBufferKHR")
    numbers = [np.int32(number) for number in range(_LAUNCHES)]
    for number in numbers:
        add.set_args(memory, number)
        none = (0, None, None, None)
        check(record(made, None, None, add.int_ptr, 1, None, size, size, *none))
    check(function("clFinalizeCommandBufferKHR")(made))
    with fairlead.capture(queue) as graph:
        for number in numbers:
            add(queue, (_SIZE,), (_SIZE,), memory, number)
    loop = graph.finalize()

    enqueue_in_c, in_c = ctypes.c_void_p(enqueue), c_loop().enqueue_and_wait
    objects = ctypes.c_void_p(made), ctypes.c_void_p(queue.int_ptr), ctypes.c_size_t(_ENQUEUES)

    def layer() -> None:
        check(in_c(enqueue_in_c, loader.clFinish, *objects))

    def replay() -> None:
        for _ in range(_ENQUEUES):
            loop.replay(queue)
            queue.finish()

    actions = {"layer": layer, "replay": replay}
    in_turns(actions, 5)  # engines are tried meanwhile
    return in_turns(actions, rounds, _LAUNCHES * _ENQUEUES)


if __name__ == "__main__":
    print(json.dumps(_child(int(sys.argv[1]))))
