"""USM of the adapter on Level Zero: allocated, freed, queried, imported. pools.py has the pools."""

from __future__ import annotations

from typing import Any, Final

from ..sdk.usm import (
    MemoryRequest,
    add_known,
    check_descriptor,
    declare_allocation,
    declare_imports,
    declare_memory_query,
    find_known,
)
from .allocations import allocate, forget_imported, import_memory, locate
from .contexts import LZContext
from .core import adapter, failure
from .devices import LZDevice

_SUPPORT: Final = {
    "host": "hostAllocCapabilities",
    "device": "deviceAllocCapabilities",
    "shared": "sharedSingleDeviceAllocCapabilities",
}


def allocate_usm(
    context: LZContext,
    kind: str,
    device: LZDevice | None,
    descriptor: Any,
    pool: Any,
    size: int,
) -> int:
    """Allocate memory, and register it.

    Args:
        kind: "host", "device" or "shared".
        device: its device, None for host memory.
        descriptor: a pointer to a ur_usm_desc_t, or None.
        pool: a `LZPool`, or None.
        size: bytes.

    Returns:
        The address.

    Raises:
        URError: INVALID_USM_SIZE, INVALID_VALUE, or INVALID_OPERATION for a kind
            that the device does not have.
        LevelZeroError: what the driver answers.
    """
    if descriptor:
        check_descriptor(descriptor)
    align = descriptor.align if descriptor else 0
    devices = (device,) if device is not None else context.devices
    if not size or any(size > one.properties.maxMemAllocSize for one in devices):
        raise failure("INVALID_USM_SIZE", f"{size} bytes")
    if not all(getattr(one.access, _SUPPORT[kind]) for one in devices):
        raise failure("INVALID_OPERATION", f"the device has no {kind} USM")
    request = MemoryRequest(context, kind, device, size, align)
    made = allocate(request) if pool is None else pool.take(request, lambda: allocate(request))
    return add_known(made).base


declare_allocation(adapter, allocate_usm, lambda device: 64)


declare_memory_query(adapter, find_known)
declare_imports(adapter, locate=locate, take=import_memory, forget=forget_imported)
