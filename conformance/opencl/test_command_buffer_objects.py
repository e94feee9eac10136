"""Command-buffer objects: creation, finalize, references, enqueue, and their errors.

The errors of the functions that record are in test_command_buffer_recording.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.conformance.arrays import handles
from fairlead.conformance.checks import each, equal, forked, rule, unsupported
from fairlead.conformance.opencl.commands import (
    CREATE,
    ENQUEUE,
    FINALIZE,
    FLAGS,
    INVALID,
    SIMULTANEOUS,
    CLRecorder,
    CommandBuffers,
    expect_code,
    properties,
)
from fairlead.conformance.opencl.objects import OUT_OF_ORDER, PROFILING, CLObjects, check
from fairlead.icd.abi import OPENCL


def check_refused(
    commands: CommandBuffers, codes: tuple[str, ...], count: int, queues: Any, what: Any = None
) -> None:
    """Check that creation fails, with NULL and one of the codes."""
    handle, code = commands.try_create(count, queues, what)
    expect_code(code, *codes)
    equal(handle, None, "the object")


# Creation


@rule(CREATE, "errcode_ret may be NULL")
def test_no_code(commands: CommandBuffers, objects: CLObjects, queue: int) -> None:
    handle = commands.clCreateCommandBufferKHR(1, handles(queue), None, None)
    equal(bool(handle), True, "an object")
    check(commands.clReleaseCommandBufferKHR(handle), "clReleaseCommandBufferKHR")


@rule(CREATE, "takes the flag 0")
def test_no_flags(commands: CommandBuffers, queue: int) -> None:
    handle, code = commands.try_create(1, handles(queue), properties(FLAGS, 0))
    expect_code(code, "CL_SUCCESS")
    check(commands.clReleaseCommandBufferKHR(handle), "clReleaseCommandBufferKHR")


@forked
@rule(CREATE, "CL_INVALID_VALUE if num_queues is 0")
def test_no_queues(commands: CommandBuffers, queue: int) -> None:
    check_refused(commands, ("CL_INVALID_VALUE",), 0, handles(queue))


@forked
@rule(
    CREATE,
    "CL_INVALID_VALUE if num_queues is not 1 and cl_khr_command_buffer_multi_device is not "
    "supported",
)
def test_two_queues(commands: CommandBuffers, queue: int) -> None:
    if commands.multi_device:
        unsupported("the device has cl_khr_command_buffer_multi_device")
    check_refused(commands, ("CL_INVALID_VALUE",), 2, handles(queue, queue))


@forked
@rule(CREATE, "CL_INVALID_VALUE if queues is NULL")
def test_null_queues(commands: CommandBuffers, queue: int) -> None:
    check_refused(commands, ("CL_INVALID_VALUE",), 1, None)


@forked
@rule(CREATE, "CL_INVALID_COMMAND_QUEUE if a queue is not valid")
def test_null_queue(commands: CommandBuffers, queue: int) -> None:
    check_refused(commands, ("CL_INVALID_COMMAND_QUEUE",), 1, handles(0))


@forked
@rule(CREATE, "CL_INVALID_VALUE if a property is not valid")
def test_unknown_property(commands: CommandBuffers, queue: int) -> None:
    check_refused(commands, ("CL_INVALID_VALUE",), 1, handles(queue), properties(0x1234, 1))


@forked
@rule(CREATE, "CL_INVALID_VALUE if a property is there twice")
def test_property_twice(commands: CommandBuffers, queue: int) -> None:
    check_refused(
        commands, ("CL_INVALID_VALUE",), 1, handles(queue), properties(FLAGS, 0, FLAGS, 0)
    )


@forked
@rule(CREATE, "CL_INVALID_VALUE (or CL_INVALID_PROPERTY) if a flag is none that there is")
def test_unknown_flag(commands: CommandBuffers, queue: int) -> None:
    check_refused(
        commands,
        ("CL_INVALID_VALUE", "CL_INVALID_PROPERTY"),
        1,
        handles(queue),
        properties(FLAGS, 1 << 40),
    )


@forked
@rule(
    CREATE,
    "CL_INVALID_PROPERTY if the device does not support CL_COMMAND_BUFFER_SIMULTANEOUS_USE_KHR",
)
def test_simultaneous_use(commands: CommandBuffers, queue: int) -> None:
    if commands.can("SIMULTANEOUS_USE"):
        unsupported("the device supports simultaneous use")
    check_refused(
        commands,
        ("CL_INVALID_PROPERTY", "CL_INVALID_VALUE"),
        1,
        handles(queue),
        properties(FLAGS, SIMULTANEOUS),
    )


@forked
@rule(
    CREATE,
    "CL_INCOMPATIBLE_COMMAND_QUEUE_KHR if a queue lacks a property that the device requires, "
    "before 0.9.7",
)
def test_required_properties(commands: CommandBuffers, queue: int) -> None:
    if not commands.device.info("CL_DEVICE_COMMAND_BUFFER_REQUIRED_QUEUE_PROPERTIES_KHR"):
        unsupported("the device requires no property")
    if commands.version >= (0, 9, 7):
        unsupported("since 0.9.7 it is clEnqueueCommandBufferKHR that asks for the properties")
    check_refused(commands, ("CL_INCOMPATIBLE_COMMAND_QUEUE_KHR",), 1, handles(queue))


# What the device says


@rule("clGetDeviceInfo", "answers the queries of the extension with 8 bytes")
@pytest.mark.parametrize(
    "name", ["CAPABILITIES", "REQUIRED_QUEUE_PROPERTIES", "SUPPORTED_QUEUE_PROPERTIES"]
)
def test_device_info(commands: CommandBuffers, objects: CLObjects, name: str) -> None:
    if name.startswith("SUPPORTED") and commands.version < (0, 9, 6):
        unsupported("there is no such query before 0.9.6")
    answer = objects.info("clGetDeviceInfo", objects.device, f"CL_DEVICE_COMMAND_BUFFER_{name}_KHR")
    equal(len(answer), 8, "bytes of the answer")


@rule(
    "clGetDeviceInfo",
    "CL_DEVICE_COMMAND_BUFFER_SUPPORTED_QUEUE_PROPERTIES_KHR has the required properties, and no "
    "unknown ones",
)
def test_queue_properties(commands: CommandBuffers, chosen: Any) -> None:
    if commands.version < (0, 9, 6):
        unsupported("there is no such query before 0.9.6")
    supported = chosen.info("CL_DEVICE_COMMAND_BUFFER_SUPPORTED_QUEUE_PROPERTIES_KHR")
    required = chosen.info("CL_DEVICE_COMMAND_BUFFER_REQUIRED_QUEUE_PROPERTIES_KHR")
    equal(supported & required, required, "the required ones among the supported")
    host = chosen.info("CL_DEVICE_QUEUE_ON_HOST_PROPERTIES")
    equal(
        supported & ~host & (OUT_OF_ORDER | PROFILING),
        0,
        "supported ones that queues of the device cannot have",
    )


# Finalize


@forked
@rule(FINALIZE, f"{INVALID} if command_buffer is not a valid command-buffer")
def test_finalize_nothing(commands: CommandBuffers) -> None:
    expect_code(commands.clFinalizeCommandBufferKHR(None), INVALID)


@rule(FINALIZE, "CL_INVALID_OPERATION if it is not in the recording state")
def test_finalize_twice(recorder: CLRecorder) -> None:
    if recorder.commands.version < (0, 9, 1):
        unsupported("the error came with 0.9.1")
    recorder.finalize()
    expect_code(
        recorder.commands.clFinalizeCommandBufferKHR(recorder.handle), "CL_INVALID_OPERATION"
    )


@rule(FINALIZE, "an empty command-buffer can be finalized, and enqueued, and its event completes")
def test_finalize_empty(recorder: CLRecorder) -> None:
    recorder.finalize()
    event = recorder.enqueue_with_event()
    recorder.objects.finish(recorder.queue)
    equal(recorder.objects.status(event), OPENCL["CL_COMPLETE"], "the status of the event")


# References


@forked
@pytest.mark.parametrize(
    "name",
    each(
        ("clRetainCommandBufferKHR", "clReleaseCommandBufferKHR"),
        "{}",
        f"{INVALID} if command_buffer is not a valid command-buffer",
    ),
)
def test_retain_nothing(commands: CommandBuffers, name: str) -> None:
    expect_code(getattr(commands, name)(None), INVALID)


@rule("clRetainCommandBufferKHR", "adds one to the reference count, which a release takes away")
def test_retain(recorder: CLRecorder) -> None:
    commands, name = recorder.commands, "CL_COMMAND_BUFFER_REFERENCE_COUNT_KHR"
    counts = [commands.number(recorder.handle, name)]
    for call in (commands.clRetainCommandBufferKHR, commands.clReleaseCommandBufferKHR):
        check(call(recorder.handle), "retain or release")
        counts.append(commands.number(recorder.handle, name))
    equal(counts, [1, 2, 1], "the counts")


# Enqueue


@forked
@rule(ENQUEUE, f"{INVALID} if command_buffer is not a valid command-buffer")
def test_enqueue_nothing(commands: CommandBuffers, queue: int) -> None:
    expect_code(commands.clEnqueueCommandBufferKHR(0, None, None, 0, None, None), INVALID)


@forked
@rule(ENQUEUE, "CL_INVALID_OPERATION if command_buffer has not been finalized")
def test_enqueue_unfinalized(recorder: CLRecorder) -> None:
    expect_code(
        recorder.commands.clEnqueueCommandBufferKHR(0, None, recorder.handle, 0, None, None),
        "CL_INVALID_OPERATION",
    )


@forked
@rule(ENQUEUE, "CL_INVALID_VALUE if queues and num_queues disagree")
@pytest.mark.parametrize("count", [0, 1, 2])
def test_enqueue_queues(recorder: CLRecorder, count: int) -> None:
    recorder.finalize()
    queues = {0: handles(recorder.queue), 1: None, 2: handles(recorder.queue, recorder.queue)}[
        count
    ]
    code = recorder.commands.clEnqueueCommandBufferKHR(
        count, queues, recorder.handle, 0, None, None
    )
    expect_code(code, "CL_INVALID_VALUE")


@forked
@rule(ENQUEUE, "CL_INVALID_COMMAND_QUEUE if a queue is not valid")
def test_enqueue_null_queue(recorder: CLRecorder) -> None:
    recorder.finalize()
    code = recorder.commands.clEnqueueCommandBufferKHR(
        1, handles(0), recorder.handle, 0, None, None
    )
    expect_code(code, "CL_INVALID_COMMAND_QUEUE")


@rule(ENQUEUE, "CL_INVALID_CONTEXT if a queue is of another context")
def test_enqueue_context(recorder: CLRecorder, objects: CLObjects) -> None:
    recorder.finalize()
    other = objects.queue(context=objects.new_context())
    code = recorder.commands.clEnqueueCommandBufferKHR(
        1, handles(other), recorder.handle, 0, None, None
    )
    expect_code(code, "CL_INVALID_CONTEXT", "CL_INCOMPATIBLE_COMMAND_QUEUE_KHR")


@rule(ENQUEUE, "CL_INVALID_CONTEXT if an event is of another context")
def test_enqueue_event_context(recorder: CLRecorder, objects: CLObjects) -> None:
    recorder.finalize()
    event = objects.make("clCreateUserEvent", objects.new_context())
    objects.call("clSetUserEventStatus", event, OPENCL["CL_COMPLETE"])
    code = recorder.commands.clEnqueueCommandBufferKHR(
        0, None, recorder.handle, 1, handles(event), None
    )
    expect_code(code, "CL_INVALID_CONTEXT")


@forked
@rule(ENQUEUE, "CL_INVALID_EVENT_WAIT_LIST if list and number disagree, or an event is not valid")
@pytest.mark.parametrize(
    ("count", "events"),
    [(1, None), (0, handles(0)), (1, handles(0))],
    ids=["null-list", "no-number", "null"],
)
def test_enqueue_wait_list(recorder: CLRecorder, count: int, events: Any) -> None:
    recorder.finalize()
    code = recorder.commands.clEnqueueCommandBufferKHR(
        0, None, recorder.handle, count, events, None
    )
    expect_code(code, "CL_INVALID_EVENT_WAIT_LIST")


@rule(
    ENQUEUE,
    "CL_INCOMPATIBLE_COMMAND_QUEUE_KHR if a queue has a property that the device does not support",
)
@pytest.mark.parametrize("name", ["OUT_OF_ORDER_EXEC_MODE", "PROFILING"])
def test_enqueue_unsupported_property(
    recorder: CLRecorder, objects: CLObjects, chosen: Any, name: str
) -> None:
    if recorder.commands.version < (0, 9, 7):
        unsupported("the rule came with 0.9.7")
    bit = OPENCL[f"CL_QUEUE_{name}_ENABLE"]
    if chosen.info("CL_DEVICE_COMMAND_BUFFER_SUPPORTED_QUEUE_PROPERTIES_KHR") & bit:
        unsupported("the device supports the property")
    if not chosen.info("CL_DEVICE_QUEUE_ON_HOST_PROPERTIES") & bit:
        unsupported("there are no such queues")
    recorder.finalize()
    other = handles(objects.queue(bit))
    code = recorder.commands.clEnqueueCommandBufferKHR(1, other, recorder.handle, 0, None, None)
    expect_code(code, "CL_INCOMPATIBLE_COMMAND_QUEUE_KHR")


@rule(
    ENQUEUE,
    "CL_INVALID_OPERATION while a submission is pending, without the flag of simultaneous use, "
    "before 0.9.8",
)
def test_enqueue_pending(recorder: CLRecorder, objects: CLObjects) -> None:
    if recorder.commands.can_be_pipelined:
        unsupported("since 0.9.8 a command-buffer may be enqueued again")
    event = objects.user_event()
    recorder.record("clCommandFillBufferKHR")
    recorder.finalize()
    recorder.enqueue(waits=[event])
    code = recorder.commands.clEnqueueCommandBufferKHR(0, None, recorder.handle, 0, None, None)
    objects.call("clSetUserEventStatus", event, OPENCL["CL_COMPLETE"])
    objects.finish(recorder.queue)
    expect_code(code, "CL_INVALID_OPERATION")
