"""Validation layers in front of a fake adapter: USM, leaks, attaching, threads."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import pytest
from helpers.validated import CODES, Adapter, Attach, array, context_of, handle, make
from hypothesis import given
from hypothesis import strategies as st

from fairlead.conformance.threads import in_threads
from fairlead.loader.base.abi import Api
from fairlead.loader.base.errors import FairleadError
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.pi.abi import PI
from fairlead.loader.ur import validation
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.validation import BOUNDS, LEAK, LIFETIME, PARAMETER, Validation


def test_memory_is_freed_once(attach: Attach, adapter: Adapter) -> None:
    table, validated, lines = attach(LIFETIME)
    device, context = context_of(table)
    queue = make(table.urQueueCreate, context, device, None)
    for alloc in (table.urUSMDeviceAlloc, table.urUSMSharedAlloc):
        memory = make(alloc, context, device, None, None, 64)
        assert table.urUSMFree(context, memory) == 0
        assert table.urUSMFree(context, memory) == CODES["INVALID_MEM_OBJECT"]
    memory = make(table.urUSMHostAlloc, context, None, None, 64)
    assert table.urEnqueueUSMFreeExp(queue, None, memory, 0, None, None) == 0
    assert table.urUSMFree(context, memory) == CODES["INVALID_MEM_OBJECT"]
    assert len(lines) == 3 and all("USM memory" in line for line in lines)
    assert "USM memory" not in [leak.kind for leak in validated.find_leaks()]


def test_unknown_memory_is_not_freed(attach: Attach, adapter: Adapter) -> None:
    table, _, lines = attach(LIFETIME)
    _, context = context_of(table)
    assert table.urUSMFree(context, ctypes.create_string_buffer(8)) == CODES["INVALID_MEM_OBJECT"]
    assert "urUSMFree" not in adapter.calls
    assert len(lines) == 1


@pytest.mark.parametrize(
    ("offset", "size", "fits"), [(0, 64, True), (32, 32, True), (0, 65, False), (63, 2, False)]
)
def test_bounds(attach: Attach, offset: int, size: int, fits: bool) -> None:
    table, _, lines = attach(BOUNDS)
    device, context = context_of(table)
    queue = make(table.urQueueCreate, context, device, None)
    host = ctypes.create_string_buffer(128)
    buffer = make(table.urMemBufferCreate, context, UR["UR_MEM_FLAG_READ_WRITE"], 64, None)
    memory = (ctypes.c_char * 64)()
    expected = 0 if fits else CODES["INVALID_SIZE"]
    given = queue, buffer, True, offset, size, host, 0, None, None
    assert table.urEnqueueMemBufferRead(*given) == expected
    start = (
        make(table.urUSMDeviceAlloc, context, device, None, None, ctypes.sizeof(memory)).value or 0
    )
    found = table.urEnqueueUSMMemcpy(queue, True, start + offset, host, size, 0, None, None)
    assert found == expected
    found = table.urEnqueueUSMMemcpy(queue, True, host, start + offset, size, 0, None, None)
    assert found == expected
    assert table.urEnqueueUSMMemcpy(queue, True, host, host, size, 0, None, None) == 0
    assert table.urUSMFree(context, start) == 0
    assert table.urEnqueueUSMMemcpy(queue, True, start + offset, host, size, 0, None, None) == 0
    assert len(lines) == (0 if fits else 3)


# Leaks


def test_a_leak_is_reported_with_the_line_that_created_it(attach: Attach) -> None:
    table, validated, lines = attach(LEAK)
    device, context = context_of(table)
    queue = make(table.urQueueCreate, context, device, None)  # the leak
    assert table.urQueueRetain(queue) == table.urContextRelease(context) == 0
    (leak,) = (leak for leak in validated.find_leaks() if leak.kind == "ur_queue_handle_t")
    assert (leak.handle, leak.count) == (queue.value, 2)
    assert leak.stack[0].startswith(f"{make.__code__.co_filename}:")
    assert leak.stack[1].endswith("# the leak")
    validated.close()
    kinds = [line.split()[0] for line in lines]
    assert kinds == ["ur_adapter_handle_t", "ur_device_handle_t", "ur_queue_handle_t"]
    assert "2 references" in lines[2] and "# the leak" in lines[2]


def test_platforms_and_commands_do_not_leak(attach: Attach) -> None:
    """Nobody can release them."""
    table, validated, _ = attach(LEAK)
    adapter = handle()
    assert table.urAdapterGet(1, ctypes.byref(adapter), None) == 0
    make(table.urPlatformCreateWithNativeHandle, 1, adapter, None)
    assert [leak.kind for leak in validated.find_leaks()] == ["ur_adapter_handle_t"]


def test_nothing_is_reported_for_leaks_if_nobody_asked(attach: Attach) -> None:
    table, validated, lines = attach(PARAMETER)
    context_of(table)
    validated.close()
    assert not lines


# Attaching


def test_close_takes_the_layer_out(attach: Attach, adapter: Adapter) -> None:
    table, validated, _ = attach(PARAMETER)
    assert table.top != adapter.address
    validated.close()
    validated.close()
    assert table.top == adapter.address
    assert table.urContextRelease(None) == 0
    assert adapter.calls == ["urContextRelease"]


def test_without_layers_nothing_is_attached(attach: Attach, adapter: Adapter) -> None:
    table, _, _ = attach()
    assert table.top == adapter.address


def test_a_table_is_only_checked_once(attach: Attach) -> None:
    table, validated, lines = attach(PARAMETER)
    validated.attach(table)
    assert len(table.layers) == 1
    assert table.urContextRelease(None)
    assert len(lines) == 1


def test_another_api_is_refused(adapter: Adapter) -> None:
    api: Api = PI
    with pytest.raises(FairleadError, match="Unified Runtime"):
        Validation([PARAMETER], report=print).attach(DispatchTable(api, adapter.address))


def test_a_report_that_raises_does_not_reach_the_caller(
    adapter: Adapter, capfd: pytest.CaptureFixture[str]
) -> None:
    def report(line: str) -> None:
        raise RuntimeError("no room for lines")

    validated, table = Validation([PARAMETER], report=report), DispatchTable(UR, adapter.address)
    validated.attach(table)
    calls: Any = table
    assert calls.urContextRelease(None) == CODES["INVALID_NULL_HANDLE"]
    validated.close()
    assert "no room for lines" in capfd.readouterr().err
    assert not adapter.calls


def test_a_report_may_call_the_adapter(adapter: Adapter) -> None:
    table: Any = DispatchTable(UR, adapter.address)
    answers: list[int] = []
    validated = Validation(
        [PARAMETER],
        report=lambda line: answers.append(table.urPlatformGet(0x1000, 0, None, answers_at)),
    )
    answers_at = ctypes.byref(ctypes.c_uint32())
    validated.attach(table)
    assert table.urContextRelease(None) == CODES["INVALID_NULL_HANDLE"]
    validated.close()
    assert answers == [0]


def test_threads(attach: Attach) -> None:
    """Each thread has its own objects, and one queue is shared.

    Releases do not affect other threads.
    """
    table, validated, lines = attach(PARAMETER, LIFETIME)
    device, context = context_of(table)
    shared = make(table.urQueueCreate, context, device, None)
    wrong: list[int] = []

    def work(_: int) -> None:
        for _ in range(50):
            event = make(table.urEnqueueEventsWait, shared, 0, None)
            codes = [
                table.urQueueRetain(shared),
                table.urEventWait(1, array(event)),
                table.urQueueRelease(shared),
                table.urEventRelease(event),
            ]
            wrong.extend(code for code in codes if code)

    in_threads(4, work)
    assert (wrong, lines) == ([], [])
    assert [
        leak.count
        for leak in validated.find_leaks()
        if "queue" in leak.kind or "event" in leak.kind
    ] == [1]


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["create", "retain", "release", "use"]), st.integers(0, 3)),
        max_size=30,
    )
)
def test_counts_are_right_in_every_order(
    the_adapter: Adapter, steps: list[tuple[str, int]]
) -> None:
    """In any order of calls, a call passes exactly if there is a reference, and the rest has
    leaked."""
    the_adapter.reset()
    lines: list[str] = []
    validated = Validation([LIFETIME], report=lines.append)
    table = DispatchTable(UR, the_adapter.address)
    validated.attach(table)
    calls: Any = table
    device, context = context_of(table)
    queues: dict[int, ctypes.c_void_p] = {}
    counts: dict[int, int] = {}
    refused = 0
    for step, which in steps:
        if step == "create" and not counts.get(which):
            queues[which], counts[which] = make(calls.urQueueCreate, context, device, None), 1
        elif step != "create" and which in queues:
            name = {"retain": "urQueueRetain", "release": "urQueueRelease", "use": "urQueueFinish"}[
                step
            ]
            answer = getattr(calls, name)(queues[which])
            assert answer == (0 if counts[which] else CODES["INVALID_QUEUE"])
            refused += answer != 0
            counts[which] += {"retain": 1, "release": -1, "use": 0}[step] if answer == 0 else 0
    left = sorted((queues[i].value, n) for i, n in counts.items() if n)
    assert (
        sorted(
            (leak.handle, leak.count)
            for leak in validated.find_leaks()
            if leak.kind == "ur_queue_handle_t"
        )
        == left
    )
    assert len(lines) == refused
    validated.close()


def test_lines_are_plain() -> None:
    """What a user reads names no internals of fairlead."""
    leak = validation.Leak("ur_queue_handle_t", 0x10, 1, ())
    found = str(leak)
    assert found == "ur_queue_handle_t 0x10 has leaked: 1 reference left; created at a line of C"
    assert re.fullmatch(r"[ -~]+", str(leak))
