"""What a program does wrong with captured graphs: each misuse is named, with what to do instead."""

# What is given wrongly is the point.
# pyright: reportArgumentType=false, reportCallIssue=false
from __future__ import annotations

import copy
import gc
import importlib
import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from helpers.programs import build_once

import fairlead
from fairlead.captured_graphs.graph import CapturedGraph, NotFinalizedError
from fairlead.captured_graphs.pyopencl_client import ArgumentError
from fairlead.loader.base.never_copied import CopyError
from fairlead.runtime import SYCLError

#: What is refused does not depend on the driver.
pytestmark = pytest.mark.one_driver

SOURCE = "kernel void add(global float *a, float b) { a[get_global_id(0)] += b; }"


@pytest.fixture
def buffer(queue: Any) -> Any:
    return cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 64)


@pytest.fixture
def graph(queue: Any, buffer: Any) -> CapturedGraph:
    kernel = build_once(queue.context, SOURCE).add
    with fairlead.capture(queue) as graph:
        kernel(queue, (16,), None, buffer, np.float32(1))
    return graph


@pytest.mark.parametrize("name", ["replay", "set", "update", "explain", "parameters"])
def test_a_graph_that_is_not_finalized_says_so(graph: CapturedGraph, name: str) -> None:
    with pytest.raises(NotFinalizedError, match=f"finalize\\(\\) first: .* loop.{name}"):
        getattr(graph, name)
    assert not hasattr(graph, name)
    with pytest.raises(AttributeError, match="no attribute 'reply'"):
        graph.reply  # noqa: B018  # pyright: ignore


@pytest.mark.parametrize("index", ["abc", None, 1.5, 9, -1])
def test_an_index_that_no_argument_has(graph: CapturedGraph, buffer: Any, index: Any) -> None:
    with pytest.raises(SYCLError, match=f"the kernel add has 2 arguments, no argument {index!r}"):
        graph[0].set_arg(index, buffer)


def test_an_argument_of_another_kind_is_told_what_it_takes(
    graph: CapturedGraph, buffer: Any
) -> None:
    node: Any = graph[0]
    for index, value, words in (
        (1, buffer, "argument 1 takes a value of 4 bytes, and was given memory"),
        (1, None, "argument 1 takes a value of 4 bytes, and was given None"),
        (1, cl.LocalMemory(8), "argument 1 takes a value of 4 bytes, and was given local memory"),
        (0, np.float32(1), "argument 0 (takes memory, and was|of add is declared a pointer)"),
    ):
        with pytest.raises(SYCLError, match=words):
            node.set_arg(index, value)


@pytest.mark.parametrize("what", ["keep", "swap"])
def test_capture_takes_none_for_an_empty_list_and_names_what_is_no_list(
    queue: Any, buffer: Any, what: str
) -> None:
    for given in (None, (), []):
        with fairlead.capture(queue, **{what: given}) as graph:
            cl.enqueue_fill_buffer(queue, buffer, np.float32(1), 0, 64)
        assert len(graph) == 1
    for wrong in (5, True):
        with pytest.raises(ArgumentError, match=f"capture: {what} is a list, not"):
            fairlead.capture(queue, **{what: wrong})


def test_capture_keeps_one_array_that_is_no_list(queue: Any, buffer: Any) -> None:
    array = np.ones(16, np.float32)
    count = sys.getrefcount(array)
    with fairlead.capture(queue, keep=array) as graph:
        cl.enqueue_fill_buffer(queue, buffer, np.float32(1), 0, 64)
    assert sys.getrefcount(array) > count and len(graph) == 1


@pytest.mark.parametrize("wrong", [np.zeros(3), np.float32(1), np.zeros(()), True, 3, [1]])
def test_replay_waits_for_events_only(graph: CapturedGraph, queue: Any, wrong: Any) -> None:
    with pytest.raises(
        ArgumentError, match=r"wait_for is not a list of events|expected a pyopencl\."
    ):
        graph.finalize().replay(queue, wait_for=wrong)


def test_set_takes_three_arguments_or_names(graph: CapturedGraph) -> None:
    loop = graph.finalize(updatable=True)
    for wrong in ((3,), (graph[0], 1), (1, 2, 3, 4)):
        with pytest.raises(ArgumentError, match=rf"set: {len(wrong)} arguments were given"):
            loop.set(*wrong)
    for wrong in (0, None, loop):
        with pytest.raises(
            ArgumentError, match=r"(?s)expected a node .*, got .*set\(graph\[0\]"
        ) as e:
            loop.set(wrong, 1, np.float32(1))
        assert type(wrong).__name__ in str(e.value)


@pytest.mark.parametrize("make_copy", [copy.deepcopy, pickle.dumps])
def test_nothing_of_a_graph_can_be_copied(
    graph: CapturedGraph,
    queue: Any,
    make_copy: Callable[[Any], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dropped: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", dropped.append)
    loop = graph.finalize(updatable=True)
    parts = graph[0], graph.device
    graphs = graph, loop, graph.command_graph, loop.executable_graph
    whole = graphs if make_copy is copy.deepcopy else ()
    for one in (*parts, *whole):
        with pytest.raises(CopyError, match=f"copy: {type(one).__name__} objects cannot be"):
            make_copy(one)
    with pytest.raises(CopyError):
        copy.copy(graph[0])
    assert copy.copy(graph) is graph and copy.copy(loop) is loop
    gc.collect()
    assert not dropped
    loop.replay(queue).wait()
    assert len(graph[0].successors) == 0 and len(graph) == 1


def test_objects_that_were_not_made_to_their_end_go_quietly(
    graph: CapturedGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An `__init__` that raises leaves such an object."""
    importlib.import_module("fairlead.plugins.cuda.buffers")  # what other tests may have imported
    dropped: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", dropped.append)
    modules = [module for name, module in sys.modules.items() if name.startswith("fairlead.")]
    classes = {
        thing
        for module in modules
        for thing in vars(module).values()
        if isinstance(thing, type) and hasattr(thing, "__del__")
    }
    assert len(classes) > 8
    for one in classes:
        if not issubclass(one, fairlead.Parameter):  # its `__new__` makes a number
            one.__new__(one)
    gc.collect()
    assert [report.exc_value for report in dropped] == []
