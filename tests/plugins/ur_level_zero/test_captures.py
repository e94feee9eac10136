"""What queues record becomes a graph, by the driver's extension.

PoCL and Intel's driver are captured alike: fairlead's own Level Zero driver records.
"""

from __future__ import annotations

import ctypes
from ctypes import byref
from pathlib import Path

import pytest

from fairlead.conformance.arrays import NO_EVENTS
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import COUNT, SIZE, URObjects
from fairlead.conformance.ur.values import BufferValue
from fairlead.loader.ur.abi import UR
from fairlead.plugins.ur_level_zero.devices import LZDevice
from fairlead.plugins.ur_level_zero.platforms import LZPlatform

_OUT_OF_ORDER = "OUT_OF_ORDER_EXEC_MODE_ENABLE"
REFUSED = "GRAPH_CAPTURE_UNSUPPORTED"
BEGIN, END = "urQueueBeginGraphCaptureExp", "urQueueEndGraphCaptureExp"
INTO = "urQueueBeginCaptureIntoGraphExp"


def value(handle: int) -> ctypes.c_void_p:
    """A handle, as an array of one."""
    return ctypes.c_void_p(handle)


class Captures:
    """Captures of queues, and memory that their commands write."""

    def __init__(self, calls: URCalls, make: URObjects, context: int, program: int) -> None:
        self.calls, self.make, self.context, self.program = calls, make, context, program

    def numbers(self) -> int:
        """A buffer of zeros."""
        made = self.make.buffer(context=self.context)
        self.make.write(self.make.queue(context=self.context), made, [0] * COUNT)
        return made

    def read(self, buffer: int) -> list[int]:
        return self.make.read(self.make.queue(context=self.context), buffer)

    def add_one(self, queue: int, buffer: int, *waits: int) -> int:
        """Launch a kernel that adds 1 to each number. Returns its event."""
        kernel = self.make.kernel("add_one", program=self.program)
        return self.make.launch(queue, kernel, BufferValue(buffer), after=waits)

    def enabled(self, queue: int) -> bool:
        found = ctypes.c_bool()
        self.calls.ok("urQueueIsGraphCaptureEnabledExp", queue, byref(found))
        return found.value

    def end(self, queue: int) -> int:
        """End a capture. Returns an executable graph."""
        graph = self.calls.new(END, queue)
        made = self.calls.new("urGraphInstantiateGraphExp", graph)
        self.calls.ok("urGraphDestroyExp", graph)
        return self.make.own("urGraphExecutableGraphDestroyExp", made)

    def run(self, executable: int, queue: int) -> None:
        self.calls.ok("urEnqueueGraphExp", queue, executable, *NO_EVENTS)
        self.calls.ok("urQueueFinish", queue)


@pytest.fixture
def captures(calls: URCalls, make: URObjects, context: int, program: int) -> Captures:
    return Captures(calls, make, context, program)


@pytest.mark.parametrize("flags", ["", _OUT_OF_ORDER, "PROFILING_ENABLE"])
def test_a_captured_queue_runs_nothing_and_its_graph_runs_all(
    captures: Captures, calls: URCalls, make: URObjects, flags: str
) -> None:
    out, other, queue = captures.numbers(), captures.numbers(), make.queue(flags)
    early = captures.add_one(queue, other)
    assert not captures.enabled(queue)
    calls.ok(BEGIN, queue)
    assert captures.enabled(queue)
    shown = calls.new("urQueueGetGraphExp", queue)
    first = captures.add_one(queue, out)
    second = captures.add_one(queue, out, first)
    calls.ok("urEnqueueMemBufferCopy", queue, out, other, 0, 0, SIZE, 1, byref(value(second)), None)
    make.wait(early)
    assert captures.read(other) == [1] * COUNT, "what came before the capture runs"
    graph, empty = calls.new(END, queue), ctypes.c_bool()
    calls.ok("urGraphIsEmptyExp", graph, byref(empty))
    assert graph == shown and not captures.enabled(queue) and not empty
    assert captures.read(out) == [0] * COUNT
    executable = calls.new("urGraphInstantiateGraphExp", graph)
    for expected in (2, 4, 6):
        captures.run(executable, queue)
        assert captures.read(other) == [expected] * COUNT
    for routine, made in (("urGraph", graph), ("urGraphExecutableGraph", executable)):
        assert calls.new(f"{routine}GetNativeHandleExp", made)
    calls.ok("urGraphExecutableGraphDestroyExp", executable)
    calls.ok("urGraphDestroyExp", graph)
    calls.fails("urGraphDestroyExp", "INVALID_GRAPH", graph)
    captures.add_one(queue, out)
    calls.ok("urQueueFinish", queue)
    assert captures.read(out) == [7] * COUNT


@pytest.mark.parametrize("flags", ["", _OUT_OF_ORDER])
def test_queues_join_by_events_and_have_to_be_joined_again(
    captures: Captures, calls: URCalls, make: URObjects, flags: str
) -> None:
    first, second, out = make.queue(flags), make.queue(flags), captures.numbers()
    calls.ok(BEGIN, first)
    begun = captures.add_one(first, out)
    there = captures.add_one(second, out, begun)
    assert captures.enabled(second)
    captures.add_one(first, out, there)
    place = byref(ctypes.c_void_p())
    calls.fails(END, "INVALID_OPERATION", second, place)
    executable = captures.end(first)
    assert not captures.enabled(first) and not captures.enabled(second)
    captures.run(executable, second)
    assert captures.read(out) == [3] * COUNT
    calls.ok(BEGIN, first)
    captures.add_one(second, out, captures.add_one(first, out))
    calls.fails(END, "GRAPH_UNJOINED_FORKS", first, place)
    assert not captures.enabled(first) and not captures.enabled(second)
    captures.add_one(second, out)
    calls.ok("urQueueFinish", second)
    assert captures.read(out) == [4] * COUNT


def test_what_a_capture_refuses_does_not_end_it(
    captures: Captures, calls: URCalls, make: URObjects, queue: int
) -> None:
    out, other, room = captures.numbers(), make.queue(), ctypes.create_string_buffer(SIZE)
    early, place = captures.add_one(other, out), byref(ctypes.c_void_p())
    buffer = make.command_buffer()
    calls.ok("urCommandBufferFinalizeExp", buffer)
    calls.ok(BEGIN, queue)
    calls.fails(BEGIN, "INVALID_OPERATION", queue)
    inside = captures.add_one(queue, out)
    calls.fails("urQueueFinish", REFUSED, queue)
    read = "urEnqueueMemBufferRead"
    calls.fails(read, REFUSED, queue, out, True, 0, SIZE, room, *NO_EVENTS)
    waits = 1, byref(value(inside)), None
    calls.fails(read, REFUSED, other, out, True, 0, SIZE, room, *waits)
    barrier = "urEnqueueEventsWaitWithBarrier"
    calls.fails(barrier, REFUSED, queue, 1, byref(value(early)), None)
    both = (ctypes.c_void_p * 2)(early, inside)
    calls.fails(barrier, REFUSED, other, 2, both, None)
    calls.fails("urEnqueueTimestampRecordingExp", REFUSED, queue, False, 0, None, place)
    calls.fails("urEnqueueCommandBufferExp", REFUSED, queue, buffer, *NO_EVENTS)
    internal = "GRAPH_INTERNAL_EVENT"
    calls.fails("urEventWait", internal, 1, byref(value(inside)))
    status = UR["UR_EVENT_INFO_COMMAND_EXECUTION_STATUS"]
    calls.fails("urEventGetInfo", internal, inside, status, 4, room, None)
    calls.ok(BEGIN, other)
    calls.fails(barrier, "GRAPH_CAPTURE_MERGE_ATTEMPT", other, *waits)
    captures.end(other)
    executable = captures.end(queue)
    calls.fails(END, "COMMAND_LIST_NOT_CAPTURING", queue, place)
    calls.fails("urQueueGetGraphExp", "INVALID_OPERATION", queue, place)
    calls.fails(barrier, internal, queue, *waits)
    calls.fails("urEventWait", internal, 1, byref(value(inside)))
    captures.run(executable, queue)
    assert captures.read(out) == [2] * COUNT
    calls.ok("urEnqueueCommandBufferExp", queue, buffer, *NO_EVENTS)


def test_a_graph_is_not_used_while_it_is_captured(
    captures: Captures, calls: URCalls, context: int, queue: int, tmp_path: Path
) -> None:
    graph, place = calls.new("urGraphCreateExp", context), byref(ctypes.c_void_p())
    calls.ok(INTO, queue, graph)
    captures.add_one(queue, captures.numbers())
    calls.fails("urGraphInstantiateGraphExp", "INVALID_GRAPH", graph, place)
    assert calls.new(END, queue) == graph
    calls.fails(INTO, "INVALID_GRAPH", queue, graph)
    assert not captures.enabled(queue)
    file = tmp_path / "graph.dot"
    calls.ok("urGraphDumpContentsExp", graph, str(file).encode())
    assert file.read_text().startswith("digraph")
    called: list[int | None] = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(called.append)
    calls.ok("urGraphSetDestructionCallbackExp", graph, callback, 7)
    numbers = [ctypes.c_uint64(), ctypes.c_uint64()]
    another = calls.new("urGraphCreateExp", context)
    for made, number in zip((graph, another), numbers, strict=True):
        calls.ok("urGraphGetIdExp", made, byref(number))
    assert not called
    for made in (graph, another):
        calls.ok("urGraphDestroyExp", made)
    assert called == [7] and numbers[0].value < numbers[1].value


def test_an_empty_graph_runs_nothing(
    calls: URCalls, context: int, queue: int, tmp_path: Path
) -> None:
    graph, file = calls.new("urGraphCreateExp", context), tmp_path / "graph.dot"
    calls.ok("urGraphDumpContentsExp", graph, str(file).encode())
    assert file.read_text().startswith("digraph")
    executable = calls.new("urGraphInstantiateGraphExp", graph)
    calls.ok("urEnqueueGraphExp", queue, executable, *NO_EVENTS, None)
    calls.ok("urQueueFinish", queue)
    calls.ok("urGraphExecutableGraphDestroyExp", executable)
    calls.ok("urGraphDestroyExp", graph)


def test_the_capture_of_a_graph_that_is_destroyed_ends(
    captures: Captures, calls: URCalls, context: int, queue: int
) -> None:
    graph, numbers = calls.new("urGraphCreateExp", context), captures.numbers()
    calls.ok(INTO, queue, graph)
    captures.add_one(queue, numbers)
    calls.ok("urGraphDestroyExp", graph)
    assert not captures.enabled(queue)
    captures.add_one(queue, numbers)
    calls.ok("urQueueFinish", queue)
    assert captures.read(numbers) == [1] * COUNT


def test_what_was_captured_may_be_released(
    captures: Captures, calls: URCalls, make: URObjects, queue: int
) -> None:
    source, out = make.buffer(), ctypes.create_string_buffer(SIZE)
    pattern = bytes(range(16))
    calls.ok(BEGIN, queue)
    fill = queue, source, pattern, len(pattern), 0, SIZE, *NO_EVENTS
    calls.ok("urEnqueueMemBufferFill", *fill)
    make.release(captures.add_one(queue, source))
    calls.ok("urEnqueueMemBufferRead", queue, source, False, 0, SIZE, out, *NO_EVENTS)
    executable = captures.end(queue)
    make.release(source)
    captures.run(executable, queue)
    added = [int.from_bytes(pattern[at : at + 4], "little") + 1 for at in range(0, 16, 4)]
    assert out.raw == b"".join(one.to_bytes(4, "little") for one in added) * (SIZE // 16)


def test_a_driver_without_the_extension(
    calls: URCalls, context: int, queue: int, behind: LZDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "UR_DEVICE_INFO_GRAPH_RECORD_AND_REPLAY_SUPPORT_EXP"
    assert calls.info("urDeviceGetInfo", calls.device, name)
    has = LZPlatform.has
    monkeypatch.setattr(
        LZPlatform, "has", lambda self, name: "Graph" not in name and has(self, name)
    )
    assert not calls.info("urDeviceGetInfo", calls.device, name)
    place = byref(ctypes.c_void_p())
    calls.fails("urGraphCreateExp", "UNSUPPORTED_FEATURE", context, place)
    calls.fails(BEGIN, "UNSUPPORTED_FEATURE", queue)
