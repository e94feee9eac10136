"""Kernels of the adapter on Level Zero: a ze_kernel_handle_t for each device of the program, with
the arguments that were set.

A kernel of Level Zero has its arguments, group size and offset until they are set again. So a
thread holds the kernel's lock from setting them to the append that takes them.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from ...loader.base.forks import make_lock
from ...loader.ze.abi import ZE
from ..sdk.conversions import failure
from ..sdk.kernel_arguments import HANDLE_SIZE, URKernelArgument, declare_arguments
from ..sdk.kernels import ExecInfo, check_group_size, count_groups_by_local_memory, declare_kernels
from ..sdk.objects import Object
from .contexts import LZContext
from .core import LevelZeroError, adapter, ask, call, create, is_owned, make_struct
from .devices import LZDevice
from .programs import LZProgram

_INDIRECT: Final = sum(
    ZE[f"ZE_KERNEL_INDIRECT_ACCESS_FLAG_{kind}"] for kind in ("HOST", "DEVICE", "SHARED")
)
GroupCount: Final = ZE.get_struct("ze_group_count_t")
_LARGEST: Final = 0xFFFFFFFF
Triple = tuple[int, int, int]


class LaunchSizes(NamedTuple):
    """The sizes of a launch, in three dimensions.

    Attributes:
        dim: the dimensions that the program gave.
        offset: the first work-item.
        total: how many work-items.
        local: how many in a group, as the program gave them; None: the driver chooses.
    """

    dim: int
    offset: Triple
    total: Triple
    local: Triple | None

    @classmethod
    def from_program(
        cls,
        dim: int,
        offset: Sequence[int] | None,
        total: Sequence[int],
        local: Sequence[int] | None,
    ) -> LaunchSizes:
        """Return the sizes that a program gives, in 1 to 3 dimensions."""

        def fill(values: Sequence[int], rest: int) -> Triple:
            first, second, third = (*values[:dim], *(rest,) * (3 - dim))
            return first, second, third

        return cls(
            dim,
            fill(offset or (0,) * dim, 0),
            fill(total, 1),
            fill(local, 1) if local is not None else None,
        )


class LZLaunchShape(NamedTuple):
    """What Level Zero takes for the sizes of a launch."""

    offset: Triple
    counts: Triple
    local: Triple


@adapter.kind
class LZKernel(Object):
    """A kernel.

    Args:
        handles: its handles, by the device.
        owned: whether they are destroyed at the end.

    Attributes:
        lock: see above.
    """

    type = "ur_kernel_handle_t"

    def __init__(
        self, program: LZProgram, handles: dict[LZDevice, int], owned: bool = True
    ) -> None:
        self.program, self.context, self.handles = program, program.context, handles
        self.owned = owned
        self.table = next(iter(handles)).table
        self.modules = program.modules  # a new build of the program does not end them
        self.arguments: dict[int, URKernelArgument] = {}
        self.lock = make_lock()
        self._has_offset = False

    def get_handle(self, device: LZDevice) -> int:
        """Return the kernel's handle for a device. Raises URError (INVALID_KERNEL)."""
        for one, handle in self.handles.items():
            if device.is_part_of(one):
                return handle
        raise failure("INVALID_KERNEL", "the kernel's program is not built for the device")

    @cached_property
    def properties(self) -> Any:
        """Return the kernel's ze_kernel_properties_t on the first device."""
        return self.query_properties(next(iter(self.handles)))

    def query_properties(self, device: LZDevice) -> Any:
        """Return the kernel's ze_kernel_properties_t on a device."""
        return ask(
            self.table, "zeKernelGetProperties", self.get_handle(device), "kernel_properties"
        )

    @property
    def argument_count(self) -> int:
        """Return how many arguments the kernel has."""
        return self.properties.numKernelArgs

    @cached_property
    def name(self) -> str:
        """Return the name of its function."""
        size, handle = ctypes.c_size_t(), next(iter(self.handles.values()))
        call(self.table, "zeKernelGetName", handle, ctypes.byref(size), None)
        data = ctypes.create_string_buffer(max(size.value, 1))
        call(self.table, "zeKernelGetName", handle, ctypes.byref(size), data)
        return data.value.decode("utf-8", "replace")

    @cached_property
    def attributes(self) -> str:
        """Return the attributes in its source."""
        size, handle = ctypes.c_uint32(), next(iter(self.handles.values()))
        call(self.table, "zeKernelGetSourceAttributes", handle, ctypes.byref(size), None)
        data = ctypes.create_string_buffer(max(size.value, 1))
        given = ctypes.byref(size), ctypes.byref(ctypes.pointer(data))
        call(self.table, "zeKernelGetSourceAttributes", handle, *given)
        return data.value.decode("utf-8", "replace")

    @cached_property
    def required(self) -> Triple | None:
        """Return the work-group size that the kernel requires, None for any size."""
        row = self.properties
        sizes = row.requiredGroupSizeX, row.requiredGroupSizeY, row.requiredGroupSizeZ
        return sizes if any(sizes) else None

    def find_largest_group(self, device: LZDevice) -> int:
        """Return how many work-items a work-group of the kernel may have."""
        row = make_struct("kernel_max_group_size_properties_ext", tag=_LARGEST_GROUP)
        with contextlib.suppress(LevelZeroError):
            handle = self.get_handle(device)
            ask(self.table, "zeKernelGetProperties", handle, "kernel_properties", pNext=row)
        return row.maxGroupSize or device.compute.maxTotalGroupSize

    def find_preferred_multiple(self, device: LZDevice) -> int:
        """Return what group sizes should be multiples of."""
        row = make_struct("kernel_preferred_group_size_properties")
        with contextlib.suppress(LevelZeroError):
            handle = self.get_handle(device)
            ask(self.table, "zeKernelGetProperties", handle, "kernel_properties", pNext=row)
        return row.preferredMultiple or max(1, self.properties.maxSubgroupSize)

    # arguments

    def set(self, arguments: Sequence[tuple[int, URKernelArgument]]) -> None:
        """Set arguments. If one is refused, nothing changes. The lock is held.

        Raises:
            URError: INVALID_CONTEXT, INVALID_KERNEL_ARGUMENT_INDEX.
        """
        done: list[int] = []
        try:
            for index, argument in arguments:
                self._set_one(index, argument)
                done.append(index)
        except Exception:
            for index in done:
                if index in self.arguments:
                    self._set_one(index, self.arguments[index])
            raise
        self.arguments.update(arguments)

    def _set_one(self, index: int, argument: URKernelArgument) -> None:
        size, value = encode_argument(self.context, index, argument)
        for handle in self.handles.values():
            call(self.table, "zeKernelSetArgumentValue", handle, index, size, value)

    def check_complete(self) -> None:
        """Raise URError (INVALID_KERNEL_ARGS) unless all arguments are set."""
        if len(self.arguments) < self.argument_count:
            raise failure(
                "INVALID_KERNEL_ARGS",
                f"{len(self.arguments)} of its {self.argument_count} arguments are set",
            )

    # sizes

    def find_shape(self, device: LZDevice, sizes: LaunchSizes) -> LZLaunchShape:
        """Return the shape of a launch. An empty one has no groups.

        Raises:
            URError: INVALID_WORK_GROUP_SIZE, INVALID_WORK_ITEM_SIZE, UNSUPPORTED_FEATURE.
        """
        self.check_group(device, sizes.local, sizes.dim)
        local = sizes.local or self.required
        if local is None:
            local = self.suggest(device, sizes.total) if all(sizes.total) else (1, 1, 1)
        pairs = list(zip(sizes.total, local, strict=True))
        if any(total % size for total, size in pairs):
            raise failure(
                "INVALID_WORK_GROUP_SIZE", f"groups of {local} do not divide {sizes.total}"
            )
        first, second, third = (total // size for total, size in pairs)
        if max(first, second, third, *sizes.offset) > _LARGEST:
            raise failure("INVALID_WORK_GROUP_SIZE", "Level Zero counts groups by 32 bits")
        has_offset = device.platform.has("zeKernelSetGlobalOffsetExp")
        if any(sizes.offset) and not has_offset:
            raise failure("UNSUPPORTED_FEATURE", "the driver has no zeKernelSetGlobalOffsetExp")
        return LZLaunchShape(sizes.offset, (first, second, third), local)

    def check_group(self, device: LZDevice, local: Triple | None, dim: int = 3) -> None:
        """Check that the kernel can be launched with a local size.

        Raises:
            URError: INVALID_WORK_GROUP_SIZE, INVALID_WORK_ITEM_SIZE.
        """
        if local is None:
            return
        row = device.compute
        limits = row.maxGroupSizeX, row.maxGroupSizeY, row.maxGroupSizeZ
        largest = self.find_largest_group(device)
        check_group_size(local[:dim], limits, largest, self.required)

    def suggest(self, device: LZDevice, total: Triple) -> Triple:
        """Return the group size that the driver suggests, made a divisor of the global size."""
        if max(total) > _LARGEST:
            return 1, 1, 1
        found = [ctypes.c_uint32() for _ in total]
        given = map(ctypes.byref, found)
        call(self.table, "zeKernelSuggestGroupSize", self.get_handle(device), *total, *given)
        first, second, third = (
            _find_divisor(size, one.value or 1) for size, one in zip(total, found, strict=True)
        )
        return first, second, third

    def apply(self, device: LZDevice, shape: LZLaunchShape) -> int:
        """Set the sizes of a launch, and return the handle to launch. The lock is held."""
        handle = self.get_handle(device)
        call(self.table, "zeKernelSetGroupSize", handle, *shape.local)
        if any(shape.offset) or self._has_offset:
            self._has_offset = True
            call(self.table, "zeKernelSetGlobalOffsetExp", handle, *shape.offset)
        return handle

    def get_native(self) -> int:
        return next(iter(self.handles.values()))

    def close(self) -> None:
        for handle in self.handles.values() if self.owned else ():
            call(self.table, "zeKernelDestroy", handle)


_LARGEST_GROUP: Final = "KERNEL_MAX_GROUP_SIZE_EXT_PROPERTIES"


def _find_divisor(size: int, most: int) -> int:
    """Return the largest divisor of a size up to a limit."""
    return next(number for number in range(min(size, most), 0, -1) if size % number == 0)


def encode_argument(
    context: LZContext, index: int, argument: URKernelArgument
) -> tuple[int, bytes | None]:
    """Return size and value of an argument as Level Zero takes them.

    Raises:
        URError: INVALID_CONTEXT.
    """
    kind, size, value = argument
    if kind in (URKernelArgument.MEM, URKernelArgument.SAMPLER):
        if value is not None:
            context.check_shared(f"the object of argument {index}", value)
        return HANDLE_SIZE, (value.ze if value is not None else 0).to_bytes(8, "little")
    if kind == URKernelArgument.POINTER:
        return HANDLE_SIZE, value.to_bytes(8, "little")
    return size, value


def _create(program: LZProgram, name: str) -> LZKernel:
    desc = make_struct("kernel_desc", pKernelName=name.encode())
    handles = {
        module.device: create(module.table, "zeKernelCreate", module.ze, ctypes.byref(desc))
        for module in program.modules
    }
    return LZKernel(program, handles)


def _take_native(
    native: int, context: LZContext, program: LZProgram | None, properties: Any
) -> LZKernel:
    if program is None:
        raise failure("INVALID_NULL_HANDLE", "a kernel of Level Zero does not tell its module")
    return LZKernel(program, {program.devices[0]: native}, is_owned(properties))


def _set(kernel: LZKernel, arguments: list[tuple[int, URKernelArgument]]) -> None:
    with kernel.lock:
        kernel.set(arguments)


declare_arguments(adapter, _set)


def _set_execution(kernel: LZKernel, info: ExecInfo) -> None:
    """Let a kernel use memory that is not an argument. All of it: Level Zero takes no list."""
    if info == ExecInfo():
        return
    flags = _INDIRECT if info.pointers is not None or info.indirect else 0
    with kernel.lock:
        for handle in kernel.handles.values():
            call(kernel.table, "zeKernelSetIndirectAccess", handle, flags)


def _count_groups(kernel: LZKernel, device: LZDevice, local: list[int], dynamic: int) -> int:
    sizes, count = LaunchSizes.from_program(len(local), None, local, local), ctypes.c_uint32()
    with kernel.lock:
        handle = kernel.apply(device, kernel.find_shape(device, sizes))
        routine = "zeKernelSuggestMaxCooperativeGroupCount"
        call(kernel.table, routine, handle, ctypes.byref(count))
    room = count_groups_by_local_memory(
        dynamic,
        kernel.query_properties(device).localMemSize,
        device.compute.maxSharedLocalMemory,
        max(1, device.properties.numSlices * device.properties.numSubslicesPerSlice),
    )
    return min(count.value, room)


declare_kernels(
    adapter,
    create=_create,
    take_native=_take_native,
    set_execution=_set_execution,
    count_groups=_count_groups,
)
