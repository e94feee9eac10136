"""Devices of the reference adapter: lists, sub-devices, native handles, binaries, time stamps,
waiting.

Platforms of the reference adapter.
"""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from helpers.ur_calls import Calls, array

from fairlead.icd.abi import OPENCL
from fairlead.loader.base.memory import read_word
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.devices import PluginDevice
from fairlead.loader.ur.plugin import Plugin

CPU, GPU, FPGA, ALL, DEFAULT = (
    UR[f"UR_DEVICE_TYPE_{name}"] for name in ("CPU", "GPU", "FPGA", "ALL", "DEFAULT")
)


# sub-devices


def partition(kind: str, *values: int) -> Any:
    """A ur_device_partition_properties_t; what it points to lives as long as it does."""
    item = UR.get_struct("ur_device_partition_property_t")
    items = (item * len(values))()
    field = {"EQUALLY": "equally", "BY_COUNTS": "count"}.get(kind, "affinity_domain")
    for each, value in zip(items, values, strict=True):
        each.type = UR[f"UR_DEVICE_PARTITION_{kind}"]
        setattr(each.value, field, value)
    properties = UR.get_struct("ur_device_partition_properties_t")(
        stype=UR["UR_STRUCTURE_TYPE_DEVICE_PARTITION_PROPERTIES"],
        pProperties=ctypes.addressof(items) if values else None,
        PropCount=len(values),
    )
    properties.kept = items
    return properties


def divided(ur: Calls, device: Any, properties: Any) -> list[int]:
    count = ctypes.c_uint32()
    ur.ok("urDevicePartition", device, ctypes.byref(properties), 0, None, count)
    parts = (ctypes.c_void_p * count.value)()
    ur.ok("urDevicePartition", device, ctypes.byref(properties), count.value, parts)
    return [part or 0 for part in parts]


def number(ur: Calls, device: Any, name: str) -> int:
    return ur.number("urDeviceGetInfo", device, f"UR_DEVICE_INFO_{name}")


def references(ur: Calls, parts: list[int]) -> list[int]:
    return [number(ur, part, "REFERENCE_COUNT") for part in parts]


def check_released(ur: Calls, parts: list[int], others: list[int]) -> None:
    """That sub-devices have the references alone that others in this process had to them before."""
    for part, count in zip(parts, others, strict=True):
        if count:
            assert number(ur, part, "REFERENCE_COUNT") == count
        else:
            assert ur("urDeviceRelease", part) == "INVALID_DEVICE"


@pytest.mark.usefixtures("divisible")
@pytest.mark.parametrize(("kind", "values"), [("EQUALLY", (1,)), ("BY_COUNTS", (1, 1))])
def test_a_device_is_divided(
    ur: Calls, device: PluginDevice, kind: str, values: tuple[int, ...]
) -> None:
    parts = divided(ur, device.handle, partition(kind, *values))
    others = [count - 1 for count in references(ur, parts)]
    units = number(ur, device.handle, "MAX_COMPUTE_UNITS")
    assert len(parts) == (units if kind == "EQUALLY" else 2)
    for part in parts:
        assert number(ur, part, "MAX_COMPUTE_UNITS") == 1
        assert number(ur, part, "PARENT_DEVICE") == device.handle
        assert number(ur, part, "PLATFORM") == device.platform.handle
        how = ur.info("urDeviceGetInfo", part, "UR_DEVICE_INFO_PARTITION_TYPE")
        assert how == b"".join(
            UR[f"UR_DEVICE_PARTITION_{kind}"].to_bytes(4, "little") + v.to_bytes(4, "little")
            for v in values
        )
    for part in parts:
        ur.ok("urDeviceRelease", part)
    check_released(ur, parts, others)


@pytest.mark.usefixtures("divisible")
def test_the_same_partition_gives_the_same_sub_devices_with_one_more_reference(
    ur: Calls, device: PluginDevice
) -> None:
    once = divided(ur, device.handle, partition("EQUALLY", 1))
    others = [count - 1 for count in references(ur, once)]
    again = divided(ur, device.handle, partition("EQUALLY", 1))
    assert again == once
    assert references(ur, once) == [count + 2 for count in others]
    for part in once + again:
        ur.ok("urDeviceRelease", part)
    check_released(ur, once, others)


PARTITION_CODES = {"DEVICE_PARTITION_FAILED", "INVALID_DEVICE_PARTITION_COUNT", "INVALID_VALUE"}
BAD = {
    "more units than there are": (
        partition("EQUALLY", 10_000),
        {"DEVICE_PARTITION_FAILED", "INVALID_DEVICE_PARTITION_COUNT", "INVALID_VALUE"},
    ),
    "more counts than units": (partition("BY_COUNTS", 10_000), {"INVALID_DEVICE_PARTITION_COUNT"}),
    "parts without units": (partition("EQUALLY", 0), {"INVALID_DEVICE_PARTITION_COUNT"}),
    "a count of none": (partition("BY_COUNTS", 1, 0), {"INVALID_DEVICE_PARTITION_COUNT"}),
    "several ways": (partition("EQUALLY", 1, 1), {"INVALID_VALUE"}),
    "a way that OpenCL has not": (partition("BY_CSLICE", 1), {"INVALID_VALUE"}),
    "a domain that a CPU has not": (partition("BY_AFFINITY_DOMAIN", 2), PARTITION_CODES),
    "nothing": (partition("EQUALLY"), {"INVALID_NULL_POINTER"}),
}


@pytest.mark.usefixtures("divisible")
@pytest.mark.parametrize("case", BAD)
def test_partitions_that_cannot_be_are_refused(ur: Calls, device: PluginDevice, case: str) -> None:
    properties, codes = BAD[case]
    parts, count = (ctypes.c_void_p * 8)(), ctypes.c_uint32()
    assert (
        ur("urDevicePartition", device.handle, ctypes.byref(properties), 8, parts, count) in codes
    )


# native handles


def native(ur: Calls, device: Any) -> int:
    handle = ctypes.c_void_p()
    ur.ok("urDeviceGetNativeHandle", device, handle)
    return handle.value or 0


@pytest.mark.usefixtures("divisible")
@pytest.mark.parametrize("owned", [False, True])
def test_a_sub_device_that_the_program_has_made_in_opencl_is_taken_in(
    ur: Calls, adapter: Plugin, device: PluginDevice, owned: bool
) -> None:
    root = native(ur, device.handle)
    cl = DispatchTable(OPENCL, read_word(root) or 0)
    equally = (ctypes.c_ssize_t * 3)(OPENCL["CL_DEVICE_PARTITION_EQUALLY"], 1, 0)
    made, count = (ctypes.c_void_p * 64)(), ctypes.c_uint32()
    assert cl.clCreateSubDevices(root, equally, 64, made, ctypes.byref(count)) == 0
    properties = UR.get_struct("ur_device_native_properties_t")(
        stype=UR["UR_STRUCTURE_TYPE_DEVICE_NATIVE_PROPERTIES"], isNativeHandleOwned=owned
    )
    part = ur.make(
        "urDeviceCreateWithNativeHandle", made[0], adapter.handles[0], ctypes.byref(properties)
    )
    assert number(ur, part, "PARENT_DEVICE") == device.handle
    again = ur.make("urDeviceCreateWithNativeHandle", made[0], adapter.handles[0])
    assert again.value == part.value
    assert number(ur, part, "REFERENCE_COUNT") == 2
    ur.ok("urDeviceRelease", part)
    ur.ok("urDeviceRelease", part)
    for index in range(owned, count.value):
        assert cl.clReleaseDevice(made[index]) == 0


@pytest.mark.parametrize(
    ("handle", "code"),
    [(0, "INVALID_NULL_HANDLE"), (0x1000, "INVALID_VALUE"), (id(object), "INVALID_VALUE")],
    ids=["NULL", "an address of nothing", "an address of something else"],
)
def test_what_is_no_device_of_a_driver_is_refused(
    ur: Calls, adapter: Plugin, handle: int, code: str
) -> None:
    made = ctypes.c_void_p()
    given = "urDeviceCreateWithNativeHandle", handle, adapter.handles[0], None, ctypes.byref(made)
    assert ur(*given) == code


# binaries, time stamps, waiting


def selected(ur: Calls, device: PluginDevice, *specs: str) -> int | str:
    binaries = (UR.get_struct("ur_device_binary_t") * max(len(specs), 1))()
    kept = [ctypes.create_string_buffer(spec.encode()) for spec in specs]
    for binary, spec in zip(binaries, kept, strict=False):
        binary.stype, binary.pDeviceTargetSpec = (
            UR["UR_STRUCTURE_TYPE_DEVICE_BINARY"],
            ctypes.addressof(spec),
        )
    index = ctypes.c_uint32()
    code = ur("urDeviceSelectBinary", device.handle, binaries, len(specs), index)
    return index.value if code == "SUCCESS" else code


def test_a_binary_is_selected_by_what_the_driver_takes(ur: Calls, device: PluginDevice) -> None:
    intel = "Intel" in device.platform.name
    takes_spirv = b"SPIR-V" in ur.info(
        "urDeviceGetInfo", device.handle, "UR_DEVICE_INFO_IL_VERSION"
    )
    portable = 1 if takes_spirv else "INVALID_BINARY"
    assert selected(ur, device, "nvptx64", "spir64", "spir64_x86_64", "spir64_gen") == (
        2 if intel else portable
    )
    assert selected(ur, device, "spir64_gen", "spir64") == portable
    assert selected(ur, device, "spir64_gen", "<unknown>", "spir") == "INVALID_BINARY"
    assert selected(ur, device) == "INVALID_SIZE"


def test_a_native_handle_leads_back_to_the_same_platform(
    ur: Calls, adapter: Plugin, device: PluginDevice
) -> None:
    native = ur.make("urPlatformGetNativeHandle", device.platform.handle).value
    again = ur.make("urPlatformCreateWithNativeHandle", native, adapter.handles[0])
    assert again.value == device.platform.handle
    given = "urPlatformCreateWithNativeHandle", 0x1000, adapter.handles[0], None, array(None)
    assert ur(*given) == "INVALID_PLATFORM"


@pytest.mark.parametrize(
    ("option", "expected"),
    [(b"", b""), (b"-O0", b"-cl-opt-disable"), (b"-O3", b""), (b"-ftarget-compile-fast", b"")],
)
def test_options_of_a_compiler_are_the_drivers(
    ur: Calls, device: PluginDevice, option: bytes, expected: bytes
) -> None:
    said = ctypes.c_char_p()
    ur.ok("urPlatformGetBackendOption", device.platform.handle, option, ctypes.byref(said))
    assert said.value == expected
    given = "urPlatformGetBackendOption", device.platform.handle, b"-Ofast", ctypes.byref(said)
    assert ur(*given) == "INVALID_VALUE"
