"""Validation of objects' lifetimes, in front of a fake adapter."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from helpers.validated import CODES, Adapter, Attach, array, context_of, devices, handle, make

from fairlead.loader.base.table import DispatchTable
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.validation import BOUNDS, LEAK, LIFETIME, PARAMETER


def run_a_program(table: Any) -> list[tuple[str, ctypes.c_void_p]]:
    """A program that uses everything as it should: gives what there is to release, in order."""
    platform, found = devices(table, 2)
    device = ctypes.c_void_p(found[0])
    context = make(table.urContextCreate, 2, found, None)
    queue = make(table.urQueueCreate, context, device, None)
    buffer = make(table.urMemBufferCreate, context, UR["UR_MEM_FLAG_READ_WRITE"], 64, None)
    region = UR.get_struct("ur_buffer_region_t")(UR["UR_STRUCTURE_TYPE_BUFFER_REGION"], None, 0, 32)
    part = make(
        table.urMemBufferPartition,
        buffer,
        UR["UR_MEM_FLAG_READ_WRITE"],
        UR["UR_BUFFER_CREATE_TYPE_REGION"],
        ctypes.byref(region),
    )
    memory = make(table.urUSMDeviceAlloc, context, device, None, None, 64)
    program = make(table.urProgramCreateWithIL, context, b"IL", 2, None)
    assert table.urProgramBuild(context, program, None) == 0
    kernel = make(table.urKernelCreate, program, b"name")
    write = handle()
    data = ctypes.create_string_buffer(64)
    given = queue, buffer, False, 0, 64, data, 0, None, ctypes.byref(write)
    assert table.urEnqueueMemBufferWrite(*given) == 0
    copy = handle()
    given = queue, False, memory, data, 64, 1, array(write), ctypes.byref(copy)
    assert table.urEnqueueUSMMemcpy(*given) == 0
    given = queue, part, True, 0, 32, data, 2, array(write, copy), None
    assert table.urEnqueueMemBufferRead(*given) == 0
    assert table.urEventWait(2, array(write, copy)) == 0
    assert table.urQueueRetain(queue) == 0
    assert table.urQueueRelease(queue) == 0
    assert table.urQueueFinish(queue) == 0
    assert table.urUSMFree(context, memory) == 0
    assert table.urPlatformGetInfo(platform, UR["UR_PLATFORM_INFO_NAME"], 64, data, None) == 0
    objects = [
        *(("urEventRelease", event) for event in (copy, write)),
        *(
            ("urKernelRelease", kernel),
            ("urProgramRelease", program),
            ("urMemRelease", part),
            ("urMemRelease", buffer),
        ),
        *(("urQueueRelease", queue), ("urContextRelease", context)),
        *(("urDeviceRelease", ctypes.c_void_p(each)) for each in found),
    ]
    for release, made in objects:
        assert getattr(table, release)(made) == 0
    return objects


def test_a_right_program_is_left_alone(attach: Attach, adapter: Adapter) -> None:
    table, validated, lines = attach(PARAMETER, LIFETIME, LEAK, BOUNDS)
    run_a_program(table)
    assert table.urAdapterRelease(ctypes.c_void_p(adapter.lists["urAdapterGet"][0])) == 0
    assert validated.find_leaks() == []
    validated.close()
    assert lines == []


def test_a_second_program_may_get_the_same_addresses(attach: Attach, adapter: Adapter) -> None:
    table, validated, lines = attach(PARAMETER, LIFETIME)
    adapter.recycled = [
        made.value or 0 for name, made in run_a_program(table) if name != "urDeviceRelease"
    ]
    run_a_program(table)
    assert [leak.kind for leak in validated.find_leaks()] == ["ur_adapter_handle_t"]
    assert lines == []


OBJECTS = {
    "context": ("INVALID_CONTEXT", "urContextRelease"),
    "queue": ("INVALID_QUEUE", "urQueueRelease"),
    "mem": ("INVALID_MEM_OBJECT", "urMemRelease"),
    "sampler": ("INVALID_SAMPLER", "urSamplerRelease"),
    "usm_pool": ("INVALID_NULL_HANDLE", "urUSMPoolRelease"),
    "command_buffer": ("INVALID_COMMAND_BUFFER_EXP", "urCommandBufferReleaseExp"),
}


def make_one(table: Any, kind: str) -> ctypes.c_void_p:
    device, context = context_of(table)
    anything = ctypes.create_string_buffer(64)
    return {
        "context": lambda: context,
        "queue": lambda: make(table.urQueueCreate, context, device, None),
        "mem": lambda: make(
            table.urMemBufferCreate, context, UR["UR_MEM_FLAG_READ_WRITE"], 64, None
        ),
        "sampler": lambda: make(table.urSamplerCreate, context, anything),
        "usm_pool": lambda: make(table.urUSMPoolCreate, context, anything),
        "command_buffer": lambda: make(table.urCommandBufferCreateExp, context, device, anything),
    }[kind]()


@pytest.mark.parametrize("kind", OBJECTS)
def test_a_second_release_is_refused(attach: Attach, adapter: Adapter, kind: str) -> None:
    table, _, lines = attach(LIFETIME)
    made, (code, release) = make_one(table, kind), OBJECTS[kind]
    assert getattr(table, release)(made) == 0  # the last one
    assert getattr(table, release)(made) == CODES[code]
    assert adapter.calls.count(release) == 1
    (line,) = lines
    assert (
        f"{made.value:#x}" in line
        and "# the last one" in line
        and "test_validation_objects.py" in line
    )


def test_use_after_release_is_refused(attach: Attach) -> None:
    table, _, lines = attach(LIFETIME)
    queue = make_one(table, "queue")
    assert table.urQueueRelease(queue) == 0
    assert table.urQueueFinish(queue) == CODES["INVALID_QUEUE"]
    assert lines[0].startswith("urQueueFinish: hQueue: ur_queue_handle_t")


def test_an_object_of_another_kind_is_refused(attach: Attach) -> None:
    table, _, lines = attach(LIFETIME)
    assert table.urContextRetain(make_one(table, "queue")) == CODES["INVALID_CONTEXT"]
    assert "it is a ur_queue_handle_t" in lines[0]


def test_an_invented_handle_is_refused(attach: Attach) -> None:
    table, _, lines = attach(LIFETIME)
    invented = ctypes.create_string_buffer(64)
    for bad in (0x1234, ctypes.addressof(invented)):
        assert table.urQueueFinish(bad) == CODES["INVALID_QUEUE"]
    assert len(lines) == 2


def test_a_released_event_in_a_wait_list_is_refused(attach: Attach, adapter: Adapter) -> None:
    table, _, lines = attach(LIFETIME)
    queue = make_one(table, "queue")
    good, bad = (make(table.urEnqueueEventsWait, queue, 0, None) for _ in range(2))
    assert table.urEventRelease(bad) == 0
    given = queue, 2, array(good, bad), None
    assert table.urEnqueueEventsWait(*given) == CODES["INVALID_EVENT_WAIT_LIST"]
    assert table.urEventWait(2, array(good, bad)) == CODES["INVALID_EVENT"]
    assert all("phEventWaitList[1]" in line for line in lines)
    assert table.urEventWait(1, array(good)) == 0


def test_a_failed_call_changes_nothing(attach: Attach, adapter: Adapter) -> None:
    table, validated, lines = attach(LIFETIME)
    queue = make_one(table, "queue")
    adapter.answers = dict.fromkeys(
        ("urQueueRelease", "urQueueRetain", "urQueueCreate"), CODES["OUT_OF_RESOURCES"]
    )
    device, context = context_of(table)
    given = context, device, None, ctypes.byref(handle())
    assert table.urQueueCreate(*given) == CODES["OUT_OF_RESOURCES"]
    for call in (table.urQueueRelease, table.urQueueRetain, table.urQueueRelease):
        assert call(queue) == CODES["OUT_OF_RESOURCES"]
    assert [leak.count for leak in validated.find_leaks() if leak.kind == "ur_queue_handle_t"] == [
        1
    ]
    assert lines == []


def test_what_a_query_gives_may_be_used_but_not_released(attach: Attach, adapter: Adapter) -> None:
    """A queue keeps its context alive after the program has released it."""
    table, _, lines = attach(PARAMETER, LIFETIME)
    device, context = context_of(table)
    queue = make(table.urQueueCreate, context, device, None)
    assert table.urContextRelease(context) == 0
    adapter.infos[UR["UR_QUEUE_INFO_CONTEXT"]] = [context.value or 0]
    again = handle()
    found = table.urQueueGetInfo(queue, UR["UR_QUEUE_INFO_CONTEXT"], 8, ctypes.byref(again), None)
    assert found == 0
    make(table.urQueueCreate, again, device, None)
    assert not lines
    assert table.urContextRetain(again) == table.urContextRelease(again) == 0
    assert table.urContextRelease(again) == CODES["INVALID_CONTEXT"]


def test_every_device_that_a_query_lists_is_known(attach: Attach, adapter: Adapter) -> None:
    table, _, lines = attach(PARAMETER, LIFETIME)
    _, context = context_of(table)
    memory = [(ctypes.c_uint64 * 1)(0) for _ in range(3)]  # leads to no dispatch table
    adapter.infos[UR["UR_CONTEXT_INFO_DEVICES"]] = [ctypes.addressof(word) for word in memory]
    found, size = (ctypes.c_void_p * 3)(), ctypes.c_size_t()
    given = context, UR["UR_CONTEXT_INFO_DEVICES"], 24, found, ctypes.byref(size)
    assert table.urContextGetInfo(*given) == 0
    for device in found:
        make(table.urQueueCreate, context, device, None)
    assert not lines


def test_root_devices_outlive_their_references(attach: Attach) -> None:
    """urDeviceRelease does nothing to them."""
    table, _, lines = attach(PARAMETER, LIFETIME)
    platform, found = devices(table)
    for _ in range(2):
        assert table.urDeviceRelease(ctypes.c_void_p(found[0])) == 0
    make(table.urContextCreate, 1, found, None)
    make(table.urDeviceGet, platform, UR["UR_DEVICE_TYPE_ALL"], 0, None)
    assert not lines


def test_only_the_devices_that_there_are_are_taken(attach: Attach) -> None:
    table, validated, _ = attach(LIFETIME)
    platform, _ = devices(table)
    room, total = (ctypes.c_void_p * 5)(*[0xBAD] * 5), ctypes.c_uint32()
    for asked in (None, ctypes.byref(total)):
        assert table.urDeviceGet(platform, UR["UR_DEVICE_TYPE_ALL"], 5, room, asked) == 0
    counts = [leak.count for leak in validated.find_leaks() if leak.kind == "ur_device_handle_t"]
    assert counts == [3, 2]
    assert 0xBAD not in [leak.handle for leak in validated.find_leaks()]


def test_sub_devices_are_counted(attach: Attach) -> None:
    table, _, _ = attach(LIFETIME)
    _, found = devices(table)
    sub = handle()
    anything = ctypes.create_string_buffer(64)
    given = found[0], anything, 1, ctypes.byref(sub), ctypes.byref(ctypes.c_uint32(1))
    assert table.urDevicePartition(*given) == 0
    assert table.urDeviceRelease(sub) == 0
    assert table.urDeviceRelease(sub) == CODES["INVALID_DEVICE"]


def test_objects_from_before_are_believed(attach: Attach, adapter: Adapter) -> None:
    """A layer that comes late cannot know them.

    Their first word points to the adapter's dispatch table.
    """
    before = DispatchTable(UR, adapter.address)
    device, context = context_of(before)
    memory = make(before.urUSMDeviceAlloc, context, device, None, None, 64)
    table, validated, lines = attach(PARAMETER, LIFETIME, LEAK, BOUNDS)
    queue = make(table.urQueueCreate, context, device, None)
    assert (
        table.urUSMFree(context, memory)
        == table.urQueueRelease(queue)
        == table.urContextRelease(context)
        == 0
    )
    validated.close()
    assert not lines


def test_the_program_of_a_failed_link_can_be_asked_and_released(
    attach: Attach, adapter: Adapter
) -> None:
    table, _, lines = attach(PARAMETER, LIFETIME)
    device, context = context_of(table)
    part = make(table.urProgramCreateWithIL, context, b"IL", 2, None)
    adapter.answers["urProgramLink"] = CODES["PROGRAM_LINK_FAILURE"]
    failed, log = handle(), ctypes.create_string_buffer(8)
    given = context, 1, array(part), None, ctypes.byref(failed)
    assert table.urProgramLink(*given) == CODES["PROGRAM_LINK_FAILURE"]
    given = failed, device, UR["UR_PROGRAM_BUILD_INFO_LOG"], 8, log, None
    assert table.urProgramGetBuildInfo(*given) == 0
    assert table.urProgramRelease(failed) == 0
    assert not lines


def test_an_event_that_is_used_again_is_no_new_one(attach: Attach) -> None:
    table, validated, _ = attach(LIFETIME)
    device, context = context_of(table)
    queue = make(table.urQueueCreate, context, device, None)
    event = make(table.urEventCreateExp, context, device, ctypes.create_string_buffer(64))
    assert table.urEnqueueEventsWaitWithBarrierExt(queue, None, 0, None, ctypes.byref(event)) == 0
    assert [leak.count for leak in validated.find_leaks() if leak.kind == "ur_event_handle_t"] == [
        1
    ]


def test_a_pool_is_destroyed_and_not_leaked(attach: Attach) -> None:
    table, validated, _ = attach(LIFETIME)
    device, context = context_of(table)
    pool = make(table.urUSMPoolCreateExp, context, device, ctypes.create_string_buffer(64))
    assert table.urUSMPoolDestroyExp(context, device, pool) == 0
    assert table.urUSMPoolDestroyExp(context, device, pool) == CODES["INVALID_NULL_HANDLE"]
    assert "ur_usm_pool_handle_t" not in [leak.kind for leak in validated.find_leaks()]
