"""USM: what hangs on the descriptor of an allocation."""

from __future__ import annotations

import ctypes

from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import URObjects
from fairlead.loader.ur.abi import UR


def test_every_struct_of_a_chain_is_checked(calls: URCalls, make: URObjects, context: int) -> None:
    """Also one behind another one, and in a chain that is a ring."""
    host = UR.struct("ur_usm_host_desc_t")(UR["UR_STRUCTURE_TYPE_USM_HOST_DESC"])
    device = UR.struct("ur_usm_device_desc_t")(UR["UR_STRUCTURE_TYPE_USM_DEVICE_DESC"])
    desc = UR.struct("ur_usm_desc_t")(UR["UR_STRUCTURE_TYPE_USM_DESC"])
    desc.pNext, host.pNext = ctypes.addressof(host), ctypes.addressof(device)
    device.pNext, device.flags = ctypes.addressof(host), 8
    given = context, make.device, ctypes.byref(desc), None, 64
    made = ctypes.byref(ctypes.c_void_p())
    calls.fails("urUSMDeviceAlloc", "INVALID_ENUMERATION", *given, made)
    device.flags = 0
    calls.ok("urUSMFree", context, calls.new("urUSMDeviceAlloc", *given))
