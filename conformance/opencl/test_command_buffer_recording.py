"""The rules that all functions share which record commands."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from fairlead.conformance.checks import forked, rule, unsupported
from fairlead.conformance.opencl.commands import RECORDING, CLRecorder, expect_code, properties
from fairlead.conformance.opencl.objects import CLObjects
from fairlead.conformance.opencl.shared_cases import (
    WRONG_SYNC_POINTS,
    each_of,
    each_wrong_sync_points,
)
from fairlead.icd.abi import OPENCL

KERNEL = "clCommandNDRangeKernelKHR"


def each(text: str) -> pytest.MarkDecorator:
    """Return a case for each function that records."""
    return each_of(RECORDING, text)


@each("records a command and gives its sync-point")
def test_success(recorder: CLRecorder, name: str) -> None:
    recorder.record(name)


@each("sync_point may be NULL")
def test_no_sync_point(recorder: CLRecorder, name: str) -> None:
    expect_code(recorder.answer(name), "CL_SUCCESS")


@each("takes the sync-point of another command")
def test_sync_point(recorder: CLRecorder, name: str) -> None:
    first = recorder.record("clCommandFillBufferKHR")
    recorder.record(name, waits=[first, recorder.record("clCommandFillBufferKHR")])


@forked
@each("CL_INVALID_COMMAND_BUFFER_KHR if command_buffer is not a valid command-buffer")
def test_no_command_buffer(recorder: CLRecorder, name: str) -> None:
    expect_code(recorder.answer(name, command_buffer=None), "CL_INVALID_COMMAND_BUFFER_KHR")


@forked
@each("CL_INVALID_OPERATION if command_buffer has been finalized")
def test_finalized(recorder: CLRecorder, name: str) -> None:
    recorder.finalize()
    expect_code(recorder.answer(name), "CL_INVALID_OPERATION")


@forked
@each(
    "CL_INVALID_COMMAND_QUEUE if command_queue is none that it may be: it must be NULL without "
    "cl_khr_command_buffer_multi_device"
)
def test_queue(recorder: CLRecorder, objects: CLObjects, name: str) -> None:
    other = objects.queue() if recorder.commands.multi_device else recorder.queue
    expect_code(recorder.answer(name, command_queue=other), "CL_INVALID_COMMAND_QUEUE")


@forked
@each_wrong_sync_points(RECORDING, "CL_INVALID_SYNC_POINT_WAIT_LIST_KHR")
def test_sync_points(recorder: CLRecorder, name: str, kind: str) -> None:
    recorder.record("clCommandFillBufferKHR")
    number, points = WRONG_SYNC_POINTS[kind]
    code = recorder.answer(name, num_sync_points_in_wait_list=number, sync_point_wait_list=points)
    expect_code(code, "CL_INVALID_SYNC_POINT_WAIT_LIST_KHR")


@forked
@each("CL_INVALID_VALUE if mutable_handle is not NULL")
def test_mutable_handle(recorder: CLRecorder, name: str) -> None:
    if name == KERNEL and any(recorder.commands.mutable_version):
        unsupported("kernels have handles with cl_khr_command_buffer_mutable_dispatch")
    handle = ctypes.c_void_p()
    expect_code(recorder.answer(name, mutable_handle=ctypes.byref(handle)), "CL_INVALID_VALUE")


@forked
@each("CL_INVALID_VALUE if values specified in properties are not valid")
def test_properties(recorder: CLRecorder, name: str) -> None:
    if "properties" not in [p.name for p in recorder.commands.function(name).parameters]:
        unsupported("it has no properties before 0.9.5")
    expect_code(recorder.answer(name, properties=properties(0x1234, 5)), "CL_INVALID_VALUE")


@each("properties may be an empty list")
def test_no_properties(recorder: CLRecorder, name: str) -> None:
    if "properties" not in [p.name for p in recorder.commands.function(name).parameters]:
        unsupported("it has no properties before 0.9.5")
    expect_code(recorder.answer(name, properties=properties()), "CL_SUCCESS")


def _make_in_another_context(objects: CLObjects, parameter: str) -> int:
    """Return a legal value for a parameter, in another context."""
    context = objects.new_context()
    if parameter == "kernel":
        source = "kernel void alone(global int *a) { a[0] = 1; }"
        return objects.kernel(
            "alone", objects.buffer([0], context=context), program=objects.build(source, context)
        )
    if parameter.endswith("image"):
        return objects.image(8, 8, context=context)
    return objects.buffer([0] * 64, context=context)


CONTEXTS = [
    pytest.param(
        name,
        p.name,
        id=f"{name}-{p.name}",
        marks=rule(name, f"CL_INVALID_CONTEXT if {p.name} is of another context"),
    )
    for name in RECORDING
    for p in OPENCL.functions[name].parameters
    if p.type in ("cl_mem", "cl_kernel")
]


@pytest.mark.parametrize(("name", "parameter"), CONTEXTS)
def test_context(recorder: CLRecorder, objects: CLObjects, name: str, parameter: str) -> None:
    recorder.argument(parameter)  # ends the case as unsupported for images and the like
    changes: dict[str, Any] = {parameter: _make_in_another_context(objects, parameter)}
    expect_code(recorder.answer(name, **changes), "CL_INVALID_CONTEXT")


HANDLES = [
    pytest.param(
        name, p.name, id=f"{name}-{p.name}", marks=rule(name, f"{code} if {p.name} is not valid")
    )
    for name in RECORDING
    for p in OPENCL.functions[name].parameters
    for code in [{"cl_mem": "CL_INVALID_MEM_OBJECT", "cl_kernel": "CL_INVALID_KERNEL"}.get(p.type)]
    if code
]


@forked
@pytest.mark.parametrize(("name", "parameter"), HANDLES)
def test_handle(recorder: CLRecorder, name: str, parameter: str) -> None:
    recorder.argument(parameter)
    changes: dict[str, Any] = {parameter: None}
    expect_code(
        recorder.answer(name, **changes),
        "CL_INVALID_KERNEL" if parameter == "kernel" else "CL_INVALID_MEM_OBJECT",
    )
