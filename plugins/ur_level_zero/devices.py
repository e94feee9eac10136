"""Devices of the adapter on Level Zero: what the driver tells of them, how they are divided,
which binaries they take, and their access to the memory of others.

Level Zero has no switch for that access. So the adapter only remembers what is enabled, and refuses
what Unified Runtime does not allow.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from ...loader.ur.abi import UR
from ..sdk.objects import Object
from .core import ZE, LevelZeroError, adapter, ask, ask_list, call, failure, make_struct

if TYPE_CHECKING:
    from .platforms import LZPlatform


_COMPUTE: Final = ZE["ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE"]
_TOGETHER: Final = ZE["ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COOPERATIVE_KERNELS"]
_COPY: Final = ZE["ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY"]
#: The affinity domains by which programs ask for what Level Zero has divided a device into.
DOMAINS: Final = tuple(
    UR[f"UR_DEVICE_AFFINITY_DOMAIN_FLAG_{name}"] for name in ("NUMA", "NEXT_PARTITIONABLE")
)
#: The numbers of types that programs ask for, and Level Zero's types.
_TYPES: Final = {
    UR["UR_DEVICE_TYPE_GPU"]: ZE["ZE_DEVICE_TYPE_GPU"],
    UR["UR_DEVICE_TYPE_CPU"]: ZE["ZE_DEVICE_TYPE_CPU"],
    UR["UR_DEVICE_TYPE_FPGA"]: ZE["ZE_DEVICE_TYPE_FPGA"],
}


@dataclass(frozen=True)
class QueueGroup:
    """A group of command queues of a device.

    Attributes:
        queues: how many queues of the device it has.
        largest_pattern: bytes of the largest pattern of a fill.
        is_cooperative: whether all work-groups of a launch can run at the same time.
    """

    ordinal: int
    queues: int
    largest_pattern: int
    is_cooperative: bool = False


@adapter.kind
class LZDevice(Object):
    """A device. It lives as long as the process.

    Args:
        parent: the device that a sub-device is a part of.
    """

    type, counted = "ur_device_handle_t", False

    def __init__(self, ze: int, platform: LZPlatform, parent: LZDevice | None = None) -> None:
        self.ze, self.platform, self.table, self.parent = ze, platform, platform.table, parent

    @cached_property
    def properties(self) -> Any:
        """Return the device's ze_device_properties_t. The resolution of its timer is in hertz."""
        return ask(
            self.table,
            "zeDeviceGetProperties",
            self.ze,
            "device_properties",
            tag="DEVICE_PROPERTIES_1_2",
        )

    @cached_property
    def compute(self) -> Any:
        """Return the device's ze_device_compute_properties_t."""
        return ask(self.table, "zeDeviceGetComputeProperties", self.ze, "device_compute_properties")

    @cached_property
    def module(self) -> Any:
        """Return the device's ze_device_module_properties_t."""
        return ask(self.table, "zeDeviceGetModuleProperties", self.ze, "device_module_properties")

    @cached_property
    def access(self) -> Any:
        """Return the device's ze_device_memory_access_properties_t."""
        return ask(
            self.table,
            "zeDeviceGetMemoryAccessProperties",
            self.ze,
            "device_memory_access_properties",
        )

    @cached_property
    def images(self) -> Any:
        """Return the ze_device_image_properties_t. All is 0 if the driver has no images."""
        with contextlib.suppress(LevelZeroError):
            if self.platform.has("zeImageCreate"):
                routine, name = "zeDeviceGetImageProperties", "device_image_properties"
                return ask(self.table, routine, self.ze, name)
        return make_struct("device_image_properties")

    def get_native(self) -> int:
        return self.ze

    @property
    def has_images(self) -> bool:
        """Return whether the device has images."""
        return bool(self.images.maxImageDims2D)

    @cached_property
    def memories(self) -> list[Any]:
        """Return the device's ze_device_memory_properties_t."""
        return ask_list(
            self.table, "zeDeviceGetMemoryProperties", self.ze, "device_memory_properties"
        )

    @cached_property
    def caches(self) -> list[Any]:
        """Return the device's ze_device_cache_properties_t. Not every driver has any."""
        with contextlib.suppress(LevelZeroError):
            return ask_list(
                self.table, "zeDeviceGetCacheProperties", self.ze, "device_cache_properties"
            )
        return []

    @cached_property
    def mutable_flags(self) -> int:
        """Return what a mutable command can change, ze_mutable_command_exp_flags_t."""
        if ZE.strings["ZE_MUTABLE_COMMAND_LIST_EXP_NAME"] not in self.platform.extensions:
            return 0
        row = make_struct("mutable_command_list_exp_properties")
        with contextlib.suppress(LevelZeroError):
            ask(self.table, "zeDeviceGetProperties", self.ze, "device_properties", pNext=row)
        return row.mutableCommandFlags

    @cached_property
    def _groups(self) -> list[tuple[int, QueueGroup]]:
        rows = ask_list(
            self.table,
            "zeDeviceGetCommandQueueGroupProperties",
            self.ze,
            "command_queue_group_properties",
        )
        return [
            (
                row.flags,
                QueueGroup(
                    number, row.numQueues, row.maxMemoryFillPatternSize, bool(row.flags & _TOGETHER)
                ),
            )
            for number, row in enumerate(rows)
        ]

    @cached_property
    def compute_group(self) -> QueueGroup:
        """Return the group whose queues run kernels. Raises URError (INVALID_DEVICE)."""
        for flags, group in self._groups:
            if flags & _COMPUTE:
                return group
        raise failure("INVALID_DEVICE", "the device has no queues that run kernels")

    @cached_property
    def copy_group(self) -> QueueGroup | None:
        """Return the group whose queues only copy, None if there is none."""
        found = (group for flags, group in self._groups if flags & _COPY and not flags & _COMPUTE)
        return next(found, None)

    @cached_property
    def parts(self) -> tuple[LZDevice, ...]:
        """Return the device's sub-devices, always the same objects."""
        count = ctypes.c_uint32()
        call(self.table, "zeDeviceGetSubDevices", self.ze, ctypes.byref(count), None)
        found = (ctypes.c_void_p * count.value)()
        if count.value:
            call(self.table, "zeDeviceGetSubDevices", self.ze, ctypes.byref(count), found)
        return tuple(LZDevice(handle or 0, self.platform, self) for handle in found)

    @property
    def takes_text(self) -> bool:
        """Return whether the device's driver takes OpenCL C as the native format of modules."""
        return "ZE_fairlead_opencl_c_modules" in self.platform.extensions

    @cached_property
    def takes_spirv(self) -> bool:
        """Return whether the device takes programs of SPIR-V."""
        return bool(self.module.spirvVersionSupported)

    def convert_to_nanoseconds(self, ticks: int) -> int:
        """Return a time stamp of an event in nanoseconds."""
        return ticks * 1_000_000_000 // (self.properties.timerResolution or 1)

    def read_clocks(self) -> tuple[int, int]:
        """Return the host's and the device's time in nanoseconds, taken together."""
        host, device = ctypes.c_uint64(), ctypes.c_uint64()
        call(
            self.table,
            "zeDeviceGetGlobalTimestamps",
            self.ze,
            ctypes.byref(host),
            ctypes.byref(device),
        )
        return host.value, self.convert_to_nanoseconds(device.value)

    def is_part_of(self, other: LZDevice) -> bool:
        """Return whether the device is another device or a part of that."""
        return self is other or (self.parent is not None and self.parent.is_part_of(other))


def find_type(device: LZDevice) -> int:
    """Return the ur_device_type_t of a device."""
    kind = device.properties.type
    return next((ur for ur, ze in _TYPES.items() if ze == kind), UR["UR_DEVICE_TYPE_CUSTOM"])


@adapter.entry
def urDeviceGetGlobalTimestamps(hDevice: LZDevice) -> tuple[int, int]:
    host, device = hDevice.read_clocks()
    return device, host


def divide_device(device: LZDevice, asked: list[Any], room: int) -> Sequence[LZDevice]:
    """Return the sub-devices that the driver has: Level Zero divides devices in no other way.

    Args:
        asked: ur_device_partition_property_t of one type.
        room: for how many handles there is room.

    Raises:
        URError: INVALID_VALUE, DEVICE_PARTITION_FAILED.
    """
    if asked[0].type != UR["UR_DEVICE_PARTITION_BY_AFFINITY_DOMAIN"]:
        raise failure("INVALID_VALUE", "Level Zero does not divide devices by this type")
    if any(one.value.affinity_domain not in DOMAINS for one in asked):
        raise failure("INVALID_VALUE", "Level Zero does not divide devices by this domain")
    if not device.parts:
        raise failure("DEVICE_PARTITION_FAILED", "the device has no sub-devices")
    return device.parts


def list_targets(device: LZDevice) -> list[str]:
    """Return the targets of binaries that a device takes, the best first."""
    return ["spir64_gen", "spir64"] if device.takes_spirv else []


_ACCESS: Final = UR["UR_EXP_PEER_INFO_UR_PEER_ACCESS_SUPPORT"]
_ATOMICS: Final = UR["UR_EXP_PEER_INFO_UR_PEER_ATOMICS_SUPPORT"]


def _can_access(device: LZDevice, peer: LZDevice) -> bool:
    if device is peer or device.platform is not peer.platform:
        return False
    can = ctypes.c_uint8()
    call(device.table, "zeDeviceCanAccessPeer", device.ze, peer.ze, ctypes.byref(can))
    return bool(can.value)


#: The devices whose access is enabled, and whose memory it is.
_enabled: Final[set[tuple[LZDevice, LZDevice]]] = set()


@adapter.entry
def urUsmP2PEnablePeerAccessExp(commandDevice: LZDevice, peerDevice: LZDevice) -> None:
    if not _can_access(commandDevice, peerDevice):
        raise failure("INVALID_OPERATION", "the device cannot use the other one's memory")
    if (commandDevice, peerDevice) in _enabled:
        raise failure("INVALID_OPERATION", "the access is enabled already")
    _enabled.add((commandDevice, peerDevice))


@adapter.entry
def urUsmP2PDisablePeerAccessExp(commandDevice: LZDevice, peerDevice: LZDevice) -> None:
    if (commandDevice, peerDevice) not in _enabled:
        raise failure("INVALID_OPERATION", "the access is not enabled")
    _enabled.discard((commandDevice, peerDevice))


@adapter.entry
def urUsmP2PPeerAccessGetInfoExp(
    commandDevice: LZDevice, peerDevice: LZDevice, propName: int
) -> int | None:
    """Say what a device can do with another one's memory: nothing with its own."""
    if propName not in (_ACCESS, _ATOMICS):
        return None
    if not _can_access(commandDevice, peerDevice):
        return 0
    if propName == _ACCESS:
        return 1
    row, routine = make_struct("device_p2p_properties"), "zeDeviceGetP2PProperties"
    call(commandDevice.table, routine, commandDevice.ze, peerDevice.ze, ctypes.byref(row))
    return int(bool(row.flags & ZE["ZE_DEVICE_P2P_PROPERTY_FLAG_ATOMICS"]))
