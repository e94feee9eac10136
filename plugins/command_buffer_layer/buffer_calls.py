"""The functions of command-buffers: made, finalized, enqueued, asked (cl_khr_command_buffer 0.9.8).

The library counts references (native/handles.c). Python has the last one.
"""

from __future__ import annotations

from typing import Final

from ...icd.abi import OPENCL
from ...icd.calls import query_status
from .buffers import LayerCommandBuffer, get_buffer, get_layer, read_queues, unfinished
from .entries import answer, ask, entry, make_error, pack, read_numbers, read_properties, write


@entry
def clCreateCommandBufferKHR(count: int, queues: int | None, properties: int | None) -> int:
    if not count or not queues:
        raise make_error("CL_INVALID_VALUE", "there are no queues")
    unfinished.release_finished()
    return LayerCommandBuffer(read_queues(count, queues), read_properties(properties)).handle


@entry
def clFinalizeCommandBufferKHR(buffer: int | None) -> None:
    found = get_buffer(buffer)
    with found.lock:
        found.finalize()


@entry
def clRetainCommandBufferKHR(buffer: int | None) -> None:
    """Check the handle. C counts the reference."""
    get_buffer(buffer)


@entry
def clReleaseCommandBufferKHR(buffer: int | None) -> None:
    """The last reference is gone."""
    found = get_buffer(buffer)
    with found.lock:
        found.close()


def _check_waits(context: int, count: int, waits: int | None) -> list[int]:
    """Read a wait list of events.

    Raises:
        OpenCLError: CL_INVALID_EVENT_WAIT_LIST, CL_INVALID_CONTEXT. Or
            CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, as of a blocking command: on PoCL 3.0 what
            waits for a failed event never ends.
    """
    if bool(count) != bool(waits):
        raise make_error("CL_INVALID_EVENT_WAIT_LIST", "the list is NULL or empty, and not both")
    events = read_numbers(waits, "uintptr_t", count)
    for event in events:
        if not event:
            raise make_error("CL_INVALID_EVENT_WAIT_LIST", "an event is NULL")
        of = ask(
            *(event, "clGetEventInfo", "CL_EVENT_CONTEXT", "uintptr_t"),
            "CL_INVALID_EVENT_WAIT_LIST",
        )
        if of != context:
            raise make_error(
                "CL_INVALID_CONTEXT", "an event of the wait list is of another context"
            )
        if query_status(event) < 0:
            raise make_error(
                "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
                "an event of the wait list has failed",
            )
    return events


@entry
def clEnqueueCommandBufferKHR(
    count: int,
    queues: int | None,
    buffer: int | None,
    wait_count: int,
    waits: int | None,
    event: int | None,
) -> None:
    found = get_buffer(buffer)
    if bool(count) != bool(queues):
        raise make_error("CL_INVALID_VALUE", "the list of queues is NULL or empty, and not both")
    if count and count != len(found.queues):
        raise make_error(
            "CL_INVALID_VALUE", f"{count} queues for a command-buffer of {len(found.queues)}"
        )
    given = read_queues(count, queues)
    events = _check_waits(found.context, wait_count, waits)
    with found.lock:
        end, first = found.enqueue(given, events, bool(event))
    if event:
        get_layer().note_event(end, first or None, len(found.queues) > 1)
        write(event, "uintptr_t", end)


def _query_state(buffer: LayerCommandBuffer) -> bytes:
    if buffer.runner is None:
        name = "RECORDING"
    else:
        name = "EXECUTABLE" if buffer.is_executable else "FINALIZED"
    return pack("uint32_t", OPENCL[f"CL_COMMAND_BUFFER_STATE_{name}_KHR"])


#: The answers to queries, by the end of the constant's name.
_INFO: Final = {
    "QUEUES": lambda one: pack("uintptr_t", *(queue.handle for queue in one.queues)),
    "NUM_QUEUES": lambda one: pack("uint32_t", len(one.queues)),
    "REFERENCE_COUNT": lambda one: pack("uint32_t", get_layer().references(one.handle)),
    "STATE": _query_state,
    "PROPERTIES_ARRAY": lambda one: pack("uint64_t", *(one.properties or ())),
    "CONTEXT": lambda one: pack("uintptr_t", one.context),
}
_ANSWERS: Final = {OPENCL[f"CL_COMMAND_BUFFER_{name}_KHR"]: made for name, made in _INFO.items()}


@entry
def clGetCommandBufferInfoKHR(
    buffer: int | None, name: int, room: int | None, into: int | None, size_ret: int | None
) -> None:
    found = get_buffer(buffer)
    made = _ANSWERS.get(name)
    if made is None:
        raise make_error("CL_INVALID_VALUE", f"{name:#x} is not a query of command-buffers")
    answer(made(found), room, into, size_ret)
