"""Captured graphs are drawn like all command graphs: modifiable and executable, as they were
recorded and changed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.captures import Numbers

from fairlead.captured_graphs.context import capture
from fairlead.runtime import SYCLError


def test_pictures_of_a_changed_graph(numbers: Numbers, tmp_path: Path) -> None:
    with capture(numbers.queue) as graph:
        numbers.add(1)
        numbers.read()
    task = graph.add(lambda handler: handler.host_task(lambda: None), depends_on=graph[1])
    dot = graph.to_dot()
    assert re.findall(r"TYPE = (\w+)", dot) == ["kernel", "memcpy", "host_task"]
    assert re.findall(r'"(\d+)" -> "(\d+)"', dot) == [
        (str(graph[0].id), str(graph[1].id)),
        (str(graph[1].id), str(task.id)),
    ]
    graph.print_graph(tmp_path / "graph.dot", verbose=True)
    text = (tmp_path / "graph.dot").read_text(encoding="utf-8")
    memory = f"source: {numbers.buffer.int_ptr:#x}", f"host: {numbers.host.ctypes.data:#x}"
    for shown in ("add(64)", "read(256 bytes)", *memory, "captures.py:"):
        assert shown in text, text
    with pytest.raises(SYCLError, match="DOT graph is the only format"):
        graph.print_graph(tmp_path / "graph.png")


def test_what_repeats_is_one_box(numbers: Numbers) -> None:
    with capture(numbers.queue) as graph:
        for _ in range(20):
            numbers.add(1)
            numbers.mul(3)
    assert "0–39: add(64) → mul(64), 20 ×</title>" in graph.finalize()._repr_html_()


def test_pictures_of_an_executable(numbers: Numbers) -> None:
    with capture(numbers.queue) as graph:
        numbers.add(1)
        numbers.mul(3)
    loop = graph.finalize()
    assert re.findall(r'"(\d+)" -> "(\d+)"', loop.to_dot()) == [
        ("0", "1")
    ] and "mul(64)" in loop.to_dot(verbose=True)
    assert loop.explain() == "2 nodes in 1 partitions, by policy seed\n  0: 2 nodes, in order"
    for drawn in (graph, loop):
        assert "0: add(64)</title>" in drawn._repr_html_()
        assert "1: mul(64)\nafter 0</title>" in drawn._repr_svg_()
    graph[0].update_range(16)
    assert "add(16)" in graph.to_dot(verbose=True) and "add(64)" in loop.to_dot(verbose=True)
