"""Trials: engines whose costs nobody knows take turns in the first replays of a graph, and what
they took is remembered."""

from __future__ import annotations

import ctypes
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from helpers.captures import Numbers
from helpers.timings import Rival

from fairlead.captured_graphs.context import capture
from fairlead.icd._native import ffi, lib
from fairlead.icd.abi import OPENCL
from fairlead.icd.command_buffer import choice, direct_trust, trial
from fairlead.icd.command_buffer.commands import CommandList
from fairlead.icd.command_buffer.engine import BuiltCommands, Engine, QueueKind
from fairlead.icd.command_buffer.engines.replay import Replay
from fairlead.icd.command_buffer.trial import Timing, Trial, choose_fastest


class RefusedWhole(BuiltCommands):
    """What the driver refuses to enqueue."""

    may_refuse = True
    _refuse = ctypes.CFUNCTYPE(ctypes.c_int32)(lambda: -5)

    def __init__(self, count: int) -> None:
        function = ctypes.cast(self._refuse, ctypes.c_void_p).value
        self._handles = ffi.new("fl_driver_buffer *", (ffi.NULL, ffi.cast("void *", function)))
        enqueue = ffi.addressof(lib, "fl_enqueue_driver_buffer")
        self.native = ffi.new(
            "fl_built *", {"enqueue": enqueue, "self": self._handles, "count": count}
        )

    def explain(self) -> str:
        return "refused"

    def close(self) -> None:
        Refused.closed += 1


class Refused(Engine):
    """Says that it can, and the driver says that it cannot."""

    name = "refused"
    closed: ClassVar[int] = 0

    def why_not(self, commands: CommandList, target: QueueKind) -> str | None:
        return None

    def build(self, commands: CommandList, target: QueueKind) -> BuiltCommands:
        return RefusedWhole(len(commands))


class Told:
    """A timing that is what the test says."""

    #: Of each enqueue that is measured, in order.
    to_come: ClassVar[list[float | None]] = []
    count: ClassVar[int] = 0

    def __init__(self, queue: int, after: Sequence[int] | None) -> None:
        self.seconds: float | None = None

    def end(self, event: int) -> None:
        Told.count += 1
        self.seconds = self.to_come.pop(0) if self.to_come else 1.0


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> type[Told]:
    """Timings that are what the test says: `to_come`, then 1 s each."""
    monkeypatch.setattr(Told, "to_come", [])
    monkeypatch.setattr(Told, "count", 0)
    monkeypatch.setattr(trial, "Timing", Told)
    return Told


@pytest.fixture
def remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of what trials found, which is not there yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "fairlead" / "engines.json"


@pytest.fixture(params=["rival", "rival and refused"])
def candidates(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, remembered: Path
) -> None:
    """Two engines that can run everything, and perhaps one that the driver refuses."""
    given: list[Engine] = [Rival(), Replay()]
    if "refused" in request.param:
        given.insert(0, Refused())
    monkeypatch.setattr(choice, "ENGINES", {engine.name: engine for engine in given})
    monkeypatch.delenv("FAIRLEAD_COMMAND_BUFFER", raising=False)


# --- a trial alone ---


def take_turns(candidates: Sequence[str], count: int) -> tuple[Trial, list[int]]:
    tried, turns = Trial(candidates), list[int]()
    for _ in range(count):
        turns.append(tried.choose_next())
        timing = tried.start(0, None)
        if timing is not None:
            tried.end(timing, 0)
    return tried, turns


def test_candidates_take_turns_and_the_last_one_runs_while_a_time_is_missing(
    told: type[Told],
) -> None:
    told.to_come = [5.0, 5.0, 1.0, 2.0, None]
    tried, turns = take_turns(["a", "b"], 20)
    assert turns == [0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 1, 1, 1, 1]
    assert told.count == 16 and tried.find_medians() is None


def test_the_median_time_counts_and_the_first_does_not(told: type[Told]) -> None:
    told.to_come = [9.0, 9.0, 3.0, 0.5] * 2  # of a, b, b, a, a, b, b, a
    tried, _ = take_turns(["a", "b"], 16)
    assert tried.find_medians() == {"a": 1.0, "b": 1.0}
    told.to_come = [9.0, 9.0, *[3.0, 0.5, 0.5, 3.0] * 2]  # 4 of 7 times of a are 0.5
    found = take_turns(["a", "b"], 16)[0].find_medians()
    assert found == {"a": 0.5, "b": 3.0}


def test_one_that_takes_many_times_as_long_gets_no_more_turns(told: type[Told]) -> None:
    told.to_come = [9.0, 9.0, 9.0, 1.0]  # of a, b, b, a
    tried, turns = take_turns(["a", "b"], 12)
    assert turns == [0, 1, 1, 0, *[0] * 6, 1, 1]  # the last one runs when all had their turns
    assert tried.find_medians() == {"a": 1.0, "b": 9.0}
    told.to_come = [9.0, 9.0, 7.0, 1.0]
    assert take_turns(["a", "b"], 8)[1] == [0, 1, 1, 0, 0, 1, 1, 0]
    told.to_come = [0.04, 0.04, 0.04, 0.001]  # eight turns take little
    assert take_turns(["a", "b"], 8)[1] == [0, 1, 1, 0, 0, 1, 1, 0]
    told.to_come = [9.0, 9.0, None, 1.0]  # it may be fast
    assert take_turns(["a", "b"], 8)[1] == [0, 1, 1, 0, 0, 1, 1, 0]


def test_hopeless_candidates_are_known_when_the_next_round_begins(told: type[Told]) -> None:
    """A program waits for a turn after it was enqueued."""
    tried, turns = Trial(["a", "b"]), list[int]()
    for seconds in [9.0, 9.0, 9.0, 1.0, 1.0, 1.0]:  # of a, b, b, a, and then of a alone
        turns.append(tried.choose_next())
        timing = tried.start(0, None)
        assert timing is not None
        told.to_come = [None]
        tried.end(timing, 0)
        timing.seconds = seconds  # pyright: ignore[reportAttributeAccessIssue]
    assert turns == [0, 1, 1, 0, 0, 0]


def test_the_second_of_two_turns_counts_where_the_device_changes(told: type[Told]) -> None:
    tried, turns = Trial(["a", "b"], 4, in_pairs=True), list[int]()
    told.to_come = [9.0, 1.0, 9.0, 2.0, 9.0, 2.0, 9.0, 1.0]
    for _ in range(8):
        turns.append(tried.choose_next())
        timing = tried.start(0, None)
        assert timing is not None
        tried.end(timing, 0)
    assert turns == [0, 0, 1, 1, 1, 1, 0, 0]
    assert tried.start(0, None) is None
    assert tried.find_medians() == {"a": 1.0, "b": 2.0}


def test_a_time_that_never_comes_is_left_out_in_the_end(told: type[Told]) -> None:
    told.to_come = [9.0, 9.0, 2.0, None]  # of a, b, b, a
    tried, _ = take_turns(["a", "b"], 16)
    asked = [tried.find_medians() for _ in range(trial._PATIENCE + 1)]
    assert asked == [None] * trial._PATIENCE + [{"a": 1.0, "b": 1.0}]
    told.to_come = [9.0, 9.0, *[1.0, None, None, 1.0] * 7]  # of a nothing is known
    tried, _ = take_turns(["a", "b"], 16)
    assert not any(tried.find_medians() for _ in range(2 * trial._PATIENCE))


def test_what_is_close_to_the_fastest_has_as_many_turns_again(told: type[Told]) -> None:
    """Then all turns of it count. The others are not tried again."""
    tried, turns = Trial(["a", "b", "c"], 4, repeats=True), list[int]()

    def run(*seconds: float) -> None:
        told.to_come = list(seconds)
        for _ in seconds:
            turns.append(tried.choose_next())
            timing = tried.start(0, None)
            assert timing is not None
            tried.end(timing, 0)

    run(*[1.0, 2.0, 1.04, 1.04, 2.0, 1.0] * 2)
    assert tried.find_medians() is None
    run(*[1.2, 1.04, 1.04, 1.2] * 2)
    assert turns == [0, 1, 2, 2, 1, 0] * 2 + [0, 2, 2, 0] * 2
    assert tried.find_medians() == {"a": 1.2, "b": 2.0, "c": 1.04}
    assert (tried.start(0, None), tried.choose_next()) == (None, 2)


def test_a_trial_that_repeats_its_turns_is_as_patient_again(told: type[Told]) -> None:
    tried = Trial(["a", "b"], 4, repeats=True)

    def run(*seconds: float | None) -> int:
        """Take turns. Return how often the medians are asked for in vain."""
        told.to_come = list(seconds)
        for _ in seconds:
            timing = tried.start(0, None)
            assert timing is not None
            tried.end(timing, 0)
        return sum(tried.find_medians() is None for _ in range(trial._PATIENCE + 1))

    assert run(*[1.0] * 7, None) == trial._PATIENCE + 1  # then it repeats
    assert tried.choose_next() == 0
    assert run(*[1.0] * 7, None) == trial._PATIENCE
    assert tried.find_medians() == {"a": 1.0, "b": 1.0}


def test_the_scatter_is_the_range_of_the_middle_half(told: type[Told]) -> None:
    told.to_come = [9.0, 9.0, *[3.0, 1.0, 1.0, 3.0], *[5.0, 2.0, 2.0, 5.0] * 2, 1.0, 70.0]
    tried, _ = take_turns(["a", "b"], 16)
    assert tried.find_medians() == {"a": 2.0, "b": 5.0}
    assert tried.scatter == {"a": 1.0, "b": 2.0}


def test_one_that_is_clearly_the_fastest_is_known_at_once(told: type[Told]) -> None:
    tried = Trial(["a", "b"], 2, repeats=True)
    told.to_come = [1.0, 1.06, 1.06, 1.0]
    for _ in range(4):
        timing = tried.start(0, None)
        assert timing is not None
        tried.end(timing, 0)
    assert tried.find_medians() == {"a": 1.0, "b": 1.06}


def test_a_tie_goes_to_the_last_one() -> None:
    assert choose_fastest({"a": 1.0, "b": 1.0}) == "b"
    assert choose_fastest({"a": 0.96, "b": 1.0}) == "b"
    assert choose_fastest({"a": 0.5, "b": 0.7, "c": 1.0}) == "a"
    assert choose_fastest({"a": 0.7, "b": 0.5, "c": 1.0}) == "b"
    assert choose_fastest({"a": math.inf, "b": math.inf}) == "b"
    assert choose_fastest({"a": 1.0, "b": math.inf}) == "a"
    assert choose_fastest({"a": 0.97, "b": 1.0, "c": 0.98}, of_schedules=True) == "c"
    assert choose_fastest({"a": 0.97, "b": 1.0, "c": 1.0}, of_schedules=True) == "a"


def test_fewer_launches_are_preferred_within_what_a_callback_takes() -> None:
    launches = {"captured": 11, "fused": 1}
    assert choose_fastest({"captured": 7.7e-6, "fused": 9.3e-6}, launches=launches) == "fused"
    assert choose_fastest({"captured": 1e-6, "fused": 9e-6}, launches=launches) == "fused"
    assert choose_fastest({"captured": 1e-6, "fused": 15e-6}, launches=launches) == "captured"
    assert choose_fastest({"captured": 90e-3, "fused": 91e-3}, launches=launches) == "fused"
    assert choose_fastest({"captured": 80e-3, "fused": 91e-3}, launches=launches) == "captured"
    seconds = {"captured": 63e-6, "fused": 85e-6}
    assert choose_fastest(seconds, launches=launches) == "captured"
    for one in launches:
        scatter = {"captured": 1e-6, "fused": 1e-6, one: 40e-6}
        assert choose_fastest(seconds, launches=launches, scatter=scatter) == "fused"
    same = {"captured": 1, "fused": 1}
    assert choose_fastest({"captured": 7.7e-6, "fused": 9.3e-6}, launches=same) == "captured"


def test_the_least_of_exact_times_is_the_fastest() -> None:
    """Replays of 3 µs differ by less than a callback takes."""
    launches = {"captured": 5, "fused": 4}
    for seconds, best in [((3.6e-6, 3.7e-6), "captured"), ((3.6e-6, 3.6e-6), "fused")]:
        times = dict(zip(launches, seconds, strict=True))
        assert choose_fastest(times, launches=launches, are_exact=True) == best


def test_turns_in_the_callers_thread_are_exact() -> None:
    tried = Trial(["a", "b"], 2)
    for seconds in (9.0, 9.0, 2.0, 1.0):  # of a, b, b, a
        assert tried.find_medians() is None
        tried.note(seconds)
    tried.note(5.0)
    assert tried.are_exact and tried.find_medians() == {"a": 1.0, "b": 2.0}


@pytest.mark.one_driver("pocl_wheel")
def test_turns_that_the_caller_waits_for_run_in_its_thread(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    if direct_trust.why_not_device(queue.device.int_ptr):
        pytest.skip("the engine direct does not run on this driver")
    noted, note = list[float](), Trial.note

    def count(tried: Trial, seconds: float) -> None:
        noted.append(seconds)
        note(tried, seconds)

    monkeypatch.setattr(Trial, "note", count)
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "direct")
    x = cl_array.to_device(queue, np.zeros(64, np.int32))
    with capture(queue) as graph:
        x += 3
        x -= 2
    loop, replays = graph.finalize(fuse="wait"), 80
    for _ in range(replays):
        loop.replay(queue, wait=True)
    assert loop.fused and len(noted) >= 2 * trial.TURNS_OF_SCHEDULES
    segment: Any = loop._get_only_segment()
    plans = segment._buffer.plans
    assert all(found[0].trial is None for found in plans._found.values())
    assert (x.get() == replays).all()


@pytest.mark.parametrize("slower, kept", [(1.6e-6, True), (90e-6, False)])
def test_a_tie_goes_to_the_fused_kernel(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch, slower: float, kept: bool
) -> None:
    """Callbacks take longer than both ways to run such a graph."""
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "replay")
    monkeypatch.setattr(
        Trial,
        "find_medians",
        lambda self: {name: 7.7e-6 + slower * ("fused" in name) for name in self._names},
    )
    x = cl_array.to_device(queue, np.ones(64, np.float32))
    with capture(queue) as graph:
        x *= 2
        x += 1
    loop = graph.finalize(fuse="wait")
    loop.replay(queue).wait()
    segment: Any = loop._get_only_segment()
    (plan,) = (one for found in segment._buffer.plans._found.values() for one in found)
    assert plan.name == ("replay (fused)" if kept else "replay")
    assert (x.get() == 3).all()


@pytest.mark.parametrize("fails", [MemoryError, KeyboardInterrupt])
def test_what_was_built_is_closed_if_another_candidate_cannot_be_built(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch, remembered: Path, fails: type[BaseException]
) -> None:
    replay = Replay()

    def fail(commands: CommandList, target: QueueKind) -> BuiltCommands:
        raise fails

    monkeypatch.setattr(replay, "build", fail)
    monkeypatch.setattr(choice, "ENGINES", {"refused": Refused(), "replay": replay})
    monkeypatch.delenv("FAIRLEAD_COMMAND_BUFFER", raising=False)
    monkeypatch.setattr(Refused, "closed", 0)
    with capture(numbers.queue) as graph:
        numbers.add(1)
    with pytest.raises(fails):
        graph.finalize().replay(numbers.queue)
    assert Refused.closed == 1


# --- times ---


def ended(timing: Timing) -> float:
    """Its seconds; a driver may call back after a wait has returned."""
    while timing.seconds is None:
        pass
    return timing.seconds


def test_a_time_begins_after_what_an_enqueue_waits_for(
    queue: cl.CommandQueue, context: cl.Context
) -> None:
    gate = cl.UserEvent(context)
    timing = Timing(queue.int_ptr, [gate.int_ptr])
    event = cl.enqueue_marker(queue)
    timing.end(event.int_ptr)
    assert timing.seconds is None
    gate.set_status(cl.command_execution_status.COMPLETE)
    event.wait()
    assert 0 < ended(timing) < math.inf


class AnsweredEvent:
    """The event of a driver that calls back with 0 at once, and then tells a status.

    Attributes:
        references: how many the driver was given, less those that were released.
    """

    def __init__(self, status: int) -> None:
        self.references = 0
        Notify = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)

        def call_back(event: int, when: int, function: int, data: int) -> int:
            Notify(function)(event, 0, data)
            return 0

        def answer(event: int, name: int, size: int, value: int, written: int) -> int:
            ctypes.c_int32.from_address(value).value = status
            return 0

        def count(by: int) -> int:
            self.references += by
            return 0

        word, number = ctypes.c_void_p, ctypes.c_int32
        functions: dict[str, tuple[tuple[Any, ...], Callable[..., int]]] = {
            "clSetEventCallback": ((word, number, word, word), call_back),
            "clGetEventInfo": ((word, number, ctypes.c_size_t, word, word), answer),
            "clRetainEvent": ((word,), lambda event: count(1)),
            "clReleaseEvent": ((word,), lambda event: count(-1)),
        }
        self._functions = {
            OPENCL.functions[name].slot or 0: ctypes.CFUNCTYPE(number, *types)(function)
            for name, (types, function) in functions.items()
        }
        self._table = (word * (max(self._functions) + 1))()
        for slot, function in self._functions.items():
            self._table[slot] = ctypes.cast(function, word)
        self._words = (word * 1)(ctypes.addressof(self._table))
        self.handle = ctypes.addressof(self._words)


@pytest.mark.parametrize("status", [0, -5])
def test_a_failed_replay_has_no_time(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """NVIDIA's driver calls back with 0 for it, and its event has failed."""
    profile = SimpleNamespace(holds_events=False)
    monkeypatch.setattr(trial, "find_device_profile", lambda device: profile)
    timing, event = Timing(queue.int_ptr, None), AnsweredEvent(status)
    timing.end(event.handle)
    assert math.isfinite(ended(timing)) == (status == 0) and event.references == 1
    del timing
    assert event.references == 0


# --- trials of graphs ---


def test_replays_are_right_while_candidates_take_turns(numbers: Numbers, candidates: None) -> None:
    """Each replay runs once, whoever runs it, and has the last update."""
    with capture(numbers.queue) as graph:
        numbers.add(1)
    loop = graph.finalize(updatable=True)
    expected = 0
    for number in range(24):
        graph[0].set_arg(1, np.int32(number))
        loop.update(graph[0])
        loop.replay(numbers.queue, times=number % 3 + 1).wait()
        expected += number * (number % 3 + 1)
        assert numbers.value() == expected


@pytest.mark.parametrize("kind", ["queue", "out_of_order"])
def test_the_fastest_is_kept_and_remembered(
    request: pytest.FixtureRequest,
    numbers: Numbers,
    candidates: None,
    remembered: Path,
    told: type[Told],
    kind: str,
) -> None:
    queue = request.getfixturevalue(kind)

    def loop_of(number: int) -> Any:
        with capture(queue) as graph:
            before = numbers.add(number, queue=queue)
            numbers.mul(1, queue=queue, wait_for=[before])
        return graph.finalize()

    def chosen(loop: Any) -> dict[str, str]:
        lines = loop.explain(queue).splitlines()[1:]
        return dict(line.split(maxsplit=1) for line in lines)

    told.to_come = [0.5 if turn % 4 in (0, 3) else 0.7 for turn in range(16)]
    loop = loop_of(1)
    for _ in range(17):
        loop.replay(queue).wait()
    assert numbers.value() == 17 and told.count == 16
    said = chosen(loop)
    assert "clearly faster, a replay takes: rival 500000.0 µs, replay 700000.0 µs" in said["rival"]
    assert said["replay"].startswith("not chosen")
    (fact,) = json.loads(remembered.read_text()).values()
    assert fact["seconds"] == {"rival": 0.5, "replay": 0.7}
    again = loop_of(2)  # it differs by its arguments only
    again.replay(queue).wait()
    assert told.count == 16 and chosen(again)["rival"] == said["rival"]
    assert numbers.value() == 19


@pytest.mark.parametrize("found", [None, [], {"rival": 1.0}, {"rival": "1", "replay": 2.0}])
def test_facts_of_another_form_are_as_good_as_none(
    numbers: Numbers, candidates: None, remembered: Path, told: type[Told], found: object
) -> None:
    for count in (1, 2):
        with capture(numbers.queue) as graph:
            numbers.add(1)
        graph.finalize().replay(numbers.queue, times=20).wait()
        assert told.count == 16 * count
        facts = json.loads(remembered.read_text())
        remembered.write_text(
            json.dumps({key: {**fact, "seconds": found} for key, fact in facts.items()})
        )


def test_another_graph_is_tried_anew(
    numbers: Numbers, candidates: None, remembered: Path, told: type[Told]
) -> None:
    for count in (1, 2):
        with capture(numbers.queue) as graph:
            for _ in range(count):
                numbers.add(1)
        loop = graph.finalize()
        loop.replay(numbers.queue, times=20).wait()
        assert told.count == 16 * count
    assert len(json.loads(remembered.read_text())) == 2 and numbers.value() == 60


def test_after_a_trial_what_was_chosen_measures_its_runs_again(
    numbers: Numbers, candidates: None, told: type[Told], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the trial the device may have changed to it from others again and again."""
    again = list[BuiltCommands]()
    monkeypatch.setattr(BuiltCommands, "measure_again", lambda built: again.append(built))
    with capture(numbers.queue) as graph:
        numbers.add(1)
    loop = graph.finalize()
    loop.replay(numbers.queue, times=16).wait()
    assert not again
    loop.replay(numbers.queue, times=4).wait()
    assert len(again) == 1 and numbers.value() == 20


def test_several_times_at_once_take_turns_and_give_the_times_of_all(
    numbers: Numbers, candidates: None, told: type[Told]
) -> None:
    profiled = cl.CommandQueue(
        numbers.queue.context, properties=cl.command_queue_properties.PROFILING_ENABLE
    )
    with capture(profiled) as graph:
        numbers.add(1, queue=profiled)
        numbers.mul(1, queue=profiled)
    end = graph.finalize(enable_profiling=True).replay(profiled, times=40)
    end.wait()
    assert numbers.value() == 40 and told.count == 16
    assert 0 < end.profile.start < end.profile.end
