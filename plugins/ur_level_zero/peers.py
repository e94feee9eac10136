"""Adapter on Level Zero: access of a device to the memory of another one.

Level Zero has no switch for it. So the adapter only remembers what is enabled, and refuses what
Unified Runtime does not allow."""

from __future__ import annotations

import ctypes
from typing import Final

from ...loader.ur.abi import UR
from .core import ZE, adapter, call, failure, make_struct
from .devices import LZDevice

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
