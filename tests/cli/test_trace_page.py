"""The page of a trace: what is in it, and what a browser makes of it."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.support import RunPython

from fairlead.cli.trace import has_failed, summarize_events
from fairlead.cli.trace_page import make_page
from fairlead.loader.trace.device import make_kernel_table
from fairlead.loader.trace.pictures import MOST_NODES, GraphPictures, note

COMMAND = "from fairlead.cli.main import main; main(prog_name='fairlead')"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
in_browser = pytest.mark.skipif(not CHROMIUM, reason="needs Chromium: apt-get install chromium")

#: A captured graph, replayed; and kernels that are called.
PROGRAM = """
import numpy, pyopencl, fairlead
context = pyopencl.Context([fairlead.devices()[0].to_pyopencl()])
queue = pyopencl.CommandQueue(context)
source = "kernel void add(global float *a, float b) { a[get_global_id(0)] += b; }"
add = pyopencl.Program(context, source).build().add
buffer = pyopencl.Buffer(context, 0, 64)
for _ in range(3):
    add(queue, (16,), None, buffer, numpy.float32(1))
with fairlead.capture(queue) as graph:
    pyopencl.enqueue_fill_buffer(queue, buffer, numpy.float32(0), 0, 64)
    add(queue, (16,), None, buffer, numpy.float32(1))
graph.finalize().replay(queue)
queue.finish()
"""


def span(
    name: str, start: float, took: float, row: int = 1, cat: str = "cl", **args: str
) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "ts": start,
        "dur": took,
        "pid": 7,
        "tid": row,
        "cat": cat,
        "args": args,
    }


def named(what: str, name: str, row: int) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": 7, "tid": row, "args": {"name": name}}


GRAPH = {"title": "two <nodes>", "nodes": ["fill", "add"], "edges": [[0, 1]], "more": 0}
EVENTS = [
    named("process_name", "program", 1),
    named("thread_name", "main & only", 1),
    named("thread_name", "device: queue 1", 99),
    *(span("clFinish", 1000 + 100 * n, 50) for n in range(10)),
    span("clCreateBuffer", 2500, 5, result="CL_INVALID_VALUE"),
    *(span("add", 1020 + 100 * n, 10, 99, "device") for n in range(10)),
    {"ph": "M", "name": "graph", "pid": 7, "tid": 7, "args": GRAPH},
]


def written(events: list[dict[str, Any]]) -> str:
    return make_page(
        "A <title>", events, summarize_events(events), make_kernel_table(events), has_failed
    )


def in_chromium(path: Path, tmp_path: Path, part: str = "", *options: str) -> str:
    """The page as the browser has it after its script ran."""
    assert CHROMIUM
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", *options]
    command += [f"--user-data-dir={tmp_path}/profile", "--dump-dom", f"file://{path}{part}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_page_needs_nothing_else() -> None:
    text = written(EVENTS)
    assert not re.search(r"(?:src|href)=|https?://(?!www\.w3\.org)|@import|url\(", text)
    assert "prefers-color-scheme: dark" in text
    assert text.count("</script>") == 2 and "A &lt;title&gt;" in text


def test_a_page_has_tables_and_pictures() -> None:
    text = written(EVENTS)
    cells = [re.findall("<td>(.*?)</td>", row) for row in re.findall("<tr>.*?</tr>", text)]
    assert ["add", "10", "100.0", "10.0", "10.0", "10.0"] in cells
    assert ["clCreateBuffer", "1", "1", "5.0", "5.0"] in cells
    svg = re.search("<svg.*?</svg>", text, re.S)
    assert svg and svg[0].count("<rect") == 2 and svg[0].count("<path") == 1
    assert "two &lt;nodes&gt;" in text


def test_the_timeline_has_a_row_for_each_thread_and_queue() -> None:
    match = re.search(r'id="trace">(.*?)</script>', written(EVENTS), re.S)
    assert match
    data = json.loads(match[1])
    assert [(row["name"], row["device"], len(row["spans"])) for row in data["rows"]] == [
        ("main & only", False, 11),
        ("device: queue 1", True, 10),
    ]
    assert data["rows"][0]["spans"][0] == ["clFinish", 0, 50, 0, []]
    assert [one[3] for one in data["rows"][0]["spans"]] == [0] * 10 + [1]
    assert data["length"] == 1505


def test_a_name_does_not_end_the_script() -> None:
    text = written(
        [span("</script><b>", 1, 2, x="</script>"), named("thread_name", "</script>", 1)]
    )
    assert text.count("</script>") == 2


def test_a_picture_of_a_circle_or_of_nothing_is_drawn() -> None:
    for nodes, edges in ((["a", "b"], [[0, 1], [1, 0]]), ([], [])):
        drawing = {"title": "", "nodes": nodes, "edges": edges, "more": 3}
        text = written([{"ph": "M", "name": "graph", "pid": 1, "tid": 1, "args": drawing}])
        assert text.count("<rect") == len(nodes) and "and 3 more nodes" in text


@in_browser
@pytest.mark.slow
def test_a_browser_draws_it_and_zooms(tmp_path: Path) -> None:
    path = tmp_path / "trace.html"
    path.write_text(written(EVENTS), encoding="utf-8")
    whole = in_chromium(path, tmp_path)
    assert re.search(r'id="status">21 of 21 spans in 2 rows, 1\.505 ms<', whole)
    part = in_chromium(path, tmp_path, "#100-349")
    assert re.search(r'id="status">6 of 21 spans in 2 rows, 249\.000 µs<', part)


@in_browser
@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_it_light_and_dark(tmp_path: Path, scheme: str) -> None:
    path = tmp_path / "trace.html"
    probe = "<script>document.title = getComputedStyle(document.body).backgroundColor</script>"
    path.write_text(written(EVENTS).replace("</body>", f"{probe}</body>"), encoding="utf-8")
    options = (f"--blink-settings=preferredColorScheme={int(scheme == 'light')}",)
    title = re.search("<title>(.*?)</title>", in_chromium(path, tmp_path, "", *options))
    assert title and (title[1] == "rgb(255, 255, 255)") == (scheme == "light")


@pytest.mark.slow
def test_a_traced_program_gets_its_page(
    run_python: RunPython, wheel_drivers: dict[str, str], tmp_path: Path
) -> None:
    """Kernels, queues and the graph that was submitted are there; a browser finds them, too."""
    path = tmp_path / "trace.html"
    command = ["trace", "--html", str(path), "--", sys.executable, "-c", PROGRAM]
    done = run_python(COMMAND, *command, env=wheel_drivers, check=False)
    assert done.code == 0, done.err
    assert (
        f"see {path} in a browser" in done.err and not (tmp_path / "fairlead-trace.json").exists()
    )
    text = path.read_text(encoding="utf-8")
    if CHROMIUM:
        text = in_chromium(path, tmp_path)
        assert re.search(r'id="status">[1-9]\d* of [1-9]\d* spans in \d+ rows', text)
    assert "<td>add</td>" in text and "device: queue 1" in text
    titles = re.findall("<figcaption>(.*?)</figcaption>", text)
    assert [html.unescape(one) for one in titles] == ["Executable of 2 nodes"]
    assert text.count("<rect") == 2 and text.count("<path") == 1


@pytest.mark.slow
def test_a_page_that_cannot_be_written_is_said_before_the_command_runs(
    run_python: RunPython, tmp_path: Path
) -> None:
    command = ["trace", "--html", str(tmp_path / "nowhere/a.html"), "--", "echo", "ran"]
    done = run_python(COMMAND, *command, check=False)
    assert (done.code, done.out) == (1, "") and "cannot be written" in done.err


class Submitted:
    """Something that is submitted."""


def test_each_trace_has_the_graphs_that_were_submitted_in_it() -> None:
    graphs, traces = [Submitted(), Submitted()], [GraphPictures(), GraphPictures()]
    for number, each in enumerate(traces):
        each.begin()
        for graph in graphs[number:]:
            note(graph, str(graphs.index(graph)), list)
        each.end()
    note(Submitted(), "outside", list)
    titles = [[event["args"]["title"] for event in each.make_events(1)] for each in traces]
    assert titles == [["0", "1"], ["1"]]


def test_a_large_graph_is_drawn_in_part() -> None:
    found, graph = GraphPictures(), Submitted()
    drawing = [(f"node {n}", [n + 1]) for n in range(MOST_NODES + 5)]
    found.begin()
    for _ in range(2):  # it is drawn once
        note(graph, "large", lambda: drawing)
    found.end()
    (event,) = found.make_events(1)
    assert (len(event["args"]["nodes"]), event["args"]["more"]) == (MOST_NODES, 5)
    assert len(event["args"]["edges"]) == MOST_NODES - 1
