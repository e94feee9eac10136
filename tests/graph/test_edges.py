"""The edges of graphs, row by row: recordings, barriers, accessors and explicit dependencies (spec
rows A12, A15, A16, A23).

A program is a line of words, of which each node is one:

- `A`: a command of queue A. `A|`: a barrier of it. The queues I and J are in order.
- `+`: an explicit node. `+*` comes after all leaves.
- `A(0,1)`, `A|(0)`, `+(0,1)`: after nodes 0 and 1.
- `A:rx,wy`: a host task that reads buffer x and writes y (u: reads and writes, d: discards).
- `<AB`: the queues A and B begin to record. `>`: the recording ends. `0>1`: an edge is made.

Edges that follow from accessors (spec row A15).

DPC++ does not order a write after reads and writes; this does.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import product
from typing import Final

import numpy
import pytest
from helpers.graphs import edges
from helpers.sycl import N

from fairlead.graph import CommandGraph
from fairlead.runtime import USM, Buffer, Event, Handler, Program, Queue

#: Edges are found before a driver is asked.
pytestmark = pytest.mark.one_driver

MODES: Final = {"r": "read", "w": "write", "u": "read_write", "d": "discard"}
NODE: Final = re.compile(r"([A-Z+])(\|?)(?:\(([\d,]+)\))?(\*?)(?::([\w,]+))?")
ROWS: Final = {
    # barriers
    "after all exits of its queue, before what follows": (
        "<A A A A(0) A| A A >",
        "0-2 1-3 2-3 3-4 3-5",
    ),
    "after a barrier": ("<A A| A| A A| >", "0-1 1-2 2-3"),
    "a barrier of events after these alone": ("<A A A A|(0) A A| >", "0-2 1-4 2-3 3-4"),
    "barriers of events add up": ("<A A A A|(0) A|(1) A >", "0-2 1-3 2-3 3-4"),
    "other queues go past a barrier": ("<AB A B A| B A >", "0-2 2-4"),
    "a barrier after another queue": ("<AB B A|(0) A B(1) >", "0-1 1-2 1-3"),
    "explicit nodes beside a barrier": ("+ <A A A| > +", "1-2"),
    "a barrier before the next recording": ("<A A A| > <A A >", "0-1 1-2"),
    "a barrier after what another queue follows": ("<AB A B(0) A| >", "0-1 0-2"),
    # queues
    "queues that are not in order": ("<A A > <B B > <A A > + <AB A B >", ""),
    "a path goes on, explicit nodes are none of it": ("<I I > + <I I >", "0-2"),
    "each queue in order has its path": ("<IJ I J I J(0) >", "0-2 0-3 1-3"),
    # explicit nodes
    "a recorded node after an explicit one": ("+ <A A(0) >", "0-1"),
    "all leaves of separate nodes": ("+ + + +*", "0-3 1-3 2-3"),
    "all leaves, of which one has a predecessor": ("+ + + +(2) +*", "0-4 1-4 2-3 3-4"),
    "all leaves of a path and of a diamond": ("+ +(0) +(0) +* +*", "0-1 0-2 1-3 2-3 3-4"),
    "all leaves of nothing": ("+*", ""),
    "all leaves and another node": ("+ +(0) +(0)*", "0-1 0-2 1-2"),
    "an edge twice": ("+ + 0>1 0>1", "0-1"),
    # buffers
    "readers after the last writer alone": ("+:wx +:ux +:rx +:rx", "0-1 1-2 1-3"),
    "a writer after the readers since the last one": (
        "+:wx +:rx +:rx +:wx +:rx",
        "0-1 0-2 0-3 1-3 2-3 3-4",
    ),
    "other buffers": ("+:wx +:wy +:rx,uy", "0-2 1-2"),
    "added and recorded uses": ("+:wx <A A:rx > +:wx", "0-1 0-2 1-2"),
    **{f"{one}, {two} by one node": (f"+:{one}x,{two}x +:wx", "0-1") for one, two in ("rw", "wr")},
    **{f"{one} twice by one node": (f"+:{one}x,{one}x +:wx", "0-1") for one in "rw"},
    **{
        f"{one}, then {two}{' recorded' * len(begin)}": (
            f"{begin} {who}:{one}x {who}:{two}x",
            "" if one == two == "r" else "0-1",
        )
        for one, two in product(MODES, repeat=2)
        for begin, who in (("", "+"), ("<A", "A"))
    },
}


def make(program: str, queue: Queue, memory: USM) -> CommandGraph:
    """Return the graph of a program."""
    graph = CommandGraph(queue, assume_buffer_outlives_graph=True)
    events: list[Event] = []

    @cache
    def get(name: str) -> Queue:
        return Queue(queue.device, in_order=name in "IJ")

    @cache
    def get_buffer(name: str) -> Buffer:
        return Buffer(numpy.zeros(N, numpy.int32), write_back=False)

    for word in program.split():
        if word[0] == "<":
            graph.begin_recording([get(name) for name in word[1:]])
        elif word == ">":
            graph.end_recording()
        elif found := NODE.fullmatch(word):
            who, barrier, after, leaves, uses = found.groups()
            waits = [events[int(number)] for number in after.split(",")] if after else []

            def group(handler: Handler, uses: str = uses) -> None:
                for mode, name in uses.split(","):
                    handler.access(get_buffer(name), MODES[mode])
                handler.host_task(lambda: None)

            if who == "+":
                nodes = [one.node for one in waits]
                node = graph.add(
                    group if uses else None, depends_on=nodes, depends_on_all_leaves=bool(leaves)
                )
                events.append(node.event())
            elif uses:
                events.append(get(who).submit(group))
            elif barrier:
                events.append(get(who).barrier(waits) if waits else get(who).barrier())
            else:
                events.append(get(who).memset(memory, 0, depends_on=waits))
        else:
            graph.make_edge(*(graph.nodes[int(number)] for number in word.split(">")))
    assert len(graph) == len(events)
    graph.end_recording()
    return graph


@pytest.mark.parametrize(("program", "expected"), ROWS.values(), ids=ROWS)
def test_edges_are_those_of_the_program(
    queue: Queue, memory: USM, program: str, expected: str
) -> None:
    found = edges(make(program, queue, memory))
    assert " ".join(f"{one}-{two}" for one, two in sorted(found)) == expected


@pytest.fixture
def buffer() -> Buffer:
    return Buffer(numpy.zeros(N, numpy.int32), write_back=False)


def uses(*accesses: tuple[Buffer, str]):
    """A command group that accesses buffers."""

    def group(handler: Handler) -> None:
        for buffer, mode in accesses:
            handler.access(buffer, mode)
        handler.host_task(lambda: None)

    return group


def test_parts_of_one_buffer_are_ordered_as_the_whole(graph: CommandGraph, buffer: Buffer) -> None:
    graph.add(lambda h: h.fill(h.access(buffer, "write", 4, 0), 1))
    graph.add(lambda h: h.fill(h.access(buffer, "write", 4, 8), 2))
    assert edges(graph) == {(0, 1)}


def test_a_sub_graph_uses_what_its_nodes_use(
    queue: Queue, graph: CommandGraph, buffer: Buffer
) -> None:
    inner, other = CommandGraph(queue, assume_buffer_outlives_graph=True), Buffer(N, numpy.int32)
    inner.add(uses((buffer, "read")))
    inner.add(uses((buffer, "write"), (other, "read")))
    executable = inner.finalize()
    graph.add(uses((other, "write")))
    graph.add(lambda h: h.graph_execution(executable))
    graph.add(uses((other, "read")))
    graph.add(uses((buffer, "read")))
    assert edges(graph) == {(0, 1), (0, 2), (1, 3)}


def test_the_order_holds_when_it_runs(
    queue: Queue, graph: CommandGraph, program: Program, buffer: Buffer
) -> None:
    copies = [Buffer(N, numpy.int32) for _ in range(4)]
    for number, copy in enumerate(
        copies
    ):  # each write must wait for the copy before it, each copy for the write
        graph.add(
            lambda h, number=number: h.parallel_for(
                N, program.store, h.access(buffer, "discard"), numpy.int32(number)
            )
        )
        graph.add(lambda h, copy=copy: h.copy(h.access(buffer, "read"), h.access(copy, "discard")))
    executable = graph.finalize()
    for _ in range(5):
        queue.graph(executable)
    assert [set(copy.numpy()) for copy in copies] == [{0}, {1}, {2}, {3}]


def test_executions_and_other_commands_are_ordered_by_their_buffers(
    queue: Queue, graph: CommandGraph, program: Program, buffer: Buffer
) -> None:
    graph.add(lambda h: h.parallel_for(N, program.mul, h.access(buffer), numpy.int32(3)))
    executable = graph.finalize()
    queue.submit(
        lambda h: h.parallel_for(N, program.store, h.access(buffer, "discard"), numpy.int32(2))
    )
    queue.graph(executable)
    queue.submit(lambda h: h.parallel_for(N, program.add, h.access(buffer), numpy.int32(1)))
    queue.graph(executable)
    with buffer.host_access() as array:
        assert (array == 21).all()
        array[:] = 1
    queue.graph(executable)
    assert (buffer.numpy() == 3).all()


def test_finalize_waits_until_the_contents_of_buffers_are_there(
    queue: Queue, graph: CommandGraph, program: Program, buffer: Buffer
) -> None:
    written = queue.submit(
        lambda h: h.parallel_for(N, program.slow, h.access(buffer), numpy.int32(3_000_000))
    )
    graph.add(lambda h: h.parallel_for(N, program.add, h.access(buffer), numpy.int32(1)))
    executable = graph.finalize()
    assert written.status == "complete"
    contents = buffer.numpy()
    queue.graph(executable)
    assert (buffer.numpy() == contents + 1).all()


def test_a_buffer_begins_with_its_array_whatever_uses_it_first(
    queue: Queue, graph: CommandGraph, program: Program
) -> None:
    buffer = Buffer(numpy.arange(N, dtype=numpy.int32), write_back=False)
    result = Buffer(N, numpy.int32)
    graph.add(
        lambda h: h.parallel_for(
            N, program.copy, h.access(buffer, "read"), h.access(result, "discard")
        )
    )
    queue.graph(graph.finalize())
    assert (result.numpy() == numpy.arange(N)).all()
