"""Updates of command-buffers: when they are allowed, what they name, alternative kernels."""

from __future__ import annotations

import ctypes

from fairlead.conformance.arrays import ints
from fairlead.conformance.checks import (
    beyond_specification,
    equal,
    expect,
    failed,
    rule,
    unsupported,
)
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import COUNT, SIZE, URObjects
from fairlead.conformance.ur.recording import (
    UPDATE,
    AppendedCommand,
    Update,
    URRecording,
    need,
    record_store,
)
from fairlead.conformance.ur.values import BufferValue
from fairlead.loader.ur.abi import UR, UR_RESULT_SUCCESS

# When


@rule(UPDATE, "before_finalize: INVALID_OPERATION")
def test_before_finalize(ur: URCalls, make: URObjects, buffer: int) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    recording = URRecording(make, isUpdatable=True)
    step = recording.launch(make.kernel(), BufferValue(buffer), ints([1]), command=True)
    expect(
        UR,
        recording.try_update(Update(step.command, {1: ints([2])})),
        "UR_RESULT_ERROR_INVALID_OPERATION",
    )


@rule(UPDATE, "of_fixed_buffer: INVALID_OPERATION for a command-buffer that is not updatable")
def test_fixed_buffer(ur: URCalls, make: URObjects, buffer: int) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    _, step = record_store(make, buffer)
    fixed = URRecording(make)
    fixed.finalize()
    expect(
        UR,
        fixed.try_update(Update(step.command, {1: ints([2])})),
        "UR_RESULT_ERROR_INVALID_OPERATION",
    )


@rule(
    UPDATE,
    "while_executing: what was enqueued before keeps its values, what comes after has the new ones",
)
def test_while_executing(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    recording = URRecording(make, isUpdatable=True, isInOrder=True)
    make.write(queue, buffer, [0] * COUNT)
    step = recording.launch(
        make.kernel("axpy"),
        BufferValue(buffer),
        BufferValue(make_ones(make, queue)),
        ints([1]),
        command=True,
    )
    recording.finalize()
    for value in (10, 100, 1000):
        recording.enqueue(queue)
        recording.update(Update(step.command, {2: ints([value])}))
    recording.enqueue(queue)
    equal(make.read(queue, buffer), [1111] * COUNT, "the sum of what four executions added")


def make_ones(make: URObjects, queue: int) -> int:
    """Return a buffer of ones."""
    buffer = make.buffer()
    make.write(queue, buffer, [1] * COUNT)
    return buffer


@rule(UPDATE, "the values may be changed as soon as it returns")
def test_values_are_copied(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    recording, step = record_store(make, buffer)
    value = ints([2])
    recording.update(Update(step.command, {1: value}))
    value[0] = 3
    recording.run(queue)
    equal(make.read(queue, buffer), [2] * COUNT, "the buffer")


# What


@rule(UPDATE, "several_commands: each has its own new value")
def test_several_commands(ur: URCalls, make: URObjects, queue: int) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    recording, buffers = URRecording(make, isUpdatable=True), [make.buffer() for _ in range(3)]
    kernel = make.kernel()
    steps = [
        recording.launch(kernel, BufferValue(buffer), ints([1]), command=True) for buffer in buffers
    ]
    recording.finalize()
    recording.update(
        *(Update(step.command, {1: ints([number])}) for number, step in enumerate(steps, 5))
    )
    recording.run(queue)
    equal([make.read(queue, buffer)[0] for buffer in buffers], [5, 6, 7], "what was stored")


@rule(UPDATE, "one of two commands: the other keeps its value")
def test_one_of_two(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    recording, kernel, other = URRecording(make, isUpdatable=True), make.kernel(), make.buffer()
    step = recording.launch(kernel, BufferValue(buffer), ints([1]), command=True)
    recording.launch(kernel, BufferValue(other), ints([2]))
    recording.finalize()
    recording.update(Update(step.command, {1: ints([3])}))
    recording.run(queue)
    equal((make.read(queue, buffer)[0], make.read(queue, other)[0]), (3, 2), "what was stored")


@rule(UPDATE, "the last of several updates counts")
def test_last_update_counts(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    recording, step = record_store(make, buffer)
    for value in range(2, 20):
        recording.update(Update(step.command, {1: ints([value])}))
    recording.run(queue)
    equal(make.read(queue, buffer), [19] * COUNT, "the buffer")


@beyond_specification
@rule(UPDATE, "all_or_none: with one wrong element nothing is changed")
def test_all_or_none(ur: URCalls, make: URObjects, queue: int) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    recording, buffers = URRecording(make, isUpdatable=True), [make.buffer() for _ in range(2)]
    steps = [
        recording.launch(make.kernel(), BufferValue(buffer), ints([1]), command=True)
        for buffer in buffers
    ]
    recording.finalize()
    wrong = Update(steps[1].command, {7: ints([3])})
    code = recording.try_update(Update(steps[0].command, {1: ints([2])}), wrong)
    recording.run(queue)
    expect(UR, code, "UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX")
    equal([make.read(queue, buffer)[0] for buffer in buffers], [1, 1], "what was stored")


@rule(UPDATE, "an argument that the kernel does not have: INVALID_KERNEL_ARGUMENT_INDEX")
def test_unknown_argument(ur: URCalls, make: URObjects, buffer: int) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    recording, step = record_store(make, buffer)
    code = recording.try_update(Update(step.command, {2: ints([2])}))
    expect(UR, code, "UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX")


@rule(UPDATE, "a number of the wrong size: INVALID_KERNEL_ARGUMENT_SIZE")
def test_argument_of_wrong_size(ur: URCalls, make: URObjects, buffer: int) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    recording, step = record_store(make, buffer)
    code = recording.try_update(Update(step.command, {1: ctypes.c_int64(2)}))
    expect(UR, code, "UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE")


@rule(UPDATE, "a command of another command-buffer: INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP")
def test_foreign_command(ur: URCalls, make: URObjects, buffer: int) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    recording, _ = record_store(make, buffer)
    _, step = record_store(make, buffer)
    code = recording.try_update(Update(step.command, {1: ints([2])}))
    expect(UR, code, "UR_RESULT_ERROR_INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP")


@rule(UPDATE, "a command that is not a launch: INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP")
def test_no_launch(ur: URCalls, make: URObjects, buffer: int) -> None:
    need(ur, "KERNEL_ARGUMENTS")
    recording = URRecording(make, isUpdatable=True)
    given = buffer, ints([1]), 4, 0, SIZE
    code, step = recording.try_append("urCommandBufferAppendMemBufferFillExp", *given, command=True)
    if code or not step.command:
        unsupported("the adapter gives no handle for a fill")
    recording.finalize()
    code = recording.try_update(Update(step.command, {1: ints([2])}))
    expect(UR, code, "UR_RESULT_ERROR_INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP")


# Kernels


def record_alternatives(
    make: URObjects, buffer: int
) -> tuple[URRecording, AppendedCommand, int, int]:
    """Return a command-buffer with a launch of `add_one` and the alternative `twice`.

    With it come the command and both kernels.
    """
    recording = URRecording(make, isUpdatable=True)
    one, two = make.kernel("add_one"), make.kernel("twice")
    step = recording.launch(one, BufferValue(buffer), alternatives=(two,), command=True)
    recording.finalize()
    return recording, step, one, two


@rule(UPDATE, "kernel: one that was registered, and back again")
def test_kernel(ur: URCalls, make: URObjects, queue: int, buffer: int) -> None:
    need(ur, "KERNEL_HANDLE", "KERNEL_ARGUMENTS")
    recording, step, one, two = record_alternatives(make, buffer)
    make.write(queue, buffer, [5] * COUNT)
    seen = []
    for kernel in (0, two, two, one):
        if kernel:
            recording.update(Update(step.command, {0: BufferValue(buffer)}, kernel=kernel))
        recording.run(queue)
        seen.append(make.read(queue, buffer)[0])
    equal(seen, [6, 12, 24, 25], "the buffer after each execution")


@rule(UPDATE, "kernel: one with other parameters")
def test_kernel_with_other_parameters(
    ur: URCalls, make: URObjects, queue: int, buffer: int
) -> None:
    need(ur, "KERNEL_HANDLE", "KERNEL_ARGUMENTS")
    recording, other = URRecording(make, isUpdatable=True), make.kernel()
    step = recording.launch(
        make.kernel("add_one"), BufferValue(buffer), alternatives=(other,), command=True
    )
    recording.finalize()
    recording.update(Update(step.command, {0: BufferValue(buffer), 1: ints([33])}, kernel=other))
    recording.run(queue)
    equal(make.read(queue, buffer), [33] * COUNT, "the buffer")


@rule(UPDATE, "kernel: one that was not registered: INVALID_VALUE")
def test_unregistered_kernel(ur: URCalls, make: URObjects, buffer: int) -> None:
    need(ur, "KERNEL_HANDLE", "KERNEL_ARGUMENTS")
    recording, step, _, _ = record_alternatives(make, buffer)
    update = Update(step.command, {0: BufferValue(buffer), 1: ints([1])}, kernel=make.kernel())
    expect(UR, recording.try_update(update), "UR_RESULT_ERROR_INVALID_VALUE")


@rule(UPDATE, "kernel: without its arguments an error")
def test_kernel_without_arguments(ur: URCalls, make: URObjects, buffer: int) -> None:
    need(ur, "KERNEL_HANDLE", "KERNEL_ARGUMENTS")
    recording, step, _, two = record_alternatives(make, buffer)
    if recording.try_update(Update(step.command, kernel=two)) == UR_RESULT_SUCCESS:
        failed("an error", "UR_RESULT_SUCCESS")
