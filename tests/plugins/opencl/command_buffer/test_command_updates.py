"""Updates of command-buffers of the reference adapter, replayed and native, on every driver."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest
from helpers.command_bench import COUNT, Bench, bumped, local, memory, pointer, sizes, update, value
from helpers.ur_calls import array

from fairlead.icd._native import lib
from fairlead.icd.command_buffer import execution_plans
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.devices import PluginDevice
from fairlead.plugins.opencl.core import adapter as reference


def test_arguments_and_sizes_are_updated(bench: Bench, mode: str) -> None:
    ur, buffer = bench.ur, bench.buffer(updatable=True)
    _, command = bench.launch(buffer, "bump", pointer(bench.address), value(1), handle=True)
    bench.launch(buffer, "bump", pointer(bench.address), value(2))
    bench.finalize(buffer)
    start = list(range(COUNT))
    assert bench.run(buffer, 2) == bumped(start, 1, 2, 1, 2)
    for add in (10, 20):
        bench.reset()
        assert bench.update(buffer, update(command, values={1: ctypes.c_int(add)})) == "SUCCESS"
        assert bench.run(buffer, 2) == bumped(start, add, 2, add, 2)
    bench.reset()
    assert bench.update(buffer, update(command, pNewGlobalWorkSize=sizes(4))) == "SUCCESS"
    assert bench.run(buffer) == bumped(bumped(start[:4], 20) + start[4:], 2)
    other = ur.make("urUSMSharedAlloc", bench.context, bench.device, None, None, 4 * COUNT)
    cells = (ctypes.c_int * COUNT).from_address(other.value or 0)
    cells[:] = start
    bench.reset()
    assert bench.update(buffer, update(command, pointers={0: other.value})) == "SUCCESS"
    assert bench.run(buffer) == bumped(start, 2)
    assert list(cells) == bumped(start[:4], 20) + start[4:]
    ur.ok("urCommandBufferReleaseExp", buffer)
    ur.ok("urUSMFree", bench.context, other)


def test_a_launch_can_become_one_of_nothing_and_back(bench: Bench) -> None:
    ur, buffer = bench.ur, bench.buffer(updatable=True)
    _, command = bench.launch(buffer, "bump", pointer(bench.address), value(1), handle=True)
    bench.finalize(buffer)
    start = list(range(COUNT))
    for size, expected in ((0, start), (COUNT, bumped(start, 1)), (0, start)):
        assert bench.update(buffer, update(command, pNewGlobalWorkSize=sizes(size))) == "SUCCESS"
        bench.reset()
        assert bench.run(buffer) == expected
    ur.ok("urCommandBufferReleaseExp", buffer)


def test_local_memory_and_local_size_are_updated(bench: Bench, mode: str) -> None:
    buffer = bench.buffer(updatable=True)
    _, command = bench.launch(
        buffer, "sum", pointer(bench.address), local(4 * 4), local_size=sizes(4), handle=True
    )
    bench.finalize(buffer)
    totals = [sum(range(4 * i, 4 * i + 4)) for i in range(4)]
    assert bench.run(buffer)[::4] == totals
    bench.reset()
    assert (
        bench.update(buffer, update(command, locals={1: 4 * 8}, pNewLocalWorkSize=sizes(8)))
        == "SUCCESS"
    )
    assert bench.run(buffer)[::8] == [sum(range(8)), sum(range(8, 16))]
    bench.ur.ok("urCommandBufferReleaseExp", buffer)


def test_the_number_of_dimensions_is_updated(bench: Bench, mode: str) -> None:
    buffer = bench.buffer(updatable=True)
    _, command = bench.launch(buffer, "where", pointer(bench.address), offset=sizes(2), handle=True)
    bench.finalize(buffer)
    assert bench.run(buffer) == list(range(2, 2 + COUNT))
    two = {"newWorkDim": 2, "pNewGlobalWorkOffset": sizes(1, 3), "pNewGlobalWorkSize": sizes(4, 4)}
    assert (
        bench.update(buffer, update(command, newWorkDim=2, pNewGlobalWorkSize=sizes(4, 4)))
        == "INVALID_VALUE"
    )
    assert bench.update(buffer, update(command, **two)) == "SUCCESS"
    assert bench.run(buffer) == [
        100 * row + column for row in range(3, 7) for column in range(1, 5)
    ]
    bench.ur.ok("urCommandBufferReleaseExp", buffer)


def test_the_kernel_is_updated_to_an_alternative_and_back(bench: Bench) -> None:
    buffer = bench.buffer(updatable=True)
    _, command = bench.launch(
        buffer, "bump", pointer(bench.address), value(1), others=("scale",), handle=True
    )
    bench.launch(buffer, "bump", pointer(bench.address), value(4))
    bench.finalize(buffer)
    start, kernels = list(range(COUNT)), bench.kernels
    everything = {"pointers": {0: bench.address}, "values": {1: ctypes.c_int(5)}}
    assert bench.run(buffer, 2) == bumped(start, 1, 4, 1, 4)
    assert (
        bench.update(buffer, update(command, hNewKernel=kernels["sum"], **everything))
        == "INVALID_VALUE"
    )
    assert (
        bench.update(
            buffer, update(command, hNewKernel=kernels["scale"], values={1: ctypes.c_int(5)})
        )
        == "INVALID_VALUE"
    )
    assert (
        bench.update(buffer, update(command, hNewKernel=kernels["scale"], **everything))
        == "SUCCESS"
    )
    bench.reset()
    assert bench.run(buffer, 2) == bumped(
        [5 * cell for cell in bumped([5 * cell for cell in start], 4)], 4
    )
    assert (
        bench.update(buffer, update(command, hNewKernel=kernels["bump"], **everything)) == "SUCCESS"
    )
    bench.reset()
    assert bench.run(buffer, 2) == bumped(start, 5, 4, 5, 4)
    bench.ur.ok("urCommandBufferReleaseExp", buffer)


def test_a_kernel_is_restored_without_its_arguments(bench: Bench) -> None:
    """It has those that it was launched with last."""
    buffer, kernels = bench.buffer(updatable=True), bench.kernels
    _, command = bench.launch(
        buffer, "bump", pointer(bench.address), value(3), others=("scale",), handle=True
    )
    bench.finalize(buffer)
    start, everything = (
        list(range(COUNT)),
        {"pointers": {0: bench.address}, "values": {1: ctypes.c_int(5)}},
    )
    scaled = [5 * cell for cell in start]
    for name, given, expected in (
        ("scale", everything, scaled),
        ("bump", {}, bumped(start, 3)),
        ("scale", {}, scaled),
        ("bump", {"values": {1: ctypes.c_int(4)}}, bumped(start, 4)),
    ):
        change = update(command, hNewKernel=kernels[name], **given)
        assert bench.update(buffer, change) == "SUCCESS"
        bench.reset()
        assert bench.run(buffer) == expected
    bench.ur.ok("urCommandBufferReleaseExp", buffer)


def test_other_kernels_come_before_other_arguments(
    bench: Bench, free_queue: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the changes of one update: a launch that follows one of a kernel with more arguments has
    no room for these before. In every plan that there is."""
    order: list[bool] = []

    class Watched:
        def __getattr__(self, name: str) -> Any:
            return getattr(lib, name)

        def fl_update_buffer(self, buffer: Any, command: int, relaunched: bool) -> int:
            order.append(relaunched)
            return lib.fl_update_buffer(buffer, command, relaunched)

    monkeypatch.setattr(execution_plans, "lib", Watched())
    buffer = bench.buffer(updatable=True)
    _, sized = bench.launch(buffer, "bump", pointer(bench.address), value(1), handle=True)
    _, other = bench.launch(
        buffer, "bump", pointer(bench.address), value(2), others=("many",), handle=True
    )
    bench.launch(buffer, "many", pointer(bench.address), *map(value, range(5)))
    bench.finalize(buffer)
    start = list(range(COUNT))
    for queue in (bench.queue, free_queue):
        bench.reset()
        assert bench.run(buffer, queue=queue) == [cell + 10 for cell in bumped(start, 1, 2)]
    everything = {
        "pointers": {0: bench.address},
        "values": {i: ctypes.c_int(10 * i) for i in range(1, 6)},
    }
    smaller = update(sized, pNewGlobalWorkSize=sizes(4), values={1: ctypes.c_int(7)})
    assert (
        bench.update(buffer, smaller, update(other, hNewKernel=bench.kernels["many"], **everything))
        == "SUCCESS"
    )
    assert order == [True, False]
    for queue in (bench.queue, free_queue):
        bench.reset()
        expected = start
        for _ in range(2):
            expected = [cell + 160 for cell in bumped(expected[:4], 7) + expected[4:]]
        assert bench.run(buffer, 2, queue) == expected
    bench.ur.ok("urCommandBufferReleaseExp", buffer)


def test_a_memory_argument_becomes_null_and_memory_again(bench: Bench) -> None:
    ur, cells = bench.ur, (ctypes.c_int * COUNT)(*range(COUNT))
    create = ("urMemBufferCreate", bench.context, UR["UR_MEM_FLAG_READ_WRITE"], 4 * COUNT, None)
    held = ur.make(*create).value or 0
    buffer = bench.buffer(updatable=True)
    _, command = bench.launch(buffer, "bump", memory(held), value(1), handle=True)
    bench.finalize(buffer)
    assert bench.update(buffer, update(command, memory={0: None})) == "SUCCESS"
    assert bench.update(buffer, update(command, memory={0: held})) == "SUCCESS"
    ur.ok("urEnqueueMemBufferWrite", bench.queue, held, True, 0, 4 * COUNT, cells, 0, None, None)
    bench.run(buffer)
    ur.ok("urEnqueueMemBufferRead", bench.queue, held, True, 0, 4 * COUNT, cells, 0, None, None)
    assert list(cells) == bumped(list(range(COUNT)), 1)
    ur.ok("urCommandBufferReleaseExp", buffer)
    ur.ok("urMemRelease", held)


def test_a_kernel_is_copied_under_its_lock(bench: Bench) -> None:
    """Another thread may launch it, and sets its arguments before."""
    registry = reference.registry
    assert registry is not None
    kernel = registry.list_owned("ur_kernel_handle_t")[bench.kernels["bump"]]
    lock, taken = kernel.lock, list[bool]()

    class Watched:
        def __enter__(self) -> None:
            lock.acquire()
            taken.append(True)

        def __exit__(self, *_: object) -> None:
            lock.release()

    kernel.lock = Watched()
    buffer = bench.buffer()
    bench.launch(buffer, "bump", pointer(bench.address), value(1))
    assert taken
    kernel.lock = lock
    bench.ur.ok("urCommandBufferReleaseExp", buffer)


def test_an_update_is_all_or_nothing(bench: Bench, mode: str) -> None:
    buffer = bench.buffer(updatable=True)
    commands = [
        bench.launch(buffer, "bump", pointer(bench.address), value(add), handle=True)[1]
        for add in (1, 2)
    ]
    bench.finalize(buffer)
    good = update(commands[0], values={1: ctypes.c_int(100)}, pNewGlobalWorkSize=sizes(1))
    for bad, code in (
        (update(commands[1], values={2: ctypes.c_int(1)}), "INVALID_KERNEL_ARGUMENT_INDEX"),
        (update(commands[1], values={1: ctypes.c_double(1)}), "INVALID_KERNEL_ARGUMENT_SIZE"),
        (update(commands[1], memory={0: 0x1234}), "INVALID_MEM_OBJECT"),
        (update(0x1234, values={1: ctypes.c_int(1)}), "INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP"),
        (
            update(
                commands[1],
                newWorkDim=4,
                pNewGlobalWorkOffset=sizes(0),
                pNewGlobalWorkSize=sizes(1),
            ),
            "INVALID_WORK_DIMENSION",
        ),
    ):
        assert bench.update(buffer, good, bad) == code
        bench.reset()
        assert bench.run(buffer) == bumped(list(range(COUNT)), 1, 2)
    bench.ur.ok("urCommandBufferReleaseExp", buffer)


def test_an_update_leaves_alone_what_is_enqueued(bench: Bench, mode: str) -> None:
    """An enqueue whose start is held back by a user event runs with the arguments that it was
    enqueued with."""
    ur = bench.ur
    registry = reference.registry
    assert registry is not None
    context = registry.list_owned("ur_context_handle_t")[bench.context]
    code = ctypes.c_int32()
    native = context.table.clCreateUserEvent(context.cl, ctypes.byref(code))
    gate = ur.make("urEventCreateWithNativeHandle", native, bench.context, None)
    buffer = bench.buffer(updatable=True)
    _, command = bench.launch(buffer, "bump", pointer(bench.address), value(1), handle=True)
    bench.finalize(buffer)
    ur.ok("urEnqueueCommandBufferExp", bench.queue, buffer, 1, array(gate), None)
    assert bench.update(buffer, update(command, values={1: ctypes.c_int(50)})) == "SUCCESS"
    context.table.clSetUserEventStatus(native, 0)
    ur.ok("urQueueFinish", bench.queue)
    assert list(bench.cells) == bumped(list(range(COUNT)), 1)
    assert bench.run(buffer) == bumped(list(range(COUNT)), 1, 50)
    ur.ok("urEventRelease", gate)
    context.table.clReleaseEvent(native)
    ur.ok("urCommandBufferReleaseExp", buffer)


def test_threads_update_and_enqueue_their_own_command_buffers(
    bench: Bench, device: PluginDevice
) -> None:
    """No update is lost, whichever thread comes first."""
    ur, errors = bench.ur, list[BaseException]()

    def work(number: int) -> None:
        try:
            queue = ur.make("urQueueCreate", bench.context, bench.device, None)
            mine = ur.make("urUSMSharedAlloc", bench.context, bench.device, None, None, 4 * COUNT)
            cells = (ctypes.c_int * COUNT).from_address(mine.value or 0)
            cells[:] = [0] * COUNT
            buffer, expected = bench.buffer(updatable=True), [0] * COUNT
            _, command = bench.launch(
                buffer, "bump", pointer(mine.value or 0), value(0), handle=True
            )
            bench.finalize(buffer)
            for turn in range(40):
                assert (
                    bench.update(
                        buffer, update(command, values={1: ctypes.c_int(1000 * number + turn)})
                    )
                    == "SUCCESS"
                )
                ur.ok("urEnqueueCommandBufferExp", queue, buffer, 0, None, None)
                expected = bumped(expected, 1000 * number + turn)
            ur.ok("urQueueFinish", queue)
            assert list(cells) == expected
            ur.ok("urCommandBufferReleaseExp", buffer)
            ur.ok("urUSMFree", bench.context, mine)
            ur.ok("urQueueRelease", queue)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def test_a_kernel_that_was_launched_before_keeps_its_arguments(bench: Bench) -> None:
    buffer, kernels = bench.buffer(updatable=True), bench.kernels
    _, command = bench.launch(
        buffer, "bump", pointer(bench.address), value(3), others=("scale",), handle=True
    )
    bench.finalize(buffer)
    everything = {"pointers": {0: bench.address}, "values": {1: ctypes.c_int(5)}}
    change = update(command, hNewKernel=kernels["scale"], **everything)
    assert bench.update(buffer, change) == "SUCCESS"
    assert bench.run(buffer) == [5 * cell for cell in range(COUNT)]
    bench.reset()
    assert bench.update(buffer, update(command, hNewKernel=kernels["bump"])) == "SUCCESS"
    assert bench.run(buffer) == bumped(list(range(COUNT)), 3)
    bench.reset()
    back = update(command, hNewKernel=kernels["scale"], values={1: ctypes.c_int(7)})
    assert bench.update(buffer, back) == "SUCCESS"
    assert bench.run(buffer) == [7 * cell for cell in range(COUNT)]
    bench.ur.ok("urCommandBufferReleaseExp", buffer)


def test_a_command_is_updated_twice_at_once(bench: Bench) -> None:
    """One update after the other."""
    buffer, kernels = bench.buffer(updatable=True), bench.kernels
    _, command = bench.launch(
        buffer, "bump", pointer(bench.address), value(3), others=("scale",), handle=True
    )
    bench.finalize(buffer)
    everything = {"pointers": {0: bench.address}, "values": {1: ctypes.c_int(5)}}
    changes = (
        update(command, values={1: ctypes.c_int(9)}),
        update(command, hNewKernel=kernels["scale"], **everything),
        update(command, values={1: ctypes.c_int(7)}),
    )
    assert bench.update(buffer, *changes) == "SUCCESS"
    scaled = [7 * cell for cell in range(COUNT)]
    assert bench.run(buffer) == scaled
    assert bench.update(buffer, update(command, hNewKernel=kernels["bump"])) == "SUCCESS"
    changes = (  # the number is for the kernel that the command has at that time
        update(command, values={1: ctypes.c_int(8)}),
        update(command, hNewKernel=kernels["scale"]),
    )
    assert bench.update(buffer, *changes) == "SUCCESS"
    bench.reset()
    assert bench.run(buffer) == scaled
    bench.ur.ok("urCommandBufferReleaseExp", buffer)
