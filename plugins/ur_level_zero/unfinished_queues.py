"""Queues that exist, and queues that are gone whose commands may run.

A released queue is destroyed when its commands have ended. Until then it is kept here, with
everything that its commands use.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakValueDictionary

from ...loader.base.forks import make_lock
from .contexts import EventCell, LZContext
from .core import LevelZeroError, adapter, call
from .devices import LZDevice

if TYPE_CHECKING:
    from .queues import LZQueue


class UnfinishedLZQueue(NamedTuple):
    """A queue that is gone, whose commands may run."""

    end: EventCell
    ze: int
    context: LZContext
    device: LZDevice
    kept: Any


#: The queues that exist, by their `id`. A released queue exists while an event of it does.
ALL: Final[WeakValueDictionary[int, LZQueue]] = WeakValueDictionary()
#: Queues that are gone, whose commands may run.
UNFINISHED: Final[list[UnfinishedLZQueue]] = []
_LOCK: Final = make_lock()


def forget_ended() -> bool:
    """Destroy the queues that are gone and whose commands have ended.

    Returns:
        Whether there are others.
    """
    with _LOCK:
        ended = [one for one in list(UNFINISHED) if one.end.is_over]
        for one in ended:
            UNFINISHED.remove(one)  # other threads append without the lock
    for one in ended:
        with contextlib.suppress(LevelZeroError):
            call(one.context.table, "zeCommandListDestroy", one.ze)
    return bool(UNFINISHED)


adapter.after_queues.append(forget_ended)


def drain_queues(*, context: LZContext | None = None, device: LZDevice | None = None) -> None:
    """Wait for the commands of all queues of a context, or of a device and its sub-devices.

    Args:
        context: the context, None for all.
        device: the device, None for all.
    """

    def is_meant(one: LZQueue | UnfinishedLZQueue) -> bool:
        return (context is None or one.context.ze == context.ze) and (
            device is None or one.device.is_part_of(device)
        )

    for reference in ALL.valuerefs():
        queue = reference()
        # A weak reference leads to an object until its finalizer has returned.
        if queue is not None and not queue.is_closed and is_meant(queue):
            queue.drain()
    for one in [one for one in list(UNFINISHED) if is_meant(one)]:
        one.end.wait()
    forget_ended()
