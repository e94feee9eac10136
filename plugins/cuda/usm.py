"""USM of CUDA and HIP, memory that is used by its address: allocated, freed, queried, imported from
the program.
"""

from __future__ import annotations

from typing import Any

from ..sdk.usm import (
    check_descriptor,
    declare_allocation,
    declare_imports,
    declare_memory_query,
)
from .allocations import (
    CuAllocation,
    CuRequest,
    add,
    allocate,
    find,
    find_foreign,
    free,
    locate,
    remove,
)
from .contexts import CuContext
from .core import adapter, failure, get_constant
from .devices import CuDevice


def make_request(
    context: CuContext, kind: str, device: CuDevice | None, descriptor: Any, size: int
) -> CuRequest:
    """Return what is asked for. Arguments and errors are those of `allocate_usm`."""
    if descriptor:
        check_descriptor(descriptor)
    devices = (device,) if device is not None else context.devices
    if not size or any(size > one.found.memory for one in devices):
        raise failure("INVALID_USM_SIZE", f"{size} bytes")
    if kind == "shared" and not all(one.query_attribute("MANAGED_MEMORY") for one in devices):
        raise failure("INVALID_OPERATION", "the device has no shared USM")
    align = descriptor.align if descriptor else 0
    return CuRequest(context, kind, device, size, align)


def allocate_usm(
    context: CuContext, kind: str, device: CuDevice | None, descriptor: Any, pool: Any, size: int
) -> int:
    """Allocate memory, and register it.

    Args:
        kind: "host", "device" or "shared".
        device: its device, None for host memory.
        descriptor: a pointer to a ur_usm_desc_t, or None.
        pool: a `CuPool`, or None.
        size: bytes.

    Returns:
        The address.

    Raises:
        URError: INVALID_USM_SIZE, INVALID_VALUE, or INVALID_OPERATION for a kind
            that the device does not have.
        DriverError: what the driver answers.
    """
    request = make_request(context, kind, device, descriptor, size)
    made = allocate(request) if pool is None else pool.take(request, lambda: allocate(request))
    return add(made).base


def release_memory(allocation: CuAllocation) -> None:
    """Give memory that was removed from the registry to its pool, or else to the driver.

    Raises:
        DriverError: what the driver answers.
    """
    if allocation.pool is not None:
        allocation.pool.give(allocation)
    else:
        free(allocation)


declare_allocation(adapter, allocate_usm, lambda device: 128)


def check_allocated(context: CuContext, address: int) -> None:
    """Raise URError (INVALID_MEM_OBJECT) unless memory that the adapter allocated begins there."""
    found = find(context, address)
    if found is None or found.base != address or found.imported:
        raise failure("INVALID_MEM_OBJECT", "no USM memory of the context begins there")


@adapter.entry
def urUSMFree(hContext: CuContext, pMem: int) -> None:
    check_allocated(hContext, pMem)
    hContext.drain()
    release_memory(remove(hContext, pMem))


declare_memory_query(
    adapter, lambda context, address: find(context, address) or find_foreign(context, address)
)


# host memory that the program allocates itself


def _import_memory(context: CuContext, address: int, size: int) -> None:
    if find(context, address) is not None:
        raise failure("INVALID_VALUE", "the memory is USM already")
    locate(context, address, size)
    context.device.call(
        "MemHostRegister", address, size, get_constant("CU_MEMHOSTREGISTER_PORTABLE")
    )
    add(CuAllocation(address, CuRequest(context, "host", None, size), imported=True))


def _forget_imported(context: CuContext, address: int) -> None:
    found = find(context, address)
    is_ours = found is not None and found.imported and found.kind == "host"
    if found is None or found.base != address or not is_ours:
        raise failure("INVALID_VALUE", "no imported memory begins there")
    context.drain()
    remove(context, address)
    context.device.call("MemHostUnregister", address)


declare_imports(adapter, _import_memory, _forget_imported)
