"""USM: memory by address. Which of the ways in usm_strategies a context takes is the first that all its devices can go, or
the one that the environment variable FAIRLEAD_USM names (auto, intel, svm, buffer), which is read when a context first
needs memory.

For whoever launches kernels and records commands:

- `pointer_argument(context, address)` says which OpenCL call makes an address a kernel's argument: ("svm", address)
  clSetKernelArgSVMPointer, ("usm", address) clSetKernelArgMemPointerINTEL (`extensions.extension` has it), ("mem", cl_mem)
  clSetKernelArg with that cl_mem, 0 for NULL.
- `as_copy` and `as_fill` say which operation of the replay engine a transfer is. "svm_copy" and "svm_fill" have addresses,
  of plain host memory too; for intel the functions of `memory_functions` do them. Intel's CPU driver and PoCL take the
  addresses of all kinds of USM in clEnqueueSVMMemcpy, clEnqueueSVMMemFill and clSetKernelArgSVMPointer as well
  (tests/plugins/opencl/usm/test_usm.py), so that clCommandSVMMemcpyKHR can be used with them. With buffers they are "copy" and
  "fill" between buffers, and "read" and "write" where one side is host memory.
- `find` gives the allocation that an address lies in, `allocations` all of a context: what a kernel may reach that follows
  pointers in memory.

A free waits for the queues of the context, because a kernel may use any memory at all. Memory that is still allocated when
its context goes is not freed. (Unified Runtime, USM; EXP-USM-IMPORT-RELEASE; EXP-USM-CONTEXT-MEMCPY;
EXP-USM-HOST-ALLOC-REGISTER)
"""

from __future__ import annotations

import ctypes
import math
import mmap
import weakref
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from ....icd.command_buffer.commands import MemoryFunctions
from ....loader.base.memory import read
from ....loader.base.search import secure_environ
from ....loader.ur.abi import UR
from ...sdk._native import ffi
from ..contexts import URContext
from ..core import adapter, failure
from ..devices import URDevice
from ..queues import drain_queues
from .registry import add, allocations, find, foreign, free, is_unreachable, remove
from .strategies import STRATEGIES, Allocation, Buffers, Hints, Intel, Operation, Strategy

_SUPPORT: Final = {
    "UR_DEVICE_INFO_USM_HOST_SUPPORT": "host",
    "UR_DEVICE_INFO_USM_DEVICE_SUPPORT": "device",
    "UR_DEVICE_INFO_USM_SINGLE_SHARED_SUPPORT": "shared",
    "UR_DEVICE_INFO_USM_CROSS_SHARED_SUPPORT": "cross",
    "UR_DEVICE_INFO_USM_SYSTEM_SHARED_SUPPORT": "system",
}
_TOP: Final = 1 << 8 * ctypes.sizeof(ctypes.c_void_p)  # where addresses end
_KINDS: Final = {
    "host": UR["UR_USM_TYPE_HOST"],
    "device": UR["UR_USM_TYPE_DEVICE"],
    "shared": UR["UR_USM_TYPE_SHARED"],
}

#: Bytes. ur_api.h stops at the largest data type of the device, 128 bytes; SYCL programs ask for pages, and Intel's adapters give them.
_LARGEST_ALIGNMENT: Final = 1 << 21

# which strategy


def _wanted() -> list[type[Strategy]]:
    """The strategies that FAIRLEAD_USM leaves, the preferred first."""
    name = secure_environ().get("FAIRLEAD_USM", "").strip().lower()
    if name in STRATEGIES:
        return [STRATEGIES[name]]
    if name not in ("", "auto"):
        _complain(f"FAIRLEAD_USM={name} is ignored: it may be auto, {', '.join(STRATEGIES)}")
    return list(STRATEGIES.values())


@cache
def _complain(message: str) -> None:
    """Warn of it, once."""
    adapter.log("warning", message)


def strategy_of(context: URContext) -> type[Strategy] | None:
    """The strategy of a context, None if there is none that all its devices have."""
    if context.usm is None:
        fitting = (
            cls for cls in _wanted() if all(cls.support(device) for device in context.devices)
        )
        context.usm = (next(fitting, None),)
    return context.usm[0]


def support(device: URDevice) -> dict[str, int]:
    """What a device can do with each kind of USM: UR_DEVICE_INFO_USM_…_SUPPORT → ur_device_usm_access_capability_flags_t."""
    wanted = _wanted()
    found = next((found for found in (cls.support(device) for cls in wanted) if found), {})
    if not found and len(wanted) == 1:
        _complain(f"FAIRLEAD_USM={wanted[0].name} leaves {device.icd.name} without USM")
    return {name: found.get(kind, 0) for name, kind in _SUPPORT.items()}


# ranges


def locate(context: URContext, address: int, size: int) -> Allocation | None:
    """The allocation that bytes lie in; None for host memory. Raises URError: INVALID_SIZE if an allocation ends before
    they do, INVALID_MEM_OBJECT if there is no memory at their first or their last byte, or device memory of another context.
    """
    if address + size > _TOP:
        raise failure("INVALID_SIZE", f"{size} bytes from {address:#x} on")
    allocation = find(context, address)
    if allocation is None and is_unreachable(address):
        raise failure(
            "INVALID_MEM_OBJECT", f"the device memory at {address:#x} is of another context"
        )
    if allocation is None and not (read(address, 1) and read(address + size - 1, 1)):
        allocation = foreign(context, strategy_of(context), address)
        if allocation is None:
            raise failure("INVALID_MEM_OBJECT", f"there is no memory at {address:#x}")
    if allocation is not None and address + size > allocation.end:
        raise failure(
            "INVALID_SIZE",
            f"{size} bytes from {address:#x} on, of an allocation that ends at {allocation.end:#x}",
        )
    return allocation


# for launches and command-buffers


def pointer_argument(context: URContext, address: int) -> tuple[str, int]:
    """How an address becomes a kernel's argument. Raises URError (INVALID_VALUE, UNSUPPORTED_FEATURE) if it cannot."""
    strategy = strategy_of(context)
    if strategy is None:
        raise failure("INVALID_OPERATION", "the devices of the context have no USM")
    if not address and strategy is not Intel:  # NVIDIA's driver takes no NULL for SVM
        return "mem", 0
    if strategy is not Buffers:
        return strategy.argument, address
    allocation = find(context, address)
    if allocation is None:
        raise failure("INVALID_VALUE", "the address is in no USM memory of the context")
    return "mem", Buffers.part(allocation, address - allocation.base)


def memory_functions(context: URContext) -> MemoryFunctions:
    """The driver's functions for addresses where they are not those of SVM."""
    if strategy_of(context) is not Intel:
        return MemoryFunctions()
    routines = ("clSetKernelArgMemPointerINTEL", Intel.copy_routine, Intel.fill_routine)
    return MemoryFunctions(
        *(context.platform.icd.extension_function(routine) or 0 for routine in routines)
    )


def required_strategy(context: URContext) -> type[Strategy]:
    """The strategy of a context. Raises URError (INVALID_OPERATION) if it has none."""
    strategy = strategy_of(context)
    if strategy is None:
        raise failure("INVALID_OPERATION", "the devices of the context have no USM")
    return strategy


def as_copy(context: URContext, target: int, source: int, size: int) -> Operation:
    """A copy as an operation of the replay engine. Raises URError for a range that there is not."""
    to, at = locate(context, target, size), locate(context, source, size)
    return required_strategy(context).copy((target, to), (source, at), size)


def as_fill(
    context: URContext, address: int, pattern: Any, pattern_size: int, size: int
) -> Operation:
    """A fill as an operation of the replay engine. `pattern` leads to one that OpenCL takes, and is handed on as it is."""
    allocation = locate(context, address, size)
    return required_strategy(context).fill((address, allocation), pattern, pattern_size, size)


# allocation


def _chain(descriptor: Any) -> dict[int, Any]:
    """What hangs on a descriptor: stype → address."""
    found: dict[int, Any] = {}
    address = descriptor.pNext if descriptor else 0
    while address:
        base = ffi.cast("ur_base_desc_t *", address)
        if base.stype in found:  # nothing hangs there twice, and a chain may be a ring
            break
        found[base.stype] = address
        address = base.pNext
    return found


def _hints(descriptor: Any) -> Hints:
    """What a ur_usm_desc_t asks for. Raises URError (INVALID_ENUMERATION)."""
    chain = _chain(descriptor)
    if not chain:
        return Hints()

    def get(name: str, member: str) -> Any:
        address = chain.get(UR[f"UR_STRUCTURE_TYPE_USM_{name.upper()}_DESC"])
        return getattr(ffi.cast(f"ur_usm_{name}_desc_t *", address), member) if address else None

    host, device = get("host", "flags") or 0, get("device", "flags") or 0
    for value, group in ((host, "ur_usm_host_mem_flags_t"), (device, "ur_usm_device_mem_flags_t")):
        if value & ~sum(UR.groups[group]):
            raise failure("INVALID_ENUMERATION", group)
    return Hints(host, device, get("alloc_location", "location"))


def find_chained(descriptor: Any, stype: str, struct: str) -> Any:
    """The struct of a kind that hangs on a descriptor, None if there is none."""
    address = _chain(descriptor).get(UR[stype])
    return ffi.cast(f"{struct} *", address) if address else None


_limits: Final[weakref.WeakKeyDictionary[URDevice, tuple[int, int]]] = weakref.WeakKeyDictionary()


def limits(device: URDevice) -> tuple[int, int]:
    """The largest allocation of a device, and the size of its largest data type, in bytes."""
    found = _limits.get(device)
    if found is None:
        names = ("CL_DEVICE_MAX_MEM_ALLOC_SIZE", "CL_DEVICE_MIN_DATA_TYPE_ALIGN_SIZE")
        found = _limits[device] = (device.icd.info(names[0]), device.icd.info(names[1]) or 128)
    return found


def check_size(devices: Sequence[URDevice], size: int) -> None:
    """Raise URError (INVALID_USM_SIZE) for an allocation that a device cannot have."""
    if not size or any(size > limits(device)[0] for device in devices):
        raise failure("INVALID_USM_SIZE", f"{size} bytes")


def _check_descriptor(descriptor: Any, devices: Sequence[URDevice]) -> None:
    if not descriptor:
        return
    if descriptor.hints & ~sum(UR.groups["ur_usm_advice_flags_t"]):
        raise failure("INVALID_ENUMERATION", "ur_usm_advice_flags_t")
    align = descriptor.align
    if align & (align - 1) or align > _LARGEST_ALIGNMENT:
        raise failure(
            "INVALID_VALUE",
            f"an alignment of {align} bytes: it is a power of two up to {_LARGEST_ALIGNMENT}",
        )


def allocate(
    context: URContext, kind: str, device: URDevice | None, descriptor: Any, pool: Any, size: int
) -> int:
    """The address of new memory, from a pool of usm_pools or not. Raises URError, OpenCLError."""
    if device is not None:
        context.check_device(device)
    devices: Sequence[URDevice] = (device,) if device is not None else context.devices
    _check_descriptor(descriptor, devices)
    check_size(devices, size)
    strategy = required_strategy(context)
    if not all(strategy.support(one).get(kind) for one in devices):
        raise failure("INVALID_OPERATION", f"the device has no {kind} USM")
    align = descriptor.align if descriptor else 0
    hints = _hints(descriptor)

    most = min(limits(one)[1] for one in devices)

    def new() -> Allocation:
        if align <= most or strategy.aligns_freely:
            return strategy.allocate(context, kind, device, size, align, hints)
        return _padded(
            strategy.allocate(context, kind, device, size + align, 0, hints), size, align
        )

    return add(new() if pool is None else pool.take(context, kind, device, size, align, new)).base


def _padded(allocation: Allocation, size: int, align: int) -> Allocation:
    """An allocation of `align` bytes too many, from its first aligned address on."""
    allocation.padding = -allocation.base % align
    allocation.base += allocation.padding
    allocation.size = size
    return allocation


@adapter.entry
def urUSMHostAlloc(hContext: URContext, pUSMDesc: Any, pool: Any, size: int) -> int:
    return allocate(hContext, "host", None, pUSMDesc, pool, size)


@adapter.entry
def urUSMDeviceAlloc(
    hContext: URContext, hDevice: URDevice, pUSMDesc: Any, pool: Any, size: int
) -> int:
    return allocate(hContext, "device", hDevice, pUSMDesc, pool, size)


@adapter.entry
def urUSMSharedAlloc(
    hContext: URContext, hDevice: URDevice, pUSMDesc: Any, pool: Any, size: int
) -> int:
    return allocate(hContext, "shared", hDevice, pUSMDesc, pool, size)


@adapter.entry
def urUSMPitchedAllocExp(
    hContext: URContext,
    hDevice: URDevice,
    pUSMDesc: Any,
    pool: Any,
    widthInBytes: int,
    height: int,
    elementSizeBytes: int,
) -> tuple[int, int]:
    """Device memory whose rows begin at whole cache lines and whole elements."""
    if not widthInBytes or not height:
        raise failure("INVALID_USM_SIZE", f"{height} rows of {widthInBytes} bytes")
    line = hDevice.icd.info("CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE") or 64
    step = math.lcm(line, elementSizeBytes or 1)
    pitch = (widthInBytes + step - 1) // step * step
    return allocate(hContext, "device", hDevice, pUSMDesc, pool, pitch * height), pitch


def release_memory(allocation: Allocation, *, wait: bool = False) -> None:
    """Free what nothing uses any more: to its pool, or to the driver. Raises OpenCLError."""
    if allocation.pool is not None:
        allocation.pool.give(allocation)
    else:
        free(allocation, wait=wait)


@adapter.entry
def urUSMFree(hContext: URContext, pMem: int) -> None:
    allocation = find(hContext, pMem)
    if allocation is None or allocation.base != pMem or allocation.imported:
        raise failure("INVALID_MEM_OBJECT", "no USM memory of the context begins there")
    drain_queues(context=hContext)
    release_memory(remove(hContext, pMem), wait=True)


@adapter.entry
def urUSMGetMemAllocInfo(hContext: URContext, pMem: int, propName: int) -> Any:
    """All is 0 for memory that is no USM, its type UR_USM_TYPE_UNKNOWN."""
    found = find(hContext, pMem) or foreign(hContext, strategy_of(hContext), pMem)
    if found is None:
        return 0
    return {
        "UR_USM_ALLOC_INFO_TYPE": _KINDS[found.kind],
        "UR_USM_ALLOC_INFO_BASE_PTR": found.base,
        "UR_USM_ALLOC_INFO_SIZE": found.size,
        "UR_USM_ALLOC_INFO_DEVICE": found.device or 0,
        "UR_USM_ALLOC_INFO_POOL": found.pool
        if found.pool is not None and found.pool.references
        else 0,
    }.get(UR.groups["ur_usm_alloc_info_t"][propName])


# host memory that the program allocates itself


def _import(context: URContext, address: int, size: int) -> None:
    strategy = strategy_of(context)
    if strategy is None or not all(
        strategy.support(device).get("system") for device in context.devices
    ):
        raise failure(
            "UNSUPPORTED_FEATURE", "the devices use no memory but what is allocated for them"
        )
    if find(context, address) is not None:
        raise failure("INVALID_VALUE", "the memory is USM already")
    locate(context, address, size)
    add(Allocation(address, size, "host", context, None, strategy, imported=True))


def _release(context: URContext, address: int) -> None:
    allocation = find(context, address)
    if allocation is None or allocation.base != address or not allocation.imported:
        raise failure("INVALID_VALUE", "no memory that was made known begins there")
    drain_queues(context=context)
    remove(context, address)


@adapter.entry
def urUSMImportExp(hContext: URContext, pMem: int, size: int) -> None:
    if not size:
        raise failure("INVALID_SIZE", "there is nothing to import")
    _import(hContext, pMem, size)


@adapter.entry
def urUSMReleaseExp(hContext: URContext, pMem: int) -> None:
    _release(hContext, pMem)


@adapter.entry
def urUSMHostAllocRegisterExp(
    hContext: URContext, pHostMem: int, size: int, pProperties: Any
) -> None:
    if pProperties and pProperties.flags & ~sum(
        UR.groups["ur_exp_usm_host_alloc_register_flags_t"]
    ):
        raise failure("INVALID_ENUMERATION", "ur_exp_usm_host_alloc_register_flags_t")
    if not size or size % mmap.PAGESIZE or pHostMem % mmap.PAGESIZE:
        raise failure("INVALID_VALUE", "whole pages are registered")
    _import(hContext, pHostMem, size)


@adapter.entry
def urUSMHostAllocUnregisterExp(hContext: URContext, pHostMem: int) -> None:
    _release(hContext, pHostMem)


__all__ = [
    "Allocation",
    "Operation",
    "allocate",
    "allocations",
    "as_copy",
    "as_fill",
    "find",
    "memory_functions",
    "pointer_argument",
    "strategy_of",
    "support",
]
