"""What a command comes after, because of its queue and of its sync-points.

A command comes after the sync-points that it names, and after the last barrier of its queue. On an
in-order queue it also comes after the command before it. (cl_khr_command_buffer, "Command
Synchronization")
"""

from __future__ import annotations

from collections.abc import Sequence


class LayerQueueOrder:
    """What has been recorded for one queue, as far as later commands come after it."""

    def __init__(self, in_order: bool) -> None:
        self._in_order = in_order
        self._own: set[int] = set()
        self._last: int | None = None  # of an in-order queue, or the last barrier
        self._open: list[int] = []  # since that barrier

    def find_predecessors(self, sync_points: Sequence[int], barrier: bool) -> list[int]:
        """Return what the next command comes directly after.

        Args:
            sync_points: the numbers of the commands that it waits for.
        """
        last = [] if self._last is None else [self._last]
        if self._in_order:  # the last one comes after all others of this queue
            return [*last, *(one for one in dict.fromkeys(sync_points) if one not in self._own)]
        rest = self._open if barrier and not sync_points else sync_points
        return list(dict.fromkeys([*last, *rest]))

    def add(self, number: int, barrier: bool, waits: bool) -> None:
        """Note a command that was recorded."""
        if self._in_order:
            self._own.add(number)
        if self._in_order or barrier:
            self._last = number
        if not self._in_order:
            self._open = [] if barrier and not waits else [*self._open, number]
