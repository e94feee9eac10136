"""Several devices of one context in one CUDA Graph.

Each program runs in a process of its own: on PoCL with four devices and the fake CUDA driver, and
on NVIDIA's GPUs where there are two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest
from helpers.cuda import SOURCE
from helpers.cuda_children import SHARING, environment
from helpers.support import RunPython

__all__ = ["environment"]  # a fixture
pytestmark = pytest.mark.slow

#: What `SHARING` has, on NVIDIA's driver.
_ON_GPUS: Final = """
import gc, os, sys
import numpy as np, pyopencl as cl
import fairlead, fairlead.cuda_sharing
from fairlead.icd import cuda_sharing
from fairlead.icd._native import ffi, lib
from fairlead.icd.drivers import platforms
devices = next(one for one in platforms() if "NVIDIA" in one.name).devices
if len(devices) < int(sys.argv[1]):
    print("too few")
    sys.exit()
SIZE, READ_WRITE = 64, cl.mem_flags.READ_WRITE
def buffer(value, context):
    host = np.full(SIZE, value, np.int32)
    return cl.Buffer(context, READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=host)
def values(queue, buffer):
    host = np.empty(SIZE, np.int32)
    cl.enqueue_copy(queue, host, buffer)
    return sorted(set(host.tolist()))
"""
#: The devices' queues, and buffers that are a device's.
_DEVICES: Final = f"""
from contextlib import suppress
from fairlead.cuda_sharing import on_device
opencl = [one.to_pyopencl() for one in devices[:int(sys.argv[1])]]
context = cl.Context(opencl)
queues = [cl.CommandQueue(context, one) for one in opencl]
program = cl.Program(context, {SOURCE!r}).build()
COUNT = len(queues)
def on(place, value=0):
    with on_device(opencl[place]):
        return buffer(value, context)
def scale(place, y, factor, summand, **how):
    kernel = cl.Kernel(program, "scale")
    kernel.set_scalar_arg_dtypes([None, np.int32, np.int32])
    return kernel(queues[place], (SIZE,), None, y, factor, summand, **how)
def total(place, to, source, **how):
    return cl.Kernel(program, "total")(queues[place], (SIZE,), None, to, source, **how)
def read(place, y):
    host = np.empty(SIZE, np.int32)
    cl.enqueue_copy(queues[place], host, y)
    return host
def line(loop):
    return next(one for one in loop.explain(queues[0]).splitlines() if "  cuda" in one)
"""


@pytest.fixture(params=["fake", pytest.param("gpu", marks=pytest.mark.driver("nvidia"))])
def prelude(
    request: pytest.FixtureRequest, environment: dict[str, str]
) -> tuple[str, Mapping[str, str]]:
    """What a program begins with, and its variables."""
    if request.param == "gpu":
        return f"{_ON_GPUS}{_DEVICES}", {"FAIRLEAD_COMMAND_BUFFER": "cuda"}
    return f"{SHARING}{_DEVICES}", environment


def _run(
    run_python: RunPython, prelude: tuple[str, Mapping[str, str]], code: str, count: int = 2
) -> list[str]:
    """Return the lines that a program on so many devices prints."""
    text, env = prelude
    fakes = {"FAKE_CUDA_DEVICES": f"{count}", "POCL_DEVICES": " ".join(["pthread"] * count)}
    on_fake = "LD_LIBRARY_PATH" in env
    done = run_python(f"{text}{code}", f"{count}", env={**env, **(fakes if on_fake else {})})
    assert "warning" not in done.err and "Traceback" not in done.err, done.err
    if done.out == "too few\n":
        pytest.skip(f"needs {count} GPUs")
    return done.out.splitlines()


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_chain_on_each_device(
    run_python: RunPython, prelude: tuple[str, Mapping[str, str]], count: int
) -> None:
    code = """
numbers = [on(place, place) for place in range(COUNT)]
with fairlead.capture(*queues) as graph:
    for turn in range(5):
        for place, y in enumerate(numbers):
            scale(place, y, 2, turn)
loop = graph.finalize()
for queue in queues:
    loop.replay(queue, wait=True)
loop.replay(queues[-1], times=2).wait()
expected = list(range(COUNT))
for turn in [*range(5)] * (COUNT + 2):
    expected = [2 * one + turn - (1 << 32) * (2 * one + turn >= 1 << 31) for one in expected]
print(all(read(place, y).tolist() == [expected[place]] * SIZE for place, y in enumerate(numbers)))
print(line(loop).split(";")[0].strip())
"""
    right, line = _run(run_python, prelude, code, count)
    assert right == "True"
    assert f"a CUDA Graph of {5 * count} nodes in {count} chains on {count} devices" in line


@pytest.mark.parametrize("count", [2, 4])
def test_kernels_read_memory_of_other_devices_in_their_order(
    run_python: RunPython, prelude: tuple[str, Mapping[str, str]], count: int
) -> None:
    """A wrong order gives other numbers. Each kernel reads what another device has written."""
    code = """
numbers, expected = [on(place, place + 1) for place in range(COUNT)], [*range(1, COUNT + 1)]
event = None
with fairlead.capture(*queues) as graph:
    for turn in range(3 * COUNT):
        place, other = turn % COUNT, (turn - 1) % COUNT
        event = total(place, numbers[place], numbers[other], wait_for=[event] if event else None)
loop = graph.finalize()
for replay in range(2):
    loop.replay(queues[0], wait=True)
    for turn in range(3 * COUNT):
        place, other = turn % COUNT, (turn - 1) % COUNT
        expected[place] = expected[place] * 3 + expected[other]
print(all(read(place, y).tolist() == [expected[place]] * SIZE for place, y in enumerate(numbers)))
print(f"{3 * COUNT} nodes" in line(loop), f"on {COUNT} devices" in line(loop))
"""
    assert _run(run_python, prelude, code, count) == ["True", "True True"]


@pytest.mark.parametrize("count", [2, 4])
def test_a_stencil_exchanges_its_halo_in_the_graph(
    run_python: RunPython, prelude: tuple[str, Mapping[str, str]], count: int
) -> None:
    """A ring of cells, a part of it on each device: new[i] = 3 * old[i] + old[i - 1].

    The copy of one cell from the left neighbour is one between devices.
    """
    code = """
cells = np.arange(COUNT * SIZE, dtype=np.int32) % 7
parts, left = [on(place) for place in range(COUNT)], [on(place) for place in range(COUNT)]
for place, part in enumerate(parts):
    cl.enqueue_copy(queues[place], part, cells[place * SIZE:(place + 1) * SIZE])
STEPS, LAST = 4, 4 * (SIZE - 1)
with fairlead.capture(*queues) as graph:
    added = [None] * COUNT
    for _ in range(STEPS):
        copied = []
        for place in range(COUNT):
            copy = lambda source, **how: cl.enqueue_copy(queues[place], left[place], source, **how)
            copy(parts[place], dst_offset=4, byte_count=LAST)
            waits = [added[place - 1]] if added[place - 1] else None
            copied.append(copy(parts[place - 1], src_offset=LAST, byte_count=4, wait_for=waits))
        added = [
            total(place, parts[place], left[place], wait_for=[copied[(place + 1) % COUNT]])
            for place in range(COUNT)
        ]
loop = graph.finalize()
for _ in range(3):
    loop.replay(queues[0], wait=True)
    for _ in range(STEPS):
        cells = 3 * cells + np.roll(cells, 1)
found = np.concatenate([read(place, part) for place, part in enumerate(parts)])
print((found == cells).all(), f"{3 * STEPS * COUNT} nodes" in line(loop))
"""
    assert _run(run_python, prelude, code, count) == ["True True"]


def test_transfers_of_each_kind(
    run_python: RunPython, prelude: tuple[str, Mapping[str, str]]
) -> None:
    """A fill on the other device's queue, and copies of rectangles, reads and writes."""
    code = """
a, b, given, out = on(0, 1), on(1, 2), np.arange(SIZE, dtype=np.int32), np.zeros(SIZE, np.int32)
with fairlead.capture(*queues) as graph:
    first = cl.enqueue_fill_buffer(queues[1], a, np.arange(2, dtype=np.int32), 0, 4 * SIZE)
    second = cl.enqueue_fill_buffer(queues[0], b, np.int32(7), 0, 4 * SIZE // 2, wait_for=[first])
    third = cl.enqueue_copy(queues[1], b, a, src_origin=(4, 1), dst_origin=(0, 1), region=(8, 3),
        src_pitches=(16,), dst_pitches=(32,), wait_for=[second])
    fourth = cl.enqueue_copy(queues[0], a, given, is_blocking=False, wait_for=[third])
    cl.enqueue_copy(queues[1], out, b, is_blocking=False, wait_for=[fourth])
loop = graph.finalize()
loop.replay(queues[1], wait=True)
expected = np.full(SIZE, 2, np.int32)
expected[:SIZE // 2] = 7
for row in range(3):
    expected[8 * (row + 1):8 * (row + 1) + 2] = 1, 0
print((out == expected).all(), (read(1, b) == expected).all(), (read(0, a) == given).all())
print("5 nodes" in line(loop))
"""
    assert _run(run_python, prelude, code) == ["True True True", "True"]


def test_updates_and_parameters_reach_the_second_device(
    run_python: RunPython, prelude: tuple[str, Mapping[str, str]]
) -> None:
    code = """
a, b, c = on(0, 1), on(1, 1), on(1, 5)
by = fairlead.Parameter(np.int32(3), name="by")
def captured(factor):
    with fairlead.capture(*queues, swap=[(b, c)]) as graph:
        scale(0, a, 1, by)
        total(1, b, c)
        scale(1, b, factor, by)
    return graph
loop = captured(1).finalize(updatable=True)
loop.replay(queues[0], wait=True)
print(values(queues[0], a), values(queues[1], b), values(queues[1], c))
for value in 2, 4:
    loop.set(by=value)
    loop.replay(queues[1])
queues[1].finish()
print(values(queues[0], a), values(queues[1], b), values(queues[1], c))
loop.update(captured(2))
loop.replay(queues[0], wait=True)
print(values(queues[0], a), "3 nodes" in line(loop))
"""
    lines = _run(run_python, prelude, code)
    # b = 1 * 3 + 5 + 3; c = 5 * 3 + 11 + 2; b = 11 * 3 + 28 + 4
    assert lines == ["[4] [11] [5]", "[10] [65] [28]", "[14] True"]


def test_a_loop_ends_when_a_flag_of_the_second_device_is_set(
    run_python: RunPython, prelude: tuple[str, Mapping[str, str]]
) -> None:
    """The host looks, because CUDA's loops are of one device.

    It looks by CUDA, after each turn. OpenCL would read the flag on the queue of the other device,
    which crashes NVIDIA's driver, and only after it has enqueued the next turn.
    """
    code = """
a, flag = on(0, -2), on(1, 0)
with fairlead.capture(*queues) as graph:
    total(1, flag, a, wait_for=[scale(0, a, 1, 1)])
loop = graph.finalize()
end = loop.replay(queues[0], times=50, until=flag, every=1)
turns, expected, now = 0, 0, -2
while turns < end.replays:
    turns, now = turns + 1, now + 1
    expected = 3 * expected + now
print(end.has_stopped, turns == 1, values(queues[0], a) == [now])
print(values(queues[1], flag) == [expected], "2 nodes" in line(loop))
"""
    assert _run(run_python, prelude, code) == ["True True True", "True True"]


def test_a_buffer_that_was_not_asked_for_is_named(
    run_python: RunPython, prelude: tuple[str, Mapping[str, str]]
) -> None:
    """The driver runs such a graph, and moves the memory from device to device."""
    code = """
y = buffer(1, context)
with fairlead.capture(*queues) as graph:
    event = scale(0, y, 2, 1)
    scale(1, y, 3, 1, wait_for=[event])
loop = graph.finalize()
loop.replay(queues[0], wait=True)
print(values(queues[0], y), line(loop).split("not chosen: ")[1])
"""
    (line,) = _run(run_python, prelude, code)
    assert line.startswith("[10] command 0 (kernel): a buffer of it is not shared with CUDA"), line
    assert line.endswith("by `with fairlead.cuda_sharing.on_device(device)`"), line


def test_a_graph_that_is_dropped_runs_to_its_end_and_forks_refuse(
    run_python: RunPython, prelude: tuple[str, Mapping[str, str]]
) -> None:
    code = """
a, b, gate = on(0, 1), on(1, 1), cl.UserEvent(context)
with fairlead.capture(*queues) as graph:
    event = scale(0, a, 2, 1)
    total(1, b, a, wait_for=[event])
loop = graph.finalize()
child = os.fork()
if not child:
    with suppress(Exception):
        loop.replay(queues[0], wait=True)
        os._exit(1)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
end = loop.replay(queues[0], wait_for=[gate])
del loop, graph
gc.collect()
gate.set_status(cl.command_execution_status.COMPLETE)
end.wait()
print(values(queues[0], a), values(queues[1], b))
"""
    assert _run(run_python, prelude, code) == ["0", "[3] [6]"]


# on the fake driver alone


@pytest.fixture
def isolated(environment: dict[str, str]) -> tuple[str, Mapping[str, str]]:
    """As `prelude`. The second device neither reaches the others nor is reached by them."""
    find, switch, share = SHARING.partition('os.environ["FAIRLEAD_CUDA"]')
    return f"{find}fake.fake_cuda_isolate(2)\n{switch}{share}{_DEVICES}", environment


def test_a_kernel_that_does_not_reach_its_memory_is_the_drivers(
    run_python: RunPython, isolated: tuple[str, Mapping[str, str]]
) -> None:
    """Chains and copies need no access. CUDA takes copies over the host."""
    code = """
a, b = on(0, 1), on(1, 1)
with fairlead.capture(*queues) as graph:
    event = scale(0, a, 2, 1)
    total(1, b, a, wait_for=[event])
loop = graph.finalize()
loop.replay(queues[0], wait=True)
print(values(queues[1], b), line(loop).split("not chosen: ")[1])
with fairlead.capture(*queues) as graph:
    copied = cl.enqueue_copy(queues[1], b, a, wait_for=[scale(0, a, 2, 1)])
    scale(1, b, 2, 1, wait_for=[copied])
loop = graph.finalize()
loop.replay(queues[1], wait=True)
print(values(queues[0], a), values(queues[1], b), "3 nodes" in line(loop))
print(fake.fake_cuda_calls(b"cuCtxEnablePeerAccess"))
"""
    refused, *lines = _run(run_python, isolated, code)
    why_not = "its kernel uses a buffer of another GPU, whose memory its own GPU does not reach"
    assert refused.startswith(f"[6] command 1 (kernel): {why_not}"), refused
    assert lines == ["[7] [15] True", "0"]


def test_a_parameter_becomes_no_memory_out_of_reach(
    run_python: RunPython, isolated: tuple[str, Mapping[str, str]]
) -> None:
    """The driver runs the graph from then on."""
    code = """
a, b, c = on(0, 1), on(1, 2), on(1, 5)
with fairlead.capture(*queues, swap=[(a, b)]) as graph:
    scale(0, a, 2, 1)
    scale(1, c, 2, 1)
loop = graph.finalize()
for expected in True, False, False:
    loop.replay(queues[0], wait=True)
    print("2 nodes" in line(loop), expected)
print(values(queues[0], a), values(queues[1], b), values(queues[1], c))
"""
    *lines, numbers = _run(run_python, isolated, code)
    assert numbers == "[7] [5] [47]" and lines[0] == "True True"


def test_released_memory_is_used_again_on_its_own_device(
    run_python: RunPython, isolated: tuple[str, Mapping[str, str]]
) -> None:
    """The fake driver knows which device may use an address."""
    code = """
def make(place, **how):
    with on_device(opencl[place]):
        made = cl.Buffer(context, READ_WRITE, 3 << 20)
    address = lib.fl_cuda_address(ffi.cast("void *", made.int_ptr))
    return [bool(fake.fake_may_use(ctypes.c_uint64(address), one)) for one in range(COUNT)]
for turn in range(4):
    for place in range(COUNT):
        for _ in range(20):
            if make(place) != [one == place for one in range(COUNT)]:
                print("of another device")
        for queue in queues:
            queue.finish()
plain = buffer(1, context)
print(lib.fl_count_shared().reused > 0, lib.fl_cuda_address(ffi.cast("void *", plain.int_ptr)))
"""
    assert _run(run_python, isolated, code) == ["True 0"]


def test_a_copy_between_devices_is_direct_where_they_reach_each_other(
    run_python: RunPython, environment: dict[str, str]
) -> None:
    """Access is enabled once, in both contexts, and only for graphs of both devices."""
    code = """
a, b = on(0, 1), on(1, 2)
def captured(*used):
    with fairlead.capture(*used) as graph:
        copied = cl.enqueue_copy(used[-1], b, a)
        scale(0, a, 2, 1, wait_for=[copied])
        if len(used) > 1:
            scale(1, b, 2, 1)
    return graph.finalize()
for used in queues[:1], queues, queues:
    loop = captured(*used)
    loop.replay(queues[0], wait=True)
    print("a CUDA Graph" in line(loop), fake.fake_cuda_calls(b"cuCtxEnablePeerAccess"))
print(values(queues[0], a), values(queues[1], b))
"""
    lines = _run(run_python, (f"{SHARING}{_DEVICES}", environment), code)
    assert lines == ["True 0", "True 2", "True 2", "[15] [15]"]


def test_a_lost_device_ends_all_graphs_of_it(
    run_python: RunPython, environment: dict[str, str]
) -> None:
    """CUDA does not say which device it was. A third one goes on."""
    code = """
numbers = [on(place, 1) for place in range(COUNT)]
def captured(*places):
    with fairlead.capture(*(queues[place] for place in places)) as graph:
        for place in places:
            scale(place, numbers[place], 2, 1)
    return graph.finalize()
both, second, third = captured(0, 1), captured(1), captured(2)
fake.fake_cuda_fail(b"cuStreamSynchronize", 700)
with suppress(fairlead.OpenCLError):
    both.replay(queues[0], wait=True)
    print("no error")
fake.fake_cuda_fail(b"cuStreamSynchronize", 0)
before = launches()
second.replay(queues[1], wait=True)
print(launches() - before, "has ended CUDA's context" in second.explain(queues[1]))
third.replay(queues[2], wait=True)
print(launches() - before, values(queues[1], numbers[1]), values(queues[2], numbers[2]))
"""
    lines = _run(run_python, (f"{SHARING}{_DEVICES}", environment), code, 3)
    assert lines == ["0 True", "1 [7] [3]"]
