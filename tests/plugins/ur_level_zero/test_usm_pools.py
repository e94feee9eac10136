"""Pools of USM on Level Zero, and allocations and frees in a queue's order.

tests/plugins/opencl/usm/test_usm_pools.py has the rules that all adapters share.
"""

from __future__ import annotations

import ctypes

import pytest

from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import URObjects
from fairlead.loader.ur.abi import UR

SIZE = 256


def new_pool(calls: URCalls, make: URObjects, context: int, *, flags: int = 0) -> int:
    """A pool that keeps what it is given back."""
    limits = calls.struct("ur_usm_pool_limits_desc_t", maxPoolableSize=1 << 20)
    how = calls.struct("ur_usm_pool_desc_t", flags=flags, pNext=ctypes.addressof(limits))
    made = calls.new("urUSMPoolCreate", context, ctypes.byref(how))
    return make.own("urUSMPoolRelease", made)


def allocate(calls: URCalls, make: URObjects, context: int, pool: int) -> int:
    return calls.new("urUSMDeviceAlloc", context, make.device, None, pool, SIZE)


def reserved(calls: URCalls, pool: int) -> int:
    return calls.info("urUSMPoolGetInfo", pool, "UR_USM_POOL_INFO_RESERVED_CURRENT_EXP")


def test_a_new_allocation_can_be_zero(
    calls: URCalls, make: URObjects, context: int, queue: int
) -> None:
    pool = new_pool(calls, make, context, flags=UR["UR_USM_POOL_FLAG_ZERO_INITIALIZE_BLOCK"])
    memory, host = allocate(calls, make, context, pool), ctypes.create_string_buffer(b"x" * SIZE)
    given = queue, True, host, memory, SIZE, 0, None, None
    calls.ok("urEnqueueUSMMemcpy", *given)
    assert host.raw[:SIZE] == bytes(SIZE)
    calls.ok("urUSMFree", context, memory)


@pytest.mark.parametrize("kind", ["Device", "Shared", "Host"])
def test_allocations_and_frees_in_order(
    calls: URCalls, make: URObjects, context: int, queue: int, kind: str
) -> None:
    name = "SINGLE_SHARED" if kind == "Shared" else kind.upper()
    if not calls.info("urDeviceGetInfo", make.device, f"UR_DEVICE_INFO_USM_{name}_SUPPORT"):
        pytest.skip(f"the device has no {kind} memory")
    pool = new_pool(calls, make, context)
    address = ctypes.c_void_p()
    given = queue, pool, SIZE, None, 0, None, ctypes.byref(address), None
    calls.ok(f"urEnqueueUSM{kind}AllocExp", *given)
    pattern = ctypes.create_string_buffer(b"ab", 2)
    calls.ok("urEnqueueUSMFill", queue, address, 2, pattern, SIZE, 0, None, None)
    other = new_pool(calls, make, context)
    calls.fails("urEnqueueUSMFreeExp", "INVALID_VALUE", queue, other, address, 0, None, None)
    event = calls.new("urEnqueueUSMFreeExp", queue, pool, address, 0, None)
    make.own("urEventRelease", event)
    assert reserved(calls, pool) == SIZE
    calls.fails("urUSMFree", "INVALID_MEM_OBJECT", context, address)
