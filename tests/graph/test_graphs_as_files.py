"""Command graphs as files: what is loaded does what the graph does, on every driver."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from click.testing import CliRunner
from helpers.sycl import N, zeros

import fairlead
from fairlead.cli.main import main
from fairlead.graph import (
    CommandGraph,
    DynamicCommandGroup,
    DynamicLocalMemory,
    DynamicParameter,
    async_free,
    async_malloc,
)
from fairlead.runtime import (
    USM,
    Accessor,
    Buffer,
    Handler,
    Image,
    LocalMemory,
    NDRange,
    Platform,
    Program,
    Queue,
    RawArgument,
    Sampler,
    malloc_device,
    malloc_host,
    malloc_shared,
)
from fairlead.runtime.interop import queue_of, to_pyopencl

SOURCE = """
kernel void scale(global float *x, float by) { x[get_global_id(0)] *= by; }
kernel void twist(global const int *from, global int *to, local int *tile, int by) {
  size_t i = get_local_id(0), n = get_local_size(0);
  tile[i] = from[get_global_id(0)];
  barrier(CLK_LOCAL_MEM_FENCE);
  to[get_global_id(0)] = tile[n - 1 - i] * by;
}
kernel void optional(global int *x, global const int *y) {
  x[get_global_id(0)] += y ? y[get_global_id(0)] : 1000;
}
kernel void edge(read_only image2d_t from, sampler_t how, global int *out) {
  out[get_global_id(0)] = read_imageui(from, how, (int2)(get_global_id(0) - 1, 0)).x;
}
"""


@pytest.fixture(scope="module")
def kernels(device: Any) -> Program:
    return Program(device, SOURCE)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "step.flg"


def loaded(queue: Queue, file: Path) -> fairlead.LoadedGraph:
    return fairlead.load(file, to_pyopencl(queue.device))


def numbers(start: int = 0) -> np.ndarray:
    return np.arange(start, start + N, dtype=np.int32)


def launch(kernel: Any, *arguments: Any, range: Any = N) -> Callable[[Handler], None]:
    return lambda h: h.parallel_for(range, kernel, *arguments)


@pytest.mark.slow
def test_usm_of_every_kind_and_its_commands(
    queue: Queue, graph: CommandGraph, program: Program, file: Path
) -> None:
    a, b = malloc_device(N, np.int32, queue), malloc_host(N, np.int32, queue)
    c, host = malloc_shared(N, np.int32, queue), np.zeros(N, np.int32)
    filled = graph.add(lambda h: h.fill(a, np.int32(5)))
    added = graph.add(launch(program.add, a, np.int32(2)), depends_on=filled)
    part = graph.add(launch(program.add, a + 16, np.int32(100), range=8), depends_on=added)
    set_ = graph.add(lambda h: h.memset(b, 1), depends_on=part)
    hinted = graph.add(lambda h: h.prefetch(c), depends_on=set_)
    advised = graph.add(lambda h: h.mem_advise(c), depends_on=hinted)
    empty = graph.add(depends_on=advised)
    copied = graph.add(lambda h: h.memcpy(c, a), depends_on=empty)
    added = graph.add(launch(program.sum, a, b, c), depends_on=copied)
    graph.add(lambda h: h.memcpy(host, c), depends_on=added)
    graph.save(file)
    made = loaded(queue, file)
    assert list(made.edges) == list(graph.edges) and made.inputs == ()
    assert set(made.outputs) == {"a", "b", "c", "host"}
    found = made.finalize()()
    queue.graph(graph.finalize()).wait()
    assert found["host"].dtype == np.int32 and (found["host"] == host).all()
    assert host[0] == 7 + 0x01010101 and host[20] == host[0] + 100
    assert (found["c"] == c.array).all()


@pytest.mark.slow
def test_buffers_their_parts_and_host_memory(
    queue: Queue, graph: CommandGraph, kernels: Program, file: Path
) -> None:
    grid = Buffer(np.arange(48, dtype=np.float32).reshape(6, 8), write_back=False)
    other = Buffer((6, 8), np.float32)
    out, rect = np.zeros((6, 8), np.float32), np.zeros((3, 4), np.float32)
    inner, into = ((3, 4), (1, 2)), ((3, 4), (2, 0))
    given, shared = np.full((3, 4), 7, np.float32), malloc_shared(12, np.float32, queue)
    for part in (
        lambda h: h.parallel_for(48, kernels.scale, h.access(grid), np.float32(2)),
        lambda h: h.fill(h.access(other, "discard"), np.float32(3)),
        lambda h: h.copy(h.access(grid, "read", *inner), h.access(other, "write", *into)),
        lambda h: h.copy(h.access(grid, "read", *inner), rect),
        lambda h: h.copy(h.access(grid, "read", *inner), shared),
        lambda h: h.copy(given, h.access(grid, "write", *into)),
        lambda h: h.copy(shared, h.access(grid, "write", (3, 4), (0, 4))),
        lambda h: h.copy(h.access(grid, "read", (2, 8), (0, 0)), h.access(other, "write", (2, 8))),
        lambda h: h.copy(h.access(other, "read"), out),
    ):
        graph.add(part, depends_on_all_leaves=True)
    graph.save(file, contents="inputs")
    made = loaded(queue, file)
    assert made.memory["grid"].shape == (6, 8), "it has the form of the buffer"
    assert set(made.outputs) == {"grid", "other", "rect", "shared", "out"}
    found = made.finalize()()
    queue.graph(graph.finalize()).wait()
    for name, wanted in (("out", out), ("rect", rect), ("shared", shared.array.reshape(12))):
        np.testing.assert_array_equal(found[name], wanted, name)
    with grid.host_access("read") as seen:
        np.testing.assert_array_equal(found["grid"], seen)


def test_a_buffer_whose_contents_only_the_host_has(
    queue: Queue, graph: CommandGraph, kernels: Program, file: Path
) -> None:
    x = Buffer(np.ones(N, np.float32), write_back=False)
    queue.submit(lambda h: h.parallel_for(N, kernels.scale, h.access(x), np.float32(2))).wait()
    with x.host_access("write") as array:
        array[:] = 4
    graph.add(lambda h: h.parallel_for(N, kernels.scale, h.access(x), np.float32(2)))
    graph.save(file, contents="all")
    assert (loaded(queue, file).finalize()()["x"] == 8).all()


def test_launches_local_memory_null_and_ranges(
    queue: Queue, graph: CommandGraph, kernels: Program, program: Program, file: Path
) -> None:
    a, b, ids = zeros(queue), zeros(queue), zeros(queue, 24)
    a.array[:] = numbers()
    tile = LocalMemory(16, np.int32)
    range_ = NDRange(N, 16)
    graph.add(launch(kernels.twist, a, b, tile, np.int32(3), range=range_))
    graph.add(launch(kernels.optional, b, None), depends_on_all_leaves=True)
    graph.add(launch(kernels.optional, b, a), depends_on_all_leaves=True)
    ranges = NDRange((4, 3, 2), (2, 1, 1), (5, 6, 7))
    graph.add(launch(program.ids, ids, range=ranges))
    graph.save(file, contents="inputs")
    made = loaded(queue, file)
    found = made.finalize()()
    queue.graph(graph.finalize()).wait()
    np.testing.assert_array_equal(found["b"], b.array)
    np.testing.assert_array_equal(found["ids"], ids.array)
    assert b.array[0] == 45 + 1000 and made.inputs == ("a", "b", "ids")
    assert made.outputs == ("b", "ids")


def test_a_launch_of_no_work_items_is_a_place_in_the_order(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM, file: Path
) -> None:
    graph.add(launch(program.add, memory, np.int32(1), range=0))
    graph.add(launch(program.add, memory, np.int32(2)), depends_on_all_leaves=True)
    graph.save(file)
    made = loaded(queue, file)
    assert made.document.commands[0]["op"] == "marker" and len(made) == 2
    assert (made.finalize()()["memory"] == 2).all()
    queue.graph(graph.finalize()).wait()
    assert (memory.array == 2).all()


@pytest.mark.parametrize("pattern", [bytes([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]), b"ab"])
def test_patterns_of_any_length(
    queue: Queue, graph: CommandGraph, pattern: bytes, file: Path
) -> None:
    a = malloc_device(96, np.uint8, queue)
    graph.add(lambda h: h.fill(a, pattern))
    graph.save(file)
    made = loaded(queue, file)
    assert made.outputs == ("a",), "what only the file has is no output"
    assert made.finalize()()["a"].tobytes() == pattern * (96 // len(pattern))


def test_images_and_samplers(
    queue: Queue, graph: CommandGraph, kernels: Program, file: Path
) -> None:
    picture = np.random.default_rng(1).integers(0, 100, (5, 12, 4), np.uint8)
    image = Image(picture, channels=4, write_back=False)
    copy = Image((5, 12), np.uint8, channels=4)
    out, edges, shared = np.zeros_like(picture), zeros(queue), malloc_shared(240, np.uint8, queue)
    how = Sampler("clamp")
    for part in (
        lambda h: h.copy(h.access(image, "read"), h.access(copy, "write")),
        lambda h: h.copy(h.access(copy, "read"), out),
        lambda h: h.copy(h.access(copy, "read"), shared),
        lambda h: h.parallel_for(14, kernels.edge, h.access(copy, "read"), how, edges),
    ):
        graph.add(part, depends_on_all_leaves=True)
    graph.save(file, contents="all")
    made = loaded(queue, file)
    assert "image" in made.inputs and "image" not in made.outputs
    found = made.finalize()()
    np.testing.assert_array_equal(found["out"], picture)
    np.testing.assert_array_equal(found["shared"], picture.reshape(-1))
    queue.graph(graph.finalize()).wait()
    np.testing.assert_array_equal(found["edges"], edges.array)
    assert edges.array[0] == 0 and edges.array[1] == picture[0, 0, 0]


def test_recorded_queues_barriers_and_sub_graphs(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM, file: Path
) -> None:
    inner = CommandGraph(queue)
    inner.add(launch(program.mul, memory, np.int32(3)))
    with graph.recording(queue):
        first = queue.parallel_for(N, program.add, memory, np.int32(1))
        queue.barrier()
        second = queue.graph(inner.finalize(), depends_on=[first])
        queue.parallel_for(N, program.add, memory, np.int32(5), depends_on=[second])
    graph.save(file, contents="all")
    loop = loaded(queue, file).finalize()
    assert (loop()["memory"] == 8).all()
    assert (loop(memory=np.full(N, 2))["memory"] == 14).all()
    assert (memory.array == 0).all(), "nothing of the graph ran"


def test_dynamic_parameters_become_parameters(
    queue: Queue, graph: CommandGraph, program: Program, kernels: Program, file: Path
) -> None:
    x = Buffer(numbers(), write_back=False)
    f = zeros(queue, N, np.float32)
    f.array[:] = 1
    by, where = DynamicParameter(graph, np.int32(2)), DynamicParameter(graph, Accessor(x))
    size = DynamicLocalMemory(graph, 16, np.int32)
    unused = DynamicParameter(graph, np.int32(1))
    a, b = zeros(queue), zeros(queue)

    def one(h: Handler) -> None:
        h.set_args(where, by)
        h.parallel_for(N, program.add)

    graph.add(one)
    graph.add(launch(kernels.scale, f, by))
    graph.add(launch(kernels.twist, a, b, size, by, range=NDRange(N, 8)))
    by.update(np.int32(4))
    graph.save(file, contents="inputs")
    made = loaded(queue, file)
    loop = made.finalize()
    assert set(loop.parameters) - {""} == {"by", "where"} and unused
    found = loop()
    np.testing.assert_array_equal(found["x"], numbers() + 4)
    assert (found["f"] == 4).all(), "a number in another type follows"
    found = loop(by=3, f=np.full(N, 2))
    np.testing.assert_array_equal(found["x"], numbers() + 7)
    assert (found["f"] == 6).all()
    loop = pickle.loads(pickle.dumps(graph)).finalize()
    assert set(loop.parameters) - {""} <= {"n", "by", "a"}, "kernels declare names, too"


def test_the_active_command_group_is_saved(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM, file: Path
) -> None:
    one = launch(program.add, memory, np.int32(1))
    group = DynamicCommandGroup(graph, [one, launch(program.store, memory, np.int32(9))])
    graph.add(group)
    group.active_index = 1
    graph.save(file)
    assert (loaded(queue, file).finalize()()["memory"] == 9).all()


def test_raw_arguments_and_values(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM, file: Path
) -> None:
    raw = DynamicParameter(graph, RawArgument(np.int32(6).tobytes()))
    graph.add(launch(program.add, memory, raw))
    graph.save(file)
    made = loaded(queue, file)
    assert (made.finalize()()["memory"] == 6).all()
    assert made.document.parameters[0]["dtype"] == "|V4"


def test_memory_of_the_graph(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM, file: Path
) -> None:
    own: list[USM] = []
    first = graph.add(lambda h: own.append(async_malloc(h, N, np.int32)))
    stored = graph.add(launch(program.store, own[0], np.int32(4)), depends_on=first)
    summed = graph.add(launch(program.sum, own[0], own[0], memory), depends_on=stored)
    graph.add(lambda h: async_free(h, own[0]), depends_on=summed)
    graph.save(file)
    assert (loaded(queue, file).finalize()()["memory"] == 8).all()


def test_pyopencl_memory_and_kernels(queue: Queue, program: Program, file: Path) -> None:
    context = cl.Context([to_pyopencl(queue.device)])
    theirs = cl.CommandQueue(context)
    built = cl.Program(context, SOURCE).build()
    x = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4 * N)
    cl.enqueue_copy(theirs, x, np.ones(N, np.float32))
    ours = queue_of(theirs)
    graph = CommandGraph(ours)
    graph.add(launch(built.scale, x, np.float32(3)))
    graph.save(file, contents="inputs")
    assert (loaded(queue, file).finalize()()["x"].view(np.float32) == 3).all()


def test_captured_and_other_commands_in_one_graph(queue: Queue, file: Path) -> None:
    context = cl.Context([to_pyopencl(queue.device)])
    theirs = cl.CommandQueue(context)
    built = cl.Program(context, SOURCE).build()
    x = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4 * N)
    cl.enqueue_copy(theirs, x, np.ones(N, np.float32))
    kernel = built.scale
    with fairlead.capture(theirs) as captured:
        kernel(theirs, (N,), None, x, np.float32(3))
    program = Program(captured.context, SOURCE)
    by = DynamicParameter(captured.command_graph, np.float32(5))
    captured.add(launch(program.scale, x, by), depends_on=captured[0])
    captured.save(file, contents="all")
    loop = loaded(queue, file).finalize()
    assert (loop()["x"].view(np.float32) == 15).all()
    assert (loop(by=2)["x"].view(np.float32) == 90).all()
    outer = CommandGraph(queue_of(theirs))
    outer.add(lambda h: h.graph_execution(captured.finalize()))
    outer.add(launch(program.scale, x, np.float32(2)), depends_on_all_leaves=True)
    outer.save(file, contents="all")
    assert (loaded(queue, file).finalize()()["x"].view(np.float32) == 30).all()


def test_host_code_is_refused_by_name(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM, file: Path
) -> None:
    def look() -> None:
        raise AssertionError

    body = CommandGraph(queue)
    body.add(launch(program.add, memory, np.int32(1)))
    for add, words in (
        (lambda g: g.add(lambda h: h.host_task(look)), "a host task (function: .*look)"),
        (lambda g: g.while_loop(body.finalize(), memory), r"a host task (function: while_loop)"),
        (lambda g: g.if_else(memory, body.finalize()), r"a host task (function: if_else)"),
        (lambda g: g.add(lambda h: h.native_command(lambda i: None)), "a native command"),
    ):
        made = CommandGraph(queue)
        add(made)
        words = words.replace("(", r"\(").replace(")", r"\)")
        with pytest.raises(fairlead.GraphFileError, match=f"node 0 is {words}") as caught:
            made.save(file)
        assert caught.value.code == "CANNOT_SAVE" and caught.value.remedy
        with pytest.raises(fairlead.GraphFileError, match=words):
            pickle.dumps(made)
    assert not file.exists()


def test_memory_that_nobody_knows_is_refused(
    queue: Queue, graph: CommandGraph, memory: USM, file: Path
) -> None:
    graph.add(lambda h: h.memcpy(memory.pointer, memory.pointer + 128, 64))
    names = {"other": np.zeros(4)}
    with pytest.raises(fairlead.GraphFileError, match="memory whose owner is not known"):
        graph.save(file, names=names)
    graph.save(file, names={"m": memory}, contents="all")
    assert loaded(queue, file).outputs == ("m",)


def test_a_graph_of_another_backend_is_refused(
    graph: CommandGraph, monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    monkeypatch.setattr(Platform, "backend", "level_zero")
    with pytest.raises(fairlead.GraphFileError, match="for the backend level_zero"):
        graph.save(file)


def test_an_executable_pickles_as_it_is(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM
) -> None:
    node = graph.add(launch(program.add, memory, np.int32(1)))
    executable = graph.finalize(updatable=True, policy="rank")
    assert node
    made = pickle.loads(pickle.dumps(executable))
    assert isinstance(made, fairlead.LoadedExecutable)
    assert made.updatable and made.policy == "rank"
    (name,) = made.graph.outputs  # pyright: ignore
    assert (made()[name] == 1).all() and (made()[name] == 2).all()
    assert (memory.array == 0).all()


def test_the_command_line_takes_the_file(
    queue: Queue, graph: CommandGraph, program: Program, memory: USM, file: Path
) -> None:
    by = DynamicParameter(graph, np.int32(7))
    graph.add(launch(program.add, memory, by))
    graph.save(file, contents="all")

    def ran(*arguments: str) -> str:
        done = CliRunner().invoke(main, [arguments[0], str(file), *arguments[1:]])
        assert done.exit_code == 0, done.output
        return done.output

    assert "0: add(64)" in ran("show") and "by: int32 7" in ran("show")
    assert "kernel void add" in ran("show", "--source", "add")
    out = file.with_suffix(".npz")
    ran("replay", "--device", queue.device.name, "--set", "by=3", "--save-outputs", str(out))
    assert (np.load(out)["memory"] == 3).all()
