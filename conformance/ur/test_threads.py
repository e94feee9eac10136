"""Several threads at once.

The specification (INTRO, Multithreading) lets threads call every function at once on different
objects, and allocate memory in one context. It lists functions that may be called for the same
object. Every SYCL program shares queues between threads, but the specification does not allow it.
So those cases are beyond it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlead.conformance.arrays import ints
from fairlead.conformance.checks import beyond_specification, equal, rule
from fairlead.conformance.threads import in_threads
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.kinds import KINDS, Kind
from fairlead.conformance.ur.objects import COUNT, SIZE, URObjects
from fairlead.conformance.ur.values import BufferValue
from fairlead.conformance.ur.world import World

THREADS = 8
ROUNDS = 20

#: Kinds whose Retain and Release may be called for the same object from several threads.
SHARED = ("context", "program", "kernel")


def repeat(
    opened_objects: Callable[[], URObjects], make_one: Callable[[URObjects], object]
) -> None:
    """Make objects and release them in all threads, each of them many times."""

    def work(number: int) -> None:
        for _ in range(ROUNDS):
            make = opened_objects()
            make_one(make)
            make.close()

    in_threads(THREADS, work)


def count(ur: URCalls, make: URObjects, world: World, kind: Kind) -> None:
    """Retain and release one object in all threads, and check its count."""
    handle = kind.make(make, world)
    first = ur.info(kind.info, handle, kind.query)

    def work(number: int) -> None:
        for _ in range(ROUNDS):
            ur.ok(kind.retain, handle)
        for _ in range(ROUNDS):
            ur.ok(kind.release, handle)

    in_threads(THREADS, work)
    equal(ur.info(kind.info, handle, kind.query), first, "the reference count")


def each(kinds: list[Kind]) -> list:
    return [
        pytest.param(
            kind,
            id=kind.name,
            marks=rule(kind.retain, f"from {THREADS} threads on one {kind.name}"),
        )
        for kind in kinds
    ]


@pytest.mark.parametrize("kind", each([kind for kind in KINDS if kind.name in SHARED]))
def test_retain_and_release_one_object(
    ur: URCalls, make: URObjects, world: World, kind: Kind
) -> None:
    count(ur, make, world, kind)


@beyond_specification
@pytest.mark.parametrize("kind", each([kind for kind in KINDS if kind.name not in SHARED]))
def test_retain_and_release_one_other_object(
    ur: URCalls, make: URObjects, world: World, kind: Kind
) -> None:
    count(ur, make, world, kind)


@rule("urDeviceGetInfo", f"from {THREADS} threads on one device")
def test_queries(ur: URCalls, device: int, platform: int) -> None:
    name = ur.info("urDeviceGetInfo", device, "UR_DEVICE_INFO_NAME")

    def work(number: int) -> None:
        for _ in range(ROUNDS):
            equal(ur.info("urDeviceGetInfo", device, "UR_DEVICE_INFO_NAME"), name, "the name")
            ur.info("urPlatformGetInfo", platform, "UR_PLATFORM_INFO_NAME")

    in_threads(THREADS, work)


@rule("urContextCreate", f"from {THREADS} threads")
def test_contexts(opened_objects: Callable[[], URObjects]) -> None:
    repeat(opened_objects, lambda make: make.context())


@rule("urMemBufferCreate", f"from {THREADS} threads in one context")
def test_buffers_of_one_context(opened_objects: Callable[[], URObjects]) -> None:
    repeat(opened_objects, lambda make: make.buffer())


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            kind, marks=rule(f"urUSM{kind}Alloc", f"from {THREADS} threads in one context")
        )
        for kind in ("Host", "Device", "Shared")
    ],
)
def test_usm_of_one_context(
    make: URObjects, opened_objects: Callable[[], URObjects], kind: str
) -> None:
    make.usm(kind)
    repeat(opened_objects, lambda own: own.usm(kind))


@rule("urKernelCreate", f"from {THREADS} threads on one program")
def test_kernels_of_one_program(opened_objects: Callable[[], URObjects]) -> None:
    repeat(opened_objects, lambda make: make.kernel())


@rule(
    "urEnqueueKernelLaunchWithArgsExp",
    f"from {THREADS} threads, each with a queue, a kernel and a buffer of its own",
)
def test_launches(opened_objects: Callable[[], URObjects]) -> None:
    def work(number: int) -> None:
        make = opened_objects()
        queue, kernel, buffer = make.queue(), make.kernel(), make.buffer()
        for value in range(ROUNDS):
            make.launch(queue, kernel, BufferValue(buffer), ints([100 * number + value]))
        equal(
            make.read(queue, buffer),
            [100 * number + ROUNDS - 1] * COUNT,
            "what the last launch wrote",
        )
        make.close()

    in_threads(THREADS, work)


@rule("urEventGetInfo", f"from {THREADS} threads for events of one context")
def test_events(ur: URCalls, opened_objects: Callable[[], URObjects]) -> None:
    def work(number: int) -> None:
        make = opened_objects()
        queue = make.queue()
        for _ in range(ROUNDS):
            event = make.event(queue)
            ur.ok("urQueueFinish", queue)
            equal(ur.is_complete(event), True, "whether the event is complete")
        make.close()

    in_threads(THREADS, work)


@beyond_specification
@rule("urEnqueueMemBufferFill", f"from {THREADS} threads on one queue, each on a buffer of its own")
def test_one_queue(ur: URCalls, make: URObjects, queue: int) -> None:
    buffers = [make.buffer() for _ in range(THREADS)]

    def work(number: int) -> None:
        pattern = ints([number])
        for _ in range(ROUNDS):
            ur.ok("urEnqueueMemBufferFill", queue, buffers[number], pattern, 4, 0, SIZE)

    in_threads(THREADS, work)
    for number, buffer in enumerate(buffers):
        equal(make.read(queue, buffer), [number] * COUNT, f"buffer {number}")
