"""Pictures of graphs (spec row A33).

`ExecutableGraph.explain` says how each command-buffer runs, on the reference adapter.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy
import numpy as np
import pytest
from helpers.graphs import refused
from helpers.support import RunPython
from helpers.sycl import N

from fairlead.graph import CommandGraph
from fairlead.loader.ur.abi import UR
from fairlead.runtime import USM, Buffer, Device, NDRange, Program, Queue, malloc_shared
from fairlead.runtime.transfers import TRANSFERS, Transfer


@pytest.fixture
def graph(queue: Queue, program: Program, memory: USM) -> CommandGraph:
    graph = CommandGraph(queue, assume_buffer_outlives_graph=True)
    first = graph.add(lambda h: h.parallel_for(NDRange(N, 8), program.add, memory, numpy.int32(1)))
    second = graph.add(lambda h: h.fill(memory, numpy.int32(7)), depends_on=first)
    graph.add(depends_on=[first, second])
    return graph


def test_a_box_for_each_node_and_an_arrow_for_each_edge(graph: CommandGraph) -> None:
    a, b, c = (node.id for node in graph.nodes)
    assert graph.to_dot() == "\n".join(
        [
            "digraph dot {",
            f'"{a}" [style=bold, label="ID = {a}\\nTYPE = kernel\\n"];',
            f'"{a}" -> "{b}"',
            f'"{a}" -> "{c}"',
            f'"{b}" [style=bold, label="ID = {b}\\nTYPE = memfill\\n"];',
            f'"{b}" -> "{c}"',
            f'"{c}" [style=bold, label="ID = {c}\\nTYPE = empty\\n"];',
            "}",
            "",
        ]
    )


def test_verbose_says_what_each_command_was_given(
    queue: Queue, graph: CommandGraph, memory: USM
) -> None:
    buffer, log = Buffer(N, numpy.int32), []
    graph.add(lambda h: h.memcpy(memory + 8, memory, 16))
    graph.add(lambda h: h.copy(h.access(buffer, "read"), memory))
    graph.add(lambda h: h.host_task(log.clear))
    graph.add(lambda h: h.graph_execution(CommandGraph(queue).finalize()))
    text = graph.to_dot(verbose=True)
    for said in (
        "name: add",
        f"range: {N}",
        "local: 8",
        f"src: {memory.pointer:#x}",
        f"dst: {(memory + 8).pointer:#x}",
        "size: 16",
        "<Buffer 64 int32>",
        "function: list.clear",
        "nodes: 0",
        "pattern: 07000000",
    ):
        assert said in text, said
    assert text.count('"') % 2 == 0


@pytest.mark.parametrize(
    ("row", "fields", "shown"),
    [
        (
            "usm_copy",
            (0x1230, 1 << 46, 8 << 30),
            ["dst: 0x1230", "src: 0x400000000000", "size: 8589934592"],
        ),
        (
            "buffer_read",
            ("<Buffer>", 8 << 30, 16, 0xBEE0),
            ["src: <Buffer>", "offset: 8589934592", "size: 16", "dst: 0xbee0"],
        ),
        ("mem_advise", (0xFF0, 5 << 30, 2), ["dst: 0xff0", "size: 5368709120", "advice: 2"]),
        ("prefetch", (0, 4, 1), ["dst: 0x0", "size: 4", "flags: 1"]),
    ],
)
def test_an_address_is_one_by_its_parameter_however_small_it_is(
    row: str, fields: tuple[Any, ...], shown: list[str]
) -> None:
    assert Transfer(row, fields).describe() == shown


@pytest.mark.parametrize("row", [row for row, given in TRANSFERS.items() if given.append])
def test_what_may_be_an_address_is_a_pointer_of_the_recorded_command_too(row: str) -> None:
    given = TRANSFERS[row]
    assert given.append is not None
    parameters = UR.functions[given.append.name].parameters[1:]  # the first is the command-buffer
    recorded = {
        name
        for name, parameter in zip(given.append.operands, parameters, strict=False)
        if parameter.stars
    }
    assert given.pointers == recorded


def test_an_executable_shows_what_runs(queue: Queue, graph: CommandGraph) -> None:
    parent = CommandGraph(queue)
    inner = graph.finalize()
    parent.add(lambda h: h.graph_execution(inner))
    parent.add(depends_on_all_leaves=True)
    text = parent.finalize().to_dot()
    assert re.findall(r"TYPE = (\w+)", text) == ["kernel", "memfill", "empty", "empty"]
    assert re.findall(r'"(\d+)" -> "(\d+)"', text) == [
        ("0", "1"),
        ("0", "2"),
        ("1", "2"),
        ("2", "3"),
    ]


def test_a_file(graph: CommandGraph, tmp_path: Path) -> None:
    for path in (tmp_path / "graph.dot", str(tmp_path / "other.dot")):
        graph.print_graph(path, verbose=True)
        assert Path(path).read_text(encoding="utf-8") == graph.to_dot(verbose=True)


def test_other_formats_and_places_that_cannot_be_written_are_refused(
    graph: CommandGraph, tmp_path: Path
) -> None:
    with refused("DOT graph is the only format supported at the moment."):
        graph.print_graph(tmp_path / "graph.svg")
    with refused("cannot be written: No such file or directory"):
        graph.print_graph(tmp_path / "nowhere/graph.dot")


def test_a_notebook_shows_kernels_with_their_ranges(graph: CommandGraph) -> None:
    for drawn in (graph, graph.finalize()):
        page = drawn._repr_html_()
        assert page.startswith(html.escape(repr(drawn)))
        assert f"<title>0: add({N})</title>" in page
        assert f"<title>1: USM fill({N * 4} bytes)\nafter 0</title>" in page
        assert "<title>2: empty command\nafter 1</title>" in page  # and so after 0
        assert page.count("<path") == 2
        picture = ElementTree.fromstring(drawn._repr_svg_())
        assert len([one for one in picture.iter() if one.tag.endswith("rect")]) == 3


def test_reprs_say_what_it_is(queue: Queue, graph: CommandGraph) -> None:
    assert repr(graph) == "<CommandGraph of 3 nodes>"
    with graph.recording(queue):
        assert repr(graph) == "<CommandGraph of 3 nodes, recording>"
    assert repr(graph.nodes[0]).startswith(f"<Node {graph.nodes[0].id}: kernel, name: add")
    executable = graph.finalize()
    assert (
        repr(executable) == "<ExecutableGraph of 3 nodes in 1 partitions>"
        and "3 nodes in 1 partitions" in executable.explain()
    )


_SOURCE = "kernel void add(global int *x, int by) { x[get_global_id(0)] += by; }"


def _graph(queue: Queue) -> Any:
    add, x = Program(queue, _SOURCE).add, malloc_shared(8, np.int32, queue)
    graph = CommandGraph(queue)
    one = graph.add(lambda h: h.parallel_for(8, add, x, np.int32(1)))
    told = graph.add(lambda h: h.host_task(lambda: None), depends_on=one)
    graph.add(lambda h: h.parallel_for(8, add, x, np.int32(2)), depends_on=told)
    return graph.finalize()


def test_it_names_the_engines_of_the_last_submission(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "replay")
    queue = Queue(device)
    loop = _graph(queue)
    before = "     1 commands: an enqueue on a queue chooses the engine"
    assert loop.explain().splitlines() == [
        "3 nodes in 3 partitions, by policy seed",
        "  0: 1 nodes, in order",
        before,
        "  1: host task, after 0",
        "  2: 1 nodes, in order, after 1",
        before,
    ]
    queue.graph(loop).wait()
    lines = loop.explain().splitlines()
    assert lines.count("     1 commands") == 2 and before not in lines
    assert "       direct  not chosen: FAIRLEAD_COMMAND_BUFFER=replay" in lines
    assert sum(line.startswith("       replay  ") for line in lines) == 2


_OTHERS = """
from fairlead import adapters
from fairlead.graph import CommandGraph
from fairlead.runtime import Buffer, Queue, devices
import numpy as np
queue = Queue(devices(adapters())[0])
graph = CommandGraph(queue, assume_buffer_outlives_graph=True)
a, b = (Buffer(np.zeros(8, np.int32), write_back=False) for _ in range(2))
graph.add(lambda h: h.copy(h.access(a), h.access(b)))
loop = graph.finalize()
print(type(loop.segments[0]).__name__)
print(loop.explain())
"""


def test_adapters_of_others_do_not_say_it(
    other_adapter: dict[str, str], run_python: RunPython
) -> None:
    lines = run_python(_OTHERS, env=other_adapter).out.splitlines()
    assert lines == [
        "BufferSegment",
        "1 nodes in 1 partitions, by policy seed",
        "  0: 1 nodes, in order",
        "     the adapter does not say how it runs them",
    ]
