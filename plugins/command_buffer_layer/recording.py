"""Command-buffer layer: what all functions that record a command have in common: checks,
sync-points, handles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from .buffers import LayerCommand, LayerCommandBuffer, LayerQueue, get_buffer
from .entries import entry, make_error, pair_properties, read_numbers, read_properties, write

#: Every recording function has so many parameters at its end: sync-points and what it returns.
_LAST: Final = 4
_LAUNCH: Final = "clCommandNDRangeKernelKHR"


class CommandRecording:
    """One call that records a command. It is checked before anything is recorded.

    Args:
        buffer: the command-buffer; its lock is held.
        queue: a queue's handle, or None.
        properties: the address of the command's properties.
        wait_count: the number of sync-points.
        known: the properties that the command may have.

    Attributes:
        given: the values of the properties, by name.

    Raises:
        OpenCLError: CL_INVALID_OPERATION, CL_INVALID_COMMAND_QUEUE, CL_INVALID_VALUE,
            CL_INVALID_SYNC_POINT_WAIT_LIST_KHR.
    """

    def __init__(
        self,
        buffer: LayerCommandBuffer,
        queue: int | None,
        properties: int | None,
        wait_count: int,
        waits: int | None,
        known: Sequence[str] = (),
    ) -> None:
        buffer.check_recording()
        self.buffer, self.number = buffer, _number_queue(buffer, queue)
        if bool(wait_count) != bool(waits):
            raise make_error(
                "CL_INVALID_SYNC_POINT_WAIT_LIST_KHR", "the list is NULL or empty, and not both"
            )
        self._waits = [one - 1 for one in read_numbers(waits, "uint32_t", wait_count)]
        if any(not 0 <= one < len(buffer.recorded) for one in self._waits):
            raise make_error(
                "CL_INVALID_SYNC_POINT_WAIT_LIST_KHR", "there is no command for a sync-point"
            )
        self.properties = read_properties(properties)
        self.given = pair_properties(self.properties, known)

    @property
    def queue(self) -> LayerQueue:
        """The queue that the command is recorded for."""
        return self.buffer.queues[self.number]

    @property
    def device_number(self) -> int:
        """The place of the queue's device in the command-buffer's list."""
        return self.buffer.devices.index(self.queue.device)

    def add(self, operation: str, type_name: str, **operands: Any) -> LayerCommand:
        """Record a command.

        Args:
            type_name: its command type after CL_COMMAND_.
            operands: as `icd.command_buffer.commands.put_operands` takes them.
        """
        commands, barrier = self.buffer.commands, operation == "barrier"
        order = self.buffer.orders[self.number]
        number = commands.add(
            operation,
            order.find_predecessors(self._waits, barrier),
            order_only=barrier or operation == "marker",
            queue=self.device_number,
            **operands,
        )
        order.add(number, barrier, bool(self._waits))
        made = LayerCommand(self.buffer, number, type_name, self.number, self.properties)
        self.buffer.recorded.append(made)
        return made


def _number_queue(buffer: LayerCommandBuffer, queue: int | None) -> int:
    """The number of a queue. Raises OpenCLError (CL_INVALID_COMMAND_QUEUE)."""
    handles = [one.handle for one in buffer.queues]
    if not queue and len(handles) == 1:
        return 0
    if queue not in handles:
        raise make_error(
            "CL_INVALID_COMMAND_QUEUE",
            "a command-buffer of several queues needs to know which one"
            if not queue
            else "the command-buffer was made without this queue",
        )
    return handles.index(queue)


def declare_recording(known: Sequence[str] = ()) -> Callable[[Callable[..., LayerCommand]], Any]:
    """Declare a function that records a command, under its name. A decorator.

    Its first parameter is a `CommandRecording`. The others are those of the specification between
    `properties` and the sync-points. It returns what it has recorded.
    """

    def declare(function: Callable[..., LayerCommand]) -> Any:
        def record(buffer: int | None, queue: int | None, properties: int | None, *rest: Any):
            own, (wait_count, waits, sync_point, handle) = rest[:-_LAST], rest[-_LAST:]
            found = get_buffer(buffer)
            with found.lock:
                recording = CommandRecording(found, queue, properties, wait_count, waits, known)
                if handle and function.__name__ != _LAUNCH:
                    raise make_error("CL_INVALID_VALUE", "only a launch has a mutable handle")
                made = function(recording, *own)
                made.give_handle(handle)
                write(sync_point, "uint32_t", made.number + 1)

        record.__name__ = function.__name__
        return entry(record)

    return declare


@declare_recording()
def clCommandBarrierWithWaitListKHR(recording: CommandRecording) -> LayerCommand:
    return recording.add("barrier", "BARRIER")
