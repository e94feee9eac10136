"""CUDA and HIP: access of a device to the memory of another one."""

from __future__ import annotations

import ctypes
from typing import Final

from ...loader.ur.abi import UR
from .core import API, adapter, get_constant
from .devices import CuDevice
from .driver_pools import grant_access, revoke_access


@adapter.entry
def urUsmP2PEnablePeerAccessExp(commandDevice: CuDevice, peerDevice: CuDevice) -> None:
    commandDevice.call("CtxEnablePeerAccess", API.get_peer(peerDevice), 0)
    grant_access(peerDevice, commandDevice)


@adapter.entry
def urUsmP2PDisablePeerAccessExp(commandDevice: CuDevice, peerDevice: CuDevice) -> None:
    commandDevice.call("CtxDisablePeerAccess", API.get_peer(peerDevice))
    revoke_access(peerDevice, commandDevice)


_ATTRIBUTES: Final = {
    UR["UR_EXP_PEER_INFO_UR_PEER_ACCESS_SUPPORT"]: "ACCESS_SUPPORTED",
    UR["UR_EXP_PEER_INFO_UR_PEER_ATOMICS_SUPPORT"]: "NATIVE_ATOMIC_SUPPORTED",
}


@adapter.entry
def urUsmP2PPeerAccessGetInfoExp(
    commandDevice: CuDevice, peerDevice: CuDevice, propName: int
) -> int | None:
    """Say what a device can do with another one's memory: nothing with its own."""
    name = _ATTRIBUTES.get(propName)
    if name is None:
        return None
    if commandDevice is peerDevice:
        return 0
    value, number = ctypes.c_int(), get_constant(f"CU_DEVICE_P2P_ATTRIBUTE_{name}")
    devices = commandDevice.native, peerDevice.native
    commandDevice.call("DeviceGetP2PAttribute", ctypes.byref(value), number, *devices)
    return value.value
