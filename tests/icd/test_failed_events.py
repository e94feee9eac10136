"""Commands that wait for an event that fails, of which Intel's driver says that they are complete.

Its callbacks tell more, and its own wait does. But that does not return before the callbacks of the
event have: a program that waited within one stood still.
"""

from __future__ import annotations

from helpers.support import RunPython

PROGRAM = """
import ctypes, threading
import pyopencl
import fairlead
from fairlead.icd.calls import call, find_device_profile, query_status

NOTIFY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)
for device in fairlead.devices():
    own = device.to_pyopencl()
    find_device_profile(own.int_ptr)  # as every adapter, capture and command-buffer does first
    context = pyopencl.Context([own])
    queue = pyopencl.CommandQueue(context)
    program = pyopencl.Program(context, "kernel void nothing(global int *a) {}").build()
    kernel, memory = program.nothing, pyopencl.Buffer(context, 1, 4)
    kernel.set_args(memory)
    # PoCL calls nobody back for a command that waited for a failed event.
    for status in (0, -5) if "Intel" in device.platform.name else (0,):
        gate = pyopencl.UserEvent(context)
        event = pyopencl.enqueue_nd_range_kernel(queue, kernel, (1,), None, wait_for=[gate])
        seen, ended, go_on = [], threading.Event(), threading.Event()

        @NOTIFY
        def notify(handle, status, data):
            seen.append(query_status(handle))
            ended.set()
            go_on.wait()

        call(event.int_ptr, "clSetEventCallback", 0, notify, None)
        queue.flush()
        setter = threading.Thread(target=gate.set_status, args=[status])
        setter.start()
        ended.wait()
        seen.append(query_status(event.int_ptr))  # while the callback runs
        go_on.set()
        setter.join()
        seen.append(query_status(event.int_ptr))
        print(seen == [0, 0, 0] if status == 0 else all(one < 0 for one in seen))
"""


def test_a_failure_is_seen_within_a_callback_beside_it_and_afterwards(
    run_python: RunPython,
) -> None:
    assert set(run_python(PROGRAM).out.split()) == {"True"}
