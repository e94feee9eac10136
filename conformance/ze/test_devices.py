"""Sub-devices: what they say of themselves, and that they run kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from ctypes import byref
from functools import partial
from typing import Any, Final

import pytest

from fairlead.conformance.checks import equal, rule, unsupported
from fairlead.conformance.ze.calls import ZECalls, handles, new
from fairlead.conformance.ze.objects import ZEObjects
from fairlead.loader.ze.abi import ZE
from fairlead.loader.ze.driver import ZEDevice

_PART: Final = ZE["ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE"]


def query_properties(ze: ZECalls, device: int) -> Any:
    row = new("ze_device_properties_t")
    ze.ok("zeDeviceGetProperties", device, row)
    return row


def query_root(ze: ZECalls, device: int) -> int:
    root = ctypes.c_void_p()
    ze.ok("zeDeviceGetRootDevice", device, root)
    return root.value or 0


@pytest.fixture
def parts(ze: ZECalls, device: int) -> list[int]:
    """The sub-devices."""
    count = ctypes.c_uint32()
    ze.ok("zeDeviceGetSubDevices", device, count)
    if not count.value:
        unsupported("the device has no sub-devices (zeDeviceGetSubDevices)")
    found = (ctypes.c_void_p * count.value)()
    ze.ok("zeDeviceGetSubDevices", device, count, found)
    return [part or 0 for part in found]


@pytest.fixture
def on_part(
    ze: ZECalls, context: int, parts: list[int], module: Callable[[str], int]
) -> Iterator[ZEObjects]:
    """Makes objects of a sub-device, with kernels of the device's modules."""
    objects = ZEObjects(ze, context, parts[-1], module)
    yield objects
    objects.close()


@rule("zeDeviceGetSubDevices", "each has the flag, a number and a UUID of its own, and its root")
def test_properties(ze: ZECalls, device: int, parts: list[int]) -> None:
    rows = [query_properties(ze, part) for part in parts]
    equal([row.flags & _PART for row in rows], [_PART] * len(parts), "the flags")
    equal(len({row.subdeviceId for row in rows}), len(parts), "how many numbers there are")
    named = {bytes(row.uuid.id) for row in (*rows, query_properties(ze, device))}
    equal(len(named), len(parts) + 1, "how many UUIDs there are")
    equal([query_root(ze, part) for part in parts], [device] * len(parts), "the root devices")


@rule("zeDeviceGetRootDevice", "a device that is not a sub-device has none")
def test_root(ze: ZECalls, device: int) -> None:
    if query_properties(ze, device).flags & _PART:
        unsupported("the device is a sub-device")
    equal(query_root(ze, device), 0, "the root device")


@rule("zeModuleCreate", "its kernels run on sub-devices of its device, with memory of the device")
def test_module_of_device(make: ZEObjects, on_part: ZEObjects) -> None:
    out = make.ints(0, 0, 0)
    made = on_part.list()
    on_part.launch(made, on_part.kernel("store", out.pointer, ctypes.c_int32(5)), 3)
    on_part.close_list(made)
    on_part.check_result(on_part.queue(), made, out, 5, 5, 5)


@rule("zeContextCreateEx", "a context of a sub-device alone has modules and memory")
def test_context_of_part(
    ze: ZECalls, chosen: ZEDevice, parts: list[int], module_of: Callable[..., int]
) -> None:
    given = byref(new("ze_context_desc_t")), 1, handles(parts[0])
    context = ze.create("zeContextCreateEx", chosen.driver_handle, *given)
    make = ZEObjects(ze, context, parts[0], partial(module_of, context, parts[0]))
    try:
        out, made = make.ints(0, 0), make.immediate()
        make.launch(made, make.kernel("store", out.pointer, ctypes.c_int32(5)), 2)
        make.finish(made)
        equal(out.all, [5, 5], "what the list has written")
    finally:
        make.close()
        ze.number("zeContextDestroy", context)
