"""The rewrite of a graph's commands: made once, in a thread, while replays run as captured.

One thread rewrites all graphs of the process, one after the other. So many graphs at once do not
start many compilers. What goes wrong is a line in `explain()`, and the graph runs as captured.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from weakref import ReferenceType, ref

from ....loader.base.forks import call_in_child, make_lock
from ..commands import CommandList
from .uses import list_sources, list_uses

if TYPE_CHECKING:
    from .checking import FusionCheck


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
    """

    commands: CommandList | None
    numbers: Sequence[int] = ()
    lines: Sequence[str] = ()
    sources: Mapping[tuple[int, ...], str] = field(default_factory=dict)
    check: FusionCheck | None = None


class Rewriting:
    """The rewrite of a command list, which begins at once.

    Args:
        commands: the commands. They do not change.
        find_sources: returns the sources of programs (handles) that the driver does not tell, as
            far as they are known. It is called at once.
        checks: whether the first replays run both ways, and are compared.
    """

    def __init__(
        self,
        commands: CommandList,
        find_sources: Callable[[Collection[int]], dict[int, str]],
        *,
        checks: bool = False,
    ) -> None:
        self._commands, self._checks = commands, checks
        self._sources, self._uses = list_sources(commands, find_sources), list_uses(commands)
        self._result = Future[Rewritten]()
        _add(self)

    @property
    def has_ended(self) -> bool:
        """Whether it is known what the commands become."""
        return self._result.done()

    @property
    def rewritten(self) -> Rewritten | None:
        """What it has become; None while that is not known."""
        return self._result.result() if self._result.done() else None

    def wait(self) -> Rewritten:
        """Wait for the thread. Returns what the commands have become."""
        return self._result.result()

    def work(self) -> None:
        """Rewrite the commands. Called in the thread."""
        try:
            if not threading.main_thread().is_alive():  # the program ends, and would wait for this
                raise RuntimeError("the program ends")
            # they need a parser, which graphs without fusion do not load
            from .fusion import fuse
            from .reductions import add_readers

            made = fuse(self._commands, self._sources, self._uses, add_readers, checks=self._checks)
        except Exception as error:  # a graph that is not rewritten runs as captured
            made = Rewritten(None, lines=[f"not rewritten: {type(error).__name__}: {error}"])
        self._result.set_result(made)


_waiting: Final[deque[ReferenceType[Rewriting]]] = deque()  # a graph that is gone is left out
_lock: Final = make_lock()
_works = False


def _add(rewriting: Rewriting) -> None:
    """Let the thread do it after the others. The thread ends when nothing is left to do.

    Python waits for it at its end: a driver that still compiles would crash.
    """
    global _works
    with _lock:
        _waiting.append(ref(rewriting))
        if _works:
            return
        try:
            threading.Thread(target=_work, name="fairlead-rewrites").start()
            _works = True
        except RuntimeError:  # Python ends
            _waiting.clear()
            rewriting.work()


def _work() -> None:
    global _works
    while True:
        with _lock:
            if not _waiting:
                _works = False
                return
            one = _waiting.popleft()()
        if one is not None:
            one.work()
            del one  # the graph is not kept while the next one is waited for


@call_in_child
def _forget() -> None:
    """Forget the thread of the parent, which a child lacks."""
    global _works
    _works = False
    _waiting.clear()
