"""Launches that are appended to command-buffers in C, and what C leaves to Python."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.command_bench import (
    COUNT,
    Bench,
    bumped,
    local,
    memory,
    pointer,
    sizes,
    value,
)
from helpers.entries import asked_of_python, calls_in
from helpers.launching import Numbers, has_usm_extension
from helpers.ur_calls import array

from fairlead.conformance.threads import in_threads
from fairlead.conformance.ur.values import make_arguments
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.devices import PluginDevice

LAUNCH = "urCommandBufferAppendKernelLaunchWithArgsExp"


@pytest.fixture
def asked() -> Iterator[list[str]]:
    """The entry points that Python is asked for. They begin in C."""
    gc.collect()  # what earlier tests left would be freed inside
    with calls_in("c"), asked_of_python() as names:
        yield names


def bump(bench: Bench, buffer: int, add: int = 1, **others: Any) -> int:
    """Append a launch, and return its sync-point."""
    return bench.launch(buffer, "bump", pointer(bench.address), value(add), **others)[0]


def code_of(bench: Bench, buffer: int, *given: Any, points: Any = (), events: Any = None) -> str:
    """The code of a launch of `bump` after sync-points, or after events."""
    rows = make_arguments(*given)
    listed = (ctypes.c_uint32 * len(points))(*points) if points else None
    head = buffer, bench.kernels["bump"], 1, None, sizes(COUNT), None, len(rows), rows, 0, None
    waits = (1, array(events)) if events else (0, None)
    return bench.ur(LAUNCH, *head, len(points), listed, *waits)


@pytest.mark.slow
@pytest.mark.usefixtures("begins_in")
@pytest.mark.parametrize("in_order", [True, False])
def test_launches_run_in_their_order(bench: Bench, in_order: bool, mode: str) -> None:
    buffer, point, half = bench.buffer(in_order=in_order), 0, sizes(COUNT // 2)
    for add in range(20):
        point = bump(bench, buffer, add, after=(point, point) if point else ())
        assert point == add + 1
    upper = pointer(bench.address + 2 * COUNT)
    low = bump(bench, buffer, 5, after=(point,), size=half)
    high, _ = bench.launch(buffer, "bump", upper, value(6), after=(point,), size=half)
    given = pointer(bench.address), local(4 * COUNT)
    bench.launch(buffer, "sum", *given, after=(high, low), local_size=sizes(COUNT))
    bench.finalize(buffer)
    cells = bumped(list(range(COUNT)), *range(20))
    cells = bumped(cells[: COUNT // 2], 5) + bumped(cells[COUNT // 2 :], 6)
    cells[0] = (sum(cells) + 2**31) % 2**32 - 2**31
    for _ in range(2):
        bench.reset()
        assert bench.run(buffer) == cells


def test_python_is_asked_for_the_first_launch_of_a_kernel(bench: Bench, asked: list[str]) -> None:
    numbers, buffer = Numbers(bench.ur, bench.context, COUNT), bench.buffer()
    by_four = {"local_size": sizes(4)}
    for add in range(5):
        bump(bench, buffer, add)
    bump(bench, buffer, 5, offset=sizes(0))
    bench.launch(buffer, "bump", memory(numbers.handle), value(1))
    assert asked == [LAUNCH]
    bump(bench, buffer, 6, **by_four)  # a work-group that Python has to check
    bump(bench, buffer, 7, **by_four)
    bump(bench, buffer, 8)
    assert asked == [LAUNCH] * 2
    bench.finalize(buffer)
    assert bench.run(buffer) == bumped(list(range(COUNT)), *range(9))


def test_python_is_asked_after_a_kernel_was_set_up_anew(
    bench: Bench, device: PluginDevice, asked: list[str]
) -> None:
    if not has_usm_extension(bench.ur, device):
        pytest.skip("the driver takes no settings of USM")
    buffer, on = bench.buffer(), ctypes.c_bool(True)
    bump(bench, buffer)
    info = UR["UR_KERNEL_EXEC_INFO_USM_INDIRECT_ACCESS"]
    bench.ur.ok("urKernelSetExecInfo", bench.kernels["bump"], info, 1, None, on)
    asked.clear()
    bump(bench, buffer)
    bump(bench, buffer)
    assert asked == [LAUNCH]


def test_wrong_launches_are_refused_and_nothing_is_appended(bench: Bench, asked: list[str]) -> None:
    buffer, cell = bench.buffer(in_order=False), pointer(bench.address)
    bump(bench, buffer)
    for code, given, points in (
        ("INVALID_KERNEL_ARGUMENT_SIZE", (cell, ctypes.c_int64(1)), ()),
        ("INVALID_KERNEL_ARGUMENT_INDEX", (cell,), ()),
        ("INVALID_KERNEL_ARGUMENT_INDEX", (cell, value(1), value(1)), ()),
        ("INVALID_MEM_OBJECT", (memory(bench.queue), value(1)), ()),
        ("INVALID_COMMAND_BUFFER_SYNC_POINT_EXP", (cell, value(1)), (2,)),
        ("INVALID_COMMAND_BUFFER_SYNC_POINT_EXP", (cell, value(1)), (1, 0)),
    ):
        asked.clear()
        assert code_of(bench, buffer, *given, points=points) == code
        assert asked == [LAUNCH]
    with pytest.raises(AssertionError, match="INVALID_WORK_GROUP_SIZE"):
        bump(bench, buffer, local_size=sizes(0))
    assert bump(bench, buffer, after=(1,)) == 2
    bench.finalize(buffer)
    assert code_of(bench, buffer, cell, value(1)) == "INVALID_OPERATION"
    assert bench.run(buffer) == bumped(list(range(COUNT)), 1, 1)


def test_events_and_handles_of_commands_come_from_python(bench: Bench, asked: list[str]) -> None:
    ur, buffer, event = bench.ur, bench.buffer(updatable=True), ctypes.c_void_p()
    bump(bench, buffer)
    bump(bench, buffer, 2, event=ctypes.byref(event))
    bump(bench, buffer, 3)
    _, command = bench.launch(
        buffer, "bump", pointer(bench.address), value(4), handle=True, others=("scale",)
    )
    assert code_of(bench, buffer, pointer(bench.address), value(5), events=event) == "SUCCESS"
    assert event.value and command
    bench.finalize(buffer)
    assert bench.run(buffer) == bumped(list(range(COUNT)), 1, 2, 3, 4, 5)
    ur.ok("urEventRelease", event)
    ur.ok("urCommandBufferReleaseExp", buffer)
    assert asked.count(LAUNCH) == 4


def test_threads_append_in_c_and_in_python(bench: Bench, asked: list[str]) -> None:
    """Every other launch has an event, so that Python appends it."""
    buffer, events, points = bench.buffer(in_order=True), list[Any](), list[int]()
    bump(bench, buffer, 0)

    def append(thread: int) -> None:
        for turn in range(50):
            event = ctypes.c_void_p()
            wanted = ctypes.byref(event) if turn % 2 else None
            point, _ = bench.launch(
                buffer, "many", pointer(bench.address), *map(value, (1, 0, 0, 0, 0)), event=wanted
            )
            points.append(point)
            if wanted:
                events.append(event)

    in_threads(4, append)
    assert sorted(points) == list(range(2, 202))
    bench.finalize(buffer)
    assert bench.run(buffer) == [3 * cell + 200 for cell in range(COUNT)]


def test_the_descriptor_is_kept_in_c(bench: Bench, asked: list[str]) -> None:
    buffer = bench.buffer(updatable=True, in_order=False)
    name = "UR_EXP_COMMAND_BUFFER_INFO_DESCRIPTOR"
    Desc = UR.get_struct("ur_exp_command_buffer_desc_t")
    found = [
        Desc.from_buffer_copy(bench.ur.info("urCommandBufferGetInfoExp", buffer, name))
        for _ in range(3)
    ]
    assert [(one.isUpdatable, one.isInOrder) for one in found] == [(True, False)] * 3
    assert asked == ["urCommandBufferGetInfoExp"] * 2  # the size, which is not kept, and the bytes
    assert int.from_bytes(
        bench.ur.info(
            "urCommandBufferGetInfoExp", buffer, "UR_EXP_COMMAND_BUFFER_INFO_REFERENCE_COUNT"
        ),
        "little",
    )
