"""Command graphs do what their commands do when they are called, whatever is done to them.

Random graphs are added, recorded and nested. Their parameters, ranges and command groups change,
executables take some of the changes over, and run between other commands. A model in NumPy does the
same to arrays, one step after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple

import numpy
import pytest
from helpers.sycl import N, zeros

from fairlead.graph import CommandGraph, DynamicCommandGroup, DynamicParameter, Node
from fairlead.graph.partition import POLICIES
from fairlead.runtime import USM, Accessor, Buffer, Event, Handler, Program, Queue

KERNELS: Final[dict[str, Callable[[Any, int], Any]]] = {
    "add": lambda old, value: old + value,
    "mul": lambda old, value: old * value,
    "store": lambda old, value: numpy.full_like(old, value),
}
SIZES: Final = (1, 8, N)
#: Odd, so that products lose nothing.
VALUES: Final = (3, 5, 7, 11)
#: Memory that a command may name: pointers, and buffers.
POINTERS: Final = ("p0", "p1", "p2")
BUFFERS: Final = ("b0", "b1")


class Parameter:
    """A DynamicParameter, and its present value: a number, or the name of memory."""

    def __init__(self, native: DynamicParameter, value: Any) -> None:
        self.native, self.value = native, value


class Form(NamedTuple):
    """What a command does: it changes the first elements of memory, or copies all of other memory.

    The value and the memory may be Parameters.
    """

    what: str
    memory: Any
    value: Any = 0
    size: int = N

    def resolve(self) -> Form:
        """Return it with the present values of its Parameters."""
        memory, value = (one.value if isinstance(one, Parameter) else one for one in self[1:3])
        return self._replace(memory=memory, value=value)


@dataclass
class Group:
    """A command group with several forms, of which one is active. Several nodes may have it."""

    native: DynamicCommandGroup
    forms: list[Form]
    uses: set[str]
    active: int = 0


@dataclass
class Step:
    """A node: a command, a command group, another graph, or nothing.

    Attributes:
        inner: the executable graph that it is, None if it is a command.
    """

    form: Form | None = None
    node: Any = None
    group: Group | None = None
    inner: Runnable | None = None

    def resolve(self) -> Sequence[Form]:
        """Return what it does now."""
        if self.inner is not None:
            return [form for step in self.inner.now for form in step]
        form = self.group.forms[self.group.active] if self.group else self.form
        return [form.resolve()] if form else ()

    @property
    def is_launch(self) -> bool:
        """Return whether an update reaches it."""
        return self.group is not None or (self.form is not None and self.form.what in KERNELS)


@dataclass
class Runnable:
    """An executable graph, and what its steps do."""

    native: Any
    steps: list[Step]
    now: list[Sequence[Form]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.now = [step.resolve() for step in self.steps]


class Bench:
    """Memory, queues, and the model of the memory."""

    def __init__(self, queue: Queue, in_order: Queue, program: Program, seed: int) -> None:
        self.pick, self.program = Random(seed), program
        self.queues = [queue, in_order]
        self.memory: dict[str, Any] = {name: zeros(queue) for name in POINTERS}
        for name in BUFFERS:
            self.memory[name] = Buffer(numpy.zeros(N, numpy.int32), write_back=False)
        self.model = {name: numpy.zeros(N, numpy.int32) for name in self.memory}
        self.last: list[Event] = []

    def do(self, forms: Iterable[Form]) -> None:
        """Do to the model what commands do."""
        for what, memory, value, size in forms:
            target = self.model[memory]
            if what in ("copy", "fill"):
                target[:] = self.model[value] if what == "copy" else value
            else:
                target[:size] = KERNELS["add" if what == "host" else what](target[:size], value)

    def give(self, handler: Handler, name: Any) -> Any:
        """What a command takes for memory, or for a number."""
        if isinstance(name, (Parameter, int)):
            return name.native if isinstance(name, Parameter) else numpy.int32(name)
        return handler.access(self.memory[name]) if name in BUFFERS else self.memory[name]

    def group(self, form: Form, after: Sequence[Event] = ()) -> Callable[[Handler], None]:
        """The command-group function of a form."""

        def submit(handler: Handler) -> None:
            handler.depends_on(*after)
            what, memory, value, size = form
            if what == "host":
                array = self.memory[memory].array
                handler.host_task(lambda: numpy.add(array, value, out=array))
                return
            target, given = self.give(handler, memory), self.give(handler, value)
            if what == "fill":
                handler.fill(target, given)
            elif what == "copy":
                handler.copy(given, target)
            else:
                handler.parallel_for(size, getattr(self.program, what), target, given)

        return submit

    def run(self, one: Runnable) -> None:
        """Run an executable graph. Its executions follow each other by themselves."""
        queue = self.pick.choice(self.queues)
        self.last = [queue.graph(one.native, depends_on=self.last)]
        if self.pick.random() < 0.3:
            queue = self.pick.choice(self.queues)
            self.last = [queue.graph(one.native)]
            self.do(form for step in one.now for form in step)
        self.do(form for step in one.now for form in step)

    def call(self) -> None:
        """Submit a command that is in no graph."""
        form, queue = self.choose(list(self.memory)), self.pick.choice(self.queues)
        self.do([form])
        self.last = [queue.submit(self.group(form, self.last))]

    def choose(self, names: Sequence[str]) -> Form:
        """A random command without Parameters."""
        memory, value = self.pick.choice(names), self.pick.choice(VALUES)
        what = self.pick.choice([*KERNELS, *KERNELS, "fill", "copy", "host"])
        if what == "host":
            return Form(what, self.pick.choice(POINTERS), value)
        alike = [name for name in names if name != memory and name[0] == memory[0]]
        if what == "copy":
            return Form(what, memory, self.pick.choice(alike)) if alike else Form("fill", memory, 1)
        return Form(what, memory, value, N if what == "fill" else self.pick.choice(SIZES))

    def check(self) -> None:
        """Compare all memory with the model."""
        for event in self.last:
            event.wait()
        for name, values in self.model.items():
            memory = self.memory[name]
            found = memory.array if isinstance(memory, USM) else memory.numpy()
            assert found.tolist() == values.tolist(), name


class Maker:
    """Makes a graph of random steps, and changes it."""

    def __init__(self, bench: Bench, names: Sequence[str]) -> None:
        self.bench, self.pick, self.names = bench, bench.pick, names
        self.graph = CommandGraph(bench.queues[0], assume_buffer_outlives_graph=True)
        self.steps: list[Step] = []
        self.parameters: list[Parameter] = []
        self.groups: list[Group] = []
        #: The last node that uses each memory, and whether only its dependencies say so.
        self.users: dict[str, tuple[Node, bool]] = {}

    def parameter(self, value: Any) -> Parameter:
        """A Parameter with a value, perhaps one that others have."""
        known = [one for one in self.parameters if type(one.value) is type(value)]
        if isinstance(value, int) and known and self.pick.random() < 0.5:
            return self.pick.choice(known)
        self.parameters.append(Parameter(DynamicParameter(self.graph, self.give(value)), value))
        return self.parameters[-1]

    def give(self, value: Any) -> Any:
        """What a DynamicParameter takes."""
        if isinstance(value, int):
            return numpy.int32(value)
        memory = self.bench.memory[value]
        return Accessor(memory) if value in BUFFERS else memory

    def add(self) -> None:
        """Add a launch with Parameters, a command group, another command, or nothing."""
        form, kind = self.bench.choose(self.names), self.pick.random()
        uses = {one for one in form[1:3] if isinstance(one, str)}
        if form.what not in KERNELS:
            return (
                self.insert(Step(form), uses) if kind < 0.8 else self.insert(Step(), {*self.names})
            )
        if kind < 0.2 and self.groups:
            group = self.pick.choice(self.groups)
            return self.insert(Step(group=group), group.uses)
        if kind < 0.7 and self.pick.random() < 0.6:
            form = form._replace(value=self.parameter(form.value))
        if kind < 0.7 and self.pick.random() < 0.4:
            uses = {name for name in self.names if name[0] == form.memory[0]}
            form = form._replace(memory=self.parameter(form.memory))
        if kind < 0.5:
            return self.insert(Step(form), uses)
        forms = [form, *(self.other(form) for _ in range(2))]
        native = DynamicCommandGroup(self.graph, [self.bench.group(one) for one in forms])
        self.groups.append(Group(native, forms, uses))
        return self.insert(Step(group=self.groups[-1]), uses)

    def other(self, form: Form) -> Form:
        """Another form of a command group: the same memory, another kernel, number and range."""
        value: Any = self.pick.choice(VALUES)
        value = self.parameter(value) if self.pick.random() < 0.5 else value
        return Form(self.pick.choice([*KERNELS]), form.memory, value, self.pick.choice(SIZES))

    def insert(self, step: Step, uses: set[str]) -> None:
        """Put a step behind all that use its memory, in one of the ways in which that is said."""
        is_hidden = len(uses) > 1 or uses < {*POINTERS} or step.inner is not None
        known = [self.users[name] for name in uses & self.users.keys()]
        after = [node for node, hidden in known if hidden or is_hidden]  # or accessors order them
        form, inner, way = step.form, step.inner, self.pick.random()
        plain = form is not None and not any(isinstance(one, Parameter) for one in form)
        add: Any = self.bench.group(form) if form else step.group and step.group.native
        if inner is not None:
            add = lambda handler: handler.graph_execution(inner.native)  # noqa: E731
        if way < 0.3 and (plain or inner or not add):
            queue, events = self.pick.choice(self.bench.queues), [node.event() for node in after]
            with self.graph.recording(queue):
                if inner is not None:
                    queue.graph(inner.native, depends_on=events)
                elif form is not None:
                    queue.submit(self.bench.group(form, events))
                else:
                    queue.barrier(events)
            step.node = self.graph.nodes[-1]
        elif way < 0.5:
            step.node = self.graph.add(add)
            for node in dict.fromkeys(after):
                self.graph.make_edge(node, step.node)
        elif way < 0.6:
            step.node = self.graph.add(add, depends_on_all_leaves=True)
        else:
            step.node = self.graph.add(add, depends_on=after)
        self.steps.append(step)
        for name in uses:
            self.users[name] = step.node, is_hidden

    def finalize(self) -> Runnable:
        """Make an executable of the graph as it is now."""
        native = self.graph.finalize(updatable=True, policy=self.pick.choice(POLICIES))
        return Runnable(native, list(self.steps))

    def change(self) -> None:
        """Change what executables see only after an update."""
        for one in self.parameters:
            if self.pick.random() < 0.5:
                alike = [name for name in self.names if name[0] == str(one.value)[0]]
                one.value = self.pick.choice(alike) if alike else self.pick.choice(VALUES)
                one.native.update(self.give(one.value))
        for group in self.groups:
            group.active = group.native.active_index = self.pick.randrange(len(group.forms))
        for step in self.steps:
            if step.form is not None and step.is_launch:
                step.form = step.form._replace(size=self.pick.choice(SIZES))
                step.node.update_range(step.form.size)

    def update(self, one: Runnable) -> None:
        """Let an executable take over the changes of some nodes, or of all."""
        may = [i for i, step in enumerate(one.steps) if step.is_launch]
        chosen = self.pick.sample(may, self.pick.randint(0, len(may)))
        if len(one.steps) == len(self.steps) and not self.groups and self.pick.random() < 0.3:
            one.native.update(self.graph)  # which keeps each kernel
            chosen = range(len(one.steps))
        else:
            one.native.update([one.steps[i].node for i in chosen])
        for i in chosen:
            one.now[i] = one.steps[i].resolve()


@pytest.mark.parametrize("seed", range(30))
def test_graphs_do_what_their_commands_do(
    queue: Queue, in_order: Queue, program: Program, seed: int
) -> None:
    bench = Bench(queue, in_order, program, seed)
    child, graph = Maker(bench, POINTERS), Maker(bench, [*POINTERS, *BUFFERS])
    for _ in range(bench.pick.randint(0, 4)):
        child.add()
    inner = child.finalize()
    for _ in range(bench.pick.randint(1, 12)):
        graph.add() if bench.pick.random() < 0.9 else graph.insert(Step(inner=inner), {*POINTERS})
    runnables = [graph.finalize()]
    for _ in range(30):
        one, action = bench.pick.choice(runnables), bench.pick.choice("abcccdefgg")
        if action == "a":
            graph.add()
            runnables.append(graph.finalize())
        elif action == "b":
            child.change()
            child.update(inner)
        elif action == "c":
            graph.update(one)
        elif action == "d":
            bench.call()
        elif action == "e":
            graph.change()
        else:
            bench.run(inner if action == "f" else one)
    for one in runnables:
        bench.run(one)
    bench.check()
