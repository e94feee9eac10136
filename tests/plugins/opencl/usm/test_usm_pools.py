"""Pools of USM of the reference adapter, and allocations and frees in a queue's order."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any

import pytest
from helpers.memory_calls import held_back, struct
from helpers.ur_calls import Calls, array
from helpers.usm_ways import Way

from fairlead.loader.ur.abi import UR
from fairlead.plugins.opencl.core import adapter as reference
from fairlead.plugins.opencl.usm import pools


def new_pool(way: Way, *, flags: int = 0, limit: int | None = None) -> ctypes.c_void_p:
    return way.ur.make("urUSMPoolCreate", way.context, ctypes.byref(describe(flags, limit)[0]))


def describe(flags: int = 0, limit: int | None = None) -> tuple[Any, Any]:
    """A pool's descriptor, and the limits that hang on it."""
    limits = struct(
        "ur_usm_pool_limits_desc_t",
        "USM_POOL_LIMITS_DESC",
        maxPoolableSize=limit or 0,
        minDriverAllocSize=0,
    )
    chain = ctypes.addressof(limits) if limit is not None else None
    found = struct("ur_usm_pool_desc_t", "USM_POOL_DESC", flags=flags, pNext=chain)
    found.kept = limits
    return found, limits


def size(way: Way, pool: Any, name: str) -> int:
    return way.ur.number("urUSMPoolGetInfo", pool, f"UR_USM_POOL_INFO_{name}_EXP")


def sizes(way: Way, pool: Any) -> tuple[int, int, int, int]:
    """Reserved, the most reserved, used, the most used."""
    names = ("RESERVED_CURRENT", "RESERVED_HIGH", "USED_CURRENT", "USED_HIGH")
    reserved, reserved_high, used, used_high = (size(way, pool, name) for name in names)
    return reserved, reserved_high, used, used_high


def test_a_pool_keeps_what_its_limits_allow(way: Way, ur: Calls) -> None:
    pool = new_pool(way, limit=4096)
    small, large = way.alloc("device", 4096, pool=pool), way.alloc("device", 4097, pool=pool)
    way.free(small, large)
    assert sizes(way, pool) == (4096, 8193, 0, 8193)
    assert way.info(small, "TYPE") == UR["UR_USM_TYPE_UNKNOWN"]
    assert ur("urUSMFree", way.context, small) == "INVALID_MEM_OBJECT"
    assert way.alloc("device", 4096, pool=pool) == small
    other = way.alloc("device", 4096, pool=pool)
    assert other != small
    way.copy(small, b"again", 5)
    way.free(small, other)
    assert sizes(way, pool)[0] == 8192
    ur.ok("urUSMPoolTrimToExp", way.context, way.device.handle, pool, 5000)
    assert sizes(way, pool)[0] == 4096
    ur.ok("urUSMPoolTrimToExp", way.context, way.device.handle, pool, 0)
    assert sizes(way, pool)[0] == 0
    way.free(way.alloc("device", 64, pool=pool))


def test_what_is_kept_is_of_one_kind_and_alignment(way: Way, ur: Calls) -> None:
    pool = new_pool(way, limit=1 << 20)
    found = [way.alloc(kind, 256, pool=pool) for kind in way.kinds]
    way.free(*found)
    again = {kind: way.alloc(kind, 256, pool=pool) for kind in reversed(way.kinds)}
    assert [again[kind] for kind in way.kinds] == found
    for kind, address in again.items():
        assert way.info(address, "TYPE") == UR[f"UR_USM_TYPE_{kind.upper()}"]
    way.free(*found)


def test_a_pool_can_begin_with_zeros(way: Way, ur: Calls) -> None:
    pool = new_pool(way, flags=UR["UR_USM_POOL_FLAG_ZERO_INITIALIZE_BLOCK"])
    for kind in way.kinds:
        for count in (1, 64, 10_000):
            address = way.alloc(kind, count, pool=pool)
            assert way.content(address, count) == b"\0" * count
            way.copy(address, b"\1" * count, count)
            way.free(address)


def test_a_pool_of_another_context(way: Way, ur: Calls) -> None:
    other = ur.make("urContextCreate", 1, array(way.device.handle)).value or 0
    pool = ur.make("urUSMPoolCreate", other, ctypes.byref(describe()[0]))
    assert way.try_alloc("device", 64, pool=pool)[0] == "INVALID_VALUE"
    where = (way.context, way.device.handle, pool)
    assert ur("urUSMPoolTrimToExp", *where, 0) == "INVALID_VALUE"
    assert ur("urUSMPoolSetDevicePoolExp", *where) == "INVALID_VALUE"
    assert ur("urUSMPoolDestroyExp", *where) == "INVALID_VALUE"
    assert sizes(way, pool) == (0, 0, 0, 0)


# pools of a device


def test_a_pool_of_a_device_has_a_maximum(way: Way, ur: Calls) -> None:
    pool = ur.make(
        "urUSMPoolCreateExp", way.context, way.device.handle, ctypes.byref(describe(limit=1000)[0])
    )
    assert size(way, pool, "MAXIMUM_SIZE") == 1000 and size(way, pool, "RELEASE_THRESHOLD") == 0
    address = way.alloc("device", 600, pool=pool)
    assert way.try_alloc("device", 401, pool=pool)[0] == "OUT_OF_RESOURCES"
    way.free(way.alloc("device", 400, pool=pool), address)
    assert sizes(way, pool) == (0, 1000, 0, 1000)
    if "host" in way.kinds:
        assert way.try_alloc("host", 8, pool=pool)[0] == "INVALID_VALUE"
    ur.ok("urUSMPoolDestroyExp", way.context, way.device.handle, pool)
    assert ur("urUSMPoolDestroyExp", way.context, way.device.handle, pool) == "INVALID_VALUE"


def test_a_pool_makes_room_within_its_maximum(way: Way, ur: Calls) -> None:
    pool = ur.make(
        "urUSMPoolCreateExp", way.context, way.device.handle, ctypes.byref(describe(limit=1000)[0])
    )
    set_size(way, pool, "RELEASE_THRESHOLD", 1 << 20)
    way.free(way.alloc("device", 700, pool=pool))
    assert sizes(way, pool)[0] == 700
    way.free(way.alloc("device", 800, pool=pool))
    assert sizes(way, pool)[0] == 800
    ur.ok("urUSMPoolDestroyExp", way.context, way.device.handle, pool)


def set_size(way: Way, pool: Any, name: str, value: int) -> None:
    number = ctypes.c_size_t(value)
    way.ur.ok("urUSMPoolSetInfoExp", pool, UR[f"UR_USM_POOL_INFO_{name}_EXP"], number, 8)


def test_what_a_pool_can_be_told(way: Way, ur: Calls) -> None:
    pool, number = new_pool(way), ctypes.c_size_t(8)
    set_size(way, pool, "RELEASE_THRESHOLD", 300)
    assert size(way, pool, "RELEASE_THRESHOLD") == 300
    addresses = [way.alloc("device", 200, pool=pool) for _ in range(3)]
    way.free(*addresses)  # two go while more than the threshold is held
    assert sizes(way, pool) == (200, 600, 0, 600)
    set_size(way, pool, "RESERVED_HIGH", 0)
    set_size(way, pool, "USED_HIGH", 0)
    assert sizes(way, pool) == (200, 200, 0, 0)
    setter = ("urUSMPoolSetInfoExp", pool)
    given = *setter, UR["UR_USM_POOL_INFO_USED_HIGH_EXP"], ctypes.byref(number), 8
    assert ur(*given) == "INVALID_VALUE"
    given = *setter, UR["UR_USM_POOL_INFO_RELEASE_THRESHOLD_EXP"], ctypes.byref(number), 4
    assert ur(*given) == "INVALID_SIZE"
    found = ur(*setter, UR["UR_USM_POOL_INFO_RELEASE_THRESHOLD_EXP"], None, 8)
    assert found == "INVALID_NULL_POINTER"
    given = *setter, UR["UR_USM_POOL_INFO_CONTEXT"], ctypes.byref(number), 8
    assert ur(*given) == "UNSUPPORTED_ENUMERATION"
    given = *setter, UR["UR_USM_POOL_INFO_USED_CURRENT_EXP"], ctypes.byref(number), 8
    assert ur(*given) == "UNSUPPORTED_ENUMERATION"
    assert ur(*setter, 77, ctypes.byref(number), 8) == "INVALID_ENUMERATION"


def test_the_query_without_a_size(way: Way, ur: Calls) -> None:
    pool, value, length = new_pool(way), ctypes.c_size_t(), ctypes.c_size_t()
    way.free(way.alloc("device", 123, pool=pool))
    query = ("urUSMPoolGetInfoExp", pool)
    ur.ok(*query, UR["UR_USM_POOL_INFO_USED_HIGH_EXP"], ctypes.byref(value), ctypes.byref(length))
    assert (value.value, length.value) == (123, 8)
    ur.ok(*query, UR["UR_USM_POOL_INFO_CONTEXT"], ctypes.byref(value), None)
    assert value.value == way.context
    ur.ok(*query, UR["UR_USM_POOL_INFO_REFERENCE_COUNT"], None, ctypes.byref(length))
    assert length.value == 4
    assert ur(*query, UR["UR_USM_POOL_INFO_CONTEXT"], None, None) == "INVALID_NULL_POINTER"
    assert ur(*query, 99, ctypes.byref(value), None) == "INVALID_ENUMERATION"


def test_a_default_pool_ends_with_its_context(way: Way, ur: Calls) -> None:
    context = ur.make("urContextCreate", 1, array(way.device.handle))
    pool = ur.make("urUSMPoolGetDefaultDevicePoolExp", context, way.device.handle)
    assert ur.number("urUSMPoolGetInfo", pool, "UR_USM_POOL_INFO_CONTEXT") == context.value
    ur.ok("urContextRelease", context)
    assert ur("urUSMPoolRelease", pool) == "INVALID_VALUE"


# in a queue's order


def test_a_free_comes_when_its_events_are_complete(way: Way, ur: Calls) -> None:
    pool = new_pool(way)
    for queue in way.queues():
        gate, go = held_back(ur, way.context)
        address = way.alloc("device", 512, pool=pool)
        copy = ctypes.c_void_p()
        free = ctypes.c_void_p()
        host = ctypes.create_string_buffer(b"h" * 512, 512)
        given = queue, False, address, host, 512, 1, array(gate), ctypes.byref(copy)
        ur.ok("urEnqueueUSMMemcpy", *given)
        ur.ok("urEnqueueUSMFreeExp", queue, pool, address, 1, array(copy), free)
        assert size(way, pool, "USED_CURRENT") == 512
        assert (
            ur("urUSMFree", way.context, address) == "INVALID_MEM_OBJECT"
        )  # it is given up already
        assert go() == 0
        ur.ok("urQueueFinish", queue)
        ur.ok("urEventWait", 1, array(free))
        while size(way, pool, "USED_CURRENT"):  # the driver's callback gives the memory back
            os.sched_yield()
        for event in (gate, copy, free):
            ur.ok("urEventRelease", event)
        ur.ok("urQueueRelease", queue)


def test_what_cannot_be_allocated_or_freed_in_order(way: Way, ur: Calls) -> None:
    made, pool = ctypes.c_void_p(), new_pool(way)
    flags = struct("ur_exp_async_usm_alloc_properties_t", "EXP_ASYNC_USM_ALLOC_PROPERTIES", flags=2)
    allocate, out = "urEnqueueUSMDeviceAllocExp", ctypes.byref(made)
    assert ur(allocate, way.queue, None, 0, None, 0, None, out, None) == "INVALID_USM_SIZE"
    given = allocate, way.queue, None, 64, ctypes.byref(flags), 0, None, out, None
    assert ur(*given) == "INVALID_ENUMERATION"
    assert ur(allocate, way.queue, None, 64, None, 0, None, None, None) == "INVALID_NULL_POINTER"
    assert ur(allocate, None, None, 64, None, 0, None, out, None) == "INVALID_NULL_HANDLE"
    assert ur(allocate, way.queue, None, 64, None, 1, None, out, None) == "INVALID_EVENT_WAIT_LIST"
    if way.name == "buffer":
        given = "urEnqueueUSMHostAllocExp", way.queue, None, 64, None, 0, None, out, None
        assert ur(*given) == "INVALID_OPERATION"
    address = way.alloc("device", 64)
    free = ("urEnqueueUSMFreeExp", way.queue)
    assert ur(*free, pool, address, 0, None, None) == "INVALID_VALUE"
    assert ur(*free, None, address + 1, 0, None, None) == "INVALID_MEM_OBJECT"
    assert ur(*free, None, None, 0, None, None) == "INVALID_NULL_POINTER"
    assert ur(*free, None, address, 1, None, None) == "INVALID_EVENT_WAIT_LIST"
    assert way.info(address, "SIZE") == 64  # it is still there
    way.free(address)


def test_a_pool_gives_memory_back_to_the_driver_without_its_lock(
    way: Way, ur: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A free may wait for a driver's thread that calls `give`."""
    made = new_pool(way, limit=1 << 20)
    pool = reference.objects.list_owned("ur_usm_pool_handle_t")[made.value or 0]
    real, lock, free_during_release = pools.free, pool._lock, list[bool]()

    def free(allocation: Any) -> None:
        def try_lock() -> None:
            free_during_release.append(lock.acquire(blocking=False))
            if free_during_release[-1]:
                lock.release()

        thread = threading.Thread(target=try_lock)
        thread.start()
        thread.join()
        real(allocation)

    monkeypatch.setattr(pools, "free", free)

    def keep(*amounts: int) -> None:
        way.free(*[way.alloc("device", amount, pool=made) for amount in amounts])

    keep(1024, 2048)
    pool.maximum = 4096
    del pool  # its last reference is the program's
    way.free(way.alloc("device", 3072, pool=made))  # there is no room beside the others
    assert free_during_release == [True, True]
    ur.ok("urUSMPoolTrimToExp", way.context, way.device.handle, made, 0)
    keep(512)
    ur.ok("urUSMPoolRelease", made)
    assert free_during_release == [True] * 4
