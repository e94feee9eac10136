"""A route: how what engines have built is enqueued over and over on one queue, by one native call (icd/native/enqueue.c).

It is laid out once, so that an enqueue only hands over what changes from one to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from .._native import ffi, lib
from ..calls import address
from .engine import Built

#: OpenCL's code, the event of the end (a reference for the caller, 0 if it was not wanted), the number of the command that failed (-1:
#: none, or a barrier of an engine's own), and the events that the command list asks for, a reference each.
Enqueued = tuple[int, int, int, list[int]]

_NO_COMMAND: Final = 0xFFFFFFFF


class Route:
    """How parts of a command-buffer are enqueued on a queue. One thread at a time uses the routes of a command-buffer.

    Args:
        buffer: the command-buffer as C knows it, an `fl_buffer *`.
        queue: a handle.
        in_order: whether the queue is in order.
        parts: what was built of the commands, in order.
        externals: of each part, the places of its outside events among those of the whole command-buffer.
        exports: of each part, the places of the events that it gives.
    """

    def __init__(
        self,
        buffer: Any,
        queue: int,
        in_order: bool,
        parts: Sequence[Built],
        externals: Sequence[Sequence[int]] = (),
        exports: Sequence[Sequence[int]] = (),
    ) -> None:
        self.parts, self.queue, self.in_order = list(parts), queue, in_order
        #: Whether the driver may refuse an enqueue as a whole, which then is to be run by another engine.
        self.may_refuse = any(part.may_refuse for part in parts)
        self._externals = [
            (part, places) for part, places in zip(parts, externals, strict=False) if places
        ]
        self._exports = [
            (part, places) for part, places in zip(parts, exports, strict=False) if places
        ]
        lanes = [_handles([queue, *part.own_queues]) for part in parts]
        rows = [(part.native, lane, len(lane)) for part, lane in zip(parts, lanes, strict=True)]
        self._kept = buffer, lanes, ffi.new("fl_part[]", rows)
        self._native = ffi.new(
            "fl_route *", (buffer, ffi.cast("void *", queue), in_order, len(rows), self._kept[2])
        )
        self._event, self._failed = ffi.new("void **"), ffi.new("uint32_t *")

    def enqueue(
        self,
        times: int = 1,
        waits: Sequence[int] = (),
        externals: Sequence[int] = (),
        wanted: bool = True,
    ) -> Enqueued:
        """Enqueue it `times` times, after the events `waits` and after the last enqueue of the command-buffer.

        Args:
            times: at least 1.
            waits: events, handles.
            externals: the outside events that commands wait for (CommandList.externals).
            wanted: whether the event of the end is given.
        """
        for part, places in self._externals:
            part.give_externals([externals[place] for place in places])
        wait_list = _handles(waits) if waits else ffi.NULL
        code = lib.fl_enqueue(
            self._native,
            times,
            len(waits),
            wait_list,
            self._event if wanted else ffi.NULL,
            self._failed,
        )
        if code:
            return code, 0, -1 if self._failed[0] == _NO_COMMAND else self._failed[0], []
        return (
            0,
            address(self._event[0]) if wanted else 0,
            -1,
            self._exported() if self._exports else [],
        )

    def _exported(self) -> list[int]:
        events: dict[int, int] = {}
        for part, places in self._exports:
            events |= zip(places, part.exported(), strict=True)
        return [events[place] for place in sorted(events)]


def _handles(handles: Sequence[int]) -> Any:
    return ffi.new("void *[]", [ffi.cast("void *", handle) for handle in handles])
