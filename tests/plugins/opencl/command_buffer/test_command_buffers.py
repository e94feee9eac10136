"""Command-buffers of the reference adapter, replayed and native, on every driver.

Events of commands in command-buffers of the reference adapter: those that they signal, and those
that they wait for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from helpers.command_bench import (
    COUNT,
    SOURCE,
    Bench,
    Offset,
    Region,
    bumped,
    explain,
    memory,
    pointer,
    sizes,
    update,
    value,
)
from helpers.ur_calls import Calls, array

from fairlead.conformance.ur.values import make_arguments
from fairlead.icd.command_buffer.driver_command_buffer import find_support
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.plugin import Plugin
from fairlead.plugins.opencl.core import adapter as reference


def test_a_path_runs_in_order_as_often_as_it_is_enqueued(bench: Bench, mode: str) -> None:
    buffer = bench.buffer()
    for add in (1, 2, 3):
        bench.launch(buffer, "bump", pointer(bench.address), value(add))
    bench.finalize(buffer)
    assert bench.run(buffer, 4) == bumped(list(range(COUNT)), *(1, 2, 3) * 4)
    said = explain(buffer, bench.queue)
    native = (
        mode == "native"
        and find_support(reference.objects.list_owned("ur_device_handle_t")[bench.device].cl)
        is not None
    )
    assert (
        ("native  cl_khr_command_buffer" in said) if native else mode == "auto" or "replay" in said
    )


def test_an_unknown_engine_is_an_error_when_it_is_finalized(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = bench.buffer()
    bench.launch(buffer, "bump", pointer(bench.address), value(1))
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "warp")
    assert bench.ur("urCommandBufferFinalizeExp", buffer) == "INVALID_VALUE"
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "replay")
    bench.finalize(buffer)
    assert bench.run(buffer) == bumped(list(range(COUNT)), 1)


def test_everything_may_be_released_while_it_executes(bench: Bench, mode: str) -> None:
    ur, buffer = bench.ur, bench.buffer()
    filled = ur.make("urMemBufferCreate", bench.context, UR["UR_MEM_FLAG_READ_WRITE"], 4 * COUNT)
    for add in range(50):
        bench.launch(buffer, "bump", pointer(bench.address), value(add))
        ur.ok(
            "urCommandBufferAppendMemBufferFillExp",
            buffer,
            filled,
            b"abc" * 4,
            12,
            0,
            4 * COUNT - 4,
        )
    bench.finalize(buffer)
    for _ in range(3):
        ur.ok("urEnqueueCommandBufferExp", bench.queue, buffer)
    ur.ok("urCommandBufferReleaseExp", buffer)
    ur.ok("urMemRelease", filled)
    assert ur("urCommandBufferFinalizeExp", buffer) == "INVALID_COMMAND_BUFFER_EXP"
    ur.ok("urQueueFinish", bench.queue)
    assert list(bench.cells) == bumped(list(range(COUNT)), *[*range(50)] * 3)


# contexts


@dataclass
class Elsewhere:
    """A context with a queue, a buffer, an event and a kernel of its own."""

    ur: Calls
    context: int

    def __post_init__(self) -> None:
        ur = self.ur
        device = int.from_bytes(
            ur.info("urContextGetInfo", self.context, "UR_CONTEXT_INFO_DEVICES")[:8], "little"
        )
        self.queue = ur.make("urQueueCreate", self.context, device)
        self.memory = ur.make(
            "urMemBufferCreate", self.context, UR["UR_MEM_FLAG_READ_WRITE"], 4 * COUNT
        )
        self.event = ur.make("urEnqueueEventsWait", self.queue)
        self.program = ur.make("urProgramCreateWithIL", self.context, SOURCE, len(SOURCE))
        ur.ok("urProgramBuild", self.context, self.program)
        self.kernel = ur.make("urKernelCreate", self.program, b"bump")

    def release(self) -> None:
        """Everything."""
        for kind, handle in (
            ("Kernel", self.kernel),
            ("Program", self.program),
            ("Event", self.event),
            ("Mem", self.memory),
            ("Queue", self.queue),
            ("Context", self.context),
        ):
            self.ur.ok(f"ur{kind}Release", handle)

    def uses(self, bench: Bench, buffer: int, command: int) -> Iterator[str]:
        """The codes of everything in a command-buffer, or with one, that a context matters to: the
        buffers are written to first."""
        ur = self.ur
        origin = Offset(0, 0, 0)
        region = Region(4 * COUNT, 1, 1)
        host = (ctypes.c_int * COUNT)(*range(COUNT))
        none = 0, None, 0, None, None, None, None
        mine = self.memory
        append = "urCommandBufferAppendMemBuffer"
        waits = (0, None, 1, array(self.event), None, None, None)
        yield ur(f"{append}WriteExp", buffer, mine, 0, 4 * COUNT, host, *none)
        yield ur(f"{append}ReadExp", buffer, mine, 0, 4 * COUNT, host, *none)
        yield ur(f"{append}CopyExp", buffer, mine, mine, 0, 4 * COUNT // 2, 4 * COUNT // 2, *none)
        yield ur(
            f"{append}CopyRectExp",
            buffer,
            mine,
            mine,
            origin,
            Offset(0, 1, 0),
            Region(32, 1, 1),
            32,
            0,
            32,
            0,
            *none,
        )
        yield ur(
            f"{append}WriteRectExp", buffer, mine, origin, origin, region, 0, 0, 0, 0, host, *none
        )
        yield ur(
            f"{append}ReadRectExp", buffer, mine, origin, origin, region, 0, 0, 0, 0, host, *none
        )
        yield ur(f"{append}FillExp", buffer, mine, b"abcd", 4, 0, 8, *none)
        rows = make_arguments(memory(mine), value(1))
        launch = "urCommandBufferAppendKernelLaunchWithArgsExp"
        sizes_ = 1, None, sizes(COUNT), None, len(rows), rows
        yield ur(launch, buffer, self.kernel, *sizes_, 0, None, *none)
        yield ur(launch, buffer, bench.kernels["bump"], *sizes_, 0, None, *none)
        yield ur("urCommandBufferAppendUSMAdviseExp", buffer, bench.address, 4, 1, *waits)
        bench.finalize(buffer)
        yield bench.update(buffer, update(command, memory={0: mine}))
        yield ur("urCommandBufferUpdateWaitEventsExp", command, 1, array(self.event))
        yield ur("urEnqueueCommandBufferExp", self.queue, buffer)
        ur.ok("urQueueFinish", self.queue)


def uses(bench: Bench, context: int) -> set[str]:
    """What is answered to everything that a command-buffer does with objects of a context."""
    elsewhere, buffer = Elsewhere(bench.ur, context), bench.buffer(updatable=True)
    event = bench.ur.make("urEnqueueEventsWait", bench.queue)
    _, command = bench.launch(
        buffer, "bump", pointer(bench.address), value(1), waits=(event.value or 0,), handle=True
    )
    codes = set(elsewhere.uses(bench, buffer, command))
    bench.ur.ok("urCommandBufferReleaseExp", buffer)
    bench.ur.ok("urEventRelease", event)
    elsewhere.release()
    return codes


def test_objects_of_another_context_are_refused(bench: Bench) -> None:
    assert uses(bench, bench.ur.make("urContextCreate", 1, array(bench.device)).value or 0) == {
        "INVALID_CONTEXT"
    }


def test_contexts_of_one_native_handle_are_the_same(bench: Bench, adapter: Plugin) -> None:
    native = bench.ur.make("urContextGetNativeHandle", bench.context).value
    given = "urContextCreateWithNativeHandle", native, adapter.handles[0], 0, None, None
    assert uses(bench, bench.ur.make(*given).value or 0) == {"SUCCESS"}


# profiling, queries, misuse


@pytest.mark.parametrize("pattern", [b"four", b"123", b"x" * 60])
def test_a_fill_of_the_program_s_own_memory(bench: Bench, pattern: bytes) -> None:
    """Some drivers have no fill for memory that is not theirs; PoCL 7.1 crashes."""
    ur, buffer, host = bench.ur, bench.buffer(), ctypes.create_string_buffer(60)
    ur.ok("urCommandBufferAppendUSMFillExp", buffer, host, pattern, len(pattern), 60)
    bench.finalize(buffer)
    for _ in range(2):
        ctypes.memset(host, 0, 60)
        bench.run(buffer)
        assert host.raw == pattern * (60 // len(pattern))


def test_transfers_of_nothing_have_their_place_in_the_order(bench: Bench) -> None:
    """As on queues, where libsycl leaves them out."""
    ur, buffer, zero = bench.ur, bench.buffer(), ctypes.create_string_buffer(8)
    bench.launch(buffer, "bump", pointer(bench.address), value(1))
    ur.ok("urCommandBufferAppendUSMMemcpyExp", buffer, bench.address, zero, 0)
    ur.ok("urCommandBufferAppendUSMFillExp", buffer, bench.address, zero, 1, 0)
    bench.launch(buffer, "bump", pointer(bench.address), value(2))
    bench.finalize(buffer)
    assert bench.run(buffer) == bumped(list(range(COUNT)), 1, 2)


def test_a_launch_of_nothing_has_its_place_in_the_order(bench: Bench) -> None:
    """As on queues. Drivers may divide by the sizes of what they get."""
    buffer = bench.buffer()
    bench.launch(buffer, "bump", pointer(bench.address), value(1))
    bench.launch(buffer, "bump", pointer(bench.address), value(5), size=sizes(0))
    bench.launch(buffer, "bump", pointer(bench.address), value(2))
    bench.finalize(buffer)
    assert bench.run(buffer) == bumped(list(range(COUNT)), 1, 2)


def test_a_command_waits_for_another_one_of_the_same_command_buffer(bench: Bench) -> None:
    """An edge like a sync-point, also after the event was exchanged."""
    ur, buffer = bench.ur, bench.buffer(updatable=True, in_order=False)
    event = ctypes.c_void_p()
    _, first = bench.launch(
        buffer, "bump", pointer(bench.address), value(1), event=ctypes.byref(event), handle=True
    )
    waits = (event.value or 0,)
    _, second = bench.launch(
        buffer, "scale", pointer(bench.address), value(2), waits=waits, handle=True
    )
    bench.finalize(buffer)
    expected = list(range(COUNT))
    for _ in range(3):
        expected = [2 * cell for cell in bumped(expected, 1)]
        assert bench.run(buffer) == expected
    other = ur.make("urCommandBufferUpdateSignalEventExp", first)
    ur.ok("urCommandBufferUpdateWaitEventsExp", second, 1, array(other))
    assert bench.run(buffer) == [2 * cell for cell in bumped(expected, 1)]
    foreign = ur.make("urEnqueueEventsWait", bench.queue)
    code = ur("urCommandBufferUpdateWaitEventsExp", second, 1, array(foreign))
    assert code == "UNSUPPORTED_FEATURE"
