"""What the strategies of USM have in common: allocations, transfers, `Strategy`."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple

from ....loader.base.operations import TransferCommand
from ...sdk.transfers import Location
from ...sdk.usm import AllocationObject
from ..contexts import URContext
from ..core import CLObject
from ..devices import URDevice
from ..enqueue import Call


class CLMemory(CLObject):
    """A cl_mem behind an address, or a part of one.

    It is released when neither an allocation nor a command-buffer holds it any more.
    """

    type = ""
    release, retain_function = "clReleaseMemObject", "clRetainMemObject"


@dataclass(eq=False)
class Allocation(AllocationObject):
    """Memory that is used by its address.

    Attributes:
        base: the address of its first byte.
        size: bytes.
        kind: "host", "device" or "shared".
        device: its device, None for host memory.
        pool: its `URPool`, or None.
        memory: the cl_mem behind it, if there is one.
        view: a cl_mem of memory that was allocated without one, see `Strategy.view_as_buffer`.
        parts: the sub-buffers that kernels were given, by their offsets in bytes.
        imported: whether it is the program's own memory, which is not freed.
        padding: bytes before `base` that the driver allocated, too.
        key: what its pool finds it by.
    """

    base: int
    size: int
    kind: str
    context: URContext
    device: URDevice | None
    strategy: type[Strategy]
    pool: Any = None
    memory: CLMemory | None = None
    view: CLMemory | None = None
    parts: dict[int, CLMemory] = field(default_factory=dict)
    imported: bool = False
    padding: int = 0
    key: Any = None

    @property
    def driver_base(self) -> int:
        """Return the address that the driver allocated."""
        return self.base - self.padding

    @property
    def mem(self) -> int:
        """Return the cl_mem behind it, 0 if there is none."""
        return self.memory.cl if self.memory is not None else 0


class Hints(NamedTuple):
    """What a program would like: ur_usm_host_mem_flags_t, ur_usm_device_mem_flags_t, a bank."""

    host: int = 0
    device: int = 0
    location: int | None = None


class AllocationRequest(NamedTuple):
    """An allocation that is asked for: `size` bytes, aligned to `align` bytes (0: to anything)."""

    context: URContext
    kind: str
    device: URDevice | None
    size: int
    align: int = 0
    hints: Hints = Hints()

    def make_allocation(self, base: int, strategy: type[Strategy], **others: Any) -> Allocation:
        """Return the allocation that was asked for."""
        return Allocation(base, self.size, self.kind, self.context, self.device, strategy, **others)


_support: Final[weakref.WeakKeyDictionary[URDevice, dict[type[Strategy], dict[str, int]]]] = (
    weakref.WeakKeyDictionary()
)


class Strategy:
    """A way in which drivers have memory that is used by its address. There are no instances.

    Attributes:
        name: what FAIRLEAD_USM calls it.
        aligns_freely: whether `allocate` takes every alignment.
        argument: how an address becomes a kernel's argument (`addresses.make_pointer_argument`).
        copy_routine: OpenCL's function that copies between addresses.
        fill_routine: OpenCL's function that fills from an address on.
    """

    name: ClassVar[str]
    aligns_freely: ClassVar[bool] = False
    argument: ClassVar[str]
    copy_routine: ClassVar[str]
    fill_routine: ClassVar[str]

    @classmethod
    def support(cls, device: URDevice) -> dict[str, int]:
        """Return what a device can do with each kind of USM.

        Returns:
            "host", "device", "shared", "cross" and "system" with their
            ur_device_usm_access_capability_flags_t. It is empty if the device cannot.
        """
        known = _support.setdefault(device, {})
        if cls not in known:
            known[cls] = cls.ask(device)
        return known[cls]

    @staticmethod
    def ask(device: URDevice) -> dict[str, int]:
        """Ask a device what `support` returns."""
        raise NotImplementedError

    @classmethod
    def allocate(cls, request: AllocationRequest) -> Allocation:
        """Allocate memory. Raises OpenCLError, URError (OUT_OF_RESOURCES)."""
        raise NotImplementedError

    @staticmethod
    def free(allocation: Allocation, *, wait: bool = False) -> None:
        """Free memory that nothing uses any more, as far as we know.

        Args:
            wait: whether the driver may wait until it knows that, too.
        """
        raise NotImplementedError

    @classmethod
    def view_as_buffer(cls, allocation: Allocation) -> CLMemory | None:
        """Return a cl_mem through which images are copied to an allocation and from it.

        Returns:
            None if commands for images take the address itself.
        """
        return allocation.memory

    @staticmethod
    def foreign(context: URContext, address: int) -> Allocation | None:
        """Return what the driver knows of memory that was allocated by interoperation."""
        return None

    @classmethod
    def copy(cls, target: Location, source: Location, size: int) -> TransferCommand:
        """Return the operation that copies bytes.

        Raises:
            URError: UNSUPPORTED_FEATURE if that is not a single operation.
        """
        operands = {"source": source.address, "target": target.address, "size": size}
        return TransferCommand("svm_copy", operands)

    @classmethod
    def fill(cls, target: Location, pattern: Any, pattern_size: int, size: int) -> TransferCommand:
        """Return the operation that fills bytes.

        Args:
            pattern: a pointer to a pattern that OpenCL takes.
            pattern_size: its bytes.
            size: how many bytes are filled.

        Raises:
            URError: UNSUPPORTED_FEATURE if that is not a single operation.
        """
        pattern_operands = {"pattern": pattern, "pattern_size": pattern_size}
        operands = {"target": target.address, **pattern_operands, "size": size}
        return TransferCommand("svm_fill", operands)

    @classmethod
    def make_call(cls, transfer: TransferCommand, blocks: bool = False) -> Call:
        """Return the driver's command for that copies."""
        routine, arguments = transfer.make_call("cl", blocks)
        return cls.copy_routine if transfer.operation == "svm_copy" else routine, arguments

    @staticmethod
    def migrate(allocation: Allocation, address: int, size: int, flags: int) -> Call | None:
        """Return the command that moves memory, None if there is none.

        Args:
            size: bytes.
            flags: cl_mem_migration_flags; 0: to the queue's device.
        """
        return None
