"""A plugin of pytest: each kernel, copy and fill of PyOpenCL becomes a captured graph of one
command.

The graph is replayed at once, in place of the call. What cannot be captured, such as a kernel whose
arguments were set earlier, is called as it is. `pytest -p helpers.replayed_pyopencl` uses it, and
prints how many calls were replayed, and by which engines. With `--compared` a graph that CUDA runs
is called as it is first, and must then write the same bytes into the same buffers.
"""

from __future__ import annotations

import functools
import importlib
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.tools as cl_tools

import fairlead

_counts: Counter[str] = Counter()
_different: list[str] = []
#: Larger buffers are not compared, bytes.
_MOST_COMPARED = 256 << 20


def _buffers(arguments: Iterable[Any]) -> list[Any]:
    """The buffers among arguments, those of memory pools too, each once."""
    kinds = cl.Buffer, cl_tools.PooledBuffer
    found = (one for one in arguments if isinstance(one, kinds))
    return list({one.int_ptr: one for one in found}.values())


def _bytes_of(queue: cl.CommandQueue, buffers: list[Any]) -> list[Any]:
    found = [np.empty(one.size, np.uint8) for one in buffers]
    for one, host in zip(buffers, found, strict=True):
        cl.enqueue_copy(queue, host, one)
    return found


def _compare(queue: cl.CommandQueue, what: str, buffers: list[Any], *ways: Any) -> Any:
    """Run something by both ways, from the same contents of buffers. Returns the second's result.

    The contents afterwards must be the same.
    """
    before, found, result = _bytes_of(queue, buffers), [], None
    for way in ways:
        for one, host in zip(buffers, before, strict=True):
            cl.enqueue_copy(queue, one, host)
        result = way()
        queue.finish()
        found.append(_bytes_of(queue, buffers))
    if all(map(np.array_equal, *found)):
        _counts["compared, and the same"] += 1
    else:
        _counts["compared, and different"] += 1
        _different.append(what)
    return result


def _have_ended(options: Any) -> bool:
    """Wait for the events that a call waits for, and return whether that is possible."""
    events = options.get("wait_for") or ()
    if any(event.command_type == cl.command_type.USER for event in events):
        return False
    for event in events:
        event.wait()
    return True


def _replayed(call: Callable[..., Any], queue_at: int, compares: bool) -> Callable[..., Any]:
    """A function of PyOpenCL as a graph; its queue is the argument of this number."""

    @functools.wraps(call)
    def wrapper(*args: Any, **options: Any) -> Any:
        queue = args[queue_at] if len(args) > queue_at else None
        if not isinstance(queue, cl.CommandQueue) or fairlead.icd._native.lib.fl_is_recording():  # pyright: ignore
            return call(*args, **options)
        try:
            with fairlead.capture(queue) as graph:
                call(*args, **options)
        except fairlead.CaptureError:
            _counts["called, it cannot be captured"] += 1
            return call(*args, **options)
        profiles = bool(queue.properties & cl.command_queue_properties.PROFILING_ENABLE)
        loop = graph.finalize(enable_profiling=profiles)
        lines = loop.explain(queue).splitlines()[1:] if compares else []
        buffers = _buffers(args)
        if any("CUDA Graph" in line for line in lines) and buffers and _have_ended(options):
            if sum(one.size for one in buffers) > _MOST_COMPARED:
                _counts["replayed by the engine cuda, too large to be compared"] += 1
                return loop.replay(queue)
            ways = (lambda: call(*args, **options)), (lambda: loop.replay(queue))
            return _compare(queue, graph[0].label, buffers, *ways)
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
    parser.addoption("--compared", action="store_true", help="compare OpenCL's results and CUDA's")


def pytest_configure(config: Any) -> None:
    """Exchange PyOpenCL's functions. The drivers are opened first, which repairs them."""
    fairlead.devices()
    if config.getoption("--as-it-is"):
        return
    native, compares = importlib.import_module("pyopencl._cl"), config.getoption("--compared")
    cl.Kernel.__call__ = _replayed(  # type: ignore[method-assign]
        cl.Kernel.__call__, 1, compares
    )
    for module, name in (
        (cl, "enqueue_nd_range_kernel"),
        (cl, "enqueue_fill_buffer"),
        (native, "_enqueue_copy_buffer"),
    ):
        setattr(module, name, _replayed(getattr(module, name), 0, compares))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what became of the calls."""
    for what, count in _counts.items():
        terminalreporter.write_line(f"{count} calls of PyOpenCL were {what}")
    for what in sorted(set(_different)):
        terminalreporter.write_line(f"OpenCL and CUDA differ in {what}")
