"""Things that a device may use are kept until the event is complete, and no longer.

A driver's own command-buffer when the driver refuses something: an error, and nothing at the
end.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyopencl as cl
import pytest
from helpers.drivers import Driver
from helpers.support import RunPython

import fairlead
from fairlead.icd.command_buffer import driver_command_buffer
from fairlead.icd.command_buffer.driver_command_buffer import DriverCommandBuffer
from fairlead.icd.command_buffer.lifetimes import Lifetimes
from fairlead.icd.errors import OpenCLError, check


class Thing:
    """Something that can be seen to be gone."""


@pytest.fixture(scope="module")
def context() -> cl.Context:
    return cl.Context([fairlead.devices()[0].to_pyopencl()])


@pytest.fixture
def kept() -> Iterator[Lifetimes]:
    made = Lifetimes()
    yield made
    assert not made.release_finished()


def lives(reference: weakref.ref[Thing]) -> bool:
    gc.collect()
    return reference() is not None


@pytest.mark.slow
@pytest.mark.parametrize("status", [0, -5])
def test_a_thing_is_kept_until_its_event_has_ended(
    context: cl.Context, kept: Lifetimes, status: int
) -> None:
    event, thing = cl.UserEvent(context), Thing()
    before, reference = event.reference_count, weakref.ref(thing)
    kept.keep_until(event.int_ptr, thing)
    del thing
    assert event.reference_count == before + 1
    kept.release_finished()
    assert lives(reference)
    event.set_status(status)
    kept.release_finished()
    assert not lives(reference) and event.reference_count == before


@pytest.mark.slow
def test_one_thing_does_not_wait_for_another(context: cl.Context, kept: Lifetimes) -> None:
    events = [cl.UserEvent(context) for _ in range(2)]

    def keep(event: cl.UserEvent) -> weakref.ref[Thing]:
        thing = Thing()
        kept.keep_until(event.int_ptr, thing)
        return weakref.ref(thing)

    references = [keep(event) for event in events]
    events[1].set_status(cl.command_execution_status.COMPLETE)
    kept.keep_until(0, None)  # which looks at what there is
    assert [lives(reference) for reference in references] == [True, False]
    events[0].set_status(cl.command_execution_status.COMPLETE)


def test_no_event_keeps_nothing(kept: Lifetimes) -> None:
    thing = Thing()
    reference = weakref.ref(thing)
    kept.keep_until(0, thing)
    del thing
    assert not lives(reference)


def test_another_thread_may_keep_things_while_python_ends(
    context: cl.Context, kept: Lifetimes, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [cl.UserEvent(context) for _ in range(3)]
    referred: list[object] = []

    def refer(thing: ctypes.py_object[object]) -> None:
        kept.keep_until(events[2].int_ptr, referred)  # as another thread does meanwhile
        referred.append(thing.value)

    monkeypatch.setattr(ctypes.pythonapi, "Py_IncRef", refer)
    for event in events[:2]:
        kept.keep_until(event.int_ptr, None)
    kept._keep_for_good()
    assert len(referred) == 2
    for event in events:
        event.set_status(cl.command_execution_status.COMPLETE)


#: A driver that makes a command-buffer of any queue, and takes it back.
SUPPORT: Any = SimpleNamespace(simultaneous=False, function=lambda name: lambda *_: 0)


@pytest.fixture
def dropped(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was raised in a `__del__`."""
    found: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: found.append(report.exc_value))
    return found


def test_a_queue_that_cannot_be_made(dropped: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        driver_command_buffer, "make_queue", lambda *_: check(-6, "clCreateCommandQueue")
    )
    with pytest.raises(OpenCLError, match="clCreateCommandQueue"):
        DriverCommandBuffer(SUPPORT, 0, 0, 0, updatable=False)
    gc.collect()
    assert dropped == []


def test_a_kernel_that_cannot_be_copied(
    dropped: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver would be given NULL, and most crash then."""
    refuse = SimpleNamespace(fl_clone_kernel=lambda kernel: driver_command_buffer.ffi.NULL)
    monkeypatch.setattr(driver_command_buffer, "make_queue", lambda *_: 0)
    monkeypatch.setattr(driver_command_buffer, "lib", refuse)
    buffer = DriverCommandBuffer(SUPPORT, 0, 0, 0, updatable=False)
    with pytest.raises(OpenCLError, match="made no copy of a kernel"):
        buffer._list_launch(SimpleNamespace(kernel=None))
    buffer.close()
    del buffer
    gc.collect()
    assert dropped == []


#: Python takes down modules in the reverse order of `sys.modules`, those that something still
#: holds. A module in the middle holds a graph and memory of the runtime, so half of the modules
#: that these need are gone at their end.
HELD_BY_A_MODULE = """
import ctypes, sys, types
import numpy as np, pyopencl as cl
import fairlead
from fairlead.icd.drivers import platforms
from fairlead.runtime import Buffer, Queue

(platform,) = (found for found in platforms() if found.driver.path.endswith(sys.argv[1]))
context = cl.Context([platform.devices[0].to_pyopencl()])
queue = cl.CommandQueue(context)
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 256)
source = "kernel void add(global int *a, int by) { a[get_global_id(0)] += by; }"
kernel = cl.Program(context, source).build().add
with fairlead.capture(queue) as graph:
    kernel(queue, (64,), None, buffer, np.int32(1))
loop = graph.finalize()
loop.replay(queue).wait()
memory, runtime_queue = Buffer(np.zeros(64, np.int32)), Queue()
runtime_queue.submit(lambda handler: handler.fill(handler.access(memory, "write"), 1)).wait()
import fairlead.icd.command_buffer.engines.direct
holder = types.ModuleType("holder")
holder.held = [loop, graph, memory, runtime_queue]
del loop, graph, memory, runtime_queue, kernel, buffer, queue, context
ours = [name for name in sys.modules if name.startswith("fairlead")]
for name in ours:
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(sys.modules[name]))
names = list(sys.modules)
later = names[names.index(sys.argv[2]) :]
moved = {name: sys.modules.pop(name) for name in later}
sys.modules["holder"] = holder
sys.modules.update(moved)
ctypes.pythonapi.Py_IncRef(ctypes.py_object(holder))
del holder, moved, platform
"""


@pytest.mark.parametrize("later", ["sys", "fairlead.icd.command_buffer.engines.direct"])
def test_what_a_module_holds_ends_silently_with_python(
    run_python: RunPython, each_driver: Driver, later: str
) -> None:
    done = run_python(HELD_BY_A_MODULE, each_driver.library, later, fresh=True)
    assert "ignored" not in done.err, done.err
