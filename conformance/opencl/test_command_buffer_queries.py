"""Queries of command-buffers: what each answers, and the errors of wrong queries."""

from __future__ import annotations

import ctypes

import pytest

from fairlead.conformance.arrays import handles
from fairlead.conformance.checks import each, equal, forked, rule, unsupported
from fairlead.conformance.opencl.commands import (
    FLAGS,
    INFO,
    INVALID,
    PENDING,
    STATE_EXECUTABLE,
    STATE_RECORDING,
    CLRecorder,
    CommandBuffers,
    expect_code,
    properties,
)
from fairlead.conformance.opencl.objects import CLObjects
from fairlead.icd.abi import OPENCL

# Queries

#: The size of each query's answer, and the value from the recorder.
QUERIES = {
    "CL_COMMAND_BUFFER_NUM_QUEUES_KHR": (4, lambda recorder: 1),
    "CL_COMMAND_BUFFER_QUEUES_KHR": (8, lambda recorder: recorder.queue),
    "CL_COMMAND_BUFFER_REFERENCE_COUNT_KHR": (4, lambda recorder: 1),
    "CL_COMMAND_BUFFER_STATE_KHR": (4, lambda recorder: STATE_RECORDING),
    "CL_COMMAND_BUFFER_CONTEXT_KHR": (8, lambda recorder: recorder.objects.context),
}


def each_query(text: str) -> pytest.MarkDecorator:
    """Return a case for each query; {} in the rule's text is its name."""
    return pytest.mark.parametrize("name", each(QUERIES, INFO, text))


def _require_known(commands: CommandBuffers, name: str) -> None:
    if name == "CL_COMMAND_BUFFER_CONTEXT_KHR" and commands.version < (0, 9, 2):
        unsupported("there is no such query before 0.9.2")


@each_query("{} has the value and its size")
def test_query(recorder: CLRecorder, name: str) -> None:
    _require_known(recorder.commands, name)
    size, value = QUERIES[name]
    answer = recorder.commands.info(recorder.handle, name)
    equal(
        (len(answer), int.from_bytes(answer, "little")), (size, value(recorder)), "size and value"
    )


@forked
@each_query("CL_INVALID_VALUE if param_value_size is too small for {}")
def test_query_too_small(recorder: CLRecorder, name: str) -> None:
    _require_known(recorder.commands, name)
    size, _ = QUERIES[name]
    room = ctypes.create_string_buffer(16)
    code = recorder.commands.clGetCommandBufferInfoKHR(
        recorder.handle, OPENCL[name], size - 1, room, None
    )
    expect_code(code, "CL_INVALID_VALUE")


@forked
@rule(INFO, "CL_INVALID_VALUE if param_name is not a supported value")
def test_unknown_query(recorder: CLRecorder) -> None:
    expect_code(
        recorder.commands.clGetCommandBufferInfoKHR(recorder.handle, 0x7FFFFFFF, 0, None, None),
        "CL_INVALID_VALUE",
    )


@forked
@each_query(f"{INVALID} if command_buffer is not a valid command-buffer, for {{}}")
def test_query_of_nothing(commands: CommandBuffers, name: str) -> None:
    _require_known(commands, name)
    room = ctypes.create_string_buffer(16)
    expect_code(commands.clGetCommandBufferInfoKHR(None, OPENCL[name], 16, room, None), INVALID)


@rule(INFO, "CL_COMMAND_BUFFER_PROPERTIES_ARRAY_KHR is what was given at creation")
def test_properties(commands: CommandBuffers, objects: CLObjects, queue: int) -> None:
    given = properties(FLAGS, 0)
    handle, code = commands.try_create(1, handles(queue), given)
    expect_code(code, "CL_SUCCESS")
    objects.defer(lambda: commands.clReleaseCommandBufferKHR(handle))
    equal(
        commands.info(handle or 0, "CL_COMMAND_BUFFER_PROPERTIES_ARRAY_KHR"),
        bytes(given),
        "the properties",
    )


@rule(INFO, "CL_COMMAND_BUFFER_PROPERTIES_ARRAY_KHR is empty, or 0 alone, if none were given")
def test_no_properties(recorder: CLRecorder) -> None:
    answer = recorder.commands.info(recorder.handle, "CL_COMMAND_BUFFER_PROPERTIES_ARRAY_KHR")
    equal(
        answer.strip(b"\0") == b"" and len(answer) in (0, 8), True, f"{answer!r} is an empty list"
    )


@rule(
    INFO,
    "CL_COMMAND_BUFFER_STATE_KHR is the executable state after finalize, and when all submissions "
    "have ended",
)
def test_state(recorder: CLRecorder) -> None:
    recorder.finalize()
    states = [recorder.commands.number(recorder.handle, "CL_COMMAND_BUFFER_STATE_KHR")]
    recorder.enqueue()
    recorder.objects.finish(recorder.queue)
    states.append(recorder.commands.number(recorder.handle, "CL_COMMAND_BUFFER_STATE_KHR"))
    equal(states, [STATE_EXECUTABLE, STATE_EXECUTABLE], "the states")


@rule(
    INFO, "CL_COMMAND_BUFFER_STATE_KHR is the pending state while a submission waits, before 0.9.8"
)
def test_pending_state(recorder: CLRecorder) -> None:
    if recorder.commands.can_be_pipelined:
        unsupported("there is no pending state since 0.9.8")
    event = recorder.objects.user_event()
    recorder.record("clCommandFillBufferKHR")
    recorder.finalize()
    recorder.enqueue(waits=[event])
    state = recorder.commands.number(recorder.handle, "CL_COMMAND_BUFFER_STATE_KHR")
    recorder.objects.call("clSetUserEventStatus", event, OPENCL["CL_COMPLETE"])
    recorder.objects.finish(recorder.queue)
    equal(state, PENDING, "the state")
