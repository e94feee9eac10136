"""Objects of two contexts of one driver in one call: what is refused leaves everything as it was.
(tests/helpers/fuzz/mixing.py makes such calls at random.)"""

from __future__ import annotations

import ctypes
import gc
import mmap
from typing import Any, cast

import pytest
from helpers.launching import Exported, Numbers, build_once, launch, sizes
from helpers.memory_calls import new_queue, struct
from helpers.ur_calls import Calls, array
from helpers.usm_ways import Way

from fairlead.loader.base.table import DispatchTable
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.devices import PluginDevice
from fairlead.loader.ur.plugin import Plugin
from fairlead.plugins.opencl.core import adapter as the_adapter

MOVE = (
    b"kernel void move(global int *out, global const int *in) { "
    b"out[get_global_id(0)] = in[get_global_id(0)]; }"
)


@pytest.fixture
def other(device: PluginDevice, ur: Calls) -> int:
    """Another context of the same device."""
    return ur.make("urContextCreate", 1, array(device.handle)).value or 0


def test_a_launch_that_is_refused_leaves_the_arguments_that_were_set(
    ur: Calls, adapter: Plugin, context: int, other: int, queue: int
) -> None:
    """The first of two arguments is in order, and was with the driver already when the second was
    refused."""
    program = build_once(ur, context, MOVE)
    kernel = ur.make("urKernelCreate", program, b"move").value or 0
    source, target, wrong = (Numbers(ur, context, 4) for _ in range(3))
    foreign = Numbers(ur, other, 4)
    assert launch(ur, queue, kernel, (4,), wrong.argument, foreign.argument) == "INVALID_CONTEXT"
    again, given = (
        Calls(cast(DispatchTable, Exported(adapter.path))),
        (queue, kernel, 1, None, sizes((4,)), None, None, 0, None, None),
    )
    assert again("urEnqueueKernelLaunch", *given) == "INVALID_KERNEL_ARGS"  # nothing was set before
    assert launch(ur, queue, kernel, (4,), target.argument, source.argument) == "SUCCESS"
    numbers = (ctypes.c_int32 * 4)(5, 6, 7, 8)
    ur.ok("urEnqueueMemBufferWrite", queue, source.handle, True, 0, 16, numbers)
    assert launch(ur, queue, kernel, (4,), wrong.argument, foreign.argument) == "INVALID_CONTEXT"
    ur.ok("urMemRelease", wrong.handle)
    again.ok("urEnqueueKernelLaunch", *given)
    assert target.read(queue) == [5, 6, 7, 8]


def test_a_command_buffer_waits_for_no_event_of_another_context(
    ur: Calls, context: int, other: int, queue: int, free_queue: int, device: PluginDevice
) -> None:
    """Intel's driver crashes with such a wait list on a queue that is out of order."""
    desc = struct("ur_exp_command_buffer_desc_t", "EXP_COMMAND_BUFFER_DESC")
    foreign = new_queue(ur, other, device.handle)
    event = ur.make("urEnqueueEventsWait", foreign)
    memory, numbers = Numbers(ur, context, 4), (ctypes.c_int32 * 4)(1, 2, 3, 4)
    for is_empty in (True, False):
        buffer = ur.make("urCommandBufferCreateExp", context, device.handle, desc)
        if not is_empty:
            ur.ok("urCommandBufferAppendMemBufferWriteExp", buffer, memory.handle, 0, 16, numbers)
        ur.ok("urCommandBufferFinalizeExp", buffer)
        for where in (queue, free_queue):
            assert (
                ur("urEnqueueCommandBufferExp", where, buffer, 1, array(event)) == "INVALID_CONTEXT"
            )
            ur.ok("urEnqueueCommandBufferExp", where, buffer)
            ur.ok("urQueueFinish", where)
        ur.ok("urCommandBufferReleaseExp", buffer)
    assert memory.read(queue) == [1, 2, 3, 4]


def test_device_memory_of_another_context(way: Way, ur: Calls) -> None:
    other = ur.make("urContextCreate", 1, array(way.device.handle)).value or 0
    queue = new_queue(ur, other, way.device.handle)
    address, host = way.alloc("device", 64), ctypes.create_string_buffer(64)
    calls: tuple[tuple[Any, ...], ...] = (
        ("Memcpy", False, host, address, 64),
        ("Memcpy", False, address, host, 64),
        ("Fill", address, 1, b"x", 64),
        ("Prefetch", address, 64, 0),
        ("Memcpy2D", True, host, 8, address, 8, 8, 8),
        ("Fill2D", address, 8, 1, b"x", 8, 8),
    )
    for name, *arguments in calls:
        assert ur(f"urEnqueueUSM{name}", queue, *arguments) == "INVALID_MEM_OBJECT", name
    assert ur("urUSMContextMemcpyExp", other, host, address, 64) == "INVALID_MEM_OBJECT"
    assert ur("urUSMFree", other, address) == "INVALID_MEM_OBJECT"
    way.copy(address, b"as ever", 7)
    assert way.content(address, 7) == b"as ever"
    way.free(address)


def test_host_memory_may_be_known_to_two_contexts(way: Way, ur: Calls) -> None:
    if not ur.number(
        "urDeviceGetInfo", way.device.handle, "UR_DEVICE_INFO_USM_SYSTEM_SHARED_SUPPORT"
    ):
        return  # what test_usm.py sees refused
    other = ur.make("urContextCreate", 1, array(way.device.handle))
    pages = mmap.mmap(-1, mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    for context in (way.context, other):
        ur.ok("urUSMImportExp", context, address, mmap.PAGESIZE)
    for context in (way.context, other):
        ur.ok("urUSMReleaseExp", context, address)
        assert ur("urUSMReleaseExp", context, address) == "INVALID_VALUE"


@pytest.mark.usefixtures("divisible")
def test_the_time_of_a_part_of_a_device_leaves_nothing(ur: Calls, device: PluginDevice) -> None:
    """PoCL 3.0 has no timer, so that a queue of ours is asked: that of the whole device."""
    one = UR.get_struct("ur_device_partition_property_t")(type=UR["UR_DEVICE_PARTITION_EQUALLY"])
    one.value.equally = 1
    how = struct(
        "ur_device_partition_properties_t",
        "DEVICE_PARTITION_PROPERTIES",
        pProperties=ctypes.addressof(one),
        PropCount=1,
    )
    known = the_adapter.objects.list_owned("ur_device_handle_t")
    before = set(known)  # parts that somebody else has of the device may be the same ones
    count = ctypes.c_uint32()
    ur.ok("urDevicePartition", device.handle, how, 0, None, count)
    parts = (ctypes.c_void_p * count.value)()
    ur.ok("urDevicePartition", device.handle, how, count.value, parts)
    assert set(parts) <= set(known)
    time = ctypes.c_uint64()
    for part in parts:
        ur.ok("urDeviceGetGlobalTimestamps", part, time)
        assert time.value
        ur.ok("urDeviceRelease", part)
    gc.collect()
    assert set(the_adapter.objects.list_owned("ur_device_handle_t")) == before
