"""Command lists: made, closed, reset, asked.

A regular list is a recording, which is executed any number of times. An immediate list is a stream:
an append makes a recording of one command and runs it, unless nothing hinders its direct enqueue
(immediate.py). What runs lists is in execution.py."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, Final

from ..sdk.objects import Object
from .completions import FOREVER
from .contexts import ZeContext
from .core import ZE, driver, find_struct, make_failure
from .devices import ZeDevice
from .events import ZeEvent
from .in_c import CHANGED, CLOSED, ListInC, get_address
from .queues import SYNCHRONOUS, check_group
from .recording import ListCommand, ListRecording
from .streams import Stream

_QUEUE_IN_ORDER: Final = ZE["ZE_COMMAND_QUEUE_FLAG_IN_ORDER"]
_LIST_IN_ORDER: Final = ZE["ZE_COMMAND_LIST_FLAG_IN_ORDER"]


@driver.kind
class ZeCommandList(Object):
    """A command list.

    Attributes:
        recording: what it has recorded; nothing if it is immediate.
        stream: where an immediate list runs, None for a regular one.
        mutable: the commands that can be changed, by their identifiers; None if the list is not
            mutable (mutable.py).
        identifiers: those of the next commands that can be changed.
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
        self.in_c = ListInC(context.ur.cl, device.ur.cl, in_order)
        self.capture = None
        self.next_id = None
        self.identifiers = count(1)  # next() is atomic: threads get different ones
        self.touched: list[Any] = []
        self.incomplete = ""
        self.recording = self._make_recording()

    def describe_to_c(self) -> tuple[int, int, int, int]:
        return get_address(self.in_c.struct), 0, 0, 0

    def _make_recording(self) -> ListRecording:
        is_mutable = self.mutable is not None
        return ListRecording(self.context, self.device, self.in_order, is_mutable, self.in_c)

    @property
    def closed(self) -> bool:
        """Return whether the list can be executed."""
        return self.in_c.struct.state == CLOSED

    @property
    def changed(self) -> bool:
        """Return whether the list was changed since it was closed last."""
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
        stream = self.stream if value is None and self.mode != SYNCHRONOUS else None
        self.in_c.run_on(stream.in_c if stream is not None else None)

    @property
    def is_immediate(self) -> bool:
        """Return whether the list runs commands when they are appended."""
        return self.stream is not None

    def check_regular(self) -> None:
        """Raise LevelZeroError (INVALID_COMMAND_LIST_TYPE) if it is immediate."""
        if self.stream is not None:
            raise make_failure("INVALID_COMMAND_LIST_TYPE", "the list is immediate")

    def check_open(self) -> None:
        """Raise LevelZeroError (INVALID_ARGUMENT) if nothing can be appended."""
        if self.closed or self.changed:
            raise make_failure(
                "INVALID_ARGUMENT", "the list is closed; reset it to append commands"
            )

    def check_signal(self, event: ZeEvent | None) -> None:
        """Raise LevelZeroError (INVALID_ARGUMENT) for an event that only in-order lists signal."""
        if event is not None and event.is_counter_based and not self.in_order:
            detail = "only in-order lists signal a counter-based event"
            raise make_failure("INVALID_ARGUMENT", detail)

    def check_events(self, events: Sequence[ZeEvent | None]) -> None:
        """Raise LevelZeroError (INVALID_SYNCHRONIZATION_OBJECT) for events of other contexts."""
        for event in events:
            if event is not None and not event.context.shares(self.context):
                raise make_failure(
                    "INVALID_SYNCHRONIZATION_OBJECT", "an event is of another context"
                )

    def begin_append(
        self, signal: ZeEvent | None = None, waits: Sequence[ZeEvent] = ()
    ) -> ListRecording:
        """Return what the next command is recorded in.

        Raises:
            LevelZeroError: INVALID_ARGUMENT if the list is closed, or does not signal such events;
                INVALID_SYNCHRONIZATION_OBJECT; GRAPH_… for what cannot be captured.
        """
        self.check_events((signal, *waits))
        self.check_signal(signal)
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
        try:
            self.stream.submit(recording.list_steps())
        finally:  # after a failure, too: steps before the one that failed may run
            recording.drop_buffers()
        self.finish_append()

    def finish_append(self) -> None:
        """Wait for everything, if the immediate list is synchronous."""
        if self.mode == SYNCHRONOUS and self.stream is not None:
            self.stream.wait(FOREVER)

    def close_recording(self) -> None:
        """Complete what was recorded, so that it can be executed."""
        self.next_id = None
        parts = self.recording.list_parts()
        launches = (command.launch for command in self.recording.commands)
        missing = (one.kernel.name for one in launches if one and not one.is_complete)
        self.incomplete = next(missing, "")
        only = parts[0].plain_buffer if len(parts) == 1 and not self.incomplete else None
        self.in_c.close(only, [event.in_c for event in parts[0].resets] if only else ())

    def check_executable(self) -> None:
        """Check that the list can be executed.

        Raises:
            LevelZeroError: INVALID_COMMAND_LIST_TYPE, INVALID_ARGUMENT.
        """
        self.check_regular()
        if not self.closed:
            what = "was changed and not closed again" if self.changed else "is not closed"
            raise make_failure("INVALID_ARGUMENT", f"the list {what}")
        if self.incomplete:
            raise make_failure(
                "INVALID_ARGUMENT", f"not all arguments of {self.incomplete} are set"
            )

    def reset(self) -> None:
        """Forget what was recorded."""
        self.recording.drop_buffers()
        self.next_id, self.touched = None, []
        if self.mutable is not None:
            self.mutable = {}
        self.recording = self._make_recording()

    def close(self) -> None:
        self.recording.drop_buffers()
        if self.stream is not None:
            self.stream.close()


@driver.entry
def zeCommandListCreate(hContext: ZeContext, hDevice: ZeDevice, desc: Any) -> ZeCommandList:
    hContext.check(hDevice)
    check_group(desc.commandQueueGroupOrdinal)
    mutable = find_struct(
        desc.pNext,
        "ZE_STRUCTURE_TYPE_MUTABLE_COMMAND_LIST_EXP_DESC",
        "ze_mutable_command_list_exp_desc_t",
    )
    if mutable is not None and mutable.flags:
        raise make_failure(
            "INVALID_ENUMERATION", "the flags of a mutable command list are reserved"
        )
    in_order = bool(desc.flags & _LIST_IN_ORDER)
    return ZeCommandList(
        hContext, hDevice, desc.flags, in_order=in_order, mutable=mutable is not None
    )


@driver.entry
def zeCommandListCreateImmediate(
    hContext: ZeContext, hDevice: ZeDevice, altdesc: Any
) -> ZeCommandList:
    hContext.check(hDevice)
    check_group(altdesc.ordinal, altdesc.index)
    in_order = bool(altdesc.flags & _QUEUE_IN_ORDER)
    return ZeCommandList(hContext, hDevice, altdesc.flags, in_order=in_order, queue=altdesc)


@driver.entry
def zeCommandListReset(hCommandList: ZeCommandList) -> None:
    if not hCommandList.is_immediate:  # there is nothing to forget in an immediate list
        hCommandList.reset()


@driver.entry
def zeCommandListHostSynchronize(hCommandList: ZeCommandList, timeout: int) -> int:
    stream = get_stream(hCommandList)
    if hCommandList.capture is not None:
        raise hCommandList.capture.refuse("nobody waits for a list")
    return stream.wait(timeout)


@driver.entry
def zeCommandListImmediateGetIndex(hCommandListImmediate: ZeCommandList) -> int:
    get_stream(hCommandListImmediate)
    return 0


driver.declare(
    zeCommandListGetDeviceHandle=lambda hCommandList: hCommandList.device,
    zeCommandListGetContextHandle=lambda hCommandList: hCommandList.context,
    zeCommandListGetOrdinal=lambda hCommandList: 0,
    zeCommandListIsImmediate=lambda hCommandList: hCommandList.is_immediate,
)


@driver.entry
def zeCommandListGetFlags(hCommandList: ZeCommandList) -> int:
    hCommandList.check_regular()
    return hCommandList.flags


@driver.entry
def zeCommandListImmediateGetFlags(hCommandList: ZeCommandList) -> int:
    get_stream(hCommandList)
    return hCommandList.flags


@driver.entry
def zeCommandListImmediateGetMode(hCommandList: ZeCommandList) -> int:
    get_stream(hCommandList)
    return hCommandList.mode


@driver.entry
def zeCommandListImmediateGetPriority(hCommandList: ZeCommandList) -> int:
    get_stream(hCommandList)
    return hCommandList.priority


def get_stream(made: ZeCommandList) -> Stream:
    """Return the stream of an immediate list.

    Raises:
        LevelZeroError: INVALID_COMMAND_LIST_TYPE if the list is not immediate.
    """
    if made.stream is None:
        raise make_failure("INVALID_COMMAND_LIST_TYPE", "the list is not immediate")
    return made.stream
