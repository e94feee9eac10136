"""When a choice is measured again: load, data and what the program does between replays change.

The first review comes after `FIRST` replays. If it confirms the choice, the next one comes after
twice as many, and at last after `MOST`. If it changes the choice, the next one comes after `FIRST`
again. A review takes at most 1 % of the replays since the one before it, and of the time. What the
first one takes is not known before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

#: Replays before the first review.
FIRST: Final = 2048

#: Replays between later ones, if these take few.
MOST: Final = 1 << 16

#: A review may take one part in so many of the replays and the time since the one before.
_SHARE: Final = 100

#: After so many times as many replays it comes in any case. The program may have paused in the last
#: one, which then seems to have taken long.
_AT_LAST: Final = 1024


class Chosen(NamedTuple):
    """A plan, and the commands that its engines leave to others."""

    plan: str
    left: dict[str, list[int]]


class Reviews:
    """When the choice for one kind of queue is measured again.

    Args:
        clock: returns seconds.

    Attributes:
        chosen: at the last review, or after the first replays; None before.
        is_open: whether the choice is being measured.
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or time.monotonic
        self._began: tuple[int, float] | None = None  # replays, seconds; None before the first one
        self._ended = self._took = 0.0
        self._every = self._waited = FIRST
        self.chosen: Chosen | None = None
        self.is_open = True

    def begin(self, ran: int) -> None:
        """Note that replays are measured from now on, after so many."""
        self._began, self.is_open = (ran, self._clock()), True

    def end(self, chosen: Chosen, ran: int) -> int:
        """Note what was chosen after so many replays. Returns how many come before the next look"""
        now = self._clock()
        if self._began is not None:
            replays, self._took = ran - self._began[0], now - self._began[1]
            usual = min(2 * self._every, MOST) if chosen == self.chosen else FIRST
            self._every = max(usual, _SHARE * replays)
        self.is_open, self._ended = False, now
        self.chosen, self._waited = chosen, self._every
        return self._every

    def postpone(self) -> int:
        """Return 0 if a review is due, else how many replays come before the next look."""
        is_late = self._waited >= _AT_LAST * self._every
        if is_late or self._clock() - self._ended >= _SHARE * self._took:
            return 0
        more, self._waited = self._waited, 2 * self._waited
        return more
