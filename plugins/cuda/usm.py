"""USM, memory that is used by its address: allocated, freed, queried, imported from the program."""

from __future__ import annotations

import math
import mmap
from typing import Any

from ...loader.ur.abi import UR
from ..sdk.rules import check_flags
from ..sdk.usm import check_descriptor
from .allocations import (
    KINDS,
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
from .core import adapter, constant, failure
from .devices import CuDevice


def allocate_usm(
    context: CuContext, kind: str, device: CuDevice | None, descriptor: Any, pool: Any, size: int
) -> int:
    """Allocate memory, and register it.

    Args:
        context: its context.
        kind: "host", "device" or "shared".
        device: its device, None for host memory.
        descriptor: a pointer to a ur_usm_desc_t, or None.
        pool: a `CuPool`, or None.
        size: bytes.

    Returns:
        The address.

    Raises:
        URError: INVALID_USM_SIZE, INVALID_VALUE, INVALID_DEVICE, or INVALID_OPERATION for a kind
            that the device does not have.
        DriverError: what the driver answers.
    """
    if device is not None:
        context.check_device(device)
    if descriptor:
        check_descriptor(descriptor)
    devices = (device,) if device is not None else context.devices
    if not size or any(size > one.found.memory for one in devices):
        raise failure("INVALID_USM_SIZE", f"{size} bytes")
    if kind == "shared" and not all(one.attribute("MANAGED_MEMORY") for one in devices):
        raise failure("INVALID_OPERATION", "the device has no shared USM")
    align = descriptor.align if descriptor else 0
    request = CuRequest(context, kind, device, size, align)
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


@adapter.entry
def urUSMHostAlloc(hContext: CuContext, pUSMDesc: Any, pool: Any, size: int) -> int:
    return allocate_usm(hContext, "host", None, pUSMDesc, pool, size)


@adapter.entry
def urUSMDeviceAlloc(
    hContext: CuContext, hDevice: CuDevice, pUSMDesc: Any, pool: Any, size: int
) -> int:
    return allocate_usm(hContext, "device", hDevice, pUSMDesc, pool, size)


@adapter.entry
def urUSMSharedAlloc(
    hContext: CuContext, hDevice: CuDevice, pUSMDesc: Any, pool: Any, size: int
) -> int:
    return allocate_usm(hContext, "shared", hDevice, pUSMDesc, pool, size)


@adapter.entry
def urUSMPitchedAllocExp(
    hContext: CuContext,
    hDevice: CuDevice,
    pUSMDesc: Any,
    pool: Any,
    widthInBytes: int,
    height: int,
    elementSizeBytes: int,
) -> tuple[int, int]:
    """Allocate device memory whose rows begin at whole cache lines and whole elements."""
    if not widthInBytes or not height:
        raise failure("INVALID_USM_SIZE", f"{height} rows of {widthInBytes} bytes")
    step = math.lcm(128, elementSizeBytes or 1)
    pitch = (widthInBytes + step - 1) // step * step
    return allocate_usm(hContext, "device", hDevice, pUSMDesc, pool, pitch * height), pitch


@adapter.entry
def urUSMFree(hContext: CuContext, pMem: int) -> None:
    found = find(hContext, pMem)
    if found is None or found.base != pMem or found.imported:
        raise failure("INVALID_MEM_OBJECT", "no USM memory of the context begins there")
    hContext.drain()
    release_memory(remove(hContext, pMem))


@adapter.entry
def urUSMGetMemAllocInfo(hContext: CuContext, pMem: int, propName: int) -> Any:
    """Answer 0 to every query about memory that is not USM: its type is UR_USM_TYPE_UNKNOWN."""
    found = find(hContext, pMem) or find_foreign(hContext, pMem)
    if found is None:
        return 0
    pool = found.pool
    return {
        "UR_USM_ALLOC_INFO_TYPE": KINDS[found.kind],
        "UR_USM_ALLOC_INFO_BASE_PTR": found.base,
        "UR_USM_ALLOC_INFO_SIZE": found.size,
        "UR_USM_ALLOC_INFO_DEVICE": found.device or 0,
        "UR_USM_ALLOC_INFO_POOL": pool if pool is not None and pool.references else 0,
    }.get(UR.groups["ur_usm_alloc_info_t"][propName])


# host memory that the program allocates itself


def _import_memory(context: CuContext, address: int, size: int) -> None:
    if find(context, address) is not None:
        raise failure("INVALID_VALUE", "the memory is USM already")
    locate(context, address, size)
    context.device.call("MemHostRegister", address, size, constant("CU_MEMHOSTREGISTER_PORTABLE"))
    add(CuAllocation(address, CuRequest(context, "host", None, size), imported=True))


def _forget_imported(context: CuContext, address: int) -> None:
    found = find(context, address)
    if found is None or found.base != address or not found.imported or found.access is not None:
        raise failure("INVALID_VALUE", "no imported memory begins there")
    context.drain()
    remove(context, address)
    context.device.call("MemHostUnregister", address)


@adapter.entry
def urUSMImportExp(hContext: CuContext, pMem: int, size: int) -> None:
    if not size:
        raise failure("INVALID_SIZE", "there is nothing to import")
    _import_memory(hContext, pMem, size)


@adapter.entry
def urUSMReleaseExp(hContext: CuContext, pMem: int) -> None:
    _forget_imported(hContext, pMem)


@adapter.entry
def urUSMHostAllocRegisterExp(
    hContext: CuContext, pHostMem: int, size: int, pProperties: Any
) -> None:
    if pProperties:
        check_flags(pProperties.flags, "ur_exp_usm_host_alloc_register_flags_t")
    if not size or size % mmap.PAGESIZE or pHostMem % mmap.PAGESIZE:
        raise failure("INVALID_VALUE", "only whole pages can be registered")
    _import_memory(hContext, pHostMem, size)


@adapter.entry
def urUSMHostAllocUnregisterExp(hContext: CuContext, pHostMem: int) -> None:
    _forget_imported(hContext, pHostMem)
