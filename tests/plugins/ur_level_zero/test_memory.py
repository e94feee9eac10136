"""Buffers: maps of one place, and maps that fail."""

from __future__ import annotations

import ctypes

import pytest

from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import COUNT, SIZE, URObjects
from fairlead.loader.ur.abi import UR
from fairlead.plugins.ur_level_zero.devices import LZDevice
from fairlead.plugins.ur_level_zero.memory import COPY_MEMORY

READ, WRITE = UR["UR_MAP_FLAG_READ"], UR["UR_MAP_FLAG_WRITE"]
OUT_OF_MEMORY = 0x70000003  # ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY


def map_all(calls: URCalls, queue: int, buffer: int, flags: int) -> int:
    return calls.new("urEnqueueMemBufferMap", queue, buffer, True, flags, 0, SIZE)


def test_memory_of_the_program_is_mapped_twice_at_one_place(
    calls: URCalls, make: URObjects, context: int, queue: int
) -> None:
    host = (ctypes.c_int32 * COUNT)(*range(COUNT))
    how = UR.get_struct("ur_buffer_properties_t")(
        UR["UR_STRUCTURE_TYPE_BUFFER_PROPERTIES"], None, ctypes.addressof(host)
    )
    flags = UR["UR_MEM_FLAG_USE_HOST_POINTER"]
    made = calls.new("urMemBufferCreate", context, flags, SIZE, ctypes.byref(how))
    buffer = make.own("urMemRelease", made)
    places = [map_all(calls, queue, buffer, flag) for flag in (READ | WRITE, READ)]
    assert places == [ctypes.addressof(host)] * 2
    host[0] = 1000
    unmap = "urEnqueueMemUnmap", queue, buffer, places[0]
    calls.ok(*unmap)
    calls.ok(*unmap)
    assert make.read(queue, buffer)[0] == 1000
    calls.fails(unmap[0], "INVALID_VALUE", *unmap[1:])


def test_a_map_that_fails_is_none_and_an_unmap_can_be_tried_again(
    calls: URCalls, make: URObjects, queue: int, behind: LZDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer, place = make.buffer(), ctypes.c_void_p()
    given = queue, buffer, True, READ | WRITE, 0, SIZE, 0, None, None, place
    with monkeypatch.context() as patch:
        patch.setattr(behind.table, COPY_MEMORY, lambda *_: OUT_OF_MEMORY)
        calls.fails("urEnqueueMemBufferMap", "OUT_OF_DEVICE_MEMORY", *given)
    address = map_all(calls, queue, buffer, READ | WRITE)
    (ctypes.c_int32 * COUNT).from_address(address)[:] = [7] * COUNT
    unmap = "urEnqueueMemUnmap", queue, buffer, address
    with monkeypatch.context() as patch:
        patch.setattr(behind.table, COPY_MEMORY, lambda *_: OUT_OF_MEMORY)
        calls.fails(unmap[0], "OUT_OF_DEVICE_MEMORY", *unmap[1:])
    calls.ok(*unmap)
    assert make.read(queue, buffer) == [7] * COUNT


def test_a_part_has_no_access_that_its_buffer_lacks(
    calls: URCalls, make: URObjects, context: int
) -> None:
    def divide(own: str, part: str) -> int:
        flags = [UR[f"UR_MEM_FLAG_{name}"] for name in (own, part)]
        made = calls.new("urMemBufferCreate", context, flags[0], SIZE)
        buffer, out = make.own("urMemRelease", made), ctypes.c_void_p()
        region = UR.get_struct("ur_buffer_region_t")(
            UR["UR_STRUCTURE_TYPE_BUFFER_REGION"], None, 0, 16
        )
        kind = UR["UR_BUFFER_CREATE_TYPE_REGION"]
        given = buffer, flags[1], kind, ctypes.byref(region), ctypes.byref(out)
        code = calls.table.urMemBufferPartition(*given)
        if not code:
            make.own("urMemRelease", out.value or 0)
        return int(code)

    refused = UR.codes["UR_RESULT_ERROR_INVALID_VALUE"]
    names = "READ_WRITE", "READ_ONLY", "WRITE_ONLY"
    for own in names:
        for part in names:
            allowed = own in ("READ_WRITE", part)
            assert divide(own, part) == (0 if allowed else refused), (own, part)
