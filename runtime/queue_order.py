"""The rule of queues: what the next command comes after because of its queue alone.

On an in-order queue every command comes after the one before it; on an out-of-order one after the
last barrier. So an in-order queue is one in which each command is a barrier. Queues of the runtime
follow it with events, recorded ones with nodes. A capture of OpenCL calls follows it in C
(icd/native/order.c), since it runs where no Python may.
"""

from __future__ import annotations

from typing import Generic, TypeVar

_T = TypeVar("_T")


class QueueOrder(Generic[_T]):
    """The last command of a queue that every later one comes after: an event, a node or a
    stand-in."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        #: None: there is none, or nothing has to wait for it any more.
        self.last: _T | None = None

    def follow(self, made: _T, in_order: bool, is_barrier: bool) -> None:
        """Record a command. Later ones come after it if the queue is in order, or it is a
        barrier."""
        if in_order or is_barrier:
            self.last = made
