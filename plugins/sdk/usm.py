"""USM of all adapters: chains of descriptors, entry points, and checks of what they are given."""

from __future__ import annotations

import math
import mmap
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from ...loader.base.memory import is_readable
from ...loader.ur.abi import UR, URError
from ._native import ffi
from .adapter import Adapter
from .conversions import failure
from .families import EnqueueFamily

#: The first number that is too large for an address.
_END: Final = 1 << 8 * ffi.sizeof("void *")


def find_chained(descriptor: Any, stype: str, struct: str) -> Any:
    """Find a struct in the chain of a descriptor.

    Args:
        descriptor: a pointer to the descriptor, or None.
        stype: the name of the struct's ur_structure_type_t.

    Returns:
        A pointer to it, None if the chain has none.
    """
    seen: set[int] = set()
    address = descriptor.pNext if descriptor else 0
    while address:
        base = ffi.cast("ur_base_desc_t *", address)
        if base.stype == UR[stype]:
            return ffi.cast(f"{struct} *", address)
        if base.stype in seen:  # no struct may come twice, but a chain may be a ring
            return None
        seen.add(base.stype)
        address = base.pNext
    return None


def find_memory_descriptor(descriptor: Any, kind: str) -> Any:
    """Find a struct in the chain of a ur_usm_desc_t.

    Args:
        descriptor: a pointer to it, or None.
        kind: "host", "device" or "alloc_location".
    """
    stype = f"UR_STRUCTURE_TYPE_USM_{kind.upper()}_DESC"
    return find_chained(descriptor, stype, f"ur_usm_{kind}_desc_t")


def read_chained_flags(descriptor: Any, kind: str) -> int:
    """Return the flags of a struct in the chain of a ur_usm_desc_t, 0 without such a struct.

    Args:
        descriptor: a pointer to it, or None.
        kind: "host" or "device".

    Raises:
        URError: INVALID_ENUMERATION.
    """
    chained = find_memory_descriptor(descriptor, kind)
    flags = chained.flags if chained is not None else 0
    if flags & ~sum(UR.groups[f"ur_usm_{kind}_mem_flags_t"]):
        raise failure("INVALID_ENUMERATION", f"ur_usm_{kind}_mem_flags_t does not have {flags:#x}")
    return flags


class MemoryRequest(NamedTuple):
    """An allocation that is asked for: `size` bytes, aligned to `align` bytes (0: to anything)."""

    context: Any
    kind: str
    device: Any
    size: int
    align: int = 0


class AllocationObject:
    """Memory that is used by its address.

    Args:
        base: its first byte.
        imported: whether it is the program's own memory.

    Attributes:
        key: the key under which its pool keeps it.
        is_freed: whether the driver has freed it in the order of a queue.
    """

    is_freed = False

    def __init__(self, base: int, request: MemoryRequest, *, imported: bool = False) -> None:
        self.base, self.size, self.imported = base, request.size, imported
        self.kind, self.context, self.device = request.kind, request.context, request.device
        self.pool: Any = None
        self.key: Any = None

    @property
    def end(self) -> int:
        """Return the address of the first byte behind it."""
        return self.base + self.size


class AllocationList:
    """The allocations of a context, found by any address in them.

    It has no lock, because a garbage collection may free memory of the same thread in the middle of
    each method. Each step is one of CPython's own, which nothing interrupts.
    """

    def __init__(self) -> None:
        self._bases: list[int] = []  # in order
        self._by_base: dict[int, Any] = {}

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._by_base.values()))

    def __len__(self) -> int:
        return len(self._bases)

    def add(self, allocation: Any) -> Any:
        """Add an allocation, and return it."""
        self._by_base[allocation.base] = allocation
        insort(self._bases, allocation.base)
        return allocation

    def remove(self, address: int) -> Any:
        """Remove the allocation that begins at an address, and return it. It is not freed.

        Raises:
            URError: INVALID_MEM_OBJECT if none begins there.
        """
        found = self._by_base.pop(address, None)
        if found is None:
            raise _make_unknown_error()
        self._bases.remove(address)
        return found

    def find(self, address: int) -> Any:
        """Return the allocation that contains an address, None if there is none."""
        found = self._by_base.get(address)
        if found is None:
            bases = self._bases.copy()
            index = bisect_right(bases, address)
            found = self._by_base.get(bases[index - 1]) if index else None
        return found if found is not None and address < found.end else None


def _make_unknown_error() -> URError:
    return failure("INVALID_MEM_OBJECT", "no USM memory of the context begins there")


def add_known(allocation: Any) -> Any:
    """Add an allocation to the `allocations` of its context, and return it."""
    return allocation.context.allocations.add(allocation)


def find_known(context: Any, address: int) -> Any:
    """Return which of the `allocations` of a context contains an address, or None."""
    return context.allocations.find(address)


def remove_known(context: Any, address: int) -> Any:
    """Remove one of the `allocations` of a context. See `AllocationList.remove`."""
    return context.allocations.remove(address)


# what an adapter declares with functions of its own

#: The ur_usm_type_t of each kind.
USM_KINDS: Final = {
    kind: UR[f"UR_USM_TYPE_{kind.upper()}"] for kind in ("host", "device", "shared")
}


def declare_allocation(
    adapter: Adapter, allocate: Callable[..., int], line_of: Callable[[Any], int]
) -> None:
    """Declare the allocations of USM.

    Args:
        allocate: gets a context, "host", "device" or "shared", a device (None for host memory), a
            descriptor, a pool (both may be None), and bytes. It returns an address.
        line_of: returns the bytes of a device's cache line.
    """

    def allocate_host(hContext: Any, pUSMDesc: Any, pool: Any, size: int) -> int:
        return allocate(hContext, "host", None, pUSMDesc, pool, size)

    def allocate_on_device(hContext: Any, hDevice: Any, pUSMDesc: Any, pool: Any, size: int) -> int:
        return allocate(hContext, "device", hDevice, pUSMDesc, pool, size)

    def allocate_shared(hContext: Any, hDevice: Any, pUSMDesc: Any, pool: Any, size: int) -> int:
        return allocate(hContext, "shared", hDevice, pUSMDesc, pool, size)

    def allocate_rows(
        hContext: Any,
        hDevice: Any,
        pUSMDesc: Any,
        pool: Any,
        widthInBytes: int,
        height: int,
        elementSizeBytes: int,
    ) -> tuple[int, int]:
        """Allocate device memory whose rows begin at whole cache lines and whole elements."""
        step = math.lcm(line_of(hDevice), elementSizeBytes or 1)
        pitch = (widthInBytes + step - 1) // step * step
        return allocate(hContext, "device", hDevice, pUSMDesc, pool, pitch * height), pitch

    adapter.declare(
        urUSMHostAlloc=allocate_host,
        urUSMDeviceAlloc=allocate_on_device,
        urUSMSharedAlloc=allocate_shared,
        urUSMPitchedAllocExp=allocate_rows,
    )


class Allocator:
    """How an adapter allocates USM that is in the `allocations` of its context.

    Args:
        allocate: allocates what a request asks for.
        find_largest: returns the bytes of a device's largest allocation.
        has_kind: gets a device, and "host", "device" or "shared".
    """

    def __init__(
        self,
        allocate: Callable[[Any], Any],
        find_largest: Callable[[Any], int],
        has_kind: Callable[[Any, str], bool],
        kind_of_request: type[MemoryRequest] = MemoryRequest,
    ) -> None:
        self._allocate, self._find_largest = allocate, find_largest
        self._has_kind, self._kind_of_request = has_kind, kind_of_request

    def make_request(self, context: Any, kind: str, device: Any, descriptor: Any, size: int) -> Any:
        """Return what is asked for. Arguments and errors are those of `allocate`."""
        read_chained_flags(descriptor, "host")
        read_chained_flags(descriptor, "device")
        devices = (device,) if device is not None else context.devices
        if any(size > self._find_largest(one) for one in devices):
            raise failure("INVALID_USM_SIZE", f"{size} bytes")
        if not all(self._has_kind(one, kind) for one in devices):
            raise failure("INVALID_OPERATION", f"the device has no {kind} USM")
        align = descriptor.align if descriptor else 0
        return self._kind_of_request(context, kind, device, size, align)

    def allocate(
        self, context: Any, kind: str, device: Any, descriptor: Any, pool: Any, size: int
    ) -> int:
        """Allocate memory, and return its address.

        Args:
            kind: "host", "device" or "shared".
            device: its device, None for host memory.
            descriptor: a pointer to a ur_usm_desc_t, or None.
            pool: a `USMPool`, or None.
            size: bytes.

        Raises:
            URError: INVALID_USM_SIZE, INVALID_VALUE, or INVALID_OPERATION for a kind that the
                device does not have.
            CodeError: what the driver answers.
        """
        request = self.make_request(context, kind, device, descriptor, size)
        new = partial(self._allocate, request)
        return add_known(new() if pool is None else pool.take(request, new)).base


def declare_memory_query(adapter: Adapter, find: Callable[[Any, int], Any]) -> None:
    """Declare the query about an address.

    The answer is 0 to every question about memory that is not USM: its type is UNKNOWN.

    Args:
        find: gets a context and an address. It returns the allocation, or None.
    """

    def query(hContext: Any, pMem: int, propName: int) -> Any:
        found = find(hContext, pMem)
        if found is None:
            return 0
        pool = found.pool
        return {
            "UR_USM_ALLOC_INFO_TYPE": USM_KINDS[found.kind],
            "UR_USM_ALLOC_INFO_BASE_PTR": found.base,
            "UR_USM_ALLOC_INFO_SIZE": found.size,
            "UR_USM_ALLOC_INFO_DEVICE": found.device or 0,
            "UR_USM_ALLOC_INFO_POOL": pool if pool is not None and pool.references else 0,
        }.get(UR.groups["ur_usm_alloc_info_t"][propName])

    adapter.declare(urUSMGetMemAllocInfo=query)


def make_release(free: Callable[..., None]) -> Callable[..., None]:
    """Return a function that gives memory to its pool, or else to the driver.

    The function gets an allocation that was removed and that nothing uses.

    Args:
        free: gives an allocation back to the driver.
    """

    def release(allocation: Any, **how: Any) -> None:
        if allocation.pool is not None:
            allocation.pool.give(allocation)
        else:
            free(allocation, **how)

    return release


def declare_frees(
    enqueues: EnqueueFamily,
    *,
    drain: Callable[[Any], None],
    release: Callable[[Any], None],
    free_later: Callable[[Any, Any], Any],
    add: Callable[[Any], Any] = add_known,
    find: Callable[[Any, int], Any] = find_known,
    remove: Callable[[Any, int], Any] = remove_known,
) -> None:
    """Declare frees, at once and in a queue's order. The program's own memory is not freed.

    Args:
        enqueues: the family of the adapter's entry points.
        drain: waits for everything that may use memory of a context.
        release: frees an allocation that was removed and that nothing uses.
        free_later: gets the call and an allocation that was removed. It frees the allocation when
            the queue has come there, and returns the event.
        add: lets an allocation be known again, because `free_later` has failed.
        find: gets a context and an address. It returns the allocation, or None.
        remove: gets a context and an address. It returns the allocation, which is not known then.
    """

    def check(context: Any, address: int) -> Any:
        found = find(context, address)
        if found is None or found.base != address or found.imported:
            raise _make_unknown_error()
        return found

    def free(hContext: Any, pMem: int) -> None:
        check(hContext, pMem)
        drain(hContext)
        release(remove(hContext, pMem))

    def free_in_order(call: Any, pool: Any, address: int) -> Any:
        found = check(call.context, address)
        if pool is not None and found.pool is not pool:
            raise failure("INVALID_VALUE", "the memory is of another pool")
        allocation = remove(call.context, address)
        try:
            return free_later(call, allocation)
        except BaseException:
            if not allocation.is_freed:
                add(allocation)
            raise

    enqueues.adapter.declare(urUSMFree=free)
    enqueues.declare("urEnqueueUSMFreeExp", "ENQUEUE_USM_FREE_EXP", free_in_order, "pPool", "pMem")


def declare_imports(
    adapter: Adapter,
    *,
    locate: Callable[[Any, int, int], Any],
    take: Callable[[Any, int, int], None],
    forget: Callable[[Any, Any], None],
    find: Callable[[Any, int], Any] = find_known,
) -> None:
    """Declare how host memory that the program has allocated becomes USM.

    Args:
        locate: raises URError unless there is memory of some bytes at an address.
        take: gets a context, an address and bytes.
        forget: gets a context and an allocation that was taken.
        find: gets a context and an address. It returns the allocation, or None.
    """

    def import_memory(hContext: Any, pMem: int, size: int) -> None:
        if find(hContext, pMem) is not None:
            raise failure("INVALID_VALUE", "the memory is USM already")
        locate(hContext, pMem, size)
        take(hContext, pMem, size)

    def register(hContext: Any, pHostMem: int, size: int) -> None:
        if size % mmap.PAGESIZE or pHostMem % mmap.PAGESIZE:
            raise failure("INVALID_VALUE", "only whole pages can be registered")
        import_memory(hContext, pHostMem, size)

    def release(context: Any, address: int) -> None:
        found = find(context, address)
        if found is None or found.base != address or not found.imported or found.kind != "host":
            raise failure("INVALID_VALUE", "no imported memory begins there")
        forget(context, found)

    adapter.declare(
        urUSMImportExp=import_memory,
        urUSMReleaseExp=lambda hContext, pMem: release(hContext, pMem),
        urUSMHostAllocRegisterExp=register,
        urUSMHostAllocUnregisterExp=lambda hContext, pHostMem: release(hContext, pHostMem),
    )


# checks of transfers


def find_bytes(address: int, size: int, found: Any, find_foreign: Callable[[], Any]) -> Any:
    """Return the allocation of some bytes, None for host memory.

    Args:
        size: how many bytes.
        found: the allocation of the context that has the first byte, None if it knows none.
        find_foreign: returns what the driver knows of the address, or None.

    Raises:
        URError: INVALID_SIZE if an allocation ends before the bytes do. INVALID_MEM_OBJECT if there
            is no memory at the first or the last byte.
    """
    if address + size > _END:
        raise failure("INVALID_SIZE", f"{size} bytes from {address:#x} on")
    if found is None and not is_readable(address, size):
        found = find_foreign()
        if found is None:
            raise failure("INVALID_MEM_OBJECT", f"there is no memory at {address:#x}")
    if found is not None and address + size > found.end:
        raise failure(
            "INVALID_SIZE",
            f"{size} bytes from {address:#x} on, of an allocation that ends at {found.end:#x}",
        )
    return found


def check_rows_in(found: Any, address: int, pitch: int, width: int, height: int) -> None:
    """Check that rows lie in their allocation.

    Args:
        pitch: bytes from the beginning of a row to that of the next.
        width: bytes of a row.

    Raises:
        URError: INVALID_SIZE unless the rows with their pitch fit in all of it, and without the
            last pitch in what follows the address.
    """
    if pitch * height > found.size or address + pitch * (height - 1) + width > found.end:
        raise failure(
            "INVALID_SIZE", f"{height} rows of {pitch} bytes in an allocation of {found.size}"
        )
