"""The rewrite of a graph's commands: made once, in a thread, while replays run as captured.

One thread rewrites all graphs of the process, one after the other. So many graphs at once do not
start many compilers. What goes wrong is a line in `explain()`, and the graph runs as captured.

A rewrite takes tenths of a second of a core, and saves microseconds in each replay of a small
graph. So it begins when the program has taken as much since the first replay. One that ends before
loses nothing, and another one loses at most what it has saved soon after.

A change that ends a rewrite (flow.py) lets the commands be rewritten again after some replays. A
program that makes such changes all the time pays for few of these rewrites.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from time import monotonic, process_time
from typing import TYPE_CHECKING, Any, Final
from weakref import ReferenceType, ref

from ..background import Background
from ..cells import Cells
from ..commands import CommandList
from .uses import ListSnapshot, References, take_snapshot, why_not

if TYPE_CHECKING:
    from .checking import FusionCheck
    from .flow import Flow

#: A rewrite that nobody waits for begins after so many replays. By then the program has taken so
#: many seconds of the processors since the first one. To rewrite takes as many.
_WORTH_REWRITING: Final = 8
_WORTH_SECONDS: Final = 0.5
#: So many seconds of the clock count as one: a device may work, and a busy machine gives less.
_WAITED: Final = 4
#: Replays after a change that ended a rewrite, until the commands are rewritten again.
_PAUSE: Final = 16
#: Twice as many after the next such change, unless so many times more replays came before it.
_QUIET: Final = 4


@dataclass(frozen=True)
class Rewritten:
    """Commands that do the same as those of a graph.

    Attributes:
        commands: what engines run instead; None if nothing could be rewritten.
        numbers: for each of them the first command of the graph that it stands for.
        lines: what was rewritten, and why the rest was not.
        sources: of the kernels that were made, by the numbers of the commands that they stand for.
        check: runs both ways in the first replays, until it is known that they do the same. None
            if nobody asked for it.
        flow: how changes of the graph's commands reach them, None if there are no changes.
        hidden: memory objects (handles) that they do not write any more.
    """

    commands: CommandList | None
    numbers: Sequence[int] = ()
    lines: Sequence[str] = ()
    sources: Mapping[tuple[int, ...], str] = field(default_factory=dict)
    check: FusionCheck | None = None
    flow: Flow | None = None
    hidden: frozenset[int] = frozenset()


class Rewriting:
    """The rewrites of a command list. Only one thread at a time changes or enqueues the list.

    Args:
        find_sources: returns the sources of programs (handles) that the driver does not tell, as
            far as they are known. That takes long.
        keep_sources: returns what has these sources, of programs of which the program has objects.
        find_wholes: returns memory objects (handles) of which a program has parts. That takes long.
        get_cells: returns the cells of the commands' Parameters.
        checks: whether the first replays run both ways, and are compared.
    """

    def __init__(
        self,
        commands: CommandList,
        find_sources: Callable[[Collection[int]], dict[int, str]],
        keep_sources: Callable[[Collection[int]], Any],
        find_wholes: Callable[[], set[int]],
        get_cells: Callable[[], Cells | None],
        *,
        checks: bool = False,
    ) -> None:
        self._commands, self._find_sources, self._get_cells = commands, find_sources, get_cells
        self._checks, self._find_wholes = checks, find_wholes
        self._wholes: set[int] | None = None
        self._references = References(commands)
        self._kept = keep_sources(self._references.programs)
        self._result: Future[Rewritten] | None = None
        self._pause, self._since, self._next_look = _PAUSE, _WORTH_REWRITING, 1
        self._began = process_time(), monotonic()
        self._why_later = "it may not be replayed often"
        self._revealed = set[int]()

    def begin(self) -> None:
        """Begin to rewrite the commands as they are now, unless that has begun.

        No thread is started where nothing can be rewritten.
        """
        if self._result is not None:
            return
        cells, result = self._get_cells(), Future[Rewritten]()
        self._wholes = None
        snapshot = take_snapshot(self._commands, self._find_sources, cells, self._count_others)
        if (reason := why_not(snapshot)) is not None:
            result.set_result(Rewritten(None, lines=[f"not fused: {reason}"]))
        elif not _background.add(partial(_work, ref(self), snapshot, result)):
            self.work(snapshot, result)
        self._result, self._kept = result, None

    def look(self, ran: int) -> int:
        """Return after how many replays to look again whether to `begin`; 0 to begin now.

        A graph that is replayed for a short time is not worth a compiler.

        Args:
            ran: how many replays there were.
        """
        if ran <= 1:  # a driver compiles in the first one
            self._began = process_time(), monotonic()
        spent = max(process_time() - self._began[0], (monotonic() - self._began[1]) / _WAITED)
        if ran < self._since:
            self._next_look = self._since if ran else 1
        elif spent < _WORTH_SECONDS:  # as many more as are expected to take the rest of the time
            more = int(ran * (_WORTH_SECONDS - spent) / spent) if spent > 0 else ran
            self._next_look = ran + min(ran, 1 + more)
        else:
            self._since = ran
            return 0
        return self._next_look

    def _count_others(self, memory: int) -> int:
        others = self._references.count_others(memory) + (memory in self._revealed)
        if not others and self._wholes is None:
            self._wholes = self._find_wholes()
        return others or int(memory in (self._wholes or ()))

    def reveal(self, memory: Collection[int]) -> None:
        """Let no variable stand for memory objects (handles) that a program can see now."""
        self._revealed.update(memory)

    @property
    def hides_revealed(self) -> bool:
        """Whether what the commands have become does not write memory that a program can see."""
        rewritten = self.rewritten
        return rewritten is not None and not self._revealed.isdisjoint(rewritten.hidden)

    def put_off(self, enqueued: int) -> int:
        """Forget the rewrite, which a change has ended.

        Args:
            enqueued: how many replays there were.

        Returns:
            After how many replays to `begin` again.
        """
        is_quiet = enqueued - self._since > _QUIET * self._pause
        self._result = None
        self._pause = _PAUSE if is_quiet else 2 * self._pause
        self._why_later = "a change has ended it"
        self._since = self._next_look = enqueued + self._pause
        return self._since

    @property
    def has_ended(self) -> bool:
        """Whether no thread rewrites the commands now."""
        return self._result is None or self._result.done()

    @property
    def rewritten(self) -> Rewritten | None:
        """What they have become; None while that is not known."""
        return self._result.result() if self._result is not None and self.has_ended else None

    @property
    def lines(self) -> Sequence[str]:
        """What `explain()` says."""
        if self._result is None:
            return [f"not fused: {self._why_later}; looked at again after replay {self._next_look}"]
        rewritten = self.rewritten
        return ["they are being rewritten"] if rewritten is None else rewritten.lines

    def wait(self) -> Rewritten:
        """Wait for the thread. Returns what the commands have become."""
        if self._result is None:
            self.begin()
        assert self._result is not None
        return self._result.result()

    def work(self, snapshot: ListSnapshot, result: Future[Rewritten]) -> None:
        """Rewrite the commands, in the thread. A change may put the rewrite off meanwhile.

        Args:
            snapshot: the commands when the rewrite began.
            result: gets what they become.
        """
        try:
            stop_at_end()
            # they need a parser, which graphs without fusion do not load
            from .fusion import fuse

            made = fuse(self._commands, snapshot, checks=self._checks)
        except Exception as error:  # a graph that is not rewritten runs as captured
            made = Rewritten(None, lines=[f"not rewritten: {type(error).__name__}: {error}"])
        result.set_result(made)


def stop_at_end() -> None:
    """Raise RuntimeError if the program ends, since it would wait for what follows."""
    if not threading.main_thread().is_alive():
        raise RuntimeError("the program ends")


_background: Final = Background("fairlead-rewrites", daemon=False)


def _work(
    rewriting: ReferenceType[Rewriting], snapshot: ListSnapshot, result: Future[Rewritten]
) -> None:
    """Do it, unless the graph is gone."""
    one = rewriting()
    if one is not None:
        one.work(snapshot, result)
