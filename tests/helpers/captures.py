"""What the tests of captured graphs share: a buffer of numbers, and launches that change them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyopencl as cl
import pytest

from fairlead.captured_graphs.context import capture
from fairlead.icd.calls import call, find_device_profile
from fairlead.runtime import USM, Device, malloc_shared
from helpers.programs import build_once

OUT_OF_ORDER: Final = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE

SOURCE = """
__kernel void add(__global int *a, int n) { a[get_global_id(0)] += n; }
__kernel void mul(__global int *a, int n) { a[get_global_id(0)] *= n; }
__kernel void shared_add(__global int *a, int n, __local int *tile) {
    tile[get_local_id(0)] = n; barrier(CLK_LOCAL_MEM_FENCE);
    a[get_global_id(0)] += tile[get_local_size(0) - 1];
}
"""


def _typed(number: Any) -> Any:
    return np.int32(number) if isinstance(number, int) else number


def shared_numbers(device: Device, where: Any) -> USM:
    """64 int32 in shared memory, for the host as well; skips where the device has none."""
    if not device.has("usm_shared_allocations"):
        pytest.skip(f"{device.name} has no shared memory")
    return malloc_shared(64, "int32", where)


def new_queue(context: cl.Context, properties: Any = 0) -> cl.CommandQueue:
    """Return a queue. An out-of-order one outlives its test where its driver may hang when such a
    queue is released soon after its commands: each later test on the driver may hang then."""
    queue = cl.CommandQueue(context, properties=properties)
    delay = find_device_profile(queue.device.int_ptr).final_release_delay
    if delay is not None and properties & OUT_OF_ORDER:
        call(queue.int_ptr, "clRetainCommandQueue")
    return queue


class Numbers:
    """A buffer of 64 equal int32, and launches that add or multiply, so that the result shows their
    order."""

    def __init__(self, queue: cl.CommandQueue, program: cl.Program | None = None) -> None:
        self.queue = queue
        self.program = program or build_once(queue.context, SOURCE)
        self._add, self._mul, self.shared_add = (
            self.program.add,
            self.program.mul,
            self.program.shared_add,
        )
        self.buffer = self.new()
        self.host = np.zeros(64, np.int32)

    def new(self, value: int = 0) -> cl.Buffer:
        """Another buffer."""
        buffer = cl.Buffer(self.queue.context, cl.mem_flags.READ_WRITE, 256)
        cl.enqueue_fill_buffer(self.queue, buffer, np.array(value, np.int32), 0, 256).wait()
        return buffer

    def add(self, number: Any, buffer: cl.Buffer | None = None, **options: Any) -> cl.Event:
        """Add a number to each."""
        queue = options.pop("queue", self.queue)
        return self._add(queue, (64,), None, buffer or self.buffer, _typed(number), **options)

    def mul(self, number: Any, buffer: cl.Buffer | None = None, **options: Any) -> cl.Event:
        """Multiply each by a number."""
        queue = options.pop("queue", self.queue)
        return self._mul(queue, (64,), None, buffer or self.buffer, _typed(number), **options)

    def read(self) -> cl.Event:
        """Bring them to `host`, without waiting."""
        return cl.enqueue_copy(self.queue, self.host, self.buffer, is_blocking=False)

    def value(self, buffer: cl.Buffer | None = None) -> int:
        """What they are, after everything that is in the queue; all of them are the same."""
        values = np.empty(64, np.int32)
        cl.enqueue_copy(self.queue, values, buffer or self.buffer)
        assert (values == values[0]).all()
        return int(values[0])


def seen_between(numbers: Numbers) -> tuple[Any, list[int]]:
    """Return a graph that adds 1, copies the numbers to the host, and multiplies by 3.

    A host task in between records the numbers that it sees.
    """
    with capture(numbers.queue) as graph:
        numbers.add(1)
        numbers.read()
        numbers.mul(3)
    seen: list[int] = []
    task = graph.add(
        lambda handler: handler.host_task(lambda: seen.append(int(numbers.host[0]))),
        depends_on=graph[1],
    )
    graph[2].depends_on(task)
    return graph, seen
