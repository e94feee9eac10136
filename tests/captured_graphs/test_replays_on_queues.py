"""The place of replays in the order of queues: beside other commands, and on several queues.

Releases of queues on real drivers: when the last reference is released.
"""

from __future__ import annotations

import gc
import random
from functools import cache
from threading import Event as Signal
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from helpers.captures import OUT_OF_ORDER, Numbers, new_queue, seen_between
from helpers.timings import Rival

from fairlead.captured_graphs.context import capture
from fairlead.icd.abi import OPENCL
from fairlead.icd.calls import (
    call,
    find_device_profile,
    is_in_order,
    make_queue,
    query_properties,
)
from fairlead.icd.command_buffer import choice, command_buffer, layout, queue_release
from fairlead.icd.command_buffer.commands import CommandList
from fairlead.icd.command_buffer.engine import BuiltCommands, Cost, Engine, QueueKind
from fairlead.icd.command_buffer.engines.replay import Replay
from fairlead.icd.driver_profiles import DriverProfile

#: How graphs are run: by an engine of this name, and laid out by one of its schedules.
WAYS = ("replay", "auto", "direct")
SCHEDULES = ("auto", "in-order", "queues", "levels", "events")


def is_complete_while(pending: cl.UserEvent, event: cl.Event) -> bool:
    """Whether a command completes while another event is pending, which is completed then."""
    over = Signal()
    event.set_callback(cl.command_execution_status.COMPLETE, lambda status: over.set())
    event.command_queue.flush()
    done = over.wait(60)
    pending.set_status(cl.command_execution_status.COMPLETE)
    return done


@cache
def do_calls_overtake(device: cl.Device) -> bool:
    """Whether the driver runs a call before an earlier one that waits. NVIDIA's runs none."""
    context = cl.Context([device])
    queue = new_queue(context, OUT_OF_ORDER)
    calls, gate = Numbers(cl.CommandQueue(context)), cl.UserEvent(context)
    other = calls.new()
    calls.add(1, queue=queue, wait_for=[gate])
    overtook = is_complete_while(gate, calls.add(1, other, queue=queue))
    queue.finish()
    return overtook


def assert_complete_while(pending: cl.UserEvent, event: cl.Event) -> None:
    """A command completes while another event is pending, where the driver's own calls do."""
    if do_calls_overtake(event.command_queue.device):
        assert is_complete_while(pending, event)
    else:
        pending.set_status(cl.command_execution_status.COMPLETE)
        event.wait()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_pending_replay_holds_up_nothing_else(
    numbers: Numbers,
    out_of_order: cl.CommandQueue,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    schedule: str,
) -> None:
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", way)
    other, third = numbers.new(), numbers.new()
    with capture(out_of_order) as graph:
        first = numbers.add(1, queue=out_of_order)
        second = numbers.add(2, other, queue=out_of_order)
        numbers.mul(3, queue=out_of_order, wait_for=[first, second])
        numbers.mul(3, other, queue=out_of_order, wait_for=[first, second])
    loop = graph.finalize(schedule=schedule)
    for times in (1, 3):
        gate = cl.UserEvent(out_of_order.context)
        end = loop.replay(out_of_order, times=times, wait_for=[gate])
        assert_complete_while(gate, numbers.add(1, third, queue=out_of_order))
        end.wait()
    expected = [0, 0]
    for _ in range(4):
        expected = [3 * (value + add) for value, add in zip(expected, (1, 2), strict=True)]
    assert [numbers.value(), numbers.value(other)] == expected


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_replay_waits_for_no_unrelated_command(
    numbers: Numbers,
    out_of_order: cl.CommandQueue,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    schedule: str,
) -> None:
    """Not even where all that its end waits for is complete before the end is enqueued."""
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", way)
    other, third = numbers.new(), numbers.new()
    with capture(out_of_order) as graph:
        first = numbers.add(1, queue=out_of_order)
        numbers.add(2, other, queue=out_of_order)
        numbers.mul(3, queue=out_of_order, wait_for=[first])
    loop = graph.finalize(schedule=schedule)
    loop.replay(out_of_order).wait()
    for times in (1, 1, 3):
        gate = cl.UserEvent(out_of_order.context)
        held = numbers.add(1, third, queue=out_of_order, wait_for=[gate])
        assert_complete_while(gate, loop.replay(out_of_order, times=times))
        held.wait()


@pytest.mark.parametrize("way", WAYS)
def test_barriers_around_replays_are_kept(
    numbers: Numbers, out_of_order: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """PoCL's barriers with a wait list do not wait for earlier barriers."""
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", way)
    queue, count, values = out_of_order, 1 << 12, np.zeros(1 << 12, np.int32)
    buffer = cl.Buffer(queue.context, 0, values.nbytes)
    mul = cl.Kernel(numbers.program, "mul")
    add = cl.Kernel(numbers.program, "add")
    with capture(queue) as graph:
        filled = cl.enqueue_fill_buffer(queue, buffer, np.array(42, np.int32), 0, values.nbytes)
        add(queue, (count,), None, buffer, np.int32(1), wait_for=[filled])
    loop = graph.finalize()
    for _ in range(40):
        loop.replay(queue)
        cl.enqueue_barrier(queue)
        mul(queue, (count,), None, buffer, np.int32(2))
        cl.enqueue_barrier(queue)
        loop.replay(queue)
        cl.enqueue_barrier(queue)
        cl.enqueue_copy(queue, values, buffer)
        assert (values == 43).all()


@pytest.mark.parametrize("way", WAYS)
def test_barriers_of_a_block_order_other_commands(
    numbers: Numbers, out_of_order: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", way)
    queue = out_of_order
    with capture(queue) as graph:
        cl.enqueue_barrier(queue)
        numbers.add(1, queue=queue)
        cl.enqueue_barrier(queue)
    loop = graph.finalize()
    loop.replay(queue).wait()
    gate = cl.UserEvent(queue.context)
    numbers.mul(2, queue=queue, wait_for=[gate])
    end = loop.replay(queue)
    last = numbers.mul(3, queue=queue)
    queue.flush()
    for event in (end, last):
        assert event.command_execution_status != cl.command_execution_status.COMPLETE
    gate.set_status(cl.command_execution_status.COMPLETE)
    last.wait()
    assert numbers.value() == ((1 * 2) + 1) * 3


class UnpricedReplay(Replay):
    """The replay, whose costs are not known either."""

    def cost(self, target: QueueKind) -> Cost | None:
        return None


class Learning(Rival):
    """Its first runs teach it to leave a command to another engine."""

    name = "learning"

    def build(self, commands: CommandList, target: QueueKind) -> BuiltCommands:
        built = super().build(commands, target)
        built.learns = True
        built.find_slower_commands = (  # type: ignore[method-assign]
            lambda: {0: "it was told to"} if len(commands) > 1 else {}
        )
        return built


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("engine", [Rival(), Learning()], ids=lambda engine: engine.name)
def test_replays_alternate_between_queues_in_every_phase_of_a_trial(
    numbers: Numbers,
    out_of_order: cl.CommandQueue,
    monkeypatch: pytest.MonkeyPatch,
    engine: Engine,
    seed: int,
) -> None:
    """Each replay is on the queue that it was asked for, and comes after the one before it."""
    monkeypatch.setattr(choice, "ENGINES", {engine.name: engine, "replay": UnpricedReplay()})
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "auto")
    context, pick = numbers.queue.context, random.Random(seed)
    profiled = cl.command_queue_properties.PROFILING_ENABLE
    queues = [
        numbers.queue,
        cl.CommandQueue(context),
        cl.CommandQueue(context, properties=profiled),
        out_of_order,
    ]
    other = numbers.new()
    with capture(numbers.queue) as graph:
        numbers.add(1)
        numbers.mul(3)
        numbers.add(1, other)
    loop = graph.finalize()
    queue, expected, end = queues[0], 3, loop.replay(queues[0])
    for _ in range(60):
        if pick.random() < 0.4:
            queue = pick.choice(queues)
        if pick.random() < 0.1:  # another queue may get the handle of one that is gone
            queue = queues[1] = cl.CommandQueue(context)
        times = pick.choice((1, 1, 1, 2))
        end = loop.replay(queue, times=times)
        assert end.command_queue == queue
        for _ in range(times):
            expected = 3 * (expected + 1) & 0xFFFFFFFF
    end.wait()
    assert numbers.value() & 0xFFFFFFFF == expected


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


def test_an_out_of_order_queue_outlives_its_test(out_of_order: cl.CommandQueue) -> None:
    """Else its release could let a later test on Intel's driver hang."""
    references: Any = out_of_order.reference_count
    delay = find_device_profile(out_of_order.device.int_ptr).final_release_delay
    assert (references > 1) == (delay is not None)


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


def test_a_queue_may_be_released_while_others_are_looked_at(
    context: cl.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The garbage collector may run in between any two lines of the same thread."""
    first, second = _queue(context), _queue(context)
    Releases(first, monkeypatch)
    looks: list[int] = []

    class Looked:
        delay, device = 0.0, None

        @property
        def marker(self) -> int:
            looks.append(len(looks))
            if len(looks) == 2:  # the first look is that of a loop over a copy
                queue_release.release_queue(second)
            return 0

        def _replace(self, **_: int) -> Looked:
            return self

    monkeypatch.setattr(queue_release, "_running", {first: Looked()})
    queue_release.release_ended()
    assert second in queue_release._running


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


def test_own_queues_where_waits_hang(
    numbers: Numbers, out_of_order: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With some drivers the queue of a graph with host tasks is in order, also on the caller's
    out-of-order queue: no thread of ours may wait for another kind beside PyOpenCL."""
    for queue in (numbers.queue, out_of_order):
        for quirks in ("", "-out-of-order-waits-hang"):
            monkeypatch.setenv("FAIRLEAD_QUIRKS", quirks)
            numbers.mul(0)
            graph, seen = seen_between(numbers)
            loop = graph.finalize()
            loop.replay(queue).wait()
            assert (numbers.value(), seen) == (3, [1])
            own = loop._own_queues.get_runtime_queue(queue).native()
            hangs = find_device_profile(queue.device.int_ptr).out_of_order_waits_hang
            assert is_in_order(query_properties(own)) == hangs
            assert hangs == (not quirks and "Intel" in queue.device.platform.name)
