"""The strategies of USM: three ways in which drivers have memory that is used by its address.

| name | what it uses | kinds | a kernel's argument |
|---|---|---|---|
| intel | cl_intel_unified_shared_memory | all | clSetKernelArgMemPointerINTEL |
| svm | SVM of OpenCL 2.0 | device; with fine grain all | clSetKernelArgSVMPointer |
| buffer | buffers | device | clSetKernelArg with the buffer |

A context takes the first strategy that all its devices support. FAIRLEAD_USM names another: auto,
intel, svm or buffer. It is read when a context first needs memory.

`buffer` gives addresses from reserved ranges of the address space, which nobody can touch. So no
two allocations have the same address, and none has an address of host memory. An argument that
points into an allocation becomes a sub-buffer, which begins where CL_DEVICE_MEM_BASE_ADDR_ALIGN
lets it. Addresses that are stored in other memory lead nowhere. The other two strategies also take
addresses of plain host memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import weakref
from functools import cache
from typing import Any, Final

from ....icd.abi import OPENCL
from ....icd.errors import OpenCLError
from ....loader.base.forks import make_lock
from ....loader.base.operations import TransferCommand
from ....loader.base.search import filter_environ
from ....loader.ur.abi import UR
from ...sdk._native import lib
from ...sdk.transfers import Location
from ..buffers import create_part
from ..contexts import URContext
from ..core import adapter, check, create, failure
from ..devices import URDevice
from ..enqueue import Call
from ..platforms import find_extension
from .strategy import Allocation, AllocationRequest, CLMemory, Hints, Strategy

_libc: Final = ctypes.CDLL(None, use_errno=True)
# void *mmap(void *, size_t, int prot, int flags, int fd, off_t)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
# int munmap(void *, size_t)
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_PROT_NONE: Final = 0
_FAILED: Final = ctypes.c_void_p(-1).value


def _count_room(size: int) -> int:
    """Return the bytes of whole pages, and of one more.

    So the end of an allocation is not the beginning of another.
    """
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE + mmap.PAGESIZE


def reserve(size: int) -> int:
    """Reserve addresses that nobody else gets and nobody can touch. Return the first address.

    Args:
        size: bytes.

    Raises:
        MemoryError: the address space is full.
    """
    address = _libc.mmap(
        None, _count_room(size), _PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0
    )
    if address is None or address == _FAILED:
        raise MemoryError(f"the address space has no {size} free bytes")
    return address


def release_range(address: int, size: int) -> None:
    """Release addresses that `reserve` returned for `size` bytes."""
    _libc.munmap(address, _count_room(size))


_ACCESS, _ATOMIC, _CONCURRENT, _BOTH = (
    UR[f"UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_{name}"]
    for name in ("ACCESS", "ATOMIC_ACCESS", "CONCURRENT_ACCESS", "ATOMIC_CONCURRENT_ACCESS")
)
#: The hints that the extension knows: the field of `Hints`, the flag of Unified Runtime, OpenCL's.
_INTEL_FLAGS: Final = (
    ("host", "HOST_MEM_FLAG_INITIAL_PLACEMENT", "INITIAL_PLACEMENT_HOST"),
    ("device", "DEVICE_MEM_FLAG_INITIAL_PLACEMENT", "INITIAL_PLACEMENT_DEVICE"),
    ("device", "DEVICE_MEM_FLAG_WRITE_COMBINED", "WRITE_COMBINED"),
)
_INTEL_QUERIES: Final = {
    "host": "HOST_MEM",
    "device": "DEVICE_MEM",
    "shared": "SINGLE_DEVICE_SHARED_MEM",
    "cross": "CROSS_DEVICE_SHARED_MEM",
    "system": "SHARED_SYSTEM_MEM",
}
_INTEL_ALLOCATE: Final = {
    "host": "clHostMemAllocINTEL",
    "device": "clDeviceMemAllocINTEL",
    "shared": "clSharedMemAllocINTEL",
}
_INTEL_KINDS: Final = {
    OPENCL[f"CL_MEM_TYPE_{kind.upper()}_INTEL"]: kind for kind in _INTEL_ALLOCATE
}


class Intel(Strategy):
    """cl_intel_unified_shared_memory. The numbers of its capabilities are Unified Runtime's."""

    name, argument = "intel", "usm"
    copy_routine, fill_routine = "clEnqueueMemcpyINTEL", "clEnqueueMemFillINTEL"

    @staticmethod
    def ask(device: URDevice) -> dict[str, int]:
        if "cl_intel_unified_shared_memory" not in device.icd.extensions:
            return {}
        return {
            kind: device.icd.info(f"CL_DEVICE_{name}_CAPABILITIES_INTEL")
            for kind, name in _INTEL_QUERIES.items()
        }

    @classmethod
    def allocate(cls, request: AllocationRequest) -> Allocation:
        properties = cls._list_properties(request.context, request.hints)
        base, code = cls._allocate(request, properties)
        if code and properties is not None:  # not every driver knows every hint for every kind
            base, code = cls._allocate(request, None)
        check(code, _INTEL_ALLOCATE[request.kind])
        return request.make_allocation(base, cls)

    @staticmethod
    def _allocate(request: AllocationRequest, properties: Any) -> tuple[int, int]:
        """Return an address and an OpenCL code."""
        code, context = ctypes.c_int32(), request.context
        function = find_extension(context.platform, _INTEL_ALLOCATE[request.kind])
        devices = (request.device.cl,) if request.device is not None else ()
        arguments = (*devices, properties, request.size, request.align, ctypes.byref(code))
        return function(context.cl, *arguments), code.value

    @staticmethod
    def _list_properties(context: URContext, hints: Hints) -> Any:
        """Return a list of cl_mem_properties_intel, None if nothing is asked for."""
        bits = 0
        for group, name, opencl in _INTEL_FLAGS:
            if getattr(hints, group) & UR[f"UR_USM_{name}"]:
                bits |= OPENCL[f"CL_MEM_ALLOC_{opencl}_INTEL"]
        numbers = [OPENCL["CL_MEM_ALLOC_FLAGS_INTEL"], bits] if bits else []
        known = context.devices[0].icd.extensions
        if hints.location is not None and "cl_intel_mem_alloc_buffer_location" in known:
            numbers += [OPENCL["CL_MEM_ALLOC_BUFFER_LOCATION_INTEL"], hints.location]
        return (ctypes.c_uint64 * (len(numbers) + 1))(*numbers) if numbers else None

    @staticmethod
    def free(allocation: Allocation, *, wait: bool = False) -> None:
        routine = "clMemBlockingFreeINTEL" if wait else "clMemFreeINTEL"
        context = allocation.context
        check(
            find_extension(context.platform, routine)(context.cl, allocation.driver_base), routine
        )

    @staticmethod
    def foreign(context: URContext, address: int) -> Allocation | None:
        ask = find_extension(context.platform, "clGetMemAllocInfoINTEL")

        def query_number(name: str) -> int:
            value, size = ctypes.c_uint64(), ctypes.c_size_t()
            out = ctypes.sizeof(value), ctypes.byref(value), ctypes.byref(size)
            code = ask(context.cl, address, OPENCL[f"CL_MEM_ALLOC_{name}_INTEL"], *out)
            return value.value if code == 0 else 0

        kind = _INTEL_KINDS.get(query_number("TYPE"))
        if kind is None:
            return None
        cl = query_number("DEVICE")
        device = next((device for device in context.devices if device.cl == cl), None)
        base, size = query_number("BASE_PTR"), query_number("SIZE")
        return Allocation(base, size, kind, context, device, Intel)

    @staticmethod
    def migrate(allocation: Allocation, address: int, size: int, flags: int) -> Call | None:
        return "clEnqueueMigrateMemINTEL", (address, size, flags)


_svm_lock: Final = make_lock()


def _lock_if_needed(context: URContext) -> contextlib.AbstractContextManager[Any]:
    """Return a lock if the driver allows only one thread at a time in clSVMAlloc and clSVMFree."""
    needed = context.platform.profile.svm_needs_lock
    return _svm_lock if needed else contextlib.nullcontext()


class SVM(Strategy):
    """Shared virtual memory.

    With coarse grain alone there is only device memory, because the host would have to map other
    kinds.
    """

    name, argument = "svm", "svm"
    copy_routine, fill_routine = "clEnqueueSVMMemcpy", "clEnqueueSVMMemFill"

    @staticmethod
    def ask(device: URDevice) -> dict[str, int]:
        if not device.has((2, 0)):
            return {}
        bits = device.icd.info("CL_DEVICE_SVM_CAPABILITIES")

        def has(name: str) -> bool:
            return bool(bits & OPENCL[f"CL_DEVICE_SVM_{name}"])

        if not (has("COARSE_GRAIN_BUFFER") or has("FINE_GRAIN_BUFFER")):
            return {}
        fine = _ACCESS | _ATOMIC | _CONCURRENT | (_BOTH if has("ATOMICS") else 0)
        shared = fine if has("FINE_GRAIN_BUFFER") else 0
        return {
            **dict.fromkeys(("host", "shared", "cross"), shared),
            "device": _ACCESS | _ATOMIC,
            "system": fine if has("FINE_GRAIN_SYSTEM") else 0,
        }

    @classmethod
    def allocate(cls, request: AllocationRequest) -> Allocation:
        context, bits = request.context, OPENCL["CL_MEM_READ_WRITE"]
        if request.kind != "device":
            bits = find_svm_flags(context)
        with _lock_if_needed(context):
            base = context.table.clSVMAlloc(context.cl, bits, request.size, request.align)
        if not base:  # clSVMAlloc has no code to return
            code = "OUT_OF_HOST_MEMORY" if request.kind == "host" else "OUT_OF_RESOURCES"
            raise failure(code, f"clSVMAlloc of {request.size} bytes")
        return request.make_allocation(base, cls)

    @classmethod
    def view_as_buffer(cls, allocation: Allocation) -> CLMemory | None:
        """Return a cl_mem that uses the memory, if the host may not use its address.

        Commands for images take addresses that the host may use. NVIDIA's driver takes the address
        of other memory, too, and copies to nowhere.
        """
        context = allocation.context
        shares = all(cls.support(device).get("shared") for device in context.devices)
        if shares or allocation.imported:
            return None
        if allocation.view is None:
            bits = OPENCL["CL_MEM_READ_WRITE"] | OPENCL["CL_MEM_USE_HOST_PTR"]
            given = context.cl, bits, allocation.size + allocation.padding, allocation.driver_base
            made = create(context.table, "clCreateBuffer", *given)
            allocation.view = CLMemory(made, context.table)
        return allocation.view

    @staticmethod
    def free(allocation: Allocation, *, wait: bool = False) -> None:
        allocation.view = None
        with _lock_if_needed(allocation.context):
            allocation.context.table.clSVMFree(allocation.context.cl, allocation.driver_base)

    @staticmethod
    def migrate(allocation: Allocation, address: int, size: int, flags: int) -> Call | None:
        if allocation.context.platform.icd.version_number < (2, 1) or allocation.imported:
            return None
        ranges = (ctypes.c_void_p * 1)(address), (ctypes.c_size_t * 1)(size)
        return "clEnqueueSVMMigrateMem", (1, *ranges, flags)


def find_svm_flags(context: URContext) -> int:
    """Return the cl_svm_mem_flags of memory in a context that the host uses, too."""
    bits = OPENCL["CL_MEM_READ_WRITE"] | OPENCL["CL_MEM_SVM_FINE_GRAIN_BUFFER"]
    if all(SVM.support(one).get("shared", 0) & _BOTH for one in context.devices):
        bits |= OPENCL["CL_MEM_SVM_ATOMICS"]
    return bits


class Buffers(Strategy):
    """Plain buffers. Their addresses are only names."""

    name, argument, aligns_freely = "buffer", "mem", True

    @staticmethod
    def ask(device: URDevice) -> dict[str, int]:
        return {"host": 0, "device": _ACCESS | _ATOMIC, "shared": 0, "cross": 0, "system": 0}

    @classmethod
    def allocate(cls, request: AllocationRequest) -> Allocation:
        context, bits = request.context, OPENCL["CL_MEM_READ_WRITE"]
        cl = create(context.table, "clCreateBuffer", context.cl, bits, request.size, None)
        memory = CLMemory(cl, context.table)
        room = request.size + request.align
        start = reserve(room)
        base = start + -start % max(request.align, 1)
        allocation = request.make_allocation(base, cls, memory=memory)
        weakref.finalize(allocation, release_range, start, room).atexit = False
        return allocation

    @staticmethod
    def free(allocation: Allocation, *, wait: bool = False) -> None:
        """Drop the buffer, which a command-buffer may still hold.

        The reserved range is released with the allocation.
        """
        allocation.parts.clear()
        allocation.memory = None

    @classmethod
    def copy(cls, target: Location, source: Location, size: int) -> TransferCommand:
        to, at = target.allocation, source.allocation
        here, there = source.offset, target.offset
        if to is not None and at is not None:
            places = {"source_offset": here, "target_offset": there, "size": size}
            operands = {"source": at.mem, "target": to.mem, **places}
            return TransferCommand("copy", operands, (at.memory, to.memory))
        if at is not None:
            operands = {"source": at.mem, "target": target.address, "offset": here, "size": size}
            return TransferCommand("read", operands, (at.memory,))
        if to is not None:
            operands = {"source": source.address, "target": to.mem, "offset": there, "size": size}
            return TransferCommand("write", operands, (to.memory,))
        raise failure(
            "UNSUPPORTED_FEATURE",
            "a driver that has only buffers moves nothing from host memory to host memory",
        )

    @classmethod
    def fill(cls, target: Location, pattern: Any, pattern_size: int, size: int) -> TransferCommand:
        to = target.allocation
        assert to is not None  # `addresses.can_fill`
        pattern_operands = {"pattern": pattern, "pattern_size": pattern_size}
        operands = {"target": to.mem, **pattern_operands, "offset": target.offset, "size": size}
        return TransferCommand("fill", operands, (to.memory,))

    @staticmethod
    def get_part(allocation: Allocation, offset: int) -> int:
        """Return the cl_mem that begins at an offset in bytes.

        Raises:
            URError: UNSUPPORTED_FEATURE where no sub-buffer can begin.
        """
        if not offset:
            return allocation.mem
        if offset not in allocation.parts:
            assert allocation.memory is not None
            try:
                cl = create_part(allocation.memory, offset, allocation.size - offset)
            except OpenCLError as error:
                if error.code != "CL_MISALIGNED_SUB_BUFFER_OFFSET":
                    raise
                raise failure(
                    "UNSUPPORTED_FEATURE",
                    f"no buffer of this device begins {offset} bytes into another",
                ) from error
            # Another thread may have been quicker.
            allocation.parts.setdefault(offset, CLMemory(cl, allocation.context.table))
        return allocation.parts[offset].cl

    @staticmethod
    def migrate(allocation: Allocation, address: int, size: int, flags: int) -> Call | None:
        return "clEnqueueMigrateMemObjects", (1, (ctypes.c_void_p * 1)(allocation.mem), flags)


#: The strategies by their names, the preferred one first.
STRATEGIES: Final[dict[str, type[Strategy]]] = {cls.name: cls for cls in (Intel, SVM, Buffers)}

_SUPPORT: Final = {
    "UR_DEVICE_INFO_USM_HOST_SUPPORT": "host",
    "UR_DEVICE_INFO_USM_DEVICE_SUPPORT": "device",
    "UR_DEVICE_INFO_USM_SINGLE_SHARED_SUPPORT": "shared",
    "UR_DEVICE_INFO_USM_CROSS_SHARED_SUPPORT": "cross",
    "UR_DEVICE_INFO_USM_SYSTEM_SHARED_SUPPORT": "system",
}


#: The strategies whose transfers C makes.
_IN_C: Final[dict[Any, int]] = {Intel: lib.FL_USM_INTEL, SVM: lib.FL_USM_SVM}


def _list_allowed_strategies() -> list[type[Strategy]]:
    """Return the strategies that FAIRLEAD_USM allows, the preferred one first."""
    name = filter_environ().get("FAIRLEAD_USM", "").strip().lower()
    if name in STRATEGIES:
        return [STRATEGIES[name]]
    if name not in ("", "auto"):
        _warn_once(f"FAIRLEAD_USM={name} is ignored: it may be auto, {', '.join(STRATEGIES)}")
    return list(STRATEGIES.values())


@cache
def _warn_once(message: str) -> None:
    adapter.log("warning", message)


def find_strategy(context: URContext) -> type[Strategy] | None:
    """Return the strategy of a context, None if its devices support none in common."""
    if context.usm is None:
        allowed = _list_allowed_strategies()
        fitting = (cls for cls in allowed if all(map(cls.support, context.devices)))
        context.usm = (next(fitting, None),)
        context.struct.usm = _IN_C.get(context.usm[0], lib.FL_USM_OTHER)
    return context.usm[0]


def require_strategy(context: URContext) -> type[Strategy]:
    """Return the strategy of a context.

    Raises:
        URError: INVALID_OPERATION if it has none.
    """
    strategy = find_strategy(context)
    if strategy is None:
        raise failure("INVALID_OPERATION", "the devices of the context have no USM")
    return strategy


def can_use_host_memory(context: URContext) -> bool:
    """Return whether kernels and fills take any memory of the program (SPEC 5.6: system SVM)."""
    strategy = find_strategy(context)
    return strategy is not None and all(
        strategy.support(device).get("system") for device in context.devices
    )


def query_support(device: URDevice) -> dict[str, int]:
    """Return what a device can do with each kind of USM.

    Returns:
        UR_DEVICE_INFO_USM_…_SUPPORT with the ur_device_usm_access_capability_flags_t.
    """
    allowed = _list_allowed_strategies()
    found = next(filter(None, (cls.support(device) for cls in allowed)), {})
    if not found and len(allowed) == 1:
        _warn_once(f"FAIRLEAD_USM={allowed[0].name} leaves {device.icd.name} without USM")
    return {name: found.get(kind, 0) for name, kind in _SUPPORT.items()}
