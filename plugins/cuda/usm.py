"""USM of CUDA and HIP, memory that is used by its address: allocated, freed, queried, imported from
the program.
"""

from __future__ import annotations

from typing import Any, Final

from ..sdk.usm import (
    add_known,
    check_descriptor,
    declare_allocation,
    declare_imports,
    declare_memory_query,
    find_known,
    make_release,
)
from .allocations import (
    CuAllocation,
    CuRequest,
    allocate,
    find_foreign,
    free,
    locate,
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
    return add_known(made).base


#: Gives memory that was removed to its pool, or else to the driver. It raises DriverError.
release_memory: Final = make_release(free)
declare_allocation(adapter, allocate_usm, lambda device: 128)


declare_memory_query(
    adapter,
    lambda context, address: find_known(context, address) or find_foreign(context, address),
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
