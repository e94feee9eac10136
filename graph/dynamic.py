"""What can be exchanged in a graph: dynamic parameters of kernels, and dynamic command-groups.

A dynamic parameter refers weakly to every launch and argument index that it was set for. A dynamic
command-group calls its functions once, and refers weakly to its nodes, which all have the active
one's command. Both change the modifiable graph at once. An executable graph sees it after its
`update`. Edges never change. (sycl_ext_oneapi_graph, "Dynamic Parameters", "Dynamic Command
Groups".)
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ..runtime.accessor import Accessor
from ..runtime.arguments import (
    LOCAL,
    MEMORY,
    POINTER,
    Argument,
    DynamicArgument,
    LocalMemory,
    check_local,
    make_argument,
)
from ..runtime.checks import as_integer, check_group, expect, make_type_error
from ..runtime.commands import Command, HostTask
from ..runtime.errors import SYCLError, make_invalid_error
from ..runtime.handler import Handler
from ..runtime.kernel_types import fit
from ..runtime.launches import KernelLaunch

if TYPE_CHECKING:
    from .command_graph import CommandGraph
    from .node import Node


class DynamicParameter(DynamicArgument):
    """A kernel argument that can be exchanged: `handler.set_arg(0, parameter)`, then
    `parameter.update(value)`.

    Args:
        graph: the graph in whose nodes it will be used.
        value: the first value: what `set_arg` takes (runtime/arguments.py), accessors too.

    Raises:
        SYCLError: invalid, kernel_argument.
    """

    def __init__(self, graph: CommandGraph, value: Any) -> None:
        kind = type(self).__name__
        self._graph = weakref.ref(_check_graph(graph, kind))
        self._lock = graph.lock  # held, so that nobody else looks at the graph meanwhile
        self._uses: list[tuple[weakref.ref[Command], int]] = []
        self._argument = self._check_value(value, kind)
        _check_graph(graph, kind).dynamic_parameters.add(self)

    @staticmethod
    def _check_value(value: Any, routine: str) -> Argument:
        if isinstance(value, DynamicArgument):
            raise make_invalid_error(
                "a dynamic parameter holds a value, not another dynamic parameter",
                routine=routine,
                remedy="give the value",
            )
        try:
            return make_argument(value)
        except SYCLError as error:
            raise error.with_message(
                error.message.replace("argument 0", "the value", 1), routine
            ) from None

    @property
    def argument(self) -> Argument:
        """The present value, as an argument."""
        return self._argument

    def bind(self, handler: Handler, index: int) -> Argument:
        """Return the argument for a handler's kernel. Raises SYCLError (invalid) outside of its
        graph, and in recordings."""
        if handler.graph is None:
            raise make_invalid_error(
                "A dynamic parameter can only be used in a node of a graph",
                routine="set_arg",
                remedy="graph.add(…) of its own graph",
            )
        if handler.recorded:
            raise make_invalid_error(
                "dynamic parameters cannot be registered with nodes that are recorded from a queue",
                routine="set_arg",
                remedy="add the node with graph.add",
            )
        if handler.graph is not self._graph():
            raise make_invalid_error(
                "Cannot use a Dynamic Parameter with a node associated with a graph other than "
                "the one it was created with.",
                routine="set_arg",
                remedy="make a parameter for each graph",
            )
        if self._argument.type == LOCAL:
            handler.check_local(self._argument, index)
        return self._argument

    def register(self, command: Command, index: int) -> None:
        """Record that a command has this parameter as an argument."""
        self._uses.append((weakref.ref(command), index))

    def uses(self) -> list[tuple[KernelLaunch, int]]:
        """Return the launches that have this parameter, each with the argument's index."""
        found = [(use(), index) for use, index in self._uses]
        return [(one, index) for one, index in found if isinstance(one, KernelLaunch)]

    def update(self, value: Any) -> None:
        """Set another value, of the same kind and size, in every node that uses it. Executable
        graphs see it after `update`.

        Raises:
            SYCLError: invalid, kernel_argument.
        """
        found = self._check_value(value, "DynamicParameter.update")
        old = self._argument
        if found.type != old.type or (found.buffer is None) != (old.buffer is None):
            raise make_invalid_error(
                "a dynamic parameter keeps its kind: value, pointer, accessor or local memory",
                routine="DynamicParameter.update",
                remedy="make another parameter, in another graph",
            )
        if found.size != old.size and not isinstance(self, DynamicLocalMemory):
            raise make_invalid_error(
                f"the new value has {found.size} bytes, not {old.size}",
                routine="DynamicParameter.update",
                remedy="keep the type of the first value: numpy.int32(…)",
            )
        with self._lock:
            uses = self.uses()
            if found.type in (MEMORY, LOCAL):
                self._check_in_graph(found, uses)
            exchanges = [(command, index, _fit(found, command, index)) for command, index in uses]
            self._argument = found
            for exchange in exchanges:
                _exchange(*exchange)

    def _check_in_graph(self, found: Argument, uses: Iterable[tuple[KernelLaunch, int]]) -> None:
        graph = self._graph()
        if graph is None:
            return
        if isinstance(found.keep, Accessor):
            graph.check_buffer(found.keep.buffer)
        for command, index in uses if found.type == LOCAL else ():
            check_local(
                _replace_argument(command, index, found), graph.context, "DynamicParameter.update"
            )

    def __repr__(self) -> str:
        kind, size, *_ = self._argument
        what = (
            "a pointer"
            if kind == POINTER
            else repr(self._argument.keep)
            if kind == MEMORY
            else f"{size} bytes"
        )
        return f"<{type(self).__name__} of {what}, used {len(self._uses)} times>"


def _replace_argument(command: KernelLaunch, index: int, found: Argument) -> tuple[Argument, ...]:
    """Return a launch's arguments with another one in a place."""
    arguments = list(command.arguments)
    arguments[index] = found
    return tuple(arguments)


def _fit(found: Argument, command: KernelLaunch, index: int) -> Argument:
    kernel = command.kernel
    return fit(found, kernel.declared[index], index, kernel.name, "DynamicParameter.update")


def _exchange(command: KernelLaunch, index: int, found: Argument) -> None:
    """Give a launch another argument, and the accessors that it needs then."""
    old = command.arguments[index]
    command.arguments = _replace_argument(command, index, found)
    if isinstance(found.keep, Accessor):
        others = {id(one.keep) for one in command.arguments}
        kept = [one for one in command.requirements if one is not old.keep or id(one) in others]
        command.requirements = [*kept, found.keep]


class DynamicLocalMemory(DynamicParameter):
    """Local memory of a work-group whose size can be exchanged. (dynamic_work_group_memory,
    dynamic_local_accessor)

    Args:
        graph: the graph in whose nodes it will be used.
        count, dtype: as of LocalMemory.
    """

    def __init__(self, graph: CommandGraph, count: int, dtype: Any = None) -> None:
        self._dtype = dtype
        super().__init__(graph, LocalMemory(count, dtype))

    def update(self, value: Any) -> None:
        """Set another size: a number of elements, or LocalMemory."""
        super().update(value if isinstance(value, LocalMemory) else LocalMemory(value, self._dtype))


def check_dynamic(handler: Handler) -> None:
    """Raise SYCLError (invalid) for a command with dynamic parameters that is not a kernel."""
    if handler.dynamic and not isinstance(handler.command, KernelLaunch):
        raise make_invalid_error(
            "dynamic_parameters cannot be registered with graph nodes which do not represent "
            "kernel executions",
            routine="set_arg",
            remedy="a host task reads its variables when it runs: change those",
        )


#: Kinds of command that a dynamic command-group can have.
_KINDS: Final = {KernelLaunch, HostTask}


class DynamicCommandGroup:
    """Several command groups, kernels or host tasks, of which one is active. Several nodes can be
    made of it.

    Args:
        graph: the graph that its nodes will be added to.
        functions: command-group functions, called once each, in this order. The first is active.

    Raises:
        SYCLError: invalid, if there is none, if their kinds differ, or if they depend on different
            nodes.
    """

    def __init__(
        self, graph: CommandGraph, functions: Iterable[Callable[[Handler], object]]
    ) -> None:
        _check_graph(graph, "DynamicCommandGroup")
        if callable(functions) or not isinstance(functions, Iterable):
            raise make_type_error(
                functions,
                "list of functions",
                "DynamicCommandGroup",
                "DynamicCommandGroup(graph, [one, another])",
            )
        functions = list(functions)
        if not functions:
            raise make_invalid_error(
                "Dynamic command-group cannot be created with an empty CGF list.",
                routine="DynamicCommandGroup",
                remedy="DynamicCommandGroup(graph, [one, another])",
            )
        self._graph, self._lock = weakref.ref(graph), graph.lock
        self._nodes: weakref.WeakSet[Node] = weakref.WeakSet()
        self._active = 0
        handlers = [Handler(graph.context, graph) for _ in functions]
        for handler, function in zip(handlers, functions, strict=True):
            try:
                function(handler)
            except TypeError as error:
                check_group(error, function, "DynamicCommandGroup")
                raise
        _check_commands(handlers, graph)
        self.before: list[Node] = graph.predecessors_of(handlers[0])
        self.commands: tuple[Command, ...] = tuple(handler.take_command() for handler in handlers)
        for handler, command in zip(handlers, self.commands, strict=True):
            for dynamic, index in handler.dynamic:
                dynamic.register(command, index)
            if isinstance(command, KernelLaunch):
                others = {
                    one.kernel: None for one in self.commands if isinstance(one, KernelLaunch)
                }
                command.alternatives = tuple(
                    kernel for kernel in others if kernel != command.kernel
                )

    @property
    def graph(self) -> CommandGraph | None:
        """The graph that it was made for, None if that is gone."""
        return self._graph()

    @property
    def active_index(self) -> int:
        """Which command group is active. (get_active_index)"""
        return self._active

    @active_index.setter
    def active_index(self, index: int) -> None:
        """Make another command group active in all nodes. Executable graphs see it after `update`.
        (set_active_index)"""
        if not 0 <= as_integer(index, "index", "active_index") < len(self.commands):
            raise make_invalid_error(
                f"Index is out of range: there are {len(self.commands)} command-groups",
                routine="active_index",
                remedy="count from 0",
            )
        with self._lock:
            self._active = index
            for node in self._nodes:
                node.command = self.commands[index]

    def attach(self, node: Node) -> None:
        """Record that a node was made of this command group."""
        node.group = self
        self._nodes.add(node)

    def __len__(self) -> int:
        return len(self.commands)

    def __repr__(self) -> str:
        active = self.commands[self._active]
        return f"<DynamicCommandGroup of {len(self)}, active: {self._active}: {active}>"


def _check_graph(value: Any, routine: str) -> CommandGraph:
    """Return a modifiable graph. Raises SYCLError (invalid) for other objects."""
    from .command_graph import CommandGraph

    value = getattr(value, "command_graph", value)  # of what stands for one
    expect(
        value,
        CommandGraph,
        routine,
        f"{routine}(graph, …), of the graph in whose nodes it will be used",
    )
    return value


def _check_commands(handlers: Sequence[Handler], graph: CommandGraph) -> None:
    """Raise SYCLError (invalid) for handlers whose commands cannot replace each other."""
    kinds = {type(handler.command) for handler in handlers}
    if not kinds <= _KINDS:
        raise make_invalid_error(
            "The only type of command-groups that can be used in a dynamic command-group is "
            "kernels and host-tasks.",
            routine="DynamicCommandGroup",
            remedy="add the others with graph.add",
        )
    if len(kinds) > 1:
        raise make_invalid_error(
            "Command-groups in a dynamic command-group have to be all of one type.",
            routine="DynamicCommandGroup",
            remedy="make a dynamic command-group for each type",
        )
    if HostTask in kinds and any(handler.dynamic for handler in handlers):
        raise make_invalid_error(
            "Cannot use dynamic parameters in a host_task",
            routine="DynamicCommandGroup",
            remedy="a host task reads its variables when it runs: change those",
        )
    for handler in handlers:
        for accessor in handler.requirements:
            graph.check_buffer(accessor.buffer)
    first = set(map(id, graph.predecessors_of(handlers[0])))
    uses = {(id(accessor.buffer), accessor.writes) for accessor in handlers[0].requirements}
    for handler in handlers[1:]:
        theirs = {(id(accessor.buffer), accessor.writes) for accessor in handler.requirements}
        if set(map(id, graph.predecessors_of(handler))) != first or theirs != uses:
            raise make_invalid_error(
                "Command-groups in dynamic command-group don't have equivalent dependencies to "
                "other graph nodes.",
                routine="DynamicCommandGroup",
                remedy="let each depend on the same events and use the same buffers",
            )
