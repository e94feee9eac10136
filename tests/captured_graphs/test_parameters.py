"""Parameters: numbers and buffers of a captured graph that change between its replays."""

from __future__ import annotations

import copy
import ctypes
import gc
import math
import operator
import pickle
import struct
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array
import pyopencl.cltypes
import pytest
from helpers.captures import Numbers
from helpers.drivers import Driver
from helpers.support import ROOT, RunPython

import fairlead
from fairlead.captured_graphs import executable
from fairlead.captured_graphs.context import CaptureError, capture
from fairlead.captured_graphs.pyopencl_client import ArgumentError
from fairlead.captured_graphs.swaps import CaptureWarning
from fairlead.runtime import Errc, Queue, SYCLError
from fairlead.runtime.interop import context_of


def declared(numbers: Numbers, *types: Any) -> Any:
    """The kernel add, whose types PyOpenCL was told."""
    kernel = cl.Kernel(numbers.program, "add")
    kernel.set_scalar_arg_dtypes([None, *types])
    return kernel


def test_a_graph_may_have_hundreds_of_parameters(numbers: Numbers) -> None:
    many = [fairlead.Parameter(np.int32(0), name=f"n{number}") for number in range(300)]
    with capture(numbers.queue) as graph:
        for one in many:
            numbers.add(one)
    loop = graph.finalize()
    loop.replay(numbers.queue, n0=1, n299=2)
    assert numbers.value() == 3


@pytest.mark.parametrize("parts", [1, 2])
def test_each_replay_has_the_number_of_its_own_thread(numbers: Numbers, parts: int) -> None:
    by, turns = fairlead.Parameter(np.int32(0)), 300 if parts == 1 else 1000
    with capture(numbers.queue) as graph:
        numbers.add(by)
    if parts == 2:
        graph.add(lambda handler: handler.host_task(lambda: None), depends_on=graph[0])
    loop = graph.finalize(fuse=False)

    def replay(number: int) -> None:
        for _ in range(turns):
            loop.replay(numbers.queue, by=number)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(replay, [1, 1 << 16]))
    finally:
        sys.setswitchinterval(before)
    numbers.queue.finish()
    assert numbers.value() == turns * (1 + (1 << 16))


def at_gates(numbers: Numbers, parts: int, by: Any, buffer: Any = None, **options: Any) -> Any:
    """An executable graph that adds, in one part or with a host task, and an event to wait for."""
    with capture(numbers.queue, **options) as graph:
        numbers.add(by, buffer)
    if parts == 2:
        graph.add(lambda handler: handler.host_task(lambda: None), depends_on=graph[0])
    return graph, cl.UserEvent(numbers.queue.context)


@pytest.mark.parametrize("parts", [1, 2])
def test_a_replay_that_waits_has_the_numbers_of_its_call(numbers: Numbers, parts: int) -> None:
    """Nothing waits for it: this thread is the one that completes the event."""
    by = fairlead.Parameter(np.int32(0))
    graph, gate = at_gates(numbers, parts, by)
    loop = graph.finalize()
    loop.replay(numbers.queue, wait_for=[gate], by=1)
    loop.set(by=1 << 20)
    loop.replay(numbers.queue, times=2, by=[10, 100])
    loop.replay(numbers.queue)
    loop.set(by=1000)
    del graph
    gate.set_status(0)
    assert numbers.value() == 1 + 10 + 100 + 100
    loop.replay(numbers.queue)
    assert numbers.value() == 1 + 10 + 100 + 100 + 1000


@pytest.mark.parametrize("parts", [1, 2])
def test_a_replay_that_waits_has_the_buffer_of_its_call(numbers: Numbers, parts: int) -> None:
    u, first, second = fairlead.Parameter(numbers.buffer, name="u"), numbers.new(), numbers.new()
    graph, gate = at_gates(numbers, parts, 1, u)
    loop = graph.finalize()
    loop.replay(numbers.queue, wait_for=[gate], u=first)
    loop.replay(numbers.queue, u=second)
    loop.replay(numbers.queue)
    loop.set(u=numbers.buffer)
    gate.set_status(0)
    found = [numbers.value(one) for one in (first, second, numbers.buffer)]
    assert found == [1, 2, 0]


def test_a_submission_that_waits_has_the_numbers_of_its_call(numbers: Numbers) -> None:
    """Also where the graph is one native command-buffer, on a queue of the runtime."""
    by, gate = fairlead.Parameter(np.int32(1)), threading.Event()
    with capture(numbers.queue) as graph:
        numbers.add(by)
    loop = graph.finalize()
    queue = Queue(context_of(numbers.queue.context), in_order=True)
    queue.submit(lambda handler: handler.host_task(lambda: gate.wait(60)))
    end = queue.graph(loop)
    loop.set(by=10)
    gate.set()
    end.wait()
    assert numbers.value() == 1
    queue.graph(loop).wait()
    assert numbers.value() == 11


#: A program that updates a graph while replays wait for what the program itself has to complete.
_UPDATES = """
import faulthandler, sys, threading
import numpy as np, pyopencl as cl
from helpers.captures import Numbers
from helpers.drivers import Driver
from helpers.support import ROOT, RunPython
import fairlead
from fairlead.icd.drivers import platforms
from fairlead.runtime import Queue
from fairlead.runtime.interop import context_of

faulthandler.dump_traceback_later(100, exit=True)
platform = next(one for one in platforms() if one.driver.path.endswith(sys.argv[1]))
context = cl.Context([platform.devices[0].to_pyopencl()])
numbers, other = (Numbers(cl.CommandQueue(context)) for _ in range(2))
kind, parts = sys.argv[2], int(sys.argv[3])
by = fairlead.Parameter(np.int32(1))
with fairlead.capture(numbers.queue) as graph:
    numbers.add(np.int32(1))
    numbers.add(by)
if parts == 2:
    graph.add(lambda handler: handler.host_task(lambda: None), depends_on=graph[1])
loop = graph.finalize(updatable=True)
replay = lambda: loop.replay(numbers.queue)
if kind == "host task":
    gate, queue = threading.Event(), Queue(context_of(context), in_order=True)
    queue.submit(lambda handler: handler.host_task(gate.wait))
    replay, release = lambda: queue.graph(loop), gate.set
    replay()
else:
    gate = cl.UserEvent(context)
    waits = [gate]
    if kind == "dependent event":
        waits = [cl.enqueue_marker(other.queue, wait_for=waits)]
        other.queue.flush()
    release = lambda: gate.set_status(0)
    loop.replay(numbers.queue, wait_for=waits)
loop.set(graph[0], 1, np.int32(10))
replay()
loop.set(by=100)
loop.set(graph[0], 1, np.int32(1000))
loop.update(graph)
replay()
print("updated")
release()
if kind == "host task":
    queue.wait()
print(numbers.value(), (1 + 1) + (10 + 1) + (1000 + 100))
loop.replay(numbers.queue)
print(numbers.value() - 1100, (1 + 1) + (10 + 1) + (1000 + 100))
"""


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("kind", ["user event", "dependent event", "host task"])
def test_an_update_waits_for_no_replay(
    run_python: RunPython, each_driver: Driver, kind: str, parts: int
) -> None:
    """Such a replay may wait for what this thread has to complete. It runs as it was then."""
    env = {"PYTHONPATH": str(ROOT / "tests")}
    done = run_python(_UPDATES, each_driver.library, kind, str(parts), env=env)
    first, *sums = done.out.splitlines()
    assert first == "updated" and [line.split()[0] for line in sums] == ["1113", "1113"]


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("parts", [1, 2])
def test_a_loop_that_ends_by_itself_has_the_numbers_of_its_call(
    numbers: Numbers, parts: int, swap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers that another thread sets while a loop runs are for later replays."""
    by, other, never = fairlead.Parameter(np.int32(0)), numbers.new(), numbers.new()
    graph, gate = at_gates(
        numbers, parts, by, **({"swap": (numbers.buffer, other)} if swap else {})
    )
    loop = graph.finalize()

    def set_another(*_: Any) -> None:
        loop.set(by=100)

    monkeypatch.setattr(executable, "wait_for_event", set_another)
    loop.replay(numbers.queue, times=3, until=never, every=1, wait_for=[gate], by=1)
    assert numbers.value() + numbers.value(other) == 3
    gate.set_status(0)
    loop.replay(numbers.queue)
    assert numbers.value() + numbers.value(other) == 103


#: Ways to read the memory of a Parameter, and whether they want to know what it is made of.
READERS: dict[str, tuple[Callable[[Any], object], bool]] = {
    "frombuffer": (lambda s: np.frombuffer(s, np.int32), False),
    "unpack": (lambda s: struct.unpack("i", s), False),
    "bytearray": (bytearray, True),
    "memoryview": (memoryview, True),
    "ctypes": (ctypes.c_int32.from_buffer, True),
}


@pytest.mark.skipif(
    sys.version_info < (3, 12), reason="Python tells its code of readers since 3.12"
)
@pytest.mark.parametrize("name", READERS)
def test_who_reads_the_memory_of_a_parameter_in_a_block_is_warned(
    numbers: Numbers, name: str
) -> None:
    """Kernels get it without a warning."""
    by = fairlead.Parameter(np.int32(5))
    read, asks = READERS[name]
    if not asks:
        read(by)
    with capture(numbers.queue) as graph, warnings.catch_warnings():
        warnings.simplefilter("error")
        numbers.add(by)
        kernel = declared(numbers, np.int32)
        kernel(numbers.queue, (64,), None, numbers.buffer, by)
        kernel.set_arg(1, by)
        if asks:
            with pytest.raises(BufferError, match=r"p.value.tobytes\(\)"):
                read(by)
        else:
            warnings.simplefilter("default")
            with pytest.warns(CaptureWarning, match="the memory of <Parameter: int32 5>") as seen:
                read(by)
            assert seen[0].filename == __file__
    graph.finalize().replay(numbers.queue, by=7)
    assert numbers.value() == 14


def test_a_parameter_in_the_outermost_of_many_blocks(numbers: Numbers) -> None:
    by = fairlead.Parameter(np.int32(1))
    with capture(numbers.queue) as graph, ExitStack() as others:
        for _ in range(9):
            others.enter_context(capture(cl.CommandQueue(numbers.queue.context)))
        numbers.add(by)
    graph.finalize().replay(numbers.queue, by=3)
    assert numbers.value() == 3


def test_kernels_that_were_given_their_arguments_before_the_launch(numbers: Numbers) -> None:
    by, kernel = fairlead.Parameter(np.int32(1), name="n"), cl.Kernel(numbers.program, "add")
    with capture(numbers.queue) as graph:
        kernel.set_arg(0, numbers.buffer)
        kernel.set_arg(1, by)
        for _ in range(3):
            cl.enqueue_nd_range_kernel(numbers.queue, kernel, (64,), None)
        kernel.set_args(numbers.buffer, np.int32(100))
        cl.enqueue_nd_range_kernel(numbers.queue, kernel, (64,), None)
    graph.finalize().replay(numbers.queue, n=5)
    assert numbers.value() == 115


# --- a number for each replay ---


def test_a_number_for_each_of_many_replays(numbers: Numbers) -> None:
    by, factor = fairlead.Parameter(np.int32(1)), fairlead.Parameter(np.int32(1))
    with capture(numbers.queue) as graph:
        numbers.mul(factor)
        numbers.add(by)
    loop = graph.finalize()
    loop.replay(numbers.queue, times=1000, by=np.arange(1000), factor=1)
    assert numbers.value() == 499500
    loop.replay(numbers.queue, factor=0)  # the last one stays
    assert numbers.value() == 999
    loop.replay(numbers.queue, times=2, by=[1, 2], factor=(10, 2))
    assert numbers.value() == (9990 + 1) * 2 + 2


def test_wrong_series_change_nothing(numbers: Numbers) -> None:
    by, into = fairlead.Parameter(np.int32(1)), fairlead.Parameter(numbers.buffer)
    with capture(numbers.queue) as graph:
        numbers.add(by, into)
    loop = graph.finalize()
    wrong = [
        ({"by": [1, 2]}, r"shape \(2,\), and there are 3 replays"),
        ({"by": [1.5, 2, 3]}, "is int32, and its values are float64"),
        ({"by": np.array([1, 2, 1 << 40])}, "is int32"),
        ({"into": [numbers.buffer] * 3}, "is memory"),
        ({"no": [1, 2, 3]}, "no Parameter no; it has: (into, by|by, into)"),
    ]
    for values, message in wrong:
        with pytest.raises(SYCLError, match=message):
            loop.replay(numbers.queue, times=3, **values)
    assert numbers.value() == 0
    loop.replay(numbers.queue)
    assert numbers.value() == 1


# --- buffers and arrays ---


def test_a_buffer_that_only_a_transfer_uses_and_one_within_another(numbers: Numbers) -> None:
    whole = cl.Buffer(numbers.queue.context, cl.mem_flags.READ_WRITE, 8192)
    part = fairlead.Parameter(whole.get_sub_region(4096, 256), name="part")
    with capture(numbers.queue) as graph:
        cl.enqueue_fill_buffer(numbers.queue, part, np.array(7, np.int32), 0, 256)
    loop = graph.finalize()
    loop.replay(numbers.queue)
    values = np.zeros(64, np.int32)
    cl.enqueue_copy(numbers.queue, values, whole, src_offset=4096)
    assert (values == 7).all()
    loop.replay(numbers.queue, part=numbers.buffer)
    assert numbers.value() == 7


def test_a_new_buffer_lives_as_long_as_it_is_set(numbers: Numbers) -> None:
    u = fairlead.Parameter(numbers.buffer)
    with capture(numbers.queue) as graph:
        numbers.add(1, u)
        cl.enqueue_copy(numbers.queue, numbers.host, u, is_blocking=False)
    loop = graph.finalize()
    loop.set(u=numbers.new(40))
    gc.collect()
    rubbish = [numbers.new(-1) for _ in range(50)]
    loop.replay(numbers.queue).wait()
    assert numbers.host[0] == 41 and len(rubbish) == 50


def test_a_buffer_stays_in_use_when_another_one_is_refused(numbers: Numbers) -> None:
    """A second value of the same call was wrong."""
    u, by = fairlead.Parameter(numbers.buffer), fairlead.Parameter(np.int32(1))
    with capture(numbers.queue) as graph:
        numbers.add(by, u)
        cl.enqueue_copy(numbers.queue, numbers.host, u, is_blocking=False)
    loop: Any = graph.finalize()
    first: Any = numbers.new(40)
    handle = first.int_ptr
    loop.set(u=first)
    del first
    with pytest.raises(SYCLError, match="the Parameter by is int32"):
        loop.set(u=numbers.new(7), by="x")
    loop.set(by=2)
    (setting,) = loop._whole.settings.memory
    assert setting.value.int_ptr == handle
    gc.collect()
    rubbish = [numbers.new(-1) for _ in range(50)]
    loop.replay(numbers.queue).wait()
    assert numbers.host[0] == 42 and len(rubbish) == 50


def test_a_value_that_is_refused_changes_no_part_of_a_graph(numbers: Numbers) -> None:
    one, two = fairlead.Parameter(np.int32(1)), fairlead.Parameter(np.int32(2))
    with capture(numbers.queue) as graph:
        numbers.add(one)
        numbers.add(two)
    between = graph.add(lambda h: h.host_task(lambda: None), depends_on=graph[0])
    graph.make_edge(between, graph[1])
    loop = graph.finalize()
    with pytest.raises(SYCLError, match="the Parameter two is int32"):
        loop.set(one=10, two="x")
    loop.set(two=3)
    loop.replay(numbers.queue).wait()
    assert numbers.value() == 4


def test_memory_that_cannot_be_set(numbers: Numbers) -> None:
    u = fairlead.Parameter(numbers.buffer)
    array = pyopencl.array.zeros(numbers.queue, 64, np.int32)
    x = fairlead.Parameter(array)
    with capture(numbers.queue) as graph:
        numbers.add(1, u)
        numbers.add(1, x.base_data)  # pyright: ignore
    loop, context = graph.finalize(), numbers.queue.context
    released = numbers.new()
    small = cl.Buffer(context, cl.mem_flags.READ_WRITE, 128)
    elsewhere = cl.Buffer(cl.Context([numbers.queue.device]), cl.mem_flags.READ_WRITE, 256)
    wrong = [
        ({"u": small}, "a buffer of 256 bytes, and this one has 128"),
        ({"u": released}, "the Parameter u is"),
        ({"u": elsewhere}, "memory of another context"),
        ({"u": np.int32(1)}, "the Parameter u is a buffer"),
        ({"x": numbers.buffer}, "an array of .64,. int32"),
        ({"x": pyopencl.array.zeros(numbers.queue, 64, np.float32)}, "an array of .64,. int32"),
    ]
    released.release()  # after the others are made: none of them is in its place
    for values, message in wrong:
        with pytest.raises(SYCLError, match=message) as caught:
            loop.set(**values)
        assert caught.value.errc is Errc.kernel_argument
    loop.replay(numbers.queue)
    assert numbers.value() == 1 and (array.get() == 1).all()


def test_an_array_and_its_parameter_are_used_in_order(out_of_order: cl.CommandQueue) -> None:
    """They are the same memory, whose order is in one list of events."""
    array = pyopencl.array.zeros(out_of_order, 64, np.float32)
    array.finish()
    with capture(out_of_order) as graph:
        parameter = fairlead.Parameter(array, name="parameter")
        parameter += np.float32(1)
        array *= np.float32(3)
        parameter += np.float32(2)
    assert all(node.predecessors for node in list(graph)[1:])
    graph.finalize().replay(out_of_order).wait()
    assert (array.get() == 5).all()


def test_an_array_in_expressions(numbers: Numbers) -> None:
    queue = numbers.queue
    first = pyopencl.array.to_device(queue, np.arange(64, dtype=np.float32))
    second = first + 100
    out = pyopencl.array.zeros(queue, 64, np.float32)
    x = fairlead.Parameter(first)
    assert type(x) is pyopencl.array.Array
    with capture(queue) as graph:
        out += x * np.float32(2)
    loop = graph.finalize()
    loop.replay(queue)
    loop.replay(queue, x=second)
    assert (out.get() == np.arange(64) * 4 + 200).all()


def plus(x: Any, p: Any) -> Any:
    x += p
    return x


def minus(x: Any, p: Any) -> Any:
    x -= p
    return x


def times(x: Any, p: Any) -> Any:
    x *= p
    return x


def over(x: Any, p: Any) -> Any:
    x /= p
    return x


EXPRESSIONS: dict[str, Callable[[Any, Any], Any]] = {
    "x + p": lambda x, p: x + p,
    "p + x": lambda x, p: p + x,
    "x - p": lambda x, p: x - p,
    "p - x": lambda x, p: p - x,
    "x * p": lambda x, p: x * p,
    "p * x": lambda x, p: p * x,
    "x / p": lambda x, p: x / p,
    "p / x": lambda x, p: p / x,
    "x ** p": lambda x, p: x**p,
    "p ** x": lambda x, p: p**x,
    "x < p": lambda x, p: x < p,
    "p < x": lambda x, p: p < x,
    "x == p": lambda x, p: x == p,
    "x += p": plus,
    "x -= p": minus,
    "x *= p": times,
    "x /= p": over,
    "fill": lambda x, p: x.fill(p),
    "mul_add": lambda x, p: x.mul_add(p, x, 2),
    "-p": lambda x, p: x + -p,
    "2 * p": lambda x, p: x + np.float32(2) * p,
}


@pytest.mark.slow
@pytest.mark.one_driver
@pytest.mark.parametrize(
    ("kind", "of"),
    [(np.float32, np.float32), (np.int32, np.float32), (np.float32, np.float64)],
    ids=["float32", "int32", "float32 in an array of doubles"],
)
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions_compute_what_they_do_with_a_number(
    numbers: Numbers, name: str, kind: Any, of: Any
) -> None:
    queue, expression = numbers.queue, EXPRESSIONS[name]
    values = np.linspace(1, 4, 64, dtype=of)
    p = fairlead.Parameter(kind(3))
    x = pyopencl.array.to_device(queue, values)
    try:
        expression(x.copy(), kind(5))
    except (TypeError, cl.Error) as refused:
        pytest.skip(f"PyOpenCL does not do it with a number, either: {refused}")
    with capture(queue) as graph:
        out = expression(x, p)
    loop = graph.finalize()
    for number in (5, 3):
        x.set(values)
        loop.replay(queue, p=number)
        expected = expression(pyopencl.array.to_device(queue, values), kind(number))
        assert out.dtype == expected.dtype
        assert out.get().tobytes() == expected.get().tobytes()
    x.set(values)
    assert expression(x, p).get().tobytes() == expected.get().tobytes()  # outside of blocks


def test_an_elementwise_kernel(numbers: Numbers) -> None:
    from pyopencl.elementwise import ElementwiseKernel

    queue, a = numbers.queue, fairlead.Parameter(np.float32(2))
    kernel = ElementwiseKernel(queue.context, "float *x, float a, int n0", "x[i] = a * n0")
    x = pyopencl.array.zeros(queue, 64, np.float32)
    with capture(queue) as graph:
        kernel(x, a, 2)
    loop = graph.finalize()
    loop.replay(queue, a=0.5)
    assert (x.get() == 1).all()


# --- what is a Parameter, and what it is called ---


def test_a_number_becomes_what_the_kernel_declares(numbers: Numbers) -> None:
    program = cl.Program(
        numbers.queue.context,
        "kernel void put(global long *x, long a, float b, uchar c) { x[0] = a; x[1] = "
        "b * 2; x[2] = c; }",
    ).build()
    put = program.put
    put.set_scalar_arg_dtypes([None, np.int64, np.float32, np.uint8])
    n, x = fairlead.Parameter(np.int32(3)), pyopencl.array.zeros(numbers.queue, 3, np.int64)
    with capture(numbers.queue) as graph:
        put(numbers.queue, (1,), None, x.base_data, n, n, n)  # pyright: ignore[reportArgumentType]
    loop = graph.finalize()
    loop.replay(numbers.queue, n=200)
    assert x.get().tolist() == [200, 400, 200]
    loop.replay(numbers.queue, times=2, n=[1, 5])
    assert x.get().tolist() == [5, 10, 5]


def test_structures(numbers: Numbers) -> None:
    program = cl.Program(
        numbers.queue.context, "kernel void put(global float *x, float4 v) { vstore4(v, 0, x); }"
    ).build()
    cltypes: Any = pyopencl.cltypes
    put, make = program.put, cltypes.make_float4
    v, x = fairlead.Parameter(make(1, 2, 3, 4)), pyopencl.array.zeros(numbers.queue, 4, "f4")
    with capture(numbers.queue) as graph:
        put(numbers.queue, (1,), None, x.base_data, v)  # pyright: ignore[reportArgumentType]
    loop = graph.finalize()
    loop.replay(numbers.queue)
    assert x.get().tolist() == [1, 2, 3, 4]
    loop.replay(numbers.queue, v=make(5, 6, 7, 8))
    assert x.get().tolist() == [5, 6, 7, 8]
    with pytest.raises(SYCLError, match="the Parameter v is"):
        loop.set(v=1)


@pytest.mark.parametrize("declares", [False, True])
@pytest.mark.parametrize("kinds", [("f8", "f4"), ("f4", "f4"), ("f4", "f8"), ("f8", "f8")])
def test_floats_are_rounded_as_numpy_does(
    queue: cl.CommandQueue, kinds: tuple[str, str], declares: bool
) -> None:
    """Those that struct packs, and those that NumPy computes."""
    own, kernels = map(np.dtype, kinds)
    name = {"f4": "float", "f8": "double"}[kinds[1]]
    source = f"kernel void keep(global {name} *x, {name} s) {{ x[0] = s; }}"
    kernel = cl.Program(queue.context, source).build().keep
    if declares:
        kernel.set_scalar_arg_dtypes([None, kernels.type])
    x, s = pyopencl.array.zeros(queue, 1, kernels), fairlead.Parameter(own.type(1))
    with capture(queue) as graph:
        kernel(queue, (1,), None, x.base_data, s if declares else kernels.type(s))  # pyright: ignore
    loop = graph.finalize()
    values = [0.1, -0.0, 16777217, 1e-46, np.float32(0.1), np.inf, np.nan, np.int8(3), -1e-300]
    for value in values:
        loop.replay(queue, s=value)
        want = np.array(value).astype(own).astype(kernels)
        assert x.get()[0].tobytes() == want.tobytes(), value


def test_a_number_that_could_not_be_set_is_forgotten(numbers: Numbers) -> None:
    """PyOpenCL asks for the number, and finds that it does not fit; the next call is another
    one."""
    big, typed = fairlead.Parameter(np.int64(1 << 40)), declared(numbers, np.int32)
    with capture(numbers.queue) as graph:
        with pytest.raises(Exception, match=r"cast|range|overflow|int"):
            typed(numbers.queue, (64,), None, numbers.buffer, big)
        typed(numbers.queue, (64,), None, numbers.buffer, np.int32(0))
    assert len(graph) == 1 and graph.finalize().parameters == ()


def test_conversions_that_would_freeze_the_number_are_refused(numbers: Numbers) -> None:
    p = fairlead.Parameter(np.float32(2))
    x = pyopencl.array.zeros(numbers.queue, 64, np.float32)
    complicated = cl.Kernel(numbers.program, "add")
    complicated.set_scalar_arg_dtypes([None, np.float16])
    with capture(numbers.queue) as graph:
        for action, message in [
            (lambda: float(p), "the graph would keep the number"),
            (lambda: math.sqrt(p), "write numpy.sqrt.p. for math.sqrt.p."),
            (lambda: np.sum(p), r"add.reduce would make an array"),
            (lambda: np.ones(3) * p, r"multiply would make an array"),  # pyright: ignore
            (lambda: np.sqrt(p, dtype=np.float32), r"sqrt would make an array"),  # pyright: ignore
            (lambda: np.modf(p), r"modf would make an array"),  # pyright: ignore
            (lambda: np.array(p), "numpy.float32.p. for another type; p.value is"),
            (lambda: np.array([p], np.float32), "p.value is the number"),
            (lambda: np.asarray(p, np.float64), "p.value is the number"),
            (lambda: np.full(3, p), "p.value is the number"),
            (lambda: np.array([p], object), "p.value is the number"),
            (lambda: np.zeros(3).__setitem__(0, p), "an array element with a sequence"),
            (lambda: bytes(p), "was made bytes"),
            (lambda: p * fairlead.Parameter(np.int32(1)), "computes from one Parameter"),  # pyright: ignore
            (lambda: len(p), "is one number"),  # pyright: ignore
            (lambda: p[0], "is one number"),  # pyright: ignore
            (lambda: f"{p:.3f}", "the text would keep the number"),
            (lambda: bool(p), "the graph would keep the outcome"),
            (lambda: p > 1, "the graph would keep the outcome"),  # pyright: ignore
            (lambda: p == fairlead.Parameter(np.int32(1)), "the graph would keep the outcome"),
            (lambda: operator.add(x, p), "write the operator"),
            (lambda: range(p), "not a whole number"),
        ]:
            with pytest.raises((TypeError, ValueError), match=message):
                action()
        with pytest.raises(Exception, match=r"half|float"):
            complicated(numbers.queue, (64,), None, numbers.buffer, p)
    assert len(graph) == 0
    assert float(p) == 2 and p > 1 and p.value == np.float32(2)  # pyright: ignore
    assert f"{p:.3f}" == "2.000" and f"{p}" == repr(p)
    assert bytes(p) == np.float32(2).tobytes()


_KINDS = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")


def test_complex_arrays_refuse_parameters(numbers: Numbers) -> None:
    array = pyopencl.array.zeros(numbers.queue, 4, np.complex64)
    parameter = fairlead.Parameter(np.float32(2))
    assert (parameter.real, parameter.imag) == (2, 0)
    refused = pytest.raises(AttributeError, match="kernels do that have complex numbers")
    with refused, capture(numbers.queue):
        _ = array * parameter


@pytest.mark.parametrize("declares", [False, True])
def test_types_of_numpy_make_parameters_of_parameters(numbers: Numbers, declares: bool) -> None:
    """Each type from a number that it rounds, and two from each other; then other values."""
    p = fairlead.Parameter(np.float64(2.7))
    add = declared(numbers, np.int32) if declares else numbers.program.add
    with capture(numbers.queue) as graph:
        for kind in _KINDS:
            one = np.dtype(kind).type(p)
            add(numbers.queue, (64,), None, numbers.buffer, np.int32(one * 2))
        one = np.float32(2) * np.float32(p)
        one += 1
        add(numbers.queue, (64,), None, numbers.buffer, np.int32(one))
        assert str(np.int32(p)) == "<Parameter: int32 2>"
        kept = copy.copy(np.int32(p))
        add(numbers.queue, (64,), None, numbers.buffer, kept)
    loop = graph.finalize()
    for value in (2.7, 40.3, 9.5):
        before = numbers.value()
        loop.replay(numbers.queue, p=value)
        given = [(np.float64(value).astype(kind) * 2).astype(np.int32) for kind in _KINDS]
        expected = sum(map(int, given)) + int(np.float32(2) * np.float32(value) + 1) + int(value)
        assert numbers.value() - before == expected
    assert loop.parameters == ("p",) and type(np.float32(p)) is np.float32
    assert float(kept) == 2 and kept > 1 and kept + 1 == 3


#: What gives a number of a number, and follows a Parameter.
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "sqrt": np.sqrt,
    "exp2": np.exp2,
    "negative": np.negative,
    "isfinite": np.isfinite,
    "maximum": lambda p: np.maximum(p, 2),
    "arctan2": lambda p: np.arctan2(np.float64(1), p),
    "multiply": lambda p: np.multiply(np.array(3), p),
    "number * p": lambda p: np.float32(1.5) * p,
    "double - p": lambda p: np.float64(1.5) - p,
    "abs": abs,
    "+p": operator.pos,
    "//": lambda p: p // 2,
    "%": lambda p: 7 % p,
    "<<": lambda p: np.int32(p) << 2,
    "&": lambda p: 6 & np.int32(p),
    "~": lambda p: ~np.int32(p),
    "round": round,
    "round to one digit": lambda p: round(p, 1),
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": np.trunc,
    "astype": lambda p: p.astype(np.int8),
    "many": lambda p: np.sqrt(np.float32(2) * abs(p - 3)) ** 2,
    "many of another type": lambda p: np.log1p(np.float64(p)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_numpy_and_python_follow_a_parameter(
    numbers: Numbers, name: str, tmp_path: Path
) -> None:
    function, p = FUNCTIONS[name], fairlead.Parameter(np.float32(2.75))
    with capture(numbers.queue) as graph:
        made = function(p)
        assert isinstance(made, fairlead.Parameter)
        numbers.mul(np.int32(0))
        numbers.add(np.int32(made * 8))
    loop, file = graph.finalize(), tmp_path / "graph.flg"
    graph.save(file, names={"a": numbers.buffer})
    loaded = fairlead.load(file, numbers.queue.device).finalize()
    for value in (2.75, 0.5, 9.25):
        loop.replay(numbers.queue, p=value)
        expected = int(function(np.float32(value)) * 8)
        assert numbers.value() == expected
        assert (loaded(p=value)["a"].view(np.int32) == expected).all()
    loop.replay(numbers.queue, times=2, p=np.array([4, 6.5], np.float32)).wait()
    assert numbers.value() == int(function(np.float32(6.5)) * 8)
    assert np.dtype(type(function(p.value))) == made.dtype


#: What PyOpenCL and C code take no Parameter for, and say of it what nobody understands.
SIZES: dict[str, Callable[[Numbers, Any], Any]] = {
    "a buffer": lambda on, n: cl.Buffer(on.queue.context, cl.mem_flags.READ_WRITE, n),
    "local memory": lambda on, n: cl.LocalMemory(n),
    "an array": lambda on, n: pyopencl.array.zeros(on.queue, n, np.float32),
    "a shape": lambda on, n: pyopencl.array.zeros(on.queue, (n, 4), np.float32),
    "a range": lambda on, n: on.program.add(on.queue, (n,), None, on.buffer, np.int32(1)),
    "a number as range": lambda on, n: on.program.add(on.queue, n, None, on.buffer, np.int32(1)),
    "a group": lambda on, n: on.program.add(on.queue, (64,), (n,), on.buffer, np.int32(1)),
    "a copy": lambda on, n: cl.enqueue_copy(on.queue, on.buffer, on.buffer, byte_count=n),
    "an offset": lambda on, n: on.buffer.get_sub_region(n, 64),
    "an array of NumPy": lambda on, n: np.zeros(n),
    "a function of arrays": lambda on, n: pyopencl.array.maximum(array_on(on), n),
    "an element": lambda on, n: array_on(on)[n],
    "an array's attribute": lambda on, n: pyopencl.array.dot(array_on(on), n),
}


def array_on(numbers: Numbers) -> pyopencl.array.Array:
    return pyopencl.array.Array(numbers.queue, 16, np.int32, data=numbers.buffer)


@pytest.mark.parametrize("name", SIZES)
def test_what_takes_no_parameter_says_what_to_write(numbers: Numbers, name: str) -> None:
    n = fairlead.Parameter(np.int32(8), name="n")
    with (
        pytest.raises(TypeError, match=r"<Parameter n: int32 8>.*p\.value"),
        capture(numbers.queue),
    ):
        SIZES[name](numbers, n)


def test_errors_that_are_not_of_a_parameter_stay(numbers: Numbers) -> None:
    """Also after one that was, in a line of the same text."""
    n, queue = fairlead.Parameter(np.int32(8)), numbers.queue
    sizes: list[Any] = [n, "8", 8]
    for size, refused in zip(sizes, (TypeError, TypeError, ZeroDivisionError), strict=True):
        with pytest.raises(refused) as said, capture(queue):
            assert cl.LocalMemory(size) and 1 // 0
        assert ("Parameter" in str(said.value)) == (size is n)
    with pytest.raises(cl.LogicError, match="INVALID_ARG_SIZE"), capture(queue):
        numbers.program.add(queue, (64,), None, numbers.buffer, np.float64(n))
    with pytest.raises(KeyError), capture(queue):
        try:
            float(n)
        except TypeError:
            raise KeyError from None


def test_a_parameter_outside_of_blocks_is_like_its_number(numbers: Numbers) -> None:
    p = fairlead.Parameter(np.float32(2.5), name="p")
    one: Any = p
    assert (one.shape, one.ndim, one.nbytes) == ((), 0, 4)
    assert one.item() == 2.5 and one.is_integer() is False and one.real == 2.5
    assert (round(p), math.floor(p), math.ceil(p)) == (2, 2, 3)
    assert (np.ones(2) * one).tolist() == [2.5, 2.5] and np.sum(p) == 2.5 and np.modf(p)[0] == 0.5
    assert np.sqrt(one).value == np.sqrt(np.float32(2.5))
    assert copy.copy(p) is p and copy.deepcopy([p]) == [p]
    root, half = pickle.loads(pickle.dumps((p, np.sqrt(p) / 2)))
    assert (root.name, root.value, half.value) == ("p", p.value, np.sqrt(p.value) / 2)
    for name in ("itme", "_private"):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
            getattr(p, name)
    with capture(numbers.queue):
        assert one.nbytes == 4
        with pytest.raises(AttributeError, match=r"Write p\.value\.item if"):
            one.item()


def test_nothing_makes_a_constant_of_a_converted_parameter(numbers: Numbers) -> None:
    """An array of one has no element: a kernel takes it for no argument."""
    p, x = fairlead.Parameter(np.float64(2)), np.zeros(3, np.float32)
    array = pyopencl.array.zeros(numbers.queue, 64, np.float32)
    refused = (TypeError, ValueError, AttributeError, struct.error)
    with capture(numbers.queue) as graph:
        one: Any = np.float32(p)
        for action in (
            lambda: np.float32(one),
            lambda: np.float64(one),
            lambda: np.array(one, np.float32),
            lambda: np.array([one], np.float32),
            lambda: np.sum([one]),
            lambda: np.sum([one], dtype=np.float32),
            lambda: np.linalg.norm([one, one]),
            lambda: np.concatenate([one, x]),
            lambda: x.__setitem__(0, one),
            lambda: x.__setitem__(slice(1), one),
            lambda: x.fill(one),
            lambda: np.copyto(x, one),
            lambda: np.full(3, one, np.float32),
            lambda: float(one),
            lambda: complex(one),
            lambda: int(one),
            lambda: bool(one),
            lambda: one > 1,
            lambda: one == np.float32(p),
            lambda: one in (1, 2),
            lambda: len(one),
            lambda: one[0],
            lambda: list(one),
            lambda: one.item(),
            lambda: one.tobytes(),
            lambda: struct.pack("f", one),
            lambda: pickle.dumps(one),
            lambda: f"{one:.3f}",
            lambda: operator.add(array, one),
        ):
            with pytest.raises(refused):
                action()
        for made in (np.array([one]), np.array(one), np.stack([np.asarray(one)])):
            assert made.nbytes == 0 and made.dtype.names
            with pytest.raises(cl.Error, match="INVALID_ARG_SIZE"):
                numbers.program.add(numbers.queue, (64,), None, numbers.buffer, made)
    assert len(graph) == 0 and not x.any()


def test_transfers_refuse_converted_parameters(numbers: Numbers) -> None:
    p = fairlead.Parameter(np.int64(2))
    for enqueue in (
        lambda one: cl.enqueue_copy(numbers.queue, numbers.buffer, one, is_blocking=False),
        lambda one: cl.enqueue_fill_buffer(numbers.queue, numbers.buffer, one, 0, 256),
    ):
        with pytest.raises(CaptureError, match="Parameter"), capture(numbers.queue):
            enqueue(np.int32(p))


def test_names(numbers: Numbers) -> None:
    first = second = fairlead.Parameter(np.int32(1))  # held by two variables
    third = fairlead.Parameter(np.int32(1), name="factor")
    with capture(numbers.queue) as graph:
        numbers.add(first)
        numbers.mul(third)
    loop = graph.finalize()
    assert loop.parameters == ("", "factor") and second is first
    with pytest.raises(SYCLError, match="no Parameter first; it has: one without a name, factor"):
        loop.set(first=2)
    same = fairlead.Parameter(np.int32(1), name="factor")
    with capture(numbers.queue) as graph:
        numbers.add(same)
        numbers.mul(third)
    with pytest.raises(ArgumentError, match="two Parameters of the graph are called factor"):
        graph.finalize()
    for wrong in ("times", "a b", 3):
        with pytest.raises(ArgumentError, match="cannot be a Parameter's name"):
            fairlead.Parameter(np.int32(1), name=wrong)  # pyright: ignore
    for wrong in (1, 2.5, "text", None, np.zeros(3)):
        with pytest.raises(ArgumentError, match="cannot be a Parameter"):
            fairlead.Parameter(wrong)  # pyright: ignore


def test_misspelt_arguments_of_replays_are_named(numbers: Numbers) -> None:
    by = fairlead.Parameter(np.int32(1))
    with capture(numbers.queue) as graph:
        numbers.add(by)
    loop = graph.finalize()
    for wrong, right in [("time", "times"), ("waitfor", "wait_for"), ("By", "by")]:
        values: dict[str, Any] = {wrong: 3}
        with pytest.raises(SYCLError, match=rf"replay has no argument {wrong}.*\n.*{right}"):
            loop.replay(numbers.queue, **values)
    with pytest.raises(SYCLError, match=r"^set: the graph has no Parameter time;.*\n.*pass a"):
        loop.set(time=3)  # `times` is no name there
    assert numbers.value() == 0


def test_numbers_that_a_parameter_cannot_be(numbers: Numbers) -> None:
    by = fairlead.Parameter(np.int32(1))
    with capture(numbers.queue) as graph:
        numbers.add(by)
    loop = graph.finalize()
    for wrong in (1.5, 1 << 31, "text", None, np.zeros(2), 1j):
        with pytest.raises(SYCLError) as caught:
            loop.set(by=wrong)
        assert caught.value.errc is Errc.kernel_argument or isinstance(wrong, np.ndarray)
    loop.set(by=np.uint8(4))
    loop.replay(numbers.queue)
    assert numbers.value() == 4


def test_a_parameter_that_is_gone(numbers: Numbers) -> None:
    with capture(numbers.queue) as graph:
        numbers.add(fairlead.Parameter(np.int32(1), name="by"))
    gc.collect()
    loop = graph.finalize()
    del graph
    gc.collect()
    loop.replay(numbers.queue, by=6)
    assert numbers.value() == 6


# --- with other changes ---


def test_nodes_and_whole_graphs_are_updated_too(numbers: Numbers) -> None:
    by = fairlead.Parameter(np.int32(1), name="by")

    def captured(buffer: cl.Buffer, number: Any) -> Any:
        with capture(numbers.queue) as graph:
            numbers.add(number, buffer)
            numbers.add(by, buffer)
        return graph

    graph, other = captured(numbers.buffer, by), numbers.new()
    loop = graph.finalize(updatable=True)
    loop.replay(numbers.queue, by=10)
    assert numbers.value() == 20
    graph[0].set_arg(1, np.int32(100))  # no Parameter any more
    loop.update(graph[0])
    loop.replay(numbers.queue, by=1)
    assert numbers.value() == 121
    loop.update(captured(other, by))
    loop.replay(numbers.queue)
    loop.replay(numbers.queue, by=5)
    assert (numbers.value(), numbers.value(other)) == (121, 12)
    with pytest.raises(SYCLError, match="cannot become a Parameter"):
        graph[0].set_arg(1, by)


def test_a_graph_without_parameters_learns_of_them(numbers: Numbers) -> None:
    with capture(numbers.queue) as graph:
        numbers.add(1)
    loop, by = graph.finalize(updatable=True), fairlead.Parameter(np.int32(5))
    with capture(numbers.queue) as again:
        numbers.add(by)
    loop.update(again)
    loop.replay(numbers.queue)
    loop.replay(numbers.queue, by=7)
    assert numbers.value() == 12


def test_host_tasks_and_sub_graphs(numbers: Numbers) -> None:
    by, seen = fairlead.Parameter(np.int32(1)), []
    with capture(numbers.queue) as graph:
        numbers.add(by)
        numbers.read()
        numbers.mul(by)
    task = graph.add(
        lambda handler: handler.host_task(lambda: seen.append(int(numbers.host[0]))),
        depends_on=graph[1],
    )
    graph[2].depends_on(task)
    loop = graph.finalize()
    loop.replay(numbers.queue, by=2)
    loop.replay(numbers.queue, by=3)
    loop.replay(numbers.queue, times=2, by=[1, 0]).wait()
    assert seen == [2, 7, 22, 22] and numbers.value() == 0
    with capture(numbers.queue) as outer:
        numbers.add(by)
    outer.add(lambda handler: handler.graph_execution(loop), depends_on=outer[0])
    both = outer.finalize()
    both.replay(numbers.queue, by=4).wait()
    assert seen[-1] == 8 and numbers.value() == 32


def test_fills_and_writes_do_not_take_a_parameter(numbers: Numbers) -> None:
    """They would go on with its first value."""
    by, queue = fairlead.Parameter(np.int32(7)), numbers.queue
    calls: list[Callable[[], Any]] = [
        lambda: cl.enqueue_fill_buffer(queue, numbers.buffer, by, 0, 16),
        lambda: cl.enqueue_copy(queue, numbers.buffer, by, is_blocking=False),
    ]
    for call in calls:
        with pytest.raises(CaptureError, match="takes a Parameter"), capture(queue):
            call()
        with capture(queue) as graph:
            cl.enqueue_fill_buffer(queue, numbers.buffer, by.value, 0, 256)
        graph.finalize().replay(queue)
        assert numbers.value() == 7
