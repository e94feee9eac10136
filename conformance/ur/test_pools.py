"""Pools of USM allocations."""

from __future__ import annotations

import ctypes

import pytest

from fairlead.conformance.arrays import ints
from fairlead.conformance.checks import equal, rule
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.kinds import select_kinds
from fairlead.conformance.ur.objects import COUNT, URObjects
from fairlead.conformance.ur.values import PointerValue


@pytest.mark.parametrize(
    "kind", select_kinds("urUSM{}Alloc", "an allocation from a pool is one as any other")
)
def test_allocation(make: URObjects, queue: int, kind: str) -> None:
    pool = make.pool()
    memory = make.usm(kind, pool=pool)
    make.launch(queue, make.kernel(), PointerValue(memory), ints([4]))
    equal(make.get(queue, memory), [4] * COUNT, "what a launch wrote")


@pytest.mark.parametrize(
    "kind", select_kinds("urUSMGetMemAllocInfo", "the pool is that which it came from")
)
def test_pool_of_allocation(ur: URCalls, make: URObjects, context: int, kind: str) -> None:
    pool = make.pool()
    memory = make.usm(kind, pool=pool)
    equal(
        ur.info("urUSMGetMemAllocInfo", context, "UR_USM_ALLOC_INFO_POOL", memory), pool, "the pool"
    )


@rule("urUSMPoolGetInfo", "the context is that which it was made in")
def test_context(ur: URCalls, make: URObjects, context: int) -> None:
    equal(
        ur.info("urUSMPoolGetInfo", make.pool(), "UR_USM_POOL_INFO_CONTEXT"), context, "the context"
    )


@rule("urUSMPoolCreate", "limits can be given")
def test_limits(ur: URCalls, make: URObjects, context: int) -> None:
    ur.require("UR_DEVICE_INFO_USM_POOL_SUPPORT")
    limits = ur.struct(
        "ur_usm_pool_limits_desc_t", maxPoolableSize=1 << 16, minDriverAllocSize=1 << 16
    )
    how = ur.struct("ur_usm_pool_desc_t", pNext=ctypes.addressof(limits))
    pool = make.own("urUSMPoolRelease", ur.new("urUSMPoolCreate", context, how))
    make.usm("Device", pool=pool)


@rule("urUSMFree", "memory that was freed into a pool is there again")
def test_reuse(make: URObjects) -> None:
    pool = make.pool()
    for _ in range(200):
        make.release(make.usm("Device", pool=pool))


# The experimental functions


def make_experimental_pool(ur: URCalls, make: URObjects, context: int) -> int:
    """Make a pool by urUSMPoolCreateExp."""
    ur.require("UR_DEVICE_INFO_USM_POOL_SUPPORT")
    how = ur.struct("ur_usm_pool_desc_t")
    pool = ur.new("urUSMPoolCreateExp", context, make.device, how)
    return make.own("urUSMPoolDestroyExp", context, make.device, pool)


@rule("urUSMPoolCreateExp", "an allocation from it is one as any other")
def test_experimental_pool(ur: URCalls, make: URObjects, context: int, queue: int) -> None:
    memory = make.usm("Device", pool=make_experimental_pool(ur, make, context))
    make.put(queue, memory, range(COUNT))
    equal(make.get(queue, memory), list(range(COUNT)), "what was put in")


@rule(
    "urUSMPoolGetDefaultDevicePoolExp", "gives the same pool each time, which can be allocated from"
)
def test_default_pool(ur: URCalls, make: URObjects, context: int, device: int) -> None:
    ur.require("UR_DEVICE_INFO_USM_POOL_SUPPORT")
    pool = ur.new("urUSMPoolGetDefaultDevicePoolExp", context, device)
    equal(ur.new("urUSMPoolGetDefaultDevicePoolExp", context, device), pool, "the pool")
    make.usm("Device", pool=pool)


@rule("urUSMPoolSetDevicePoolExp", "urUSMPoolGetDevicePoolExp gives the pool that was set")
def test_device_pool(ur: URCalls, make: URObjects, context: int, device: int) -> None:
    pool = make_experimental_pool(ur, make, context)
    before = ur.new("urUSMPoolGetDevicePoolExp", context, device)
    ur.ok("urUSMPoolSetDevicePoolExp", context, device, pool)
    found = ur.new("urUSMPoolGetDevicePoolExp", context, device)
    ur.ok("urUSMPoolSetDevicePoolExp", context, device, before)
    equal(found, pool, "the pool")


@rule("urUSMPoolTrimToExp", "a pool can be trimmed, and allocated from again")
def test_trim(ur: URCalls, make: URObjects, context: int, device: int) -> None:
    pool = make_experimental_pool(ur, make, context)
    make.release(make.usm("Device", pool=pool))
    ur.ok("urUSMPoolTrimToExp", context, device, pool, 0)
    make.usm("Device", pool=pool)
