"""Group counts that are in memory: they are read when their launches run, each time anew.

OpenCL takes the sizes of a launch from the host. So a stream first copies the counts to the host.
When the thread of the stream (host_threads.py) sees the end of this copy, it signals what the next
step waits for. This step launches. Nobody else waits meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...icd._native import ffi
from ...icd.calls import call, get_address
from ..opencl.usm.addresses import locate, make_copy_operation
from .contexts import ZeContext
from .enqueues import make_copy
from .host_threads import call_after, start_thread
from .streams import Signal, Stream, StreamStep

Triple = tuple[int, int, int]

_NUMBER: Final = 4  # bytes of a number
_ROW: Final = 3 * _NUMBER  # bytes of a ze_group_count_t


@dataclass(frozen=True)
class CountsInMemory:
    """Where the group counts of launches are.

    Attributes:
        rows: the address of a ze_group_count_t for each launch.
        most: how many launches there are.
        number: the address of how many of them run, 0 if all do.
    """

    context: ZeContext
    rows: int
    most: int = 1
    number: int = 0

    def check(self) -> None:
        """Raise URError if there is no such memory."""
        for where, size in self.list_places():
            locate(self.context.ur, where, size)

    def list_places(self) -> list[tuple[int, int]]:
        """Return the addresses and sizes of what is read: the counts, and how many there are."""
        number = [(self.number, _NUMBER)] if self.number else []
        return [(self.rows, self.most * _ROW), *number]


class CountsReading:
    """A reading of group counts, for one run of their launches.

    Attributes:
        done: what is signaled when the host has the counts.
    """

    def __init__(self, counts: CountsInMemory) -> None:
        self._counts = counts
        self._numbers = ffi.new("uint32_t[]", 3 * counts.most + 1)
        self._error: Exception | None = None
        self.done = Signal()

    def run(self, stream: Stream, _: StreamStep, waits: Sequence[int]) -> int:
        """Enqueue the copies to the host, as `StreamStep.run` says. The launches come after."""
        end, target = 0, get_address(self._numbers)
        try:
            start_thread(stream)
            for where, size in self._counts.list_places():
                operation = make_copy_operation(self._counts.context.ur, target, where, size)
                before, end = end, make_copy(self._counts.context.ur, operation)(stream.cl, waits)
                if before:
                    call(before, "clReleaseEvent")
                target += size
            call(stream.cl, "clFlush")
        except Exception as error:
            self._error = error
            if end:
                kept = self._numbers  # a copy writes to them
                call_after(stream, end, lambda _, kept=kept: None)
            self.done.put(True, None)  # the launches fail, too
            raise
        call(end, "clRetainEvent")
        call_after(stream, end, self._finish)
        return end

    def _finish(self, error: Exception | None) -> None:
        self._error = error
        self.done.signal_by_host()

    def read_counts(self) -> list[Triple]:
        """Return the group counts, zeros for launches that do not run.

        Raises:
            OpenCLError, URError: they could not be read.
        """
        if self._error is not None:
            raise self._error
        most, numbers = self._counts.most, self._numbers
        number = numbers[3 * most] if self._counts.number else most
        rows = [(numbers[3 * n], numbers[3 * n + 1], numbers[3 * n + 2]) for n in range(most)]
        return [row if n < number else (0, 0, 0) for n, row in enumerate(rows)]
