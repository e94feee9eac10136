"""USM of CUDA and HIP, memory that is used by its address: allocated, freed, queried, imported from
the program; pools of it, and allocations and frees in a queue's order.

Device memory of a pool is in a pool of the driver's, where the driver has them: then a queue
allocates and frees it in its order. Host memory, shared memory, and all memory on other drivers is
kept here when it is freed (sdk/pools.py). There a free in a queue's order waits for the queue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ...loader.ur.abi import UR
from ..sdk.pools import PoolEntryPoints, USMPool, make_immediate
from ..sdk.usm import (
    Allocator,
    add_known,
    declare_allocation,
    declare_frees,
    declare_imports,
    declare_memory_query,
    find_known,
    make_release,
)
from .allocations import CuAllocation, CuRequest, allocate, find_foreign, free, locate
from .captures import refuse_capture
from .contexts import CuContext
from .core import adapter, failure, get_constant
from .devices import CuDevice
from .driver_pools import ATTRIBUTES, DriverPool, has_pools
from .enqueue import CuEnqueue, enqueues
from .events import CuEvent

allocator: Final = Allocator(
    allocate,
    find_largest=lambda device: device.found.memory,
    has_kind=lambda device, kind: kind != "shared" or device.query_attribute("MANAGED_MEMORY"),
    kind_of_request=CuRequest,
)
#: Gives memory that was removed to its pool, or else to the driver. It raises DriverError.
release_memory: Final = make_release(free)
declare_allocation(adapter, allocator.allocate, lambda device: 128)


declare_memory_query(
    adapter, lambda context, address: find_known(context, address) or find_foreign(context, address)
)


# host memory that the program allocates itself


def _import_memory(context: CuContext, address: int, size: int) -> None:
    flags = get_constant("CU_MEMHOSTREGISTER_PORTABLE")
    context.device.call("MemHostRegister", address, size, flags)
    add_known(CuAllocation(address, CuRequest(context, "host", None, size), imported=True))


def _forget_imported(context: CuContext, allocation: CuAllocation) -> None:
    context.drain()
    context.allocations.remove(allocation.base)
    context.device.call("MemHostUnregister", allocation.base)


declare_imports(adapter, locate=locate, take=_import_memory, forget=_forget_imported)


_ZERO: Final = UR["UR_USM_POOL_FLAG_ZERO_INITIALIZE_BLOCK"]


@adapter.kind
class CuPool(USMPool):
    """A pool of a context, or of one device of it.

    A pool of a context with several devices has none of the driver's: those are for one device.

    Attributes:
        driver_pool: the driver's pool, None if there is none.
        taken: bytes of the driver's pool that were asked for.

    Raises:
        DriverError: the driver makes no pool.
    """

    keeps_context = False

    def __init__(
        self, context: CuContext, device: CuDevice | None, flags: int, *, is_default: bool = False
    ) -> None:
        super().__init__(context, device, flags, is_default=is_default)
        owner = device or (context.device if len(context.devices) == 1 else None)
        self.taken = 0
        self.driver_pool: DriverPool | None = None
        if owner is not None and has_pools(owner):
            self.driver_pool = DriverPool(owner, is_default=is_default)

    def zero(self, allocation: CuAllocation, request: CuRequest) -> None:
        owner = allocation.owner
        stream = owner.clock_stream.handle
        owner.call("MemsetD8Async", allocation.base, 0, allocation.size, stream)
        owner.call("StreamSynchronize", stream)

    def free(self, allocation: CuAllocation) -> None:
        free(allocation)

    # the driver's pool

    def has_for(self, request: CuRequest) -> bool:
        """Return whether a request is for the driver's pool: device memory that may be kept."""
        return (
            self.driver_pool is not None
            and request.kind == "device"
            and request.size <= self.largest
        )

    def take_in_order(self, request: CuRequest, stream: int) -> CuAllocation:
        """Allocate memory of the driver's pool for which `has_for` is true.

        Args:
            stream: the CUstream in whose order it is allocated.

        Raises:
            URError: as `take`.
        """
        driver, size = self.driver_pool, request.size
        assert driver is not None
        self.check(request.context, request.device)
        with self._lock:
            if self.maximum and self.taken + size > self.maximum:
                message = f"the pool may hold {self.maximum} bytes, and has {self.taken}"
                raise failure("OUT_OF_RESOURCES", message)
            self.taken += size
        try:
            made = driver.allocate(request, stream)
        except BaseException:
            with self._lock:
                self.taken -= size
            raise
        made.pool = self
        if self.flags & _ZERO:
            try:
                driver.device.call("MemsetD8Async", made.base, 0, size, stream)
            except BaseException:
                self.give_in_order(made, stream)
                raise
        return made

    def give_in_order(self, allocation: CuAllocation, stream: int) -> None:
        """Free memory of the driver's pool in the order of a CUstream. Raises DriverError."""
        driver = self.driver_pool
        assert driver is not None
        driver.free(allocation, stream)
        allocation.is_freed = True
        with self._lock:
            self.taken -= allocation.size

    # what USMPool asks for

    def take(self, request: CuRequest, new: Callable[[], CuAllocation]) -> CuAllocation:
        driver = self.driver_pool
        if driver is None or not self.has_for(request):
            return super().take(request, new)
        stream = driver.device.clock_stream.handle
        made = self.take_in_order(request, stream)
        try:
            driver.device.call("StreamSynchronize", stream)  # any stream may use it from now on
        except BaseException:
            self.give_in_order(made, stream)
            raise
        return made

    def give(self, allocation: CuAllocation) -> None:
        if allocation.in_driver_pool:
            self.give_in_order(allocation, allocation.owner.clock_stream.handle)
        else:
            super().give(allocation)

    def trim(self, keep: int) -> None:
        super().trim(keep)
        if self.driver_pool is not None:
            self.driver_pool.trim(keep)

    def close(self) -> None:
        super().trim(0)
        if self.driver_pool is not None:
            self.driver_pool.close()

    def get_number(self, name: str) -> int:
        own, driver = super().get_number(name), self.driver_pool
        if driver is None or name not in ATTRIBUTES:
            return own
        return driver.query_number(name) + (own if name != "threshold" else 0)

    def set_number(self, name: str, value: int) -> None:
        if self.driver_pool is not None and name in ATTRIBUTES:
            self.driver_pool.set_number(name, value)
        super().set_number(name, value)

    def restart(self, high: str, current: str) -> None:
        if self.driver_pool is not None:
            self.driver_pool.set_number(high, 0)
        super().restart(high, current)


pools = PoolEntryPoints(adapter, CuPool)
_allocate_now = make_immediate(allocator.allocate, CuEnqueue.run, release_memory)


def _allocate(
    enqueue: CuEnqueue, kind: str, device: CuDevice | None, pool: Any, size: int
) -> tuple[int, CuEvent | None]:
    """Allocate in a queue's order, from the device's default pool if no other one is given.

    What is captured is allocated now: else it would be the graph's.
    """
    queue = enqueue.queue
    if device is None or kind != "device" or queue.part is not None or not has_pools(device):
        return _allocate_now(enqueue, kind, device, pool, size)
    request = allocator.make_request(queue.context, kind, device, None, size)
    chosen: Any = pool or pools.get_default(queue.context, device)
    if not chosen.has_for(request):
        return _allocate_now(enqueue, kind, device, pool, size)
    made: list[CuAllocation] = []
    try:
        event = enqueue.run(lambda stream: made.append(chosen.take_in_order(request, stream)))
    except BaseException:
        for allocation in made:
            release_memory(allocation)
        raise
    return add_known(made[0]).base, event


pools.declare_allocations(enqueues.declare, _allocate)


def _free_later(enqueue: CuEnqueue, allocation: CuAllocation) -> CuEvent | None:
    """Free memory when the queue has come there. The memory is gone for the program at once.

    The driver frees memory of its own pools. Its other frees wait for what is enqueued, and a pool
    of ours may give the memory to another queue. So the host waits there.
    """
    refuse_capture(enqueue.queue, "free memory", enqueue.waits)
    if allocation.in_driver_pool:
        return enqueue.run(lambda stream: allocation.pool.give_in_order(allocation, stream))
    enqueue.wanted, wanted = True, enqueue.wanted
    event = enqueue.run()
    assert event is not None
    event.wait()
    release_memory(allocation)
    return event if wanted else None


declare_frees(enqueues, drain=CuContext.drain, release=release_memory, free_later=_free_later)
