"""Families of entry points: those that enqueue a command, and those that append one.

The entry points of a family share parameters. An adapter gives the family a function that makes an
object of these, such as `Enqueue`. Each entry point gets that object and its own parameters.

    enqueues = EnqueueFamily(adapter, Enqueue)

    @enqueues("MEM_BUFFER_COPY")
    def urEnqueueMemBufferCopy(enqueue: Enqueue, hBufferSrc, hBufferDst, ...): ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from ...loader.base.abi import Function
from ...loader.ur.abi import UR
from .adapter import Adapter
from .wrap import compile_function, list_parameters

_EntryPoint = TypeVar("_EntryPoint", bound=Callable[..., Any])
_ENQUEUE: Final = "hQueue", "phEventWaitList", "phEvent"
_APPEND: Final = (
    *("hCommandBuffer", "pSyncPointWaitList", "phEventWaitList", "phEvent", "phCommand"),
)


class EnqueueCall:
    """One call of an entry point that enqueues a command.

    Args:
        queue: the queue.
        command: the name of its ur_command_t after UR_COMMAND_.
        waits: the events that the command waits for.
        wanted: whether the caller wants an event.
        blocking: whether the entry point returns when the command is complete.
    """

    def __init__(
        self,
        queue: Any,
        command: str,
        waits: Sequence[Any] = (),
        wanted: bool = False,
        blocking: bool = False,
    ) -> None:
        self.queue, self.command, self.waits = queue, command, waits
        self.wanted, self.blocking = wanted, blocking

    @property
    def context(self) -> Any:
        """Return the queue's context."""
        return self.queue.context

    def check_context(self, what: str, *things: Any) -> None:
        """Raise URError (INVALID_CONTEXT) for things of another context than the queue's."""
        self.queue.context.check_same(what, *things)


class EnqueueFamily:
    """The entry points that enqueue a command.

    Args:
        adapter: whose they are.
        make: what is called for each call. It gets the queue, the name of the ur_command_t after
            UR_COMMAND_, the wait list, whether an event is wanted, and whether the call blocks.
    """

    def __init__(self, adapter: Adapter, make: Callable[..., Any]) -> None:
        self.adapter, self.make = adapter, make

    def declare(
        self, name: str, command: str, function: Callable[..., Any], *parameters: str
    ) -> None:
        """Declare an entry point.

        Args:
            name: its name.
            command: the name of its ur_command_t after UR_COMMAND_.
            function: the work. It gets what `make` returns and the values of `parameters`.
            parameters: the names of its parameters besides `hQueue`, `phEventWaitList`, `phEvent`
                and the one that says whether it blocks.
        """
        known = [parameter.name for parameter in UR.functions[name].parameters]
        blocking = [parameter for parameter in known if parameter.startswith("blocking")]
        blocks = [f"bool({parameter})" for parameter in blocking]
        made = ", ".join(["hQueue", repr(command), "phEventWaitList", "phEvent", *blocks])
        line = f"return _work(_make({made}), {', '.join(parameters)})"
        names, scope = (*_ENQUEUE, *blocking, *parameters), {"_work": function, "_make": self.make}
        self.adapter.declare(**{name: compile_function(name, names, [line], scope)})

    @staticmethod
    def list_own_parameters(function: Function) -> list[str]:
        """Return the parameters of an entry point that `declare` has to be told."""
        return [
            one.name
            for one in function.parameters
            if one.name not in (*_ENQUEUE, "numEventsInWaitList")
            and not one.name.startswith("blocking")
        ]

    def __call__(self, command: str) -> Callable[[_EntryPoint], _EntryPoint]:
        """Declare a function as the entry point of its name. A decorator.

        Its first parameter is what `make` returns. The others have the names of the specification.

        Args:
            command: the name of a ur_command_t after UR_COMMAND_.
        """

        def declare(function: _EntryPoint) -> _EntryPoint:
            self.declare(function.__name__, command, function, *list_parameters(function)[1:])
            return function

        return declare


class AppendFamily:
    """The entry points that append a command to a command-buffer.

    Args:
        adapter: whose they are.
        make: what is called for each call. It gets the command-buffer, the sync-points, the events
            to wait for, whether an event is wanted, and whether a command handle is wanted.
    """

    def __init__(self, adapter: Adapter, make: Callable[..., Any]) -> None:
        self.adapter, self.make = adapter, make

    def declare(self, name: str, function: Callable[..., Any], *parameters: str) -> None:
        """Declare an entry point.

        Args:
            name: its name.
            function: the work. It gets what `make` returns and the values of `parameters`.
            parameters: the names of its parameters besides those that are common to all appends.
        """
        common, own = ", ".join(_APPEND), ", ".join(parameters)
        lines = "with hCommandBuffer.recording:", f"    return _work(_make({common}), {own})"
        scope = {"_work": function, "_make": self.make}
        names = *_APPEND, *parameters
        self.adapter.declare(**{name: compile_function(name, names, lines, scope)})

    @staticmethod
    def list_own_parameters(function: Function) -> list[str]:
        """Return the parameters of an entry point that `declare` has to be told."""
        counts = "numSyncPointsInWaitList", "numEventsInWaitList", "pSyncPoint"
        return [one.name for one in function.parameters if one.name not in (*_APPEND, *counts)]

    def __call__(self, function: _EntryPoint) -> _EntryPoint:
        """Declare a function as the entry point of its name. A decorator.

        Its first parameter is what `make` returns. The others have the names of the specification.
        """
        self.declare(function.__name__, function, *list_parameters(function)[1:])
        return function
