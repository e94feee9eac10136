"""Fused graphs whose Parameters, arguments and buffers change between replays.

Each program runs twice: as a fused graph, and by PyOpenCL's calls on other buffers with the same
contents. After each step both have the same bits.
"""

from __future__ import annotations

import random
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

import fairlead
from fairlead.captured_graphs.context import capture
from fairlead.captured_graphs.executable import Executable
from fairlead.icd.command_buffer.rewrites import rewriting

from .test_fusion import list_unwritten

SOURCE = """
kernel void scale(global float *x, float a) { x[get_global_id(0)] *= a; }
kernel void add(global const float *x, global const float *y, global float *out, float a) {
    size_t i = get_global_id(0);
    out[i] = 0.5f * x[i] + a * y[i];
}
kernel void some(global float *x, float a, int n) {
    for (int i = get_global_id(0); i < n; i += get_global_size(0)) x[i] -= a;
}
kernel void next_of(global const float *x, global float *out) {
    size_t i = get_global_id(0);
    out[i] = x[i + 1 < get_global_size(0) ? i + 1 : 0] + 1.0f;
}
"""
SIZE = 256
#: How many floats are between two views of the last buffer, which overlap.
STEP = 64
NUMBERS = (-0.75, 0.25, 0.5, 0.875)


@pytest.fixture
def kernels(context: cl.Context) -> Any:
    program = cl.Program(context, SOURCE).build()
    found = {one.function_name: one for one in program.all_kernels()}
    return SimpleNamespace(program=program, **found)


def plans(loop: Executable) -> Any:
    """Return the plans of a loop that is one segment."""
    segment: Any = loop._get_only_segment()
    return segment._buffer.plans


def is_fused(loop: Executable, queue: cl.CommandQueue) -> bool:
    """Whether changes of the loop flow to a fused kernel, whichever plan is the faster one."""
    loop.replay(queue).wait()
    found = plans(loop)
    return found._flow is not None and found.rewriting.wait().commands is not None


class Memory:
    """Buffers of floats: four alone, and two views of a fifth one that overlap."""

    def __init__(self, queue: cl.CommandQueue, seed: int) -> None:
        self.queue, made = queue, np.random.default_rng(seed)
        self.contents = [made.random(SIZE + STEP * (n == 4)).astype(np.float32) for n in range(5)]
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        self.whole = [cl.Buffer(queue.context, flags, hostbuf=one) for one in self.contents]
        views = [self.whole[4].get_sub_region(at * 4, SIZE * 4) for at in (0, STEP)]
        self.buffers = [*self.whole[:4], *views]

    def read(self) -> list[bytes]:
        read = [np.empty_like(one) for one in self.contents]
        for buffer, to in zip(self.whole, read, strict=True):
            cl.enqueue_copy(self.queue, to, buffer)
        return [one.tobytes() for one in read]


class Twice:
    """A random program as a graph, and as calls.

    Its steps are a kernel or a transfer, and arguments: numbers of buffers, names of Parameters,
    and values.
    """

    def __init__(self, queue: cl.CommandQueue, kernels: Any, seed: int, *, swaps: bool) -> None:
        self.queue, self.kernels, self.made = queue, kernels, random.Random(seed)
        self.graphed, self.called = Memory(queue, seed), Memory(queue, seed)
        self.swaps, self.turn = swaps, 0
        self.values: dict[str, Any] = {
            "a": np.float32(0.5),
            "n": np.int32(SIZE),
            "m": self.made.randrange(2, 6),
        }
        self.steps: list[tuple[str, list[Any]]] = []
        for _ in range(self.made.randrange(3, 12)):
            self.steps.append(self._make_step())
            if self._races():
                self.steps.pop()
        parameters = {
            name: fairlead.Parameter(
                self.graphed.buffers[value] if name == "m" else value, name=name
            )
            for name, value in self.values.items()
        }
        used = {one for _, arguments in self.steps for one in arguments if isinstance(one, str)}
        self.names = sorted(used)
        pair = tuple(self.graphed.buffers[:2])
        with capture(queue, swap=pair if swaps else ()) as self.graph:
            for name, arguments in self.steps:
                given = [parameters[one] if isinstance(one, str) else one for one in arguments]
                self._run(name, [self._get(self.graphed, one) for one in given])
        self.can_update = not swaps
        self.loop = self.graph.finalize(updatable=self.can_update, fuse="wait")

    def _get(self, memory: Memory, value: Any) -> Any:
        return memory.buffers[value] if isinstance(value, int) else value

    def _make_step(self) -> tuple[str, list[Any]]:
        made = self.made
        name = made.choice(["scale", "add", "add", "some", "next_of", "copy", "fill"])
        numbers = [made.randrange(6) for _ in range(3)]
        if name == "copy":  # whose buffers may not overlap
            return name, made.sample(range(5), 2)
        memory: list[Any] = [made.choice([one, one, "m"]) for one in numbers]
        factor: Any = made.choice(["a", self._choose()])
        count: Any = made.choice(["n", np.int32(SIZE), np.int32(SIZE)])
        return name, {
            "scale": [memory[0], factor],
            "add": [*memory, factor],
            "some": [memory[0], factor, count],
            "next_of": memory[:2],
            "fill": [numbers[0], self._choose()],
        }[name]

    def _choose(self) -> np.float32:
        return np.float32(self.made.choice(NUMBERS))

    def _races(self) -> bool:
        """Whether items of one launch use what others write."""
        for name, arguments in self.steps:
            found = [self.values[one] if isinstance(one, str) else one for one in arguments]
            memory = [one for one in found if isinstance(one, int)]
            if name not in ("next_of", "add"):
                continue
            *inputs, out = memory
            if any(min(one, 4) == min(out, 4) for one in inputs if name == "next_of" or one != out):
                return True
        return False

    def _run(self, name: str, arguments: list[Any]) -> None:
        if name == "copy":
            cl.enqueue_copy(self.queue, arguments[1], arguments[0])
        elif name == "fill":
            cl.enqueue_fill_buffer(self.queue, arguments[0], arguments[1], 0, SIZE * 4)
        else:
            getattr(self.kernels, name)(self.queue, (SIZE,), None, *arguments)

    def call(self) -> None:
        """Run the program by calls."""
        for name, arguments in self.steps:
            given = [self.values[one] if isinstance(one, str) else one for one in arguments]
            if self.swaps and self.turn % 2:
                given = [1 - one if isinstance(one, int) and one < 2 else one for one in given]
            self._run(name, [self._get(self.called, one) for one in given])
        self.turn += 1

    def act(self) -> str:
        """Change something, or replay. Returns what was done."""
        made, action = self.made, self.made.randrange(8)
        if action < 3 and self.names:
            name = made.choice(self.names)
            before = self.values[name]
            self.values[name] = {
                "a": self._choose(),
                "n": np.int32(made.choice([SIZE, SIZE, 100])),
                "m": made.randrange(2, 6),
            }[name]
            if self._races():
                self.values[name] = before
            self.loop.set(**{name: self._get(self.graphed, self.values[name])})
            return f"set {name}={self.values[name]}"
        if action == 3 and self.can_update:
            return self._update()
        if action == 4 and "a" in self.names:
            series = np.array([made.choice(NUMBERS) for _ in range(3)], np.float32)
            self.loop.replay(self.queue, times=3, a=series)
            for value in series:
                self.values["a"] = value
                self.call()
            return f"replay with a={series}"
        times = made.choice([1, 1, 2, 40])
        if action == 5:
            self.loop.replay(self.queue, times=times)
        for _ in range(0 if action == 5 else times):
            self.loop.replay(self.queue, wait=action == 6)
        for _ in range(times):
            self.call()
        return f"replay {times} times"

    def _update(self) -> str:
        launches = [n for n, (name, _) in enumerate(self.steps) if name not in ("copy", "fill")]
        if not launches:
            return "nothing"
        number = self.made.choice(launches)
        arguments = self.steps[number][1]
        index = self.made.randrange(len(arguments))
        old, new = arguments[index], self.made.randrange(6)
        if not isinstance(old, int) and old != "m":
            is_count = old == "n" or np.asarray(old).dtype == np.int32
            new = np.int32(self.made.choice([SIZE, 100])) if is_count else self._choose()
        before, arguments[index] = arguments[index], new
        if self._races():
            arguments[index] = before
            return "nothing"
        self.loop.set(self.graph[number], index, self._get(self.graphed, new))
        self.names = list(self.loop.parameters)
        return f"argument {index} of command {number} is {new}"

    def check(self, done: list[str]) -> None:
        assert self.graphed.read() == self.called.read(), (self.steps, done)


def run(queue: cl.CommandQueue, kernels: Any, seed: int) -> None:
    """Run a random program with random changes."""
    twice, done = Twice(queue, kernels, seed, swaps=seed % 4 == 3), list[str]()
    for _ in range(14):
        done.append(twice.act())
        twice.check(done)


def test_random_changes(queue: cl.CommandQueue, kernels: Any) -> None:
    for seed in range(10):
        run(queue, kernels, seed)


@pytest.mark.thorough
def test_many_random_changes(queue: cl.CommandQueue, kernels: Any) -> None:
    for seed in range(10, 300):
        run(queue, kernels, seed)


class Chain:
    """`y = 0.5 * x + a * x`, then `y *= b`, then `y -= 0.25` up to n; and what is in y then."""

    def __init__(
        self, queue: cl.CommandQueue, kernels: Any, *parameters: str, **finalize: Any
    ) -> None:
        self.queue, self.memory = queue, Memory(queue, 1)
        self.x, self.y, self.other = self.memory.buffers[:3]
        values = {"a": np.float32(0.5), "b": np.float32(0.75), "n": np.int32(SIZE)}
        given = {
            name: fairlead.Parameter(value, name=name) if name in parameters else value
            for name, value in values.items()
        }
        self.first = 3 if "x" in parameters else 0
        first = self.memory.buffers[self.first]
        x = fairlead.Parameter(first, name="x") if "x" in parameters else first
        with capture(queue) as self.graph:
            kernels.add(queue, (SIZE,), None, x, self.x, self.y, given["a"])
            kernels.scale(queue, (SIZE,), None, self.y, given["b"])
            kernels.some(queue, (SIZE,), None, self.y, np.float32(0.25), given["n"])
        self.loop = self.graph.finalize(fuse="wait", **finalize)

    def expect(
        self, a: float = 0.5, b: float = 0.75, n: int = SIZE, x: int | None = None, at: int = 1
    ) -> None:
        """Check y, which is in buffer number `at`, for such values."""
        half, one = np.float32(0.5), self.memory.contents[self.first if x is None else x]
        y = (half * one + np.float32(a) * self.memory.contents[0]) * np.float32(b)
        y[:n] -= np.float32(0.25)
        got = np.empty_like(y)
        cl.enqueue_copy(self.queue, got, self.memory.buffers[at])
        assert np.allclose(got, y, rtol=1e-6, atol=1e-6)  # which operations are contracted differs


def test_parameters_are_arguments_of_the_fused_kernel(queue: cl.CommandQueue, kernels: Any) -> None:
    chain = Chain(queue, kernels, "a", "x")
    assert is_fused(chain.loop, queue)
    flow = plans(chain.loop)._flow
    for a in (0.25, -1.5):
        chain.loop.replay(queue, a=a)
        chain.expect(a=a)
    chain.loop.replay(queue, x=chain.other)
    chain.expect(a=-1.5, x=2)
    assert plans(chain.loop)._flow is flow and is_fused(chain.loop, queue)


def test_a_changed_number_is_an_argument_of_the_fused_kernel(
    queue: cl.CommandQueue, kernels: Any
) -> None:
    chain = Chain(queue, kernels, updatable=True)
    assert is_fused(chain.loop, queue)
    flow = plans(chain.loop)._flow
    for b in (0.5, 0.75, 2.0):
        chain.loop.set(chain.graph[1], 1, np.float32(b))
        chain.loop.replay(queue)
        chain.expect(b=b)
    assert plans(chain.loop)._flow is flow


@pytest.mark.parametrize("what", ["a Parameter", "a range", "a buffer", "a Parameter's buffer"])
def test_a_change_that_breaks_a_proof(queue: cl.CommandQueue, kernels: Any, what: str) -> None:
    """The graph runs as captured. After some replays it is fused again, as far as it can be."""
    parameters = {"a Parameter": ["n"], "a Parameter's buffer": ["x"]}.get(what, [])
    chain = Chain(queue, kernels, *parameters, updatable=True)
    assert is_fused(chain.loop, queue)
    loop, changed = chain.loop, dict[str, int]()
    if what == "a Parameter":
        loop.set(n=100)
        changed = {"n": 100}
    elif what == "a range":
        loop.set(chain.graph[2], 2, np.int32(100))
        changed = {"n": 100}
    elif what == "a buffer":
        for node, index in ((0, 2), (1, 0), (2, 0)):
            loop.set(chain.graph[node], index, chain.other)
        changed = {"at": 2}
    else:  # an item of y's launch reads what it writes, which a fused kernel can do
        loop.set(x=chain.y)
    loop.replay(queue).wait()
    assert plans(loop)._flow is None, "it runs as captured"
    if what == "a Parameter's buffer":
        loop.set(x=chain.other)
        changed = {"x": 2}
        loop.replay(queue)
    chain.expect(**changed)
    for _ in range(40):
        loop.replay(queue)
    plans(loop).rewriting.wait()
    assert is_fused(loop, queue)
    chain.expect(**changed)


def test_an_update_to_another_kernel(queue: cl.CommandQueue, kernels: Any) -> None:
    chain = Chain(queue, kernels, updatable=True)
    assert is_fused(chain.loop, queue)
    others = cl.Program(queue.context, SOURCE.replace("] *= a", "] -= a")).build()
    with capture(queue) as other:
        kernels.add(queue, (SIZE,), None, chain.x, chain.x, chain.y, np.float32(0.5))
        others.scale(queue, (SIZE,), None, chain.y, np.float32(0.5))
        kernels.some(queue, (SIZE,), None, chain.y, np.float32(0.25), np.int32(SIZE))
    chain.loop.update(other)
    for _ in range(40):
        chain.loop.replay(queue)
    plans(chain.loop).rewriting.wait()
    assert is_fused(chain.loop, queue)
    got = np.frombuffer(chain.memory.read()[1], np.float32)
    assert np.allclose(got, chain.memory.contents[0] - np.float32(0.75), atol=1e-6)


def test_an_update_while_the_commands_are_being_rewritten(
    queue: cl.CommandQueue, kernels: Any
) -> None:
    """The thread goes on with other graphs."""
    others: Any = cl.Program(queue.context, SOURCE.replace("] *= a", "] -= a")).build()
    buffer, graphs = Memory(queue, 1).buffers[0], list[Any]()
    for kernel in (kernels.scale, others.scale):
        with capture(queue) as graph:
            for _ in range(2):
                kernel(queue, (SIZE,), None, buffer, np.float32(0.5))
        graphs.append(graph)
    gate = threading.Event()
    rewriting._background.add(lambda: [gate.wait()].clear())
    try:
        loop = graphs[0].finalize(updatable=True, fuse="auto")
        for _ in range(9):  # then it begins
            loop.replay(queue)
        loop.update(graphs[1])
    finally:
        gate.set()
    assert Chain(queue, kernels).loop.fused
    loop.replay(queue).wait()


def test_replays_in_flight_keep_what_they_were_enqueued_with(
    queue: cl.CommandQueue, kernels: Any
) -> None:
    chain = Chain(queue, kernels, "a", "n", updatable=True)
    assert is_fused(chain.loop, queue)
    gate = cl.UserEvent(queue.context)
    chain.loop.replay(queue, wait_for=[gate])
    chain.loop.set(chain.graph[0], 2, chain.other)  # only the first launch writes elsewhere
    chain.loop.replay(queue, a=0.25, n=100)
    gate.set_status(cl.command_execution_status.COMPLETE)
    chain.memory.contents[2] = chain.memory.contents[2].copy()
    queue.finish()
    got = np.empty(SIZE, np.float32)
    cl.enqueue_copy(queue, got, chain.y)
    half, x = np.float32(0.5), chain.memory.contents[0]
    y = ((half * x + half * x) * np.float32(0.75) - np.float32(0.25)) * np.float32(0.75)
    y[:100] -= np.float32(0.25)
    assert np.allclose(got, y, rtol=1e-6, atol=1e-6)


def test_threads_that_replay_and_update(queue: cl.CommandQueue, kernels: Any) -> None:
    """Each replay has the values of before or after an update, and the last one the last."""
    chain, ended = Chain(queue, kernels, "a", "n", updatable=True), threading.Event()

    def update() -> None:
        made = random.Random(3)
        for _ in range(60):
            chain.loop.set(a=made.choice(NUMBERS), n=made.choice([SIZE, 100]))
            chain.loop.set(chain.graph[1], 1, np.float32(made.choice(NUMBERS)))
        chain.loop.set(a=0.25, n=SIZE)
        chain.loop.set(chain.graph[1], 1, np.float32(0.5))
        ended.set()

    thread = threading.Thread(target=update)
    thread.start()
    while not ended.is_set():
        chain.loop.replay(queue, wait=True)
    thread.join()
    chain.loop.replay(queue)
    chain.expect(a=0.25, b=0.5)


def test_buffers_that_alternate(queue: cl.CommandQueue, kernels: Any) -> None:
    """A proof holds for both turns."""
    memory = Memory(queue, 1)
    u, v = memory.buffers[:2]
    with capture(queue, swap=(u, v)) as graph:
        kernels.add(queue, (SIZE,), None, u, u, v, np.float32(0.25))
        kernels.scale(queue, (SIZE,), None, v, np.float32(0.5))
    loop = graph.finalize(fuse="wait")
    for turn in range(1, 40):
        loop.replay(queue, wait=turn % 3 == 0)
    assert is_fused(loop, queue)
    loop.replay(queue, times=4)
    assert loop.is_swapped == bool((39 + 1 + 4) % 2)
    got = [np.frombuffer(one, np.float32) for one in memory.read()[:2]]
    assert np.allclose(got[0], memory.contents[0] * np.float32(0.375) ** 44, atol=0, rtol=1e-4)


def test_parts_of_an_edited_graph(queue: cl.CommandQueue, kernels: Any) -> None:
    """Memory that another partition uses is written."""
    made = Memory(queue, 1)
    x, y = made.buffers[:2]
    with capture(queue) as graph:
        own: Any = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, SIZE * 4)
        kernels.add(queue, (SIZE,), None, x, x, own, np.float32(0.5))
        kernels.scale(queue, (SIZE,), None, own, np.float32(0.5))
        kernels.add(queue, (SIZE,), None, own, own, y, np.float32(0.5))
        kernels.scale(queue, (SIZE,), None, y, np.float32(3))
        del own
    seen: list[int] = []
    task = graph.add(lambda handler: handler.host_task(lambda: seen.append(1)), depends_on=graph[1])
    graph[2].depends_on(task)
    loop = graph.finalize(fuse="wait")
    for count in range(1, 20):
        loop.replay(queue).wait()
        assert len(seen) == count
        got = np.empty(SIZE, np.float32)
        cl.enqueue_copy(queue, got, y)
        assert np.allclose(got, made.contents[0] * np.float32(1.5), rtol=1e-6)


@pytest.mark.parametrize("when", ["before a replay", "after replays"])
@pytest.mark.parametrize("updatable", [False, True])
def test_memory_that_a_node_hands_out_is_written(
    queue: cl.CommandQueue, kernels: Any, when: str, updatable: bool
) -> None:
    """Nobody but the graph had it, so a variable stood for it."""
    made = Memory(queue, 1)
    x, y = made.buffers[:2]
    with capture(queue) as graph:
        own: Any = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, SIZE * 4)
        kernels.add(queue, (SIZE,), None, x, x, own, np.float32(0.5))
        kernels.add(queue, (SIZE,), None, own, own, y, np.float32(1.5))
        del own
    loop = graph.finalize(updatable=updatable, fuse="wait")
    assert list_unwritten(next(iter(loop.fused.values())))
    if when == "after replays":
        for _ in range(20):
            loop.replay(queue)
    own = graph[0].args[2]
    for _ in range(40):
        clear = np.zeros(SIZE, np.float32)
        cl.enqueue_copy(queue, own, clear)
        loop.replay(queue)
        cl.enqueue_copy(queue, clear, own)
        assert np.allclose(clear, made.contents[0], rtol=1e-6)
    plans(loop).rewriting.wait()
    (source,) = loop.fused.values()
    assert not list_unwritten(source), "it is fused again, and written"
