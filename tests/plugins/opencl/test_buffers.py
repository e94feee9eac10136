"""Buffers and sub-buffers of the reference adapter."""

from __future__ import annotations

import ctypes

from helpers.memory_calls import new_buffer, struct
from helpers.ur_calls import Calls

from fairlead.loader.ur.abi import UR

SIZE = 4096
READ_WRITE, WRITE_ONLY, READ_ONLY, USE, ALLOC, COPY = (
    UR[f"UR_MEM_FLAG_{name}"]
    for name in (
        "READ_WRITE",
        "WRITE_ONLY",
        "READ_ONLY",
        "USE_HOST_POINTER",
        "ALLOC_HOST_POINTER",
        "ALLOC_COPY_HOST_POINTER",
    )
)


def create(
    ur: Calls, context: int, flags: int, size: int, host: object = None
) -> tuple[str, ctypes.c_void_p]:
    made = ctypes.c_void_p()
    address = ctypes.addressof(host) if isinstance(host, ctypes.Array) else None
    properties = (
        ctypes.byref(struct("ur_buffer_properties_t", "BUFFER_PROPERTIES", pHost=address))
        if host is not None
        else None
    )
    return ur("urMemBufferCreate", context, flags, size, properties, made), made


def partition(
    ur: Calls, buffer: ctypes.c_void_p, origin: int, size: int, flags: int = 0
) -> tuple[str, ctypes.c_void_p]:
    made = ctypes.c_void_p()
    region = ctypes.byref(struct("ur_buffer_region_t", "BUFFER_REGION", origin=origin, size=size))
    return ur(
        "urMemBufferPartition", buffer, flags, UR["UR_BUFFER_CREATE_TYPE_REGION"], region, made
    ), made


def test_parts_that_there_are_not(ur: Calls, context: int) -> None:
    buffer = new_buffer(ur, context, SIZE)
    assert partition(ur, buffer, 0, 0)[0] == "INVALID_BUFFER_SIZE"
    assert partition(ur, buffer, SIZE, 1)[0] == "INVALID_BUFFER_SIZE"
    assert partition(ur, buffer, 128, SIZE)[0] == "INVALID_BUFFER_SIZE"
    assert partition(ur, buffer, (1 << 64) - 1, 2)[0] == "INVALID_BUFFER_SIZE"
    assert partition(ur, buffer, 1, 64)[0] == "MISALIGNED_SUB_BUFFER_OFFSET"
    assert partition(ur, buffer, 0, 64, USE)[0] == "INVALID_VALUE"
    assert partition(ur, buffer, 0, 64, 0x40)[0] == "INVALID_ENUMERATION"
    region = ctypes.byref(struct("ur_buffer_region_t", "BUFFER_REGION", origin=0, size=64))
    given = "urMemBufferPartition", buffer, 0, 1, region, ctypes.byref(ctypes.c_void_p())
    assert ur(*given) == "INVALID_ENUMERATION"
    given = "urMemBufferPartition", buffer, 0, 0, None, ctypes.byref(ctypes.c_void_p())
    assert ur(*given) == "INVALID_NULL_POINTER"
    part = partition(ur, buffer, 0, 1024)[1]
    assert partition(ur, part, 0, 128)[0] == "INVALID_MEM_OBJECT"
