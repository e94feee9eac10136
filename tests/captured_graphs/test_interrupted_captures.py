"""Ctrl-C at any moment of a capture: KeyboardInterrupt comes to the program, once, nothing is
printed, and the queue is as before."""

from __future__ import annotations

import pytest
from helpers.drivers import Driver
from helpers.support import RunPython

#: Runs `work` again and again, and raises SIGINT in a line of it, each time in another one: in the
#: first line of each function that Python or C calls and whose exceptions Python would drop, and in
#: some others. A round waits for its KeyboardInterrupt. After a minute it says where that was lost.
PROGRAM = """
import ctypes, gc, inspect, os, signal, sys, time, weakref
import numpy as np, pyopencl as cl
import fairlead
from fairlead.icd.drivers import platforms

(platform,) = (found for found in platforms() if found.driver.path.endswith(sys.argv[1]))
context = cl.Context([platform.devices[0].to_pyopencl()])
queue = cl.CommandQueue(context)
buffer, host = cl.Buffer(context, cl.mem_flags.READ_WRITE, 256), np.zeros(64, np.int32)
source = "kernel void add(global int *a, int by) { a[get_global_id(0)] += by; }"
program = cl.Program(context, source).build()
add = cl.Kernel(program, "add")
dropped_errors = []
sys.unraisablehook = dropped_errors.append

def launch():
    add(queue, (64,), None, buffer, np.int32(1))

def work():
    with fairlead.capture(queue) as graph:
        launch()
        cl.enqueue_copy(queue, host, buffer, is_blocking=False)
    loop = graph.finalize(fuse=False)  # a round is as long as the others
    loop.replay(queue).wait()
    unfinished = [fairlead.capture(queue)]
    unfinished[0].__enter__()
    launch()
    unfinished.clear()
    cycle = [graph]
    cycle.append(cycle)
    del graph, loop, cycle
    gc.collect()

DROPS = ("__del__", "_remove", "remove", "_note_collection", "_observe", "__enter__", "__exit__")

def is_below(frame):
    while frame is not None and frame.f_code is not work.__code__:
        if frame.f_code.co_name in DROPS or frame.f_code is weakref.finalize.__call__.__code__:
            return True
        frame = frame.f_back
    return False

def trace(what):
    # Calls `work`, and `what` for each of its lines.
    def enter(frame, event, argument):
        if frame.f_code.co_filename == "<string>" and frame.f_code is not work.__code__:
            return None  # of this test
        if event in ("call", "line"):
            what(frame)
        return enter

    sys.settrace(enter)
    try:
        work()
    finally:
        sys.settrace(None)

def describe_signals():
    # Whether SIGINT is pending or blocked, whether its timer runs, and whose handler it has.
    action = (ctypes.c_void_p * 32)()  # a struct sigaction begins with the handler
    ctypes.CDLL(None).sigaction(signal.SIGINT, None, action)
    lines = [line for line in open("/proc/self/status") if line.startswith(("Sig", "ShdPnd"))]
    if os.path.exists("/proc/self/timers"):
        lines += open("/proc/self/timers")
    for line in open("/proc/self/maps"):
        begin, end = (int(one, 16) for one in line.split()[0].split("-"))
        if begin <= (action[0] or 0) < end:
            lines.append("handler: " + line)
    return "".join(lines)

for _ in range(3):  # whatever happens only once
    work()
places, kinds = [], set()

def note(frame):
    place = frame.f_code, is_below(frame)
    places.append(place[1] and place not in kinds)
    kinds.add(place)

trace(note)
kinds.clear()
chosen = [number for number, is_new in enumerate(places) if is_new]
chosen += range(0, len(places), len(places) // 40)
assert len(chosen) > 60, chosen
gc.freeze()  # it looks only at what a round makes
reached = 0
for number in chosen:
    left, place = [number], []
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as a notebook does for each cell

    def interrupt(frame):
        # The end of a generator that is dropped is traced, but Python handles no signals in it.
        if left[0] == 0 and frame.f_code.co_flags & inspect.CO_GENERATOR:
            return
        if left[0] == 0:
            sys.settrace(None)
            at = frame
            while at is not None:
                place.append((at.f_code.co_filename, at.f_lineno, at.f_code.co_name))
                at = at.f_back
            signal.raise_signal(signal.SIGINT)
        left[0] -= 1

    try:
        trace(interrupt)
        begin = time.monotonic()
        while left[0] < 0:  # a round may have fewer lines
            assert not dropped_errors, dropped_errors
            assert time.monotonic() < begin + 60, f"{place}\\n{describe_signals()}"
            time.sleep(0.01)
    except KeyboardInterrupt:
        reached += 1
    gc.collect()
    launch()
    queue.finish()  # refused if it still recorded
    assert not dropped_errors, dropped_errors
print(reached > 0.9 * len(chosen))
"""


@pytest.mark.slow
@pytest.mark.one_driver
def test_an_interrupt_of_a_capture_comes_to_the_program(
    run_python: RunPython, each_driver: Driver
) -> None:
    done = run_python(PROGRAM, each_driver.library)
    assert (done.out, "Exception ignored" in done.err) == ("True\n", False)


#: The interrupt comes in a finalizer of a process in which no thread can be started.
AT_ITS_LIMIT = """
import resource, signal, threading, time
from fairlead.loader.base.interrupts import protect_finalizers

class Ends:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
protect_finalizers()
with open("/proc/self/statm") as file:
    size = int(file.read().split()[0]) * resource.getpagesize() + (1 << 20)
resource.setrlimit(resource.RLIMIT_AS, (size, size))
try:
    threading.Thread(target=print, args=("a thread",)).start()
except RuntimeError:
    pass
try:
    Ends()
    end = time.monotonic() + 60
    while time.monotonic() < end:
        time.sleep(0.01)
    print("lost")
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_that_is_deferred_needs_no_thread(run_python: RunPython) -> None:
    done = run_python(AT_ITS_LIMIT, fresh=True)  # without stacks of threads that have ended
    assert (done.out, done.err) == ("interrupted\n", "")
