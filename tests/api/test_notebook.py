"""What a notebook shows of fairlead's objects: one is executed, and its outputs are looked at."""

from __future__ import annotations

import os
import re
from typing import Any
from xml.etree import ElementTree

import nbclient
import nbformat
import pytest

CELLS = {
    "devices": "import fairlead; fairlead.devices()",
    "graph": """
import numpy as np, pyopencl as cl
context = cl.Context([fairlead.devices()[0].to_pyopencl()])
queue = cl.CommandQueue(context)
source = "kernel void collide(global float *a, float b) { a[get_global_id(0)] += b; }"
collide, buffer = cl.Program(context, source).build().collide, cl.Buffer(context, 0, 64)
with fairlead.capture(queue) as graph:
    cl.enqueue_fill_buffer(queue, buffer, np.float32(0), 0, 64)
    for _ in range(40):
        collide(queue, (16,), None, buffer, np.float32(1))
graph
""",
    "executable": "loop = graph.finalize(); loop",
    "trace": """
from fairlead.runtime import Queue
with fairlead.trace(device=True) as trace:
    Queue().submit(lambda h: h.host_task(lambda: None)).wait()
    fairlead.devices()[0].info("CL_DEVICE_NAME")
trace
""",
    "report": """
from fairlead.conformance.harness import run
from fairlead.plugins import reference_adapter
run(reference_adapter(), area="virtual-memory")
""",
    "progress": """
from fairlead.loader.base import progress
progress._DELAY = 0.0
list(progress.follow(range(3), "work", "pieces", 3))
""",
}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What each cell shows: the texts by their types, and what it writes to stderr."""
    cells = [nbformat.v4.new_code_cell(code.strip()) for code in CELLS.values()]
    book = nbformat.v4.new_notebook(cells=cells)
    folder = tmp_path_factory.mktemp("notebook")
    settings = {f"JUPYTER_{name}_DIR": str(folder / name) for name in ("CONFIG", "RUNTIME")}
    settings |= {"IPYTHONDIR": str(folder / "ipython"), "JUPYTER_PLATFORM_DIRS": "1"}
    nbclient.NotebookClient(
        book, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute(env={**os.environ, **settings})
    found: dict[str, dict[str, Any]] = {}
    for name, cell in zip(CELLS, book.cells, strict=True):
        found[name] = {"stderr": ""}
        for output in cell.outputs:
            if output.output_type == "stream":
                found[name][output.name] = found[name].get(output.name, "") + output.text
            else:
                found[name] |= output.data
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("devices", r"<td>0:0</td>"),
        ("graph", r"collide\(16\), 40 ×"),
        ("executable", r"collide\(16\)"),
        ("trace", r"<td>clGetDeviceInfo</td>|<td>ur\w+</td>"),
        ("report", r"<td>virtual-memory</td>"),
    ],
)
def test_an_object_shows_itself(shown: dict[str, dict[str, Any]], name: str, wanted: str) -> None:
    page = shown[name]["text/html"]
    assert re.search(wanted, page), page
    assert "ID = " not in page and not re.search("https?://(?!www.w3.org)", page)
    for picture in re.findall("<svg.*?</svg>", page, re.S):
        ElementTree.fromstring(picture)


@pytest.mark.slow
def test_long_work_shows_how_far_it_is(shown: dict[str, dict[str, Any]]) -> None:
    assert (
        "work:" in shown["progress"]["stderr"]
        or "application/vnd.jupyter.widget-view+json" in (shown["progress"])
    )
