"""Releases of queues on real drivers: when the last reference is released."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from helpers.captures import Numbers

from fairlead.captured_graphs.context import capture
from fairlead.icd.abi import OPENCL
from fairlead.icd.calls import call, make_queue
from fairlead.icd.command_buffer import command_buffer, layout, queue_release
from fairlead.icd.driver_profiles import DriverProfile


class Releases:
    """The releases of one queue, at a time of day that the test sets."""

    def __init__(self, queue: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.queue, self.count, self.now = queue, 0, 1e6
        monkeypatch.setattr(queue_release, "monotonic", lambda: self.now)
        profile = DriverProfile(final_release_delay=1.0)  # on every driver
        monkeypatch.setattr(queue_release, "_find_profile", lambda queue: profile)
        monkeypatch.setattr(queue_release, "call", self.call)

    def call(self, handle: int, routine: str, *arguments: Any) -> int:
        self.count += routine == "clReleaseCommandQueue" and handle == self.queue
        return call(handle, routine, *arguments)

    def after(self, seconds: float) -> int:
        """So much later, and all commands have ended: how often it has been released."""
        if not self.count:
            call(self.queue, "clFinish")
        self.now += seconds
        queue_release.release_ended()
        return self.count


def _queue(
    context: cl.Context, properties: int = OPENCL["CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE"]
) -> int:
    return make_queue(context.int_ptr, context.devices[0].int_ptr, properties)


def test_an_out_of_order_queue_rests_after_its_commands(
    context: cl.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event is complete before the driver's thread has let go of its command: the queue's last
    reference is not released then."""
    releases = Releases(_queue(context), monkeypatch)
    queue_release.release_queue(releases.queue)
    assert [releases.after(seconds) for seconds in (5.0, 0.5, 0.4)] == [0, 0, 0]
    assert releases.after(0.2) == 1 and releases.after(5.0) == 1


def test_the_queue_of_levels_rests_after_its_commands(
    numbers: Numbers, out_of_order: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay that goes by levels has an out-of-order queue of its own."""
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "replay")
    made: list[int] = []

    def make(context: int, device: int, properties: int = 0) -> int:
        made.append(make_queue(context, device, properties))
        return made[-1]

    monkeypatch.setattr(layout, "make_queue", make)
    with capture(out_of_order) as graph:
        first = numbers.add(1, queue=out_of_order)
        numbers.mul(3, queue=out_of_order, wait_for=[first])
    loop = graph.finalize(schedule="levels")
    loop.replay(out_of_order).wait()
    (queue,) = made
    releases = Releases(queue, monkeypatch)
    del loop
    gc.collect()
    # When it goes depends on who else has events of it: PoCL's are held for a while.
    assert releases.count == 0 and queue in queue_release._running


def test_rest_begins_when_nobody_else_has_the_queue(
    context: cl.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has a reference may enqueue more."""
    releases = Releases(_queue(context), monkeypatch)
    call(releases.queue, "clRetainCommandQueue")
    queue_release.release_queue(releases.queue)
    assert [releases.after(5.0) for _ in range(3)] == [0, 0, 0]
    call(releases.queue, "clReleaseCommandQueue")
    assert [releases.after(seconds) for seconds in (5.0, 0.0, 0.9, 0.2)] == [0, 0, 0, 1]


def test_an_in_order_queue_is_released_at_once(
    context: cl.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    releases = Releases(_queue(context, 0), monkeypatch)
    queue_release.release_queue(releases.queue)
    assert releases.count == 1


def test_without_the_habit_an_out_of_order_queue_is_released_at_once(
    context: cl.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    releases = Releases(_queue(context), monkeypatch)
    monkeypatch.setattr(queue_release, "_find_profile", lambda queue: DriverProfile())
    queue_release.release_queue(releases.queue)
    assert releases.count == 1


def test_an_interrupt_while_a_queue_is_kept_releases_nothing_twice(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C may come between any two instructions, also before the queue is retained."""
    before = queue.reference_count
    buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 16)
    with capture(queue) as graph:
        cl.enqueue_fill_buffer(queue, buffer, np.zeros(1, np.int32), 0, 16)
    loop = graph.finalize()

    def interrupted(handle: int, routine: str, *arguments: object) -> int:
        if routine == "clRetainCommandQueue":
            raise KeyboardInterrupt
        return call(handle, routine, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(command_buffer, "call", interrupted)
        with pytest.raises(KeyboardInterrupt):
            loop.replay(queue)
    queue.finish()
    del loop, graph
    gc.collect()
    assert queue.reference_count >= before
