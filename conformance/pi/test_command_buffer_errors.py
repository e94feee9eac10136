"""The errors of the command-buffer functions.

pi.h lists none. These are the errors of the OpenCL and UR functions that implement them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.conformance.arrays import handles, sizes
from fairlead.conformance.checks import beyond_specification, forked, rule
from fairlead.conformance.pi.objects import PIObjects, codes
from fairlead.conformance.pi.recorder import PREFIX, RECORDING, PIRecorder, region
from fairlead.conformance.shared_cases import WRONG_SYNC_POINTS, each_of, each_wrong_sync_points

CREATE, FINALIZE, ENQUEUE = PREFIX + "Create", PREFIX + "Finalize", "piextEnqueueCommandBuffer"
WAIT_LIST = ("INVALID_SYNC_POINT_WAIT_LIST_KHR", "INVALID_VALUE")


def each(text: str) -> pytest.MarkDecorator:
    """Return a case for each function that records."""
    return each_of(RECORDING, text)


@forked
@each("PI_ERROR_INVALID_OPERATION after finalize")
def test_finalized(recorder: PIRecorder, name: str) -> None:
    recorder.record(name)  # ends the case if the plugin lacks it
    recorder.finalize()
    codes(recorder.answer(name), "INVALID_OPERATION", "INVALID_COMMAND_BUFFER_KHR")


@forked
@each_wrong_sync_points(RECORDING, "PI_ERROR_INVALID_SYNC_POINT_WAIT_LIST_KHR")
def test_sync_points(recorder: PIRecorder, name: str, kind: str) -> None:
    recorder.record(name)
    number, points = WRONG_SYNC_POINTS[kind]
    codes(
        recorder.answer(name, num_sync_points_in_wait_list=number, sync_point_wait_list=points),
        *WAIT_LIST,
    )


Change = Callable[[PIRecorder], dict[str, Any]]
BIG = 1 << 20


def _give(**changes: Any) -> Change:
    return lambda recorder: changes


SIZE = ("INVALID_VALUE", "INVALID_BUFFER_SIZE")
#: Function, what is wrong, the codes that answer it, and the arguments that make it wrong. Buffers
#: and USM of cases have 256 bytes.
ERRORS: list[tuple[str, str, tuple[str, ...], Change]] = [
    ("MemcpyUSM", "dst_ptr is NULL", ("INVALID_VALUE",), _give(dst_ptr=None)),
    ("MemcpyUSM", "src_ptr is NULL", ("INVALID_VALUE",), _give(src_ptr=None)),
    ("FillUSM", "ptr is NULL", ("INVALID_VALUE",), _give(ptr=None)),
    ("FillUSM", "pattern is NULL", ("INVALID_VALUE",), _give(pattern=None)),
    ("FillUSM", "pattern_size is 0", SIZE, _give(pattern_size=0)),
    ("FillUSM", "size is not a multiple of pattern_size", SIZE, _give(size=18)),
    ("PrefetchUSM", "ptr is NULL", ("INVALID_VALUE",), _give(ptr=None)),
    ("AdviseUSM", "ptr is NULL", ("INVALID_VALUE",), _give(ptr=None)),
    ("MemBufferCopy", "source and size reach beyond the buffer", SIZE, _give(src_offset=BIG)),
    ("MemBufferCopy", "destination and size reach beyond the buffer", SIZE, _give(dst_offset=BIG)),
    (
        "MemBufferCopyRect",
        "the region reaches beyond the buffer",
        SIZE,
        _give(region=region(4, BIG, 1)),
    ),
    ("MemBufferFill", "pattern is NULL", ("INVALID_VALUE",), _give(pattern=None)),
    ("MemBufferFill", "pattern_size is 0", SIZE, _give(pattern_size=0)),
    ("MemBufferFill", "offset and size reach beyond the buffer", SIZE, _give(offset=BIG)),
    ("MemBufferWrite", "ptr is NULL", ("INVALID_VALUE",), _give(ptr=None)),
    ("MemBufferWrite", "offset and size reach beyond the buffer", SIZE, _give(offset=BIG)),
    ("MemBufferRead", "dst is NULL", ("INVALID_VALUE",), _give(dst=None)),
    ("MemBufferRead", "offset and size reach beyond the buffer", SIZE, _give(offset=BIG)),
    (
        "NDRangeKernel",
        "work_dim is 0",
        ("INVALID_WORK_DIMENSION", "INVALID_VALUE"),
        _give(work_dim=0),
    ),
    (
        "NDRangeKernel",
        "work_dim is more than 3",
        ("INVALID_WORK_DIMENSION", "INVALID_VALUE"),
        _give(work_dim=4, global_work_size=sizes(1, 1, 1, 1), global_work_offset=sizes(0, 0, 0, 0)),
    ),
]


@forked
@pytest.mark.parametrize(
    ("name", "answers", "change"),
    [
        pytest.param(
            name,
            answers,
            change,
            id=f"{name}-{wrong}",
            marks=rule(PREFIX + name, f"an error if {wrong}"),
        )
        for name, wrong, answers, change in ERRORS
    ],
)
def test_error(recorder: PIRecorder, name: str, answers: tuple[str, ...], change: Change) -> None:
    recorder.record(name)
    codes(recorder.answer(name, **change(recorder)), *answers)


HANDLES = [
    (name, parameter, code)
    for name, parameter, code in (
        ("NDRangeKernel", "kernel", "INVALID_KERNEL"),
        ("MemBufferCopy", "src_buffer", "INVALID_MEM_OBJECT"),
        ("MemBufferCopy", "dst_buffer", "INVALID_MEM_OBJECT"),
        ("MemBufferCopyRect", "src_buffer", "INVALID_MEM_OBJECT"),
        ("MemBufferCopyRect", "dst_buffer", "INVALID_MEM_OBJECT"),
        ("MemBufferFill", "buffer", "INVALID_MEM_OBJECT"),
        ("MemBufferWrite", "buffer", "INVALID_MEM_OBJECT"),
        ("MemBufferRead", "buffer", "INVALID_MEM_OBJECT"),
        ("MemBufferWriteRect", "buffer", "INVALID_MEM_OBJECT"),
        ("MemBufferReadRect", "buffer", "INVALID_MEM_OBJECT"),
    )
]


@forked
@pytest.mark.parametrize(
    ("name", "parameter", "code"),
    [
        pytest.param(
            *row,
            id=f"{row[0]}-{row[1]}",
            marks=rule(PREFIX + row[0], f"PI_ERROR_{row[2]} if {row[1]} is NULL"),
        )
        for row in HANDLES
    ],
)
def test_handle(recorder: PIRecorder, name: str, parameter: str, code: str) -> None:
    recorder.record(name)
    changes: dict[str, Any] = {parameter: None}
    codes(recorder.answer(name, **changes), code, "INVALID_VALUE")


@forked
@rule(FINALIZE, "PI_ERROR_INVALID_OPERATION the second time")
def test_finalize_twice(recorder: PIRecorder, objects: PIObjects) -> None:
    recorder.finalize()
    codes(
        objects.pi.piextCommandBufferFinalize(recorder.handle),
        "INVALID_OPERATION",
        "INVALID_COMMAND_BUFFER_KHR",
    )


@forked
@rule(ENQUEUE, "PI_ERROR_INVALID_OPERATION before finalize")
def test_enqueue_unfinalized(recorder: PIRecorder, objects: PIObjects, queue: int) -> None:
    code = objects.pi.piextEnqueueCommandBuffer(recorder.handle, queue, 0, None, None)
    codes(code, "INVALID_OPERATION", "INVALID_COMMAND_BUFFER_KHR")


@forked
@rule(ENQUEUE, "PI_ERROR_INVALID_QUEUE if queue is NULL")
def test_enqueue_no_queue(recorder: PIRecorder, objects: PIObjects) -> None:
    recorder.finalize()
    codes(
        objects.pi.piextEnqueueCommandBuffer(recorder.handle, None, 0, None, None),
        "INVALID_QUEUE",
        "INVALID_VALUE",
    )


@forked
@rule(ENQUEUE, "PI_ERROR_INVALID_EVENT_WAIT_LIST if list and number disagree, or an event is NULL")
@pytest.mark.parametrize(
    ("count", "events"), [(1, None), (1, handles(0))], ids=["null-list", "null"]
)
def test_enqueue_wait_list(
    recorder: PIRecorder, objects: PIObjects, queue: int, count: int, events: Any
) -> None:
    recorder.finalize()
    code = objects.pi.piextEnqueueCommandBuffer(recorder.handle, queue, count, events, None)
    codes(code, "INVALID_EVENT_WAIT_LIST", "INVALID_EVENT", "INVALID_VALUE")


@forked
@rule(ENQUEUE, "an error if the queue is of another context")
def test_enqueue_context(recorder: PIRecorder, objects: PIObjects) -> None:
    recorder.finalize()
    other = objects.queue(context=objects.new_context())
    code = objects.pi.piextEnqueueCommandBuffer(recorder.handle, other, 0, None, None)
    codes(code, "INVALID_CONTEXT", "INCOMPATIBLE_COMMAND_QUEUE_KHR", "INVALID_QUEUE")


@forked
@rule(CREATE, "desc may be NULL")
def test_no_description(objects: PIObjects, recorder: PIRecorder) -> None:
    handle = ctypes.c_void_p()
    codes(
        objects.pi.piextCommandBufferCreate(
            objects.context, objects.device, None, ctypes.byref(handle)
        ),
        "PI_SUCCESS",
    )


@beyond_specification
@forked
@rule(FINALIZE, "PI_ERROR_INVALID_COMMAND_BUFFER_KHR for a command-buffer that was released")
def test_stale(objects: PIObjects) -> None:
    inner = objects.new_maker()
    handle = PIRecorder(inner).handle
    inner.close()
    codes(
        objects.pi.piextCommandBufferFinalize(handle), "INVALID_COMMAND_BUFFER_KHR", "INVALID_VALUE"
    )


@beyond_specification
@forked
@rule(FINALIZE, "PI_ERROR_INVALID_COMMAND_BUFFER_KHR for an object of another kind")
def test_another_kind(objects: PIObjects, queue: int, recorder: PIRecorder) -> None:
    codes(
        objects.pi.piextCommandBufferFinalize(queue), "INVALID_COMMAND_BUFFER_KHR", "INVALID_VALUE"
    )
