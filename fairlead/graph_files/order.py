"""The order of recorded commands: which earlier ones each has to come after.

In a queue in order each command comes after the one before. Besides, there are wait lists, and what
the host waited for: everything that it enqueues afterwards comes later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .document import MARKER


class RecordedOrder:
    """Says what each new command comes after.

    Args:
        commands: those of the document. Places that gather others are added to it.
    """

    def __init__(self, commands: list[dict[str, Any]]) -> None:
        self._commands = commands
        self._events: dict[int, tuple[int, int]] = {}  # the queue and the command
        #: The last command of each queue in order; those since a barrier of the other queues.
        self._last: dict[int, int] = {}
        self._since: dict[int, list[int]] = {}
        self._barrier: dict[int, int] = {}
        #: What the host has waited for, in each queue; 0 stands for what lies between recordings.
        self._done: dict[int, int] = {}
        #: What of it a queue in order has come after.
        self._seen: dict[int, dict[int, int]] = {}
        self._in_order: dict[int, bool] = {}
        #: The commands that none comes after, and whether others that are not recorded come next.
        self._ends: set[int] = set()
        self._is_gap = False

    def place(
        self,
        queue: int,
        in_order: bool,
        waits: Iterable[int],
        is_place: bool = False,
        is_barrier: bool = False,
    ) -> list[int]:
        """Return what the next command comes after.

        Args:
            in_order: whether the queue is.
            is_place: a marker or a barrier: without events it waits for all of the queue.
            is_barrier: what follows in the queue waits for it.
        """
        self._in_order[queue] = in_order
        self._add_bridge()
        waits = list(waits)
        after = self._find_waited(queue, waits)
        if in_order:
            seen = self._seen.setdefault(queue, {})
            after |= {
                at for other, at in self._done.items() if other != queue and seen.get(other) != at
            }
            seen |= self._done
            after |= {self._last[queue]} if queue in self._last else set()
            return sorted(after)
        after |= set(self._done.values())
        after |= {self._barrier[queue]} if queue in self._barrier else set()
        if is_place and not waits:
            after |= set(self._since.get(queue, ()))
        if is_barrier:
            self._barrier[queue] = len(self._commands)
            if not waits:
                self._since[queue] = []
        return sorted(after)

    def _find_waited(self, queue: int, waits: Iterable[int]) -> set[int]:
        """Return the commands of a wait list.

        Those are the last one of each queue in order, and none of the queue itself if that is one.
        """
        found, latest = set[int](), dict[int, int]()
        for event in waits:
            other, number = self._events.get(event, (0, -1))
            if number >= 0 and not self._in_order[other]:
                found.add(number)
            elif number >= 0 and other != queue:
                latest[other] = max(latest.get(other, 0), number)
        return found | set(latest.values())

    def note_command(self, queue: int, event: int) -> None:
        """Note that the command was added to the document. `event` is its event, 0 for none."""
        number = self._count_command()
        if self._in_order[queue]:
            self._last[queue] = number
        else:
            self._since.setdefault(queue, []).append(number)
        if event:
            self._events[event] = queue, number

    # what the host waits for

    def finish(self, queue: int, in_order: bool) -> None:
        """Note that the host waited for all of a queue."""
        if in_order:
            if queue in self._last:
                self._done[queue] = self._last[queue]
        elif self._since.get(queue):
            self._note_host_wait(queue, self._since.pop(queue))

    def wait(self, event: int) -> None:
        """Note that the host waited for an event."""
        if event not in self._events:
            return
        queue, number = self._events[event]
        if not self._in_order[queue]:
            self._note_host_wait(queue, [number])
        else:
            self._done[queue] = max(self._done.get(queue, 0), number)

    def wait_for_last(self, queue: int, in_order: bool) -> None:
        """Note that the host waited for the command that was added last."""
        number = len(self._commands) - 1
        if in_order:
            self._done[queue] = number
        else:
            self._note_host_wait(queue, [number])

    def _note_host_wait(self, queue: int, commands: Sequence[int]) -> None:
        known = [self._done[queue]] if queue in self._done else []
        if list(commands) != known:
            self._done[queue] = self._gather([*known, *commands])

    def _gather(self, commands: Iterable[int]) -> int:
        """Return one command that comes after several: a new place, or the only one of them."""
        found = sorted(set(commands))
        if len(found) == 1:
            return found[0]
        self._commands.append({"op": MARKER, "after": found})
        return self._count_command()

    def _count_command(self) -> int:
        """Return the number of the last command, whose predecessors are known now."""
        number = len(self._commands) - 1
        self._ends -= set(self._commands[number]["after"])
        self._ends.add(number)
        return number

    # commands that are not recorded

    def add_gap(self) -> None:
        """Note that other commands come here: later ones come after all earlier ones."""
        self._is_gap = True

    def _add_bridge(self) -> None:
        if not self._is_gap:
            return
        self._is_gap = False
        for known in (self._events, self._last, self._since, self._barrier, self._done, self._seen):
            known.clear()
        if self._ends:
            self._done[0] = self._gather(self._ends)

    def find_predecessors_of_write(self) -> list[int]:
        """Return what a write comes after. It stands for commands that are not recorded."""
        self._add_bridge()
        return [self._done[0]] if 0 in self._done else []

    def note_write(self) -> None:
        """Note that the write was added to the document: what follows comes after it."""
        self._done[0] = self._count_command()
