"""Which capture a command belongs to, by what its queue and its wait list belong to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from .conversions import failure


class Capture(Protocol):
    """What queues give to a graph. `is_open` says whether it has not ended."""

    is_open: bool


_Capture = TypeVar("_Capture", bound=Capture)


def capture_of(own: _Capture | None, waits: Sequence[_Capture | None]) -> _Capture | None:
    """Return the capture that a command becomes a part of, None for none.

    Its queue joins that capture, if it is in none.

    Args:
        own: the queue's capture, None if it is in none.
        waits: the same of each event that the command waits for.

    Raises:
        URError: GRAPH_INTERNAL_EVENT for an event of a capture that has ended,
            GRAPH_CAPTURE_UNSUPPORTED for events inside and outside, GRAPH_CAPTURE_MERGE_ATTEMPT for
            events of two captures.
    """
    found = own
    for place, capture in enumerate(waits):
        if capture is not None and not capture.is_open:
            raise failure("GRAPH_INTERNAL_EVENT")
        if found is None and capture is not None and not place:
            found = capture
        elif (found is None) != (capture is None):
            raise failure("GRAPH_CAPTURE_UNSUPPORTED", "not all events are of the capture")
        elif found is not capture:
            raise failure("GRAPH_CAPTURE_MERGE_ATTEMPT")
    return found
