"""Contexts: of one device and of several, their queries, deleters."""

from __future__ import annotations

import ctypes

from fairlead.conformance.checks import equal, rule, unsupported
from fairlead.conformance.ur.calls import URCalls, address
from fairlead.conformance.ur.objects import URObjects

DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@rule("urContextCreate", "a context of one device says so")
def test_one_device(ur: URCalls, make: URObjects, device: int) -> None:
    context = make.context()
    equal(
        ur.info("urContextGetInfo", context, "UR_CONTEXT_INFO_NUM_DEVICES"),
        1,
        "the number of devices",
    )
    equal(ur.info("urContextGetInfo", context, "UR_CONTEXT_INFO_DEVICES"), (device,), "the devices")


@rule("urContextCreate", "flags of 0 are as good as no properties")
def test_properties(ur: URCalls, make: URObjects, device: int) -> None:
    how = ur.struct("ur_context_properties_t", flags=0)
    devices = (ctypes.c_void_p * 1)(device)
    make.own("urContextRelease", ur.new("urContextCreate", 1, devices, how))


@rule("urContextCreate", "every context is an object of its own")
def test_two_contexts(make: URObjects) -> None:
    equal(make.context() == make.context(), False, "whether two contexts are the same")


@rule("urContextCreate", "a context of the devices of a platform")
def test_all_devices(ur: URCalls, make: URObjects, platform: int) -> None:
    devices = next(p for p in ur.plugin.platforms if p.handle == platform).devices
    if len(devices) < 2:
        unsupported("the platform has one device")
    context = make.context(*(device.handle for device in devices))
    equal(
        ur.info("urContextGetInfo", context, "UR_CONTEXT_INFO_NUM_DEVICES"),
        len(devices),
        "the number of devices",
    )


@rule("urContextSetExtendedDeleter", "is called once, when the context is deleted")
def test_deleter(ur: URCalls, make: URObjects) -> None:
    context, data, seen = make.context(), ctypes.c_int(), []
    deleter = DELETER(lambda pointer: seen.append(pointer))
    ur.ok("urContextSetExtendedDeleter", context, address(deleter), data)
    ur.ok("urContextRetain", context)
    ur.ok("urContextRelease", context)
    equal(seen, [], "calls of the deleter before the context is deleted")
    make.release(context)
    equal(seen, [ctypes.addressof(data)], "calls of the deleter, by their argument")
