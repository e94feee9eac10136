"""Events of commands in command-buffers of the reference adapter: those that they signal, and those
that they wait for."""

from __future__ import annotations

import ctypes

from helpers.command_bench import COUNT, Bench, bumped, pointer, value
from helpers.ur_calls import array

from fairlead.loader.ur.abi import UR


def test_a_commands_event_is_another_one_at_each_enqueue(bench: Bench) -> None:
    ur, buffer, event, end = (
        bench.ur,
        bench.buffer(updatable=True),
        ctypes.c_void_p(),
        ctypes.c_void_p(),
    )
    _, command = bench.launch(
        buffer, "bump", pointer(bench.address), value(1), event=ctypes.byref(event), handle=True
    )
    bench.launch(buffer, "bump", pointer(bench.address), value(2))
    bench.finalize(buffer)
    ur.ok("urEventWait", 1, array(event))  # it is complete before the first enqueue
    time = (UR["UR_PROFILING_INFO_COMMAND_START"], 8, ctypes.byref(ctypes.c_uint64()), None)
    assert ur("urEventGetProfilingInfo", event, *time) == "PROFILING_INFO_NOT_AVAILABLE"
    natives = set()
    for _ in range(3):
        ur.ok("urEnqueueCommandBufferExp", bench.queue, buffer, 0, None, ctypes.byref(end))
        ur.ok("urEventWait", 1, array(event))
        natives.add(ur.make("urEventGetNativeHandle", event).value)
        ur.ok("urEventWait", 1, array(end))
        ur.ok("urEventRelease", end)
    assert natives
    other = ur.make("urCommandBufferUpdateSignalEventExp", command)
    ur.ok("urEventWait", 1, array(other))
    bench.run(buffer)
    ur.ok("urEventWait", 2, array(event, other))
    for made in (event, other):
        ur.ok("urEventRelease", made)
    ur.ok("urCommandBufferReleaseExp", buffer)


def test_a_command_waits_for_events_that_can_be_exchanged(bench: Bench, free_queue: int) -> None:
    """One command-buffer's event orders another's command, at every enqueue."""
    ur, first, second = bench.ur, bench.buffer(), bench.buffer(updatable=True)
    event = ctypes.c_void_p()
    bench.launch(first, "bump", pointer(bench.address), value(1), event=ctypes.byref(event))
    bench.finalize(first)
    _, command = bench.launch(
        second, "scale", pointer(bench.address), value(2), waits=(event.value or 0,), handle=True
    )
    bench.finalize(second)
    bench.run(second, queue=free_queue)  # the event is complete as long as the first has not run
    expected = [2 * cell for cell in range(COUNT)]
    assert list(bench.cells) == expected
    for _ in range(3):
        ur.ok("urEnqueueCommandBufferExp", bench.queue, first, 0, None, None)
        ur.ok("urQueueFlush", bench.queue)
        bench.run(second, queue=free_queue)
        expected = [2 * cell for cell in bumped(expected, 1)]
        assert list(bench.cells) == expected
    assert ur("urCommandBufferUpdateWaitEventsExp", command, 0, None) == "INVALID_EVENT_WAIT_LIST"
    assert (
        ur("urCommandBufferUpdateWaitEventsExp", command, 2, array(event, event))
        == "INVALID_EVENT_WAIT_LIST"
    )
    ur.ok("urCommandBufferUpdateWaitEventsExp", command, 1, array(event))
    ur.ok("urEventRelease", event)
    for buffer in (first, second):
        ur.ok("urCommandBufferReleaseExp", buffer)


def test_a_command_waits_for_another_one_of_the_same_command_buffer(bench: Bench) -> None:
    """An edge like a sync-point, also after the event was exchanged."""
    ur, buffer = bench.ur, bench.buffer(updatable=True, in_order=False)
    event = ctypes.c_void_p()
    _, first = bench.launch(
        buffer, "bump", pointer(bench.address), value(1), event=ctypes.byref(event), handle=True
    )
    waits = (event.value or 0,)
    _, second = bench.launch(
        buffer, "scale", pointer(bench.address), value(2), waits=waits, handle=True
    )
    bench.finalize(buffer)
    expected = list(range(COUNT))
    for _ in range(3):
        expected = [2 * cell for cell in bumped(expected, 1)]
        assert bench.run(buffer) == expected
    other = ur.make("urCommandBufferUpdateSignalEventExp", first)
    ur.ok("urCommandBufferUpdateWaitEventsExp", second, 1, array(other))
    assert bench.run(buffer) == [2 * cell for cell in bumped(expected, 1)]
    foreign = ur.make("urEnqueueEventsWait", bench.queue, 0, None)
    code = ur("urCommandBufferUpdateWaitEventsExp", second, 1, array(foreign))
    assert code == "UNSUPPORTED_FEATURE"
    for made in (event, other, foreign):
        ur.ok("urEventRelease", made)
    ur.ok("urCommandBufferReleaseExp", buffer)
