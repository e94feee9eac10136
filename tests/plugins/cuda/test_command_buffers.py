"""Command-buffers as graphs of CUDA and HIP. The driver of the tests runs what it may run last
first.

So a result is right only if every edge is there.
"""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import pytest
from helpers.ur_calls import NAMES, array

from fairlead.conformance.ur.recording import Update, URRecording
from fairlead.conformance.ur.values import BufferValue
from fairlead.loader.ur.abi import UR
from fairlead.plugins.cuda.core import NOT_READY

from .conftest import COUNT, SIZE, Adapted, Knobs, Work, argument_of


class Recorded:
    """A command-buffer.

    Args:
        work: where it runs.
        flags: `isUpdatable`, `isInOrder`, `enableProfiling`.
    """

    def __init__(self, work: Work, **flags: bool) -> None:
        self.work, self.ur = work, work.ur
        self.recording = URRecording(work.make, **flags)
        self.handle = self.recording.handle

    def append(
        self, name: str, *given: Any, after: tuple[int, ...] = (), waits: tuple[int, ...] = ()
    ) -> tuple[int, int, int]:
        """Append a command. Returns its sync-point, its event and its handle (0 without them)."""
        how: Any = {"after": after, "wait": waits, "event": True, "command": self.updatable}
        made = self.recording.append(f"urCommandBufferAppend{name}Exp", *given, **how)
        return made.point, made.event, made.command

    updatable = False

    def launch(
        self, kernel: int, *values: Any, others: tuple[int, ...] = (), **how: Any
    ) -> tuple[int, int, int]:
        """Append a launch."""
        arguments = list(map(argument_of, values))
        given = self.recording.launch_arguments(kernel, arguments, alternatives=others)
        return self.append("KernelLaunchWithArgs", *given, **how)

    def finalize(self) -> None:
        self.ur.ok("urCommandBufferFinalizeExp", self.handle)

    def run(self, queue: int = 0, event: Any = None) -> None:
        """Enqueue it."""
        given = queue or self.work.queue, self.handle, 0, None, event
        self.ur.ok("urEnqueueCommandBufferExp", *given)


class Updatable(Recorded):
    """A command-buffer that can be updated."""

    updatable = True

    def __init__(self, work: Work, **flags: bool) -> None:
        super().__init__(work, isUpdatable=True, **flags)

    def update(
        self,
        command: int,
        *values: tuple[int, Any],
        kernel: int = 0,
        size: int | tuple[int, ...] = 0,
        offset: int | None = None,
        dimensions: int = 1,
    ) -> str:
        """Give a launch new arguments, each an index with an address or a value."""
        arguments = {index: argument_of(value) for index, value in values}
        start = None if offset is None else (offset,)
        whole = (size,) if isinstance(size, int) else size
        changes = Update(command, arguments, kernel, dimensions, start, whole if size else None)
        return NAMES[self.recording.try_update(changes)]


def test_hints_are_empty_nodes(work: Work, fake: Knobs) -> None:
    """They order what comes after them, and the driver gets no hint."""
    names = "GraphAddEmptyNode", "MemPrefetchAsync", "MemAdvise"
    out, buffer = work.memory("Shared"), Recorded(work)
    before = [fake.calls(name) for name in names]
    last = buffer.launch(work.kernel("add_one"), out)[0]
    read_mostly = UR["UR_USM_ADVICE_FLAG_SET_READ_MOSTLY"]
    for name, value in (("Prefetch", 0), ("Advise", read_mostly)):
        last = buffer.append(f"USM{name}", out, SIZE, value, after=(last,))[0]
    buffer.launch(work.kernel("twice"), out, after=(last,))
    for name in ("Prefetch", "Advise"):
        far = buffer.handle, out + 4, SIZE, 0 if name == "Prefetch" else read_mostly
        rest = 0, None, 0, None, None, None, None
        assert work.ur(f"urCommandBufferAppendUSM{name}Exp", *far, *rest) == "INVALID_SIZE"
    buffer.finalize()
    work.put(out, bytes(SIZE))
    for _ in range(2):
        buffer.run()
    assert work.numbers(out) == [6] * COUNT
    after = [fake.calls(name) for name in names]
    assert [new - old for new, old in zip(after, before, strict=True)] == [2, 0, 0]


@pytest.mark.parametrize(("kind", "hints"), [("Shared", 1), ("Device", 0)])
def test_a_queue_hints_about_shared_memory_alone(
    work: Work, fake: Knobs, kind: str, hints: int
) -> None:
    names, out = ("MemPrefetchAsync", "MemAdvise"), work.memory(kind)
    before = [fake.calls(name) for name in names]
    work.ur.ok("urEnqueueUSMPrefetch", work.queue, out, SIZE, 0)
    read_mostly = UR["UR_USM_ADVICE_FLAG_SET_READ_MOSTLY"]
    work.ur.ok("urEnqueueUSMAdvise", work.queue, out, SIZE, read_mostly)
    assert [fake.calls(name) - old for name, old in zip(names, before, strict=True)] == [hints] * 2


def test_one_executable_is_launched_again(work: Work, fake: Knobs) -> None:
    out, buffer = work.memory(), Recorded(work)
    buffer.launch(work.kernel("add_one"), out)
    before = fake.calls("GraphInstantiateWithFlags"), fake.calls("GraphLaunch")
    buffer.finalize()
    work.put(out, bytes(SIZE))
    for _ in range(5):
        buffer.run()
    assert work.numbers(out) == [5] * COUNT
    after = fake.calls("GraphInstantiateWithFlags"), fake.calls("GraphLaunch")
    assert (after[0] - before[0], after[1] - before[1]) == (1, 5)


def test_what_is_enqueued_runs_as_it_was(work: Work, fake: Knobs) -> None:
    out, buffer = work.memory(), Updatable(work)
    command = buffer.launch(work.kernel("store"), out, ctypes.c_int32(1))[2]
    buffer.finalize()
    fake.hold()
    buffer.run()
    assert buffer.update(command, (1, ctypes.c_int32(2))) == "SUCCESS"
    fake.let_go()
    assert work.numbers(out) == [1] * COUNT
    buffer.run()
    assert work.numbers(out) == [2] * COUNT


def test_an_update_that_the_driver_refuses_changes_nothing(work: Work, fake: Knobs) -> None:
    out, buffer = work.memory(), Updatable(work)
    command = buffer.launch(work.kernel("store"), out, ctypes.c_int32(1))[2]
    buffer.finalize()
    fake.fail("GraphExecKernelNodeSetParams", 1)
    assert buffer.update(command, (1, ctypes.c_int32(2))) == "INVALID_VALUE"
    fake.fail("GraphExecKernelNodeSetParams", 0)
    buffer.run()
    assert work.numbers(out) == [1] * COUNT
    assert buffer.update(command, size=8) == "SUCCESS"  # the refused value is not remembered
    work.put(out, bytes(SIZE))
    buffer.run()
    assert work.numbers(out) == [1] * 8 + [0] * (COUNT - 8)


def test_an_update_of_events_that_the_driver_refuses_changes_nothing(
    work: Work, fake: Knobs, adapted: Adapted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver takes the first of two events, and refuses the second one."""
    buffer, name = Updatable(work), "GraphExecEventWaitNodeSetEvent"
    events = [work.ur.make("urEnqueueEventsWait", work.queue).value or 0 for _ in "1234"]
    given = work.kernel("store"), work.memory(), ctypes.c_int32(1)
    command = buffer.launch(*given, waits=tuple(events[:2]))[2]
    buffer.finalize()
    device, given_events = adapted.module("devices").CuDevice, list[int]()
    call = device.call

    def call_and_note(self: Any, asked: str, *given: Any) -> None:
        if asked == name:
            given_events.append(given[-1])
            fake.fail(name, 1 if len(given_events) == 2 else 0)
        call(self, asked, *given)

    monkeypatch.setattr(device, "call", call_and_note)
    update = "urCommandBufferUpdateWaitEventsExp", command, 2, array(*events[2:])
    assert work.ur(*update) == "INVALID_VALUE"
    known = adapted.module("core").adapter.objects.list_owned("ur_event_handle_t")
    first, _, third, fourth = (known[event].end for event in events)
    assert given_events == [third, fourth, first]
    assert work.ur(*update) == "SUCCESS"


def test_a_command_that_is_not_appended_leaves_no_waits(work: Work, fake: Knobs) -> None:
    """The next command has its number, and waits for nothing that an update could change."""
    buffer, event = Updatable(work), work.ur.make("urEnqueueEventsWait", work.queue)
    kernel, out = work.kernel("store"), work.memory()
    fake.fail("GraphAddKernelNode", 2)
    points = ctypes.c_uint32(), ctypes.c_void_p(), ctypes.c_void_p()
    shape = kernel, 1, (ctypes.c_size_t * 1)(0), (ctypes.c_size_t * 1)(COUNT), None
    given = buffer.handle, *shape, *work.arguments(out, ctypes.c_int32(1)), 0, None, 0, None
    append = "urCommandBufferAppendKernelLaunchWithArgsExp"
    code = work.ur(append, *given, 1, array(event.value or 0), *map(ctypes.byref, points))
    assert code == "OUT_OF_DEVICE_MEMORY"
    fake.fail("GraphAddKernelNode", 0)
    command = buffer.launch(kernel, out, ctypes.c_int32(2))[2]
    buffer.finalize()
    update = "urCommandBufferUpdateWaitEventsExp", command, 1, array(event.value or 0)
    assert work.ur(*update) == "INVALID_EVENT_WAIT_LIST"


def test_a_command_buffer_keeps_the_memory_of_its_launches(work: Work, fake: Knobs) -> None:
    ur, kernel, flag = work.ur, work.kernel("add_one"), UR["UR_MEM_FLAG_READ_WRITE"]
    buffer, memory = Recorded(work), list[int]()
    for _ in range(2):  # the kernel itself only has the second one at the end
        memory.append(ur.make("urMemBufferCreate", work.context, flag, SIZE).value or 0)
        buffer.launch(kernel, BufferValue(memory[-1]))
    buffer.finalize()
    before = fake.calls("MemFree")
    for one in memory:
        ur.ok("urMemRelease", one)
    ur.ok("urKernelRelease", kernel)
    assert fake.calls("MemFree") == before
    ur.ok("urCommandBufferReleaseExp", buffer.handle)
    assert fake.calls("MemFree") == before + 2


def test_a_graph_that_cannot_be_made_executable_stays_open(work: Work, fake: Knobs) -> None:
    out, buffer = work.memory(), Recorded(work)
    buffer.launch(work.kernel("store"), out, ctypes.c_int32(4))
    fake.fail("GraphInstantiateWithFlags", 2)
    assert work.ur("urCommandBufferFinalizeExp", buffer.handle) == "OUT_OF_DEVICE_MEMORY"
    fake.fail("GraphInstantiateWithFlags", 0)
    buffer.finalize()
    buffer.run()
    assert work.numbers(out) == [4] * COUNT


def count_events() -> int:
    gc.collect()
    return sum(type(thing).__name__ == "CuCommandEvent" for thing in gc.get_objects())


def test_events_that_were_replaced_live_until_the_launches_have_ended(
    work: Work, fake: Knobs
) -> None:
    out, buffer, before = work.memory(), Updatable(work), count_events()
    command = buffer.launch(work.kernel("store"), out, ctypes.c_int32(7))[2]
    buffer.finalize()

    def replace() -> None:
        buffer.run()
        work.ur.ok("urQueueFinish", work.queue)
        event = work.ur.make("urCommandBufferUpdateSignalEventExp", command)
        work.ur.ok("urEventRelease", event)

    fake.fail("EventQuery", NOT_READY)
    for _ in range(5):
        replace()
    assert count_events() - before == 6
    fake.fail("EventQuery", 0)
    for _ in range(5):
        replace()
        assert count_events() - before <= 3  # of the graph, the last one, the one before it
    assert work.numbers(out) == [7] * COUNT


@pytest.mark.parametrize("profiling", [False, True])
def test_the_event_of_an_enqueue_has_times_if_the_queue_profiles(
    work: Work, profiling: bool
) -> None:
    queue = work.new_queue("PROFILING_ENABLE" if profiling else "")
    buffer, event = Recorded(work), ctypes.c_void_p()
    buffer.launch(work.kernel("store"), work.memory(), ctypes.c_int32(1))
    buffer.finalize()
    buffer.run(queue, ctypes.byref(event))
    work.ur.ok("urEventWait", 1, array(event))
    name, value = UR["UR_PROFILING_INFO_COMMAND_END"], ctypes.c_uint64()
    given = event, name, 8, ctypes.byref(value), None
    expected = "SUCCESS" if profiling else "PROFILING_INFO_NOT_AVAILABLE"
    assert work.ur("urEventGetProfilingInfo", *given) == expected


def test_a_released_command_buffer_runs_to_its_end(work: Work, fake: Knobs) -> None:
    out, buffer = work.memory(), Recorded(work)
    buffer.launch(work.kernel("store"), out, ctypes.c_int32(9))
    buffer.finalize()
    fake.hold()
    buffer.run()
    work.ur.ok("urCommandBufferReleaseExp", buffer.handle)
    fake.let_go()
    assert work.numbers(out) == [9] * COUNT


@pytest.mark.parametrize("with_child", [False, True])
def test_a_native_command_adds_nodes_between_its_neighbours(
    work: Work, adapted: Adapted, with_child: bool
) -> None:
    out, buffer = work.memory("Host"), Recorded(work)
    child = Recorded(work).handle if with_child else 0
    numbers = (ctypes.c_int32 * COUNT).from_address(out)

    class HostNode(ctypes.Structure):
        _fields_ = (("function", ctypes.c_void_p), ("data", ctypes.c_void_p))

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def work_on_host(data: int | None) -> None:
        for index, value in enumerate(numbers):
            numbers[index] = value * 10

    node = HostNode(ctypes.cast(work_on_host, ctypes.c_void_p).value)
    names = adapted.module("core").NAMES
    add_host_node = getattr(adapted.driver.table, names["GraphAddHostNode"])

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def record(data: int | None) -> None:
        graph = work.ur.make("urCommandBufferGetNativeHandleExp", child or buffer.handle).value
        made, before = ctypes.c_void_p(), (ctypes.c_void_p * 1)()
        for count in (0, 1):  # one after the other
            assert add_host_node(ctypes.byref(made), graph, before, count, ctypes.byref(node)) == 0
            before[0] = made.value

    first = buffer.launch(work.kernel("store"), out, ctypes.c_int32(3))[0]
    point = ctypes.c_uint32()
    given = record, None, child or None, 1, array_of_points(first), ctypes.byref(point)
    work.ur.ok("urCommandBufferAppendNativeCommandExp", buffer.handle, *given)
    buffer.launch(work.kernel("add_one"), out, after=(point.value,))
    buffer.finalize()
    for _ in range(2):
        buffer.run()
    work.ur.ok("urQueueFinish", work.queue)
    assert list(numbers) == [301] * COUNT


def array_of_points(*points: int) -> Any:
    """Return sync-points as an array."""
    return (ctypes.c_uint32 * len(points))(*points)
