"""Retain and release of every kind of object, and what outlives what."""

from __future__ import annotations

import ctypes

import pytest

from fairlead.conformance.checks import equal, rule
from fairlead.conformance.pi.objects import PIObjects, PIPointer, waits
from fairlead.conformance.pi.query_objects import QUERIES

#: Kinds of objects, with the function and the query for their reference counts.
COUNTED = {
    "Context": ("piContextGetInfo", "PI_CONTEXT_INFO_REFERENCE_COUNT"),
    "Queue": ("piQueueGetInfo", "PI_QUEUE_INFO_REFERENCE_COUNT"),
    "Event": ("piEventGetInfo", "PI_EVENT_INFO_REFERENCE_COUNT"),
    "Sampler": ("piSamplerGetInfo", "PI_SAMPLER_INFO_REFERENCE_COUNT"),
    "Program": ("piProgramGetInfo", "PI_PROGRAM_INFO_REFERENCE_COUNT"),
    "Kernel": ("piKernelGetInfo", "PI_KERNEL_INFO_REFERENCE_COUNT"),
}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            kind,
            id=kind,
            marks=rule(f"pi{kind}Retain", "adds a reference, which a release takes away"),
        )
        for kind in COUNTED
    ],
)
def test_count(objects: PIObjects, kind: str) -> None:
    routine, name = COUNTED[kind]
    (handle, *_) = QUERIES[routine][1](objects)
    objects.finish(objects.queue())
    counts = [objects.number(routine, handle, name)]
    for action in ("Retain", "Release"):
        objects.call(f"pi{kind}{action}", handle)
        counts.append(objects.number(routine, handle, name))
    equal([count - counts[0] for count in counts], [0, 1, 0], "the count's changes")


@rule("piMemRetain", "memory lives on after a release of a second reference")
def test_memory(bare_objects: PIObjects, queue: int) -> None:
    buffer = bare_objects.buffer([1, 2, 3, 4])
    bare_objects.call("piMemRetain", buffer)
    bare_objects.call("piMemRelease", buffer)
    equal(bare_objects.read(queue, buffer), [1, 2, 3, 4], "the buffer")


@rule("piDeviceRetain", "is answered for a root device, as is piDeviceRelease")
def test_device(bare_objects: PIObjects) -> None:
    bare_objects.call("piDeviceRetain", bare_objects.device)
    bare_objects.call("piDeviceRelease", bare_objects.device)


@rule("piProgramRelease", "a kernel outlives its program")
def test_kernel_outlives_program(objects: PIObjects, queue: int) -> None:
    memory = objects.usm("shared", [0] * 4)
    inner = objects.new_maker()
    inner.program = inner.build()
    kernel = objects.make("piKernelCreate", inner.program, b"increment", ...)
    inner.close()
    objects.set_argument(kernel, 0, PIPointer(memory))
    objects.launch(queue, kernel, 4)
    equal(objects.numbers(queue, memory, 4), [1] * 4, "the memory")


@rule("piContextRelease", "objects outlive the last reference of the caller's to their context")
def test_context(bare_objects: PIObjects) -> None:
    objects = bare_objects
    context = ctypes.c_void_p()
    devices = (ctypes.c_void_p * 1)(objects.device)
    objects.call("piContextCreate", None, 1, devices, None, None, ctypes.byref(context))
    queue = objects.queue(context=context.value or 0)
    objects.call("piContextRelease", context)
    objects.finish(queue)


@rule("piKernelRelease", "a kernel can be released while a launch of it waits")
def test_launch_outlives_kernel(objects: PIObjects, out_of_order: int) -> None:
    memory, inner = (
        objects.usm("shared", [0] * 1024),
        objects.new_maker(),
    )
    first, second = ctypes.c_void_p(), ctypes.c_void_p()
    objects.call(
        "piextUSMEnqueueMemset", out_of_order, memory, 0, 4096, 0, None, ctypes.byref(first)
    )
    kernel = inner.kernel("increment", PIPointer(memory))
    objects.launch(out_of_order, kernel, 1024, [first.value or 0], ctypes.byref(second))
    inner.close()
    for event in (first, second):
        objects.owned(event.value or 0, "pi_event")
    objects.call("piEventsWait", *waits(second.value or 0))
    equal(objects.numbers(out_of_order, memory, 1024), [1] * 1024, "the memory")


@rule("piEventRelease", "an event can be released before its command has ended")
def test_event(bare_objects: PIObjects, out_of_order: int) -> None:
    objects, event = bare_objects, ctypes.c_void_p()
    memory = objects.usm("shared", [0] * 1024)
    for _ in range(50):
        objects.call(
            "piextUSMEnqueueMemset", out_of_order, memory, 1, 4096, 0, None, ctypes.byref(event)
        )
        objects.call("piEventRelease", event)
    equal(objects.numbers(out_of_order, memory, 4), [0x01010101] * 4, "the memory")
