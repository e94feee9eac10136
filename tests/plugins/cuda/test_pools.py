"""Pools of USM: device memory in pools of the driver's, in a queue's order; all else in ours."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.launching import last_error

from fairlead.loader.ur.abi import UR

from .conftest import SIZE, Adapted, Knobs, Work

#: More than the pieces in which a driver's pool takes memory.
LARGE = 4 << 20


class Pool:
    """A pool of a device, or of its context.

    Args:
        work: the device and the context.
        of_context: whether it has all kinds of memory.
        flags: ur_usm_pool_flags_t.
        limit: maxPoolableSize, 0 for none.
    """

    def __init__(
        self, work: Work, *, of_context: bool = False, flags: int = 0, limit: int = 0
    ) -> None:
        self.work, self.ur = work, work.ur
        self.where = (work.context,) if of_context else (work.context, work.device)
        limits = UR.get_struct("ur_usm_pool_limits_desc_t")(
            UR["UR_STRUCTURE_TYPE_USM_POOL_LIMITS_DESC"], None, limit, 0
        )
        chain = ctypes.addressof(limits) if limit else None
        how = UR.get_struct("ur_usm_pool_desc_t")(
            UR["UR_STRUCTURE_TYPE_USM_POOL_DESC"], chain, flags
        )
        name = "urUSMPoolCreate" if of_context else "urUSMPoolCreateExp"
        self.handle: Any = self.ur.make(name, *self.where, ctypes.byref(how))

    def number(self, name: str) -> int:
        """Return a number of bytes, such as "USED_CURRENT"."""
        value, kind = ctypes.c_size_t(), UR[f"UR_USM_POOL_INFO_{name}_EXP"]
        self.ur.ok("urUSMPoolGetInfoExp", self.handle, kind, value)
        return value.value

    def set(self, name: str, value: int) -> str:
        """Set a number of bytes, and return the code."""
        kind, given = UR[f"UR_USM_POOL_INFO_{name}_EXP"], ctypes.c_size_t(value)
        size = ctypes.sizeof(given)
        return self.ur("urUSMPoolSetInfoExp", self.handle, kind, given, size)

    def take(self, size: int = SIZE, kind: str = "Device") -> tuple[str, int]:
        """Allocate now. Returns the code and the address."""
        made, work = ctypes.c_void_p(), self.work
        device = () if kind == "Host" else (work.device,)
        given = work.context, *device, None, self.handle, size, ctypes.byref(made)
        return self.ur(f"urUSM{kind}Alloc", *given), made.value or 0

    def enqueue(self, size: int = SIZE, kind: str = "Device", queue: int = 0) -> int:
        """Allocate in a queue's order. Returns the address."""
        made, queue = ctypes.c_void_p(), queue or self.work.queue
        given = queue, self.handle, size, None, 0, None, ctypes.byref(made), None
        self.ur.ok(f"urEnqueueUSM{kind}AllocExp", *given)
        return made.value or 0

    def drop(self, address: int, queue: int = 0) -> str:
        """Free in a queue's order, and return the code."""
        given = queue or self.work.queue, self.handle, address, 0, None, None
        return self.ur("urEnqueueUSMFreeExp", *given)

    def release(self) -> None:
        if len(self.where) == 1:
            self.ur.ok("urUSMPoolRelease", self.handle)
        else:
            self.ur.ok("urUSMPoolDestroyExp", *self.where, self.handle)


@pytest.fixture
def pool(work: Work) -> Iterator[Pool]:
    made = Pool(work)
    yield made
    made.release()


def _finish(work: Work) -> None:
    work.ur.ok("urQueueFinish", work.queue)


def test_neither_an_allocation_nor_a_free_waits(work: Work, pool: Pool, fake: Knobs) -> None:
    kernel = work.kernel("store")
    fake.hold()
    try:
        memory = pool.enqueue()
        work.launch(kernel, memory, ctypes.c_int32(1))
        assert pool.drop(memory) == "SUCCESS"
        assert pool.number("USED_CURRENT") >= SIZE
    finally:
        fake.let_go()
    _finish(work)
    assert pool.number("USED_CURRENT") == 0


def test_memory_of_a_pool_can_be_used_in_every_queue_at_once(work: Work, pool: Pool) -> None:
    """The host has waited for the allocation."""
    code, memory = pool.take()
    assert code == "SUCCESS"
    other = Work(work.ur, work.device, work.context)
    other.put(memory, b"\1" * SIZE)
    assert work.get(memory) == b"\1" * SIZE
    work.ur.ok("urUSMFree", work.context, memory)
    assert work.ur("urUSMFree", work.context, memory) == "INVALID_MEM_OBJECT"


def test_numbers(work: Work, pool: Pool) -> None:
    assert pool.set("RELEASE_THRESHOLD", 64 << 20) == "SUCCESS"
    assert pool.number("RELEASE_THRESHOLD") == 64 << 20
    first, second = pool.enqueue(LARGE), pool.enqueue(LARGE)
    assert pool.number("USED_CURRENT") >= 2 * LARGE
    assert pool.number("RESERVED_CURRENT") >= pool.number("USED_CURRENT")
    assert pool.drop(first) == "SUCCESS"
    _finish(work)
    assert LARGE <= pool.number("USED_CURRENT") < 2 * LARGE <= pool.number("USED_HIGH")
    assert pool.set("USED_HIGH", 1) == "INVALID_VALUE"
    assert pool.set("USED_HIGH", 0) == pool.set("RESERVED_HIGH", 0) == "SUCCESS"
    assert pool.number("USED_HIGH") < 2 * LARGE
    assert pool.number("RESERVED_HIGH") == pool.number("RESERVED_CURRENT") >= 2 * LARGE
    assert pool.drop(second) == "SUCCESS"
    _finish(work)
    assert pool.number("RESERVED_CURRENT") >= 2 * LARGE  # below the threshold, so it is kept
    work.ur.ok("urUSMPoolTrimToExp", work.context, work.device, pool.handle, 0)
    assert pool.number("RESERVED_CURRENT") == 0


def test_a_pool_holds_no_more_than_its_maximum(work: Work) -> None:
    pool = Pool(work, limit=2 * SIZE)
    assert pool.number("MAXIMUM_SIZE") == 2 * SIZE
    code, memory = pool.take()
    assert code == "SUCCESS" and pool.take(2 * SIZE)[0] == "OUT_OF_RESOURCES"
    assert pool.set("MAXIMUM_SIZE", 3 * SIZE) == "SUCCESS"
    code, more = pool.take(2 * SIZE)
    assert code == "SUCCESS" and pool.take(1)[0] == "OUT_OF_RESOURCES"
    for address in (memory, more):
        work.ur.ok("urUSMFree", work.context, address)
    pool.release()


def test_what_is_too_large_to_be_kept_is_not_in_the_drivers_pool(work: Work, fake: Knobs) -> None:
    pool, before = Pool(work, of_context=True, limit=SIZE), fake.calls("MemAlloc")
    code, memory = pool.take(2 * SIZE)
    assert code == "SUCCESS" and fake.calls("MemAlloc") == before + 1
    code, small = pool.take()
    assert code == "SUCCESS" and fake.calls("MemAlloc") == before + 1
    for address in (memory, small):
        work.ur.ok("urUSMFree", work.context, address)
    pool.release()


def test_new_memory_is_zero_if_the_pool_says_so(work: Work) -> None:
    pool = Pool(work, flags=UR["UR_USM_POOL_FLAG_ZERO_INITIALIZE_BLOCK"])
    for _ in range(2):  # the second one has the bytes of the first
        memory = pool.enqueue()
        assert work.get(memory) == bytes(SIZE)
        work.put(memory, b"\7" * SIZE)
        assert pool.drop(memory) == "SUCCESS"
    pool.release()


def test_memory_outlives_its_pool(work: Work) -> None:
    pool = Pool(work)
    memory = pool.take()[1]
    pool.release()
    work.put(memory, b"\2" * SIZE)
    assert work.get(memory) == b"\2" * SIZE
    work.ur.ok("urUSMFree", work.context, memory)


@pytest.mark.parametrize("kind", ["Host", "Shared"])
def test_host_and_shared_memory_are_kept_by_us(work: Work, kind: str) -> None:
    pool = Pool(work, of_context=True)
    assert pool.set("RELEASE_THRESHOLD", 64 << 20) == "SUCCESS"
    code, memory = pool.take(SIZE, kind)
    assert code == "SUCCESS" and pool.number("USED_CURRENT") == SIZE
    work.ur.ok("urUSMFree", work.context, memory)
    assert pool.number("USED_CURRENT") == 0 and pool.number("RESERVED_CURRENT") == SIZE
    assert pool.take(SIZE, kind)[1] == memory
    work.ur.ok("urUSMFree", work.context, memory)
    pool.release()


def test_the_default_pool_is_the_devices_own(work: Work, fake: Knobs) -> None:
    """An allocation in a queue's order without a pool is from it."""
    default: Any = work.ur.make("urUSMPoolGetDefaultDevicePoolExp", work.context, work.device)
    before, made = fake.calls("MemAllocFromPoolAsync"), ctypes.c_void_p()
    given = work.queue, None, SIZE, None, 0, None, ctypes.byref(made), None
    work.ur.ok("urEnqueueUSMDeviceAllocExp", *given)
    assert fake.calls("MemAllocFromPoolAsync") == before + 1
    found, size = ctypes.c_void_p(), ctypes.sizeof(ctypes.c_void_p)
    asked = work.context, made, UR["UR_USM_ALLOC_INFO_POOL"], size, ctypes.byref(found), None
    work.ur.ok("urUSMGetMemAllocInfo", *asked)
    assert found.value == default.value
    work.ur.ok("urEnqueueUSMFreeExp", work.queue, None, made)
    _finish(work)


def test_other_processes_cannot_have_memory_of_a_drivers_pool(work: Work, pool: Pool) -> None:
    """What a queue allocates without a pool is of the default pool, so it is the same."""
    taken, made = pool.take()[1], ctypes.c_void_p()
    given = work.queue, None, SIZE, None, 0, None, ctypes.byref(made), None
    work.ur.ok("urEnqueueUSMDeviceAllocExp", *given)
    for memory, whose in ((taken, "of a pool"), (made.value, "of the device's default pool")):
        place = ctypes.byref(ctypes.c_void_p()), ctypes.byref(ctypes.c_size_t())
        assert work.ur("urIPCGetMemHandleExp", work.context, memory, *place) == "INVALID_VALUE"
        said = last_error(work.ur)[0]
        assert f"other processes cannot have memory {whose}" in said
        assert said.endswith("remedy: allocate by urUSMDeviceAlloc without a pool")
        work.ur.ok("urUSMFree", work.context, memory)


def test_a_queue_frees_no_memory_that_the_program_has_allocated(work: Work) -> None:
    room = ctypes.create_string_buffer(2 * mmap.PAGESIZE)
    start = -(-ctypes.addressof(room) // mmap.PAGESIZE) * mmap.PAGESIZE
    work.ur.ok("urUSMImportExp", work.context, start, mmap.PAGESIZE)
    given = work.queue, None, start, 0, None, None
    assert work.ur("urEnqueueUSMFreeExp", *given) == "INVALID_MEM_OBJECT"
    work.ur.ok("urUSMReleaseExp", work.context, start)


@pytest.mark.parametrize(
    ("function", "code"), [("MemAllocFromPoolAsync", 2), ("StreamSynchronize", 719)]
)
def test_a_failed_allocation_takes_nothing(
    work: Work, pool: Pool, fake: Knobs, function: str, code: int
) -> None:
    assert pool.set("MAXIMUM_SIZE", SIZE) == "SUCCESS"
    fake.fail(function, code)
    expected = {2: "OUT_OF_DEVICE_MEMORY", 719: "DEVICE_LOST"}[code]
    assert pool.take()[0] == expected
    fake.fail(function, 0)
    again, memory = pool.take()
    assert again == "SUCCESS"
    work.ur.ok("urUSMFree", work.context, memory)


def test_a_failed_free_leaves_the_memory_there(work: Work, pool: Pool, fake: Knobs) -> None:
    memory = pool.enqueue()
    fake.fail("MemFreeAsync", 999)
    assert pool.drop(memory) == "UNKNOWN"
    fake.fail("MemFreeAsync", 0)
    work.put(memory, b"\3" * SIZE)
    assert pool.drop(memory) == "SUCCESS"


@pytest.mark.parametrize("function", ["MemPoolCreate", "MemPoolTrimTo", "MemPoolSetAttribute"])
def test_failures_of_the_drivers_pool_are_told(
    work: Work, pool: Pool, fake: Knobs, function: str
) -> None:
    fake.fail(function, 1)
    how = UR.get_struct("ur_usm_pool_desc_t")(UR["UR_STRUCTURE_TYPE_USM_POOL_DESC"], None, 0)
    place, made = (work.context, work.device), ctypes.c_void_p()
    call = {
        "MemPoolCreate": lambda: work.ur("urUSMPoolCreateExp", *place, ctypes.byref(how), made),
        "MemPoolTrimTo": lambda: work.ur("urUSMPoolTrimToExp", *place, pool.handle, 0),
        "MemPoolSetAttribute": lambda: pool.set("RELEASE_THRESHOLD", 1),
    }[function]
    assert call() == "INVALID_VALUE"
    fake.fail(function, 0)


def test_a_driver_without_pools_takes_ours(
    work: Work, adapted: Adapted, fake: Knobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapted.module("pools"), "has_pools", lambda device: False)
    before = fake.calls("MemAllocFromPoolAsync")
    pool = Pool(work)
    assert pool.set("RELEASE_THRESHOLD", 64 << 20) == "SUCCESS"
    memory = pool.enqueue()
    assert pool.drop(memory) == "SUCCESS" and pool.number("RESERVED_CURRENT") == SIZE
    assert pool.enqueue() == memory and pool.drop(memory) == "SUCCESS"
    pool.release()
    assert fake.calls("MemAllocFromPoolAsync") == before


def test_a_device_with_access_to_another_one_may_use_its_pools(
    work: Work, adapted: Adapted, pool: Pool, fake: Knobs
) -> None:
    """One device stands for both here: the access is set again, which the driver allows."""
    pools = adapted.module("driver_pools")
    (device,) = adapted.module("devices").list_all_devices()[:1]
    before = fake.calls("MemPoolSetAccess")
    pools.grant_access(device, device)
    try:
        after = fake.calls("MemPoolSetAccess")
        assert after > before
        later = Pool(work)  # a pool that comes later lets it, too
        assert fake.calls("MemPoolSetAccess") == after + 1
        later.release()
    finally:
        pools._readers.clear()
