"""Devices: the same handles at every call, selection by type, partition, binaries, timestamps."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from fairlead.conformance.checks import each, equal, failed, rule, unsupported
from fairlead.conformance.ur.calls import URCalls
from fairlead.loader.base.query import query_handles
from fairlead.loader.ur.abi import UR, check

TYPES = ("UR_DEVICE_TYPE_CPU", "UR_DEVICE_TYPE_GPU", "UR_DEVICE_TYPE_FPGA")


def list_devices(ur: URCalls, platform: int, kind: str = "UR_DEVICE_TYPE_ALL") -> list[int]:
    """Return the devices of a type. DEVICE_NOT_FOUND means none."""
    count = ctypes.c_uint32()
    code = ur.code("urDeviceGet", platform, UR[kind], 0, None, count)
    if code == "UR_RESULT_ERROR_DEVICE_NOT_FOUND":
        return []
    return query_handles(ur.table.urDeviceGet, "urDeviceGet", check, platform, UR[kind])


@rule("urDeviceGet", "gives identical handles at every call")
def test_same_handles(ur: URCalls, platform: int, device: int) -> None:
    first = list_devices(ur, platform)
    equal(list_devices(ur, platform), first, "the handles")
    if device not in first:
        failed("the device among those of its platform", first)


@rule("urDeviceGet", "fills no more than NumEntries handles")
def test_only_as_many_as_asked_for(ur: URCalls, platform: int) -> None:
    count = len(list_devices(ur, platform))
    found = (ctypes.c_void_p * (count + 1))()
    ur.ok("urDeviceGet", platform, UR["UR_DEVICE_TYPE_ALL"], 1, found)
    equal([bool(handle) for handle in found], [True] + [False] * count, "which handles were filled")


@pytest.mark.parametrize("kind", each(TYPES, "urDeviceGet", "selects {}"))
def test_selects_by_type(ur: URCalls, platform: int, kind: str) -> None:
    found = list_devices(ur, platform, kind)
    if not found:
        unsupported("the platform has none")
    for device in found:
        equal(
            ur.info("urDeviceGetInfo", device, "UR_DEVICE_INFO_TYPE"),
            UR[kind],
            "the type of a selected device",
        )


@rule("urDeviceGetInfo", "the platform is that which listed the device")
def test_platform(ur: URCalls, platform: int, device: int) -> None:
    equal(ur.info("urDeviceGetInfo", device, "UR_DEVICE_INFO_PLATFORM"), platform, "the platform")


@rule("urDeviceGetInfo", "a root device has no parent")
def test_no_parent(ur: URCalls, device: int) -> None:
    equal(ur.info("urDeviceGetInfo", device, "UR_DEVICE_INFO_PARENT_DEVICE") or 0, 0, "the parent")


@rule("urDeviceRetain", "leaves the reference count of a root device alone")
def test_retain_root(ur: URCalls, device: int) -> None:
    query = "urDeviceGetInfo", device, "UR_DEVICE_INFO_REFERENCE_COUNT"
    first = ur.info(*query)
    ur.ok("urDeviceRetain", device)
    count = ur.info(*query)
    ur.ok("urDeviceRelease", device)
    equal((count, ur.info(*query)), (first, first), "the reference counts")


@rule("urDeviceGetInfo", "sizes of work-groups are at least 1")
def test_limits(ur: URCalls, device: int) -> None:
    for query in (
        "MAX_WORK_GROUP_SIZE",
        "MAX_WORK_ITEM_DIMENSIONS",
        "MAX_COMPUTE_UNITS",
        "GLOBAL_MEM_SIZE",
        "MAX_MEM_ALLOC_SIZE",
    ):
        if ur.info("urDeviceGetInfo", device, f"UR_DEVICE_INFO_{query}") < 1:
            failed(f"UR_DEVICE_INFO_{query}: 1 or more", 0)
    largest = ur.info("urDeviceGetInfo", device, "UR_DEVICE_INFO_MAX_WORK_ITEM_SIZES")
    equal(
        len(largest),
        ur.info("urDeviceGetInfo", device, "UR_DEVICE_INFO_MAX_WORK_ITEM_DIMENSIONS"),
        "the number of sizes",
    )


@rule("urDeviceGetGlobalTimestamps", "time does not run backwards")
def test_timestamps(ur: URCalls, device: int) -> None:
    pairs = []
    for _ in range(3):
        device_time, host_time = ctypes.c_uint64(), ctypes.c_uint64()
        ur.ok("urDeviceGetGlobalTimestamps", device, device_time, host_time)
        pairs.append((device_time.value, host_time.value))
    equal(pairs, sorted(pairs, key=lambda pair: pair[0]), "the device's times")
    equal(pairs, sorted(pairs, key=lambda pair: pair[1]), "the host's times")


@rule("urDeviceGetGlobalTimestamps", "each time alone can be asked for")
def test_one_timestamp(ur: URCalls, device: int) -> None:
    time = ctypes.c_uint64()
    ur.ok("urDeviceGetGlobalTimestamps", device, time)
    ur.ok("urDeviceGetGlobalTimestamps", device, None, time)


@rule("urDeviceSelectBinary", "chooses SPIR-V where the device takes it")
def test_select_binary(ur: URCalls, device: int) -> None:
    struct = UR.get_struct("ur_device_binary_t")
    names = b"no_target", b"spir64"
    texts = [ctypes.create_string_buffer(name) for name in names]
    binaries = (struct * 2)(
        *(
            struct(UR["UR_STRUCTURE_TYPE_DEVICE_BINARY"], None, ctypes.addressof(text))
            for text in texts
        )
    )
    if "SPIR-V" not in ur.info("urDeviceGetInfo", device, "UR_DEVICE_INFO_IL_VERSION"):
        unsupported("the device takes no SPIR-V")
    chosen = ctypes.c_uint32(7)
    ur.ok("urDeviceSelectBinary", device, binaries, 2, chosen)
    equal(chosen.value, 1, "the binary")


@rule("urDeviceSelectBinary", "answers INVALID_BINARY when none fits")
def test_select_no_binary(ur: URCalls, device: int) -> None:
    struct, text = UR.get_struct("ur_device_binary_t"), ctypes.create_string_buffer(b"no_target")
    binary = struct(UR["UR_STRUCTURE_TYPE_DEVICE_BINARY"], None, ctypes.addressof(text))
    ur.fails("urDeviceSelectBinary", "INVALID_BINARY", device, binary, 1, ctypes.c_uint32())


def make_partition(ur: URCalls, device: int, kind: str, **value: int) -> Any:
    """Return how to partition a device. Ends the case if the device cannot be partitioned so."""
    if UR[kind] not in ur.info("urDeviceGetInfo", device, "UR_DEVICE_INFO_SUPPORTED_PARTITIONS"):
        unsupported(f"the device has no {kind}")
    one = UR.get_struct("ur_device_partition_property_t")(type=UR[kind])
    for name, number in value.items():
        setattr(one.value, name, number)
    how = ur.struct(
        "ur_device_partition_properties_t", pProperties=ctypes.addressof(one), PropCount=1
    )
    how.one = one  # kept alive with it
    return how


def list_parts(ur: URCalls, device: int, how: Any) -> list[int]:
    """Return the sub-devices."""
    count = ctypes.c_uint32()
    ur.ok("urDevicePartition", device, ctypes.byref(how), 0, None, count)
    found = (ctypes.c_void_p * max(count.value, 1))()
    if count.value:
        ur.ok("urDevicePartition", device, ctypes.byref(how), count.value, found)
    return [handle for handle in found[: count.value] if handle]


@rule(
    "urDevicePartition",
    "equally: sub-devices of the size that was asked for, with the device as their parent",
)
def test_partition_equally(ur: URCalls, device: int) -> None:
    units = ur.info("urDeviceGetInfo", device, "UR_DEVICE_INFO_MAX_COMPUTE_UNITS")
    parts = list_parts(
        ur, device, make_partition(ur, device, "UR_DEVICE_PARTITION_EQUALLY", equally=1)
    )
    equal(len(parts), units, "the number of sub-devices")
    for part in parts:
        equal(
            ur.info("urDeviceGetInfo", part, "UR_DEVICE_INFO_PARENT_DEVICE"), device, "the parent"
        )
        equal(
            ur.info("urDeviceGetInfo", part, "UR_DEVICE_INFO_MAX_COMPUTE_UNITS"),
            1,
            "the compute units",
        )
        ur.ok("urDeviceRelease", part)


@rule("urDevicePartition", "a sub-device is counted by urDeviceRetain and urDeviceRelease")
def test_sub_device_is_counted(ur: URCalls, device: int) -> None:
    parts = list_parts(
        ur, device, make_partition(ur, device, "UR_DEVICE_PARTITION_EQUALLY", equally=1)
    )
    query = "urDeviceGetInfo", parts[0], "UR_DEVICE_INFO_REFERENCE_COUNT"
    first = ur.info(*query)
    ur.ok("urDeviceRetain", parts[0])
    count = ur.info(*query)
    ur.ok("urDeviceRelease", parts[0])
    after = ur.info(*query)
    for part in parts:
        ur.ok("urDeviceRelease", part)
    equal((count, after), (first + 1, first), "the reference counts")


@rule(
    "urDevicePartition",
    "more compute units than there are: INVALID_DEVICE_PARTITION_COUNT or DEVICE_PARTITION_FAILED",
)
def test_partition_too_large(ur: URCalls, device: int) -> None:
    units = ur.info("urDeviceGetInfo", device, "UR_DEVICE_INFO_MAX_COMPUTE_UNITS")
    how = make_partition(ur, device, "UR_DEVICE_PARTITION_BY_COUNTS", count=units + 1)
    count = ctypes.c_uint32()
    errors = "INVALID_DEVICE_PARTITION_COUNT|DEVICE_PARTITION_FAILED|INVALID_VALUE"
    ur.fails("urDevicePartition", errors, device, ctypes.byref(how), 0, None, count)
