"""Engines share a command-buffer: which commands each takes, and that the results are the same.

What a driver's own command-buffers cannot hold is replayed, and explain() says so.
"""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pytest
from helpers.captures import Numbers
from helpers.programs import build_once

from fairlead.captured_graphs.context import capture
from fairlead.icd._native import ffi
from fairlead.icd.command_buffer import choice, execution_plans, planning, waiting
from fairlead.icd.command_buffer.choice import Choice, UnknownEngineError, choose_names
from fairlead.icd.command_buffer.commands import CommandArray, CommandList
from fairlead.icd.command_buffer.engine import BuiltCommands, Cost, Engine, QueueKind
from fairlead.icd.command_buffer.engines.replay import Replay
from fairlead.icd.errors import OpenCLError


class Picky(Replay):
    """Takes launches of one-dimensional work and nothing else; it runs them as the replay does."""

    name = "picky"

    def why_not_command(self, commands: CommandList, number: int, target: QueueKind) -> str | None:
        is_launch = commands.name_operation(number) == "kernel"
        return None if is_launch else f"it is a {commands.name_operation(number)}"


class Unable(Engine):
    """Runs nothing anywhere."""

    name = "unable"

    def why_not(self, commands: CommandList, target: QueueKind) -> str | None:
        return "it is not able to"

    def build(self, commands: CommandList, target: QueueKind) -> BuiltCommands:
        raise AssertionError("nobody asks it to")


class Breaking(Picky):
    """Says that it can, and cannot."""

    name = "breaking"

    def build(self, commands: CommandList, target: QueueKind) -> BuiltCommands:
        raise OpenCLError("it is refused", code="CL_OUT_OF_RESOURCES")


class Priced(Picky):
    """Costs 10 µs an enqueue, and nothing a command."""

    name = "priced"

    def cost(self, target: QueueKind) -> Cost:
        return Cost(10e-6, 0, "known")


class PricedReplay(Replay):
    """Costs 2 µs a command."""

    def cost(self, target: QueueKind) -> Cost:
        return Cost(0, 2e-6, "known")


@pytest.fixture
def more_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engines of this file, before those that there are."""
    mine = {engine.name: engine for engine in (Unable(), Breaking(), Picky())}
    monkeypatch.setattr(choice, "ENGINES", {**mine, **choice.ENGINES})


# --- division, without a driver ---

TARGET = QueueKind(0, 0, 0)


def listed(*operations: str) -> CommandList:
    """Commands of these operations, one after the other."""
    array = CommandArray()
    for number, operation in enumerate(operations):
        before = (number - 1,) if number else ()
        array.add(operation, before, order_only=operation in ("marker", "barrier"))
    return CommandList(0, [0], array.array, array.order, array)


def divided(commands: CommandList, choice: Choice) -> list[tuple[str, int, int]]:
    made = planning.make_plan(commands, TARGET, choice, {})
    return [(part.engine.name, part.first, part.end) for part in made.parts]


def test_an_engine_takes_maximal_runs_and_another_the_rest() -> None:
    choice = Choice([Unable(), Picky(), Replay()])
    commands = listed("kernel", "kernel", "copy", "fill", "kernel")
    assert divided(commands, choice) == [("picky", 0, 2), ("replay", 2, 4), ("picky", 4, 5)]
    made = planning.make_plan(commands, TARGET, choice, {})
    assert made.why["unable"] == "it is not able to"
    assert made.why["picky"] == "command 2: it is a copy"


def test_what_is_there_for_its_order_parts_no_run() -> None:
    choice = Choice([Picky(), Replay()])
    assert divided(listed("kernel", "marker", "kernel"), choice) == [("picky", 0, 3)]
    assert divided(listed("copy", "barrier", "copy"), choice) == [("replay", 0, 3)]
    assert divided(listed(), choice) == [("replay", 0, 0)]


def test_a_run_is_taken_if_it_is_worth_it() -> None:
    choice = Choice([Priced(), PricedReplay()], is_auto=True)
    few, many = ["kernel"] * 5, ["kernel"] * 6
    assert divided(listed(*few, "copy", *many), choice) == [("replay", 0, 6), ("priced", 6, 12)]
    assert divided(listed(*few), choice) == [("replay", 0, 5)]
    made = planning.make_plan(listed(*few), TARGET, choice, {})
    assert "not clearly faster: priced 10.0 µs an enqueue" in made.why["priced"]


def test_a_part_is_numbered_from_0_and_keeps_its_order() -> None:
    array = CommandArray()
    for before in ((), (0,), (0, 1), (1,), (2, 3)):
        array.add("fill", before)
    commands = CommandList(
        0, [0], array.array, array.order, array, externals={1: 2, 3: 1}, exports=[4, 2], first=0
    )
    part = commands.part(2, 5)
    assert part.order.dependencies == [[], [], [0, 1]] and len(part) == 3
    assert (part.externals, part.exports, part.first) == ({1: 1}, [2, 0], None)
    assert commands.part(0, 5) is commands and commands.part(0, 2).wanted_events == [0]


# --- what the variable names ---


def test_engines_are_explained_in_the_order_of_preference(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that are for other drivers, and are not imported here."""
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "auto")
    with capture(numbers.queue) as graph:
        numbers.add(1)
    lines = graph.finalize(fuse=False).explain(numbers.queue).splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(choice.ENGINES)


def test_the_variable_names_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    def names(value: str) -> list[str]:
        monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", value)
        return choose_names()[0]

    every = ["direct", "native", "cuda", "replay"]
    assert names("") == names("auto") == names(" Auto ") == every
    assert not choose_names()[1]
    assert names("native") == names("native, replay") == ["native", "replay"]
    assert names("direct") == ["direct", "replay"]
    assert choose_names()[1] == "FAIRLEAD_COMMAND_BUFFER=direct"
    assert names("replay") == names("replay,native") == ["replay"]
    with pytest.raises(
        UnknownEngineError, match=r"no engine 'warp'.*\n.*auto.*direct, native, cuda, replay"
    ):
        names("native,warp")


def test_an_unknown_name_is_an_error_where_a_graph_begins_or_is_finalized(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with capture(numbers.queue) as graph:
        numbers.add(1)
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "warp")
    with pytest.raises(UnknownEngineError, match="there is no engine 'warp'"):
        graph.finalize()
    with pytest.raises(UnknownEngineError, match="there is no engine 'warp'"):
        capture(numbers.queue)


# --- two engines on a driver ---


@pytest.mark.parametrize("kind", ["queue", "out_of_order"])
def test_parts_follow_each_other(
    request: pytest.FixtureRequest,
    numbers: Numbers,
    monkeypatch: pytest.MonkeyPatch,
    more_engines: None,
    kind: str,
) -> None:
    queue = request.getfixturevalue(kind)
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "unable,picky")
    host = np.zeros(64, np.int32)
    with capture(queue) as graph:
        event = numbers.add(1, queue=queue)
        event = numbers.mul(3, queue=queue, wait_for=[event])
        event = cl.enqueue_copy(queue, host, numbers.buffer, is_blocking=False, wait_for=[event])
        numbers.add(5, queue=queue, wait_for=[event])
    loop = graph.finalize(fuse=False)
    expected, seen = 0, 0
    for times in (1, 3):
        loop.replay(queue, times=times).wait()
        for _ in range(times):
            seen = 3 * (expected + 1)
            expected = seen + 5
        assert (int(host[0]), numbers.value()) == (seen, expected)
    said = [line.split(maxsplit=2) for line in loop.explain(queue).splitlines()]
    assert said[0] == ["4", "commands"]
    assert [row[:2] for row in said[1:]] == [
        ["breaking", "not"],
        ["direct", "not"],
        ["native", "not"],
        ["cuda", "not"],
        ["unable", "not"],
        ["picky", "0–1:"],
        ["picky", "3–3:"],
        ["replay", "2–2:"],
    ]
    assert said[5][2] == "chosen: it is not able to" and "command 2: it is a read" in said[6][2]


@pytest.mark.slow
def test_updates_reach_every_part(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch, more_engines: None
) -> None:
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "picky")
    with capture(numbers.queue) as graph:
        numbers.add(1)
        cl.enqueue_copy(numbers.queue, np.zeros(64, np.int32), numbers.buffer, is_blocking=False)
        numbers.mul(2)
    loop = graph.finalize(updatable=True)
    loop.replay(numbers.queue).wait()
    graph[0].set_arg(1, np.int32(10))
    graph[2].set_arg(1, np.int32(7))
    loop.update([graph[0], graph[2]])
    loop.replay(numbers.queue).wait()
    assert numbers.value() == 7 * (2 + 10)


def test_a_failure_names_the_command_of_the_whole_graph(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch, more_engines: None
) -> None:
    from fairlead.captured_graphs.executable import ReplayError

    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "picky")
    with capture(numbers.queue) as graph:
        numbers.add(1)
        cl.enqueue_copy(numbers.queue, np.zeros(64, np.int32), numbers.buffer, is_blocking=False)
        numbers.mul(2)
        numbers.program.add(numbers.queue, (64,), (1 << 20,), numbers.buffer, np.int32(1))
    with pytest.raises(ReplayError) as caught:
        graph.finalize().replay(numbers.queue)
    assert caught.value.node == 3


def test_times_of_a_graph_of_several_parts(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch, more_engines: None
) -> None:
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "picky")
    profiled = cl.CommandQueue(
        numbers.queue.context, properties=cl.command_queue_properties.PROFILING_ENABLE
    )
    with capture(profiled) as graph:
        cl.enqueue_copy(profiled, np.zeros(64, np.int32), numbers.buffer, is_blocking=False)
        numbers.add(1, queue=profiled)
    end = graph.finalize(enable_profiling=True).replay(profiled, times=2)
    end.wait()
    assert 0 < end.profile.start < end.profile.end


def test_an_engine_that_cannot_build_is_left_out(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch, more_engines: None
) -> None:
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "breaking")
    with capture(numbers.queue) as graph:
        numbers.add(4)
    loop = graph.finalize()
    loop.replay(numbers.queue).wait()
    assert numbers.value() == 4
    assert "  breaking  not chosen: the driver refused it, " in loop.explain(numbers.queue)


class Waiting(Picky):
    """What it builds is only updated through Python, and not before its end."""

    name = "waiting"

    def build(self, commands: CommandList, target: QueueKind) -> BuiltCommands:
        built = super().build(commands, target)
        built.native.update = ffi.NULL
        built.updates_wait = True
        built.update = lambda numbers: 0  # type: ignore[method-assign]
        return built


def test_an_update_waits_where_it_must(numbers: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits in a way that Ctrl-C interrupts: then nothing has changed."""
    monkeypatch.setattr(choice, "ENGINES", {"waiting": Waiting(), **choice.ENGINES})
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "waiting")
    with capture(numbers.queue) as graph:
        numbers.add(1)
    loop = graph.finalize(updatable=True)
    gate = cl.UserEvent(numbers.queue.context)
    end = loop.replay(numbers.queue, wait_for=[gate])
    said: list[int] = []

    def wait(event: int, *how: bool) -> None:
        if not said:
            said.append(end.command_execution_status)
            raise KeyboardInterrupt
        gate.set_status(cl.command_execution_status.COMPLETE)
        waiting.wait(event, *how)
        said.append(end.command_execution_status)

    monkeypatch.setattr(execution_plans, "wait", wait)
    graph[0].set_arg(1, np.int32(2))
    with pytest.raises(KeyboardInterrupt):
        loop.update(graph[0])
    loop.update(graph[0])
    assert said[0] > cl.command_execution_status.COMPLETE == said[1]


@pytest.mark.slow
def test_another_kernel_comes_after_the_last_replay_without_a_wait(numbers: Numbers) -> None:
    with capture(numbers.queue) as graph:
        numbers.add(1)
    source = "kernel void add(global int *a, int n) { a[get_global_id(0)] *= 5 * n; }"
    same_name = build_once(numbers.queue.context, source).add
    with capture(numbers.queue) as other:
        same_name(numbers.queue, (64,), None, numbers.buffer, np.int32(1))
    loop = graph.finalize(updatable=True)
    gate = cl.UserEvent(numbers.queue.context)
    loop.replay(numbers.queue, wait_for=[gate])
    try:
        loop.update(other)
        end = loop.replay(cl.CommandQueue(numbers.queue.context))
        assert end.command_execution_status > cl.command_execution_status.COMPLETE
    finally:
        gate.set_status(cl.command_execution_status.COMPLETE)
    end.wait()
    assert numbers.value() == 5


def test_what_the_extension_lacks_is_replayed(
    queue: cl.CommandQueue, context: cl.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "native")
    buffer, host = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4), np.array([5], np.int32)
    with capture(queue) as graph:
        cl.enqueue_copy(queue, buffer, host, is_blocking=False)
    loop = graph.finalize()
    loop.replay(queue).wait()
    got = np.empty(1, np.int32)
    cl.enqueue_copy(queue, got, buffer)
    assert got[0] == 5
    said = loop.explain(queue)
    assert "replay" in said and ("write" in said or "has no cl_khr_command_buffer" in said)
