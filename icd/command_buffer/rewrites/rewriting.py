"""The rewrite of a graph's commands: made once, in a thread, while replays run as captured.

One thread rewrites all graphs of the process, one after the other. So many graphs at once do not
start many compilers. What goes wrong is a line in `explain()`, and the graph runs as captured.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from ....loader.base.forks import call_in_child
from ..commands import CommandList
from .uses import MemoryUse, list_sources, list_uses

_workers: list[ThreadPoolExecutor] = []  # one, as soon as it is needed


@dataclass(frozen=True)
class Rewritten:
    """Commands that do the same as those of a graph.

    Attributes:
        commands: what engines run instead; None if nothing could be rewritten.
        numbers: for each of them the first command of the graph that it stands for.
        lines: what was rewritten, and why the rest was not.
        sources: of the kernels that were made.
    """

    commands: CommandList | None
    numbers: Sequence[int] = ()
    lines: Sequence[str] = ()
    sources: Sequence[str] = ()


class Rewriting:
    """The rewrite of a command list, which begins at once.

    Args:
        commands: the commands. They do not change.
        find_sources: returns the sources of programs (handles) that the driver does not tell, as
            far as they are known. It is called at once.
    """

    def __init__(
        self,
        commands: CommandList,
        find_sources: Callable[[Collection[int]], dict[int, str]],
    ) -> None:
        if not _workers:
            _workers.append(ThreadPoolExecutor(1, "fairlead-rewrites"))
        self._result: Future[Rewritten] = _workers[0].submit(
            _rewrite, commands, list_sources(commands, find_sources), list_uses(commands)
        )

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


def _rewrite(
    commands: CommandList, sources: Mapping[int, str], uses: Mapping[int, MemoryUse]
) -> Rewritten:
    try:
        from .fusion import fuse  # it needs a parser, which graphs without fusion do not load

        return fuse(commands, sources, uses)
    except Exception as error:  # a graph that is not rewritten runs as captured
        return Rewritten(None, lines=[f"not rewritten: {type(error).__name__}: {error}"])


@call_in_child
def _forget() -> None:
    """Forget the thread of the parent, which a child lacks."""
    _workers.clear()
