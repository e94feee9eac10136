"""Captures of queues on Level Zero drivers, beyond what the conformance suite asks."""

from __future__ import annotations

import ctypes
from ctypes import byref

import pytest

from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import URObjects
from fairlead.plugins.ur_level_zero.devices import LZDevice
from fairlead.plugins.ur_level_zero.platforms import LZPlatform

BEGIN, END = "urQueueBeginGraphCaptureExp", "urQueueEndGraphCaptureExp"


def test_a_graph_is_captured_into_once(calls: URCalls, context: int, queue: int) -> None:
    graph = calls.new("urGraphCreateExp", context)
    calls.ok("urQueueBeginCaptureIntoGraphExp", queue, graph)
    assert calls.new(END, queue) == graph
    calls.fails("urQueueBeginCaptureIntoGraphExp", "INVALID_GRAPH", queue, graph)
    captured = ctypes.c_bool(True)
    calls.ok("urQueueIsGraphCaptureEnabledExp", queue, captured)
    assert not captured
    calls.ok("urGraphDestroyExp", graph)


def test_a_command_buffer_is_not_captured(calls: URCalls, make: URObjects, queue: int) -> None:
    buffer = make.command_buffer()
    calls.ok("urCommandBufferFinalizeExp", buffer)
    calls.ok(BEGIN, queue)
    calls.fails("urEnqueueCommandBufferExp", "GRAPH_CAPTURE_UNSUPPORTED", queue, buffer)
    calls.ok("urGraphDestroyExp", calls.new(END, queue))
    calls.ok("urEnqueueCommandBufferExp", queue, buffer)
    calls.ok("urQueueFinish", queue)


def test_a_driver_without_the_extension(
    calls: URCalls, context: int, queue: int, behind: LZDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "UR_DEVICE_INFO_GRAPH_RECORD_AND_REPLAY_SUPPORT_EXP"
    assert calls.info("urDeviceGetInfo", calls.device, name)
    has = LZPlatform.has
    monkeypatch.setattr(
        LZPlatform, "has", lambda self, name: "Graph" not in name and has(self, name)
    )
    assert not calls.info("urDeviceGetInfo", calls.device, name)
    place = byref(ctypes.c_void_p())
    calls.fails("urGraphCreateExp", "UNSUPPORTED_FEATURE", context, place)
    calls.fails(BEGIN, "UNSUPPORTED_FEATURE", queue)
