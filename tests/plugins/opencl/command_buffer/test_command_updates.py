"""Updates of command-buffers of the reference adapter, replayed and native, on every driver."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from helpers.command_bench import COUNT, Bench, bumped, pointer, sizes, update, value

from fairlead.conformance.threads import in_threads
from fairlead.icd._native import lib
from fairlead.icd.command_buffer import execution_plans
from fairlead.loader.ur.devices import PluginDevice
from fairlead.plugins.opencl.core import adapter as reference


def test_a_kernel_is_restored_without_its_arguments(bench: Bench) -> None:
    """It has those that it was launched with last."""
    buffer, kernels = bench.buffer(updatable=True), bench.kernels
    _, command = bench.launch(
        buffer, "bump", pointer(bench.address), value(3), others=("scale",), handle=True
    )
    bench.finalize(buffer)
    start = list(range(COUNT))
    everything = {"pointers": {0: bench.address}, "values": {1: ctypes.c_int(5)}}
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


def test_a_required_work_group_needs_no_local_size(bench: Bench) -> None:
    """PoCL refuses to choose it. The first launch is Python's, the second one C's."""
    buffer, half = bench.buffer(updatable=True), 2 * COUNT
    for start in (bench.address, bench.address + half):
        bench.launch(buffer, "fours", pointer(start), size=sizes(COUNT // 2))
    given = pointer(bench.address), value(1)
    _, command = bench.launch(buffer, "bump", *given, others=("fours",), handle=True)
    bench.finalize(buffer)
    assert bench.run(buffer) == [13] * COUNT
    change = update(
        command,
        hNewKernel=bench.kernels["fours"],
        pNewGlobalWorkSize=sizes(COUNT // 2),
        pointers={0: bench.address},
    )
    assert bench.update(buffer, change) == "SUCCESS"
    bench.reset()
    assert bench.run(buffer) == [4] * COUNT


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
    given = buffer, smaller, update(other, hNewKernel=bench.kernels["many"], **everything)
    assert bench.update(*given) == "SUCCESS"
    assert order == [True, False]
    for queue in (bench.queue, free_queue):
        bench.reset()
        expected = start
        for _ in range(2):
            expected = [cell + 160 for cell in bumped(expected[:4], 7) + expected[4:]]
        assert bench.run(buffer, 2, queue) == expected


def test_a_kernel_is_copied_under_its_lock(bench: Bench) -> None:
    """Another thread may launch it, and sets its arguments before."""
    kernel = reference.objects.list_owned("ur_kernel_handle_t")[bench.kernels["bump"]]
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
    assert len(taken) == 2  # for the copy, and for what C is told of the kernel
    kernel.lock = lock


def test_threads_update_and_enqueue_their_own_command_buffers(
    bench: Bench, device: PluginDevice
) -> None:
    """No update is lost, whichever thread comes first."""
    ur = bench.ur

    def work(number: int) -> None:
        queue = ur.make("urQueueCreate", bench.context, bench.device)
        mine = ur.make("urUSMSharedAlloc", bench.context, bench.device, None, None, 4 * COUNT)
        cells = (ctypes.c_int * COUNT).from_address(mine.value or 0)
        cells[:] = [0] * COUNT
        buffer, expected = bench.buffer(updatable=True), [0] * COUNT
        _, command = bench.launch(buffer, "bump", pointer(mine.value or 0), value(0), handle=True)
        bench.finalize(buffer)
        for turn in range(40):
            assert (
                bench.update(
                    buffer, update(command, values={1: ctypes.c_int(1000 * number + turn)})
                )
                == "SUCCESS"
            )
            ur.ok("urEnqueueCommandBufferExp", queue, buffer)
            expected = bumped(expected, 1000 * number + turn)
        ur.ok("urQueueFinish", queue)
        assert list(cells) == expected
        ur.ok("urCommandBufferReleaseExp", buffer)
        ur.ok("urUSMFree", bench.context, mine)
        ur.ok("urQueueRelease", queue)

    in_threads(8, work)


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
