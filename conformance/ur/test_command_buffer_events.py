"""Events of the commands of command-buffers.

A device without UR_DEVICE_INFO_COMMAND_BUFFER_EVENT_SUPPORT_EXP answers UNSUPPORTED_FEATURE to an
append with an event or a wait list. With it, the event is complete when its command has been
executed, and a command waits for the events of its list. Both hold for each enqueue.
"""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.conformance.arrays import ints
from fairlead.conformance.checks import equal, expect, rule, unsupported
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import COUNT, SIZE, URObjects
from fairlead.conformance.ur.recording import LAUNCH, URRecording
from fairlead.conformance.ur.values import BufferValue
from fairlead.conformance.ur.world import World
from fairlead.loader.ur.abi import UR

SUPPORT = "UR_DEVICE_INFO_COMMAND_BUFFER_EVENT_SUPPORT_EXP"
STEM = "urCommandBufferAppend"
APPENDS = (
    "KernelLaunchWithArgs",
    "USMMemcpy",
    "USMFill",
    "MemBufferCopy",
    "MemBufferWrite",
    "MemBufferRead",
    "MemBufferCopyRect",
    "MemBufferWriteRect",
    "MemBufferReadRect",
    "MemBufferFill",
    "USMPrefetch",
    "USMAdvise",
)


def make_arguments(name: str, world: World, recording: URRecording) -> tuple[Any, ...]:
    """Return the arguments to append a command with."""
    data, zero = world.keep(ints([0] * COUNT)), UR.get_struct("ur_rect_offset_t")()
    box = UR.get_struct("ur_rect_region_t")(16, 4, 4)
    rect = zero, zero, box, 16, 64, 16, 64
    table: dict[str, Any] = {
        "KernelLaunchWithArgs": lambda: recording.launch_arguments(
            world.the_kernel, (BufferValue(world.the_buffer), ints([1]))
        ),
        "USMMemcpy": lambda: (world.the_usm, world.other_usm, SIZE),
        "USMFill": lambda: (world.the_usm, data, 4, SIZE),
        "MemBufferCopy": lambda: (world.the_buffer, world.other_buffer, 0, 0, SIZE),
        "MemBufferWrite": lambda: (world.the_buffer, 0, SIZE, data),
        "MemBufferRead": lambda: (world.the_buffer, 0, SIZE, data),
        "MemBufferCopyRect": lambda: (world.the_buffer, world.other_buffer, *rect),
        "MemBufferWriteRect": lambda: (world.the_buffer, *rect, data),
        "MemBufferReadRect": lambda: (world.the_buffer, *rect, data),
        "MemBufferFill": lambda: (world.the_buffer, data, 4, 0, SIZE),
        "USMPrefetch": lambda: (world.the_usm, SIZE, 1),
        "USMAdvise": lambda: (world.the_usm, SIZE, 1),
    }
    return table[name]()


def each(text: str) -> list[Any]:
    return [pytest.param(name, id=name, marks=rule(f"{STEM}{name}Exp", text)) for name in APPENDS]


@pytest.mark.parametrize("name", each("phEvent without event support: UNSUPPORTED_FEATURE"))
def test_signal_refused(ur: URCalls, make: URObjects, world: World, name: str) -> None:
    recording = URRecording(make)
    if ur.device_says(SUPPORT):
        unsupported("the device supports events")
    given = make_arguments(name, world, recording)
    expect(
        UR,
        recording.try_append(f"{STEM}{name}Exp", *given, event=True)[0],
        "UR_RESULT_ERROR_UNSUPPORTED_FEATURE",
    )


@pytest.mark.parametrize("name", each("phEventWaitList without event support: UNSUPPORTED_FEATURE"))
def test_wait_refused(ur: URCalls, make: URObjects, world: World, name: str) -> None:
    recording = URRecording(make)
    if ur.device_says(SUPPORT):
        unsupported("the device supports events")
    given = make_arguments(name, world, recording)
    code, _ = recording.try_append(f"{STEM}{name}Exp", *given, wait=(world.the_event,))
    expect(UR, code, "UR_RESULT_ERROR_UNSUPPORTED_FEATURE")


@pytest.mark.parametrize(
    "name", each("phEvent: the event is complete when the command has been executed")
)
def test_signal(ur: URCalls, make: URObjects, world: World, queue: int, name: str) -> None:
    recording = URRecording(make)
    ur.require(SUPPORT)
    step = recording.append(f"{STEM}{name}Exp", *make_arguments(name, world, recording), event=True)
    recording.finalize()
    for _ in range(2):
        event = recording.enqueue(queue)
        make.wait(step.event)
        make.wait(event)


@pytest.mark.parametrize(
    "name", each("phEventWaitList: the command is not executed before the event")
)
def test_wait(ur: URCalls, make: URObjects, world: World, queue: int, name: str) -> None:
    recording, gate = URRecording(make), make.user_event()
    ur.require(SUPPORT)
    recording.append(
        f"{STEM}{name}Exp", *make_arguments(name, world, recording), wait=(gate.handle,)
    )
    recording.finalize()
    event = recording.enqueue(queue)
    is_complete = ur.is_complete(event)
    gate.complete()
    make.wait(event)
    equal(is_complete, False, "whether the command-buffer is complete before the event")


@rule(LAUNCH, "a command in a queue waits for the event of a command of a command-buffer")
def test_queue_waits_for_command(ur: URCalls, make: URObjects, buffer: int) -> None:
    first, second, other = make.queue(), make.queue(), make.buffer()
    recording = URRecording(make)
    ur.require(SUPPORT)
    step = recording.launch(make.kernel(), BufferValue(buffer), ints([5]), event=True)
    recording.finalize()
    done = recording.enqueue(first)
    make.wait(
        make.launch(
            second,
            make.kernel("copy"),
            BufferValue(other),
            BufferValue(buffer),
            after=(step.event,),
        ),
        done,
    )
    equal(make.read(second, other), [5] * COUNT, "what was copied after the event")


@rule(LAUNCH, "a command of one command-buffer waits for the event of a command of another")
def test_between_command_buffers(ur: URCalls, make: URObjects, buffer: int) -> None:
    first, second, other = make.queue(), make.queue(), make.buffer()
    one, two = URRecording(make), URRecording(make)
    ur.require(SUPPORT)
    step = one.launch(make.kernel(), BufferValue(buffer), ints([6]), event=True)
    two.launch(make.kernel("copy"), BufferValue(other), BufferValue(buffer), wait=(step.event,))
    one.finalize()
    two.finalize()
    for _ in range(2):
        make.write(first, other, [0] * COUNT)
        make.wait(one.enqueue(first), two.enqueue(second))
        equal(make.read(second, other), [6] * COUNT, "what was copied after the event")


@rule("urEnqueueCommandBufferExp", "the event of a command is reset by each enqueue")
def test_event_is_reset(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    recording, gate = URRecording(make), make.user_event()
    ur.require(SUPPORT)
    step = recording.launch(make.kernel(), BufferValue(buffer), ints([7]), event=True)
    recording.finalize_and_run(queue)
    make.wait(step.event)
    event = recording.enqueue(queue, gate.handle)
    is_complete = ur.is_complete(step.event)
    gate.complete()
    make.wait(event, step.event)
    equal(is_complete, False, "whether it is complete before the second execution")
