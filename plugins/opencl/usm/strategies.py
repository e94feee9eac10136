"""The three ways in which a driver can have memory that is used by its address, as one class each; `STRATEGIES` is the
order of preference.

| name | what it stands on | kinds | an address in a kernel | transfers |
|---|---|---|---|---|
| intel | cl_intel_unified_shared_memory | what the device says | clSetKernelArgMemPointerINTEL | clEnqueueMem…INTEL |
| svm | SVM of OpenCL 2.0 | device; with fine grain host and shared too | clSetKernelArgSVMPointer | clEnqueueSVMMem… |
| buffer | nothing but buffers | device | clSetKernelArg with the buffer | those of buffers |

`buffer` gives addresses out of ranges of the address space that are reserved and cannot be touched, so that no two
allocations have the same one and none is that of host memory. A kernel's argument that leads into the middle of an
allocation is a sub-buffer, which begins where CL_DEVICE_MEM_BASE_ADDR_ALIGN lets it; addresses inside other memory lead
nowhere. The other two know plain host memory as well as their own.
"""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple

from ....icd.abi import OPENCL
from ....icd.errors import OpenCLError
from ....loader.base.forks import new_lock
from ....loader.ur.abi import UR
from ..buffers import create_part
from ..contexts import URContext
from ..core import CLObject, check, create, failure
from ..devices import URDevice
from ..extensions import extension
from ..queues import URQueue
from ..reserved import release_range, reserve

_ACCESS, _ATOMIC, _CONCURRENT, _BOTH = (
    UR[f"UR_DEVICE_USM_ACCESS_CAPABILITY_FLAG_{name}"]
    for name in ("ACCESS", "ATOMIC_ACCESS", "CONCURRENT_ACCESS", "ATOMIC_CONCURRENT_ACCESS")
)


class CLMemory(CLObject):
    """A cl_mem behind an address, or a part of it; given up when neither an allocation nor a command-buffer holds it."""

    type = ""
    release, retain_function = "clReleaseMemObject", "clRetainMemObject"


@dataclass(eq=False)
class Allocation:
    """Memory from `base` on, `size` bytes. `kind` is "host", "device" or "shared"; `device` is None for host memory,
    `pool` one of usm_pools or None.

    `memory` is the cl_mem behind it where there is one, `parts` are the sub-buffers that kernels were given, by their
    offset.
    """

    base: int
    size: int
    kind: str
    context: URContext
    device: URDevice | None
    strategy: type[Strategy]
    pool: Any = None
    memory: CLMemory | None = None
    parts: dict[int, CLMemory] = field(default_factory=dict)
    imported: bool = False  # the program's own memory: there is nothing to free
    padding: int = 0  # bytes before `base` that the driver allocated too
    key: Any = None  # what its pool knows it by

    @property
    def end(self) -> int:
        """The address of the first byte after it."""
        return self.base + self.size

    @property
    def driver_base(self) -> int:
        """The address that the driver knows it by."""
        return self.base - self.padding

    @property
    def mem(self) -> int:
        """The cl_mem behind it, 0 if there is none."""
        return self.memory.cl if self.memory is not None else 0


class Operation(NamedTuple):
    """A transfer as the replay engine has it: `op` is one of icd.capture.OPS, `numbers` are `fl_command.n`, `fields` its
    pointers.

    `keep` are objects that have to live as long as the operation may run.
    """

    op: str
    numbers: tuple[int, ...]
    fields: dict[str, Any]
    keep: tuple[Any, ...] = ()


_support: Final[weakref.WeakKeyDictionary[URDevice, dict[type[Strategy], dict[str, int]]]] = (
    weakref.WeakKeyDictionary()
)


class Strategy:
    """What the three have in common: memory that the driver knows by its address. There are no instances."""

    name: ClassVar[str]
    aligns_freely: ClassVar[bool] = False  # whether `allocate` takes every alignment
    argument: ClassVar[str]  # which setter a kernel's argument takes: usm.pointer_argument
    copy_routine: ClassVar[str]
    fill_routine: ClassVar[str]

    @classmethod
    def support(cls, device: URDevice) -> dict[str, int]:
        """Kind → ur_device_usm_access_capability_flags_t, for "host", "device", "shared", "cross" and "system"; empty: the
        device cannot.
        """
        known = _support.setdefault(device, {})
        if cls not in known:
            known[cls] = cls.ask(device)
        return known[cls]

    @staticmethod
    def ask(device: URDevice) -> dict[str, int]:
        """What the device says, for `support`."""
        raise NotImplementedError

    @classmethod
    def allocate(
        cls,
        context: URContext,
        kind: str,
        device: URDevice | None,
        size: int,
        align: int,
        hints: Hints,
    ) -> Allocation:
        """New memory. Raises OpenCLError, URError (OUT_OF_RESOURCES)."""
        raise NotImplementedError

    @staticmethod
    def free(allocation: Allocation, *, wait: bool = False) -> None:
        """Give the memory back: nothing uses it any more, as far as we know. `wait`: the driver may wait until it knows so
        too. Raises OpenCLError.
        """
        raise NotImplementedError

    @staticmethod
    def foreign(context: URContext, address: int) -> Allocation | None:
        """What the driver knows of memory that was allocated without us, by interoperation."""
        return None

    @classmethod
    def copy(
        cls, target: tuple[int, Allocation | None], source: tuple[int, Allocation | None], size: int
    ) -> Operation:
        """A copy between two addresses, each with the allocation that it is in. Raises URError (UNSUPPORTED_FEATURE) if it
        is no single operation.
        """
        return Operation("svm_copy", (size,), {"target": target[0], "source": source[0]})

    @classmethod
    def fill(
        cls, target: tuple[int, Allocation | None], pattern: Any, pattern_size: int, size: int
    ) -> Operation:
        """A fill with a pattern of a size that OpenCL takes; `pattern` leads to it."""
        return Operation(
            "svm_fill",
            (0, size),
            {"target": target[0], "pattern": pattern, "pattern_size": pattern_size},
        )

    @staticmethod
    def migrate(
        queue: URQueue, allocation: Allocation, address: int, size: int, to_host: bool
    ) -> tuple[str, tuple[Any, ...]] | None:
        """The command that moves memory to the queue's device or to the host, None if there is none."""
        return None


class Hints(NamedTuple):
    """What a program would like of an allocation: ur_usm_host_mem_flags_t, ur_usm_device_mem_flags_t, a memory bank."""

    host: int = 0
    device: int = 0
    location: int | None = None


_INTEL_FLAGS: Final = (
    ("host", "UR_USM_HOST_MEM_FLAG_INITIAL_PLACEMENT", "CL_MEM_ALLOC_INITIAL_PLACEMENT_HOST_INTEL"),
    (
        "device",
        "UR_USM_DEVICE_MEM_FLAG_INITIAL_PLACEMENT",
        "CL_MEM_ALLOC_INITIAL_PLACEMENT_DEVICE_INTEL",
    ),
    ("device", "UR_USM_DEVICE_MEM_FLAG_WRITE_COMBINED", "CL_MEM_ALLOC_WRITE_COMBINED_INTEL"),
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
    def allocate(
        cls,
        context: URContext,
        kind: str,
        device: URDevice | None,
        size: int,
        align: int,
        hints: Hints,
    ) -> Allocation:
        where = (device.cl,) if device is not None else ()
        properties = cls._properties(context, hints)
        base, code = cls._call(context, kind, *where, properties, size, align)
        if (
            code and properties is not None
        ):  # wishes are not always granted: not every driver knows every flag for every kind
            base, code = cls._call(context, kind, *where, None, size, align)
        check(code, _INTEL_ALLOCATE[kind])
        return Allocation(base, size, kind, context, device, cls)

    @staticmethod
    def _call(context: URContext, kind: str, *arguments: Any) -> tuple[int, int]:
        code = ctypes.c_int32()
        base = extension(context.platform, _INTEL_ALLOCATE[kind])(
            context.cl, *arguments, ctypes.byref(code)
        )
        return base, code.value

    @staticmethod
    def _properties(context: URContext, hints: Hints) -> Any:
        """A cl_mem_properties_intel list, None if nothing is asked for."""
        bits = 0
        for group, name, opencl in _INTEL_FLAGS:
            if getattr(hints, group) & UR[name]:
                bits |= OPENCL[opencl]
        words = [OPENCL["CL_MEM_ALLOC_FLAGS_INTEL"], bits] if bits else []
        if (
            hints.location is not None
            and "cl_intel_mem_alloc_buffer_location" in context.devices[0].icd.extensions
        ):
            words += [OPENCL["CL_MEM_ALLOC_BUFFER_LOCATION_INTEL"], hints.location]
        return (ctypes.c_uint64 * (len(words) + 1))(*words) if words else None

    @staticmethod
    def free(allocation: Allocation, *, wait: bool = False) -> None:
        routine = "clMemBlockingFreeINTEL" if wait else "clMemFreeINTEL"
        check(
            extension(allocation.context.platform, routine)(
                allocation.context.cl, allocation.driver_base
            ),
            routine,
        )

    @staticmethod
    def foreign(context: URContext, address: int) -> Allocation | None:
        ask = extension(context.platform, "clGetMemAllocInfoINTEL")

        def word(name: str) -> int:
            value, size = ctypes.c_uint64(), ctypes.c_size_t()
            code = ask(
                context.cl,
                address,
                OPENCL[name],
                ctypes.sizeof(value),
                ctypes.byref(value),
                ctypes.byref(size),
            )
            return value.value if code == 0 else 0

        kind = _INTEL_KINDS.get(word("CL_MEM_ALLOC_TYPE_INTEL"))
        if kind is None:
            return None
        cl = word("CL_MEM_ALLOC_DEVICE_INTEL")
        device = next((device for device in context.devices if device.cl == cl), None)
        return Allocation(
            word("CL_MEM_ALLOC_BASE_PTR_INTEL"),
            word("CL_MEM_ALLOC_SIZE_INTEL"),
            kind,
            context,
            device,
            Intel,
        )

    @staticmethod
    def migrate(
        queue: URQueue, allocation: Allocation, address: int, size: int, to_host: bool
    ) -> tuple[str, tuple[Any, ...]] | None:
        return "clEnqueueMigrateMemINTEL", (
            address,
            size,
            OPENCL["CL_MIGRATE_MEM_OBJECT_HOST"] if to_host else 0,
        )


_one_at_a_time: Final = new_lock()


def _may_allocate(context: URContext) -> contextlib.AbstractContextManager[Any]:
    """A lock where the driver allows only one thread at a time in clSVMAlloc and clSVMFree."""
    needed = context.platform.profile.svm_needs_lock
    return _one_at_a_time if needed else contextlib.nullcontext()


class SVM(Strategy):
    """Shared virtual memory. With coarse grain alone only device memory is what the specification says: the host would
    have to map the rest.
    """

    name, argument = "svm", "svm"
    copy_routine, fill_routine = "clEnqueueSVMMemcpy", "clEnqueueSVMMemFill"

    @staticmethod
    def ask(device: URDevice) -> dict[str, int]:
        if not device.has((2, 0)):
            return {}
        bits = device.icd.info("CL_DEVICE_SVM_CAPABILITIES")
        if not bits & (
            OPENCL["CL_DEVICE_SVM_COARSE_GRAIN_BUFFER"] | OPENCL["CL_DEVICE_SVM_FINE_GRAIN_BUFFER"]
        ):
            return {}
        fine = (
            _ACCESS
            | _ATOMIC
            | _CONCURRENT
            | (_BOTH if bits & OPENCL["CL_DEVICE_SVM_ATOMICS"] else 0)
        )
        shared = fine if bits & OPENCL["CL_DEVICE_SVM_FINE_GRAIN_BUFFER"] else 0
        system = fine if bits & OPENCL["CL_DEVICE_SVM_FINE_GRAIN_SYSTEM"] else 0
        return {
            "host": shared,
            "device": _ACCESS | _ATOMIC,
            "shared": shared,
            "cross": shared,
            "system": system,
        }

    @classmethod
    def allocate(
        cls,
        context: URContext,
        kind: str,
        device: URDevice | None,
        size: int,
        align: int,
        hints: Hints,
    ) -> Allocation:
        bits = OPENCL["CL_MEM_READ_WRITE"]
        if kind != "device":
            bits |= OPENCL["CL_MEM_SVM_FINE_GRAIN_BUFFER"]
            if all(cls.support(one)["shared"] & _BOTH for one in context.devices):
                bits |= OPENCL["CL_MEM_SVM_ATOMICS"]
        with _may_allocate(context):
            base = context.table.clSVMAlloc(context.cl, bits, size, align)
        if not base:  # it has no code to give
            raise failure(
                "OUT_OF_HOST_MEMORY" if kind == "host" else "OUT_OF_RESOURCES",
                f"clSVMAlloc of {size} bytes",
            )
        return Allocation(base, size, kind, context, device, cls)

    @staticmethod
    def free(allocation: Allocation, *, wait: bool = False) -> None:
        with _may_allocate(allocation.context):
            allocation.context.table.clSVMFree(allocation.context.cl, allocation.driver_base)

    @staticmethod
    def migrate(
        queue: URQueue, allocation: Allocation, address: int, size: int, to_host: bool
    ) -> tuple[str, tuple[Any, ...]] | None:
        if queue.context.platform.icd.version_number < (2, 1) or allocation.imported:
            return None
        where = OPENCL["CL_MIGRATE_MEM_OBJECT_HOST"] if to_host else 0
        return "clEnqueueSVMMigrateMem", (
            1,
            (ctypes.c_void_p * 1)(address),
            (ctypes.c_size_t * 1)(size),
            where,
        )


class Buffers(Strategy):
    """Plain buffers, by addresses that are only names."""

    name, argument, aligns_freely = "buffer", "mem", True

    @staticmethod
    def ask(device: URDevice) -> dict[str, int]:
        return {"host": 0, "device": _ACCESS | _ATOMIC, "shared": 0, "cross": 0, "system": 0}

    @classmethod
    def allocate(
        cls,
        context: URContext,
        kind: str,
        device: URDevice | None,
        size: int,
        align: int,
        hints: Hints,
    ) -> Allocation:
        cl = create(
            context.table, "clCreateBuffer", context.cl, OPENCL["CL_MEM_READ_WRITE"], size, None
        )
        memory = CLMemory(cl, context.table)
        start = reserve(size + align)
        base = start + -start % max(align, 1)
        allocation = Allocation(base, size, kind, context, device, cls, memory=memory)
        weakref.finalize(allocation, release_range, start, size + align).atexit = False
        return allocation

    @staticmethod
    def free(allocation: Allocation, *, wait: bool = False) -> None:
        """The buffer goes when no command-buffer holds it either, the range with the allocation itself."""
        allocation.parts.clear()
        allocation.memory = None

    @classmethod
    def copy(
        cls, target: tuple[int, Allocation | None], source: tuple[int, Allocation | None], size: int
    ) -> Operation:
        to, at = target[1], source[1]
        if to is not None and at is not None:
            numbers = (source[0] - at.base, target[0] - to.base, size)
            return Operation(
                "copy", numbers, {"source": at.mem, "target": to.mem}, (at.memory, to.memory)
            )
        if at is not None:
            return Operation(
                "read",
                (source[0] - at.base, size),
                {"source": at.mem, "host": target[0]},
                (at.memory,),
            )
        if to is not None:
            return Operation(
                "write",
                (target[0] - to.base, size),
                {"target": to.mem, "host": source[0]},
                (to.memory,),
            )
        raise failure(
            "UNSUPPORTED_FEATURE",
            "a driver that has only buffers copies nothing from host memory to host memory",
        )

    @classmethod
    def fill(
        cls, target: tuple[int, Allocation | None], pattern: Any, pattern_size: int, size: int
    ) -> Operation:
        to = target[1]
        if to is None:
            raise failure(
                "UNSUPPORTED_FEATURE", "a driver that has only buffers fills no host memory"
            )
        fields = {"target": to.mem, "pattern": pattern, "pattern_size": pattern_size}
        return Operation("fill", (target[0] - to.base, size), fields, (to.memory,))

    @staticmethod
    def part(allocation: Allocation, offset: int) -> int:
        """The cl_mem from an offset on. Raises URError (UNSUPPORTED_FEATURE) where none can begin."""
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
            allocation.parts.setdefault(
                offset, CLMemory(cl, allocation.context.table)
            )  # another thread may have been quicker
        return allocation.parts[offset].cl

    @staticmethod
    def migrate(
        queue: URQueue, allocation: Allocation, address: int, size: int, to_host: bool
    ) -> tuple[str, tuple[Any, ...]] | None:
        where = OPENCL["CL_MIGRATE_MEM_OBJECT_HOST"] if to_host else 0
        return "clEnqueueMigrateMemObjects", (1, (ctypes.c_void_p * 1)(allocation.mem), where)


STRATEGIES: Final[dict[str, type[Strategy]]] = {cls.name: cls for cls in (Intel, SVM, Buffers)}
