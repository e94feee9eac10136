"""Captured graphs do what their calls do, bit for bit, whatever is done to them.

A state machine captures blocks, edits, updates and saves them, and replays them in every way. It
makes the same calls on other memory by PyOpenCL alone, and compares all memory now and then.

`make test` runs the same sequences each time. FAIRLEAD_FUZZ=SECONDS runs others for so long.
"""

from __future__ import annotations

import io
import os
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, NamedTuple

import hypothesis
import numpy as np
import pyopencl as cl
import pytest
from helpers.captures import OUT_OF_ORDER, SOURCE, new_queue
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

import fairlead
from fairlead.captured_graphs.context import capture

pytestmark = pytest.mark.fuzz

SECONDS: Final = float(os.environ.get("FAIRLEAD_FUZZ") or 0)
ENGINES: Final = ("auto", "replay", "native", "direct")
SCHEDULES: Final = ("auto", "auto", "in-order", "queues", "levels", "events")
PICK: Final = st.randoms(use_true_random=True)
COUNT: Final = 64
BLEND: Final = """
kernel void blend(global int *a, global const int *b) {
    a[get_global_id(0)] = 3 * a[get_global_id(0)] + b[get_global_id(0)];
}
"""
#: How many buffers a command takes, and whether it takes a number.
OPERATIONS: Final = {
    "add": (1, True),
    "mul": (1, True),
    "shared_add": (1, True),
    "blend": (2, False),
    "fill": (1, True),
    "copy": (2, False),
    "rectangle": (2, False),
    "read": (1, False),
    "write": (1, False),
    "barrier": (0, False),
}
LAUNCHES: Final = ("add", "mul", "shared_add", "blend")


class Step(NamedTuple):
    """A command.

    Attributes:
        memory: the numbers of its buffers. "m" is the Parameter m.
        number: "n" is the Parameter n.
        size: of a launch, or of what is copied.
        host: the number of the host's memory.
        inner: the steps of a sub-graph.
    """

    op: str
    memory: tuple[Any, ...] = ()
    number: Any = 0
    size: int = COUNT
    host: int = 0
    inner: tuple[Any, ...] = ()

    @property
    def uses(self) -> set[str]:
        """The names of the memory that it touches."""
        host = {f"host{self.host}"} if self.op in ("read", "write", "task") else set[str]()
        return host.union(*(one.uses for one in self.inner), (f"buffer{n}" for n in self.memory))


class World:
    """Buffers and memory of the host, and the calls of steps."""

    def __init__(self, context: cl.Context, program: cl.Program) -> None:
        self.queue = cl.CommandQueue(context)
        self._kernels: dict[str, Any] = {name: cl.Kernel(program, name) for name in LAUNCHES}
        values = [np.arange(n, n + COUNT, dtype=np.int32) for n in range(4)]
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        self.buffers = [cl.Buffer(context, flags, hostbuf=one) for one in values]
        self.hosts = [np.full(COUNT, 70 + n, np.int32) for n in range(2)]
        self.names: dict[str, Any] = {f"buffer{n}": one for n, one in enumerate(self.buffers)}
        self.names |= {f"host{n}": one for n, one in enumerate(self.hosts)}

    def call(self, queue: cl.CommandQueue, step: Step, names: Mapping[Any, Any], **how: Any) -> Any:
        """Call PyOpenCL for a step. `names` has the values of names, and exchanged buffers."""
        found = [names.get(one, one) for one in step.memory]
        memory: Any = [self.buffers[one] if type(one) is int else one for one in found]
        number: Any = names["n"] if step.number == "n" else step.number  # 0 may be a buffer's name
        number = np.int32(number) if type(number) is int else number
        host, size = self.hosts[step.host], 4 * step.size
        if step.op in LAUNCHES:
            more: list[Any] = [number] if OPERATIONS[step.op][1] else []
            local: Any = None
            if step.op == "shared_add":
                more, local = [number, cl.LocalMemory(16)], (4,)
            return self._kernels[step.op](queue, (step.size,), local, *memory, *more, **how)
        if step.op == "barrier":
            return cl.enqueue_barrier(queue, **how)
        if step.op == "fill":
            return cl.enqueue_fill_buffer(queue, memory[0], number, 256 - size, size, **how)
        if step.op == "copy":
            how |= {"byte_count": size, "src_offset": 256 - size}
        elif step.op == "rectangle":
            how |= {"src_origin": (4, 1), "dst_origin": (0, 2), "region": (8, step.size // 16)}
            how |= {"src_pitches": (32,), "dst_pitches": (16,)}
        else:
            memory = [host, *memory] if step.op == "read" else [*memory, host]
            how |= {"is_blocking": False}
        return cl.enqueue_copy(queue, *memory, **how)

    def run(self, steps: Any, names: Mapping[Any, Any]) -> None:
        """Call steps, also those of the host and of sub-graphs."""
        for step in steps:
            if step.op == "task":
                self.queue.finish()
                change(self.hosts[step.host])
            elif step.op == "graph":
                self.run(step.inner, {})
            else:
                self.call(self.queue, step, names)

    def state(self) -> dict[str, np.ndarray]:
        """All that steps can have changed."""
        found = {name: np.empty(COUNT, np.int32) for name in self.names}
        for name, values in found.items():
            if name.startswith("buffer"):
                cl.enqueue_copy(self.queue, values, self.names[name])
            else:
                values[:] = self.names[name]
        return found


def change(host: np.ndarray) -> None:
    """Change memory of the host, as a host task does."""
    host *= 5
    host += 1


@dataclass
class Block:
    """A captured graph, and what it should do.

    Attributes:
        values: the first values of its Parameters by name. Memory is the number of a buffer.
        objects: the Parameters.
        swaps: whether the first two buffers alternate.
        ordered: whether each command comes after the one before it.
    """

    graph: Any
    steps: list[Step]
    nodes: list[Any]
    values: dict[Any, int]
    objects: dict[str, Any]
    swaps: bool
    ordered: bool

    def look(self) -> None:
        """Make its nodes, if nobody has needed them yet."""
        self.nodes = self.nodes or list(self.graph)

    def has(self, *ops: str) -> bool:
        return any(step.op in ops for step in self.steps)


@dataclass
class Loop(Block):
    """An executable graph, and what its next replay should do.

    Attributes:
        block: what it was made of.
    """

    block: Block
    updatable: bool
    turn: int = 0

    @property
    def is_plain(self) -> bool:
        """Whether each replay does the same."""
        return not (self.updatable or self.swaps or self.graph.parameters)

    @property
    def is_same(self) -> bool:
        """Whether nodes of the graph can be taken over."""
        return self.updatable and self.nodes == self.block.nodes

    def take_over(self, node: Any) -> None:
        """Do a node's step as the graph has it now."""
        self.steps[self.nodes.index(node)] = self.block.steps[self.nodes.index(node)]


class Machine(RuleBasedStateMachine):
    context: ClassVar[cl.Context]
    program: ClassVar[cl.Program]
    others: ClassVar[list[cl.CommandQueue]]

    def __init__(self) -> None:
        super().__init__()
        self.real, self.plain = (World(self.context, self.program) for _ in range(2))
        self.queues = [self.real.queue, *self.others]
        self.blocks, self.loops = list[Block](), list[Loop]()
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        words = [np.array([word], np.int32) for word in (0, 1)]
        self.flags = [cl.Buffer(self.context, flags, hostbuf=word) for word in words]
        self.gate: Any = None
        #: The events of commands. PyOpenCL waits for a transfer when its event is dropped.
        self.events: list[Any] = []
        #: The queue and the loop of the last command, None if it has another place in the order.
        self.latest: tuple[Any, Any] = (None, None)

    def teardown(self) -> None:
        self.wait()

    def open_gate(self) -> None:
        """Let begin what waits."""
        if self.gate is not None:
            self.gate.set_status(cl.command_execution_status.COMPLETE)
        self.gate = None

    def wait(self) -> None:
        """Wait for everything."""
        self.open_gate()
        for queue in self.queues:
            queue.finish()
        for event in self.events:
            event.wait()
        self.events.clear()

    @initialize(engine=st.sampled_from(ENGINES), pick=PICK)
    def begin(self, engine: str, pick: random.Random) -> None:
        os.environ["FAIRLEAD_COMMAND_BUFFER"] = engine
        self.capture(pick)
        self.finalize(pick)

    # --- graphs ---

    def _make_steps(self, pick: random.Random, has_memory: bool) -> Iterator[Step]:
        for _ in range(pick.choice((1, 2, 3, 6))):
            op = pick.choice(sorted(OPERATIONS))
            count, has_number = OPERATIONS[op]
            memory: list[Any] = pick.sample(range(4), count)
            if has_memory and count == 1 and op != "write" and pick.random() < 0.4:
                memory = ["m"]
            number: Any = pick.randint(-9, 9) if has_number else 0
            if has_number and op != "fill" and pick.random() < 0.4:
                number = "n"
            yield Step(op, (*memory,), number, pick.choice((16, 32, 64, 64)), pick.randrange(2))

    def _record(self, block: Block) -> Any:
        """Capture the steps of a block."""
        queue = self.queues[0] if block.ordered else self.queues[-1]
        pair = (self.real.buffers[0], self.real.buffers[1]) if block.swaps else None
        with capture(queue, swap=pair) as graph:
            events: list[tuple[set[str], Any]] = []
            for step in block.steps:
                uses = step.uses
                any_memory = {"bufferm"} & uses.union(*(before for before, _ in events))
                after = [event for before, event in events if before & uses or any_memory]
                how: Any = {} if block.ordered else {"wait_for": after}
                events.append((uses, self.real.call(queue, step, block.objects, **how)))
        return graph

    @rule(pick=PICK)
    def capture(self, pick: random.Random) -> None:
        swaps = pick.random() < 0.25
        values: Any = {"n": pick.randint(1, 9), "m": pick.randrange(4)}
        objects = {
            "n": fairlead.Parameter(np.int32(values["n"]), name="n"),
            "m": fairlead.Parameter(self.real.buffers[values["m"]], name="m"),
        }
        steps = [*self._make_steps(pick, not swaps)]
        block = Block(None, steps, [], values, objects, swaps, pick.random() < 0.7)
        block.graph = self._record(block)
        self.blocks.append(block)

    def _edit(self, block: Block, pick: random.Random, loop: Loop | None = None) -> None:
        """Change an argument or the size of a launch in a graph, and an argument in a loop, too."""
        block.look()
        place = pick.randrange(len(block.steps))
        step, node = block.steps[place], block.nodes[place]
        kind, index, value = pick.choice(("number", "memory", "size")), 1, None
        if step.op not in LAUNCHES:
            return
        if kind == "number" and OPERATIONS[step.op][1]:
            step = step._replace(number=pick.randint(-9, 9))
            value = np.int32(step.number)
        elif kind == "memory" and block.ordered and not block.swaps and "m" not in step.memory:
            index, chosen = pick.randrange(len(step.memory)), pick.randrange(4)
            if chosen not in step.memory:
                memory = [*step.memory[:index], chosen, *step.memory[index + 1 :]]
                step, value = step._replace(memory=(*memory,)), self.real.buffers[chosen]
        elif kind == "size" and step.op != "shared_add":
            step = step._replace(size=pick.choice((16, 32, 48)))
            node.update_range(step.size)
        block.steps[place] = step
        if loop is not None and value is not None:
            loop.graph.set(node, index, value)
            loop.take_over(node)
        elif value is not None:
            node.set_arg(index, value)

    @rule(pick=PICK)
    def edit(self, pick: random.Random) -> None:
        self._edit(pick.choice(self.blocks), pick)

    @rule(pick=PICK)
    def add_node(self, pick: random.Random) -> None:
        """Put a host task or a sub-graph between two commands."""
        block, host = pick.choice(self.blocks), pick.randrange(2)
        if not block.ordered:
            return
        block.look()
        inner = [
            one for one in self.loops if not (one.updatable or one.swaps or one.graph.parameters)
        ]
        place, memory = pick.randrange(len(block.nodes)), self.real.hosts[host]
        after = block.nodes[place]
        if inner and pick.random() < 0.4:
            loop = pick.choice(inner)
            step = Step("graph", inner=(*loop.steps,))
            node = block.graph.add(lambda h: h.graph_execution(loop.graph), depends_on=after)
        else:
            step = Step("task", host=host)
            node = block.graph.add(lambda h: h.host_task(lambda: change(memory)), depends_on=after)
        if place + 1 < len(block.nodes):
            block.graph.make_edge(node, block.nodes[place + 1])
        block.nodes.insert(place + 1, node)
        block.steps.insert(place + 1, step)

    @rule(pick=PICK)
    def finalize(self, pick: random.Random) -> None:
        block, updatable = pick.choice(self.blocks), pick.random() < 0.5
        made = block.graph.finalize(updatable=updatable, schedule=pick.choice(SCHEDULES))
        if updatable:
            block.look()
        copies = [*block.steps], [*block.nodes], dict(block.values)
        loop = Loop(made, *copies, block.objects, block.swaps, block.ordered, block, updatable)
        self.loops.append(loop)

    def _choose_updatable(self, pick: random.Random) -> Loop | None:
        found = [one for one in self.loops if one.is_same]
        return pick.choice(found) if found else None

    @rule(pick=PICK)
    def update(self, pick: random.Random) -> None:
        if loop := self._choose_updatable(pick):
            nodes = [one for one in loop.nodes if one.type == "kernel"]
            nodes = pick.sample(nodes, pick.randint(0, len(nodes)))
            loop.graph.update(nodes[0] if len(nodes) == 1 else nodes)
            for node in nodes:
                loop.take_over(node)

    @rule(pick=PICK)
    def set_argument(self, pick: random.Random) -> None:
        if loop := self._choose_updatable(pick):
            self._edit(loop.block, pick, loop)

    @rule(pick=PICK)
    def capture_again(self, pick: random.Random) -> None:
        """Update a loop by the same code, captured again with other numbers and buffers."""
        loop, turn = self._choose_updatable(pick), pick.randrange(4)
        if loop is None or loop.has("task", "graph") or not loop.ordered or loop.swaps:
            return
        steps = [
            step._replace(
                memory=tuple(one if one == "m" else (one + turn) % 4 for one in step.memory),
                number=step.number if step.number == "n" else pick.randint(-9, 9),
            )
            for step in loop.block.steps
        ]
        loop.graph.update(self._record(replace(loop.block, steps=steps)))
        loop.steps[:] = steps

    # --- replays ---

    def _choose_queue(self, pick: random.Random, loop: Loop | None = None) -> tuple[Any, Any]:
        """Return a queue, and what the next command on it has to wait for.

        An in-order queue has an order, and replays of one loop have one.
        """
        queue = pick.choice((*self.queues, self.queues[0], self.queues[0]))
        before, self.latest = self.latest, (queue, loop)
        comes_after = queue is before[0] is not self.queues[-1] or loop is before[1] is not None
        is_named = not comes_after or pick.random() < 0.3
        return queue, (self.events[-1:] or None) if is_named else None

    @rule(pick=PICK)
    def call(self, pick: random.Random) -> None:
        """The program's own command, between replays."""
        step = next(self._make_steps(pick, False))
        queue, waits = self._choose_queue(pick)
        self.events.append(self.real.call(queue, step, {"n": 3}, wait_for=waits))
        self.plain.run([step], {"n": 3})

    @precondition(lambda self: self.gate is None)
    @rule()
    def close_gate(self) -> None:
        """Let the next commands wait, so that changes come between a replay and its beginning."""
        self.wait()
        self.gate = cl.UserEvent(self.context)
        self.events.append(self.gate)
        self.latest = (None, None)

    def _choose_values(self, loop: Loop, pick: random.Random) -> dict[str, Any]:
        """Choose values of some of its Parameters, and expect them."""
        given: dict[str, Any] = {}
        if "n" in loop.graph.parameters and pick.random() < 0.5:
            given["n"] = loop.values["n"] = pick.randint(-9, 9)
        if "m" in loop.graph.parameters and pick.random() < 0.3:
            loop.values["m"] = pick.randrange(4)
            given["m"] = self.real.buffers[loop.values["m"]]
        return given

    @rule(pick=PICK)
    def set_parameters(self, pick: random.Random) -> None:
        loop = pick.choice(self.loops)
        loop.graph.set(**self._choose_values(loop, pick))

    @rule(pick=PICK)
    def replay(self, pick: random.Random) -> None:
        loop, times = pick.choice(self.loops), pick.choice((1, 1, 1, 1, 2, 5))
        given = self._choose_values(loop, pick)
        numbers, way = [loop.values["n"]] * times, pick.random()
        if "n" in loop.graph.parameters and times > 1 and way < 0.5:
            given["n"] = numbers = [pick.randint(-9, 9) for _ in range(times)]
        elif way < 0.2:
            given |= {"until": pick.choice(self.flags), "every": pick.choice((1, 3))}
        elif way < 0.5:
            given["wait"] = True
        if {"until", "wait"} & given.keys():
            self.open_gate()
        queue, waits = self._choose_queue(pick, loop)
        end = loop.graph.replay(queue, times, waits, **given)
        self.events.append(end)
        if flag := given.get("until"):
            assert end.has_stopped == (flag is self.flags[1])
            assert end.replays == times or end.has_stopped
            numbers = numbers[: end.replays]
        for number in numbers:
            loop.values["n"] = number
            swapped = {0: 1, 1: 0} if loop.swaps and loop.turn % 2 else {}
            self.plain.run(loop.steps, loop.values | swapped)
            loop.turn += 1
        if loop.swaps and any({0, 1} & {*step.memory} for step in loop.steps):
            assert loop.graph.is_swapped == bool(loop.turn % 2)

    @rule(pick=PICK)
    def save(self, pick: random.Random) -> None:
        """Run what was saved and loaded on what is in memory now."""
        block, file = pick.choice(self.blocks), io.BytesIO()
        used = set[str]().union(*(step.uses for step in block.steps))
        if block.has("task", "graph") or block.swaps or "bufferm" in used:
            return
        self.wait()
        names = {name: one for name, one in self.real.names.items() if name in used}
        block.graph.save(file, names=names, inputs=used)
        file.seek(0)
        loaded = fairlead.load(file, self.context.devices[0])
        state = self.real.state()
        given: Any = {
            name: state[name].view("i4" if "host" in name else "u1") for name in loaded.inputs
        }
        out = loaded.finalize(schedule=pick.choice(SCHEDULES))(**given)
        for name, data in out.items():
            if "host" in name:
                names[name][:] = data
            else:
                cl.enqueue_copy(self.real.queue, names[name], data)
        self.plain.run(block.steps, block.values)

    @rule()
    def compare(self) -> None:
        self.wait()
        plain = self.plain.state()
        for name, values in self.real.state().items():
            assert values.tobytes() == plain[name].tobytes(), name


def test_graphs_do_what_their_calls_do(device: cl.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "auto")  # which is put back at the end
    Machine.context = context = cl.Context([device])
    Machine.program = cl.Program(context, SOURCE + BLEND).build()
    Machine.others = [cl.CommandQueue(context), new_queue(context, OUT_OF_ORDER)]
    profile = settings(
        max_examples=100,
        stateful_step_count=40,
        derandomize=not SECONDS,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=[*HealthCheck],  # pyright: ignore  (its metaclass)
        phases=(Phase.generate, Phase.shrink),
    )
    seed, end = int(os.environ.get("FAIRLEAD_FUZZ_SEED") or time.time()), time.monotonic() + SECONDS
    run_state_machine_as_test(Machine, settings=profile)
    while time.monotonic() < end:
        print(f"FAIRLEAD_FUZZ_SEED={seed}")
        run_state_machine_as_test(hypothesis.seed(seed)(Machine), settings=profile)
        seed += 1
