"""Command-buffers of several queues and devices, and copies of them for others."""

from __future__ import annotations

import pytest
from helpers.drivers import Driver

from .conftest import Calls

TWO_DEVICES = """
import struct
units = (ctypes.c_ssize_t * 3)(0x1086, 1, 0)
parts, count = (ctypes.c_void_p * 64)(), ctypes.c_uint32()
code = cl.clCreateSubDevices(DEVICE, units, 64, parts, ctypes.addressof(count))
if code or count.value < 2:
    say(None); sys.exit()
devices = parts[0], parts[1]
CONTEXT = calls.CONTEXT = new_context(*devices)
PROGRAM = calls.PROGRAM = build(SOURCE)
queues = [new_queue(0, CONTEXT, one) for one in devices]
QUEUE = calls.QUEUE = queues[0]
"""


def test_commands_of_several_queues(calls: Calls, each_driver: Driver) -> None:
    code = """
queues = new_queue(), new_queue(OUT_OF_ORDER), new_queue()
a, b = buffer(range(16)), buffer(16)
cb = create(*queues)
one = launch(cb, kernel("add", a, (1,)), 16, queue=queues[0])
two = launch(cb, kernel("twice", b, a), 16, queue=queues[1], after=(one,))
launch(cb, kernel("add", b, (1,)), 16, queue=queues[2], after=(two,))
finalize(cb)
for turn in range(3):
    event = enqueue(cb, *(queues if turn % 2 else ()))
    say(answer(cl.clGetEventInfo, event, "CL_EVENT_COMMAND_QUEUE", ctypes.c_void_p))
for queue in queues:
    say(read(b, 16, queue))
"""
    *of, one, two, three = calls(code, each_driver)
    assert of == [None] * 3
    assert one == two == three == [2 * (number + 3) + 1 for number in range(16)]


def test_other_properties_of_a_queue(calls: Calls, each_driver: Driver) -> None:
    """In place of a queue: the order is the recorded one, and the events have times."""
    code = """
ordered, unordered, timed = new_queue(), new_queue(OUT_OF_ORDER), new_queue(PROFILING)
for own in (ordered, unordered, timed):
    a, point = buffer(4), None
    cb = create(own)
    for number in range(4):
        after = (point,) if point and own is unordered else ()
        point = launch(cb, kernel("twice", a, a), 4, after=after)
        point = launch(cb, kernel("add", a, (number,)), 4, after=(point,))
    finalize(cb)
    for queue in (ordered, unordered, timed, ordered, timed, unordered):
        event = enqueue(cb, queue)
        of = answer(cl.clGetEventInfo, event, "CL_EVENT_COMMAND_QUEUE", ctypes.c_void_p)
        assert of == queue
        if queue == timed:
            times = [
                answer(cl.clGetEventProfilingInfo, event, f"CL_PROFILING_COMMAND_{what}",
                       ctypes.c_uint64)
                for what in ("QUEUED", "SUBMIT", "START", "END")
            ]
            assert times == sorted(times) and times[2] < times[3], times
    say(read(a, 4))
"""
    value = 0
    for _ in range(6):
        for number in range(4):
            value = 2 * value + number
    assert calls(code, each_driver) == [[value] * 4] * 3


def test_a_queue_of_another_device_is_refused(calls: Calls, each_driver: Driver) -> None:
    code = """
import calls
exec(TWO_DEVICES)
cb = create(queues[0])
launch(cb, kernel("add", buffer(4), (1,)), 4)
finalize(cb)
for device in devices[::-1]:
    queue = words(new_queue(0, CONTEXT, device))
    say(name(cl.clEnqueueCommandBufferKHR(1, queue, cb, 0, None, None)))
"""
    found = calls(f"TWO_DEVICES = {TWO_DEVICES!r}\n{code}", each_driver)
    assert found in (["CL_INVALID_DEVICE", "CL_SUCCESS"], [None])


def test_queues_wait_for_the_command_buffer(calls: Calls, each_driver: Driver) -> None:
    """What an in-order queue gets later comes after it, whichever of its queues that is."""
    code = """
queues = new_queue(), new_queue()
a = buffer(4)
cb = create(*queues)
for _ in range(50):
    launch(cb, kernel("add", a, (1,)), 4, queue=queues[0])
finalize(cb)
for _ in range(3):
    ok(cl.clEnqueueCommandBufferKHR(0, None, cb, 0, None, None))
say(read(a, 4, queues[1]))
"""
    assert calls(code, each_driver) == [[150] * 4]


BESIDE = """
queues = new_queue(OUT_OF_ORDER), new_queue(OUT_OF_ORDER)
a, b, c = buffer(4), buffer(4), buffer(4)
cb = create(*queues)
launch(cb, kernel("add", a, (1,)), 4, queue=queues[0])
launch(cb, kernel("add", b, (2,)), 4, queue=queues[1])
finalize(cb)
gate = make(cl.clCreateUserEvent, CONTEXT)


def add(queue, *after):
    event = out()
    given = words(4), None, *((len(after), words(*after)) if after else (0, None)), event.at
    ok(cl.clEnqueueNDRangeKernel(queue, kernel("add", c, (5,)), 1, None, *given))
    return event.value
"""


def test_a_pending_command_buffer_holds_up_nothing_else(calls: Calls, each_driver: Driver) -> None:
    """On out-of-order queues; what later waits for all in one of them waits for it."""
    code = f"""{BESIDE}
ok(cl.clEnqueueCommandBufferKHR(0, None, cb, 1, words(gate), None))
for queue in queues:
    ok(cl.clFlush(queue))
    ok(cl.clWaitForEvents(1, words(add(queue))))
ok(cl.clSetUserEventStatus(gate, 0))
ok(cl.clFinish(queues[1]))
say(read(a, 4), read(b, 4), read(c, 4))
"""
    assert calls(code, each_driver) == [[[1] * 4, [2] * 4, [10] * 4]]


def test_a_command_buffer_waits_for_no_unrelated_command(calls: Calls, each_driver: Driver) -> None:
    code = f"""{BESIDE}
held = [add(queue, gate) for queue in queues]
enqueue(cb); enqueue(cb)
say(read(a, 4), read(b, 4))
ok(cl.clSetUserEventStatus(gate, 0))
ok(cl.clWaitForEvents(2, words(*held)))
"""
    assert calls(code, each_driver) == [[[2] * 4, [4] * 4]]


def test_barriers_around_a_command_buffer_are_kept(calls: Calls, each_driver: Driver) -> None:
    """In each of its queues: what is before a barrier comes before what is behind it."""
    code = """
one, two = new_queue(OUT_OF_ORDER), new_queue(OUT_OF_ORDER)
a = buffer(1 << 12)
for queues in (one,), (one, two), (two, one):
    cb = create(*queues)
    fill, point = uints(42), out(ctypes.c_uint32)
    head = cb, queues[-1], None, a, fill, 4, 0, 4 << 12
    ok(cl.clCommandFillBufferKHR(*head, 0, None, point.at, None))
    launch(cb, kernel("add", a, (1,)), 1 << 12, queue=queues[0], after=(point.value,))
    finalize(cb)
    wrong, twice = 0, kernel("twice", a, a)
    for turn in range(40):
        ok(cl.clEnqueueCommandBufferKHR(0, None, cb, 0, None, None))
        ok(cl.clEnqueueBarrierWithWaitList(one, 0, None, None))
        ok(cl.clEnqueueNDRangeKernel(one, twice, 1, None, words(1 << 12), None, 0, None, None))
        ok(cl.clEnqueueBarrierWithWaitList(one, 0, None, None))
        ok(cl.clEnqueueCommandBufferKHR(0, None, cb, 0, None, None))
        ok(cl.clEnqueueBarrierWithWaitList(one, 0, None, None))
        wrong += set(read(a, 1 << 12, one)) != {43}
    say(wrong)
"""
    assert calls(code, each_driver) == [0, 0, 0]


def test_an_event_that_has_failed_is_refused(calls: Calls, each_driver: Driver) -> None:
    """Nothing runs, and the command-buffer can be enqueued again."""
    code = f"""{BESIDE}
ok(cl.clSetUserEventStatus(gate, -5))
say(name(cl.clEnqueueCommandBufferKHR(0, None, cb, 1, words(gate), None)))
enqueue(cb)
say(read(a, 4))
"""
    assert calls(code, each_driver) == ["CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST", [1] * 4]


def test_two_devices(calls: Calls, each_driver: Driver) -> None:
    code = """
import calls
exec(TWO_DEVICES)
a, b = buffer(range(8)), buffer(8)
cb = create(*queues)
last = ()
for step in range(6):
    k = kernel("twice", b, a) if step % 2 else kernel("add", a, (1,))
    last = (launch(cb, k, 8, queue=queues[step % 2], after=last),)
finalize(cb)
enqueue(cb); enqueue(cb)
say(read(b, 8))
"""
    (found,) = calls(f"TWO_DEVICES = {TWO_DEVICES!r}\n{code}", each_driver)
    assert found in ([2 * (number + 6) for number in range(8)], None)


def test_a_remapped_copy_runs_on_other_queues(calls: Calls, each_driver: Driver) -> None:
    code = """
queues = new_queue(), new_queue()
a = buffer(8)
cb, handle = create(*queues, properties=(FLAGS, MUTABLE, 0)), out()
one = launch(cb, kernel("add", a, (1,)), 8, queue=queues[0], handle=handle)
launch(cb, kernel("add", a, (10,)), 8, queue=queues[1], after=(one,))
others = new_queue(OUT_OF_ORDER), new_queue(PROFILING)


def remap(automatic, listed, handles=()):
    back = (ctypes.c_void_p * 1)()
    where = (words(*handles), ctypes.addressof(back)) if handles else (None, None)
    copy = make(
        cl.clRemapCommandBufferKHR, cb, automatic, len(listed), words(*listed), len(handles), *where
    )
    return copy, back[0]


open_copy, _ = remap(0, others)
say(answer(cl.clGetCommandBufferInfoKHR, open_copy, "CL_COMMAND_BUFFER_STATE_KHR", ctypes.c_uint32))
launch(open_copy, kernel("add", a, (100,)), 8, queue=others[1], after=(1,))
finalize(open_copy)
finalize(cb)
copy, back = remap(0, others, (handle.value,))
single, _ = remap(1, (QUEUE,))
say(update(copy, config(back, number_argument(1, 1000))))
for one in (copy, single, open_copy, cb):
    enqueue(one)
    say(read(a, 8)[0])
ok(cl.clReleaseCommandBufferKHR(cb))
enqueue(copy)
say(read(a, 8))
say(
    answer(
        cl.clGetMutableCommandInfoKHR,
        back,
        "CL_MUTABLE_COMMAND_COMMAND_BUFFER_KHR",
        ctypes.c_void_p,
    )
    == copy
)
say(
    answer(
        cl.clGetMutableCommandInfoKHR, back, "CL_MUTABLE_COMMAND_COMMAND_QUEUE_KHR", ctypes.c_void_p
    )
    == others[0]
)
"""
    assert calls(code, each_driver) == [
        *(0, "CL_SUCCESS", 1010, 1021, 1132, 1143),
        *([2153] * 8, True, True),
    ]


def test_a_remapped_copy_for_another_device(calls: Calls, each_driver: Driver) -> None:
    code = """
import calls
exec(TWO_DEVICES)
a = buffer(8)
cb = create(queues[0])
for value in range(5):
    launch(cb, kernel("add", a, (value,)), 8)
finalize(cb)
copy = make(cl.clRemapCommandBufferKHR, cb, 0, 1, words(queues[1]), 0, None, None)
enqueue(copy)
enqueue(cb)
say(read(a, 8))
"""
    (found,) = calls(f"TWO_DEVICES = {TWO_DEVICES!r}\n{code}", each_driver)
    assert found in ([20] * 8, None)


@pytest.mark.one_driver("pocl_wheel")
@pytest.mark.parametrize("engine", ["replay", "direct"])
def test_an_event_that_fails_ends_no_process(
    calls: Calls, each_driver: Driver, engine: str
) -> None:
    """The driver needs the events of commands that fail, and the program has not all of them."""
    code = """
queues = new_queue(), new_queue(OUT_OF_ORDER), new_queue()
a = buffer(4)
cb = create(*queues)
launch(cb, kernel("add", a, (1,)), 4, queue=queues[1])
finalize(cb)
gate = make(cl.clCreateUserEvent, CONTEXT)
for _ in range(2):
    ok(cl.clEnqueueCommandBufferKHR(0, None, cb, 1, words(gate), None))
ok(cl.clSetUserEventStatus(gate, -5))
for queue in queues:
    ok(cl.clFinish(queue))
say(read(a, 4))
enqueue(cb)
say(read(a, 4))
"""
    if each_driver.name != "pocl_wheel":
        pytest.skip("Intel's driver itself ends the process if the queue is finished then")
    before, after = calls(code, each_driver, {"FAIRLEAD_COMMAND_BUFFER": engine})
    assert (before, after) == ([0] * 4, [1] * 4)
