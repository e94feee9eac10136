"""What the tests of runtime and graph share: devices, queues, kernels, and gates that hold
commands.

The conftest.py of these folders import its fixtures. Every test that asks for `device`, or for what
is made of it, runs on every driver: the PoCL wheel, Intel's CPU driver, and those of the system.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy
import pyopencl as cl
import pytest

from fairlead.graph import CommandGraph
from fairlead.runtime import (
    USM,
    Context,
    Device,
    Errc,
    Event,
    Program,
    Queue,
    SYCLError,
    devices,
    malloc_shared,
)
from fairlead.runtime.interop import event_of
from fairlead.runtime.queue import get_default_context
from helpers.drivers import Driver

#: Work-items, and elements, where a test does not care.
N: Final = 64

#: The kernels of `program`. All work on int32.
SOURCE: Final = """
kernel void add(global int *a, int n) { a[get_global_id(0)] += n; }
kernel void mul(global int *a, int n) { a[get_global_id(0)] *= n; }
kernel void store(global int *a, int n) { a[get_global_id(0)] = n; }
kernel void copy(global const int *a, global int *b) { size_t i = get_global_id(0); b[i] = a[i]; }
kernel void sum(global const int *a, global const int *b, global int *c) {
    size_t i = get_global_id(0);
    c[i] = a[i] + b[i];
}
kernel void ids(global int *a) {
  size_t width = get_global_size(0), height = get_global_size(1);
  size_t x = get_global_id(0) - get_global_offset(0), y = get_global_id(1) - get_global_offset(1);
  size_t z = get_global_id(2) - get_global_offset(2);
  int id = get_global_id(0) + 100 * get_global_id(1) + 10000 * get_global_id(2);
  a[(z * height + y) * width + x] = id + 1000000 * get_local_size(0);
}
kernel void slow(global int *a, int rounds) {
  size_t i = get_global_id(0);
  int value = a[i];
  for (int round = 0; round < rounds; round++) value = value * 1664525 + 1013904223;
  a[i] = value;
}
"""


@pytest.fixture(scope="session")
def device(each_driver: Driver) -> Device:
    """The device of a driver; the test runs once on each."""
    return next(device for device in devices() if each_driver.has(device.platform))


@pytest.fixture(scope="session")
def other_device(device: Device) -> Device:
    """A device that `device` knows nothing of: another driver's."""
    for other in devices():
        if other.platform is not device.platform:
            return other
    pytest.skip("needs two drivers, and there is one")


@pytest.fixture(scope="session")
def parts(device: Device) -> Sequence[Device]:
    """The sub-devices of a device, of one compute unit each: several devices of one context.

    A test that asks for them is left out where the device has none. PoCL 7.1 of Debian has none.
    """
    if device.info("PARTITION_MAX_SUB_DEVICES") < 2:
        pytest.skip("the device has no sub-devices")
    return device.partition(equally=1)


@pytest.fixture(scope="session")
def context(device: Device) -> Context:
    """The context that the queues of this module have."""
    return get_default_context(device)


@pytest.fixture(scope="session")
def program(context: Context) -> Program:
    """SOURCE, built: `program.add`."""
    return Program(context, SOURCE)


@pytest.fixture
def queue(device: Device) -> Iterator[Queue]:
    """An out-of-order queue that profiles.

    An error in it that the test does not wait for fails the test.
    """
    queue = Queue(device, profiling=True)
    yield queue
    queue.wait()


@pytest.fixture
def graph(queue: Queue) -> CommandGraph:
    """A graph on the queue, which may have buffers."""
    return CommandGraph(queue, assume_buffer_outlives_graph=True)


@pytest.fixture
def in_order(device: Device) -> Iterator[Queue]:
    """An in-order queue that profiles."""
    queue = Queue(device, in_order=True, profiling=True)
    yield queue
    queue.wait()


@pytest.fixture
def memory(queue: Queue) -> USM:
    """N int32 zeros of shared memory."""
    return zeros(queue)


def check_refused(table: list[tuple[Callable[[], object], str, str]]) -> None:
    """Check that each call of a table is refused as invalid, with a remedy.

    A row is the call, the routine that its error names, and a part of its message.
    """
    for number, (call, routine, words) in enumerate(table):
        with pytest.raises(SYCLError) as caught:
            call()
        error = caught.value
        assert words in error.message, (number, error)
        assert (error.routine, error.errc) == (routine, Errc.invalid) and error.remedy, (
            number,
            error,
        )


@contextmanager
def raises(errc: Errc, words: str) -> Iterator[None]:
    """A block that ends with a SYCLError of a class, with words in its message, and a remedy."""
    with pytest.raises(SYCLError) as caught:
        yield
    error = caught.value
    assert words in error.message, error
    assert error.errc is errc and error.remedy, error


def zeros(queue: Queue, count: int = N, dtype: Any = numpy.int32) -> USM:
    """Shared memory full of zeros."""
    made = malloc_shared(count, dtype, queue)
    made.array[:] = 0
    return made


class Gate:
    """Holds commands until it is opened: what depends on `event` cannot have run before.

    `event` belongs to a host task (`gate`), or to the driver itself (`device_gate`).
    """

    def __init__(self, event: Event, open: Callable[[], object]) -> None:
        self.event = event
        self._open = open
        self.is_open = False

    def open(self) -> None:
        """Let them go on. A second call does nothing."""
        if not self.is_open:
            self.is_open = True
            self._open()


@pytest.fixture
def gate(queue: Queue) -> Iterator[Gate]:
    """A gate of which the driver knows nothing: a host task that waits."""
    opened = threading.Event()
    made = Gate(queue.host_task(opened.wait), opened.set)
    yield made
    made.open()


@pytest.fixture
def device_gate(queue: Queue) -> Iterator[Gate]:
    """Make a gate of an OpenCL user event in the queue's context.

    The driver has the commands behind it.
    """
    native = cl.Context.from_int_ptr(queue.context.native(), True)
    user = cl.UserEvent(native)

    made = Gate(
        event_of(user, queue.context), lambda: user.set_status(cl.command_execution_status.COMPLETE)
    )
    yield made
    made.open()
