"""OpenCL adapter: what all entry points have in common that enqueue commands: `Enqueue`,
`@enqueues`.

An entry point of Unified Runtime may need several of OpenCL's commands. `Enqueue` enqueues them in
sequence or in any order. The caller gets one event, whose times are those of all the commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ...icd.abi import OPENCL
from ...icd.errors import OpenCLError
from ..sdk.families import EnqueueCall, EnqueueFamily
from .core import adapter
from .events import UREvent, call_on_status
from .platforms import find_extension
from .queues import URQueue

#: An OpenCL function, and its arguments between the queue and the wait list.
Call = tuple[str, tuple[Any, ...]]

#: The functions that have no slot in a dispatch table.
_EXTENSIONS: Final = frozenset(
    name for name, function in OPENCL.functions.items() if function.slot is None
)


class Enqueue(EnqueueCall):
    """A call that enqueues a command.

    Attributes:
        blocks: whether the driver's function is to block.
        waits_for_event: whether we wait for the event afterwards.
    """

    blocking = blocks = waits_for_event = False

    def __init__(
        self,
        queue: URQueue,
        command: str,
        waits: Sequence[UREvent] = (),
        wanted: bool = False,
        blocking: bool = False,
    ) -> None:
        self.queue, self.command, self.waits, self.wanted = queue, command, waits, wanted
        if blocking:
            self.blocking = True
            self.blocks, self.waits_for_event = queue.split_blocking()

    def block_by_event(self) -> None:
        """Wait for the event of a blocking command, because the driver's function cannot block."""
        self.blocks, self.waits_for_event = False, self.blocking

    def call(self, routine: str, *arguments: Any, function: Any = None) -> UREvent | None:
        """Enqueue one command, and return the event, or None if nobody needs it.

        Args:
            routine: the name of OpenCL's function, which may be an extension function.
            arguments: its arguments between the queue and the wait list.
            function: the function itself, if icd/opencl.abi does not have it.

        Raises:
            URError: a wait list that the queue cannot wait for, or no such function.
        """
        wanted = self.wanted or self.waits_for_event
        if routine in _EXTENSIONS:
            function = find_extension(self.queue.context.platform, routine)
        event = self.queue.enqueue(routine, self.command, arguments, self.waits, wanted, function)
        return self.complete(event) if self.waits_for_event else event

    def mark(self) -> UREvent | None:
        """Enqueue a command that does nothing: it has its place in the order, and an event."""
        self.block_by_event()
        return self.call("clEnqueueMarkerWithWaitList")

    def call_in_sequence(self, calls: Sequence[Call], keep: Any = None) -> UREvent | None:
        """Enqueue commands, each of which runs after the one before it.

        Args:
            keep: what the first command reads when it runs, which has to live so long.

        Returns:
            The event of the last command, or None if nobody needs it.

        Raises:
            URError: as `call`.
            OpenCLError: as `call`.
        """
        if len(calls) == 1 and keep is None:
            return self.call(calls[0][0], *calls[0][1])
        in_order, wanted = self.queue.in_order, self.wanted or self.waits_for_event
        first = event = None
        waits = self.waits
        for index, call in enumerate(calls):
            keeps, is_last = keep is not None and not index, index == len(calls) - 1
            needed = wanted if is_last else not in_order or (wanted and not index)
            event = self._enqueue(call, waits, needed or keeps)
            if event is not None and keeps:
                self._keep_until_complete(event, keep)
            first = first or event
            waits = () if in_order or event is None else (event,)
        if event is not None and event is not first and wanted:
            event.first = first
        return self.complete(event)

    def _keep_until_complete(self, event: UREvent, keep: Any) -> None:
        try:
            call_on_status(event.cl, self.queue.table, 0, lambda status: keep)
        except OpenCLError:  # nobody would say when it is complete
            event.wait()

    def call_in_any_order(self, calls: Sequence[Call]) -> UREvent | None:
        """Enqueue commands that may run in any order.

        The last command waits for the others, because not every driver gives a marker its times.
        """
        if self.queue.in_order or len(calls) == 1:
            return self.call_in_sequence(calls)
        wanted = self.wanted or self.waits_for_event
        events = [self._enqueue(call, self.waits, wanted) for call in calls[:-1]]
        waits = [*self.waits, *(event for event in events if event is not None)]
        event = self._enqueue(calls[-1], waits, wanted)
        if event is not None:
            event.first = events[0]
        return self.complete(event)

    def complete(self, event: UREvent | None) -> UREvent | None:
        """Wait for the event if the driver's function did not. Raises OpenCLError if it failed."""
        if self.waits_for_event and event is not None:
            event.wait()
        return event

    def _enqueue(self, call: Call, waits: Sequence[UREvent], wanted: bool) -> UREvent | None:
        routine, arguments = call
        function = None
        if routine in _EXTENSIONS:
            function = find_extension(self.queue.context.platform, routine)
        return self.queue.enqueue(routine, self.command, arguments, waits, wanted, function)


enqueues: Final = EnqueueFamily(adapter, Enqueue)
#: `enqueues.declare`, for a function without the name of its entry point.
declare_enqueue: Final = enqueues.declare
