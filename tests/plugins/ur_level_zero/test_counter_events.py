"""Counter-based events: where commands signal them, who chooses them, and what needs no reset."""

from __future__ import annotations

import threading
from ctypes import CFUNCTYPE, c_void_p
from types import SimpleNamespace
from typing import Any, Final

import pytest

from fairlead.conformance.checks import Mismatch
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import COUNT, URObjects
from fairlead.conformance.ur.recording import URRecording
from fairlead.conformance.ur.values import BufferValue
from fairlead.loader.ze.abi import ZE
from fairlead.plugins.sdk.conversions import URError
from fairlead.plugins.ur_level_zero.core import adapter
from fairlead.plugins.ur_level_zero.devices import LZDevice
from fairlead.plugins.ur_level_zero.event_kinds import VARIABLE, EventSource, choose_events

POOLS: Final = ZE.strings["ZE_EVENT_POOL_COUNTER_BASED_EXP_NAME"]
OUT_OF_ORDER: Final = "OUT_OF_ORDER_EXEC_MODE_ENABLE"
KINDS: Final = {"regular": EventSource.REGULAR, "pools": EventSource.COUNTER_POOLS}


def python_object(kind: str, handle: int) -> Any:
    return adapter.objects.list_owned(kind)[handle]


@pytest.fixture(params=["regular", "pools", "own"])
def kind(
    request: pytest.FixtureRequest, behind: LZDevice, monkeypatch: pytest.MonkeyPatch
) -> EventSource:
    """The events of in-order lists: regular, of pools, or each by itself as since 1.15."""
    monkeypatch.setenv(VARIABLE, "regular" if request.param == "regular" else "auto")
    if request.param == "own":
        monkeypatch.setitem(behind.platform.__dict__, "api_version", "1.15")
    return KINDS.get(request.param, EventSource.COUNTERS)


@pytest.fixture
def fresh(kind: EventSource, make: URObjects) -> int:
    """A context with such events."""
    made = make.context()
    assert python_object("ur_context_handle_t", made).events.source is kind
    return made


@pytest.fixture
def reset(behind: LZDevice, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes each call that resets or signals an event on the host."""
    seen: list[str] = []
    for name in ("zeEventHostReset", "zeEventHostSignal"):
        real: Any = getattr(behind.table, name)
        monkeypatch.setattr(
            behind.table, name, lambda event, name=name, real=real: seen.append(name) or real(event)
        )
    return seen


def test_events_of_an_in_order_queue_are_used_again(
    kind: EventSource, fresh: int, make: URObjects, reset: list[str]
) -> None:
    queue = make.queue(context=fresh)
    for _ in range(100):
        event = make.barrier(queue)
        make.wait(event)
        make.release(event)
    assert bool(reset) == (kind is EventSource.REGULAR)


@pytest.mark.parametrize("flags", [OUT_OF_ORDER, "PROFILING_ENABLE"])
def test_other_queues_have_regular_events(
    fresh: int, make: URObjects, reset: list[str], flags: str
) -> None:
    queue = make.queue(flags, context=fresh)
    for _ in range(100):
        event = make.barrier(queue)
        make.wait(event)
        make.release(event)
    assert "zeEventHostReset" in reset


@pytest.mark.slow
def test_queues_wait_for_each_other(fresh: int, make: URObjects) -> None:
    program = make.source_program(
        b"kernel void add_one(global int *a) { a[get_global_id(0)]++; }",
        context=fresh,
    )
    queues = [
        make.queue(context=fresh),
        make.queue(context=fresh),
        make.queue(OUT_OF_ORDER, context=fresh),
    ]
    total, kernel = make.buffer(context=fresh), make.kernel("add_one", program=program)
    make.write(queues[0], total, [0] * COUNT)
    events: list[int] = []
    for turn in range(120):
        events.append(make.launch(queues[turn % 3], kernel, BufferValue(total), after=events[-1:]))
        if len(events) > 5:
            make.release(events.pop(0))
    make.wait(*events)
    assert make.read(queues[0], total) == [120] * COUNT


def test_the_event_of_a_command_needs_no_wait_before_the_next_enqueue(
    kind: EventSource, fresh: int, make: URObjects, reset: list[str], calls: URCalls
) -> None:
    """In an in-order command-buffer. With regular events the host waits, and resets it."""
    gate = threading.Event()
    task = CFUNCTYPE(None, c_void_p)(lambda _: gate.wait() and None)
    queue, target = make.queue(context=fresh), make.buffer(context=fresh)
    recording = URRecording(make, isInOrder=True, context=fresh)
    step = recording.fill(target, 5, event=True)
    recording.finalize()
    opener = threading.Timer(0.05, gate.set) if kind is EventSource.REGULAR else None
    try:
        calls.ok("urEnqueueHostTaskExp", queue, task)
        recording.enqueue(queue)
        if opener is not None:
            opener.start()
        reset.clear()
        recording.enqueue(queue)
        assert gate.is_set() == (kind is EventSource.REGULAR)
        assert bool(reset) == (kind is EventSource.REGULAR)
        status = "UR_EVENT_INFO_COMMAND_EXECUTION_STATUS"
        if kind is not EventSource.REGULAR:
            assert calls.info("urEventGetInfo", step.event, status) != 0
    finally:
        gate.set()
        if opener is not None:
            opener.cancel()
    make.wait(step.event)
    assert make.read(queue, target) == [5] * COUNT


def test_explain_says_which_events_and_why(kind: EventSource, fresh: int, make: URObjects) -> None:
    recording = URRecording(make, isInOrder=True, context=fresh)
    recording.fill(make.buffer(context=fresh), 1)
    buffer = python_object("ur_exp_command_buffer_handle_t", recording.handle)
    counters = "counter-based events, because the driver has"
    why = {
        EventSource.REGULAR: f"regular events, because {VARIABLE} says so",
        EventSource.COUNTER_POOLS: f"{counters} {POOLS}",
        EventSource.COUNTERS: f"{counters} zeEventCounterBasedCreate",
    }
    assert buffer.explain().endswith(f"in order; {why[kind]}")


def test_a_profiled_command_buffer_has_regular_events(fresh: int, make: URObjects) -> None:
    recording = URRecording(make, isInOrder=True, enableProfiling=True, context=fresh)
    buffer = python_object("ur_exp_command_buffer_handle_t", recording.handle)
    assert buffer.explain().endswith("regular events, because it is profiled")


def test_an_unknown_kind_is_refused(make: URObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "fast")
    with pytest.raises(Mismatch, match="INVALID_VALUE"):
        make.context()


@pytest.mark.parametrize("wanted", ["auto", "counter-based"])
def test_a_driver_without_them(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its in-order lists signal regular events. To ask for others is an error."""
    monkeypatch.setenv(VARIABLE, wanted)
    platform: Any = SimpleNamespace(api_version="1.8", extensions={}, has=lambda name: True)
    if wanted == "auto":
        assert choose_events(platform, 1).source is EventSource.REGULAR
    else:
        with pytest.raises(URError, match="no counter-based events"):
            choose_events(platform, 1)


def test_a_context_of_several_devices_has_events_of_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event without a pool belongs to one device."""
    monkeypatch.delenv(VARIABLE, raising=False)
    platform: Any = SimpleNamespace(api_version="1.15", extensions={POOLS: 1}, has=lambda _: True)
    assert choose_events(platform, 1).source is EventSource.COUNTERS
    assert choose_events(platform, 2).source is EventSource.COUNTER_POOLS
