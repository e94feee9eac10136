"""Times of captured graphs with `enable_profiling`: from the first command to the last."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyopencl as cl
import pytest
from helpers.captures import OUT_OF_ORDER, Numbers, new_queue

from fairlead.captured_graphs import segment
from fairlead.captured_graphs.context import CapturedGraph, capture
from fairlead.graph import CommandGraph
from fairlead.runtime import Queue, SYCLError
from fairlead.runtime.interop import context_of, device_of

_PROFILING = cl.command_queue_properties.PROFILING_ENABLE


@pytest.fixture(params=[_PROFILING, _PROFILING | OUT_OF_ORDER], ids=["in_order", "out_of_order"])
def numbers(request: pytest.FixtureRequest, context: cl.Context) -> Numbers:
    """Numbers on a queue that profiles."""
    return Numbers(new_queue(context, request.param))


def captured(numbers: Numbers) -> CapturedGraph:
    """Adds 1, then multiplies by 3."""
    with capture(numbers.queue) as graph:
        numbers.mul(3, wait_for=[numbers.add(1)])
    return graph


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replays everything: the event of a driver's command-buffer would have both times by
    itself."""
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "replay")


@pytest.mark.parametrize("mode", ["native", "replay"])
@pytest.mark.parametrize("times", [1, 5])
def test_a_replay_has_the_times_of_all_of_it(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch, times: int, mode: str
) -> None:
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", mode)
    before = numbers.add(0)
    before.wait()
    loop = captured(numbers).finalize(enable_profiling=True)
    end = loop.replay(numbers.queue, times=times)
    after = numbers.add(0, wait_for=[end])
    after.wait()
    profile = end.profile
    # with PoCL 3.0 a command may start a little before the one that it comes after has ended
    assert before.profile.start < profile.start < profile.end < after.profile.end
    assert numbers.value() == {1: 3, 5: 363}[times]


@pytest.mark.usefixtures("replayed")
def test_from_the_first_command_of_all_replays_to_the_last(numbers: Numbers) -> None:
    end = captured(numbers).finalize(enable_profiling=True).replay(numbers.queue, times=3)
    profile, (first, last) = end.profile, end._times  # pyright: ignore
    assert (
        profile.start
        == first.profiling("start")
        < last.profiling("start")
        < last.profiling("end")
        == profile.end
    )
    assert profile.queued <= profile.submit <= profile.start and profile.complete == profile.end
    numbers.queue.finish()


@pytest.mark.usefixtures("replayed")
@pytest.mark.parametrize("have_no_times", [False, True])
def test_the_end_is_a_marker_where_barriers_have_no_times(
    numbers: Numbers, have_no_times: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue's last command is one, so its times are those of the end of the replay."""
    real_profile = segment.find_device_profile
    real_marker = segment.enqueue_marker
    added = list[int]()

    def profile(device: int) -> Any:
        return replace(real_profile(device), waiting_markers_have_no_times=have_no_times)

    def marker(queue: int, waits: Sequence[int]) -> int:
        assert queue == numbers.queue.int_ptr and not waits
        added.append(queue)
        return real_marker(queue, waits)

    monkeypatch.setattr(segment, "find_device_profile", profile)
    monkeypatch.setattr(segment, "enqueue_marker", marker)
    end = captured(numbers).finalize(enable_profiling=True).replay(numbers.queue, times=2)
    real = real_profile(numbers.queue.device.int_ptr)
    if have_no_times or not real.waiting_markers_have_no_times:
        assert end.profile.start < end.profile.end
    assert numbers.value() == 12
    is_out_of_order = bool(numbers.queue.properties & OUT_OF_ORDER)
    expected = [numbers.queue.int_ptr] if have_no_times and is_out_of_order else []
    assert added == expected


def test_times_have_host_tasks_in_them(numbers: Numbers) -> None:
    """What another queue does during a host task lies between the first command and the last."""
    graph, begun, goes_on = captured(numbers), threading.Event(), threading.Event()
    task = graph.add(
        lambda handler: handler.host_task(lambda: (begun.set(), goes_on.wait())),
        depends_on=graph[0],
    )
    graph[1].depends_on(task)
    end = graph.finalize(enable_profiling=True).replay(numbers.queue)
    assert begun.wait(60)
    beside = cl.enqueue_marker(cl.CommandQueue(numbers.queue.context, properties=_PROFILING))
    beside.wait()
    goes_on.set()
    assert end.profile.start <= beside.profile.start and beside.profile.end <= end.profile.end
    assert numbers.value() == 3


def test_both_the_queue_and_the_graph_have_to_profile(
    numbers: Numbers, context: cl.Context
) -> None:
    loop = captured(numbers).finalize(enable_profiling=True)
    with pytest.raises(cl.Error, match="PROFILING_INFO_NOT_AVAILABLE"):
        loop.replay(cl.CommandQueue(context)).profile.start  # noqa: B018  # it is the look that raises
    runtime_queue = Queue(context_of(context), device_of(context.devices[0]))
    with pytest.raises(SYCLError, match="profiling=True"):
        runtime_queue.graph(loop).profiling("start")


@pytest.mark.usefixtures("replayed")
@pytest.mark.parametrize("way", ["itself", "updatable", "in a graph"])
def test_on_a_runtime_queue(numbers: Numbers, way: str) -> None:
    queue = Queue(
        context_of(numbers.queue.context), device_of(numbers.queue.device), profiling=True
    )
    loop: Any = captured(numbers).finalize(enable_profiling=True, updatable=way == "updatable")
    if way == "in a graph":
        graph = CommandGraph(queue)
        first = graph.add(lambda handler: handler.graph_execution(loop))
        graph.add(lambda handler: handler.host_task(lambda: None), depends_on=first)
        loop = graph.finalize(enable_profiling=True)
    gate = queue.host_task(lambda: None)
    event = queue.graph(loop, depends_on=[gate])  # which is not with the adapter yet
    start, end = event.profiling("start"), event.profiling("end")
    parts: Any = event.profiled
    counted: list[Any] = [part for part in parts if part.handle]
    first = min(counted, key=lambda part: part.profiling("start"))
    last = max(counted, key=lambda part: part.profiling("end"))
    assert (
        start == first.profiling("start") < last.profiling("start") < last.profiling("end") == end
    )
    assert numbers.value() == 3
