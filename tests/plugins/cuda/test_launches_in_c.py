"""Updates and enqueues of graphs of CUDA and HIP in C, and what it leaves to Python."""

from __future__ import annotations

import ctypes
from typing import Any

from helpers.ur_calls import Calls, array

from fairlead.conformance.threads import in_threads
from fairlead.conformance.ur.values import BufferValue, LocalValue
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.devices import PluginDevice

from .conftest import COUNT, SIZE, Knobs, Work
from .test_appends_in_c import Buffer
from .test_captures import Captures
from .test_command_buffers import Recorded, Updatable

UPDATE = "urCommandBufferUpdateKernelLaunchExp"
ENQUEUE = "urEnqueueCommandBufferExp"
FINISH = "urQueueFinish"
_INT = ctypes.c_int32


def _finalized(work: Work, name: str, *values: Any, **how: Any) -> tuple[Updatable, int]:
    """Return a command-buffer of one launch, and the launch's handle."""
    buffer = Updatable(work, isInOrder=True)
    command = buffer.launch(work.kernel(name), *values, **how)[2]
    buffer.finalize()
    return buffer, command


def test_new_values_and_addresses(work: Work, asked: list[str]) -> None:
    out, other, x = (work.memory() for _ in range(3))
    for memory in (out, other):
        work.put(memory, bytes(SIZE))
    work.put(x, bytes(_INT(1)) * COUNT)
    buffer, command = _finalized(work, "axpy", out, x, _INT(1))
    asked.clear()
    assert buffer.update(command, (2, _INT(5))) == "SUCCESS"
    buffer.run()
    assert buffer.update(command, (0, other), (2, _INT(7))) == "SUCCESS"
    buffer.run()
    assert buffer.update(command, (1, other)) == "SUCCESS"  # other += 7 * other
    buffer.run()
    assert UPDATE not in asked
    assert work.numbers(out) == [5] * COUNT
    assert work.numbers(other) == [56] * COUNT


def test_several_updates_in_a_call(work: Work, asked: list[str]) -> None:
    out, buffer, store = work.memory(), Updatable(work), work.kernel("store")
    first = buffer.launch(store, out, _INT(1))
    second = buffer.launch(store, work.memory(), _INT(2), after=(first[0],))
    buffer.finalize()
    value_type = UR.get_struct("ur_exp_command_buffer_update_value_arg_desc_t")
    update_type = UR.get_struct("ur_exp_command_buffer_update_kernel_launch_desc_t")
    numbers = [_INT(number) for number in range(100)]  # more than C has room for on its stack
    rows = (value_type * len(numbers))()
    updates = (update_type * len(numbers))()
    for row, update, number in zip(rows, updates, numbers, strict=True):
        row.argIndex, row.argSize, row.pNewValueArg = 1, 4, ctypes.addressof(number)
        update.hCommand = second[2] if number.value % 2 else first[2]
        update.newWorkDim, update.numNewValueArgs = 1, 1
        update.pNewValueArgList = ctypes.addressof(row)
    asked.clear()
    work.ur.ok(UPDATE, buffer.handle, len(updates), updates)
    assert not asked
    buffer.run()
    assert work.numbers(out) == [98] * COUNT


def test_what_the_driver_refuses_changes_nothing(work: Work, fake: Knobs, asked: list[str]) -> None:
    out, other, buffer = work.memory(), work.memory(), Updatable(work)
    axpy, store = work.kernel("axpy"), work.kernel("store")
    first = buffer.launch(store, out, _INT(4))
    buffer.launch(axpy, other, out, _INT(1), after=(first[0],))
    buffer.finalize()
    fake.fail("GraphExecKernelNodeSetParams", 1)
    asked.clear()
    assert buffer.update(first[2], (0, other), (1, _INT(9))) == "INVALID_VALUE"
    assert asked == [UPDATE]
    fake.heal()
    work.put(other, bytes(SIZE))
    assert buffer.update(first[2]) == "SUCCESS"  # with the arguments of before
    assert asked == [UPDATE]
    buffer.run()
    assert work.numbers(out) == [4] * COUNT
    assert work.numbers(other) == [4] * COUNT


def test_python_knows_what_c_has_changed(work: Work, asked: list[str]) -> None:
    out, other = work.memory(), work.memory()
    store, axpy = work.kernel("store"), work.kernel("axpy")
    buffer = Updatable(work)
    command = buffer.launch(store, out, _INT(1), others=(axpy,))[2]
    buffer.finalize()
    work.put(out, bytes(SIZE))
    assert buffer.update(command, (0, other), (1, _INT(7))) == "SUCCESS"
    asked.clear()
    assert buffer.update(command, size=8) == "SUCCESS"
    assert asked == [UPDATE]
    work.put(other, bytes(SIZE))
    buffer.run()
    assert work.numbers(other) == [7] * 8 + [0] * (COUNT - 8)
    assert buffer.update(command, (0, out), (1, other), (2, _INT(10)), kernel=axpy) == "SUCCESS"
    asked.clear()
    assert buffer.update(command, (2, _INT(20)), kernel=axpy) == "SUCCESS"  # the present one
    assert not asked
    buffer.run()
    assert work.numbers(out) == [140] * 8 + [0] * (COUNT - 8)
    assert buffer.update(command, kernel=store) == "SUCCESS"  # with its arguments of before
    buffer.run()
    assert work.numbers(other) == [7] * 8 + [0] * (COUNT - 8)


def test_buffers_and_local_memory_stay_while_values_change(work: Work, asked: list[str]) -> None:
    flag = UR["UR_MEM_FLAG_READ_WRITE"]
    memory = work.ur.make("urMemBufferCreate", work.context, flag, SIZE).value or 0
    values = BufferValue(memory), LocalValue(4 * COUNT), ctypes.c_int8(2), LocalValue(4 * COUNT)
    buffer, command = _finalized(work, "local_sum", *values)
    asked.clear()
    assert buffer.update(command, (2, ctypes.c_int8(3))) == "SUCCESS"
    assert not asked
    room = ctypes.create_string_buffer(SIZE)
    buffer.run()
    read = work.queue, memory, True, 0, SIZE, room, 0, None, None
    work.ur.ok("urEnqueueMemBufferRead", *read)
    numbers = list((_INT * COUNT).from_buffer_copy(room.raw))
    groups = COUNT // 64 or 1
    assert numbers == [sum(range(64)) * groups + 3 * 64] * COUNT


def test_wrong_updates_are_pythons_and_change_nothing(work: Work, asked: list[str]) -> None:
    out, x = work.memory(), work.memory()
    buffer, command = _finalized(work, "axpy", out, x, _INT(1))
    other = _finalized(work, "store", out, _INT(1))[1]
    bad = "INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP"
    for code, handle, values in (
        ("INVALID_KERNEL_ARGUMENT_SIZE", command, ((2, ctypes.c_int64(1)),)),
        ("INVALID_KERNEL_ARGUMENT_SIZE", command, ((2, out),)),
        ("INVALID_KERNEL_ARGUMENT_INDEX", command, ((0, x), (3, _INT(1)))),
        (bad, other, ((1, _INT(1)),)),
        (bad, command + 8, ()),
        ("INVALID_NULL_HANDLE", 0, ()),
    ):
        asked.clear()
        assert buffer.update(handle, *values) == code
        assert asked == [UPDATE]
    work.put(out, bytes(SIZE))
    work.put(x, bytes(_INT(3)) * COUNT)
    buffer.run()
    assert work.numbers(out) == [3] * COUNT
    fixed = Recorded(work)
    fixed.launch(work.kernel("store"), out, _INT(1))
    fixed.finalize()
    update = UR.get_struct("ur_exp_command_buffer_update_kernel_launch_desc_t")(hCommand=command)
    assert work.ur(UPDATE, fixed.handle, 1, ctypes.byref(update)) == "INVALID_OPERATION"
    assert work.ur(UPDATE, buffer.handle, 0, ctypes.byref(update)) == "INVALID_SIZE"


def test_threads_update_and_enqueue_one_command_buffer(work: Work) -> None:
    out, x = work.memory(), work.memory()
    work.put(out, bytes(SIZE))
    work.put(x, bytes(_INT(1)) * COUNT)
    buffer, command = _finalized(work, "axpy", out, x, _INT(1))

    def run(_: int) -> None:
        for _ in range(25):
            assert buffer.update(command, (2, _INT(3))) == "SUCCESS"
            buffer.run()
            assert buffer.update(command, size=COUNT) == "SUCCESS"  # Python's

    in_threads(4, run)
    assert work.numbers(out) == [300] * COUNT


def _three(work: Work, out: int) -> Buffer:
    """Return a finalized command-buffer that adds 3, whose commands have no events."""
    buffer, kernel = Buffer(work, isInOrder=True), work.kernel("add_one")
    for _ in range(3):
        buffer.add(kernel, out)
    buffer.finalize()
    return buffer


def test_enqueues_after_the_first_one_and_waits_are_cs(work: Work, asked: list[str]) -> None:
    out = work.memory()
    work.put(out, bytes(SIZE))
    buffer, second = _three(work, out), work.new_queue()
    asked.clear()
    buffer.run()
    assert asked == [ENQUEUE]  # Python tells the log how it runs
    for queue in (work.queue, second, work.queue):
        buffer.run(queue)
        work.ur.ok(FINISH, queue)
    assert asked == [ENQUEUE]
    assert work.numbers(out) == [12] * COUNT


def test_an_updated_graph_is_enqueued_as_it_is_then(work: Work, asked: list[str]) -> None:
    out, x, buffer = work.memory(), work.memory(), Updatable(work)
    work.put(out, bytes(SIZE))
    work.put(x, bytes(_INT(1)) * COUNT)
    command = ctypes.c_void_p()
    whole = (ctypes.c_size_t * 1)(COUNT)
    values = work.arguments(out, x, _INT(1))
    rest = 0, None, 0, None, 0, None, None, None, ctypes.byref(command)
    given = buffer.handle, work.kernel("axpy"), 1, None, whole, None, *values, *rest
    work.ur.ok("urCommandBufferAppendKernelLaunchWithArgsExp", *given)
    buffer.finalize()
    buffer.run()
    asked.clear()
    for factor in (10, 100):
        assert buffer.update(command.value or 0, (2, _INT(factor))) == "SUCCESS"
        buffer.run()
    assert not asked
    assert work.numbers(out) == [111] * COUNT


def test_other_enqueues_are_pythons(work: Work, asked: list[str]) -> None:
    out, event = work.memory(), ctypes.c_void_p()
    work.put(out, bytes(SIZE))
    buffer, free = _three(work, out), work.new_queue("OUT_OF_ORDER_EXEC_MODE_ENABLE")
    buffer.run()
    asked.clear()
    buffer.run(event=ctypes.byref(event))
    work.ur.ok(ENQUEUE, free, buffer.handle, 1, array(event))
    assert asked == [ENQUEUE] * 2
    buffer.run(free)
    work.ur.ok(FINISH, free)
    assert asked == [ENQUEUE] * 3 + [FINISH]
    assert work.numbers(out) == [12] * COUNT
    signals = Recorded(work)
    signals.launch(work.kernel("add_one"), out)
    signals.finalize()
    asked.clear()
    for _ in range(2):
        signals.run()  # its launch has an event, which is of the last queue
    assert asked == [ENQUEUE] * 2
    assert work.numbers(out) == [14] * COUNT


def test_a_captured_queue_is_pythons(work: Work, asked: list[str]) -> None:
    out, captures = work.memory(), Captures(work)
    work.put(out, bytes(SIZE))
    buffer = _three(work, out)
    buffer.run()
    assert captures.begin(work.queue) == "SUCCESS"
    asked.clear()
    buffer.run()
    assert asked == [ENQUEUE]
    assert work.ur(FINISH, work.queue) == "GRAPH_CAPTURE_UNSUPPORTED"
    executable = captures.executable(captures.end(work.queue))
    assert work.numbers(out) == [3] * COUNT
    asked.clear()
    buffer.run()
    work.ur.ok(FINISH, work.queue)
    assert not asked
    captures.run(executable)
    assert work.numbers(out) == [9] * COUNT


def test_wrong_enqueues_are_explained(
    work: Work, ur: Calls, device: PluginDevice, fake: Knobs, asked: list[str]
) -> None:
    out = work.memory()
    buffer, other = _three(work, out), ur.make("urContextCreate", 1, array(device.handle))
    buffer.run()
    elsewhere = Work(ur, device.handle, other.value or 0)
    assert ur(ENQUEUE, elsewhere.queue, buffer.handle) == "INVALID_CONTEXT"
    open_one = Buffer(work)
    assert ur(ENQUEUE, work.queue, open_one.handle) == "INVALID_OPERATION"
    calls: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
        ("GraphLaunch", ENQUEUE, (work.queue, buffer.handle, 0, None, None)),
        ("StreamSynchronize", FINISH, (work.queue,)),
    )
    for name, entry, given in calls:
        asked.clear()
        fake.fail(name, 2)  # CUDA_ERROR_OUT_OF_MEMORY and hipErrorOutOfMemory
        assert ur(entry, *given) == "OUT_OF_DEVICE_MEMORY"
        assert asked == [entry]
        fake.heal()
        ur.ok(entry, *given)
        assert asked == [entry]
