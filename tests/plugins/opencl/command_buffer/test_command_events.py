"""Events of commands in command-buffers of the reference adapter: those that they signal, and those
that they wait for."""

from __future__ import annotations

import ctypes

from helpers.command_bench import COUNT, Bench, bumped, pointer, value
from helpers.ur_calls import array


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
