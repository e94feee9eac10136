"""What a child process of `fairlead compare` does: it runs a file by one engine of one device."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .archive import write_arrays
from .loading import load


def main(data: Mapping[str, Any], progress: Callable[[str], None]) -> dict[str, Any]:
    """Run a graph file, and return `load_ms`, `run_ms` of one run, and `explain`.

    Args:
        data: `file`; `device`, a number in `fairlead.devices()`; `engine`; `times`; `values` of
            Parameters; `outputs`, the archive to be written.
        progress: is told what comes next.
    """
    os.environ["FAIRLEAD_COMMAND_BUFFER"] = data["engine"]
    os.environ.pop("FAIRLEAD_PROBE", None)  # without which `direct` cannot test itself
    progress("loading the graph")
    began = time.perf_counter()
    graph = load(data["file"], str(data["device"]))
    loop = graph.finalize()
    loaded = time.perf_counter()
    progress("running the graph")
    outputs = loop(**data["values"])
    write_arrays(Path(data["outputs"]), outputs)
    queue = graph.new_queue()
    progress("measuring the graph")
    started = time.perf_counter()
    loop.replay(queue, data["times"], wait=True)
    ended = time.perf_counter()
    return {
        "load_ms": 1000 * (loaded - began),
        "run_ms": 1000 * (ended - started) / data["times"],
        "explain": loop.explain(queue),
    }
