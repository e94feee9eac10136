"""USM of CUDA and HIP, memory that is used by its address: allocated, freed, queried, imported from
the program.
"""

from __future__ import annotations

from typing import Final

from ..sdk.usm import (
    Allocator,
    add_known,
    declare_allocation,
    declare_imports,
    declare_memory_query,
    find_known,
    make_release,
)
from .allocations import CuAllocation, CuRequest, allocate, find_foreign, free, locate
from .contexts import CuContext
from .core import adapter, get_constant

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
