"""Steps of a stream that the host runs: host functions, and timestamps that go to memory.

A marker says when the step's turn has come. A thread of the stream waits for it, runs the function,
and completes a user event, after which the queue goes on.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ...icd._native import ffi as icd_ffi
from ...icd.calls import call, enqueue_barrier, enqueue_marker, get_address
from ..opencl.core import create
from ..opencl.usm.addresses import make_copy_operation
from ..sdk._native_ze import ffi
from .completions import Completion
from .core import driver, make_failure
from .devices import read_clocks
from .events import ZeEvent, query_times
from .host_threads import call_after, start_thread
from .lists import ZeCommandList
from .recording import ListCommand, ListRecording
from .streams import StepRun, Stream, StreamStep

# void (void *data), of zeCommandListAppendHostFunction
_HostFunction: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_ROW: Final = ffi.sizeof("ze_kernel_timestamp_result_t")
#: The first and the last command whose times are read, None for no times.
Times: TypeAlias = "tuple[Completion, Completion] | None"
#: A function of the host. It is given what has the times that it reads.
HostStep: TypeAlias = Callable[[Sequence[Times]], None]


def make_host_step(function: HostStep) -> StepRun:
    """Return what enqueues a function of the host."""

    def run(stream: Stream, step: StreamStep, waits: Sequence[int]) -> int:
        start_thread(stream)
        times = [event.timing for event in step.reads]
        context = stream.context.ur
        with ExitStack() as undo:  # without its function, the queue must not wait for it
            turn = enqueue_marker(stream.cl, waits)
            undo.callback(call, turn, "clReleaseEvent")
            user = create(context.table, "clCreateUserEvent", context.cl)
            undo.callback(_complete, user)
            end = enqueue_barrier(stream.cl, [user])
            undo.callback(call, end, "clReleaseEvent")
            call(stream.cl, "clFlush")

            def finish(_: Exception | None) -> None:  # whatever became of the commands before it
                try:
                    function(times)
                finally:
                    _complete(user)

            call_after(stream, turn, finish)
            undo.pop_all()
        return end

    return run


def _complete(user: int) -> None:
    """Complete a user event and release it, so that the queue goes on."""
    call(user, "clSetUserEventStatus", 0)
    call(user, "clReleaseEvent")


@dataclass(frozen=True)
class HostCommand:
    """A function of the host, and copies after it, as a command of a list.

    Attributes:
        make: returns the function, the copies (target, source, size), and what has to live as long.
            Each recording makes its own: lists may run at the same time.
        reads: the events whose times the function is given.
    """

    make: Callable[[], tuple[HostStep, Sequence[tuple[int, int, int]], Any]]
    reads: Sequence[ZeEvent] = ()

    def record(
        self, recording: ListRecording, waits: Sequence[ZeEvent] = (), signal: ZeEvent | None = None
    ) -> list[ListCommand]:
        """Record the step. Returns its commands."""
        function, copies, keep = self.make()
        operations = [make_copy_operation(recording.context.ur, *copy) for copy in copies]
        recording.kept.append(keep)
        first = recording.add("host", waits, None if operations else signal)
        first.run, first.reads = make_host_step(function), self.reads
        first.record_again = self.record
        commands = [first, *(recording.add_operation(operation) for operation in operations)]
        if operations:
            commands.append(recording.add("barrier", (), signal))
        return commands


def _append(
    made: ZeCommandList, command: HostCommand, signal: ZeEvent | None, waits: Sequence[ZeEvent]
) -> None:
    recording = made.begin_append(signal, waits)
    made.end_append(recording, *command.record(recording, waits, signal))


@driver.entry
def zeCommandListAppendHostFunction(
    hCommandList: ZeCommandList,
    pfnHostFunction: int,
    pUserData: int,
    hSignalEvent: ZeEvent | None,
    phWaitEvents: list[ZeEvent],
) -> None:
    function = _HostFunction(pfnHostFunction)
    command = HostCommand(lambda: (lambda _: function(pUserData), (), None))
    _append(hCommandList, command, hSignalEvent, phWaitEvents)


@driver.entry
def zeCommandListAppendWriteGlobalTimestamp(
    hCommandList: ZeCommandList,
    dstptr: Any,
    hSignalEvent: ZeEvent | None,
    phWaitEvents: list[ZeEvent],
) -> None:
    target, device = int(ffi.cast("uintptr_t", dstptr)), hCommandList.device

    def make() -> tuple[HostStep, Sequence[tuple[int, int, int]], Any]:
        staging = icd_ffi.new("uint64_t *")

        def write(_: Sequence[Times]) -> None:
            staging[0] = read_clocks(device)[1]

        return write, [(target, get_address(staging), 8)], staging

    _append(hCommandList, HostCommand(make), hSignalEvent, phWaitEvents)


@driver.entry
def zeCommandListAppendQueryKernelTimestamps(
    hCommandList: ZeCommandList,
    numEvents: int,
    phEvents: list[ZeEvent],
    dstptr: int,
    pOffsets: list[int] | None,
    hSignalEvent: ZeEvent | None,
    phWaitEvents: list[ZeEvent],
) -> None:
    if not all(event.has_times for event in phEvents):
        raise make_failure("INVALID_ARGUMENT", "the pool of an event has no timestamps")
    hCommandList.check_events(phEvents)
    offsets = pOffsets or range(0, _ROW * numEvents, _ROW)

    def make() -> tuple[HostStep, Sequence[tuple[int, int, int]], Any]:
        staging = icd_ffi.new("uint64_t[]", 4 * numEvents)
        start = get_address(staging)

        def write(times: Sequence[Times]) -> None:
            for number, one in enumerate(times):
                staging[4 * number : 4 * number + 4] = query_times(one) * 2

        copies = [(dstptr + at, start + _ROW * n, _ROW) for n, at in enumerate(offsets)]
        return write, copies, staging

    _append(hCommandList, HostCommand(make, phEvents), hSignalEvent, phWaitEvents)
