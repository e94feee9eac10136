"""Replays that wait for events of commands that fail."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from helpers.captures import Numbers, seen_between
from helpers.timings import Rival

import fairlead
from fairlead.captured_graphs.context import capture
from fairlead.captured_graphs.segment import CapturedSegment
from fairlead.icd.command_buffer import choice
from fairlead.icd.command_buffer.engines.replay import Replay
from fairlead.icd.errors import OpenCLError

FAILED = "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"


def fail(event: cl.UserEvent) -> None:
    event.set_status(-5)


def add_and_multiply(numbers: Numbers, queue: cl.CommandQueue | None = None) -> Any:
    """A graph of two launches, one after the other. From 0 it makes 3."""
    queue = queue or numbers.queue
    with capture(queue) as graph:
        first = numbers.add(1, queue=queue)
        numbers.mul(3, queue=queue, wait_for=[first])
    return graph.finalize()


def with_host_task(numbers: Numbers) -> Any:
    return seen_between(numbers)[0].finalize()


@pytest.mark.parametrize("make", [add_and_multiply, with_host_task])
@pytest.mark.parametrize("options", [{}, {"times": 5}, {"wait": True}, {"until": True}])
def test_an_event_that_has_failed_is_refused(
    numbers: Numbers, make: Callable[[Numbers], Any], options: dict[str, Any]
) -> None:
    """Nothing of the graph runs, and it can be replayed again."""
    loop, gate = make(numbers), cl.UserEvent(numbers.queue.context)
    fail(gate)
    if "until" in options:
        options = {"until": numbers.new(), "times": 5}
    with pytest.raises(OpenCLError, match="An event of the wait list has failed") as raised:
        loop.replay(numbers.queue, wait_for=[gate], **options)
    assert raised.value.code == FAILED
    assert numbers.value() == 0
    loop.replay(numbers.queue).wait()
    assert numbers.value() == 3


@pytest.mark.parametrize("engine", ["replay", "auto", "direct"])
@pytest.mark.parametrize("times", [1, 5])
def test_a_replay_fails_with_an_event_that_it_waits_for(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch, engine: str, times: int
) -> None:
    """The last command fails as well as the first one. The next replay goes on.

    Five times are enqueued in several calls.
    """
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", engine)
    check_failure(numbers, add_and_multiply(numbers), times=times)


def test_a_replay_of_a_trial_fails_with_an_event_that_it_waits_for(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "ENGINES", {"rival": Rival(), "replay": Replay()})
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "auto")
    check_failure(numbers, add_and_multiply(numbers), times=5)


def test_a_series_fails_with_an_event_that_it_waits_for(numbers: Numbers) -> None:
    summand = fairlead.Parameter(np.int32(1), name="summand")
    with capture(numbers.queue) as graph:
        numbers.add(summand)
        numbers.mul(3)
    loop = graph.finalize()
    check_failure(numbers, loop, times=3, summand=np.array([1, 2, 3], np.int32))


def check_failure(numbers: Numbers, loop: Any, **options: Any) -> None:
    """Replay it before an event fails, and then without that event, on this queue and another."""
    queue = numbers.queue
    loop.replay(queue).wait()
    gate = cl.UserEvent(queue.context)
    end = loop.replay(queue, wait_for=[gate], **options)
    queue.flush()
    fail(gate)
    with pytest.raises(cl.Error, match="EXEC_STATUS_ERROR"):
        end.wait()
    queue.finish()
    for next_queue in (queue, cl.CommandQueue(queue.context)):
        cl.enqueue_fill_buffer(queue, numbers.buffer, np.array(0, np.int32), 0, 256).wait()
        for name in set(options) - {"times"}:
            loop.set(**{name: np.int32(1)})
        loop.replay(next_queue).wait()
        assert numbers.value() == 3


def test_a_replay_elsewhere_goes_on_after_a_failed_one(numbers: Numbers) -> None:
    loop, gate = add_and_multiply(numbers), cl.UserEvent(numbers.queue.context)
    end = loop.replay(numbers.queue, wait_for=[gate])
    numbers.queue.flush()
    fail(gate)
    with pytest.raises(cl.Error, match="EXEC_STATUS_ERROR"):
        end.wait()
    cl.enqueue_fill_buffer(numbers.queue, numbers.buffer, np.array(0, np.int32), 0, 256).wait()
    loop.replay(cl.CommandQueue(numbers.queue.context)).wait()
    assert numbers.value() == 3


@pytest.mark.parametrize("host_task", [False, True])
def test_out_of_order_replays_go_on_after_a_failed_one(
    numbers: Numbers, out_of_order: cl.CommandQueue, host_task: bool
) -> None:
    """Intel's CPU driver itself ends the process if a queue is used after such a failure."""
    if not host_task and "Intel" in out_of_order.device.platform.name:
        pytest.skip("the driver itself does not go on")
    gate = cl.UserEvent(out_of_order.context)
    loop = with_host_task(numbers) if host_task else add_and_multiply(numbers, out_of_order)
    end = loop.replay(out_of_order, times=3, wait_for=[gate])
    out_of_order.flush()
    fail(gate)
    with pytest.raises(cl.Error, match="EXEC_STATUS_ERROR"):
        end.wait()
    loop.replay(out_of_order).wait()
    assert numbers.value() == 3


@pytest.mark.parametrize("options", [{}, {"times": 5}, {"wait": True}, {"times": 5, "wait": True}])
def test_a_graph_with_host_tasks_fails_with_an_event_that_it_waits_for(
    numbers: Numbers, options: dict[str, Any]
) -> None:
    loop, gate = with_host_task(numbers), cl.UserEvent(numbers.queue.context)
    failing = threading.Thread(target=fail, args=[gate])
    if not options.get("wait"):
        end = loop.replay(numbers.queue, wait_for=[gate], **options)
        failing.start()
        with pytest.raises(cl.Error, match="EXEC_STATUS_ERROR"):
            end.wait()
    else:  # it fails before the replay, or while that waits
        failing.start()
        with pytest.raises((cl.Error, OpenCLError), match="EXEC_STATUS_ERROR"):
            loop.replay(numbers.queue, wait_for=[gate], **options)
    failing.join()
    loop.replay(numbers.queue).wait()
    assert numbers.value() == 3


def test_host_tasks_fail_where_a_wait_tells_no_failure(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVIDIA's driver takes a wait for a failed user event for a success."""
    wait = cl.Event.wait

    def wait_silently(event: cl.Event) -> None:
        with suppress(cl.Error):
            wait(event)

    monkeypatch.setattr(cl.Event, "wait", wait_silently)
    check_failure(numbers, with_host_task(numbers), times=2)


@pytest.mark.parametrize("delay", [0, 0.05])  # before the replay, or while it waits
def test_a_loop_with_a_flag_fails_with_an_event_that_it_waits_for(
    numbers: Numbers, delay: float
) -> None:
    loop, gate = add_and_multiply(numbers), cl.UserEvent(numbers.queue.context)
    flag = numbers.new()
    failing = threading.Timer(delay, fail, [gate])
    failing.start()
    with pytest.raises(OpenCLError, match=FAILED):
        loop.replay(numbers.queue, times=20, wait_for=[gate], until=flag, every=2)
    failing.join()
    cl.enqueue_fill_buffer(numbers.queue, numbers.buffer, np.array(0, np.int32), 0, 256).wait()
    loop.replay(numbers.queue, until=flag, times=1)
    assert numbers.value() == 3


def test_a_loop_with_a_flag_begins_when_events_have_ended(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If one failed while it was enqueued, PoCL might never end the read of the flag."""
    loop, gate, seen = add_and_multiply(numbers), cl.UserEvent(numbers.queue.context), list[int]()
    run_until = CapturedSegment.run_until

    def look(segment: CapturedSegment, *given: Any) -> tuple[int, bool]:
        seen.append(gate.command_execution_status)
        return run_until(segment, *given)

    monkeypatch.setattr(CapturedSegment, "run_until", look)
    opening = threading.Timer(0.05, gate.set_status, [cl.command_execution_status.COMPLETE])
    opening.start()
    loop.replay(numbers.queue, times=1, wait_for=[gate], until=numbers.new())
    opening.join()
    assert numbers.value() == 3 and not any(seen)
