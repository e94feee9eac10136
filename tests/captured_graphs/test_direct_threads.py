"""Which threads the engine `direct` runs in: how many help, and how much stack the caller needs."""

from __future__ import annotations

import threading

import numpy as np
import pyopencl as cl
import pytest
from helpers.drivers import Driver
from helpers.support import RunPython

from fairlead.captured_graphs.context import capture
from fairlead.icd.drivers import platforms

#: Prints the device's compute units, and how many threads began when several could help. The
#: arguments are the driver, and how many units a sub-device has, 0 for the whole device.
HELPED = """
import os, sys
import numpy as np
import pyopencl as cl
import fairlead
from fairlead.icd.command_buffer import direct_device

direct_device._LEAST, direct_device._PERCENT = 0, 1 << 30  # they help always
direct_device.count_cores = lambda: 8
(platform,) = (found for found in fairlead.platforms() if found.driver.path.endswith(sys.argv[1]))
device, units = platform.devices[0].to_pyopencl(), int(sys.argv[2])
if units:
    try:
        device = device.create_sub_devices([cl.device_partition_property.EQUALLY, units])[0]
    except cl.RuntimeError:
        print("not divided")
        sys.exit()
context = cl.Context([device])
queue = cl.CommandQueue(context, device)  # PoCL gives the context the whole device
program = cl.Program(context, "kernel void inc(global int *a) { a[get_global_id(0)]++; }").build()
buffer = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=np.zeros(64, np.int32))
with fairlead.capture(queue) as graph:
    program.inc(queue, (64,), (1,), buffer)
loop = graph.finalize()
loop.replay(queue, wait=True)
before = set(os.listdir("/proc/self/task"))  # one that asks for the binary may end meanwhile
loop.replay(queue, times=40, wait=True)
assert "one native kernel" in loop.explain(queue), loop.explain(queue)
print(device.max_compute_units, len(set(os.listdir("/proc/self/task")) - before))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("most", "part", "units"), [(1, 0, 1), (3, 0, 3), (4, 2, 2), (4, 1, 1)])
def test_as_many_threads_as_the_device_has_compute_units(
    run_python: RunPython, direct_pocl: Driver, most: int, part: int, units: int
) -> None:
    """The caller's is one of them. PoCL's variable and sub-devices say how many units there are."""
    env = {
        "FAIRLEAD_COMMAND_BUFFER": "direct",
        "FAIRLEAD_FUSE": "0",  # its thread may end meanwhile
        "POCL_MAX_PTHREAD_COUNT": str(most),
    }
    done = run_python(HELPED, direct_pocl.library, str(part), env=env)
    if done.out.strip() == "not divided":
        pytest.skip("the driver does not divide its device")
    assert done.out.split() == [str(units), str(units - 1)]


# glibc gives a thread the stack of an ended one, which may be four times as large.
@pytest.mark.parametrize(("mebibytes", "itself"), [(1, False), (9, True)])
def test_a_thread_with_little_stack_leaves_a_graph_to_the_queue(
    direct_pocl: Driver, monkeypatch: pytest.MonkeyPatch, mebibytes: int, itself: bool
) -> None:
    """A kernel tells where its private memory is: in the thread's stack, or in another one."""
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "direct")
    platform = next(one for one in platforms() if direct_pocl.has(one))
    context = cl.Context([platform.devices[0].to_pyopencl()])
    queue = cl.CommandQueue(context)
    source = """kernel void where(global ulong *place, int n) {
        volatile int own[16];
        own[n] = n;
        place[0] = (ulong)&own[n];
    }"""
    where = cl.Program(context, source).build().where
    place = cl.Buffer(context, cl.mem_flags.READ_WRITE, 8)
    with capture(queue) as graph:
        where(queue, (1,), (1,), place, np.int32(3))
    loop, found, found_by = graph.finalize(), np.zeros(1, np.uint64), list[int]()

    def replay() -> None:
        loop.replay(queue, wait=True)
        found_by.append(threading.get_ident())  # glibc has the thread's descriptor above its stack

    before = threading.stack_size(mebibytes << 20)
    try:
        thread = threading.Thread(target=replay)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    cl.enqueue_copy(queue, found, place)
    assert "one native kernel" in loop.explain(queue)
    assert found[0] and (0 < found_by[0] - int(found[0]) < mebibytes << 20) == itself


#: Prints what an element of a buffer has that the graphs of four threads increase by another one's,
#: which the program maps meanwhile. The first replay of each asks the driver where the buffers are.
SHARED = """
import sys, threading
import numpy as np
import pyopencl as cl
import fairlead

(platform,) = (found for found in fairlead.platforms() if found.driver.path.endswith(sys.argv[1]))
context = cl.Context([platform.devices[0].to_pyopencl()])
item = "size_t i = get_global_id(0);"
source = f"kernel void add(global int *a, global int *b) {{ {item} atomic_add(a + i, b[i]); }}"
program = cl.Program(context, source).build()
buffer, ones = (
    cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=np.full(8, value, np.int32))
    for value in (0, 1)
)
queues, loops = [cl.CommandQueue(context) for _ in range(4)], []
for queue in queues:
    kernel = program.add
    for _ in range(100):
        with fairlead.capture(queue) as graph:
            kernel(queue, (8,), (1,), buffer, ones)
        loops.append(graph.finalize(fuse=False))
loops[0].replay(queues[0], wait=True)
sys.setswitchinterval(1e-6)

def run(number):
    for loop in loops[100 * number : 100 * (number + 1)]:
        loop.replay(queues[number], wait=True)

threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
mapping = cl.CommandQueue(context)
while any(thread.is_alive() for thread in threads):
    seen, _ = cl.enqueue_map_buffer(mapping, ones, cl.map_flags.READ, 0, 8, np.int32)
    seen.base.release(mapping).wait()
found = np.empty(8, np.int32)
cl.enqueue_copy(queues[0], found, buffer)
print(*set(found.tolist()))
"""


def test_threads_whose_graphs_begin_with_one_buffer(
    run_python: RunPython, direct_pocl: Driver
) -> None:
    """PoCL unmaps what another thread has mapped, also one of the program's."""
    env = {"FAIRLEAD_COMMAND_BUFFER": "direct"}
    assert run_python(SHARED, direct_pocl.library, env=env).out.split() == ["401"]
