"""Transfers of images on queues to sub-devices, with which PoCL crashes by itself."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest
from helpers.image_calls import image_content, new_image
from helpers.memory_calls import finish, held_back, new_queue, rect, region, struct
from helpers.ur_calls import Calls, array

from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.devices import PluginDevice

PIXELS = bytes(range(240))  # of an image of 12 by 5


@pytest.fixture
def part(ur: Calls, device: PluginDevice, divisible: None) -> Iterator[int]:
    """A sub-device of one compute unit."""
    one = UR.get_struct("ur_device_partition_property_t")(type=UR["UR_DEVICE_PARTITION_EQUALLY"])
    one.value.equally = 1
    fields = {"pProperties": ctypes.addressof(one), "PropCount": 1}
    how = struct("ur_device_partition_properties_t", "DEVICE_PARTITION_PROPERTIES", **fields)
    made = ctypes.c_void_p()
    ur.ok("urDevicePartition", device.handle, ctypes.byref(how), 1, ctypes.byref(made), None)
    yield made.value or 0
    ur.ok("urDeviceRelease", made)


@pytest.fixture
def its_context(ur: Calls, part: int) -> Iterator[int]:
    made = ur.make("urContextCreate", 1, array(part), None)
    yield made.value or 0
    ur.ok("urContextRelease", made)


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("flag", ["", "OUT_OF_ORDER_EXEC_MODE_ENABLE"])
def test_every_transfer(ur: Calls, part: int, its_context: int, flag: str, blocking: bool) -> None:
    flags = ("PROFILING_ENABLE", *filter(None, [flag]))
    queue = new_queue(ur, its_context, part, *flags).value or 0
    first, second = new_image(ur, its_context), new_image(ur, its_context)
    data, room = ctypes.create_string_buffer(PIXELS, 240), ctypes.create_string_buffer(240)
    written, copied, read = (ctypes.c_void_p() for _ in range(3))
    whole = rect(), region(12, 5)
    ends = 0, 0, data, 0, None, ctypes.byref(written)
    ur.ok("urEnqueueMemImageWrite", queue, first, blocking, *whole, *ends)
    ends = 1, array(written), ctypes.byref(copied)
    ur.ok("urEnqueueMemImageCopy", queue, first, second, rect(), *whole, *ends)
    ends = 0, 0, room, 1, array(copied), ctypes.byref(read)
    ur.ok("urEnqueueMemImageRead", queue, second, blocking, *whole, *ends)
    assert ur.number("urEventGetInfo", read, "UR_EVENT_INFO_COMMAND_QUEUE") == queue
    ur.ok("urQueueFinish", queue)
    assert room.raw == PIXELS
    for event, kind in ((written, "WRITE"), (copied, "COPY"), (read, "READ")):
        finish(ur, event, f"MEM_IMAGE_{kind}")
    for image in (first, second):
        ur.ok("urMemRelease", image)
    ur.ok("urQueueRelease", queue)


def test_a_transfer_has_its_place_in_the_order(ur: Calls, part: int, its_context: int) -> None:
    queue = new_queue(ur, its_context, part).value or 0
    gate, go = held_back(ur, its_context)
    image = new_image(ur, its_context, data=bytes(240))
    data, room = ctypes.create_string_buffer(PIXELS, 240), ctypes.create_string_buffer(240)
    whole, read = (rect(), region(12, 5)), ctypes.c_void_p()
    ends = 0, 0, data, 1, array(gate), None
    ur.ok("urEnqueueMemImageWrite", queue, image, False, *whole, *ends)
    ends = 0, 0, room, 0, None, ctypes.byref(read)
    ur.ok("urEnqueueMemImageRead", queue, image, False, *whole, *ends)
    assert not ur.number("urQueueGetInfo", queue, "UR_QUEUE_INFO_EMPTY")
    assert room.raw == bytes(240)
    go()
    ur.ok("urEventWait", 1, array(read))
    assert room.raw == PIXELS
    assert image_content(ur, queue, image, (12, 5, 1)) == PIXELS
    for event in (gate, read):
        ur.ok("urEventRelease", event)
    ur.ok("urMemRelease", image)
    ur.ok("urQueueRelease", queue)
