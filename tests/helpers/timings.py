"""Engines and timings for tests of which engine or schedule graphs choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest

from fairlead.icd.command_buffer import trial
from fairlead.icd.command_buffer.engine import QueueKind
from fairlead.icd.command_buffer.engines.replay import Replay


class Rival(Replay):
    """Runs everything as the replay does, under another name."""

    name = "rival"

    def cost(self, target: QueueKind) -> None:
        """Return None: an engine of unknown cost is measured beside the engine `replay`."""


class Told:
    """A timing that the test has set, for each candidate by its place.

    The candidates are measured in turn, and every second turn begins with the last one.
    """

    seconds_of: ClassVar[list[float]] = []
    count: ClassVar[int] = 0

    def __init__(self, queue: int, after: Sequence[int] | None) -> None:
        around, place = divmod(Told.count, len(self.seconds_of))
        place = len(self.seconds_of) - 1 - place if around % 2 else place
        self.seconds: float | None = self.seconds_of[place]

    def end(self, event: int) -> None:
        Told.count += 1


def tell(monkeypatch: pytest.MonkeyPatch) -> type[Told]:
    """Let trials have timings that the test sets. At first two candidates take the same time."""
    monkeypatch.setattr(Told, "seconds_of", [1.0, 1.0])
    monkeypatch.setattr(Told, "count", 0)
    monkeypatch.setattr(trial, "Timing", Told)
    return Told
