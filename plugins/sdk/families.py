"""Families of entry points: those that enqueue a command, and those that append one.

The entry points of a family share parameters. An adapter gives the family a function that makes an
object of these, such as `Enqueue`. Each entry point gets that object and its own parameters.

    enqueues = EnqueueFamily(adapter, Enqueue)

    @enqueues("MEM_BUFFER_COPY")
    def urEnqueueMemBufferCopy(enqueue: Enqueue, hBufferSrc, hBufferDst, ...): ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from ...loader.base.abi import Function
from ...loader.ur.abi import UR
from .adapter import Adapter
from .wrap import compile_function, list_parameters, name_parameters

_EntryPoint = TypeVar("_EntryPoint", bound=Callable[..., Any])
_ENQUEUE: Final = "hQueue", "phEventWaitList", "phEvent"
_APPEND: Final = (
    *("hCommandBuffer", "pSyncPointWaitList", "phEventWaitList", "phEvent", "phCommand"),
)


def _compile(
    name: str,
    common: Sequence[str],
    parameters: Mapping[str, str | None],
    lines: Iterable[str],
    scope: dict[str, Any],
) -> Callable[..., Any]:
    """Make a function of its source, whose parameters may have other names in it."""
    inner = [other or parameter for parameter, other in parameters.items()]
    made = compile_function(name, (*common, *inner), lines, scope)
    return name_parameters(made, *common, *parameters) if any(parameters.values()) else made


class EnqueueCall:
    """One call of an entry point that enqueues a command.

    Args:
        command: the name of its ur_command_t after UR_COMMAND_.
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
            command: the name of its ur_command_t after UR_COMMAND_.
            function: the work. It gets what `make` returns and the values of `parameters`.
            parameters: the names of its parameters besides `hQueue`, `phEventWaitList`, `phEvent`
                and the one that says whether it blocks.
        """
        line = f"return _work(call, {', '.join(parameters)})"
        self.declare_lines(name, command, [line], {"_work": function}, dict.fromkeys(parameters))

    def declare_lines(
        self,
        name: str,
        command: str,
        lines: Iterable[str],
        scope: Mapping[str, Any],
        parameters: Mapping[str, str | None],
    ) -> None:
        """Declare an entry point by its source, which is a call less than a function.

        Args:
            command: the name of its ur_command_t after UR_COMMAND_.
            lines: the source of the work. `call` is what `make` returns.
            scope: what the source uses.
            parameters: those that `declare` takes, with what the source calls them, if not so.
        """
        known = [parameter.name for parameter in UR.functions[name].parameters]
        blocking = [parameter for parameter in known if parameter.startswith("blocking")]
        blocks = [f"bool({parameter})" for parameter in blocking]
        made = ", ".join(["hQueue", repr(command), "phEventWaitList", "phEvent", *blocks])
        lines, scope = [f"call = _make({made})", *lines], {**scope, "_make": self.make}
        common = *_ENQUEUE, *blocking
        self.adapter.declare(**{name: _compile(name, common, parameters, lines, scope)})

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
        make: what is called for each call. It gets the command-buffer, the sync-points, the events
            to wait for, whether an event is wanted, and whether a command handle is wanted.
    """

    def __init__(self, adapter: Adapter, make: Callable[..., Any]) -> None:
        self.adapter, self.make = adapter, make

    def declare(self, name: str, function: Callable[..., Any], *parameters: str) -> None:
        """Declare an entry point.

        Args:
            function: the work. It gets what `make` returns and the values of `parameters`.
            parameters: the names of its parameters besides those that are common to all appends.
        """
        line = f"return _work(call, {', '.join(parameters)})"
        self.declare_lines(name, "", [line], {"_work": function}, dict.fromkeys(parameters))

    def declare_lines(
        self,
        name: str,
        command: str,
        lines: Iterable[str],
        scope: Mapping[str, Any],
        parameters: Mapping[str, str | None],
    ) -> None:
        """Declare an entry point by its source. See `EnqueueFamily.declare_lines`."""
        lines = [f"call = _make({', '.join(_APPEND)})", *lines]
        lines = ["with hCommandBuffer.recording:", *[f"    {line}" for line in lines]]
        scope = {**scope, "_make": self.make}
        self.adapter.declare(**{name: _compile(name, _APPEND, parameters, lines, scope)})

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
