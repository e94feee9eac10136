"""Command queues, fences and command lists: made, closed, executed, waited for.

A regular list is a recording, which is executed any number of times. An immediate list is a stream:
an append makes a recording of one command and runs it, unless nothing hinders its direct enqueue
(immediate.py)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from ..opencl.usm.allocations import release_memory
from ..opencl.usm.registry import remove
from ..sdk.objects import Object
from .contexts import ZeContext, find_base
from .core import ZE, driver, find_struct, ze_failure
from .devices import ZeDevice
from .events import ZeEvent
from .in_c import CHANGED, CLOSED, ListInC, number_of
from .recording import ListCommand, ListRecording
from .streams import FOREVER, Signal, Stream, StreamStep, enqueue_order

_PATIENCE: Final = 10_000_000_000  # nanoseconds
_SYNCHRONOUS: Final = ZE["ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS"]
_QUEUE_IN_ORDER: Final = ZE["ZE_COMMAND_QUEUE_FLAG_IN_ORDER"]
_LIST_IN_ORDER: Final = ZE["ZE_COMMAND_LIST_FLAG_IN_ORDER"]


def _check_group(ordinal: int, index: int = 0) -> None:
    if ordinal or index:
        raise ze_failure(
            "INVALID_ARGUMENT", "a device has one group of command queues, and one queue in it"
        )


# queues


@driver.kind
class ZeQueue(Object):
    """A command queue: a stream, and how it was made."""

    type = "ze_command_queue_handle_t"

    def __init__(self, context: ZeContext, device: ZeDevice, desc: Any) -> None:
        self.context, self.device = context, device
        self.flags, self.mode, self.priority = desc.flags, desc.mode, desc.priority
        self.stream = Stream(context, device, desc.mode == _SYNCHRONOUS)

    def describe_to_c(self) -> tuple[int, int, int, int]:
        """Return what native/ze_calls.h says."""
        return number_of(self.stream.in_c.struct), 0, 0, 0

    def close(self) -> None:
        self.stream.close()


@driver.kind
class ZeFence(Signal):
    """A fence, which a queue signals after lists."""

    type = "ze_fence_handle_t"

    def __init__(self, queue: ZeQueue, signaled: bool) -> None:
        super().__init__()
        self.queue, self._signaled = queue, signaled


@driver.entry
def zeCommandQueueCreate(hContext: ZeContext, hDevice: ZeDevice, desc: Any) -> ZeQueue:
    hContext.check(hDevice)
    _check_group(desc.ordinal, desc.index)
    return ZeQueue(hContext, hDevice, desc)


@driver.entry
def zeCommandQueueSynchronize(hCommandQueue: ZeQueue, timeout: int) -> int:
    return hCommandQueue.stream.wait(timeout)


@driver.entry
def zeCommandQueueGetOrdinal(hCommandQueue: ZeQueue) -> int:
    return 0


@driver.entry
def zeCommandQueueGetIndex(hCommandQueue: ZeQueue) -> int:
    return 0


@driver.entry
def zeCommandQueueGetFlags(hCmdQueue: ZeQueue) -> int:
    return hCmdQueue.flags


@driver.entry
def zeCommandQueueGetMode(hCmdQueue: ZeQueue) -> int:
    return hCmdQueue.mode


@driver.entry
def zeCommandQueueGetPriority(hCmdQueue: ZeQueue) -> int:
    return hCmdQueue.priority


@driver.entry
def zeFenceCreate(hCommandQueue: ZeQueue, desc: Any) -> ZeFence:
    return ZeFence(hCommandQueue, bool(desc.flags & ZE["ZE_FENCE_FLAG_SIGNALED"]))


@driver.entry
def zeFenceHostSynchronize(hFence: ZeFence, timeout: int) -> int:
    return hFence.wait(timeout)


@driver.entry
def zeFenceQueryStatus(hFence: ZeFence) -> int:
    return hFence.query()


@driver.entry
def zeFenceReset(hFence: ZeFence) -> None:
    hFence.reset_by_host()


# lists


@driver.kind
class ZeCommandList(Object):
    """A command list.

    Attributes:
        recording: what it has recorded; nothing if it is immediate.
        stream: where an immediate list runs, None for a regular one.
        mutable: the commands that can be changed, by their identifiers; None if the list is not
            mutable (mutable.py).
        in_c: what C knows of it, with its state.
        touched: the commands that Python has changed since the last close.
        incomplete: the name of a kernel that lacks an argument, "" if all have theirs.
    """

    type = "ze_command_list_handle_t"

    def __init__(
        self,
        context: ZeContext,
        device: ZeDevice,
        flags: int,
        *,
        in_order: bool,
        mutable: bool = False,
        queue: Any = None,
    ) -> None:
        self.context, self.device, self.flags = context, device, flags
        self.in_order = in_order
        self.stream = Stream(context, device) if queue is not None else None
        self.mode = queue.mode if queue is not None else 0
        self.priority = queue.priority if queue is not None else 0
        self.mutable: dict[int, Any] | None = {} if mutable else None
        self.in_c = ListInC(context.ur.cl, device.ur.cl)
        self.capture = None
        self.next_id = None
        self.ids = 0
        self.touched: list[Any] = []
        self.incomplete = ""
        self.recording = self._new_recording()

    def describe_to_c(self) -> tuple[int, int, int, int]:
        """Return what native/ze_calls.h says."""
        return number_of(self.in_c.struct), 0, 0, 0

    def _new_recording(self) -> ListRecording:
        is_mutable = self.mutable is not None
        return ListRecording(self.context, self.device, self.in_order, is_mutable, self.in_c)

    @property
    def closed(self) -> bool:
        """Return whether it can be executed."""
        return self.in_c.struct.state == CLOSED

    @property
    def changed(self) -> bool:
        """Return whether it was changed since it was closed last."""
        return self.in_c.struct.state == CHANGED

    @property
    def next_id(self) -> Any:
        """The identifier of the next command (mutable.py), None if nobody has asked for one."""
        return self._next_id

    @next_id.setter
    def next_id(self, value: Any) -> None:
        self._next_id = value
        self.in_c.struct.in_python = self.is_immediate or value is not None

    @property
    def capture(self) -> Any:
        """What an immediate list is captured into (graphs.py), or None."""
        return self._capture

    @capture.setter
    def capture(self, value: Any) -> None:
        self._capture = value
        stream = self.stream if value is None and self.mode != _SYNCHRONOUS else None
        self.in_c.run_on(stream.in_c if stream is not None else None)

    @property
    def is_immediate(self) -> bool:
        """Return whether it runs commands when they are appended."""
        return self.stream is not None

    def check_regular(self) -> None:
        """Raise LevelZeroError (INVALID_COMMAND_LIST_TYPE) if it is immediate."""
        if self.stream is not None:
            raise ze_failure("INVALID_COMMAND_LIST_TYPE", "the list is immediate")

    def check_open(self) -> None:
        """Raise LevelZeroError (INVALID_ARGUMENT) if nothing can be appended."""
        if self.closed or self.changed:
            raise ze_failure("INVALID_ARGUMENT", "the list is closed; reset it to append commands")

    def check_events(self, events: Sequence[ZeEvent | None]) -> None:
        """Raise LevelZeroError (INVALID_SYNCHRONIZATION_OBJECT) for events of other contexts."""
        for event in events:
            if event is not None and event.context is not self.context:
                raise ze_failure("INVALID_SYNCHRONIZATION_OBJECT", "an event is of another context")

    def begin_append(
        self, signal: ZeEvent | None = None, waits: Sequence[ZeEvent] = ()
    ) -> ListRecording:
        """Return what the next command is recorded in.

        Raises:
            LevelZeroError: INVALID_ARGUMENT if the list is closed, INVALID_SYNCHRONIZATION_OBJECT;
                GRAPH_… for what cannot be captured.
        """
        self.check_events((signal, *waits))
        if self.stream is None:
            self.check_open()
            for event in waits:
                event.check_outside()
            return self.recording
        captures = [event.capture for event in waits if event.capture is not None]
        if self.capture is not None or captures:
            return (self.capture or captures[0]).begin(self, waits)
        return ListRecording(self.context, self.device, True)

    def end_append(self, recording: ListRecording, *commands: ListCommand) -> None:
        """Run what was recorded, if the list is immediate; else give it its identifier."""
        if self.stream is None:
            if self.next_id is not None and commands:
                made, self.next_id = self.next_id, None
                made.begin(commands[-1])
            return
        if self.capture is not None:
            self.capture.end(self, commands)
            return
        self.stream.submit(recording.steps())
        recording.let_go()
        self.finish_append()

    def finish_append(self) -> None:
        """Wait for everything, if the immediate list is synchronous."""
        if self.mode == _SYNCHRONOUS and self.stream is not None:
            self.stream.wait(FOREVER)

    def close_recording(self) -> None:
        """Complete what was recorded, so that it can be executed."""
        self.next_id = None
        parts = self.recording.parts()
        launches = (command.launch for command in self.recording.commands)
        missing = (one.kernel.name for one in launches if one and not one.is_complete)
        self.incomplete = next(missing, "")
        can_run = len(parts) == 1 and not self.incomplete
        self.in_c.close(parts[0].plain_buffer if can_run else None)

    def check_executable(self) -> None:
        """Check that it can be executed.

        Raises:
            LevelZeroError: INVALID_COMMAND_LIST_TYPE, INVALID_ARGUMENT.
        """
        self.check_regular()
        if not self.closed:
            what = "was changed and not closed again" if self.changed else "is not closed"
            raise ze_failure("INVALID_ARGUMENT", f"the list {what}")
        if self.incomplete:
            raise ze_failure("INVALID_ARGUMENT", f"not all arguments of {self.incomplete} are set")

    def reset(self) -> None:
        """Forget what was recorded."""
        self.recording.let_go()
        self.next_id, self.touched = None, []
        if self.mutable is not None:
            self.mutable = {}
        self.recording = self._new_recording()

    def close(self) -> None:
        self.recording.let_go()
        if self.stream is not None:
            self.stream.close()


@driver.entry
def zeCommandListCreate(hContext: ZeContext, hDevice: ZeDevice, desc: Any) -> ZeCommandList:
    hContext.check(hDevice)
    _check_group(desc.commandQueueGroupOrdinal)
    mutable = find_struct(
        desc.pNext,
        "ZE_STRUCTURE_TYPE_MUTABLE_COMMAND_LIST_EXP_DESC",
        "ze_mutable_command_list_exp_desc_t",
    )
    if mutable is not None and mutable.flags:
        raise ze_failure("INVALID_ENUMERATION", "the flags of a mutable command list are reserved")
    in_order = bool(desc.flags & _LIST_IN_ORDER)
    return ZeCommandList(
        hContext, hDevice, desc.flags, in_order=in_order, mutable=mutable is not None
    )


@driver.entry
def zeCommandListCreateImmediate(
    hContext: ZeContext, hDevice: ZeDevice, altdesc: Any
) -> ZeCommandList:
    hContext.check(hDevice)
    _check_group(altdesc.ordinal, altdesc.index)
    in_order = bool(altdesc.flags & _QUEUE_IN_ORDER)
    return ZeCommandList(hContext, hDevice, altdesc.flags, in_order=in_order, queue=altdesc)


@driver.entry
def zeCommandListReset(hCommandList: ZeCommandList) -> None:
    hCommandList.check_regular()
    hCommandList.reset()


@driver.entry
def zeCommandListHostSynchronize(hCommandList: ZeCommandList, timeout: int) -> int:
    stream = stream_of(hCommandList)
    if hCommandList.capture is not None:
        raise hCommandList.capture.refuse("nobody waits for a list")
    return stream.wait(timeout)


@driver.entry
def zeCommandListGetDeviceHandle(hCommandList: ZeCommandList) -> ZeDevice:
    return hCommandList.device


@driver.entry
def zeCommandListGetContextHandle(hCommandList: ZeCommandList) -> ZeContext:
    return hCommandList.context


@driver.entry
def zeCommandListGetOrdinal(hCommandList: ZeCommandList) -> int:
    return 0


@driver.entry
def zeCommandListImmediateGetIndex(hCommandListImmediate: ZeCommandList) -> int:
    stream_of(hCommandListImmediate)
    return 0


@driver.entry
def zeCommandListIsImmediate(hCommandList: ZeCommandList) -> int:
    return hCommandList.is_immediate


@driver.entry
def zeCommandListGetFlags(hCommandList: ZeCommandList) -> int:
    hCommandList.check_regular()
    return hCommandList.flags


@driver.entry
def zeCommandListImmediateGetFlags(hCommandList: ZeCommandList) -> int:
    stream_of(hCommandList)
    return hCommandList.flags


@driver.entry
def zeCommandListImmediateGetMode(hCommandList: ZeCommandList) -> int:
    stream_of(hCommandList)
    return hCommandList.mode


@driver.entry
def zeCommandListImmediateGetPriority(hCommandList: ZeCommandList) -> int:
    stream_of(hCommandList)
    return hCommandList.priority


def stream_of(made: ZeCommandList) -> Stream:
    """Return the stream of an immediate list.

    Raises:
        LevelZeroError: INVALID_COMMAND_LIST_TYPE if the list is not immediate.
    """
    if made.stream is None:
        raise ze_failure("INVALID_COMMAND_LIST_TYPE", "the list is not immediate")
    return made.stream


# execution


def _steps(
    lists: Sequence[ZeCommandList], context: ZeContext, device: ZeDevice
) -> list[StreamStep]:
    """Return what runs lists in order.

    Raises:
        LevelZeroError: INVALID_ARGUMENT, INVALID_COMMAND_LIST_TYPE.
    """
    for one in lists:
        if one.context is not context or one.device is not device:
            raise ze_failure("INVALID_ARGUMENT", "a list is of another context or device")
        one.check_executable()
    return [step for one in lists for step in one.recording.steps()]


@driver.entry
def zeCommandQueueExecuteCommandLists(
    hCommandQueue: ZeQueue,
    numCommandLists: int,
    phCommandLists: list[ZeCommandList],
    hFence: ZeFence | None,
) -> None:
    if not numCommandLists:
        raise ze_failure("INVALID_SIZE", "there is nothing to execute")
    if hFence is not None and hFence.queue is not hCommandQueue:
        raise ze_failure("INVALID_SYNCHRONIZATION_OBJECT", "the fence is of another queue")
    steps = _steps(phCommandLists, hCommandQueue.context, hCommandQueue.device)
    if hFence is not None:
        steps.append(StreamStep(effects=[(hFence, True)]))
    hCommandQueue.stream.submit(steps)
    if hCommandQueue.mode == _SYNCHRONOUS:
        hCommandQueue.stream.wait(FOREVER)


def append_steps(
    made: ZeCommandList,
    make: Callable[[], list[StreamStep]],
    signal: ZeEvent | None,
    waits: list[ZeEvent],
) -> None:
    """Run what was recorded elsewhere on an immediate list.

    Args:
        made: the list.
        make: returns what is run.
        signal: the event that it signals, or None.
        waits: the events that it waits for.

    Raises:
        LevelZeroError: INVALID_COMMAND_LIST_TYPE, INVALID_SYNCHRONIZATION_OBJECT,
            GRAPH_CAPTURE_UNSUPPORTED, GRAPH_INTERNAL_EVENT; what `make` raises.
    """
    stream = stream_of(made)
    made.check_events((signal, *waits))
    if made.capture is not None:
        raise made.capture.refuse("a list runs no other lists or graphs")
    for event in waits:
        event.check_outside()
    steps = [StreamStep(waits), *make()] if waits else make()
    if signal is not None:
        steps.append(StreamStep(effects=[(signal, True)]))
    stream.submit(steps)
    made.finish_append()


@driver.entry
def zeCommandListImmediateAppendCommandListsExp(
    hCommandListImmediate: ZeCommandList,
    numCommandLists: int,
    phCommandLists: list[ZeCommandList],
    hSignalEvent: ZeEvent | None,
    phWaitEvents: list[ZeEvent],
) -> None:
    context, device = hCommandListImmediate.context, hCommandListImmediate.device
    stream_of(hCommandListImmediate)
    if not numCommandLists:
        raise ze_failure("INVALID_SIZE", "there is nothing to execute")
    append_steps(
        hCommandListImmediate,
        lambda: _steps(phCommandLists, context, device),
        hSignalEvent,
        phWaitEvents,
    )


@driver.entry
def zeCommandListImmediateAppendCommandListsWithParameters(
    hCommandListImmediate: ZeCommandList,
    numCommandLists: int,
    phCommandLists: list[ZeCommandList],
    hSignalEvent: ZeEvent | None,
    phWaitEvents: list[ZeEvent],
) -> None:
    zeCommandListImmediateAppendCommandListsExp(
        hCommandListImmediate, numCommandLists, phCommandLists, hSignalEvent, phWaitEvents
    )


def _streams(context: ZeContext | None = None, device: ZeDevice | None = None) -> Iterator[Stream]:
    """Yield the streams of a context, of a device and its sub-devices, or all."""
    is_any = context is None and device is None
    for kind in (ZeQueue, ZeCommandList):
        for owner in list(driver.objects.of(kind.type).values()):
            is_own = is_any or owner.context is context
            is_own |= device is not None and owner.device.is_part_of(device)
            if is_own and owner.stream is not None:
                yield owner.stream


def _finish() -> None:
    """Wait at the end of the process for what runs: drivers' destructors do not expect it."""
    deadline = time.monotonic_ns() + _PATIENCE
    for stream in _streams():
        with enqueue_order():
            last = stream.learn_last()
        if last is not None and last.is_pending:
            last.wait(deadline)


driver.on_end.append(_finish)


@driver.entry
def zeDeviceSynchronize(hDevice: ZeDevice) -> None:
    for stream in _streams(device=hDevice):
        stream.wait(FOREVER)


# memory that commands may use


@driver.entry
def zeMemFreeExt(hContext: ZeContext, pMemFreeDesc: Any, ptr: int) -> None:
    """Free memory after everything that is enqueued now, for both policies.

    A list that is executed later must not use it.
    """
    find_base(hContext, ptr)
    if pMemFreeDesc.freePolicy:
        for stream in _streams(hContext):
            stream.wait(FOREVER)
    release_memory(remove(hContext.ur, ptr), wait=False)
