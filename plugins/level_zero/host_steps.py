"""Steps of a stream that the host runs: host functions, and timestamps that go to memory.

A marker says when the step's turn has come. A thread of the stream waits for it, runs the function,
and completes a user event, after which the queue goes on.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from ...icd._native import ffi as icd_ffi
from ...icd.calls import call, enqueue_marker
from ...icd.command_buffer.waiting import wait as wait_for_event
from ...icd.errors import OpenCLError
from ..opencl.core import create
from ..opencl.usm.addresses import as_copy
from ..sdk._native_ze import ffi
from .completions import Completion
from .core import driver, ze_failure
from .events import ZeEvent, times_of
from .lists import ZeCommandList
from .streams import StepRun, Stream, StreamStep

_HostFunction: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_ROW: Final = ffi.sizeof("ze_kernel_timestamp_result_t")
#: A function of the host. It is given the commands whose times it reads, None for no times.
HostStep: TypeAlias = Callable[[Sequence[Completion | None]], None]

#: What each stream's thread does next: the marker, the user event, and the function.
_works: Final[WeakKeyDictionary[Stream, SimpleQueue[Any]]] = WeakKeyDictionary()


def host_step(function: HostStep) -> StepRun:
    """Return what enqueues a function of the host."""

    def run(stream: Stream, step: StreamStep, waits: Sequence[int]) -> int:
        times = [event.timing for event in step.reads]
        context = stream.context.ur
        turn = enqueue_marker(stream.cl, waits, "clEnqueueMarkerWithWaitList")
        user = create(context.table, "clCreateUserEvent", context.cl)
        end = enqueue_marker(stream.cl, [user], "clEnqueueBarrierWithWaitList")
        call(stream.cl, "clFlush")
        _work_of(stream).put((turn, user, partial(function, times)))
        return end

    return run


def _work_of(stream: Stream) -> SimpleQueue[Any]:
    """Return what a stream's thread does. The first call starts the thread."""
    if stream not in _works:
        work: SimpleQueue[Any] = SimpleQueue()
        _works[stream] = work
        stream.on_close.append(lambda: work.put(None))
        one_at_a_time = stream.waits_one_at_a_time
        thread = threading.Thread(target=_serve, args=(work, one_at_a_time), daemon=True)
        thread.start()
    return _works[stream]


def _serve(work: SimpleQueue[Any], one_at_a_time: bool) -> None:
    while (item := work.get()) is not None:
        turn, user, function = item
        with suppress(OpenCLError):  # whatever became of the commands before it
            wait_for_event(turn, True, one_at_a_time)
        try:
            function()
        except Exception as error:
            driver.log("error", f"a step on the host failed: {error}")
        call(user, "clSetUserEventStatus", 0)
        for event in (turn, user):
            call(event, "clReleaseEvent")


def _append(
    made: ZeCommandList,
    function: HostStep,
    copies: Sequence[tuple[int, int, int]],
    signal: ZeEvent | None,
    waits: Sequence[ZeEvent],
    keep: Any = None,
    reads: Sequence[ZeEvent] = (),
) -> None:
    """Append a function of the host, and copies (target, source, size) after it."""
    recording = made.begin_append(signal, waits)
    operations = [as_copy(made.context.ur, *copy) for copy in copies]
    recording.kept.append(keep)
    commands = [recording.add("host", waits, None if operations else signal)]
    commands[0].run, commands[0].reads = host_step(function), reads
    commands += [recording.add_operation(operation) for operation in operations]
    if operations:
        commands.append(recording.add("barrier", (), signal))
    made.end_append(recording, *commands)


@driver.entry
def zeCommandListAppendHostFunction(
    hCommandList: ZeCommandList,
    pfnHostFunction: int,
    pUserData: int,
    hSignalEvent: ZeEvent | None,
    phWaitEvents: list[ZeEvent],
) -> None:
    function = _HostFunction(pfnHostFunction)
    _append(hCommandList, lambda _: function(pUserData), (), hSignalEvent, phWaitEvents)


@driver.entry
def zeCommandListAppendWriteGlobalTimestamp(
    hCommandList: ZeCommandList,
    dstptr: Any,
    hSignalEvent: ZeEvent | None,
    phWaitEvents: list[ZeEvent],
) -> None:
    staging = icd_ffi.new("uint64_t *")

    def write(_: Sequence[Completion | None]) -> None:
        staging[0] = time.monotonic_ns()

    copy = int(ffi.cast("uintptr_t", dstptr)), int(icd_ffi.cast("uintptr_t", staging)), 8
    _append(hCommandList, write, [copy], hSignalEvent, phWaitEvents, staging)


@driver.entry
def zeCommandListAppendQueryKernelTimestamps(
    hCommandList: ZeCommandList,
    numEvents: int,
    phEvents: list[ZeEvent],
    dstptr: int,
    pOffsets: Any,
    hSignalEvent: ZeEvent | None,
    phWaitEvents: list[ZeEvent],
) -> None:
    if not numEvents:
        raise ze_failure("INVALID_SIZE", "there are no events")
    if not all(event.has_times for event in phEvents):
        raise ze_failure("INVALID_ARGUMENT", "the pool of an event has no timestamps")
    hCommandList.check_events(phEvents)
    staging = icd_ffi.new("uint64_t[]", 4 * numEvents)

    def write(times: Sequence[Completion | None]) -> None:
        for number, completion in enumerate(times):
            staging[4 * number : 4 * number + 4] = times_of(completion) * 2

    start = int(icd_ffi.cast("uintptr_t", staging))
    offsets = ffi.unpack(pOffsets, numEvents) if pOffsets else range(0, _ROW * numEvents, _ROW)
    copies = [(dstptr + at, start + _ROW * n, _ROW) for n, at in enumerate(offsets)]
    _append(hCommandList, write, copies, hSignalEvent, phWaitEvents, staging, phEvents)
