"""Queues that execute regular command lists, and the fences that say when a list has ended."""

from __future__ import annotations

import ctypes
import weakref
from typing import Final

from .contexts import LZContext
from .core import ZE, call, create, make_handle_array, make_struct, wait_until_ready
from .devices import LZDevice

ASYNCHRONOUS: Final = ZE["ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS"]


class Fence:
    """A fence, which a queue signals after a list.

    Args:
        queue: the queue, which lives as long.
    """

    def __init__(self, queue: RegularQueue) -> None:
        self._queue, self._table = queue, queue.table
        desc = ctypes.byref(make_struct("fence_desc"))
        self.ze = create(self._table, "zeFenceCreate", queue.ze, desc)
        weakref.finalize(self, self._table.zeFenceDestroy, self.ze).atexit = False

    def wait(self) -> None:
        """Wait until it is signaled. Raises LevelZeroError."""
        wait_until_ready(
            lambda timeout: self._table.zeFenceHostSynchronize(self.ze, timeout),
            "zeFenceHostSynchronize",
        )


class RegularQueue:
    """A ze_command_queue_handle_t, which executes regular lists."""

    def __init__(self, context: LZContext, device: LZDevice, ordinal: int) -> None:
        self.table = context.table
        desc = make_struct("command_queue_desc", ordinal=ordinal, mode=ASYNCHRONOUS)
        given = context.ze, device.ze, ctypes.byref(desc)
        self.ze = create(self.table, "zeCommandQueueCreate", *given)
        weakref.finalize(self, self.table.zeCommandQueueDestroy, self.ze).atexit = False

    def execute(self, ze: int) -> Fence:
        """Execute a list. Returns the fence that is signaled after it. Raises LevelZeroError."""
        fence = Fence(self)
        call(
            self.table,
            "zeCommandQueueExecuteCommandLists",
            self.ze,
            1,
            make_handle_array([ze]),
            fence.ze,
        )
        return fence
