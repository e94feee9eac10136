"""Reference counts: an object begins with one, Retain adds one, Release takes one.

The last Release ends the object. Further cases test what the specification says of objects that
others still need. A queue is deleted when its commands are finished. urUSMFree waits for commands
that use the memory. A kernel retains its program.
"""

from __future__ import annotations

import pytest

from fairlead.conformance.arrays import handles, ints
from fairlead.conformance.checks import equal, failed, rule
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.kinds import KINDS, Kind
from fairlead.conformance.ur.objects import COUNT, URObjects
from fairlead.conformance.ur.values import BufferValue, PointerValue
from fairlead.conformance.ur.world import World


def each(function: str, text: str) -> list:
    """Return a case for every kind. `function` is a property of `Kind`."""
    return [
        pytest.param(
            kind, id=kind.name, marks=rule(getattr(kind, function), f"{text} ({kind.name})")
        )
        for kind in KINDS
    ]


def count_of(ur: URCalls, kind: Kind, handle: int) -> int:
    """Return the count. The adapter's own references may add to it. The kind must have a count."""
    count = ur.info(kind.info, handle, kind.query)
    if count < 1:
        failed("a reference count of at least 1", count)
    return count


@pytest.mark.parametrize("kind", each("info", "a new object has a reference"))
def test_new_object_has_a_reference(ur: URCalls, make: URObjects, world: World, kind: Kind) -> None:
    count_of(ur, kind, kind.make(make, world))


@pytest.mark.parametrize("kind", each("retain", "adds a reference"))
def test_retain_adds_a_reference(ur: URCalls, make: URObjects, world: World, kind: Kind) -> None:
    handle = kind.make(make, world)
    first = count_of(ur, kind, handle)
    ur.ok(kind.retain, handle)
    count = count_of(ur, kind, handle)
    ur.ok(kind.release, handle)
    equal(count, first + 1, "the reference count")


@pytest.mark.parametrize(
    "kind", each("release", "takes one reference; the object lives on with another")
)
def test_retained_object_survives_a_release(
    ur: URCalls, make: URObjects, world: World, kind: Kind
) -> None:
    handle = kind.make(make, world)
    first = count_of(ur, kind, handle)
    for _ in range(3):
        ur.ok(kind.retain, handle)
    for _ in range(3):
        ur.ok(kind.release, handle)
    equal(count_of(ur, kind, handle), first, "the reference count")


@pytest.mark.parametrize("kind", each("release", "the last release succeeds, a hundred times over"))
def test_made_and_released_a_hundred_times(make: URObjects, world: World, kind: Kind) -> None:
    for _ in range(100 if kind.name != "program" else 3):
        make.release(kind.make(make, world))


@rule("urQueueRelease", "commands that were enqueued before are finished all the same")
def test_released_queue_finishes_its_commands(
    ur: URCalls, make: URObjects, buffer: int, queue: int
) -> None:
    other = make.queue()
    event = make.launch(other, make.kernel(), BufferValue(buffer), ints([5]))
    make.release(other)
    ur.ok("urEventWait", 1, handles(event))
    equal(make.read(queue, buffer), [5] * COUNT, "what the launch wrote")


@rule("urUSMFree", "waits for commands that were enqueued before and use the memory")
def test_free_waits_for_commands(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    memory = make.usm()
    kernel = make.kernel()
    for value in range(20):
        make.launch(queue, kernel, PointerValue(memory), ints([value]))
    data = ints([0] * COUNT)
    ur.ok("urEnqueueUSMMemcpy", queue, False, data, memory, 4 * COUNT)
    make.release(memory)
    ur.ok("urQueueFinish", queue)
    equal(list(data), [19] * COUNT, "what the copy that was enqueued before read")


@rule("urProgramRelease", "a kernel of a released program can be launched")
def test_kernel_keeps_its_program(make: URObjects, buffer: int, queue: int) -> None:
    program = make.program()
    kernel = make.kernel(program=program)
    make.release(program)
    make.launch(queue, kernel, BufferValue(buffer), ints([7]))
    equal(make.read(queue, buffer), [7] * COUNT, "what the launch wrote")


@rule("urKernelRelease", "a launch that was enqueued before is executed")
def test_released_kernel_is_executed(make: URObjects, buffer: int, queue: int) -> None:
    kernel = make.kernel()
    make.launch(queue, kernel, BufferValue(buffer), ints([9]))
    make.release(kernel)
    equal(make.read(queue, buffer), [9] * COUNT, "what the launch wrote")


@rule(
    "urEventRelease",
    "a command whose event is released is executed, and can be waited for otherwise",
)
def test_released_event(ur: URCalls, make: URObjects, buffer: int, queue: int) -> None:
    make.release(make.launch(queue, make.kernel(), BufferValue(buffer), ints([11])))
    ur.ok("urQueueFinish", queue)
    equal(make.read(queue, buffer), [11] * COUNT, "what the launch wrote")
