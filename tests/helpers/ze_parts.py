"""What a program for Level Zero sees and does with sub-devices, in a process of its own."""

from __future__ import annotations

import ctypes
from typing import Final

from fairlead.loader.ze.abi import ZE
from fairlead.plugins import level_zero_driver
from helpers.ze_bench import FOREVER, ZeBench
from helpers.ze_calls import ZeCalls, array, new

_PART: Final = ZE["ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE"]
_END: Final = (None, 0, None)


def _opened() -> tuple[ZeCalls, int]:
    ze = ZeCalls(level_zero_driver())
    ze.ok("zeInit", 0)
    return ze, ze.listed("zeDriverGet")[0]


def _described(ze: ZeCalls, device: int) -> str:
    """Return "part 1" for a sub-device, else "device", and "root" if it is told of one."""
    row = ze.properties("zeDeviceGetProperties", "ze_device_properties_t", device)
    root = ctypes.c_void_p()
    ze.ok("zeDeviceGetRootDevice", device, root)
    name = f"part {row.subdeviceId}" if row.flags & _PART else "device"
    return f"{name} root" if root.value else name


def show() -> None:
    """Print each device, and its sub-devices."""
    ze, driver = _opened()
    for device in ze.listed("zeDeviceGet", driver):
        parts = ze.listed("zeDeviceGetSubDevices", device)
        print(", ".join(_described(ze, one) for one in (device, *parts)))


def compute() -> None:
    """Print what lists of a sub-device have computed, in contexts of all kinds."""
    ze, driver = _opened()
    (root,) = ze.listed("zeDeviceGet", driver)
    part = ze.listed("zeDeviceGetSubDevices", root)[1]
    for context in ([], [root], [part]):
        bench = ZeBench(ze, driver, part, context)
        memory = bench.ints(1, 2, 3)
        kernel = bench.kernel("add", memory.pointer, ctypes.c_int(10))
        made = bench.list()
        bench.launch(made, kernel, 3)
        ze.ok("zeCommandListAppendBarrier", made, *_END)
        bench.launch(made, kernel, 3)
        ze.ok("zeCommandListClose", made)
        ze.ok("zeCommandQueueExecuteCommandLists", bench.queue, 1, array(made))
        ze.ok("zeCommandQueueSynchronize", bench.queue, FOREVER)
        immediate = bench.immediate()
        bench.launch(immediate, kernel, 3)
        ze.ok("zeDeviceSynchronize", root)
        print(memory.all)


def images() -> None:
    """Print what becomes of images on a sub-device: its own, and copies of the device's."""
    ze, driver = _opened()
    (root,) = ze.listed("zeDeviceGet", driver)
    part = ze.listed("zeDeviceGetSubDevices", root)[1]
    bench = ZeBench(ze, driver, part)
    desc = new("ze_image_desc_t", type=ZE["ZE_IMAGE_TYPE_2D"], width=4, height=1, depth=1, flags=1)
    desc.format = ZE.get_struct("ze_image_format_t")(
        ZE["ZE_IMAGE_FORMAT_LAYOUT_8_8_8_8"], ZE["ZE_IMAGE_FORMAT_TYPE_UINT"], 0, 1, 2, 3
    )
    own, made = ctypes.c_void_p(), bench.immediate()
    print(ze.code("zeImageCreate", bench.context, part, desc, own))
    image = ze.make("zeImageCreate", bench.context, root, desc)
    data, out = ctypes.create_string_buffer(bytes(range(16)), 16), ctypes.create_string_buffer(16)
    print(ze.code("zeCommandListAppendImageCopyFromMemory", made, image, data, None, *_END))
    print(ze.code("zeCommandListAppendImageCopyToMemory", made, out, image, None, *_END))
    ze.ok("zeCommandListHostSynchronize", made, FOREVER)
    print(out.raw == data.raw)
