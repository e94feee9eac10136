"""Native recording: what queues enqueue becomes a graph of the driver.

The driver of the tests runs what it may run last first, so a result is right only if every edge is
there. That of HIP 5.2 cannot capture into a graph, and so makes child graphs.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
from helpers.ur_calls import array

from fairlead.conformance.ur.values import BufferValue
from fairlead.loader.ur.abi import UR

from .conftest import COUNT, SIZE, Adapted, Knobs, Work
from .test_appends_in_c import Buffer, UpdatableBuffer
from .test_command_buffers import Updatable

_OUT_OF_ORDER = "OUT_OF_ORDER_EXEC_MODE_ENABLE"


class Captures:
    """Captures on an adapter."""

    def __init__(self, work: Work) -> None:
        self.work, self.ur = work, work.ur

    def begin(self, queue: int, graph: int = 0) -> str:
        """Begin a capture, also into a graph. Returns the code."""
        if graph:
            return self.ur("urQueueBeginCaptureIntoGraphExp", queue, graph)
        return self.ur("urQueueBeginGraphCaptureExp", queue)

    def end(self, queue: int) -> int:
        """End a capture. Returns the graph."""
        return self.ur.make("urQueueEndGraphCaptureExp", queue).value or 0

    def enabled(self, queue: int) -> bool:
        found = ctypes.c_bool()
        self.ur.ok("urQueueIsGraphCaptureEnabledExp", queue, found)
        return found.value

    def new_graph(self) -> int:
        return self.ur.make("urGraphCreateExp", self.work.context).value or 0

    def is_empty(self, graph: int) -> bool:
        found = ctypes.c_bool()
        self.ur.ok("urGraphIsEmptyExp", graph, found)
        return found.value

    def executable(self, graph: int) -> int:
        return self.ur.make("urGraphInstantiateGraphExp", graph).value or 0

    def run(self, executable: int, queue: int = 0) -> None:
        self.ur.ok("urEnqueueGraphExp", queue or self.work.queue, executable)

    def launch(
        self, queue: int, kernel: int, *values: Any, waits: tuple[int, ...] = (), code: str = ""
    ) -> int:
        """Launch a kernel, and return its event."""
        work, event = self.work, ctypes.c_void_p()
        shape = 1, (ctypes.c_size_t * 1)(0), (ctypes.c_size_t * 1)(COUNT), None
        events = len(waits), array(*waits) if waits else None
        given = queue, kernel, *shape, *work.arguments(*values), None, *events, ctypes.byref(event)
        assert self.ur("urEnqueueKernelLaunchWithArgsExp", *given) == (code or "SUCCESS")
        return event.value or 0

    def barrier(self, queue: int, *waits: int) -> None:
        given = len(waits), array(*waits) if waits else None, None
        self.ur.ok("urEnqueueEventsWaitWithBarrier", queue, *given)


def function(adapted: Adapted, name: str) -> Any:
    """Return a function of the driver by its neutral name."""
    return getattr(adapted.driver.table, adapted.module("core").NAMES[name])


@pytest.fixture
def captures(work: Work) -> Captures:
    return Captures(work)


def test_independent_commands_are_not_ordered(
    work: Work, captures: Captures, tmp_path: Path
) -> None:
    queue, add = work.new_queue(_OUT_OF_ORDER), work.kernel("add_one")
    assert captures.begin(queue) == "SUCCESS"
    for _ in range(3):
        captures.launch(queue, add, work.memory())
    graph, file = captures.end(queue), tmp_path / "graph.dot"
    code = work.ur("urGraphDumpContentsExp", graph, str(file).encode())
    if code == "UNSUPPORTED_FEATURE":
        pytest.skip("this driver prints no graphs")
    assert code == "SUCCESS" and "->" not in file.read_text()
    missing = str(tmp_path / "none/graph.dot").encode()
    assert work.ur("urGraphDumpContentsExp", graph, missing) != "SUCCESS"


def test_captures_into_a_graph_follow_each_other(work: Work, captures: Captures) -> None:
    out, graph, queue = work.memory(), captures.new_graph(), work.new_queue()
    work.put(out, bytes(SIZE))
    assert captures.is_empty(graph)
    for name, where in (("add_one", work.queue), ("twice", queue), ("add_one", work.queue)):
        assert captures.begin(where, graph) == "SUCCESS"
        captures.launch(where, work.kernel(name), out)
        assert captures.end(where) == graph
    work.ur.ok("urGraphDestroyExp", captures.new_graph())
    executable = captures.executable(graph)
    captures.run(executable)
    assert work.numbers(out) == [3] * COUNT
    numbers = []
    for one in (graph, captures.new_graph()):
        number = ctypes.c_uint64()
        work.ur.ok("urGraphGetIdExp", one, number)
        numbers.append(number.value)
    assert numbers[0] < numbers[1]


def test_a_capture_that_the_driver_gives_up_is_said_so(
    work: Work, captures: Captures, adapted: Adapted
) -> None:
    graph = captures.new_graph()
    assert captures.begin(work.queue, graph) == "SUCCESS"
    captures.launch(work.queue, work.kernel("add_one"), work.memory())
    stream = work.ur.make("urQueueGetNativeHandle", work.queue).value
    assert function(adapted, "StreamSynchronize")(stream)  # no capture allows it
    made = ctypes.byref(ctypes.c_void_p())
    code = work.ur("urQueueEndGraphCaptureExp", work.queue, made)
    assert code == "GRAPH_CAPTURE_INVALIDATED" and not captures.enabled(work.queue)
    assert work.ur("urGraphInstantiateGraphExp", graph, made) == "INVALID_GRAPH"


def test_a_queue_that_shares_its_stream_captures_alone(
    work: Work, captures: Captures, fake: Knobs
) -> None:
    queues = [work.new_queue() for _ in range(16)]
    out, kernel = work.memory(), work.kernel("add_one")
    work.put(out, bytes(SIZE))
    made: list[int] = []
    for queue in queues:
        assert captures.begin(queue) == "SUCCESS"
        captures.launch(queue, kernel, out)
        for other in (*queues, work.queue):
            if other != queue:
                captures.launch(other, kernel, out)
                work.ur.ok("urQueueFinish", other)
        captures.end(queue)
        made.append(fake.calls("StreamCreateWithPriority"))
    assert work.numbers(out) == [16 * 16] * COUNT
    assert made[0] == made[-1]
    for queue in queues:
        work.ur.ok("urQueueRelease", queue)


@pytest.mark.parametrize("flags", ["", _OUT_OF_ORDER])
@pytest.mark.parametrize("events", [False, True])
def test_a_command_buffer_in_a_capture_becomes_one_node(
    work: Work, captures: Captures, flags: str, events: bool
) -> None:
    out, buffer, queue = work.memory(), Buffer(work, isInOrder=True), work.new_queue(flags)
    work.put(out, bytes(SIZE))
    for name in ("add_one", "twice"):
        (buffer.launch if events else buffer.add)(work.kernel(name), out)
    buffer.finalize()
    assert captures.begin(queue) == "SUCCESS"
    buffer.run(queue)
    captures.barrier(queue)
    captures.launch(queue, work.kernel("add_one"), out)
    captures.barrier(queue)
    buffer.run(queue)
    executable = captures.executable(captures.end(queue))
    assert work.numbers(out) == [0] * COUNT
    captures.run(executable)
    assert work.numbers(out) == [8] * COUNT


def test_an_updated_command_buffer_is_captured_as_it_is_then(
    work: Work, captures: Captures
) -> None:
    out, buffer = work.memory(), Updatable(work)
    command = buffer.launch(work.kernel("store"), out, ctypes.c_int32(1))[2]
    buffer.finalize()
    assert buffer.update(command, (1, ctypes.c_int32(5))) == "SUCCESS"
    assert captures.begin(work.queue) == "SUCCESS"
    buffer.run()
    executable = captures.executable(captures.end(work.queue))
    assert buffer.update(command, (1, ctypes.c_int32(6))) == "SUCCESS"
    captures.run(executable)
    assert work.numbers(out) == [5] * COUNT
    buffer.run()
    assert work.numbers(out) == [6] * COUNT
    work.ur.make("urCommandBufferUpdateSignalEventExp", command)
    assert captures.begin(work.queue) == "SUCCESS"
    given = work.queue, buffer.handle, 0, None, None
    assert work.ur("urEnqueueCommandBufferExp", *given) == "GRAPH_CAPTURE_UNSUPPORTED"
    captures.end(work.queue)


def test_a_graph_in_a_capture_becomes_one_node(work: Work, captures: Captures) -> None:
    ur, out, inner = work.ur, work.memory(), captures.new_graph()
    work.put(out, bytes(SIZE))
    assert captures.begin(work.queue, inner) == "SUCCESS"
    captures.launch(work.queue, work.kernel("add_one"), out)
    captures.end(work.queue)
    executable = captures.executable(inner)
    assert captures.begin(work.queue) == "SUCCESS"
    captures.run(executable)
    captures.launch(work.queue, work.kernel("twice"), out)
    captures.run(executable)
    outer = captures.executable(captures.end(work.queue))
    captures.run(outer)
    assert work.numbers(out) == [3] * COUNT
    ur.ok("urGraphDestroyExp", inner)
    captures.run(executable)
    assert captures.begin(work.queue) == "SUCCESS"
    given = work.queue, executable, 0, None, None
    assert ur("urEnqueueGraphExp", *given) == "GRAPH_CAPTURE_UNSUPPORTED"
    captures.end(work.queue)
    captures.run(outer)
    assert work.numbers(out) == [(4 + 1) * 2 + 1] * COUNT


@pytest.mark.parametrize("flags", ["", _OUT_OF_ORDER, f"PROFILING_ENABLE {_OUT_OF_ORDER}"])
def test_native_commands_are_captured_in_order(
    work: Work, captures: Captures, adapted: Adapted, flags: str
) -> None:
    """The native function enqueues on the native stream, which is captured."""
    queue, out = work.new_queue(flags), work.memory()
    work.put(out, bytes(SIZE))
    memset = function(adapted, "MemsetD8Async")

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
    def enqueue(handle: int, data: int | None) -> None:
        stream = work.ur.make("urQueueGetNativeHandle", handle).value
        assert memset(out, 1, SIZE, stream) == 0

    assert captures.begin(queue) == "SUCCESS"
    captures.launch(queue, work.kernel("store"), out, ctypes.c_int32(5))
    work.ur.ok("urEnqueueNativeCommandExp", queue, enqueue)
    captures.launch(queue, work.kernel("add_one"), out)
    executable = captures.executable(captures.end(queue))
    for _ in range(2):
        captures.run(executable)
    assert work.numbers(out) == [0x01010102] * COUNT


def test_a_capture_has_what_c_has_updated(work: Work, captures: Captures) -> None:
    out, x, buffer = work.memory(), work.memory(), UpdatableBuffer(work, isInOrder=True)
    commands = buffer.commands(work.kernel("axpy"), out, x, ctypes.c_int32(1))
    buffer.finalize()
    assert buffer.update(commands[2], (2, ctypes.c_int32(40))) == "SUCCESS"
    captures.begin(work.queue)
    buffer.run()
    executable = captures.executable(captures.end(work.queue))
    work.put(out, bytes(SIZE))
    work.put(x, bytes(ctypes.c_int32(1)) * COUNT)
    captures.run(executable)
    assert work.numbers(out) == [42] * COUNT


def test_a_graph_keeps_the_memory_of_its_launches(
    work: Work, captures: Captures, fake: Knobs
) -> None:
    ur, kernel, flag = work.ur, work.kernel("add_one"), UR["UR_MEM_FLAG_READ_WRITE"]
    buffers = [ur.make("urMemBufferCreate", work.context, flag, SIZE).value or 0 for _ in range(2)]
    assert captures.begin(work.queue) == "SUCCESS"
    for buffer in buffers:  # the kernel itself only has the second one at the end
        work.launch(kernel, BufferValue(buffer))
    graph = captures.end(work.queue)
    before = fake.calls("MemFree")
    for buffer in buffers:
        ur.ok("urMemRelease", buffer)
    ur.ok("urKernelRelease", kernel)
    assert fake.calls("MemFree") == before
    ur.ok("urGraphDestroyExp", graph)
    assert fake.calls("MemFree") == before + 2


def test_a_queue_that_cannot_join_a_capture_is_not_captured(
    work: Work, captures: Captures, fake: Knobs
) -> None:
    first, second, out = work.new_queue(), work.new_queue(), work.memory()
    assert captures.begin(first) == "SUCCESS"
    begun = captures.launch(first, work.kernel("store"), out, ctypes.c_int32(1))
    fake.fail("StreamWaitEvent", 2)
    assert work.ur("urEnqueueEventsWait", second, 1, array(begun)) == "OUT_OF_DEVICE_MEMORY"
    fake.fail("StreamWaitEvent", 0)
    assert not captures.enabled(second)
    captures.launch(second, work.kernel("store"), out, ctypes.c_int32(2))
    work.ur.ok("urQueueFinish", second)
    assert work.numbers(out) == [2] * COUNT
    captures.end(first)
