"""Candidates take turns in the first replays of a graph, until the fastest is known.

A candidate is the same commands built another way, by other engines or with another schedule. The
program's own replays are measured, so nothing runs that the program did not ask for. Nothing is
waited for either: events call back (icd/native/timing.c). Each candidate's median time counts. On a
busy machine some ways to run lose more than others, and their least time does not show it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from .._native import ffi, lib
from ..calls import find_device_profile, query_device

#: Turns of each candidate. The first one is not counted: drivers prepare much at first use.
TURNS: Final = 8

#: Schedules differ less than engines do. On two busy cores the schedule that 8 turns chose took 5 %
#: more than the best one. With 16 turns it took 2 % more (means of 16 graphs on two drivers).
TURNS_OF_SCHEDULES: Final = 16

#: A tie goes to the last candidate, whose engine runs everything. It allows for measuring errors.
_CLEARLY: Final = 0.95

#: The same for schedules. Turns of 1,010 and 1,015 µs once chose one that took 4 % more afterwards.
_CLEARLY_OF_SCHEDULES: Final = 0.98

#: A callback takes some 7 µs, now more and now less, so the time of a replay is no more exact than
#: this, nor than such times scatter. Within that a candidate with fewer launches is preferred: it
#: has less to do.
_INEXACT: Final = 10e-6

#: A candidate gets no more turns if it takes so many times as long as the fastest one, and so many
#: seconds. Eight turns of launches that PyOpenCL's loops slow down would take a minute.
_HOPELESS: Final = 8.0
_LONG: Final = 0.05

#: So many enqueues after the last turn, times that are still unknown are left out. NVIDIA's driver
#: calls back for a command only when it runs a later one. It runs none where CUDA runs the graph.
_PATIENCE: Final = 32

#: Schedules that take at most so many times as long as the fastest one have as many turns again.
_CLOSE: Final = 1.05


def find_median(values: Sequence[float]) -> float:
    """Return the median. The module statistics takes 3 ms to import, in each first capture."""
    ordered, half = sorted(values), len(values) // 2
    return (ordered[half] + ordered[~half]) / 2


class Timing:
    """The time of one enqueue, from before its call until its end.

    Args:
        queue: its queue, a handle.
        after: the events (handles) that it comes after; None if nothing comes before it on the
            device.
    """

    def __init__(self, queue: int, after: Sequence[int] | None) -> None:
        waits = [ffi.cast("void *", event) for event in after or ()]
        listed = ffi.new("void *[]", waits) if waits else ffi.NULL
        native, profile = ffi.cast("void *", queue), find_device_profile(query_device(queue))
        made = lib.fl_begin_timing(
            native, after is not None, profile.holds_events, len(waits), listed
        )
        if made == ffi.NULL:
            raise MemoryError
        self._timing: Any = ffi.gc(made, lib.fl_drop_timing)

    def end(self, event: int) -> None:
        """Note that the enqueue returned this event."""
        lib.fl_end_timing(self._timing, ffi.cast("void *", event))

    @property
    def seconds(self) -> float | None:
        """Return the time for the caller or, if that is more, for the device.

        None: it has not ended. Infinite: the time is unknown.
        """
        time = lib.fl_timing_of(self._timing)
        if time == lib.FL_NO_TIME_YET:
            return None
        return float("inf") if time == lib.FL_NO_TIME else time * 1e-9


class ExactTime(NamedTuple):
    """The time of a turn in the caller's thread."""

    seconds: float


class Trial:
    """The measurement of candidates. Its user holds a lock.

    Args:
        turns: how many turns each candidate has.
        repeats: whether candidates that are close to the fastest one have as many turns again.
        in_pairs: whether each takes two turns in a row, of which the second one counts. In the
            first one the device may change from another's way to run.

    Attributes:
        scatter: how much the times of each candidate differ, by its name, once medians are known.
    """

    def __init__(
        self,
        names: Sequence[str],
        turns: int = TURNS,
        *,
        repeats: bool = False,
        in_pairs: bool = False,
    ) -> None:
        self._names, self._turns, self._repeats = tuple(names), turns, repeats
        self._in_a_row, self._asked = 2 if in_pairs else 1, 0
        self._timings: list[list[Timing | ExactTime]] = [[] for _ in names]
        self._open: Sequence[int] = range(len(names))
        self._round = self._place = self._looked = 0
        self.scatter: dict[str, float] = {}

    @property
    def _is_over(self) -> bool:
        """Whether all have had their turns."""
        return self._round >= self._turns

    def choose_next(self) -> int:
        """Return the candidate that enqueues next; the last candidate when all had their turns.

        Each round has the opposite order of the one before.
        """
        if self._is_over:
            return len(self._names) - 1
        if self._looked != self._round:  # a turn keeps its candidate while times become known
            self._looked = self._round
            self._drop_hopeless()
        place = self._place // self._in_a_row
        return self._open[-1 - place if self._round // self._in_a_row % 2 else place]

    def start(self, queue: int, after: Sequence[int] | None) -> Timing | None:
        """Begin to measure an enqueue of the next candidate; None if enough is measured.

        See `Timing`.
        """
        return None if self._is_over else Timing(queue, after)

    def end(self, timing: Timing, event: int) -> None:
        """Note that the enqueue returned an event. A failed one does not count."""
        self._add(timing)
        timing.end(event)

    def note(self, seconds: float) -> None:
        """Note how long a turn took in the caller's thread, whose time no callback disturbs."""
        if not self._is_over:
            self._add(ExactTime(seconds))

    @property
    def are_exact(self) -> bool:
        """Whether all turns were in the caller's thread."""
        kinds = {type(one) for timings in self._timings for one in timings}
        return kinds == {ExactTime}

    def _add(self, timing: Timing | ExactTime) -> None:
        self._timings[self.choose_next()].append(timing)
        self._place += 1
        if self._place == len(self._open) * self._in_a_row:
            self._place, self._round = 0, self._round + self._in_a_row

    def _list_times(self, number: int) -> list[float | None]:
        """Return the times of a candidate that count."""
        return [timing.seconds for timing in self._timings[number][1 :: self._in_a_row]]

    def _drop_hopeless(self) -> None:
        """Give no more turns to candidates that take many times as long as the fastest one."""
        least: dict[int, float] = {}
        for number in self._open:
            known = [time for time in self._list_times(number) if time is not None]
            if not known:
                return
            least[number] = min(known)
        most = max(_LONG, _HOPELESS * min(least.values()))
        self._open = [number for number, time in least.items() if time <= most]

    def find_medians(self) -> dict[str, float] | None:
        """Return the median time of each candidate by its name; None while a time is unknown."""
        if not self._is_over:
            return None
        found, waits = list[float](), False
        for number in range(len(self._names)):
            times = self._list_times(number)
            known = [time for time in times if time is not None]
            waits |= len(known) < len(times)
            if 2 * len(known) < len(times):
                return None
            found.append(find_median(known))
            self.scatter[self._names[number]] = _find_scatter(known)
        self._asked += waits
        if waits and self._asked <= _PATIENCE:
            return None
        if self._repeats and self._repeat([time <= _CLOSE * min(found) for time in found]):
            return None
        return dict(zip(self._names, found, strict=True))

    def _repeat(self, are_close: Sequence[bool]) -> bool:
        """Let candidates that are close to the fastest one take turns again, once.

        Returns whether there are several.
        """
        self._repeats = False
        if sum(are_close) < 2:
            return False
        self._open = [number for number, is_close in enumerate(are_close) if is_close]
        self._round = self._looked = self._asked = 0
        return True


def _find_scatter(times: Sequence[float]) -> float:
    """Return the range of the middle half of the times."""
    ordered = sorted(times)
    low, high = ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]
    return high - low if high > low else 0.0


def choose_fastest(
    seconds: Mapping[str, float],
    *,
    of_schedules: bool = False,
    launches: Mapping[str, int] = MappingProxyType({}),
    scatter: Mapping[str, float] = MappingProxyType({}),
    are_exact: bool = False,
) -> str:
    """Return the candidate that is clearly faster than those after it. A tie goes to a later one.

    Args:
        of_schedules: whether the candidates are schedules, of which none can do more than another.
        launches: how many each has, where that differs.
        scatter: how much the times of each candidate scatter.
        are_exact: whether the least time is that of the fastest.
    """
    if are_exact:
        return min(reversed(list(seconds)), key=seconds.__getitem__)
    *others, best = seconds
    clearly = _CLEARLY_OF_SCHEDULES if of_schedules else _CLEARLY
    for name in reversed(others):
        most = clearly * seconds[best]
        if launches.get(name, 0) > launches.get(best, 0):
            most -= max(_INEXACT, *(scatter.get(one, 0.0) for one in (name, best)))
        if seconds[name] < most:
            best = name
    return best
