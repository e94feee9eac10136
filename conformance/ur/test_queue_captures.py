"""Queues that are captured: what they enqueue becomes a graph, and runs as an executable graph.

Until then nothing of it runs. (Unified Runtime: experimental graph record and replay.)
"""

from __future__ import annotations

import ctypes
from ctypes import byref
from pathlib import Path
from typing import Final

import pytest

from fairlead.conformance.arrays import handles
from fairlead.conformance.checks import equal, rule
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import COUNT, SIZE, URObjects
from fairlead.conformance.ur.values import BufferValue
from fairlead.loader.ur.abi import UR

BEGIN: Final = "urQueueBeginGraphCaptureExp"
INTO: Final = "urQueueBeginCaptureIntoGraphExp"
END: Final = "urQueueEndGraphCaptureExp"
INSTANTIATE: Final = "urGraphInstantiateGraphExp"
DESTROY: Final = "urGraphDestroyExp"
REFUSED: Final = "GRAPH_CAPTURE_UNSUPPORTED"
INTERNAL: Final = "GRAPH_INTERNAL_EVENT"
OUT_OF_ORDER: Final = "OUT_OF_ORDER_EXEC_MODE_ENABLE"


class Captures:
    """Captures of queues, and what their graphs run."""

    def __init__(self, ur: URCalls, make: URObjects) -> None:
        self.ur, self.make = ur, make

    def numbers(self) -> int:
        """Return the handle of a new buffer, which has zeros."""
        made = self.make.buffer()
        self.make.write(self.make.queue(), made, [0] * COUNT)
        return made

    def expect(self, buffer: int, number: int) -> None:
        """Check all numbers of a buffer."""
        equal(self.make.read(self.make.queue(), buffer), [number] * COUNT, "the buffer")

    def launch(
        self, queue: int, name: str, buffer: int, *more: object, after: tuple[int, ...] = ()
    ) -> int:
        """Launch a kernel on a buffer. Returns its event."""
        values = BufferValue(buffer), *more
        return self.make.launch(queue, self.make.kernel(name), *values, after=after)

    def expect_captured(self, *queues: int, captured: bool = True) -> None:
        """Check whether queues are captured."""
        for queue in queues:
            found = ctypes.c_bool()
            self.ur.ok("urQueueIsGraphCaptureEnabledExp", queue, found)
            equal(found.value, captured, "whether the queue is captured")

    def end(self, queue: int) -> int:
        """End a capture. Returns an executable graph, which is all that is left of it."""
        graph = self.ur.new(END, queue)
        made = self.ur.new(INSTANTIATE, graph)
        self.ur.ok(DESTROY, graph)
        return self.make.own("urGraphExecutableGraphDestroyExp", made)

    def run(self, executable: int, queue: int) -> None:
        """Run an executable graph to its end."""
        self.ur.ok("urEnqueueGraphExp", queue, executable)
        self.ur.ok("urQueueFinish", queue)

    def fails_to_wait(self, error: str, queue: int, *events: int) -> None:
        """Check that a command that waits for events answers an error."""
        given = queue, len(events), handles(*events), None
        self.ur.fails("urEnqueueEventsWaitWithBarrier", error, *given)


@pytest.fixture
def captures(ur: URCalls, make: URObjects) -> Captures:
    ur.require("UR_DEVICE_INFO_GRAPH_RECORD_AND_REPLAY_SUPPORT_EXP")
    return Captures(ur, make)


@rule(BEGIN, "nothing that is enqueued runs, and the graph runs all of it each time")
@pytest.mark.parametrize("flags", ["", OUT_OF_ORDER, "PROFILING_ENABLE"])
def test_capture(captures: Captures, ur: URCalls, make: URObjects, flags: str) -> None:
    out, other, queue = captures.numbers(), captures.numbers(), make.queue(flags)
    early = captures.launch(queue, "add_one", other)
    captures.expect_captured(queue, captured=False)
    ur.ok(BEGIN, queue)
    captures.expect_captured(queue)
    shown = ur.new("urQueueGetGraphExp", queue)
    first = captures.launch(queue, "add_one", out)
    second = captures.launch(queue, "add_one", out, after=(first,))
    ur.ok("urEnqueueMemBufferCopy", queue, out, other, 0, 0, SIZE, 1, handles(second))
    make.wait(early)
    captures.expect(other, 1)
    graph, empty = ur.new(END, queue), ctypes.c_bool(True)
    ur.ok("urGraphIsEmptyExp", graph, empty)
    equal((graph, empty.value), (shown, False), "the graph, and whether it is empty")
    captures.expect_captured(queue, captured=False)
    captures.expect(out, 0)
    executable = ur.new(INSTANTIATE, graph)
    for expected in (2, 4, 6):
        captures.run(executable, queue)
        captures.expect(other, expected)
    for routine, made in (("urGraph", graph), ("urGraphExecutableGraph", executable)):
        ur.new(f"{routine}GetNativeHandleExp", made)
    ur.ok("urGraphExecutableGraphDestroyExp", executable)
    ur.ok(DESTROY, graph)
    ur.fails(DESTROY, "INVALID_GRAPH", graph)
    captures.launch(queue, "add_one", out)
    ur.ok("urQueueFinish", queue)
    captures.expect(out, 7)


@rule(BEGIN, "commands of an out-of-order queue have the order of their events and barriers")
def test_order(captures: Captures, ur: URCalls, make: URObjects, out_of_order: int) -> None:
    queue, out, other = out_of_order, captures.numbers(), captures.numbers()
    x = BufferValue(out)
    ur.ok(BEGIN, queue)
    first = captures.launch(queue, "add_one", out)
    one = captures.launch(queue, "add_one", other)
    second = captures.launch(queue, "twice", out, after=(first,))
    captures.launch(queue, "axpy", other, x, ctypes.c_int32(3), after=(one, second))
    make.barrier(queue)
    captures.launch(queue, "twice", other)
    captures.launch(queue, "add_one", out)
    make.barrier(queue)
    captures.launch(queue, "axpy", other, x, ctypes.c_int32(100))
    captures.run(captures.end(queue), queue)
    captures.expect(out, 3)
    captures.expect(other, 2 * (1 + 3 * 2) + 300)


@rule(BEGIN, "queues join by events, and have to be joined again")
@pytest.mark.parametrize("flags", ["", OUT_OF_ORDER])
def test_join(captures: Captures, ur: URCalls, make: URObjects, flags: str) -> None:
    first, second, out = make.queue(flags), make.queue(flags), captures.numbers()
    ur.ok(BEGIN, first)
    begun = captures.launch(first, "add_one", out)
    there = captures.launch(second, "twice", out, after=(begun,))
    captures.expect_captured(first, second)
    captures.launch(first, "add_one", out, after=(there,))
    place = byref(ctypes.c_void_p())
    ur.fails(END, "INVALID_OPERATION", second, place)
    executable = captures.end(first)
    captures.expect_captured(first, second, captured=False)
    captures.run(executable, second)
    captures.expect(out, 3)
    ur.ok(BEGIN, first)
    begun = captures.launch(first, "add_one", out)
    captures.launch(second, "add_one", out, after=(begun,))
    ur.fails(END, "GRAPH_UNJOINED_FORKS", first, place)
    captures.expect_captured(first, second, captured=False)
    captures.launch(second, "add_one", out)
    ur.ok("urQueueFinish", second)
    captures.expect(out, 4)


@rule(BEGIN, "what a capture refuses does not end it")
def test_refusals(captures: Captures, ur: URCalls, make: URObjects, queue: int) -> None:
    out, other, room = captures.numbers(), make.queue(), ctypes.create_string_buffer(SIZE)
    early, place = captures.launch(other, "add_one", out), byref(ctypes.c_void_p())
    ur.ok(BEGIN, queue)
    ur.fails(BEGIN, "INVALID_OPERATION", queue)
    inside = captures.launch(queue, "add_one", out)
    ur.fails("urQueueFinish", REFUSED, queue)
    read = out, True, 0, SIZE, room
    ur.fails("urEnqueueMemBufferRead", REFUSED, queue, *read)
    ur.fails("urEnqueueMemBufferRead", REFUSED, other, *read, 1, handles(inside))
    captures.fails_to_wait(REFUSED, queue, early)
    captures.fails_to_wait(REFUSED, other, early, inside)
    ur.fails("urEnqueueTimestampRecordingExp", REFUSED, queue, False, 0, None, place)
    ur.fails("urEventWait", INTERNAL, 1, handles(inside))
    status = UR["UR_EVENT_INFO_COMMAND_EXECUTION_STATUS"]
    ur.fails("urEventGetInfo", INTERNAL, inside, status, 4, room)
    ur.ok(BEGIN, other)
    captures.fails_to_wait("GRAPH_CAPTURE_MERGE_ATTEMPT", other, inside)
    captures.end(other)
    executable = captures.end(queue)
    ur.fails(END, "COMMAND_LIST_NOT_CAPTURING", queue, place)
    ur.fails("urQueueGetGraphExp", "INVALID_OPERATION", queue, place)
    captures.fails_to_wait(INTERNAL, queue, inside)
    ur.fails("urEventWait", INTERNAL, 1, handles(inside))
    captures.run(executable, queue)
    captures.expect(out, 2)


@rule(INTO, "a graph that is captured into is not used, and calls back when it is destroyed")
def test_graph_in_use(captures: Captures, ur: URCalls, make: URObjects, queue: int) -> None:
    graph, place = ur.new("urGraphCreateExp", make.the_context), byref(ctypes.c_void_p())
    ur.ok(INTO, queue, graph)
    make.release(captures.launch(queue, "add_one", captures.numbers()))
    ur.fails(INTO, "INVALID_GRAPH", make.queue(), graph)
    ur.fails(INSTANTIATE, "INVALID_GRAPH", graph, place)
    equal(ur.new(END, queue), graph, "the graph")
    called: list[int | None] = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(called.append)
    ur.ok("urGraphSetDestructionCallbackExp", graph, callback, 7)
    another, numbers = ur.new("urGraphCreateExp", make.the_context), list[int]()
    for made in (graph, another):
        number = ctypes.c_uint64()
        ur.ok("urGraphGetIdExp", made, number)
        numbers.append(number.value)
    equal(called, [], "the calls before the graph is destroyed")
    for made in (graph, another):
        ur.ok(DESTROY, made)
    equal((called, numbers[0] < numbers[1]), ([7], True), "the calls, and whether numbers grow")


@rule("urGraphDumpContentsExp", "the picture of a graph, also an empty one, is in the language DOT")
@pytest.mark.parametrize("commands", [0, 3])
def test_picture(
    captures: Captures, ur: URCalls, queue: int, tmp_path: Path, commands: int
) -> None:
    file = tmp_path / "graph.dot"
    ur.ok(BEGIN, queue)
    for _ in range(commands):
        captures.launch(queue, "add_one", captures.numbers())
    graph = ur.new(END, queue)
    ur.ok("urGraphDumpContentsExp", graph, str(file).encode())
    equal(file.read_text(encoding="utf-8")[:7], "digraph", "how the picture begins")
    ur.ok(DESTROY, graph)


@rule(INSTANTIATE, "an empty graph runs nothing")
def test_empty(captures: Captures, ur: URCalls, make: URObjects, queue: int) -> None:
    graph = ur.new("urGraphCreateExp", make.the_context)
    executable = ur.new(INSTANTIATE, graph)
    captures.run(executable, queue)
    ur.ok("urGraphExecutableGraphDestroyExp", executable)
    ur.ok(DESTROY, graph)


@rule(DESTROY, "the capture into a graph that is destroyed ends")
def test_destroyed(captures: Captures, ur: URCalls, make: URObjects, queue: int) -> None:
    graph, numbers = ur.new("urGraphCreateExp", make.the_context), captures.numbers()
    ur.ok(INTO, queue, graph)
    captures.launch(queue, "add_one", numbers)
    ur.ok(DESTROY, graph)
    captures.expect_captured(queue, captured=False)
    captures.launch(queue, "add_one", numbers)
    ur.ok("urQueueFinish", queue)
    captures.expect(numbers, 1)


@rule(INSTANTIATE, "memory, kernels and events of a graph may be released before it runs")
def test_released(captures: Captures, ur: URCalls, make: URObjects, queue: int) -> None:
    source, room = make.buffer(), ctypes.create_string_buffer(SIZE)
    kernel, pattern = make.kernel("add_one"), bytes(range(16))
    ur.ok(BEGIN, queue)
    ur.ok("urEnqueueMemBufferFill", queue, source, pattern, len(pattern), 0, SIZE)
    make.release(make.launch(queue, kernel, BufferValue(source)))
    ur.ok("urEnqueueMemBufferRead", queue, source, False, 0, SIZE, room)
    executable = captures.end(queue)
    make.release(source)
    make.release(kernel)
    captures.run(executable, queue)
    added = [number + 1 for number in memoryview(pattern).cast("i")]
    equal(list(memoryview(room.raw).cast("i")), added * (COUNT // 4), "what was read")
