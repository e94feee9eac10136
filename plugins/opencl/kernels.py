"""Kernels of the OpenCL adapter, and what is set on them. kernel_info.py has the queries,
launches.py the launches.

OpenCL keeps arguments in the cl_kernel. Threads must not set them at the same time
(SPEC clSetKernelArg). So a thread holds the kernel's lock from setting arguments until it has used
them. C sets arguments, too (native/kernels.c). Python learns of these when it gets the lock.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, Final
from weakref import WeakValueDictionary, ref

from ...icd.abi import OPENCL
from ...icd.errors import OpenCLError
from ...loader.base.forks import call_in_child, make_lock
from ...loader.ur.abi import URError
from ..sdk._native import ffi, lib
from ..sdk.answers import make_answers
from ..sdk.kernel_arguments import HANDLE_SIZE, URKernelArgument
from ..sdk.kernels import check_group_size
from .contexts import URContext, check_native
from .core import (
    CLObject,
    adapter,
    create,
    failure,
    get_address,
    query,
    query_number,
    retain_unless_owned,
)
from .devices import URDevice
from .kernel_arguments import set_arguments
from .programs import URProgram, make_program


def _release_nothing() -> None:
    """Stand for a reference to memory that was released."""


#: The arguments that C has set, by how C keeps them.
_ARGUMENTS: Final[dict[int, Callable[[Any, Any], URKernelArgument]]] = {
    lib.FL_KEPT_VALUE: lambda kept, _: URKernelArgument(
        URKernelArgument.VALUE, kept.size, ffi.unpack(kept.bytes, kept.size)
    ),
    lib.FL_KEPT_LOCAL: lambda kept, _: URKernelArgument(URKernelArgument.LOCAL, kept.size, None),
    lib.FL_KEPT_POINTER: lambda kept, _: URKernelArgument(URKernelArgument.POINTER, 0, kept.value),
    lib.FL_KEPT_MEM: lambda _, memory: URKernelArgument(URKernelArgument.MEM, HANDLE_SIZE, memory),
}


class _KernelLock:
    """The lock of a kernel: that of Python's threads, and what keeps C away."""

    __slots__ = ("_kernel",)

    def __init__(self, kernel: URKernel) -> None:
        self._kernel = kernel

    def acquire(self) -> None:
        """Wait for the kernel, and learn what C has set on it."""
        kernel, native = self._kernel, self._kernel.native_lock
        native.threads.acquire()
        native.holders += 1
        if native.holders == 1:
            lib.fl_enter_kernel(kernel.struct)
        if kernel.struct.changed:
            kernel.update_from_c()

    def release(self) -> None:
        """Let other threads have the kernel."""
        kernel, native = self._kernel, self._kernel.native_lock
        native.holders -= 1
        if not native.holders:
            lib.fl_leave_kernel(kernel.struct)
        native.threads.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _NativeLock:
    """What several kernels of one cl_kernel share: a lock of Python's threads, and one for C.

    Attributes:
        holders: how often the thread that has the lock has it.
    """

    def __init__(self) -> None:
        self.threads, self.busy, self.holders = make_lock(), ffi.new("unsigned *"), 0


#: The lock of each cl_kernel. One native handle may have several kernels.
_locks: Final[WeakValueDictionary[int, _NativeLock]] = WeakValueDictionary()


@call_in_child
def _forget_holders() -> None:
    """Forget the threads that had kernels: they do not exist in the child."""
    for lock in list(_locks.values()):
        lock.holders = 0


@adapter.kind
class URKernel(CLObject):
    """A cl_kernel, with its program and the arguments that were last set.

    Args:
        cl: its handle, a reference to which is ours.

    Attributes:
        lock: what a thread holds while it sets arguments and uses them.
        native_lock: the part of it that all kernels of the cl_kernel share.
        has_indirect_access: whether a driver has to know all SVM (kernel_info.declare_memory).
        declared_memory: the addresses that the driver knows.
        shared: whether others may know the cl_kernel.
        value_sizes: the sizes of arguments by value that the driver has accepted, by index.
    """

    type = "ur_kernel_handle_t"
    release, retain_function = "clReleaseKernel", "clRetainKernel"

    def __init__(self, cl: int, program: URProgram) -> None:
        super().__init__(cl, program.table)
        self.program, self.context = program, program.context
        self.native_lock = _locks.setdefault(cl, _NativeLock())
        self.lock = _KernelLock(weakref.proxy(self))
        # A memory object is a weak reference.
        self._arguments: dict[int, URKernelArgument | Callable[[], Any]] = {}
        self._settings = 0  # how often anything but an argument was set
        self._has_indirect_access = self.shared = False
        self.declared_memory: list[int] = []
        self.value_sizes: dict[int, int] = {}
        self._constant: dict[tuple[int, str], bytes] = {}
        self.answers = make_answers()
        busy = self.native_lock.busy
        self.struct = ffi.new(
            "fl_kernel *", {"cl": cl, "context": self.context.struct, "busy": busy}
        )

    def get_native(self) -> int:
        self.shared = True
        return self.cl

    def describe_to_c(self) -> tuple[int, int, int, int]:
        struct = self.struct
        if not struct.arguments:
            struct.count = min(self.argument_count, lib.FL_ARGUMENTS)
            self._room = struct.arguments = ffi.new("fl_kept_argument[]", struct.count or 1)
            struct.in_python |= self.argument_count > lib.FL_ARGUMENTS
        return self.cl, get_address(struct), 0, get_address(self.answers)

    @property
    def had_pointers(self) -> bool:
        """Whether an argument was ever an address."""
        return bool(self.struct.had_pointers)

    @property
    def has_indirect_access(self) -> bool:
        return self._has_indirect_access

    @has_indirect_access.setter
    def has_indirect_access(self, value: bool) -> None:
        self._has_indirect_access = value
        self.struct.in_python |= value  # for good

    @cached_property
    def argument_count(self) -> int:
        """Return how many arguments the kernel has."""
        return self.query_number("CL_KERNEL_NUM_ARGS")

    @property
    def identity(self) -> Any:
        """Return a key for the kernel and everything that is set on it except arguments."""
        return self, self._settings

    @property
    def is_plain(self) -> bool:
        """Return whether nothing but arguments was ever set on the kernel."""
        return not self._settings

    def create_copy(self) -> int:
        """Return a new cl_kernel of the same function, on which nothing is set."""
        name = self.query("CL_KERNEL_FUNCTION_NAME").rstrip(b"\0")
        return create(self.table, "clCreateKernel", self.program.cl, name)

    def note_setting(self) -> None:
        """Note that something was set that is not an argument, so `identity` changes."""
        self._settings += 1
        self.struct.settings = self._settings

    # arguments

    @property
    def arguments(self) -> dict[int, URKernelArgument]:
        """Return the arguments that were last set, by index.

        An argument whose memory object was released is missing.
        """
        last = {}
        with self.lock:  # C may have set others
            known = dict(self._arguments)
        for index, kept in known.items():
            if isinstance(kept, URKernelArgument):
                last[index] = kept
            elif (memory := kept()) is not None:
                last[index] = URKernelArgument(URKernelArgument.MEM, HANDLE_SIZE, memory)
        return last

    def update_from_c(self) -> None:
        """Learn which arguments C has set. The lock is held."""
        struct, registry = self.struct, adapter.registry
        changed, struct.changed = struct.changed, 0
        for index in range(struct.count):
            if not changed >> index & 1:
                continue
            kept = struct.arguments[index]
            memory: Any = None
            if kept.kind == lib.FL_KEPT_MEM and kept.value and registry is not None:
                memory = registry.list_owned("ur_mem_handle_t").get(kept.value)
                if memory is None or ffi.cast("fl_handle *", kept.value).number != kept.number:
                    self._arguments[index] = _release_nothing
                    continue
            self._keep(index, _ARGUMENTS[kept.kind](kept, memory))

    def _describe_argument_to_c(self, index: int, argument: URKernelArgument | None) -> None:
        """Tell C what Python has set an argument to, None if nobody knows."""
        if index >= self.struct.count or not self.struct.arguments:
            return
        kept = self.struct.arguments[index]
        kept.kind = lib.FL_KEPT_NOTHING
        if argument is None:
            return
        memory = argument.value if argument.kind == URKernelArgument.MEM else None
        if memory is not None:
            if memory.handle:
                kept.value, kept.kind = memory.handle, lib.FL_KEPT_MEM
                kept.number = ffi.cast("fl_handle *", memory.handle).number
        elif argument.kind == URKernelArgument.POINTER:
            kept.value, kept.kind = argument.value, lib.FL_KEPT_POINTER
        elif argument.kind == URKernelArgument.LOCAL:
            kept.size, kept.kind = argument.size, lib.FL_KEPT_LOCAL
        elif argument.kind == URKernelArgument.VALUE and argument.size <= lib.FL_INSIDE:
            kept.size, kept.bytes = argument.size, argument.value
            kept.kind = lib.FL_KEPT_VALUE
        else:
            kept.kind = lib.FL_KEPT_ELSEWHERE

    def remember(self, arguments: Iterable[tuple[int, URKernelArgument]]) -> None:
        """Note arguments that were set. Memory objects are not kept alive, as in OpenCL."""
        for index, argument in arguments:
            self._keep(index, argument)
            self._describe_argument_to_c(index, argument)

    def _keep(self, index: int, argument: URKernelArgument) -> None:
        kind = argument[0]
        if kind == URKernelArgument.POINTER:
            self.struct.had_pointers = True
        memory = argument[2] if kind == URKernelArgument.MEM else None
        self._arguments[index] = argument if memory is None else ref(memory)

    def restore(self, indices: Iterable[int]) -> None:
        """Set arguments to what they were, because the driver refused one of several.

        An argument that was nothing, or memory that was released, has to be set again. Nothing
        keeps alive what the driver has for it.
        """
        last = self.arguments
        for index in set(indices).intersection(range(self.argument_count)):
            try:
                set_arguments(self.cl, self.context, [(index, last[index])])
            except (KeyError, OpenCLError, URError):
                self._arguments[index] = _release_nothing
                self._describe_argument_to_c(index, None)

    def exchange(self, other: URKernel) -> None:
        """Exchange the cl_kernel with that of a kernel of the same function and arguments."""
        self.cl, other.cl = other.cl, self.cl
        self.owned, other.owned = other.owned, self.owned
        _locks[self.cl], _locks[other.cl] = self.native_lock, other.native_lock
        self.struct.cl, other.struct.cl = self.cl, other.cl
        self.struct.had_pointers, self.declared_memory = other.struct.had_pointers, []

    def check_arguments(self) -> None:
        """Check that all arguments that were set still exist, because a driver would use them.

        Raises:
            URError: INVALID_KERNEL_ARGS if one does not.
        """
        if len(self.arguments) < len(self._arguments):
            raise failure(
                "INVALID_KERNEL_ARGS",
                "the memory object of an argument was released, or the argument was refused",
            )

    # queries about a device

    def query_group_info(self, device: URDevice, name: str) -> bytes:
        """Return the raw answer of clGetKernelWorkGroupInfo to a property."""
        routine = "clGetKernelWorkGroupInfo"
        return query(self.table, routine, self.cl, device.cl, OPENCL[name], detail=f"({name})")

    def get_constant_info(self, device: URDevice, name: str) -> bytes:
        """Return what `query_group_info` answered first, because libsycl asks before every launch.

        It is for properties that never change.
        """
        key = device.cl, name
        if key not in self._constant:
            self._constant[key] = self.query_group_info(device, name)
        return self._constant[key]

    def query_group_size(self, device: URDevice) -> int:
        """Return how many work-items a work-group of the kernel may have."""
        return int.from_bytes(self.get_constant_info(device, "CL_KERNEL_WORK_GROUP_SIZE"), "little")

    def find_required_size(self, device: URDevice) -> tuple[int, int, int] | None:
        """Return the work-group size that the kernel requires, None for any size."""
        data = self.get_constant_info(device, "CL_KERNEL_COMPILE_WORK_GROUP_SIZE")
        sizes = struct.unpack("@3N", data)
        return sizes if any(sizes) else None

    def choose_group(
        self, device: URDevice, dimensions: int, local: Sequence[int] | None
    ) -> Sequence[int] | None:
        """Return a local size; the required one for None, which not every driver uses by itself."""
        required = self.find_required_size(device) if local is None else None
        return list(required[:dimensions]) if required else local

    def describe_group_to_c(self, device: URDevice, local: Sequence[int]) -> None:
        """Tell C of a local size that a device takes."""
        struct = self.struct
        struct.group_device = 0  # C may read it in another thread
        struct.group[0 : len(local)], struct.group_dimensions = local, len(local)
        struct.group_device = device.cl

    def describe_required_size_to_c(self, device: URDevice) -> None:
        """Tell C the size of work-groups on a device. The lock is held."""
        self.struct.required = self.find_required_size(device) or (0, 0, 0)
        self.struct.device = device.cl

    def check_group(self, device: URDevice, local: Sequence[int] | None) -> None:
        """Check that the kernel can be launched with a local size.

        Raises:
            URError: INVALID_WORK_GROUP_SIZE, INVALID_WORK_ITEM_SIZE.
        """
        if local is None:
            return
        limits = device.icd.info("CL_DEVICE_MAX_WORK_ITEM_SIZES")
        required = self.find_required_size(device)
        check_group_size(local, limits, self.query_group_size(device), required)


def take_native_kernel(
    native: int, context: URContext, program: URProgram | None, properties: Any
) -> URKernel:
    """Return a kernel for a cl_kernel. Raises URError (INVALID_PROGRAM), OpenCLError."""
    check_native(native, context, "clGetKernelInfo", "CL_KERNEL_CONTEXT")
    cl = query_number(context.table, "clGetKernelInfo", native, "CL_KERNEL_PROGRAM")
    if program is not None and program.cl != cl:
        raise failure("INVALID_PROGRAM", "the native kernel is of another program")
    program = program or make_program(cl, context, None)
    retain_unless_owned(URKernel, native, context.table, properties)
    kernel = URKernel(native, program)
    kernel.shared = True
    return kernel
