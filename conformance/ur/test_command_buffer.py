"""Command-buffers: the rules of the specification for state and dependencies.

They are EXP-COMMAND-BUFFER 1.12 and the functions' lists of errors. `test_command_buffer_enqueue`
tests submissions, `test_command_buffer_commands` what each command does, and
`test_command_buffer_events` the events of commands. `test_arguments` has the errors that an adapter
can see from the arguments alone.
"""

from __future__ import annotations

import ctypes

import pytest

from fairlead.conformance.arrays import ints
from fairlead.conformance.checks import each, equal, expect, failed, rule, unsupported
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import COUNT, SIZE, URObjects
from fairlead.conformance.ur.recording import LAUNCH, URRecording
from fairlead.conformance.ur.values import BufferValue
from fairlead.loader.ur.abi import UR

ENQUEUE = "urEnqueueCommandBufferExp"
CREATE = "urCommandBufferCreateExp"
FILL = "urCommandBufferAppendMemBufferFillExp"


# State


@rule("urCommandBufferFinalizeExp", "finalize_twice: INVALID_OPERATION")
def test_finalize_twice(ur: URCalls, make: URObjects) -> None:
    recording = URRecording(make)
    recording.finalize()
    ur.fails("urCommandBufferFinalizeExp", "INVALID_OPERATION", recording.handle)


@rule(FILL, "append_after_finalize: INVALID_OPERATION")
def test_append_after_finalize(make: URObjects, buffer: int) -> None:
    recording = URRecording(make)
    recording.finalize()
    code, _ = recording.try_append(FILL, buffer, ints([1]), 4, 0, SIZE)
    expect(UR, code, "UR_RESULT_ERROR_INVALID_OPERATION")


@rule(LAUNCH, "launch_after_finalize: INVALID_OPERATION")
def test_launch_after_finalize(make: URObjects, buffer: int) -> None:
    recording = URRecording(make)
    recording.finalize()
    given = recording.launch_arguments(make.kernel(), (BufferValue(buffer), ints([1])))
    expect(UR, recording.try_append(LAUNCH, *given)[0], "UR_RESULT_ERROR_INVALID_OPERATION")


@rule(ENQUEUE, "enqueue_before_finalize: INVALID_OPERATION or INVALID_COMMAND_BUFFER_EXP")
def test_enqueue_before_finalize(ur: URCalls, make: URObjects, queue: int) -> None:
    recording = URRecording(make)
    ur.fails(ENQUEUE, "INVALID_OPERATION|INVALID_COMMAND_BUFFER_EXP", queue, recording.handle)


@pytest.mark.parametrize(
    "in_order", each((False, True), ENQUEUE, "empty: an empty one is enqueued (isInOrder: {})")
)
def test_empty(make: URObjects, queue: int, in_order: bool) -> None:
    recording = URRecording(make, isInOrder=in_order)
    recording.finalize_and_run(queue)


@rule(
    CREATE,
    "updatable_without_capabilities: UNSUPPORTED_FEATURE where the device can update nothing",
)
def test_updatable_without_capabilities(
    ur: URCalls, make: URObjects, context: int, device: int
) -> None:
    ur.require("UR_DEVICE_INFO_COMMAND_BUFFER_SUPPORT_EXP")
    if ur.device_says("UR_DEVICE_INFO_COMMAND_BUFFER_UPDATE_CAPABILITIES_EXP"):
        unsupported("the device can update command-buffers")
    how = ur.struct("ur_exp_command_buffer_desc_t", isUpdatable=True)
    ur.fails(CREATE, "UNSUPPORTED_FEATURE", context, device, how, ctypes.c_void_p())


@rule(
    LAUNCH,
    "command_of_fixed_buffer: INVALID_OPERATION for a handle of a command that cannot be updated",
)
def test_command_of_fixed_buffer(make: URObjects, buffer: int) -> None:
    recording = URRecording(make)
    given = recording.launch_arguments(make.kernel(), (BufferValue(buffer), ints([1])))
    expect(
        UR,
        recording.try_append(LAUNCH, *given, command=True)[0],
        "UR_RESULT_ERROR_INVALID_OPERATION",
    )


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(
            f,
            id="-".join(f) or "none",
            marks=rule("urCommandBufferGetInfoExp", f"descriptor: {', '.join(f) or 'nothing'}"),
        )
        for f in (
            {},
            {"isInOrder": True},
            {"enableProfiling": True},
            {"isUpdatable": True},
            {"isInOrder": True, "isUpdatable": True},
        )
    ],
)
def test_descriptor(ur: URCalls, make: URObjects, fields: dict[str, bool]) -> None:
    recording = URRecording(make, **fields)
    raw = ur.raw_info(
        "urCommandBufferGetInfoExp", recording.handle, "UR_EXP_COMMAND_BUFFER_INFO_DESCRIPTOR"
    )
    found = UR.get_struct("ur_exp_command_buffer_desc_t").from_buffer_copy(raw)
    names = ("isUpdatable", "isInOrder", "enableProfiling")
    equal(
        {n: bool(getattr(found, n)) for n in names},
        {n: fields.get(n, False) for n in names},
        "the descriptor",
    )


@rule("urCommandBufferGetNativeHandleExp", "gives a handle where the driver has command-buffers")
def test_native_handle(ur: URCalls, make: URObjects) -> None:
    recording = URRecording(make)
    equal(
        bool(ur.new("urCommandBufferGetNativeHandleExp", recording.handle)),
        True,
        "whether there is one",
    )


@rule(
    "urDeviceGetInfo",
    "the update capabilities are bits that there are, and none without command-buffers",
)
def test_capabilities(ur: URCalls) -> None:
    capabilities = ur.device_says("UR_DEVICE_INFO_COMMAND_BUFFER_UPDATE_CAPABILITIES_EXP")
    legal = sum(UR.groups["ur_device_command_buffer_update_capability_flags_t"])
    if capabilities & ~legal or (
        capabilities and not ur.device_says("UR_DEVICE_INFO_COMMAND_BUFFER_SUPPORT_EXP")
    ):
        failed(f"bits of {legal:#x}, 0 without command-buffers", f"{capabilities:#x}")


# Dependencies


@rule(
    LAUNCH,
    "sync_points_order: commands that name each other's sync-points are executed in that order",
)
def test_sync_points_order(make: URObjects, queue: int, buffer: int) -> None:
    recording = URRecording(make)
    step = recording.fill(buffer, 1)
    for name in ("twice", "add_one", "twice", "add_one", "twice"):
        step = recording.launch(make.kernel(name), BufferValue(buffer), after=(step.point,))
    recording.finalize_and_run(queue)
    equal(make.read(queue, buffer), [14] * COUNT, "the buffer")


@rule(LAUNCH, "sync_points_of_several: a command waits for all of its list")
def test_sync_points_of_several(make: URObjects, queue: int) -> None:
    recording, parts = URRecording(make), [make.buffer() for _ in range(3)]
    points = [recording.fill(part, value).point for value, part in enumerate(parts, 2)]
    first = recording.launch(
        make.kernel("axpy"),
        BufferValue(parts[0]),
        BufferValue(parts[1]),
        ints([10]),
        after=points[:2],
    )
    recording.launch(
        make.kernel("axpy"),
        BufferValue(parts[0]),
        BufferValue(parts[2]),
        ints([100]),
        after=(first.point, points[2]),
    )
    recording.finalize_and_run(queue)
    equal(make.read(queue, parts[0]), [432] * COUNT, "the buffer")


@rule(LAUNCH, "sync-points of one command-buffer differ from each other")
def test_sync_points_differ(make: URObjects, buffer: int) -> None:
    recording = URRecording(make)
    points = [recording.fill(buffer, value).point for value in range(5)]
    equal(len(set(points)), 5, "the number of different sync-points")


@rule(
    LAUNCH,
    "in_order_ignores_sync_points: commands are executed in the order in which they were appended",
)
def test_in_order(make: URObjects, queue: int, buffer: int) -> None:
    recording = URRecording(make, isInOrder=True)
    recording.fill(buffer, 1)
    for name in ("twice", "add_one", "twice", "add_one", "twice"):
        recording.launch(make.kernel(name), BufferValue(buffer))
    recording.finalize_and_run(queue)
    equal(make.read(queue, buffer), [14] * COUNT, "the buffer")


@rule(LAUNCH, "in order: a list of sync-points does no harm")
def test_in_order_with_sync_points(make: URObjects, queue: int, buffer: int) -> None:
    recording = URRecording(make, isInOrder=True)
    step = recording.fill(buffer, 1)
    for name in ("twice", "add_one"):
        step = recording.launch(make.kernel(name), BufferValue(buffer), after=(step.point,))
    recording.finalize_and_run(queue)
    equal(make.read(queue, buffer), [3] * COUNT, "the buffer")


@rule(LAUNCH, "unknown_sync_point: INVALID_COMMAND_BUFFER_SYNC_POINT_EXP")
def test_unknown_sync_point(make: URObjects, buffer: int) -> None:
    recording = URRecording(make)
    point = recording.fill(buffer, 1).point
    given = recording.launch_arguments(make.kernel(), (BufferValue(buffer), ints([1])))
    code, _ = recording.try_append(LAUNCH, *given, after=(point + 1000,))
    expect(UR, code, "UR_RESULT_ERROR_INVALID_COMMAND_BUFFER_SYNC_POINT_EXP")
