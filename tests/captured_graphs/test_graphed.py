"""Functions that capture themselves."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest

import fairlead
from fairlead.captured_graphs.graphed import GraphedWarning

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
    explained: Any = advance
    assert "graphs\n" in explained.explain()


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


def test_an_out_of_order_queue(out_of_order: cl.CommandQueue) -> None:
    u, v = array(out_of_order, 0), array(out_of_order, 1)
    for _ in range(10):
        advance(u, v, np.float32(1))
    assert (u.get() == 10).all()


def test_what_cannot_be_captured_runs_as_it_is_and_is_told(queue: cl.CommandQueue) -> None:
    @fairlead.graphed
    def choose(u: Any, limit: Any) -> Any:
        calls.append("choose")
        if limit > 1:
            u += limit
        return u

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

    u = array(queue, 1)
    with pytest.warns(GraphedWarning, match="choose runs without a graph: TypeError.*compared"):
        choose(u, np.float32(2))
    with pytest.warns(GraphedWarning, match=r"total runs without a graph: .*CaptureError|INVALID"):
        assert total(u) == 3 * 64
    with pytest.warns(GraphedWarning, match="half runs without a graph:.*a part of an argument"):
        assert (half(u).get() == 6).all()
    with pytest.warns(GraphedWarning, match="listed runs without a graph: no argument is an array"):
        assert (listed([u, u]).get() == 12).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is told once
        assert (choose(u, np.float32(2)).get() == 8).all() and total(u) == 8 * 64
    explained: Any = choose
    assert "not captured: TypeError" in explained.explain()


def test_an_error_of_the_function_is_its_own(queue: cl.CommandQueue) -> None:
    @fairlead.graphed
    def wrong(u: Any) -> None:
        raise ZeroDivisionError("by itself")

    with pytest.raises(ZeroDivisionError, match="by itself"):
        wrong(array(queue, 1))


def test_methods(queue: cl.CommandQueue) -> None:
    class Model:
        @fairlead.graphed
        def double(self, u: Any) -> Any:
            calls.append("double")
            return u * np.float32(2)

    model = Model()
    for number in (1, 2, 3):
        assert (model.double(array(queue, number)).get() == 2 * number).all()
    assert calls == ["double"]
