"""Contexts and queues: creation, properties, native handles, order."""

from __future__ import annotations

import ctypes

import pytest

from fairlead.conformance.arrays import handles
from fairlead.conformance.checks import equal, rule, unsupported
from fairlead.conformance.pi.objects import (
    OUT_OF_ORDER,
    PROFILING,
    PIObjects,
    PIPointer,
    check,
    codes,
    waits,
)
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.pi.abi import PI

CONTEXT, QUEUE = "piContextCreate", "piextQueueCreate"


@rule(CONTEXT, "PI_CONTEXT_INFO_NUM_DEVICES and PI_CONTEXT_INFO_DEVICES are what it was made with")
def test_context(bare_objects: PIObjects) -> None:
    context = bare_objects.new_context()
    names = ("PI_CONTEXT_INFO_NUM_DEVICES", "PI_CONTEXT_INFO_DEVICES")
    equal(
        [bare_objects.number("piContextGetInfo", context, name) for name in names],
        [1, bare_objects.device],
        "the answers",
    )


@rule(CONTEXT, "an error if there are no devices")
def test_no_devices(pi: DispatchTable, device: int) -> None:
    context = ctypes.c_void_p()
    codes(
        pi.piContextCreate(None, 0, handles(device), None, None, ctypes.byref(context)),
        "INVALID_VALUE",
        "INVALID_DEVICE",
    )


@rule(
    "piextContextGetNativeHandle",
    "piextContextCreateWithNativeHandle gives a context of the same native handle",
)
def test_native_context(bare_objects: PIObjects) -> None:
    objects = bare_objects
    native = objects.make("piextContextGetNativeHandle", objects.context, ...)
    again = objects.make(
        "piextContextCreateWithNativeHandle", native, 1, handles(objects.device), False, ...
    )
    equal(objects.make("piextContextGetNativeHandle", again, ...), native, "the native handle")


@rule("piextContextSetExtendedDeleter", "is called when the context goes")
def test_extended_deleter(bare_objects: PIObjects) -> None:
    seen: list[int] = []
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    callback = prototype(lambda data: seen.append(data))
    inner = PIObjects(bare_objects.pi, bare_objects.device)
    context = inner.new_context()
    inner.call("piextContextSetExtendedDeleter", context, callback, 42)
    before = list(seen)
    inner.close()
    equal((before, seen), ([], [42]), "before and after the release")


FLAGS = {
    "in-order": 0,
    "out-of-order": OUT_OF_ORDER,
    "profiling": PROFILING,
    "both": OUT_OF_ORDER | PROFILING,
}


@rule(QUEUE, "PI_QUEUE_INFO_PROPERTIES has the flags that it was made with")
@pytest.mark.parametrize("kind", FLAGS)
def test_flags(bare_objects: PIObjects, kind: str) -> None:
    if FLAGS[kind] & ~bare_objects.number(
        "piDeviceGetInfo", bare_objects.device, "PI_DEVICE_INFO_QUEUE_PROPERTIES"
    ):
        unsupported("the device has no such queues")
    queue = bare_objects.queue(FLAGS[kind])
    found = bare_objects.number("piQueueGetInfo", queue, "PI_QUEUE_INFO_PROPERTIES")
    equal(found & (OUT_OF_ORDER | PROFILING), FLAGS[kind], "the flags")


@rule("piQueueCreate", "takes the flags themselves")
def test_old_form(bare_objects: PIObjects) -> None:
    queue = bare_objects.make(
        "piQueueCreate", bare_objects.context, bare_objects.device, PROFILING, ...
    )
    equal(
        bare_objects.number("piQueueGetInfo", queue, "PI_QUEUE_INFO_PROPERTIES") & PROFILING,
        PROFILING,
        "the flags",
    )


@rule(
    "piextQueueGetNativeHandle",
    "piextQueueCreateWithNativeHandle gives a queue of the same native handle",
)
def test_native_queue(bare_objects: PIObjects, queue: int) -> None:
    objects, native, kind = bare_objects, ctypes.c_uint64(), ctypes.c_int32()
    objects.call("piextQueueGetNativeHandle", queue, ctypes.byref(native), ctypes.byref(kind))
    properties = (ctypes.c_uint64 * 3)(PI["PI_QUEUE_FLAGS"], 0, 0)
    arguments = (native.value, kind.value, objects.context, objects.device, False, properties)
    again = objects.make("piextQueueCreateWithNativeHandle", *arguments, ...)
    second = ctypes.c_uint64()
    objects.call("piextQueueGetNativeHandle", again, ctypes.byref(second), ctypes.byref(kind))
    equal(second.value, native.value, "the native handle")


@rule("piQueueFinish", "waits for all commands; piQueueFlush is answered")
def test_finish(objects: PIObjects, queue: int) -> None:
    memory = objects.usm("shared", [0] * 1024)
    kernel, event = objects.kernel("increment", PIPointer(memory)), ctypes.c_void_p()
    for _ in range(20):
        objects.launch(queue, kernel, 1024)
    objects.launch(queue, kernel, 1024, event=ctypes.byref(event))
    objects.call("piQueueFlush", queue)
    objects.finish(queue)
    equal(
        objects.status(objects.owned(event.value or 0, "pi_event")),
        PI["PI_EVENT_COMPLETE"],
        "the status of the last event",
    )
    equal(objects.numbers(queue, memory, 1024), [21] * 1024, "the memory")


@rule("piEnqueueKernelLaunch", "a queue in order runs commands one after another")
def test_in_order(objects: PIObjects, queue: int) -> None:
    memory = objects.usm("shared", [0] * 1024)
    expected = 0
    for value in range(16):
        objects.launch(
            queue, objects.kernel("twice_plus", PIPointer(memory), ctypes.c_int32(value % 2)), 1024
        )
        expected = 2 * expected + value % 2
    equal(objects.numbers(queue, memory, 1024), [expected] * 1024, "the memory")


def _enqueue_two(objects: PIObjects, queue: int, memory: int, after: list[int]) -> list[int]:
    """Enqueue two commands that change all of `memory`, one after the other.

    Returns the event of the second.
    """
    for value in (7, 3):
        event = ctypes.c_void_p()
        kernel = objects.kernel("twice_plus", PIPointer(memory), ctypes.c_int32(value))
        objects.launch(queue, kernel, 1024, after, ctypes.byref(event))
        after = [objects.owned(event.value or 0, "pi_event")]
    return after


@rule("piEnqueueEventsWaitWithBarrier", "what comes after a barrier waits for what is before it")
def test_barrier(objects: PIObjects, out_of_order: int) -> None:
    memory = objects.usm("shared", [0] * 1024)
    _enqueue_two(objects, out_of_order, memory, [])
    objects.call("piEnqueueEventsWaitWithBarrier", out_of_order, 0, None, None)
    _enqueue_two(objects, out_of_order, memory, [])
    equal(
        objects.numbers(out_of_order, memory, 1024),
        [((7 * 2 + 3) * 2 + 7) * 2 + 3] * 1024,
        "the memory",
    )


@rule("piEnqueueEventsWait", "its event is complete when the events are, on another queue too")
def test_events_wait(objects: PIObjects, out_of_order: int) -> None:
    memory, other = objects.usm("shared", [0] * 1024), objects.queue()
    last = _enqueue_two(objects, out_of_order, memory, [])
    marker = objects.make("piEnqueueEventsWait", other, *waits(*last), ...)
    objects.call("piEventsWait", *waits(marker))
    check(objects.pi.piEventsWait(*waits(*last)), "piEventsWait")
    equal(
        [objects.status(event) for event in (marker, *last)],
        [PI["PI_EVENT_COMPLETE"]] * 2,
        "the status of both events",
    )
