"""USM: what hangs on the descriptor of an allocation, memory of the program's, and peers.

Pools of USM on Level Zero, and allocations and frees in a queue's order.

tests/plugins/opencl/usm/test_usm_pools.py has the rules that all adapters share.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.conformance.ur import kernels
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import COUNT, SIZE, URObjects
from fairlead.conformance.ur.values import PointerValue
from fairlead.loader.ur.abi import UR
from fairlead.plugins.ur_level_zero.core import adapter as python_adapter
from fairlead.plugins.ur_level_zero.devices import LZDevice
from fairlead.plugins.ur_level_zero.platforms import LZPlatform

#: Functions of Intel's GPU driver.
TAKE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
DROP = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)


@contextmanager
def page() -> Iterator[int]:
    """Memory that this program has allocated. It begins with numbers."""
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    numbers = (ctypes.c_int32 * COUNT).from_buffer(memory)
    numbers[:] = range(COUNT)
    yield ctypes.addressof(numbers)
    del numbers
    memory.close()


def test_every_struct_of_a_chain_is_checked(calls: URCalls, make: URObjects, context: int) -> None:
    """Also one behind another one, and in a chain that is a ring."""
    host = UR.get_struct("ur_usm_host_desc_t")(UR["UR_STRUCTURE_TYPE_USM_HOST_DESC"])
    device = UR.get_struct("ur_usm_device_desc_t")(UR["UR_STRUCTURE_TYPE_USM_DEVICE_DESC"])
    desc = UR.get_struct("ur_usm_desc_t")(UR["UR_STRUCTURE_TYPE_USM_DESC"])
    desc.pNext, host.pNext = ctypes.addressof(host), ctypes.addressof(device)
    device.pNext, device.flags = ctypes.addressof(host), 8
    given = context, make.device, ctypes.byref(desc), None, 64
    made = ctypes.byref(ctypes.c_void_p())
    calls.fails("urUSMDeviceAlloc", "INVALID_ENUMERATION", *given, made)
    device.flags = 0
    calls.ok("urUSMFree", context, calls.new("urUSMDeviceAlloc", *given))


def test_memory_of_the_program_becomes_usm_of_the_host(
    calls: URCalls, make: URObjects, context: int, queue: int, behind: LZDevice
) -> None:
    """On OpenCL drivers whose devices use all memory of the process.

    The driver has to know that the kernel's argument is an address, which Intel's does not say of a
    program of binaries.
    """
    can = "UR_DEVICE_INFO_USM_HOST_ALLOC_REGISTER_SUPPORT_EXP"
    with page() as address:
        given = context, address, mmap.PAGESIZE
        if not calls.info("urDeviceGetInfo", make.device, can):
            calls.fails("urUSMHostAllocRegisterExp", "UNSUPPORTED_FEATURE", *given)
            calls.fails("urUSMImportExp", "UNSUPPORTED_FEATURE", *given)
            assert not behind.access.sharedSystemAllocCapabilities
            return
        calls.ok("urUSMHostAllocRegisterExp", *given)
        kind = "UR_USM_ALLOC_INFO_TYPE"
        found = calls.info("urUSMGetMemAllocInfo", context, kind, address + 4)
        assert found == UR["UR_USM_TYPE_HOST"]
        program = make.source_program(kernels.SOURCE)
        make.launch(queue, make.kernel("add_one", program=program), PointerValue(address))
        calls.ok("urQueueFinish", queue)
        assert (ctypes.c_int32 * COUNT).from_address(address)[:] == list(range(1, COUNT + 1))
        calls.fails("urUSMImportExp", "INVALID_VALUE", *given)
        calls.fails("urUSMFree", "INVALID_MEM_OBJECT", context, address)
        free = "urEnqueueUSMFreeExp"
        calls.fails(free, "INVALID_MEM_OBJECT", queue, None, address)
        calls.ok("urUSMHostAllocUnregisterExp", context, address)
        calls.fails("urUSMHostAllocUnregisterExp", "INVALID_VALUE", context, address)
        memory = make.usm()
        calls.fails("urUSMReleaseExp", "INVALID_VALUE", context, memory)


def test_a_driver_that_takes_memory_of_the_program(
    calls: URCalls, make: URObjects, context: int, behind: LZDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Intel's GPU driver has two functions for it."""
    told: list[tuple[Any, ...]] = []

    def note(*given: Any) -> int:
        told.append(given)
        return 0

    functions = {"zexDriverImportExternalPointer": TAKE(note)}
    functions["zexDriverReleaseImportedPointer"] = DROP(note)
    monkeypatch.setitem(vars(behind), "access", SimpleNamespace(sharedSystemAllocCapabilities=0))
    can = "UR_DEVICE_INFO_USM_HOST_ALLOC_REGISTER_SUPPORT_EXP"
    assert not calls.info("urDeviceGetInfo", make.device, can)
    monkeypatch.setattr(
        LZPlatform,
        "find_extension_function",
        lambda self, name: ctypes.cast(functions[name], ctypes.c_void_p).value,
    )
    assert calls.info("urDeviceGetInfo", make.device, can)
    with page() as address:
        calls.ok("urUSMImportExp", context, address, SIZE)
        calls.ok("urUSMReleaseExp", context, address)
        driver = behind.platform.ze
        assert told == [(driver, address, SIZE), (driver, address)]


def test_peers(
    calls: URCalls, make: URObjects, behind: LZDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device has no access to itself. To others it is enabled once, and then disabled once."""
    enable, ask = "urUsmP2PEnablePeerAccessExp", "urUsmP2PPeerAccessGetInfoExp"
    disable = "urUsmP2PDisablePeerAccessExp"
    queries = "UR_EXP_PEER_INFO_UR_PEER_ACCESS_SUPPORT", "UR_EXP_PEER_INFO_UR_PEER_ATOMICS_SUPPORT"
    device = make.device
    assert [calls.info(ask, device, query, device) for query in queries] == [0, 0]
    calls.fails(enable, "INVALID_OPERATION", device, device)
    other = LZDevice(behind.ze, behind.platform)
    peer = python_adapter.objects.show(other)
    assert [calls.info(ask, device, query, peer) for query in queries] == [1, 0]
    for _ in range(2):
        calls.fails(disable, "INVALID_OPERATION", device, peer)
        calls.ok(enable, device, peer)
        calls.fails(enable, "INVALID_OPERATION", device, peer)
        calls.fails(disable, "INVALID_OPERATION", peer, device)
        calls.ok(disable, device, peer)
    monkeypatch.setattr(behind.table, "zeDeviceCanAccessPeer", lambda *given: 0)
    calls.fails(enable, "INVALID_OPERATION", device, peer)


def test_bytes_that_end_behind_all_addresses_are_refused(
    calls: URCalls, queue: int, context: int
) -> None:
    """In host memory, too, of which nobody knows where it ends."""
    host, huge = ctypes.create_string_buffer(64), (1 << 64) - 8
    copied = queue, True, host, host, huge
    calls.fails("urEnqueueUSMMemcpy", "INVALID_SIZE", *copied)
    calls.fails("urEnqueueUSMFill", "INVALID_SIZE", queue, host, 1, host, huge)
    calls.fails("urEnqueueUSMPrefetch", "INVALID_SIZE", queue, host, huge, 0)
    calls.fails("urUSMContextMemcpyExp", "INVALID_SIZE", context, host, host, huge)


BYTES = 256


def new_pool(calls: URCalls, make: URObjects, context: int, *, flags: int = 0) -> int:
    """A pool that keeps what it is given back."""
    limits = calls.struct("ur_usm_pool_limits_desc_t", maxPoolableSize=1 << 20)
    how = calls.struct("ur_usm_pool_desc_t", flags=flags, pNext=ctypes.addressof(limits))
    made = calls.new("urUSMPoolCreate", context, how)
    return make.own("urUSMPoolRelease", made)


def allocate(calls: URCalls, make: URObjects, context: int, pool: int) -> int:
    return calls.new("urUSMDeviceAlloc", context, make.device, None, pool, BYTES)


def reserved(calls: URCalls, pool: int) -> int:
    return calls.info("urUSMPoolGetInfo", pool, "UR_USM_POOL_INFO_RESERVED_CURRENT_EXP")


def test_a_new_allocation_can_be_zero(
    calls: URCalls, make: URObjects, context: int, queue: int
) -> None:
    pool = new_pool(calls, make, context, flags=UR["UR_USM_POOL_FLAG_ZERO_INITIALIZE_BLOCK"])
    memory, host = allocate(calls, make, context, pool), ctypes.create_string_buffer(b"x" * BYTES)
    calls.ok("urEnqueueUSMMemcpy", queue, True, host, memory, BYTES)
    assert host.raw[:BYTES] == bytes(BYTES)
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
    given = queue, pool, BYTES, None, 0, None, ctypes.byref(address), None
    calls.ok(f"urEnqueueUSM{kind}AllocExp", *given)
    pattern = ctypes.create_string_buffer(b"ab", 2)
    calls.ok("urEnqueueUSMFill", queue, address, 2, pattern, BYTES)
    other = new_pool(calls, make, context)
    calls.fails("urEnqueueUSMFreeExp", "INVALID_VALUE", queue, other, address)
    event = calls.new("urEnqueueUSMFreeExp", queue, pool, address)
    make.own("urEventRelease", event)
    assert reserved(calls, pool) == BYTES
    calls.fails("urUSMFree", "INVALID_MEM_OBJECT", context, address)
