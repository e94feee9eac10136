"""Graphs: what immediate lists are given is captured, and replayed.

Lists with branches: a queue in order runs them at the same time.
"""

from __future__ import annotations

import ctypes
import gc
from ctypes import c_int
from pathlib import Path
from typing import Any

import pytest
from helpers.drivers import Driver
from helpers.ze_bench import FOREVER, Ints, ZeBench
from helpers.ze_calls import ZeCalls, array, new

from fairlead.icd.command_buffer import direct_device
from fairlead.icd.drivers import platforms
from fairlead.loader.ze.abi import ZE
from fairlead.plugins.level_zero import contexts
from fairlead.plugins.level_zero.core import driver
from fairlead.plugins.level_zero.lists import ZeCommandList
from fairlead.plugins.level_zero.queues import ZeQueue

BEGIN, END = "zeCommandListBeginGraphCaptureExt", "zeCommandListEndGraphCaptureExt"
APPEND, SYNCHRONIZE = "zeCommandListAppendGraphExt", "zeCommandListHostSynchronize"


class Graphs:
    """Captures and replays on a bench."""

    def __init__(self, bench: ZeBench) -> None:
        self.bench, self.ze = bench, bench.ze
        self.list = bench.immediate()

    def begin(self) -> None:
        self.ze.ok(BEGIN, self.list)

    def end(self) -> int:
        return self.ze.make(END, self.list)

    def instantiate(self, graph: int) -> int:
        return self.ze.make("zeGraphInstantiateExt", graph)

    def append(self, executable: int, signal: int = 0, *waits: int) -> None:
        listed = array(*waits) if waits else None
        self.ze.ok(APPEND, self.list, executable, None, signal, len(waits), listed)

    def replay(self, executable: int) -> None:
        self.append(executable)
        self.ze.ok(SYNCHRONIZE, self.list, FOREVER)

    def launch(self, name: str, out: Ints, value: int, *events: int, made: int = 0) -> None:
        kernel = self.bench.kernel(name, out.pointer, c_int(value))
        self.bench.launch(made or self.list, kernel, 4, *events)


@pytest.fixture
def graphs(bench: ZeBench) -> Graphs:
    return Graphs(bench)


def test_captures_do_not_become_one(graphs: Graphs) -> None:
    out, second = graphs.bench.ints(count=4), Graphs(graphs.bench)
    (event,) = graphs.bench.events(1)
    graphs.begin()
    second.begin()
    graphs.launch("add", out, 1, event)
    kernel = graphs.bench.kernel("add", out.pointer, c_int(2))
    count = new("ze_group_count_t", groupCountX=1, groupCountY=1, groupCountZ=1)
    given = second.list, kernel, ctypes.byref(count), None, 1, array(event)
    code = graphs.ze.code("zeCommandListAppendLaunchKernel", *given)
    assert code == "GRAPH_CAPTURE_MERGE_ATTEMPT"
    assert graphs.ze.code("zeGraphIsEmptyExt", second.end()) == "QUERY_TRUE"
    graphs.instantiate(graphs.end())


def test_an_event_of_a_capture_is_not_used_outside(graphs: Graphs) -> None:
    ze, out = graphs.ze, graphs.bench.ints(count=4)
    (event,) = graphs.bench.events(1)
    graphs.begin()
    graphs.launch("add", out, 1, event)
    calls: list[tuple[Any, ...]] = [
        ("zeEventQueryStatus", event),
        ("zeEventHostSynchronize", event, FOREVER),
        ("zeEventHostSignal", event),
        ("zeEventHostReset", event),
        ("zeCommandListAppendWaitOnEvents", graphs.bench.list(), 1, array(event)),
    ]
    for call in calls:
        assert ze.code(*call) == "GRAPH_INTERNAL_EVENT", call
    executable = graphs.instantiate(graphs.end())
    assert ze.code("zeEventQueryStatus", event) == "NOT_READY"
    graphs.replay(executable)
    ze.ok("zeEventQueryStatus", event)


def test_events_of_elsewhere_are_waited_for_at_each_replay(graphs: Graphs) -> None:
    ze, out = graphs.ze, graphs.bench.ints(count=4)
    gate, before, after = graphs.bench.events(3)
    graphs.begin()
    graphs.launch("add", out, 2, 0, gate)
    executable = graphs.instantiate(graphs.end())
    for expected in (2, 4):
        graphs.append(executable, after, before)
        ze.ok("zeEventHostSignal", before)
        assert ze.code("zeEventHostSynchronize", after, 1000) == "NOT_READY"
        ze.ok("zeEventHostSignal", gate)
        ze.ok("zeEventHostSynchronize", after, FOREVER)
        assert out.all == [expected] * 4
        for event in (gate, before, after):
            ze.ok("zeEventHostReset", event)


def test_what_cannot_be_captured_loses_the_capture(graphs: Graphs) -> None:
    ze, closed = graphs.ze, graphs.bench.list()
    ze.ok("zeCommandListClose", closed)
    graphs.begin()
    executable = graphs.instantiate(graphs.end())
    append = "zeCommandListImmediateAppendCommandListsExp"
    calls: list[tuple[Any, ...]] = [
        (SYNCHRONIZE, graphs.list, FOREVER),
        (append, graphs.list, 1, array(closed), None, 0, None),
        (APPEND, graphs.list, executable, None, None, 0, None),
    ]
    for call in calls:
        graph = ze.make("zeGraphCreateExt", graphs.bench.context)
        ze.ok("zeCommandListBeginCaptureIntoGraphExt", graphs.list, graph)
        assert ze.code(*call) == "GRAPH_CAPTURE_UNSUPPORTED", call
        assert ze.code(END, graphs.list, None, array(0)) == "GRAPH_CAPTURE_INVALIDATED"
        assert ze.code("zeGraphInstantiateExt", graph, None, array(0)) == "INVALID_GRAPH"
        ze.ok("zeGraphDestroyExt", graph)


def test_wrong_captures_are_refused(graphs: Graphs) -> None:
    ze, bench = graphs.ze, graphs.bench
    synchronous = bench.immediate(mode=ZE["ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS"])
    graph = ze.make("zeGraphCreateExt", bench.context)
    into = "zeCommandListBeginCaptureIntoGraphExt"
    regular = bench.list()
    assert ze.code(BEGIN, regular) == "INVALID_COMMAND_LIST_TYPE"
    assert ze.code(BEGIN, synchronous) == "INVALID_ARGUMENT"
    assert ze.code(into, graphs.list, None, None) == "INVALID_NULL_HANDLE"
    assert ze.code(END, graphs.list, None, array(0)) == "INVALID_ARGUMENT"
    assert ze.code("zeCommandListGetGraphExt", graphs.list, array(0)) == "INVALID_ARGUMENT"
    assert ze.code("zeGraphGetPrimaryCommandListExt", graph, array(0)) == "INVALID_GRAPH"
    ze.ok(into, graphs.list, graph, None)
    assert ze.code("zeGraphInstantiateExt", graph, None, array(0)) == "INVALID_GRAPH"
    assert ze.code(BEGIN, graphs.list) == "INVALID_ARGUMENT"
    assert graphs.end() == graph
    assert ze.make("zeGraphGetPrimaryCommandListExt", graph) == graphs.list
    assert ze.code(into, graphs.list, graph, None) == "INVALID_GRAPH", "it has a capture"
    executable = graphs.instantiate(graph)
    given = executable, None, None, 0, None
    assert ze.code(APPEND, regular, *given) == "INVALID_COMMAND_LIST_TYPE"
    ze.ok("zeGraphDestroyExt", graph)
    assert ze.code("zeExecutableGraphGetSourceGraphExt", executable, array(0)) == "INVALID_GRAPH"
    ze.ok("zeExecutableGraphDestroyExt", executable)
    assert ze.code(APPEND, graphs.list, *given) == "INVALID_GRAPH"


def test_the_capture_of_a_graph_that_is_destroyed_ends(graphs: Graphs) -> None:
    ze, out = graphs.ze, graphs.bench.ints(0)
    graph = ze.make("zeGraphCreateExt", graphs.bench.context)
    ze.ok("zeCommandListBeginCaptureIntoGraphExt", graphs.list, graph)
    kernel = graphs.bench.kernel("add", out.pointer, ctypes.c_int(1))
    graphs.bench.launch(graphs.list, kernel)
    ze.ok("zeGraphDestroyExt", graph)
    assert ze.code(END, graphs.list, None, array(0)) == "INVALID_ARGUMENT"
    graphs.bench.launch(graphs.list, kernel)
    ze.ok(SYNCHRONIZE, graphs.list, FOREVER)
    assert out[0] == 1


def test_the_program_is_called_when_nobody_needs_the_graph(graphs: Graphs) -> None:
    ze, out, calls = graphs.ze, graphs.bench.ints(count=4), list[int]()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(calls.append)
    graphs.begin()
    graphs.launch("add", out, 1)
    graph = graphs.end()
    ze.ok("zeGraphSetDestructionCallbackExt", graph, function, 7)
    executable = graphs.instantiate(graph)
    ze.ok("zeGraphDestroyExt", graph)
    graphs.replay(executable)
    assert not calls
    ze.ok("zeExecutableGraphDestroyExt", executable)
    gc.collect()
    assert calls == [7]
    empty = ze.make("zeGraphCreateExt", graphs.bench.context)
    ze.ok("zeGraphSetDestructionCallbackExt", empty, function, 8)
    ze.ok("zeGraphDestroyExt", empty)
    gc.collect()
    assert calls == [7, 8]


def test_a_graph_is_drawn(graphs: Graphs, tmp_path: Path) -> None:
    ze, out, file = graphs.ze, graphs.bench.ints(count=4), tmp_path / "graph.dot"
    graphs.begin()
    graphs.launch("add", out, 1)
    graphs.launch("mul", out, 3)
    graph = graphs.end()
    path = str(file).encode()
    ze.ok("zeGraphDumpContentsExt", graph, path)
    assert "local_size" in file.read_text(encoding="utf-8")
    simple: Any = new("ze_record_replay_graph_ext_dump_desc_t", mode=1)
    ze.ok("zeGraphDumpContentsExt", graph, path, ctypes.byref(simple))
    lines = file.read_text(encoding="utf-8").splitlines()
    assert lines == [
        "digraph captured {",
        '  n0 [label="add(4)"];',
        '  n1 [label="mul(4)"];',
        "  n0 -> n1;",
        "}",
    ]
    missing = str(tmp_path / "none" / "x").encode()
    assert ze.code("zeGraphDumpContentsExt", graph, missing) == "INVALID_ARGUMENT"


def test_the_device_tells_of_graphs(bench: ZeBench) -> None:
    row: Any = new("ze_record_replay_graph_ext_properties_t")
    bench.ze.properties(
        "zeDeviceGetProperties", "ze_device_properties_t", bench.device, chained=row
    )
    assert row.graphFlags == ZE["ZE_RECORD_REPLAY_GRAPH_EXT_FLAG_IMMUTABLE_GRAPH"]


MEASURED = 40  # runs after which the engine knows what it shares


def explain(bench: ZeBench, made: int) -> str:
    """Return how the only part of a list runs."""
    list_ = driver.objects.list_owned(ZeCommandList.type)[made]
    queue = driver.objects.list_owned(ZeQueue.type)[bench.queue]
    (part,) = list_.recording.list_parts()
    return part.buffer.explain(queue.stream.cl)


def copy(bench: ZeBench, made: int, target: int, source: int, size: int, *waits: int) -> int:
    """Append a copy after others, and return the event of its end."""
    (end,) = bench.events(1)
    bench.copy(made, target, source, size, end, *waits)
    return end


@pytest.mark.parametrize("in_order", [False, True])
def test_threads_share_the_branches_of_a_list(
    ze: ZeCalls, direct_pocl: Driver, monkeypatch: pytest.MonkeyPatch, in_order: bool
) -> None:
    """Two branches of two copies. An in-order list has none."""
    monkeypatch.setattr(direct_device, "_LEAST", 0)
    monkeypatch.setattr(direct_device, "_PERCENT", 1 << 30)  # it is always worth it
    monkeypatch.setattr(direct_device, "query_compute_units", lambda device: 2)
    monkeypatch.setattr(direct_device, "count_cores", lambda: 2)
    found = [platform for platform in platforms() if platform.devices]
    place = next(number for number, one in enumerate(found) if direct_pocl.has(one))
    monkeypatch.setattr(contexts, "_shared", {})  # a new cl_context, of which nothing is known
    bench = ZeBench(ze, ze.listed("zeDriverGet")[place])
    numbers, made = bench.ints(7, 0, 0, 0, 0), bench.list(in_order=in_order)
    at = [numbers.address + 4 * index for index in range(5)]
    for middle in (1, 3):
        end = copy(bench, made, at[middle], at[0], 4)
        copy(bench, made, at[middle + 1], at[middle], 4, end)
    bench.close_list(made)
    for _ in range(MEASURED):
        bench.run(made)
    numbers[0] = 9
    bench.run(made)
    assert numbers.all == [9] * 5
    said = explain(bench, made)
    assert "one native kernel" in said
    assert ("2 threads run 4 commands together" in said) != in_order
    bench.ze.ok("zeCommandListDestroy", made)
    bench.close()
