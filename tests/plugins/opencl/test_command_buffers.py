"""Command-buffers of the reference adapter, replayed and native, on every driver."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from ur_calls import Calls, array

from fairlead.icd.native_command_buffer import support_of
from fairlead.icd.replay import Program
from fairlead.loader.devices import Device
from fairlead.loader.ur import UR
from fairlead.plugins.opencl.core import adapter as reference

SOURCE = b"""
kernel void bump(global int *cell, int add) { cell[get_global_id(0)] = 3 * cell[get_global_id(0)] + add; }
kernel void many(global int *cell, int a, int b, int c, int d, int e) { cell[get_global_id(0)] += a + b + c + d + e; }
kernel void scale(global int *cell, int by) { cell[get_global_id(0)] *= by; }
kernel void sum(global int *cell, local int *scratch) {
    size_t i = get_local_id(0);
    scratch[i] = cell[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (i == 0) { int total = 0; for (size_t k = 0; k < get_local_size(0); k++) total += scratch[k]; cell[get_global_id(0)] = total; }
}
kernel void where(global int *out) {
    size_t i = get_global_id(0) - get_global_offset(0) + get_global_size(0) * (get_global_id(1) - get_global_offset(1));
    out[i] = (int)(100 * get_global_id(1) + get_global_id(0));
}
"""
COUNT = 16
Argument = UR.struct("ur_exp_kernel_arg_properties_t")
Update = UR.struct("ur_exp_command_buffer_update_kernel_launch_desc_t")
ValueUpdate = UR.struct("ur_exp_command_buffer_update_value_arg_desc_t")
MemoryUpdate = UR.struct("ur_exp_command_buffer_update_memobj_arg_desc_t")
PointerUpdate = UR.struct("ur_exp_command_buffer_update_pointer_arg_desc_t")
Offset, Region = UR.struct("ur_rect_offset_t"), UR.struct("ur_rect_region_t")


def sizes(*values: int) -> Any:
    return (ctypes.c_size_t * len(values))(*values)


def value(number: int) -> Any:
    """An argument by value."""
    made = Argument(type=UR["UR_EXP_KERNEL_ARG_TYPE_VALUE"], size=4)
    made.keep = ctypes.c_int(number)
    made.value.value = ctypes.addressof(made.keep)
    return made


def pointer(address: int) -> Any:
    made = Argument(type=UR["UR_EXP_KERNEL_ARG_TYPE_POINTER"], size=8)
    made.value.pointer = address
    return made


def memory(handle: Any) -> Any:
    made = Argument(type=UR["UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ"], size=8)
    made.value.memObjTuple.hMem = handle
    return made


def local(size: int) -> Any:
    return Argument(type=UR["UR_EXP_KERNEL_ARG_TYPE_LOCAL"], size=size)


def arguments(*given: Any) -> Any:
    rows = (Argument * len(given))(*given)
    for index, row in enumerate(rows):
        row.index = index
    rows.keep = given
    return rows


@dataclass
class Bench:
    """A device with a context, kernels, and memory of `COUNT` integers that the host sees."""

    ur: Calls
    device: int
    context: int
    queue: int
    kernels: dict[str, int]

    def __post_init__(self) -> None:
        made = ctypes.c_void_p()
        self.ur.ok("urUSMSharedAlloc", self.context, self.device, None, None, 4 * COUNT, ctypes.byref(made))
        self.address = made.value or 0
        self.cells = (ctypes.c_int * COUNT).from_address(self.address)
        self.reset()

    def reset(self) -> None:
        self.cells[:] = range(COUNT)

    def buffer(self, updatable: bool = False, in_order: bool = True, profiling: bool = False) -> int:
        desc = UR.struct("ur_exp_command_buffer_desc_t")(0x1000, None, updatable, in_order, profiling)
        return self.ur.made("urCommandBufferCreateExp", self.context, self.device, ctypes.byref(desc)).value or 0

    def launch(
        self, buffer: int, kernel: str, *given: Any, after: tuple[int, ...] = (), others: tuple[str, ...] = (), handle: bool = False,
        waits: tuple[int, ...] = (), event: Any = None, size: Any = None, offset: Any = None, local_size: Any = None,
    ) -> tuple[int, int]:  # fmt: skip
        """Append a launch: its sync-point, and its command handle if wanted."""
        point, command = ctypes.c_uint32(), ctypes.c_void_p()
        rows, size = arguments(*given), size or sizes(COUNT)
        alternatives = array(*(self.kernels[name] for name in others)) if others else None
        self.ur.ok(
            "urCommandBufferAppendKernelLaunchWithArgsExp",
            buffer, self.kernels[kernel], len(size), offset, size, local_size, len(rows), rows,
            len(others), alternatives, len(after), (ctypes.c_uint32 * len(after))(*after) if after else None,
            len(waits), array(*waits) if waits else None, ctypes.byref(point), event, ctypes.byref(command) if handle else None,
        )  # fmt: skip
        return point.value, command.value or 0

    def try_launch(self, buffer: int, given: list[Any], *others: int) -> str:
        """The code of a launch of `bump`."""
        rows, kernel, alternatives = arguments(*given), self.kernels["bump"], array(*others) if others else None
        head = (buffer, kernel, 1, None, sizes(1), None, len(rows), rows, len(others), alternatives)
        return self.ur("urCommandBufferAppendKernelLaunchWithArgsExp", *head, 0, None, 0, None, None, None, None)

    def advise(self, buffer: int, points: int, listed: Any, events: int, command: Any = None) -> str:
        """The code of a command that does nothing."""
        return self.ur(
            "urCommandBufferAppendUSMAdviseExp", buffer, self.address, 4, 1, points, listed, events, None, None, None, command
        )

    def finalize(self, buffer: int) -> int:
        self.ur.ok("urCommandBufferFinalizeExp", buffer)
        return buffer

    def run(self, buffer: int, times: int = 1, queue: int = 0) -> list[int]:
        for _ in range(times):
            self.ur.ok("urEnqueueCommandBufferExp", queue or self.queue, buffer, 0, None, None)
        self.ur.ok("urQueueFinish", queue or self.queue)
        return list(self.cells)

    def update(self, buffer: int, *descs: Any) -> str:
        rows = (Update * len(descs))(*descs)
        return self.ur("urCommandBufferUpdateKernelLaunchExp", buffer, len(rows), rows)


def update(command: int, **fields: Any) -> Any:
    """An update: `values`, `memory`, `pointers` are dictionaries by index; the rest are fields of the struct."""
    made = Update(UR["UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_UPDATE_KERNEL_LAUNCH_DESC"], None, command, newWorkDim=1)
    made.keep = []

    def rows(struct: Any, entries: list[Any]) -> int:
        table = (struct * len(entries))(*entries)
        made.keep.append(table)
        return ctypes.addressof(table)

    def where(thing: Any) -> int:
        made.keep.append(thing)
        return ctypes.addressof(thing)

    if given := fields.pop("values", {}):
        made.numNewValueArgs = len(given)
        made.pNewValueArgList = rows(
            ValueUpdate, [ValueUpdate(0x1004, None, i, ctypes.sizeof(v), None, where(v)) for i, v in given.items()]
        )
    if given := fields.pop("locals", {}):
        made.numNewValueArgs = len(given)
        made.pNewValueArgList = rows(ValueUpdate, [ValueUpdate(0x1004, None, i, size, None, None) for i, size in given.items()])
    if given := fields.pop("memory", {}):
        made.numNewMemObjArgs = len(given)
        made.pNewMemObjArgList = rows(MemoryUpdate, [MemoryUpdate(0x1002, None, i, None, v) for i, v in given.items()])
    if given := fields.pop("pointers", {}):
        made.numNewPointerArgs = len(given)
        made.pNewPointerArgList = rows(
            PointerUpdate, [PointerUpdate(0x1003, None, i, None, where(ctypes.c_void_p(v))) for i, v in given.items()]
        )
    for name, given in fields.items():
        setattr(made, name, given if isinstance(given, int) else where(given))
    return made


@pytest.fixture
def bench(device: Device, ur: Calls, context: int, queue: int) -> Iterator[Bench]:
    source = ctypes.create_string_buffer(SOURCE, len(SOURCE))
    program = ur.made("urProgramCreateWithIL", context, source, len(SOURCE), None)
    ur.ok("urProgramBuild", context, program, None)
    names = ("bump", "scale", "sum", "where", "many")
    kernels = {name: ur.made("urKernelCreate", program, name.encode()).value or 0 for name in names}
    made = Bench(ur, device.handle, context, queue, kernels)
    yield made
    ur.ok("urQueueFinish", queue)
    ur.ok("urUSMFree", context, made.address)
    for kernel in kernels.values():
        ur.ok("urKernelRelease", kernel)
    ur.ok("urProgramRelease", program)


@pytest.fixture(params=["replay", "native", "auto"])
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How command-buffers run; the drivers without cl_khr_command_buffer replay in each mode."""
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", request.param)
    return request.param


@pytest.fixture
def free_queue(ur: Calls, device: Device, context: int) -> Iterator[int]:
    """An out-of-order queue."""
    properties = UR.struct("ur_queue_properties_t")(UR["UR_STRUCTURE_TYPE_QUEUE_PROPERTIES"], None, 1)
    made = ur.made("urQueueCreate", context, device.handle, ctypes.byref(properties))
    yield made.value or 0
    ur.ok("urQueueRelease", made)


def explain(buffer: int, queue: int) -> str:
    """How it runs, as the adapter in this process knows it."""
    registry = reference.registry
    assert registry is not None
    found = registry.of("ur_exp_command_buffer_handle_t")[buffer]
    return found.explain(registry.of("ur_queue_handle_t")[queue])


def bumped(cells: list[int], *adds: int) -> list[int]:
    for add in adds:
        cells = [(3 * cell + add + 2**31) % 2**32 - 2**31 for cell in cells]
    return cells


def test_a_path_runs_in_order_as_often_as_it_is_enqueued(bench: Bench, mode: str) -> None:
    buffer = bench.buffer()
    for add in (1, 2, 3):
        bench.launch(buffer, "bump", pointer(bench.address), value(add))
    bench.finalize(buffer)
    assert bench.run(buffer, 4) == bumped(list(range(COUNT)), *(1, 2, 3) * 4)
    said = explain(buffer, bench.queue)
    registry = reference.registry
    assert registry is not None
    native = mode == "native" and support_of(registry.of("ur_device_handle_t")[bench.device].cl) is not None
    assert ("native cl_khr_command_buffer" in said) if native else mode == "auto" or "replay" in said
    bench.ur.ok("urCommandBufferReleaseExp", buffer)


def test_enqueues_follow_each_other_also_across_queues(bench: Bench, free_queue: int, mode: str) -> None:
    buffer = bench.buffer(in_order=False)
    point = 0
    for add in (1, 2):
        point, _ = bench.launch(buffer, "bump", pointer(bench.address), value(add), after=(point,) if point else ())
    bench.finalize(buffer)
    order = [bench.queue, free_queue, free_queue, bench.queue, free_queue]
    for queue in order:
        bench.ur.ok("urEnqueueCommandBufferExp", queue, buffer, 0, None, None)
    for queue in order:
        bench.ur.ok("urQueueFinish", queue)
    assert list(bench.cells) == bumped(list(range(COUNT)), *(1, 2) * len(order))
    bench.ur.ok("urCommandBufferReleaseExp", buffer)


def test_sync_points_order_an_out_of_order_command_buffer(bench: Bench, free_queue: int, mode: str) -> None:
    """Two branches on two halves, joined by a third launch."""
    ur, buffer = bench.ur, bench.buffer(in_order=False)
    half = sizes(COUNT // 2)
    low, _ = bench.launch(buffer, "bump", pointer(bench.address), value(7), size=half)
    high, _ = bench.launch(buffer, "bump", pointer(bench.address + 2 * COUNT), value(9), size=half)
    joined, _ = bench.launch(buffer, "scale", pointer(bench.address), value(2), after=(low, high))
    assert (low, high, joined) == (1, 2, 3)
    bench.finalize(buffer)
    start = list(range(COUNT))
    for queue in (bench.queue, free_queue):
        bench.reset()
        expected = [2 * cell for cell in bumped(start[: COUNT // 2], 7) + bumped(start[COUNT // 2 :], 9)]
        assert bench.run(buffer, queue=queue) == expected
    ur.ok("urCommandBufferReleaseExp", buffer)


def test_every_transfer(bench: Bench, mode: str) -> None:
    ur, buffer, size = bench.ur, bench.buffer(), 4 * COUNT
    flags = UR["UR_MEM_FLAG_READ_WRITE"]
    first, second = (ur.made("urMemBufferCreate", bench.context, flags, size, None) for _ in range(2))
    source, target = (ctypes.c_int * COUNT)(*range(100, 100 + COUNT)), (ctypes.c_int * COUNT)()
    window = (ctypes.c_int * COUNT)(*[-1] * COUNT)
    none = (0, None, 0, None, None, None, None)
    append = "urCommandBufferAppend"
    origin, region = Offset(0, 0, 0), Region(8, 2, 1)
    ur.ok(f"{append}MemBufferWriteExp", buffer, first, 0, size, source, *none)
    ur.ok(f"{append}MemBufferCopyExp", buffer, first, second, 0, 0, size, *none)
    ur.ok(f"{append}MemBufferFillExp", buffer, second, ctypes.byref(ctypes.c_int(5)), 4, 0, 8, *none)
    ur.ok(f"{append}MemBufferCopyRectExp", buffer, first, second, origin, Offset(8, 1, 0), region, 16, 0, 16, 0, *none)
    ur.ok(
        f"{append}MemBufferWriteRectExp", buffer, second, Offset(0, 3, 0), origin, Region(8, 1, 1), 16, 0, 8, 0, source, *none
    )
    ur.ok(f"{append}MemBufferReadRectExp", buffer, second, Offset(8, 0, 0), origin, region, 16, 0, 8, 0, window, *none)
    ur.ok(f"{append}MemBufferReadExp", buffer, second, 0, size, target, *none)
    ur.ok(f"{append}USMMemcpyExp", buffer, bench.address, target, size // 2, *none)
    ur.ok(f"{append}USMFillExp", buffer, bench.address + size // 2, b"\1\2\3", 3, 24, *none)
    ur.ok(f"{append}USMFillExp", buffer, bench.address + size - 8, ctypes.byref(ctypes.c_int(9)), 4, 8, *none)
    ur.ok(f"{append}USMPrefetchExp", buffer, bench.address, size, 1, *none)
    ur.ok(f"{append}USMAdviseExp", buffer, bench.address, size, 1, *none)
    bench.finalize(buffer)
    for start in (100, 200):
        source[:] = range(start, start + COUNT)  # host memory is read when the command runs
        bench.run(buffer)
        expected = list(source)
        expected[0:2] = 5, 5
        expected[6:8], expected[10:12] = source[0:2], source[4:6]
        expected[12:14] = source[0:2]
        assert list(target) == expected
        assert list(window[:4]) == [*expected[2:4], *expected[6:8]]
        assert list(bench.cells[: COUNT // 2]) == expected[: COUNT // 2]
        assert bytes(bench.cells)[size // 2 : size - 8] == b"\1\2\3" * 8
        assert list(bench.cells[-2:]) == [9, 9]
    ur.ok("urCommandBufferReleaseExp", buffer)
    for made in (first, second):
        ur.ok("urMemRelease", made)


def test_everything_may_be_released_while_it_executes(bench: Bench, mode: str) -> None:
    ur, buffer = bench.ur, bench.buffer()
    filled = ur.made("urMemBufferCreate", bench.context, UR["UR_MEM_FLAG_READ_WRITE"], 4 * COUNT, None)
    none = (0, None, 0, None, None, None, None)
    for add in range(50):
        bench.launch(buffer, "bump", pointer(bench.address), value(add))
        ur.ok("urCommandBufferAppendMemBufferFillExp", buffer, filled, b"abc" * 4, 12, 0, 4 * COUNT - 4, *none)
    bench.finalize(buffer)
    for _ in range(3):
        ur.ok("urEnqueueCommandBufferExp", bench.queue, buffer, 0, None, None)
    ur.ok("urCommandBufferReleaseExp", buffer)
    ur.ok("urMemRelease", filled)
    assert ur("urCommandBufferFinalizeExp", buffer) == "INVALID_COMMAND_BUFFER_EXP"
    ur.ok("urQueueFinish", bench.queue)
    assert list(bench.cells) == bumped(list(range(COUNT)), *[*range(50)] * 3)


# events


def test_a_commands_event_is_another_one_at_each_enqueue(bench: Bench) -> None:
    ur, buffer, event, end = bench.ur, bench.buffer(updatable=True), ctypes.c_void_p(), ctypes.c_void_p()
    _, command = bench.launch(buffer, "bump", pointer(bench.address), value(1), event=ctypes.byref(event), handle=True)
    bench.launch(buffer, "bump", pointer(bench.address), value(2))
    bench.finalize(buffer)
    assert ur("urEventWait", 1, array(event)) == "INVALID_EVENT"  # nothing has been enqueued that could signal it
    time = (UR["UR_PROFILING_INFO_COMMAND_START"], 8, ctypes.byref(ctypes.c_uint64()), None)
    assert ur("urEventGetProfilingInfo", event, *time) == "INVALID_EVENT"
    natives = set()
    for _ in range(3):
        ur.ok("urEnqueueCommandBufferExp", bench.queue, buffer, 0, None, ctypes.byref(end))
        ur.ok("urEventWait", 1, array(event))
        natives.add(ur.made("urEventGetNativeHandle", event).value)
        ur.ok("urEventWait", 1, array(end))
        ur.ok("urEventRelease", end)
    assert natives
    other = ur.made("urCommandBufferUpdateSignalEventExp", command)
    assert ur("urEventWait", 1, array(other)) == "INVALID_EVENT"
    bench.run(buffer)
    ur.ok("urEventWait", 2, array(event, other))
    for made in (event, other):
        ur.ok("urEventRelease", made)
    ur.ok("urCommandBufferReleaseExp", buffer)


def test_a_command_waits_for_events_that_can_be_exchanged(bench: Bench, free_queue: int) -> None:
    """One command-buffer's event orders another's command, at every enqueue."""
    ur, first, second = bench.ur, bench.buffer(), bench.buffer(updatable=True)
    event = ctypes.c_void_p()
    bench.launch(first, "bump", pointer(bench.address), value(1), event=ctypes.byref(event))
    bench.finalize(first)
    _, command = bench.launch(second, "scale", pointer(bench.address), value(2), waits=(event.value or 0,), handle=True)
    bench.finalize(second)
    assert ur("urEnqueueCommandBufferExp", free_queue, second, 0, None, None) == "INVALID_EVENT"
    expected = list(range(COUNT))
    for _ in range(3):
        ur.ok("urEnqueueCommandBufferExp", bench.queue, first, 0, None, None)
        ur.ok("urQueueFlush", bench.queue)
        bench.run(second, queue=free_queue)
        expected = [2 * cell for cell in bumped(expected, 1)]
        assert list(bench.cells) == expected
    assert ur("urCommandBufferUpdateWaitEventsExp", command, 0, None) == "INVALID_EVENT_WAIT_LIST"
    assert ur("urCommandBufferUpdateWaitEventsExp", command, 2, array(event, event)) == "INVALID_EVENT_WAIT_LIST"
    ur.ok("urCommandBufferUpdateWaitEventsExp", command, 1, array(event))
    ur.ok("urEventRelease", event)
    for buffer in (first, second):
        ur.ok("urCommandBufferReleaseExp", buffer)


# updates


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
    other = ur.made("urUSMSharedAlloc", bench.context, bench.device, None, None, 4 * COUNT)
    cells = (ctypes.c_int * COUNT).from_address(other.value or 0)
    cells[:] = start
    bench.reset()
    assert bench.update(buffer, update(command, pointers={0: other.value})) == "SUCCESS"
    assert bench.run(buffer) == bumped(start, 2)
    assert list(cells) == bumped(start[:4], 20) + start[4:]
    ur.ok("urCommandBufferReleaseExp", buffer)
    ur.ok("urUSMFree", bench.context, other)


def test_local_memory_and_local_size_are_updated(bench: Bench, mode: str) -> None:
    buffer = bench.buffer(updatable=True)
    _, command = bench.launch(buffer, "sum", pointer(bench.address), local(4 * 4), local_size=sizes(4), handle=True)
    bench.finalize(buffer)
    totals = [sum(range(4 * i, 4 * i + 4)) for i in range(4)]
    assert bench.run(buffer)[::4] == totals
    bench.reset()
    assert bench.update(buffer, update(command, locals={1: 4 * 8}, pNewLocalWorkSize=sizes(8))) == "SUCCESS"
    assert bench.run(buffer)[::8] == [sum(range(8)), sum(range(8, 16))]
    bench.ur.ok("urCommandBufferReleaseExp", buffer)


def test_the_number_of_dimensions_is_updated(bench: Bench, mode: str) -> None:
    buffer = bench.buffer(updatable=True)
    _, command = bench.launch(buffer, "where", pointer(bench.address), offset=sizes(2), handle=True)
    bench.finalize(buffer)
    assert bench.run(buffer) == list(range(2, 2 + COUNT))
    two = {"newWorkDim": 2, "pNewGlobalWorkOffset": sizes(1, 3), "pNewGlobalWorkSize": sizes(4, 4)}
    assert bench.update(buffer, update(command, newWorkDim=2, pNewGlobalWorkSize=sizes(4, 4))) == "INVALID_VALUE"
    assert bench.update(buffer, update(command, **two)) == "SUCCESS"
    assert bench.run(buffer) == [100 * row + column for row in range(3, 7) for column in range(1, 5)]
    bench.ur.ok("urCommandBufferReleaseExp", buffer)


def test_the_kernel_is_updated_to_an_alternative_and_back(bench: Bench) -> None:
    buffer = bench.buffer(updatable=True)
    _, command = bench.launch(buffer, "bump", pointer(bench.address), value(1), others=("scale",), handle=True)
    bench.launch(buffer, "bump", pointer(bench.address), value(4))
    bench.finalize(buffer)
    start, kernels = list(range(COUNT)), bench.kernels
    everything = {"pointers": {0: bench.address}, "values": {1: ctypes.c_int(5)}}
    assert bench.run(buffer, 2) == bumped(start, 1, 4, 1, 4)
    assert bench.update(buffer, update(command, hNewKernel=kernels["sum"], **everything)) == "INVALID_VALUE"
    assert bench.update(buffer, update(command, hNewKernel=kernels["scale"], values={1: ctypes.c_int(5)})) == "INVALID_VALUE"
    assert bench.update(buffer, update(command, hNewKernel=kernels["scale"], **everything)) == "SUCCESS"
    bench.reset()
    assert bench.run(buffer, 2) == bumped([5 * cell for cell in bumped([5 * cell for cell in start], 4)], 4)
    assert bench.update(buffer, update(command, hNewKernel=kernels["bump"], **everything)) == "SUCCESS"
    bench.reset()
    assert bench.run(buffer, 2) == bumped(start, 5, 4, 5, 4)
    bench.ur.ok("urCommandBufferReleaseExp", buffer)


def test_other_kernels_come_before_other_arguments(bench: Bench, free_queue: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the changes of one update: a launch that follows one of a kernel with more arguments has no room for these before. In every
    plan that there is."""
    order: list[bool] = []
    original = Program.update

    def watched(program: Program, step: int, relaunched: bool) -> int:
        order.append(relaunched)
        return original(program, step, relaunched)

    monkeypatch.setattr(Program, "update", watched)
    buffer = bench.buffer(updatable=True)
    _, sized = bench.launch(buffer, "bump", pointer(bench.address), value(1), handle=True)
    _, other = bench.launch(buffer, "bump", pointer(bench.address), value(2), others=("many",), handle=True)
    bench.launch(buffer, "many", pointer(bench.address), *map(value, range(5)))
    bench.finalize(buffer)
    start = list(range(COUNT))
    for queue in (bench.queue, free_queue):
        bench.reset()
        assert bench.run(buffer, queue=queue) == [cell + 10 for cell in bumped(start, 1, 2)]
    everything = {"pointers": {0: bench.address}, "values": {i: ctypes.c_int(10 * i) for i in range(1, 6)}}
    smaller = update(sized, pNewGlobalWorkSize=sizes(4), values={1: ctypes.c_int(7)})
    assert bench.update(buffer, smaller, update(other, hNewKernel=bench.kernels["many"], **everything)) == "SUCCESS"
    assert order == [True, False] * 2
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
    held = ur.made(*create).value or 0
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
    kernel = registry.of("ur_kernel_handle_t")[bench.kernels["bump"]]
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
    commands = [bench.launch(buffer, "bump", pointer(bench.address), value(add), handle=True)[1] for add in (1, 2)]
    bench.finalize(buffer)
    good = update(commands[0], values={1: ctypes.c_int(100)}, pNewGlobalWorkSize=sizes(1))
    for bad, code in (
        (update(commands[1], values={2: ctypes.c_int(1)}), "INVALID_KERNEL_ARGUMENT_INDEX"),
        (update(commands[1], values={1: ctypes.c_double(1)}), "INVALID_KERNEL_ARGUMENT_SIZE"),
        (update(commands[1], memory={0: 0x1234}), "INVALID_MEM_OBJECT"),
        (update(0x1234, values={1: ctypes.c_int(1)}), "INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP"),
        (
            update(commands[1], newWorkDim=4, pNewGlobalWorkOffset=sizes(0), pNewGlobalWorkSize=sizes(1)),
            "INVALID_WORK_DIMENSION",
        ),
    ):
        assert bench.update(buffer, good, bad) == code
        bench.reset()
        assert bench.run(buffer) == bumped(list(range(COUNT)), 1, 2)
    bench.ur.ok("urCommandBufferReleaseExp", buffer)


def test_an_update_leaves_alone_what_is_enqueued(bench: Bench, mode: str) -> None:
    """An enqueue whose start is held back by a user event runs with the arguments that it was enqueued with."""
    ur = bench.ur
    registry = reference.registry
    assert registry is not None
    context = registry.of("ur_context_handle_t")[bench.context]
    code = ctypes.c_int32()
    native = context.table.clCreateUserEvent(context.cl, ctypes.byref(code))
    gate = ur.made("urEventCreateWithNativeHandle", native, bench.context, None)
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


def test_threads_update_and_enqueue_their_own_command_buffers(bench: Bench, device: Device) -> None:
    """No update is lost, whichever thread comes first."""
    ur, errors = bench.ur, list[BaseException]()

    def work(number: int) -> None:
        try:
            queue = ur.made("urQueueCreate", bench.context, bench.device, None)
            mine = ur.made("urUSMSharedAlloc", bench.context, bench.device, None, None, 4 * COUNT)
            cells = (ctypes.c_int * COUNT).from_address(mine.value or 0)
            cells[:] = [0] * COUNT
            buffer, expected = bench.buffer(updatable=True), [0] * COUNT
            _, command = bench.launch(buffer, "bump", pointer(mine.value or 0), value(0), handle=True)
            bench.finalize(buffer)
            for turn in range(40):
                assert bench.update(buffer, update(command, values={1: ctypes.c_int(1000 * number + turn)})) == "SUCCESS"
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


# profiling, queries, misuse


def test_the_event_of_an_enqueue_tells_the_time_of_it_all(
    bench: Bench, ur: Calls, device: Device, context: int, mode: str
) -> None:
    properties = UR.struct("ur_queue_properties_t")(UR["UR_STRUCTURE_TYPE_QUEUE_PROPERTIES"], None, 2)
    queue = ur.made("urQueueCreate", context, device.handle, ctypes.byref(properties))
    buffer, event = bench.buffer(profiling=True), ctypes.c_void_p()
    for add in range(20):
        bench.launch(buffer, "bump", pointer(bench.address), value(add))
    bench.finalize(buffer)
    ur.ok("urEnqueueCommandBufferExp", queue, buffer, 0, None, ctypes.byref(event))
    ur.ok("urEventWait", 1, array(event))
    names = ("QUEUED", "SUBMIT", "START", "END")
    times = [ur.number("urEventGetProfilingInfo", event, f"UR_PROFILING_INFO_COMMAND_{name}") for name in names]
    assert times == sorted(times) and times[2] < times[3]
    assert ur.number("urEventGetInfo", event, "UR_EVENT_INFO_COMMAND_TYPE") == UR["UR_COMMAND_ENQUEUE_COMMAND_BUFFER_EXP"]
    for release, handle in (("urEventRelease", event), ("urCommandBufferReleaseExp", buffer), ("urQueueRelease", queue)):
        ur.ok(release, handle)


def test_queries(bench: Bench) -> None:
    ur, buffer = bench.ur, bench.buffer(updatable=True, in_order=False, profiling=True)
    assert ur.number("urCommandBufferGetInfoExp", buffer, "UR_EXP_COMMAND_BUFFER_INFO_REFERENCE_COUNT") == 1
    desc = UR.struct("ur_exp_command_buffer_desc_t").from_buffer_copy(
        ur.info("urCommandBufferGetInfoExp", buffer, "UR_EXP_COMMAND_BUFFER_INFO_DESCRIPTOR")
    )
    assert (desc.isUpdatable, desc.isInOrder, desc.enableProfiling) == (1, 0, 1)
    ur.ok("urCommandBufferReleaseExp", buffer)


MISUSES: list[tuple[str, Callable[[Bench, int], str]]] = [
    ("INVALID_OPERATION", lambda b, cb: b.ur("urEnqueueCommandBufferExp", b.queue, cb, 0, None, None)),
    ("INVALID_OPERATION", lambda b, cb: b.ur("urCommandBufferFinalizeExp", b.finalize(cb))),
    ("INVALID_OPERATION", lambda b, cb: b.update(b.finalize(cb), update(0))),
    (
        "INVALID_COMMAND_BUFFER_SYNC_POINT_EXP",
        lambda b, cb: b.advise(cb, 1, (ctypes.c_uint32 * 1)(7), 0),
    ),
    (
        "INVALID_COMMAND_BUFFER_SYNC_POINT_WAIT_LIST_EXP",
        lambda b, cb: b.advise(cb, 1, None, 0),
    ),
    (
        "INVALID_EVENT_WAIT_LIST",
        lambda b, cb: b.advise(cb, 0, None, 1),
    ),
    (
        "INVALID_OPERATION",
        lambda b, cb: b.advise(cb, 0, None, 0, command=ctypes.byref(ctypes.c_void_p())),
    ),
    (
        "INVALID_OPERATION",
        lambda b, cb: b.advise(b.finalize(cb), 0, None, 0),
    ),
    (
        "INVALID_SIZE",
        lambda b, cb: b.ur("urCommandBufferAppendUSMFillExp", cb, b.address, b"abc", 3, 4, 0, None, 0, None, None, None, None),
    ),
    (
        "INVALID_KERNEL_ARGUMENT_INDEX",
        lambda b, cb: b.try_launch(cb, [pointer(b.address)]),
    ),
    (
        "INVALID_VALUE",
        lambda b, cb: b.try_launch(cb, [pointer(b.address), value(1)], b.kernels["bump"]),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("code", "misuse"), MISUSES, ids=[f"{number}-{code}" for number, (code, _) in enumerate(MISUSES)])
def test_misuse_gets_the_code_of_the_specification(bench: Bench, code: str, misuse: Callable[[Bench, int], str]) -> None:
    buffer = bench.buffer(in_order=False)
    assert misuse(bench, buffer) == code
    bench.ur.ok("urCommandBufferReleaseExp", buffer)
