"""Graphs and memory that are dropped, or updated, before their submission has run.

A submission is *deferred* while it waits for what no adapter knows: a host task, or another
context. Then nobody but the submission has the memory.
"""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final

import numpy
import pytest
from helpers.sycl import Gate, N, zeros

from fairlead.graph import CommandGraph, DynamicParameter
from fairlead.runtime import USM, Device, Event, Handler, Program, Queue, from_dlpack, malloc_device


def note_end(owner: Any) -> threading.Event:
    """Return what is set when nobody has memory any more. A thread of the scheduler may have it for
    a moment longer than its command runs."""
    gone = threading.Event()
    weakref.finalize(getattr(owner, "allocation", owner), gone.set)
    return gone


def launch(handler: Handler, program: Program, memory: Any) -> None:
    """Add 1 to the memory."""
    handler.parallel_for(N, program.add, memory, numpy.int32(1))


def in_graph(
    graph: CommandGraph, queue: Queue, gate: Gate, add: Callable[[Handler], object]
) -> Event:
    """A host task of the graph comes before its command."""
    task = graph.add(lambda h: h.host_task(gate.event.wait))
    graph.add(add, depends_on=task)
    return queue.graph(graph.finalize())


def behind(
    graph: CommandGraph, queue: Queue, gate: Gate, add: Callable[[Handler], object]
) -> Event:
    """The submission waits for a host task."""
    graph.add(add)
    return queue.graph(graph.finalize(), depends_on=[gate.event])


def in_sub_graph(
    graph: CommandGraph, queue: Queue, gate: Gate, add: Callable[[Handler], object]
) -> Event:
    inner = CommandGraph(queue)
    inner.add(add)
    made = inner.finalize()
    return in_graph(graph, queue, gate, lambda h: h.graph_execution(made))


def after_choice(
    graph: CommandGraph, queue: Queue, gate: Gate, add: Callable[[Handler], object]
) -> Event:
    """A choice, whose graph runs the command, is submitted behind a host task; then the command
    once more."""
    inner = CommandGraph(queue)
    inner.add(add)
    flag = zeros(queue, 1)
    flag.array[:] = 1
    node = graph.if_else(flag, inner.finalize())
    graph.add(add, depends_on=node)
    return queue.graph(graph.finalize(), depends_on=[gate.event])


def after_loop(
    graph: CommandGraph, queue: Queue, gate: Gate, add: Callable[[Handler], object]
) -> Event:
    """The same with a loop of one turn."""
    inner, flag = CommandGraph(queue), zeros(queue, 1)
    flag.array[:] = 1
    node = inner.add(add)
    inner.add(lambda h: h.memset(flag, 0), depends_on=node)
    loop = graph.while_loop(inner.finalize(), flag)
    graph.add(add, depends_on=loop)
    return queue.graph(graph.finalize(), depends_on=[gate.event])


WAYS: Final = [in_graph, behind, in_sub_graph, after_choice, after_loop]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["launch", "memcpy", "dlpack"])
def test_a_dropped_graph_keeps_its_memory_until_it_has_run(
    queue: Queue, program: Program, gate: Gate, way: Callable[..., Event], kind: str
) -> None:
    memory = zeros(queue)
    result = zeros(queue)
    if kind == "dlpack":
        memory = from_dlpack(memory, queue)
    gone = note_end(memory)

    def add(handler: Handler, memory: USM = memory) -> None:
        if kind == "memcpy":
            handler.memcpy(memory, result)
        else:
            launch(handler, program, memory)

    event = way(CommandGraph(queue), queue, gate, add)
    del memory, add
    gc.collect()
    assert not gone.is_set()
    gate.open()
    event.wait()
    gc.collect()
    assert gone.wait(60)


def test_a_dropped_graph_keeps_its_memory_while_it_waits_for_another_context(
    queue: Queue, program: Program, other_device: Device, gate: Gate
) -> None:
    other = Queue(other_device)
    theirs = malloc_device(N, numpy.int32, other)
    before = other.memset(theirs, 0, depends_on=[gate.event])
    memory = zeros(queue)
    gone, graph = note_end(memory), CommandGraph(queue)
    graph.add(lambda h, memory=memory: launch(h, program, memory))
    event = queue.graph(graph.finalize(), depends_on=[before])
    del memory, graph
    gc.collect()
    assert not gone.is_set()
    gate.open()
    event.wait()
    gc.collect()
    assert gone.wait(60)


class Theirs:
    """Memory of another package, which frees it at once."""

    def __init__(self, memory: USM) -> None:
        self.memory = memory
        self.__sycl_usm_array_interface__ = memory.__sycl_usm_array_interface__


def test_memory_that_an_update_took_out_lives_until_earlier_submissions_have_run(
    queue: Queue, program: Program, device_gate: Gate
) -> None:
    """And so does the memory that it put in until later ones have."""
    graph, first, second = CommandGraph(queue), Theirs(zeros(queue)), Theirs(zeros(queue))
    parameter = DynamicParameter(graph, first)
    node = graph.add(lambda h, parameter=parameter: launch(h, program, parameter))
    executable, gone = graph.finalize(updatable=True), list(map(note_end, [first, second]))
    events = [queue.graph(executable, depends_on=[device_gate.event])]
    parameter.update(second)
    executable.update(node)
    events.append(queue.graph(executable))
    del graph, node, parameter, executable, first, second
    gc.collect()
    assert not any(one.is_set() for one in gone)
    device_gate.open()
    for event in events:
        event.wait()
    gc.collect()
    assert all(one.wait(60) for one in gone)
