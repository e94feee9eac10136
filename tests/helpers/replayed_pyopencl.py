"""A plugin of pytest: each kernel, copy and fill of PyOpenCL becomes a captured graph of one command.

The graph is replayed at once, in place of the call. What cannot be captured, such as a kernel whose
arguments were set earlier, is called as it is. `pytest -p helpers.replayed_pyopencl` uses it, and
prints how many calls were replayed, and by which engines.
"""

from __future__ import annotations

import functools
import importlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyopencl as cl

import fairlead

_counts: Counter[str] = Counter()


def _replayed(call: Callable[..., Any], queue_at: int) -> Callable[..., Any]:
    """A function of PyOpenCL as a graph; its queue is the argument of this number."""

    @functools.wraps(call)
    def wrapper(*args: Any, **options: Any) -> Any:
        queue = args[queue_at] if len(args) > queue_at else None
        if not isinstance(queue, cl.CommandQueue) or fairlead.icd._native.lib.fl_is_recording():
            return call(*args, **options)
        try:
            with fairlead.capture(queue) as graph:
                call(*args, **options)
        except fairlead.CaptureError:
            _counts["called, it cannot be captured"] += 1
            return call(*args, **options)
        profiles = bool(queue.properties & cl.command_queue_properties.PROFILING_ENABLE)
        loop = graph.finalize(enable_profiling=profiles)
        event = loop.replay(queue)
        engine = next(
            line.split()[0]
            for line in loop.explain(queue).splitlines()[1:]
            if "not chosen" not in line
        )
        _counts[f"replayed by the engine {engine}"] += 1
        return event

    return wrapper


def pytest_addoption(parser: Any) -> None:
    """`--as-it-is` is for comparison."""
    parser.addoption("--as-it-is", action="store_true", help="call PyOpenCL's own functions")


def pytest_configure(config: Any) -> None:
    """Exchange PyOpenCL's functions. The drivers are opened first, which repairs them."""
    fairlead.devices()
    if config.getoption("--as-it-is"):
        return
    native = importlib.import_module("pyopencl._cl")
    cl.Kernel.__call__ = _replayed(cl.Kernel.__call__, 1)  # type: ignore[method-assign]
    for module, name in (
        (cl, "enqueue_nd_range_kernel"),
        (cl, "enqueue_fill_buffer"),
        (native, "_enqueue_copy_buffer"),
    ):
        setattr(module, name, _replayed(getattr(module, name), 0))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what became of the calls."""
    for what, count in _counts.items():
        terminalreporter.write_line(f"{count} calls of PyOpenCL were {what}")
