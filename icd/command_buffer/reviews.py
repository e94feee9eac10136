"""When a choice is measured again: load, data and what a program does between replays change.

A review is what the first replays do, once more. Each that confirms the choice doubles the number
of replays until the next one, so a graph has few. One is also due if the process may use more or
fewer cores than at the last choice. But it waits until the one before it took at most one part in a
hundred of the time since then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Final

from ...loader.base.processes import count_cores

#: Replays before the first review, and the next one after a choice has changed.
FIRST: Final = 4096

#: Replays until somebody looks whether a review is due. A look takes some 100 µs.
MOST: Final = 1 << 16

#: One part in so many of the replays and of the time is for reviews.
_SHARE: Final = 100


class Reviews:
    """When the choices for a graph are measured again.

    Args:
        clock: returns seconds.

    Attributes:
        kind: the kind of queue whose choice is measured now, None if none is.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began, self._ended, self._took = (0, 0.0), 0.0, 0.0
        self._every, self._due, self._cores = FIRST, 0, 0
        self._chosen: dict[Hashable, Hashable] = {}
        self.kind: Hashable = None

    def begin(self, kind: Hashable, ran: int) -> None:
        """Note that replays on a kind of queue measure from now on, after so many."""
        self.kind, self._began, self._cores = kind, (ran, self._clock()), count_cores()

    def end(self, chosen: Hashable, ran: int) -> int:
        """Note what was chosen, after so many replays.

        Returns:
            How many replays come before the next look.
        """
        began, since = self._began
        self._ended = self._clock()
        self._took = self._ended - since
        is_same = self._chosen.get(self.kind) == chosen
        self._every = 2 * self._every if is_same else FIRST
        self._chosen[self.kind], self.kind = chosen, None
        pause = max(self._every, _SHARE * (ran - began))
        self._due = ran + pause
        return min(pause, MOST)

    def look(self, kind: Hashable, ran: int) -> int:
        """Return 0 if a kind of queue is to be reviewed, else how many replays come before the
        next look."""
        if self.kind is not None and self.kind == kind:  # it is measured just now
            return FIRST
        if self._clock() - self._ended < _SHARE * self._took:
            return MOST
        has_other_cores = count_cores() != self._cores
        return 0 if has_other_cores or ran >= self._due else min(self._due - ran, MOST)
