"""Platforms and devices: lists, types, partition, native handles, binaries, timers."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from fairlead.conformance.arrays import handles
from fairlead.conformance.checks import equal, failed, forked, rule, unsupported
from fairlead.conformance.pi.objects import PIObjects, check, codes
from fairlead.loader.base.query import query_handles
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.pi.abi import PI

PLATFORMS, DEVICES, PARTITION = "piPlatformsGet", "piDevicesGet", "piDevicePartition"
ALL = PI["PI_DEVICE_TYPE_ALL"]


def list_platforms(pi: DispatchTable) -> list[int]:
    """Return all platforms."""
    return query_handles(pi.piPlatformsGet, PLATFORMS, check)


def list_devices(pi: DispatchTable, platform: int, kind: int = ALL) -> list[int]:
    """Return the devices of a type."""
    count = ctypes.c_uint32()
    code = pi.piDevicesGet(platform, kind, 0, None, ctypes.byref(count))
    codes(code, "PI_SUCCESS", "DEVICE_NOT_FOUND")
    return (
        query_handles(pi.piDevicesGet, DEVICES, check, platform, kind)
        if not code and count.value
        else []
    )


@rule(PLATFORMS, "gives the same platforms each time, each once")
def test_platforms(pi: DispatchTable, platform: int) -> None:
    found = list_platforms(pi)
    equal(
        (list_platforms(pi), len(set(found)), platform in found),
        (found, len(found), True),
        "the platforms",
    )


@rule(PLATFORMS, "num_platforms is how many there are, however large num_entries is")
def test_more_room(pi: DispatchTable) -> None:
    found, count = list_platforms(pi), ctypes.c_uint32()
    room = (ctypes.c_void_p * (len(found) + 2))()
    codes(pi.piPlatformsGet(len(room), room, ctypes.byref(count)), "PI_SUCCESS")
    equal((count.value, list(room)[: len(found)]), (len(found), found), "number and platforms")


@rule(DEVICES, "gives the same devices each time, each once, and writes no more than num_entries")
def test_devices(pi: DispatchTable, platform: int) -> None:
    found = list_devices(pi, platform)
    equal((list_devices(pi, platform), len(set(found))), (found, len(found)), "the devices")
    room = (ctypes.c_void_p * (len(found) + 1))()
    codes(pi.piDevicesGet(platform, ALL, 1, room, None), "PI_SUCCESS")
    equal(list(room), [found[0], *[None] * len(found)], "the array")


@rule(
    DEVICES,
    "the devices of a type are those whose PI_DEVICE_INFO_TYPE it is; PI_ERROR_DEVICE_NOT_FOUND "
    "or 0 if there are none",
)
@pytest.mark.parametrize("kind", ["CPU", "GPU", "ACC"])
def test_types(pi: DispatchTable, bare_objects: PIObjects, platform: int, kind: str) -> None:
    bit = PI[f"PI_DEVICE_TYPE_{kind}"]
    types = {
        device: bare_objects.number("piDeviceGetInfo", device, "PI_DEVICE_INFO_TYPE")
        for device in list_devices(pi, platform)
    }
    equal(
        list_devices(pi, platform, bit),
        [device for device, found in types.items() if found & bit],
        "the devices",
    )


@rule("piDeviceGetInfo", "PI_DEVICE_INFO_PLATFORM is the platform that the device was listed by")
def test_platform_of_a_device(bare_objects: PIObjects, platform: int) -> None:
    equal(
        bare_objects.number("piDeviceGetInfo", bare_objects.device, "PI_DEVICE_INFO_PLATFORM"),
        platform,
        "the platform",
    )


@rule("piDeviceGetInfo", "PI_DEVICE_INFO_PARENT_DEVICE of a root device is NULL")
def test_parent(bare_objects: PIObjects) -> None:
    equal(
        bare_objects.number("piDeviceGetInfo", bare_objects.device, "PI_DEVICE_INFO_PARENT_DEVICE"),
        0,
        "the parent",
    )


@rule(PARTITION, "gives sub-devices, whose parent is the device")
def test_partition(bare_objects: PIObjects) -> None:
    objects, device = bare_objects, bare_objects.device
    if objects.number("piDeviceGetInfo", device, "PI_DEVICE_INFO_PARTITION_MAX_SUB_DEVICES") < 2:
        unsupported("the device cannot be partitioned (PI_DEVICE_INFO_PARTITION_MAX_SUB_DEVICES)")
    properties, count = (
        (ctypes.c_ssize_t * 3)(PI["PI_DEVICE_PARTITION_EQUALLY"], 1, 0),
        ctypes.c_uint32(),
    )
    objects.call(PARTITION, device, properties, 0, None, ctypes.byref(count))
    parts = (ctypes.c_void_p * count.value)()
    objects.call(PARTITION, device, properties, len(parts), parts, None)
    parents = {
        objects.number("piDeviceGetInfo", part or 0, "PI_DEVICE_INFO_PARENT_DEVICE")
        for part in parts
    }
    units = objects.number("piDeviceGetInfo", parts[0] or 0, "PI_DEVICE_INFO_MAX_COMPUTE_UNITS")
    for part in parts:
        objects.call("piDeviceRelease", part)
    equal(
        (parents, units, count.value > 1),
        ({device}, 1, True),
        "parents, compute units, and more than one",
    )


@rule(
    "piextDeviceGetNativeHandle",
    "piextDeviceCreateWithNativeHandle gives a device of the same native handle",
)
def test_native_handle(bare_objects: PIObjects, platform: int) -> None:
    objects = bare_objects
    native = objects.make("piextDeviceGetNativeHandle", objects.device, ...)
    again = objects.make("piextDeviceCreateWithNativeHandle", native, platform, ...)
    equal(objects.make("piextDeviceGetNativeHandle", again, ...), native, "the native handle")


@rule(
    "piextPlatformGetNativeHandle",
    "piextPlatformCreateWithNativeHandle gives a platform of the same native handle",
)
def test_native_platform(bare_objects: PIObjects, platform: int) -> None:
    native = bare_objects.make("piextPlatformGetNativeHandle", platform, ...)
    again = bare_objects.make("piextPlatformCreateWithNativeHandle", native, ...)
    equal(
        bare_objects.make("piextPlatformGetNativeHandle", again, ...), native, "the native handle"
    )


def _make_binaries(*targets: str) -> tuple[list[object], object]:
    """Return binaries for these targets: what must be kept alive, and the list."""
    binary = PI.get_struct("pi_device_binary_struct")
    kept: list[object] = []
    binaries: list[Any] = []
    for target in targets:
        one = binary(
            Version=1,
            Kind=PI["PI_DEVICE_BINARY_OFFLOAD_KIND_SYCL"],
            Format=PI["PI_DEVICE_BINARY_TYPE_SPIRV"],
        )
        text = ctypes.create_string_buffer(target.encode())
        one.DeviceTargetSpec = ctypes.addressof(text)
        binaries.append(one)
        kept += [one, text]
    return kept, handles(*map(ctypes.addressof, binaries))


def _takes_il(pi: DispatchTable, device: int) -> bool:
    """Return whether a device has an intermediate language."""
    version = ctypes.create_string_buffer(64)
    code = pi.piDeviceGetInfo(device, PI["PI_DEVICE_INFO_IL_VERSION"], 64, version, None)
    return not code and bool(version.value)


@rule(
    "piextDeviceSelectBinary",
    "chooses the binary of SPIR-V, and PI_ERROR_INVALID_BINARY if none fits",
)
@pytest.mark.parametrize(
    ("targets", "index"),
    [(("nvptx64", "spir64"), 1), (("spir64",), 0), (("nvptx64",), None)],
    ids=["second", "only", "none"],
)
def test_select_binary(
    pi: DispatchTable, chosen: object, device: int, targets: tuple[str, ...], index: int | None
) -> None:
    if getattr(chosen, "backend", "") != "opencl":
        unsupported("SPIR-V is for OpenCL and Level Zero")
    kept, binaries = _make_binaries(*targets)
    found = ctypes.c_uint32(99)
    code = pi.piextDeviceSelectBinary(device, binaries, len(targets), ctypes.byref(found))
    assert kept
    if index is None:
        codes(code, "INVALID_BINARY")
    elif code and not _takes_il(pi, device):
        codes(code, "INVALID_BINARY")
        unsupported("the device takes no SPIR-V")
    else:
        codes(code, "PI_SUCCESS")
        equal(found.value, index, "the index")


@rule("piGetDeviceAndHostTimer", "both clocks go forward")
def test_timers(pi: DispatchTable, device: int) -> None:
    times = [(ctypes.c_uint64(), ctypes.c_uint64()) for _ in range(2)]
    for on_device, on_host in times:
        code = pi.piGetDeviceAndHostTimer(device, ctypes.byref(on_device), ctypes.byref(on_host))
        if PI.errors[code][0] in ("PI_ERROR_INVALID_OPERATION", "PI_ERROR_UNSUPPORTED_FEATURE"):
            unsupported("the driver does not relate the two clocks")
        codes(code, "PI_SUCCESS")
    (first, host), (second, later) = ((one.value, other.value) for one, other in times)
    if not (0 < first <= second and 0 < host <= later):
        failed("the second times are not before the first", ((first, host), (second, later)))


@forked
@rule("piextPeerAccessGetInfo", "is answered, or not supported")
def test_peer_access(pi: DispatchTable, device: int) -> None:
    value = ctypes.c_uint32()
    code = pi.piextPeerAccessGetInfo(
        device, device, PI["PI_PEER_ACCESS_SUPPORTED"], 4, ctypes.byref(value), None
    )
    codes(code, "PI_SUCCESS", "UNSUPPORTED_FEATURE", "INVALID_OPERATION")
