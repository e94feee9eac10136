"""Nodes that decide while a graph runs: a graph that is repeated, or one of two.

The first word of a flag decides. The nodes are host tasks, because neither OpenCL nor Unified
Runtime has such nodes. One reads the word and submits executable graphs to a queue of its own. It
is complete when these are. So whatever comes after it waits for them. A captured graph that the
engine `direct` has (docs/direct_engine.md) runs in the task's own thread instead, and C reads the
word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import numpy

from ..runtime.checks import as_integer, make_type_error
from ..runtime.context import Context
from ..runtime.errors import SYCLError, make_invalid_error
from ..runtime.platform import Device
from ..runtime.queue import Queue

if TYPE_CHECKING:
    from .executable import ExecutableGraph
    from .node import Node

#: Bytes of a flag that count.
WORD: Final = 4

#: Turns of a loop without a limit that C makes at a time.
_MOST: Final = (1 << 32) - 1


class IsExecutable(Protocol):
    """An executable graph, or what has one, such as a finalized captured graph."""

    def find_executable(self, context: Context) -> ExecutableGraph: ...


@runtime_checkable
class RunsHere(Protocol):
    """A segment that the calling thread may be able to run, such as captured commands."""

    def run_until_here(
        self,
        queue: int,
        times: int,
        flag: tuple[int, int],
        *,
        is_set: bool = True,
        looks_first: bool = False,
    ) -> tuple[int, bool]: ...


class _Decision:
    """What the nodes of one condition share: the flag, and a queue for them alone.

    Args:
        context, device: where the graphs run.
        flag: memory whose first word decides.
    """

    def __init__(self, context: Context, device: Device, flag: Any) -> None:
        self._context, self._device, self._flag = context, device, flag
        self._queue: Queue | None = None
        self._word = numpy.zeros(1, numpy.uint32)

    def is_set(self) -> bool:
        """Whether the flag's word is not 0, after everything that was run before."""
        self.queue.memcpy(self._word, self._flag, WORD).wait()
        return bool(self._word[0])

    @property
    def queue(self) -> Queue:
        """An in-order queue, which nobody else uses."""
        if self._queue is None:
            self._queue = Queue(self._context, self._device, in_order=True)
        return self._queue

    def run_here(
        self, graph: ExecutableGraph, times: int, while_set: bool = True
    ) -> tuple[int, bool]:
        """Run a graph in this thread for as long as the word is not 0, if its engine can.

        Args:
            times: how often at most.
            while_set: False to run it for as long as the word is 0.

        Returns:
            How often it was run, and whether the word ended it. If not, the other runs have to be
                submitted.
        """
        handle, segment = getattr(self._flag, "int_ptr", None), graph.only
        if handle is None or not isinstance(segment, RunsHere):
            return 0, False
        ends = {"is_set": not while_set, "looks_first": True}
        return segment.run_until_here(self.queue.native(), times, (handle, 0), **ends)

    def run(self, graph: ExecutableGraph) -> None:
        """Run a graph, and wait for it."""
        self.queue.graph(graph).wait()


def make_loop(
    context: Context, device: Device, body: IsExecutable, flag: Any, at_most: int | None
) -> Callable[[], None]:
    """Return the function of a node that repeats a graph for as long as a flag is set.

    Args:
        context, device: where the graph runs.
        flag: memory whose first word decides.
        at_most: after so many turns the node fails, None for no limit.

    Raises:
        SYCLError: invalid, if the graph is not executable or of another context, the flag is not
            memory, or the limit is negative.
    """
    made = check_executable(body, context, "while_loop")
    decision = check_decision(context, device, flag)
    if at_most is not None and as_integer(at_most, "number of turns", "while_loop") < 0:
        raise make_invalid_error(
            "a loop has 0 turns or more", routine="while_loop", remedy="at_most=None sets no limit"
        )
    first = _MOST if at_most is None else min(at_most, _MOST)

    def run() -> None:
        turns, has_ended = decision.run_here(made, first)
        while not has_ended and decision.is_set():
            if turns == at_most:
                raise make_invalid_error(
                    f"the flag of while_loop was still set after {turns} turns",
                    routine="while_loop",
                    remedy="let a kernel of the body write 0 to the flag, or allow more turns",
                )
            decision.run(made)
            turns += 1

    run.__qualname__ = "while_loop"  # what the node is called
    return run


def make_choice(
    context: Context,
    device: Device,
    flag: Any,
    then: IsExecutable | None,
    otherwise: IsExecutable | None,
) -> Callable[[], None]:
    """Return the function of a node that runs one of two graphs. Raises what `make_loop` raises.

    Args:
        context, device: where the graphs run.
        flag: memory whose first word decides.
        then, otherwise: what runs if the word is not 0, and if it is. None: nothing.
    """
    graphs = [
        None if one is None else check_executable(one, context, "if_else")
        for one in (otherwise, then)
    ]
    decision = check_decision(context, device, flag)

    when = then is not None  # the flag for which the first look is part of a graph's run
    tried = graphs[when]

    def run() -> None:
        turns, differs = (0, False) if tried is None else decision.run_here(tried, 1, when)
        if not turns:
            chosen = graphs[not when if differs else decision.is_set()]
            if chosen is not None:
                decision.run(chosen)

    run.__qualname__ = "if_else"
    return run


def check_executable(graph: IsExecutable, context: Context, routine: str) -> ExecutableGraph:
    """Return the executable graph that something is. Raises SYCLError (invalid)."""
    if not hasattr(graph, "find_executable"):
        raise make_type_error(graph, "executable graph", routine, "finalize() it")
    return graph.find_executable(context)


def check_decision(context: Context, device: Device, flag: Any) -> _Decision:
    """Return what a node with this flag needs. Raises SYCLError (invalid) for other objects."""
    buffer = getattr(flag, "base_data", None)  # a pyopencl.array.Array
    if buffer is not None:
        if flag.offset or flag.nbytes < WORD:
            raise _make_flag_error()
        flag = buffer
    size = getattr(flag, "nbytes", getattr(flag, "size", 0))
    if isinstance(flag, numpy.ndarray) or not isinstance(size, int) or size < WORD:
        raise _make_flag_error()
    return _Decision(context, device, flag)


def _make_flag_error() -> SYCLError:
    return make_invalid_error(
        f"a flag is memory of the device, of at least {WORD} bytes",
        routine="flag",
        remedy="give USM memory, or a pyopencl.Buffer or Array that begins with the word",
    )


class Decides:
    """The methods of graphs that add such nodes."""

    def while_loop(
        self,
        body: IsExecutable,
        flag: Any,
        *,
        depends_on: Node | Iterable[Node] = (),
        at_most: int | None = None,
    ) -> Node:
        """Add a node that runs a graph as long as the first word (32 bits) of a flag is not 0.

        The word is read before each turn. Updates of `body` count from the next turn on.

        Args:
            body: an executable graph of this context. A kernel of it writes 0 to the flag some
                time.
            flag: USM memory, or a pyopencl.Buffer or Array.
            depends_on: nodes that it comes after.
            at_most: after so many turns the submission fails, None for no limit.

        Returns:
            The node, which is a host task.

        Raises:
            SYCLError: invalid.
        """
        graph: Any = self
        run = make_loop(graph.context, graph.device, body, flag, at_most)
        return graph.add(lambda handler: handler.host_task(run), depends_on=depends_on)

    def if_else(
        self,
        flag: Any,
        then: IsExecutable | None,
        otherwise: IsExecutable | None = None,
        *,
        depends_on: Node | Iterable[Node] = (),
    ) -> Node:
        """Add a node that runs `then` if the first word (32 bits) of a flag is not 0, else
        `otherwise`. See `while_loop`.

        Raises:
            SYCLError: invalid.
        """
        graph: Any = self
        run = make_choice(graph.context, graph.device, flag, then, otherwise)
        return graph.add(lambda handler: handler.host_task(run), depends_on=depends_on)
