"""What capture knows of PyOpenCL's frames, of the program's code, and of who owns host memory."""

from __future__ import annotations

import array
import ctypes
import gc
import mmap
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array
import pytest
from helpers.captures import Numbers

from fairlead.captured_graphs import pyopencl_client
from fairlead.captured_graphs.block import PyOpenCLObserver
from fairlead.captured_graphs.context import capture

#: Host memory of 256 bytes that is not a NumPy array.
BUFFERS: dict[str, Callable[[], Any]] = {
    "bytearray": lambda: bytearray(256),
    "memoryview": lambda: memoryview(bytearray(300))[20:276],
    "array.array": lambda: array.array("i", [0] * 64),
    "ctypes array": lambda: (ctypes.c_int * 64)(),
    "mmap": lambda: mmap.mmap(-1, 256),
}


@pytest.mark.parametrize("kind", BUFFERS)
def test_host_memory_of_every_kind_lives_as_long_as_the_graph(numbers: Numbers, kind: str) -> None:
    """Before Python 3.12 nothing in Python tells what has the buffer protocol."""
    seen: list[bytes] = []

    def record() -> Any:
        host: Any = BUFFERS[kind]()
        with capture(numbers.queue) as graph:
            numbers.add(7)
            cl.enqueue_copy(numbers.queue, host, numbers.buffer, is_blocking=False)
        view = memoryview(host)
        task = graph.add(
            lambda handler: handler.host_task(lambda: seen.append(bytes(view))), depends_on=graph[1]
        )
        assert task.predecessors == [graph[1]]
        return graph.finalize()

    record().replay(numbers.queue).wait()
    assert seen == [np.full(64, 7, np.int32).tobytes()]


def test_the_owner_of_host_memory_is_held(numbers: Numbers) -> None:
    """Without another reference it would be gone before the replay."""

    class Watched(ctypes.c_int * 64):
        pass

    def record() -> Any:
        host: Any = Watched()
        gone = weakref.ref(host)
        with capture(numbers.queue) as graph:
            cl.enqueue_copy(numbers.queue, host, numbers.buffer, is_blocking=False)
        return graph, gone

    graph, gone = record()
    gc.collect()
    assert gone() is not None
    loop = graph.finalize()
    loop.replay(numbers.queue).wait()
    del graph, loop
    gc.collect()
    assert gone() is None


def test_whoever_is_between_a_call_and_its_observer_does_not_matter(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The frame that calls OpenCL is told. A count of frames would lead to another one."""
    from pyopencl.tools import ImmediateAllocator, MemoryPool

    def wrapped(inner: Callable[..., Any]) -> Callable[..., Any]:
        def outer(*arguments: Any) -> Any:
            return inner(*arguments)

        return outer

    for name in (
        *("note_command", "hold_pooled_buffers", "keep_host", "is_housekeeping"),
        "describe_caller",
    ):
        monkeypatch.setattr(PyOpenCLObserver, name, wrapped(getattr(PyOpenCLObserver, name)))
    pool: Any = MemoryPool(ImmediateAllocator(numbers.queue))
    pooled, host = pool.allocate(256), np.zeros(64, np.int32)
    array_ = pyopencl.array.zeros(numbers.queue, 64, np.int32)
    cl.enqueue_copy(numbers.queue, pooled, np.full(64, 5, np.int32))
    with capture(numbers.queue) as graph:
        numbers.add(1, pooled)
        cl.enqueue_copy(numbers.queue, host, pooled, is_blocking=False)
        for _ in range(150):  # pyopencl.array waits for old events when it has many
            array_ += 1
    where = [node.where.partition(":")[0].rpartition("/")[2] for node in graph]
    assert where == ["captures.py", *["test_pyopencl_client.py"] * 151]
    del pooled
    others = [pool.allocate(256) for _ in range(4)]
    for other in others:
        cl.enqueue_copy(numbers.queue, other, np.full(64, 1000, np.int32))
    graph.finalize().replay(numbers.queue).wait()
    assert (host == 6).all() and (array_.get() == 150).all()


def test_code_and_types_are_forgotten_when_they_are_gone(numbers: Numbers) -> None:
    source = """def step(cl, queue, buffer, pattern, thing):
        cl.enqueue_fill_buffer(queue, buffer, pattern, 0, 256)
    """
    left = list[weakref.ref[Any]]()

    def record() -> None:
        names: dict[str, Any] = {}
        exec(compile(source, "made.py", "exec"), names)
        kind = type("Passing", (), {})
        with capture(numbers.queue) as graph:
            names["step"](cl, numbers.queue, numbers.buffer, np.zeros(1, np.int32), kind())
        assert graph[0].where == "made.py:2"
        left.extend((weakref.ref(names["step"].__code__), weakref.ref(kind)))

    for _ in range(5):
        record()
        gc.collect()
    assert [one() for one in left] == [None] * 10
    for memo in (pyopencl_client._clients, pyopencl_client._type_kinds):
        assert [key for key, (one, _) in list(memo.found.items()) if one() is None] == []
