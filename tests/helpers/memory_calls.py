"""What the tests of memory share: structs, queues, events, and what memory holds."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from fairlead.icd.abi import OPENCL
from fairlead.loader.base.memory import read_word
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.ur.abi import UR
from helpers.ur_calls import Calls, array


def struct(name: str, stype: str = "", **fields: Any) -> Any:
    """Return a struct of the API. `stype` is the name of its type after UR_STRUCTURE_TYPE_."""
    return UR.get_struct(name)(
        **({"stype": UR[f"UR_STRUCTURE_TYPE_{stype}"]} if stype else {}), **fields
    )


def rect(x: int = 0, y: int = 0, z: int = 0) -> Any:
    """A ur_rect_offset_t."""
    return UR.get_struct("ur_rect_offset_t")(x, y, z)


def region(width: int, height: int = 1, depth: int = 1) -> Any:
    """A ur_rect_region_t."""
    return UR.get_struct("ur_rect_region_t")(width, height, depth)


def new_queue(ur: Calls, context: int, device: int, *flags: str) -> ctypes.c_void_p:
    """A queue with flags, named without UR_QUEUE_FLAG_."""
    bits = sum(UR[f"UR_QUEUE_FLAG_{flag}"] for flag in flags)
    return ur.make(
        "urQueueCreate",
        context,
        device,
        struct("ur_queue_properties_t", "QUEUE_PROPERTIES", flags=bits),
    )


def new_buffer(ur: Calls, context: int, size: int, data: bytes | None = None) -> ctypes.c_void_p:
    """A buffer, with a copy of some data."""
    flags = UR["UR_MEM_FLAG_READ_WRITE"]
    if data is None:
        return ur.make("urMemBufferCreate", context, flags, size)
    host = ctypes.create_string_buffer(data, len(data))
    properties = struct("ur_buffer_properties_t", "BUFFER_PROPERTIES", pHost=ctypes.addressof(host))
    flags |= UR["UR_MEM_FLAG_ALLOC_COPY_HOST_POINTER"]
    return ur.make("urMemBufferCreate", context, flags, size, properties)


def content(ur: Calls, queue: int, buffer: ctypes.c_void_p, size: int, offset: int = 0) -> bytes:
    """What is in a buffer."""
    into = ctypes.create_string_buffer(size)
    ur.ok("urEnqueueMemBufferRead", queue, buffer, True, offset, size, into)
    return into.raw


def at(address: int, size: int) -> bytes:
    """What host memory holds."""
    return ctypes.string_at(address, size)


def command(ur: Calls, event: ctypes.c_void_p) -> str:
    """The kind of command that an event is of, without UR_COMMAND_."""
    number = ur.number("urEventGetInfo", event, "UR_EVENT_INFO_COMMAND_TYPE")
    return UR.groups["ur_command_t"][number].removeprefix("UR_COMMAND_")


def finish(ur: Calls, event: ctypes.c_void_p, kind: str) -> None:
    """Wait for an event with times, see that it tells of its command, and release it."""
    ur.ok("urEventWait", 1, array(event))
    assert command(ur, event) == kind
    names = (
        "QUEUED",
        "START",
        "END",
    )  # not SUBMIT: Intel's driver has none for short copies that it makes at once
    times = [
        ur.number("urEventGetProfilingInfo", event, f"UR_PROFILING_INFO_COMMAND_{name}")
        for name in names
    ]
    assert times == sorted(times)
    ur.ok("urEventRelease", event)


def opencl(ur: Calls, context: int) -> tuple[DispatchTable, int]:
    """The driver's own table, and the cl_context of a context."""
    native = ur.make("urContextGetNativeHandle", context).value or 0
    return DispatchTable(OPENCL, read_word(native) or 0), native


def held_back(ur: Calls, context: int) -> tuple[ctypes.c_void_p, Callable[..., int]]:
    """Return an incomplete event and the function that completes it.

    It is an OpenCL user event, imported by its native handle.
    """
    table, native = opencl(ur, context)
    code = ctypes.c_int32()
    user = table.clCreateUserEvent(native, ctypes.byref(code))
    assert code.value == 0
    owned = struct(
        "ur_event_native_properties_t", "EVENT_NATIVE_PROPERTIES", isNativeHandleOwned=True
    )
    event = ur.make("urEventCreateWithNativeHandle", user, context, owned)
    return event, lambda status=0: table.clSetUserEventStatus(user, status)
