"""Functions that capture themselves."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest
from helpers.programs import build_once
from pyopencl import cltypes

import fairlead
from fairlead.captured_graphs.graphed import GraphedWarning
from fairlead.captured_graphs.pyopencl_client import ArgumentError

calls: list[str] = []


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls.clear()


@fairlead.graphed
def advance(u: Any, v: Any, dt: Any, power: int = 1) -> Any:
    """A step."""
    calls.append("advance")
    u += v * dt
    return u, v**power


def array(queue: cl.CommandQueue, number: float, size: int = 64, kind: Any = np.float32) -> Any:
    return pyopencl.array.to_device(queue, np.full(size, number, kind))


def test_later_calls_are_replayed_with_their_own_arguments(queue: cl.CommandQueue) -> None:
    for turn in range(5):
        u, v = array(queue, turn), array(queue, 2)
        result, copy = advance(u, v, np.float32(turn + 1))
        assert result is u and (u.get() == turn + 2 * (turn + 1)).all() and (copy.get() == 2).all()
    assert calls == ["advance"] and advance.__doc__ == "A step."


@pytest.mark.slow
def test_shapes_types_and_values_are_captured_anew(queue: cl.CommandQueue) -> None:
    for _ in range(2):
        for size, kind, power in (
            (8, np.float32, 1),
            (9, np.float32, 1),
            (8, np.float64, 1),
            (8, np.float32, 2),
        ):
            u, v = array(queue, 1, size, kind), array(queue, 3, size, kind)
            result, copy = advance(u, v, kind(2), power=power)
            assert result.get()[0] == 7 and np.isclose(copy.get()[0], 3**power)
    assert calls == ["advance"] * 4
    assert "graphs\n" in advance.explain()


class Pair(NamedTuple):
    first: Any
    second: Any


def test_a_named_tuple_is_returned(queue: cl.CommandQueue) -> None:
    @fairlead.graphed
    def pair(u: Any) -> Pair:
        return Pair(u, u + u)

    for number in range(3):
        u = array(queue, number)
        result = pair(u)
        assert type(result) is Pair and result.first is u
        assert (result.second.get() == 2 * number).all()


class Shift(NamedTuple):
    by: Any


@dataclass(frozen=True)
class Named:
    name: str
    by: Any = field(compare=False)


@pytest.mark.parametrize("wrap", [lambda by: (by,), Shift, partial(Named, "by"), frozenset, None])
def test_equal_values_that_differ_have_their_own_graphs(queue: cl.CommandQueue, wrap: Any) -> None:
    def shift(u: Any, what: Any) -> Any:
        by = getattr(what, "by", what)
        return u + (next(iter(by)) if isinstance(by, (tuple, frozenset)) else by)

    graphed = fairlead.graphed(shift)
    u = pyopencl.array.to_device(queue, np.array([-0.0, 1], np.float32)).astype(np.complex64)
    if wrap is None:
        values: list[Any] = [complex(0.0, 0.0), complex(-0.0, -0.0), complex(0.0, -0.0)]
    else:
        values, u = [wrap([one] if wrap is frozenset else one) for one in (1, 1.0, True)], u.real
        u = u.astype(np.int32)
    for value in values * 2:
        want, got = shift(u, value), graphed(u, value)
        assert got.dtype == want.dtype
        assert got.get().tobytes() == want.get().tobytes()
    assert not graphed.reasons and len(graphed._captured) == len(values)


class Doubling(pyopencl.array.Array):
    def __mul__(self, other: Any) -> Any:
        return super().__mul__(2 * other)


def test_a_class_derived_from_array_keeps_its_operators(queue: cl.CommandQueue) -> None:
    """A graph of another array with such a shape is not used for it, nor is a Parameter's."""

    @fairlead.graphed
    def thrice(u: Any) -> Any:
        return u * np.float32(3)

    plain, own = array(queue, 1), Doubling(queue, (64,), np.float32)
    own.fill(1)
    assert (thrice(plain).get() == 3).all()
    with pytest.warns(GraphedWarning, match="Doubling is a class derived from Array"):
        assert (thrice(own).get() == 6).all()
    u = fairlead.Parameter(own)
    assert type(u) is Doubling
    with fairlead.capture(queue) as graph:
        result = u * np.float32(3)
    loop = graph.finalize()
    loop.replay(queue, u=plain).wait()
    assert (result.get() == 6).all()


def add_twice(u: Any) -> Any:
    """Return thrice the array, by two launches."""
    result = u * np.float32(2)
    result += u
    return result


def test_a_function_that_is_given_its_own_result(queue: cl.CommandQueue) -> None:
    """Its graph would overwrite what it still reads, so another one takes turns with it."""
    thrice = fairlead.graphed(add_twice)

    class Steps:
        def __init__(self) -> None:
            self.u, self.v, self.dt = array(queue, 1), array(queue, 2), 0.5

        def step(self, by: float) -> Any:
            new = self.u + self.v * self.dt
            self.v -= new * np.float32(0.125)
            self.u, self.v = self.v, new * by
            return self.u

    class Graphed(Steps):
        step: Any = fairlead.graphed(Steps.step)

    u = array(queue, 1)
    for number in range(1, 7):
        u = thrice(u)
        assert (u.get() == 3**number).all()
    pairs = [(Steps(), Graphed()) for _ in range(2)]  # neither overwrites what the other one keeps
    for number in range(16):
        for called, replayed in pairs[: number % 3]:
            want, got = called.step(number / 8), replayed.step(number / 8)
            assert want.get().tobytes() == got.get().tobytes()
        for called, replayed in pairs:
            assert called.u.get().tobytes() == replayed.u.get().tobytes()
            assert called.v.get().tobytes() == replayed.v.get().tobytes()
    assert len(thrice._captured) == 2 and not Graphed.step.reasons


def test_a_part_of_its_result_is_its_result(queue: cl.CommandQueue) -> None:
    """A sub-buffer, which has a handle of its own, is read while the result is written."""
    thrice = fairlead.graphed(add_twice)

    u = array(queue, 1, 1024)
    for number in range(1, 7):
        part = u.base_data.get_sub_region(0, u.nbytes)
        u = thrice(pyopencl.array.Array(queue, u.shape, u.dtype, data=part))
        assert (u.get() == 3**number).all()
    for _ in range(5):
        thrice(u)
    assert 2 <= len(thrice._captured) <= 4 and not thrice.reasons


def test_one_launch_is_called_and_not_replayed(queue: cl.CommandQueue) -> None:
    """A call takes less than to set what has changed. Such calls are not even looked at."""
    source = "kernel void add(global float *x, float s) { x[get_global_id(0)] += s; }"
    kernel = cl.Program(queue.context, source).build().add

    @fairlead.graphed
    def add(u: Any, by: float) -> None:
        calls.append("add")
        kernel(queue, u.shape, None, u.data, np.float32(by))

    u, total = array(queue, 0), 0
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", GraphedWarning)
        for number in range(120):
            add(u, float(number))
            total += number
            if number == 30:
                assert calls == ["add"] and not add.reasons
    assert (u.get() == total).all()
    assert [str(one.message) for one in warned if one.category is GraphedWarning] == [
        "test_one_launch_is_called_and_not_replayed.<locals>.add runs without a graph: a call of "
        "its one command costs less than a replay"
    ]
    assert len(calls) == 1 + 120 - 33 and "0 graphs" in add.explain()
    add(array(queue, 0, 32), 1.0)
    assert len(add.reasons) == 1  # it was not looked at


def test_a_launch_that_becomes_another_kernel_stays_a_graph(queue: cl.CommandQueue) -> None:
    if queue.device.type != cl.device_type.CPU:
        pytest.skip("a GPU runs loops over items as they are")

    @fairlead.graphed
    def double(u: Any) -> None:
        u *= np.float32(2)

    u = array(queue, 0)
    for _ in range(200):
        double(u)
        u.get()
    (captured,) = double._captured.values()
    rewritten = "loops over items" in captured.loop.explain(queue)
    assert rewritten or "being rewritten" in captured.loop.explain(queue)


def test_an_out_of_order_queue(out_of_order: cl.CommandQueue) -> None:
    u, v = array(out_of_order, 0), array(out_of_order, 1)
    for _ in range(10):
        advance(u, v, np.float32(1))
    assert (u.get() == 10).all()


def test_what_cannot_be_captured_runs_as_it_is_and_is_told(queue: cl.CommandQueue) -> None:
    @fairlead.graphed
    def total(u: Any) -> float:
        return float(u.get().sum())

    @fairlead.graphed
    def half(u: Any) -> Any:
        u *= np.float32(2)
        return u[:32]

    @fairlead.graphed
    def listed(us: list[Any]) -> Any:
        return us[0] + us[1]

    u = array(queue, 3)
    with pytest.warns(GraphedWarning, match=r"total runs without a graph: .*CaptureError|INVALID"):
        assert total(u) == 3 * 64
    with pytest.warns(GraphedWarning, match="half runs without a graph:.*a part of an argument"):
        assert (half(u).get() == 6).all()
    with pytest.warns(GraphedWarning, match="listed runs without a graph: no argument is an array"):
        assert (listed([u, u]).get() == 12).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is told once
        assert total(u) == 6 * 64
    assert "not captured: CaptureError" in total.explain()


def test_an_error_of_the_function_is_its_own(queue: cl.CommandQueue) -> None:
    @fairlead.graphed
    def wrong(u: Any) -> None:
        raise ZeroDivisionError("by itself")

    with pytest.raises(ZeroDivisionError, match="by itself"):
        wrong(array(queue, 1))


class Model:
    """A program's class, whose attributes are arguments of its methods."""

    u: Any
    v: Any

    def __init__(self, queue: cl.CommandQueue, number: float) -> None:
        self.u, self.v = array(queue, number), array(queue, 0)
        self.factor, self.step, self.name = 2.0, 0, "model"

    @fairlead.graphed
    def double(self, u: Any) -> Any:
        calls.append("double")
        return u * np.float32(2)

    @fairlead.graphed
    def advance(self) -> Any:
        """From u to v, and the two exchanged."""
        calls.append("advance")
        self.v.fill(0)
        self.v += self.u * self.factor
        self.u, self.v = self.v, self.u
        return self

    @fairlead.graphed
    def renew(self) -> None:
        calls.append("renew")
        self.v = self.u + np.float32(1)


def test_methods(queue: cl.CommandQueue) -> None:
    model = Model(queue, 0)
    for number in (1, 2, 3):
        assert (model.double(array(queue, number)).get() == 2 * number).all()
    assert calls == ["double"]
    assert model.double.explain().endswith(
        "\n  1 nodes; Parameters: u; the same in each call: self.step, self.name"
    )


def test_attributes_are_arguments(queue: cl.CommandQueue) -> None:
    """Arrays that a method exchanges, numbers, and the attributes of another object."""
    one, two = Model(queue, 1), Model(queue, 3)
    for power in range(1, 6):
        for model, number in ((one, 1), (two, 3)):
            assert model.advance() is model
            assert model.u.get()[0] == number * 2**power
    assert calls == ["advance"]
    one.factor, one.u = 0.5, array(queue, 10)
    assert one.advance().u.get()[0] == 5 and calls == ["advance"]
    one.name = "another"
    assert one.advance().u.get()[0] == 2.5 and calls == ["advance"] * 2


def test_an_attribute_that_becomes_an_array_of_the_graph(queue: cl.CommandQueue) -> None:
    model = Model(queue, 1)
    for number in range(1, 4):
        model.renew()
        assert (model.v.get() == number + 1).all()
        model.u += np.float32(1)
    assert calls == ["renew"] * 2  # the second one is given an array of the first graph


def test_what_replays_cannot_do_happens_once_in_each_call(queue: cl.CommandQueue) -> None:
    """Counters in attributes, and exchanges that are out of reach."""

    class Counter(Model):
        @fairlead.graphed
        def count(self) -> None:
            calls.append("count")
            self.u += np.float32(1)
            self.step += 1

    model = Counter(queue, 1)
    with pytest.warns(GraphedWarning, match="without a graph: it sets the attribute step"):
        model.count()
    for _ in range(3):
        model.count()
    assert model.step == 4 and model.u.get()[0] == 5 and calls == ["count"] * 4
    u, v = array(queue, 1), array(queue, 0)

    @fairlead.graphed
    def closure(w: Any) -> None:
        nonlocal u, v
        v += u * np.float32(2) - v + w
        u, v = v, u

    with pytest.warns(GraphedWarning, match="without a graph: it exchanges the buffers of u, v"):
        closure(array(queue, 0))
    for _ in range(4):
        closure(array(queue, 0))
    assert u.get()[0] == 32


def test_failed_captures_leave_attributes_as_they_were(queue: cl.CommandQueue) -> None:
    class Fails(Model):
        @fairlead.graphed
        def read(self) -> Any:
            self.other = self.u
            return self.u.get().sum() * self.factor

    model = Fails(queue, 1)
    before = dict(vars(model))
    with pytest.warns(GraphedWarning, match=r"read runs without a graph"):
        assert model.read() == 128
    assert model.other is model.u
    assert all(vars(model)[name] is value for name, value in before.items())


class Slotted:
    __slots__ = ("u", "w")

    def __init__(self, queue: cl.CommandQueue) -> None:
        self.u = array(queue, 1)

    @fairlead.graphed
    def run(self) -> None:
        calls.append("run")
        self.w = self.u
        self.w += np.float32(1)


def test_slots_are_attributes(queue: cl.CommandQueue) -> None:
    thing = Slotted(queue)
    with warnings.catch_warnings():
        warnings.simplefilter("error", GraphedWarning)
        for number in range(2, 6):
            thing.u = array(queue, number)
            thing.run()
            assert thing.w is thing.u and thing.u.get()[0] == number + 1
    assert calls == ["run", "run"]  # once it has another attribute


EXPRESSIONS: dict[str, Callable[[Any, Any], Any]] = {
    "x + p": lambda x, p: x + p,
    "x - p": lambda x, p: x - p,
    "p - x": lambda x, p: p - x,
    "x * p": lambda x, p: x * p,
    "x / p": lambda x, p: x / p,
    "p / x": lambda x, p: p / x,
    "x ** p": lambda x, p: x**p,
    "2 * p * x": lambda x, p: 2 * p * x,
    "-p * x": lambda x, p: -p * x,
    "(p / 3) + x": lambda x, p: (p / 3) + x,
    "x * (1 / p)": lambda x, p: x * (1 / p),
    "f32(3) * p * x": lambda x, p: np.float32(3) * p * x,
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_python_floats_are_parameters_without_a_type(queue: cl.CommandQueue, name: str) -> None:
    """The results have the same types and bits as without a graph."""
    plain = EXPRESSIONS[name]

    @fairlead.graphed
    def run(x: Any, p: float) -> Any:
        calls.append("run")
        return plain(x, p)

    x = pyopencl.array.to_device(queue, np.linspace(0.1, 9, 64, dtype=np.float32))
    for p in (0.1, 1 / 3, 7.7):
        expected, result = plain(x, p).get(), run(x, p).get()
        assert result.dtype == expected.dtype and result.tobytes() == expected.tobytes()
    assert calls == ["run"]


def test_functions_that_wrap_their_numbers_by_numpy(queue: cl.CommandQueue) -> None:
    """A number that does not fit is NumPy's error, as in a call without a graph."""
    source = "kernel void add(global float *x, float k, int n) { x[get_global_id(0)] += k * n; }"
    add = cl.Program(queue.context, source).build().add

    @fairlead.graphed
    def run(x: Any, k: float, n: float) -> None:
        calls.append("run")
        add(x.queue, x.shape, None, x.data, x.dtype.type(k), np.int32(n))
        add(x.queue, x.shape, None, x.data, np.float32(k * 2), np.int32(1))

    x, expected = array(queue, 0), np.float32(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for k, n in ((0.1, 2.7), (0.3, -3.2), (7.7, 9.0), (1e-50, 0.0)):
            run(x, k, n)
            expected += np.float32(k) * int(n)
            expected += np.float32(k * 2)
    with pytest.raises(OverflowError):
        run(x, 1.0, 1e20)
    run(x, 0.25, 4.0)
    assert np.isclose(x.get()[0], expected + np.float32(1.5)) and calls == ["run"]
    assert run.explain().endswith("2 nodes; Parameters: x, k, n")


def test_equal_numbers_are_not_what_a_graph_keeps(queue: cl.CommandQueue) -> None:
    @fairlead.graphed
    def run(x: Any, k: float, n: float) -> Any:
        return x * np.float32(2 if k == n else 3)

    x = array(queue, 1)
    for k, n in ((1.0, 2.0), (2.0, 2.0), (1.0, 2.0)):
        assert run(x, k, n).get()[0] == (2 if k == n else 3)


@pytest.mark.parametrize(
    "kind", [(float, "floats"), (np.float32, "other numbers of NumPy"), (np.array, "other numbers")]
)
def test_a_number_that_cannot_be_a_parameter_is_a_constant(
    queue: cl.CommandQueue, kind: tuple[Callable[[float], Any], str]
) -> None:
    @fairlead.graphed
    def choose(u: Any, limit: Any) -> Any:
        calls.append("choose")
        return u * np.float32(2 if limit > 1 else 3)

    u = array(queue, 1)
    for _ in range(2):
        assert choose(u, kind[0](0.5)).get()[0] == 3 and choose(u, kind[0](1.5)).get()[0] == 2
    assert len(calls) == 3  # one of them with a Parameter
    assert kind[1] in choose.explain()
    assert "are constants: TypeError: <Parameter" in choose.explain()


def test_a_whole_number_that_is_a_size_is_a_constant(queue: cl.CommandQueue) -> None:
    """The float that changes is still a Parameter."""
    program = build_once(
        queue.context, "kernel void add(global float *x, float s, int n) { if (n > 2) x[0] += s; }"
    )

    class Solver:
        def __init__(self, count: Any) -> None:
            self.x, self.n, self.dt = array(queue, 0), count, 0.5
            self.kernel = program.add

        @fairlead.graphed
        def step(self) -> None:
            calls.append("step")
            size = (int(self.n) // 3,)
            self.kernel(queue, size, None, self.x.base_data, np.float32(self.dt), self.n)
            self.kernel(queue, size, None, self.x.base_data, np.float32(self.dt), self.n)

    for count in (np.int32(3), np.array(3, np.int32)):
        solver = Solver(count)
        calls.clear()
        for dt in (0.5, 1, 2):
            solver.dt = float(dt)
            solver.step()
        assert solver.x.get()[0] == 7 and len(calls) == 2, Solver.step.explain()
    assert "whole numbers of NumPy are constants: TypeError" in Solver.step.explain()


def test_graphs_that_are_not_used_again_are_told(queue: cl.CommandQueue) -> None:
    @fairlead.graphed
    def shift(u: Any, count: int) -> Any:
        calls.append("shift")
        return u + np.float32(count)

    u = array(queue, 1)
    for count in range(4):
        assert shift(u, count).get()[0] == count + 1
    with pytest.warns(
        GraphedWarning, match="4 graphs in a row were not used again. What changes is count"
    ):
        assert shift(u, 4).get()[0] == 5
    with warnings.catch_warnings():
        warnings.simplefilter("error", GraphedWarning)
        assert shift(u, 5).get()[0] == 6 and len(calls) == 6
        assert shift(u, 3).get()[0] == 4 and len(calls) == 6  # it has a graph
        assert shift(u, 5).get()[0] == 6 and shift(u, 5).get()[0] == 6
    assert len(calls) == 7


def test_vectors_and_arrays_without_dimensions(queue: cl.CommandQueue) -> None:
    program = cl.Program(
        queue.context,
        "kernel void put(global float *x, float4 a, float b) { x[get_global_id(0)] = a.z + b; }",
    ).build()
    put, make_float4 = program.put, vars(cltypes)["make_float4"]

    @fairlead.graphed
    def run(q: Any, x: Any, a: Any, b: Any, room: Any) -> None:
        calls.append("run")
        put(q, (64,), None, x, a, b)

    u = array(queue, 0)
    for number in range(4):
        vector = make_float4(0, 0, number, 0)
        run(queue, u.data, vector, np.array(10, np.float32), cl.LocalMemory(8))
        assert (u.get() == number + 10).all()
    assert calls == ["run"]


def test_the_same_array_twice_is_another_graph(out_of_order: cl.CommandQueue) -> None:
    @fairlead.graphed
    def add_both(u: Any, v: Any) -> None:
        calls.append("add_both")
        u += np.float32(1)
        v += np.float32(1)

    u, v = array(out_of_order, 0), array(out_of_order, 0)
    for _ in range(2):
        add_both(u, v)
        add_both(u, u)
    assert u.get()[0] == 6 and v.get()[0] == 2 and calls == ["add_both"] * 2


def test_a_part_of_an_array_and_a_whole_one(queue: cl.CommandQueue) -> None:
    """Both have one shape and one type. The buffers that they lie in have different sizes."""

    @fairlead.graphed
    def double(u: Any) -> None:
        u *= np.float32(2)
        u += np.float32(1)

    for _ in range(2):
        for size in (128, 64, 96):
            u = array(queue, 3, size)
            double(u[:64])
            assert (u.get()[:64] == 7).all() and (u.get()[64:] == 3).all()


@pytest.mark.parametrize("kind", ["COPY_HOST_PTR", "USE_HOST_PTR"])
@pytest.mark.parametrize("returns", [True, False])
def test_a_buffer_with_the_hosts_contents_is_made_in_each_call(
    queue: cl.CommandQueue, returns: bool, kind: str
) -> None:
    flags = cl.mem_flags.READ_WRITE | getattr(cl.mem_flags, kind)
    kept = list[Any]()

    def make() -> cl.Buffer:
        kept.append(np.ones(64, np.float32))  # a call goes on after its buffer is dropped
        return cl.Buffer(queue.context, flags, hostbuf=kept[-1])

    outside = make()

    def add(u: Any, memory: Any = None) -> Any:
        memory = memory or make()
        made = pyopencl.array.Array(queue, u.shape, u.dtype, data=memory)
        made += u
        return made if returns else made * np.float32(2)

    graphed = fairlead.graphed(add)
    with pytest.warns(GraphedWarning, match=kind):
        for _ in range(3):
            assert (graphed(array(queue, 3)).get() == (4 if returns else 8)).all()
    others = fairlead.graphed(lambda u: add(u, outside) * np.float32(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error", GraphedWarning)
        assert [others(array(queue, 3)).get()[0] for _ in range(3)] == [
            number if returns else 2 * number for number in (4, 7, 10)
        ]


def test_a_call_with_an_array_in_svm_is_no_graph(queue: cl.CommandQueue) -> None:
    @fairlead.graphed
    def double(u: Any) -> None:
        u += u

    memory = cl.csvm_empty(queue.context, 64, np.dtype(np.float32))
    u = pyopencl.array.Array(queue, memory.shape, memory.dtype, data=cl.SVM(memory))
    u.fill(1)
    with pytest.warns(GraphedWarning, match="SVM"):
        double(u)
    assert (u.get() == 2).all()


@pytest.mark.parametrize("view", [lambda u: u, lambda u: u[:], lambda u: u[8:]])
def test_an_array_and_its_view_are_used_in_order(
    out_of_order: cl.CommandQueue, view: Callable[[Any], Any], tmp_path: Path
) -> None:
    """PyOpenCL orders them by a list of events that they share, other arrays of the memory not."""

    @fairlead.graphed
    def add_both(u: Any, v: Any) -> None:
        u += np.float32(1)
        v += np.float32(1)

    u = array(out_of_order, 0)
    other = view(u)
    stranger = pyopencl.array.Array(
        out_of_order, other.shape, other.dtype, data=u.base_data, offset=other.offset
    )
    assert count_edges(add_both, u, stranger, tmp_path) == 0
    out_of_order.finish()
    u.fill(0)
    assert [count_edges(add_both, u, other, tmp_path) for _ in range(2)] == [1, 1]
    assert len(add_both._captured) == 2 and u.get()[-1] == 4


def count_edges(function: Any, u: Any, v: Any, folder: Path) -> int:
    """Call a graphed function. Returns how many edges its newest graph has."""
    function(u, v)
    graph = folder / "graph.dot"
    next(reversed(function._captured.values())).loop.print_graph(str(graph))
    return graph.read_text().count("->")


def test_a_graphed_function_in_a_block_is_a_part_of_it(queue: cl.CommandQueue) -> None:
    u, v = array(queue, 0), array(queue, 1)

    @fairlead.graphed
    def once(u: Any, v: Any) -> None:
        u += v * np.float32(1)

    @fairlead.graphed
    def twice(u: Any, v: Any) -> None:
        once(u, v)
        once(u, v)

    once(u, v)
    with fairlead.capture(queue) as graph:
        once(u, v)

    graph.finalize().replay(queue).wait()
    twice(u, v)
    twice(u, v)
    assert u.get()[0] == 6


def test_replays_wait_for_what_other_queues_do_with_arrays(queue: cl.CommandQueue) -> None:
    """Also where the arrays of one call are of two queues."""
    other = cl.CommandQueue(queue.context)
    u, v = array(queue, 0), array(other, 1)

    @fairlead.graphed
    def run(u: Any, v: Any) -> None:
        calls.append("run")
        u += v.with_queue(queue)
        v.add_event(u.events[-1])  # PyOpenCL does not note who reads an array
        v *= np.float32(2)

    for _ in range(4):
        run(u, v)
    assert u.get()[0] == 15 and v.get()[0] == 16 and calls == ["run"]
    gate = cl.UserEvent(queue.context)
    u.add_event(gate)
    run(u, v)
    gate.set_status(cl.command_execution_status.COMPLETE)
    assert u.get()[0] == 31


def test_only_functions_are_graphed(queue: cl.CommandQueue) -> None:
    with pytest.raises(ArgumentError, match=r"CommandQueue is not a function"):
        fairlead.graphed(queue)  # pyright: ignore
