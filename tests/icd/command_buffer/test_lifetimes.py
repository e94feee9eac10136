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
