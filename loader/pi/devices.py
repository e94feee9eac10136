"""Platforms, devices, queues, command-buffers and the end of PI, served from Unified Runtime."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from ..ur.abi import UR, check
from .abi import PI
from .mapping import ENUMS, make_struct, read_struct, refuse
from .translation import read_list, read_properties, read_words, serves, write_handles

if TYPE_CHECKING:
    from .serve import Service


@serves("piPlatformsGet")
def _get_platforms(service: Service, num_entries: int, platforms: int, num_platforms: int) -> int:
    """UR lists the platforms of each adapter separately."""
    found = [
        platform
        for adapter in service.adapters
        for platform in service.query_handles("urPlatformGet", adapter)
    ]
    return write_handles(found, num_entries, platforms, num_platforms)


@serves("piDevicesGet")
def _get_devices(
    service: Service,
    platform: int,
    device_type: int,
    num_entries: int,
    devices: int,
    num_devices: int,
) -> int:
    """PI's types are bits, UR's are not, so each type is listed separately.

    An accelerator of PI is any of three types of UR.
    """
    everything = PI["PI_DEVICE_TYPE_ALL"]
    bits = (
        [bit for bit in (1, 2, 4, 8, 16) if device_type & bit]
        if device_type & everything != everything
        else [everything]
    )
    if not bits or device_type & ~everything:
        raise refuse("PI_ERROR_INVALID_DEVICE_TYPE", f"{device_type:#x} is not a type.")
    types = [ENUMS["pi_device_type"].convert_to_ur(bit) for bit in bits]
    if PI["PI_DEVICE_TYPE_ACC"] in bits:
        types += [UR["UR_DEVICE_TYPE_MCA"], UR["UR_DEVICE_TYPE_VPU"]]
    found = [device for kind in types for device in _list_devices_of_type(service, platform, kind)]
    return write_handles(list(dict.fromkeys(found)), num_entries, devices, num_devices)


def _list_devices_of_type(service: Service, platform: int, kind: int) -> list[int]:
    count = ctypes.c_uint32()
    code = service.ur.urDeviceGet(platform, kind, 0, None, ctypes.byref(count))
    if UR.errors.get(code, ("",))[0] in (
        "UR_RESULT_ERROR_DEVICE_NOT_FOUND",
        "UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION",
    ):
        return []
    check(code, "urDeviceGet")
    return service.query_handles("urDeviceGet", platform, kind) if count.value else []


@serves("piDevicePartition")
def _partition_device(
    service: Service, device: int, properties: int, num_devices: int, out: int, num_out: int
) -> int:
    """PI's list contains a type, its values and 0. UR takes pairs of type and value."""
    kind, *values = list(read_list(properties)) or [0]
    kind = ENUMS["pi_device_partition_property"].convert_to_ur(kind)
    name = UR.groups["ur_device_partition_t"][kind]
    if name == "UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN":
        values = [ENUMS["pi_device_affinity_domain"].convert_to_ur(value) for value in values]
    pairs = (UR.get_struct("ur_device_partition_property_t") * max(len(values), 1))()
    for pair, value in zip(pairs, values or [0], strict=False):
        pair.type, pair.value.count = kind, value
    asked = make_struct("ur_device_partition_properties_t", pProperties=pairs, PropCount=len(pairs))
    return service.call("urDevicePartition", device, ctypes.byref(asked), num_devices, out, num_out)


@serves("piextDeviceSelectBinary")
def _select_binary(service: Service, device: int, binaries: int, count: int, selected: int) -> int:
    """UR looks only at the target of a binary."""
    if count and not binaries:
        raise refuse("PI_ERROR_INVALID_VALUE", "binaries is NULL.")
    described = (UR.get_struct("ur_device_binary_t") * max(count, 1))()
    for entry, address in zip(described, read_words(binaries, count), strict=False):
        entry.stype = UR["UR_STRUCTURE_TYPE_DEVICE_BINARY"]
        entry.pDeviceTargetSpec = read_struct(address, "pi_device_binary_struct").DeviceTargetSpec
    return service.call("urDeviceSelectBinary", device, described, count, selected)


def _find_queue_properties(flags: int, index: int | None = None) -> Any:
    chain = (
        None if index is None else make_struct("ur_queue_index_properties_t", computeIndex=index)
    )
    return make_struct(
        "ur_queue_properties_t",
        flags=ENUMS["pi_queue_properties"].convert_to_ur(flags),
        pNext=chain,
    )


def _read_queue_properties(address: int) -> Any:
    given = read_properties(address, "pi_queue_properties")
    return _find_queue_properties(
        given.get("PI_QUEUE_FLAGS", 0), given.get("PI_QUEUE_COMPUTE_INDEX")
    )


@serves("piQueueCreate")
def _create_queue(service: Service, context: int, device: int, flags: int, queue: int) -> int:
    return service.call(
        "urQueueCreate", context, device, ctypes.byref(_find_queue_properties(flags)), queue
    )


@serves("piextQueueCreate")
def _create_listed_queue(
    service: Service, context: int, device: int, properties: int, queue: int
) -> int:
    return service.call(
        "urQueueCreate", context, device, ctypes.byref(_read_queue_properties(properties)), queue
    )


@serves("piextQueueCreateWithNativeHandle")
def _create_queue_from_native(
    service: Service,
    native: int,
    kind: int,
    context: int,
    device: int,
    owned: int,
    properties: int,
    queue: int,
) -> int:
    wanted = _read_queue_properties(properties)
    number = ctypes.c_int32(kind)
    described = make_struct(
        "ur_queue_native_desc_t", pNativeData=ctypes.addressof(number), pNext=wanted
    )
    given = make_struct(
        "ur_queue_native_properties_t", isNativeHandleOwned=bool(owned), pNext=described
    )
    return service.call(
        "urQueueCreateWithNativeHandle", native, context, device, ctypes.byref(given), queue
    )


@serves("piextCommandBufferCreate")
def _create_command_buffer(
    service: Service, context: int, device: int, desc: int, buffer: int
) -> int:
    """PI's description contains the properties of a queue.

    The order of the commands is that of their sync points, so isInOrder stays false.
    """
    address = (
        PI.get_struct("pi_ext_command_buffer_desc").from_address(desc).properties if desc else 0
    )
    flags = read_properties(address or 0, "pi_queue_properties").get("PI_QUEUE_FLAGS", 0)
    profiling = bool(flags & PI["PI_QUEUE_FLAG_PROFILING_ENABLE"])
    wanted = ctypes.byref(make_struct("ur_exp_command_buffer_desc_t", enableProfiling=profiling))
    return service.call("urCommandBufferCreateExp", context, device, wanted, buffer)


@serves("piTearDown")
def _tear_down(service: Service, torn: int) -> int:
    """The parameter is really a bool that the plugin sets.

    Measured: the plugin of 2024 writes it without checking for NULL.
    """
    if torn:
        ctypes.c_bool.from_address(torn).value = True
    service.end()
    return 0
