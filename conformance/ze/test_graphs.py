"""Graphs: what immediate lists are given is captured and replayed."""

from __future__ import annotations

import ctypes
from ctypes import c_int32
from pathlib import Path

import pytest

from fairlead.conformance.checks import equal, rule, unsupported
from fairlead.conformance.ze.calls import ZECalls, handles
from fairlead.conformance.ze.objects import Ints, ZEObjects
from fairlead.loader.ze.driver import ZEDevice

BEGIN, END = "zeCommandListBeginGraphCaptureExt", "zeCommandListEndGraphCaptureExt"
INTO, ENABLED = "zeCommandListBeginCaptureIntoGraphExt", "zeCommandListIsGraphCaptureEnabledExt"
APPEND, INSTANTIATE = "zeCommandListAppendGraphExt", "zeGraphInstantiateExt"
EMPTY = "zeGraphIsEmptyExt"
_NAME = "ZE_extension_record_replay_graph"


class Graphs:
    """Captures of an immediate list, and their replay. What it makes ends with the case."""

    def __init__(self, make: ZEObjects, ze: ZECalls) -> None:
        self.make, self.ze, self.list = make, ze, make.immediate()

    def begin(self) -> None:
        self.ze.ok(BEGIN, self.list)

    def end(self) -> int:
        graph = self.ze.create(END, self.list)
        self.make.defer(lambda: self.ze.number("zeGraphDestroyExt", graph))
        return graph

    def instantiate(self, graph: int) -> int:
        made = self.ze.create(INSTANTIATE, graph)
        self.make.defer(lambda: self.ze.number("zeExecutableGraphDestroyExt", made))
        return made

    def append(self, executable: int, signal: int = 0, *waits: int) -> None:
        waiting = len(waits), handles(*waits) if waits else None
        self.ze.ok(APPEND, self.list, executable, None, signal, *waiting)

    def check_replay(self, executable: int, out: Ints, *expected: int) -> None:
        """Replay a graph, and check what it has written."""
        self.append(executable)
        self.make.finish(self.list)
        equal(out.all, list(expected), "what the graph has written")


@pytest.fixture
def graphs(make: ZEObjects, ze: ZECalls, chosen: ZEDevice) -> Graphs:
    """Captures graphs, if the driver has the extension."""
    if _NAME not in chosen.driver.extensions:
        unsupported(f"the driver has no {_NAME}")
    return Graphs(make, ze)


@rule(BEGIN, "what is captured runs when its graph is appended, each time")
def test_replay(graphs: Graphs, make: ZEObjects) -> None:
    out = make.ints(1)
    kernel = make.kernel("twice", out.pointer)
    graphs.begin()
    for _ in range(2):
        make.launch(graphs.list, kernel, 1)
    graph = graphs.end()
    equal(out.all, [1], "what the capture itself has written")
    executable = graphs.instantiate(graph)
    for expected in (4, 16, 64):
        graphs.check_replay(executable, out, expected)


@rule(BEGIN, "a launch takes the arguments of the capture's time")
def test_moment(graphs: Graphs, make: ZEObjects) -> None:
    out = make.ints(count=1)
    kernel = make.kernel("store", out.pointer, c_int32(5))
    graphs.begin()
    make.launch(graphs.list, kernel, 1)
    executable = graphs.instantiate(graphs.end())
    make.set(kernel, 1, c_int32(7))
    graphs.check_replay(executable, out, 5)


@rule(INTO, "the graph that was given is the one that the capture ends with")
def test_into(graphs: Graphs, make: ZEObjects, ze: ZECalls) -> None:
    out, graph = make.ints(count=1), ze.create("zeGraphCreateExt", make.context)
    ze.ok(INTO, graphs.list, graph)
    make.launch(graphs.list, make.kernel("store", out.pointer, c_int32(5)), 1)
    equal(graphs.end(), graph, "the graph")
    graphs.check_replay(graphs.instantiate(graph), out, 5)


@rule(ENABLED, "tells of a capture while it lasts")
def test_enabled(graphs: Graphs, ze: ZECalls) -> None:
    ze.answers("QUERY_FALSE", ENABLED, graphs.list)
    graphs.begin()
    ze.answers("QUERY_TRUE", ENABLED, graphs.list)
    graphs.end()
    ze.answers("QUERY_FALSE", ENABLED, graphs.list)


@rule(EMPTY, "tells whether something was captured")
def test_empty(graphs: Graphs, make: ZEObjects, ze: ZECalls) -> None:
    graphs.begin()
    ze.answers("QUERY_TRUE", EMPTY, graphs.end())
    graphs.begin()
    make.launch(graphs.list, make.kernel("store", make.ints(1).pointer, c_int32(5)), 1)
    ze.answers("QUERY_FALSE", EMPTY, graphs.end())


@rule(APPEND, "waits for events, and signals one")
def test_events(graphs: Graphs, make: ZEObjects, ze: ZECalls) -> None:
    out, (before, after) = make.ints(count=1), make.events(2)
    graphs.begin()
    make.launch(graphs.list, make.kernel("store", out.pointer, c_int32(5)), 1)
    executable = graphs.instantiate(graphs.end())
    graphs.append(executable, after, before)
    ze.answers("NOT_READY", "zeEventQueryStatus", after)
    ze.ok("zeEventHostSignal", before)
    make.finish(graphs.list, after)
    equal(out.all, [5], "what the graph has written")


@rule(BEGIN, "a list that waits for an event of the capture joins it")
def test_fork(graphs: Graphs, make: ZEObjects, ze: ZECalls) -> None:
    out, other, (fork, join) = make.ints(1), make.immediate(), make.events(2)
    kernel = make.kernel("twice", out.pointer)
    graphs.begin()
    make.launch(graphs.list, kernel, 1, fork)
    make.launch(other, kernel, 1, join, fork)
    ze.answers("QUERY_TRUE", ENABLED, other)
    make.launch(graphs.list, kernel, 1, 0, join)
    executable = graphs.instantiate(graphs.end())
    for expected in (8, 64):
        graphs.check_replay(executable, out, expected)


@rule(END, "a list that was not joined again loses the capture")
def test_unjoined(graphs: Graphs, make: ZEObjects, ze: ZECalls) -> None:
    out, other, (fork,) = make.ints(1), make.immediate(), make.events(1)
    kernel = make.kernel("twice", out.pointer)
    graphs.begin()
    make.launch(graphs.list, kernel, 1, fork)
    make.launch(other, kernel, 1, 0, fork)
    ze.refuses("GRAPH_UNJOINED_FORKS", END, graphs.list, None, ctypes.c_void_p())
    make.launch(other, kernel, 1)
    make.finish(other)
    equal(out.all, [2], "what the other list writes after the capture")


@rule("zeGraphDestroyExt", "an executable graph runs without its source")
def test_source(graphs: Graphs, make: ZEObjects, ze: ZECalls) -> None:
    out = make.ints(count=1)
    graphs.begin()
    make.launch(graphs.list, make.kernel("store", out.pointer, c_int32(5)), 1)
    graph = ze.create(END, graphs.list)
    executable = graphs.instantiate(graph)
    source = ze.create("zeExecutableGraphGetSourceGraphExt", executable)
    equal(source, graph, "the source graph")
    ze.ok("zeGraphDestroyExt", graph)
    graphs.check_replay(executable, out, 5)


@rule(BEGIN, "regular lists are not captured")
def test_regular(graphs: Graphs, make: ZEObjects, ze: ZECalls) -> None:
    ze.refuses("INVALID_COMMAND_LIST_TYPE", BEGIN, make.list())


@rule(BEGIN, "a list is captured once at a time")
def test_twice(graphs: Graphs, ze: ZECalls) -> None:
    graphs.begin()
    ze.refuses("INVALID_ARGUMENT", BEGIN, graphs.list)
    graphs.end()
    ze.refuses("INVALID_ARGUMENT", END, graphs.list, None, ctypes.c_void_p())


@rule("zeGraphDumpContentsExt", "writes a file")
def test_dump(graphs: Graphs, make: ZEObjects, ze: ZECalls, tmp_path: Path) -> None:
    graphs.begin()
    make.launch(graphs.list, make.kernel("store", make.ints(1).pointer, c_int32(5)), 1)
    file = tmp_path / "graph"
    ze.ok("zeGraphDumpContentsExt", graphs.end(), str(file).encode())
    equal(file.stat().st_size > 0, True, "the file has a content")
