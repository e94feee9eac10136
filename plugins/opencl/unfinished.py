"""Commands of queues that the program has released."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ...icd.calls import query_status
from ...icd.command_buffer.waiting import wait as wait_for_event
from ...icd.errors import OpenCLError
from ...loader.base.snapshots import list_items
from ..sdk._native import lib
from .core import CLObject, adapter, check, make_handle_array
from .events import waits_itself

if TYPE_CHECKING:
    from .queues import URQueue


class UnfinishedCommands(CLObject):
    """The commands of a closed queue: the event of a marker behind them.

    It holds the device, because some drivers delete a device while a queue of it has commands. It
    does not hold the context, because the program's deleters must not wait for it.
    """

    type = ""
    release, retain_function = "clReleaseEvent", "clRetainEvent"

    def __init__(self, cl: int, queue: URQueue) -> None:
        super().__init__(cl, queue.table)
        self.context_cl, self.device, self.in_order = queue.context.cl, queue.device, queue.in_order

    @classmethod
    def from_queue(cls, queue: URQueue) -> UnfinishedCommands | None:
        """Remember the commands of a queue that is closed now, without waiting.

        Returns:
            What to wait for, None if the driver refuses a marker.
        """
        cls.forget_ended()
        marker = ctypes.c_void_p()
        code = queue.table.clEnqueueMarkerWithWaitList(queue.cl, 0, None, ctypes.byref(marker))
        if code or not marker.value:
            return None
        queue.table.clFlush(queue.cl)
        commands = cls(marker.value, queue)
        unfinished[id(commands)] = commands
        lib.fl_add_unfinished(1)
        return commands

    @staticmethod
    def forget_ended() -> bool:
        """Release the markers that are complete. Returns whether there are others."""
        for key, one in list_items(unfinished):
            if query_status(one.cl) <= 0:
                _forget(key)
        return bool(unfinished)

    def wait(self) -> None:
        """Wait until the commands have ended. A failed command is not an error here."""
        with suppress(OpenCLError):
            if waits_itself(self.device.platform):
                one_at_a_time = self.device.platform.profile.waits_one_at_a_time
                wait_for_event(self.cl, self.in_order, one_at_a_time)
            else:
                check(self.table.clWaitForEvents(1, make_handle_array([self])), "clWaitForEvents")


unfinished: Final[dict[int, UnfinishedCommands]] = {}


def _forget(key: int) -> None:
    if unfinished.pop(key, None) is not None:
        lib.fl_add_unfinished(-1)


def _forget_all() -> None:
    """Forget the markers of commands that have not ended, whose devices are closed."""
    for key, one in list_items(unfinished):
        one.owned = False  # the driver would look at the device
        _forget(key)


adapter.after_queues.append(UnfinishedCommands.forget_ended)
adapter.on_close.append(_forget_all)
