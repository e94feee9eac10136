"""Things that a device may use are kept until the event is complete, and no longer."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Iterator

import pyopencl as cl
import pytest

import fairlead
from fairlead.icd.command_buffer.lifetimes import Lifetimes


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
