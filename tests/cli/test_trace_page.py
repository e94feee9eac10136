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
    name: str, start: float, took: float, row: int = 1, cat: str = "cl", **args: Any
) -> dict[str, Any]:
    if cat == "device":
        args = {"queued": start, "ended": start + took, **args}
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
    assert not re.search(r"src=|href='?[^'#]|https?://(?!www\.w3\.org)|@import|url\(", text)
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
    assert [(row["name"], row.get("device"), len(row["spans"])) for row in data["rows"]] == [
        ("main & only", False, 11),
        ("commands in flight", None, 0),
        ("device: queue 1", True, 10),
    ]
    assert data["rows"][1]["points"][:3] == [[20, 1], [30, 0], [120, 1]]
    assert data["rows"][0]["spans"][0] == ["clFinish", 0, 50, 0, []]
    assert [one[3] for one in data["rows"][0]["spans"]] == [0] * 10 + [1]
    assert data["length"] == 1505


def test_the_summary_has_the_busy_time_and_what_the_host_did_in_gaps() -> None:
    device = {"name": "device: queue 1 (GPU <1>)", "queue": "device: queue 1", "device": "GPU <1>"}
    events: list[dict[str, Any]] = [
        {**named("thread_name", "", 99), "args": device},
        span("add", 0, 10, 99, "device"),
        span("mul", 5, 10, 99, "device"),  # they overlap: 15 µs together
        span("add", 115, 10, 99, "device"),
        *(span("add", 200 + 11 * n, 10, 99, "device") for n in range(20)),
        span("clFinish", 10, 30),
        span("clFinish", 50, 20),
        span("clFinish", 20, 80) | {"pid": 8},  # of another process
    ]
    text = written(events)
    cells = [re.findall("<td>(.*?)</td>", row) for row in re.findall("<tr>.*?</tr>", text)]
    assert ["GPU &lt;1&gt;", "23", "0.419", "53.7%"] in cells  # 225 of 419 µs
    gaps = [one for one in cells if one and "#" in one[0]]
    host = "55% no call: the program&#x27;s own work, 45% clFinish (2 ×)"
    assert gaps[0] == ["<a href='#15.000-115.000'>0.015</a>", "100.0", host]
    assert gaps[1][1:] == ["75.0", "100% no call: the program&#x27;s own work"]
    assert len(gaps) == 10 and "GPU &lt;1&gt;" not in gaps[0][2]
    match = re.search(r'id="trace">(.*?)</script>', text, re.S)
    assert match
    row = json.loads(match[1])["rows"][-1]
    assert (row["name"], row["on"]) == ("device: queue 1", "GPU <1>")
    assert "Longest gaps" not in written([span("clFinish", 10, 30)])


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


def ask_browser(path: Path, tmp_path: Path, script: str, events: list[dict[str, Any]]) -> Any:
    """What the script returns, which runs in the page after the page's own."""
    run = f"<script>document.title = JSON.stringify((() => {{ {script} }})())</script>"
    path.write_text(written(events).replace("</body>", f"{run}</body>"), encoding="utf-8")
    title = re.search("<title>(.*?)</title>", in_chromium(path, tmp_path), re.S)
    assert title
    return json.loads(html.unescape(title[1]))


@in_browser
@pytest.mark.slow
def test_a_browser_tells_times_apart_cuts_names_and_finds_them(tmp_path: Path) -> None:
    """The times of the axis differ at each zoom, an hour after the trace began, too."""
    script = """
trace.length = 3.6e9;
const texts = [], labels = [];
pen.fillText = (...given) => texts.push(given);
for (const [from, to] of [[0, 3.6e9], [3.5e9, 3.5e9 + 1], [1500, 1500.02], [3, 3.3]]) {
  [begin, end] = [from, to];
  draw();
  labels.push(canvas.getAttribute("aria-label").slice(10).split(", "));
}
[begin, end] = [0, 120];
texts.length = 0;
draw();
$("find").value = "ADVECT";
find();
next();
return { labels, texts, found: $("found").textContent, about: $("about").textContent };
"""
    name = "advect_velocity_and_pressure_of_all_cells"
    told = ask_browser(
        tmp_path / "trace.html", tmp_path, script, [span(name, 0, 20), span("mul", 30, 80)]
    )
    for labels in told["labels"]:
        assert len(labels) > 2 and len(set(labels)) == len(labels), labels
    texts = [text for text, *_ in told["texts"]]
    assert any(text.startswith("adv") and text.endswith("…") for text in texts), texts
    assert "mul" in texts and all(len(given) == 3 for given in told["texts"]), "none is squeezed"
    assert told["found"] == "1 of 2 spans" and told["about"].startswith(f"{name}  20.000 µs")


@in_browser
@pytest.mark.slow
def test_a_browser_draws_many_spans_with_few_rectangles(tmp_path: Path) -> None:
    """Spans that share a pixel are one rectangle, so a picture of 120,000 takes no longer. Nor do
    their counters: each has a rectangle for each of its heights, and no more than pixels.
    """
    script = """
let count = 0;
pen.fillRect = () => count++;
draw();
return { count, width: canvas.clientWidth, status: $("status").textContent };
"""
    spans = [span("add", 10 * n, 4, 99, "device", bytes=8) for n in range(120_000)]
    told = ask_browser(tmp_path / "trace.html", tmp_path, script, spans)
    assert told["count"] < 2 * told["width"] and told["status"].startswith("120000 of 120000 spans")


@in_browser
@pytest.mark.slow
def test_a_browser_draws_counters_as_steps_and_tells_their_values(tmp_path: Path) -> None:
    """Also in a part, whose first value is that of a point before it."""
    script = """
let drawn = [];
pen.fillRect = (x, y, wide, tall) => drawn.push([x, y, wide, tall]);
const curves = rows.flatMap((row, index) => row.points ? [[row, RULER + index * HEIGHT]] : []);
const found = [];
for (const part of [[0, 100], [25, 75], [42, 48]]) {
  [begin, end] = part;
  found.push(curves.map(([row, top]) => {
    drawn = [];
    paintCurve(row, top, "#000");
    const steps = drawn.map(([x, y, wide, tall]) =>
      [timeAt(x), timeAt(x + wide), tall / (HEIGHT - 6), y + tall - top]);
    const box = canvas.getBoundingClientRect();
    canvas.dispatchEvent(new PointerEvent("pointermove", {
      clientX: box.left + canvas.clientLeft + place(45),
      clientY: box.top + canvas.clientTop + top + 9 }));
    return { name: row.name, on: row.on, steps, about: $("about").textContent };
  }));
}
return { found, pixel: 100 / width() };
"""
    spans = [
        span("clFinish", 0, 100),
        span("WriteBuffer", 20, 20, 99, "device", queued=10, bytes=3000),
        span("add", 40, 20, 99, "device", queued=30),
        span("ReadBuffer", 60, 30, 99, "device", queued=50, bytes=1000),
    ]
    told = ask_browser(tmp_path / "trace.html", tmp_path, script, spans)
    flights = [(10, 30, 1), (30, 40, 2), (40, 50, 1), (50, 60, 2), (60, 90, 1)]
    moved = [(40, 90, 3000), (90, 100, 4000)]
    for (begin, end), (flight, bytes_moved) in zip(
        ((0, 100), (25, 75), (42, 48)), told["found"], strict=True
    ):
        assert (flight["name"], flight["on"]) == ("commands in flight", "at most 2")
        assert (bytes_moved["name"], bytes_moved["on"]) == ("bytes moved", "at most 4.0 kB")
        assert re.fullmatch(r"commands in flight: 1 at 4[45]\.\d+ µs", flight["about"])
        assert re.fullmatch(r"bytes moved: 3\.0 kB at 4[45]\.\d+ µs", bytes_moved["about"])
        for curve, steps, most in ((flight, flights, 2), (bytes_moved, moved, 4000)):
            seen = [
                (max(first, begin), min(last, end), value / most)
                for first, last, value in steps
                if first < end and last > begin
            ]
            assert len(curve["steps"]) == len(seen)
            for drawn, (first, last, height) in zip(curve["steps"], seen, strict=True):
                assert drawn[:2] == pytest.approx([first, last], abs=1.01 * told["pixel"])
                assert drawn[2] == pytest.approx(height) and drawn[3] == 29  # on its foot


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
    assert re.search(r"<td>\S.*, driver \S.*</td>", text), "the device and its driver"
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
