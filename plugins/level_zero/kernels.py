"""Kernels of the Level Zero driver, what is set on them (arguments.py), and what a launch takes of
them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from ...icd.command_buffer import edits
from ...icd.errors import OpenCLError
from ...loader.ze.abi import LevelZeroError
from ..opencl.core import create
from ..opencl.kernel_arguments import set_arguments, set_on
from ..opencl.kernel_info import set_indirect, suggest_local_size
from ..opencl.kernels import URKernel
from ..opencl.usm.strategies import can_use_host_memory
from ..sdk._native_ze import ffi
from ..sdk.kernel_arguments import HANDLE_SIZE, URKernelArgument
from ..sdk.objects import Object
from .arguments import SPIRV_KINDS, find_kind, read_argument
from .contexts import ZeContext
from .core import ZE, driver, make_failure, walk_chain
from .devices import LARGEST, ZeDevice
from .in_c import POINTER, UNKNOWN, VALUE, KernelInC, get_address
from .modules import ZeModule, give_bytes

#: The codes of OpenCL for what is not the argument that the kernel has.
_REFUSALS: Final = "CL_INVALID_ARG_SIZE", "CL_INVALID_ARG_VALUE", "CL_INVALID_SAMPLER"
#: GPUs have work-groups of so many work-items. Programs divide the suggestion further, by what
#: they know of GPUs. CPUs have larger ones.
_LARGEST_SUGGESTION: Final = 1024
_UNCHECKED: Final = URKernelArgument.POINTER, URKernelArgument.LOCAL


@dataclass(frozen=True)
class LaunchShape:
    """The sizes of a launch: how many groups, how many work-items in each, and the first item."""

    counts: tuple[int, int, int]
    sizes: tuple[int, int, int]
    offsets: tuple[int, int, int] = (0, 0, 0)

    @property
    def dim(self) -> int:
        """Return the dimensions that the range needs."""
        rows = zip(self.counts, self.sizes, self.offsets, strict=True)
        used = [number for number, (n, size, at) in enumerate(rows, 1) if n * size != 1 or at]
        return max(used, default=1)

    @property
    def is_empty(self) -> bool:
        """Return whether there are no groups."""
        return not all(self.counts)

    @property
    def numbers(self) -> list[int]:
        """Return `fl_command.n`: the offset, the global size and the local size."""
        total = [n * size for n, size in zip(self.counts, self.sizes, strict=True)]
        return [*self.offsets, *total, *self.sizes]

    def put(self, command: Any) -> None:
        """Write the shape to an `fl_command`."""
        command.n[0:9] = self.numbers
        command.work_dim, command.has_local = self.dim, 1
        command.has_offset = any(self.offsets)


@driver.kind
class ZeKernel(Object):
    """A kernel, with what is set on it.

    Attributes:
        ur: the kernel of the reference adapter, which has the arguments.
        whole: the device that it is compiled for.
        indirect: ze_kernel_indirect_access_flags_t.
        spirv_sizes: the sizes of numbers that the SPIR-V tells, by index.
        value_sizes: the sizes of values that the driver has taken, by index.
        not_local, local_arguments: the arguments that are known to be no local memory, or to be
            some, though the driver does not tell what they are. NULL stands for zeros in the first.
        sizes_known: whether the driver was asked for sizes (whole_launches.py).
    """

    type = "ze_kernel_handle_t"

    def __init__(self, module: ZeModule, name: str) -> None:
        self.module, self.name, self.context = module, name, module.context
        program = module.program
        self.ur = URKernel(
            create(program.table, "clCreateKernel", program.cl, name.encode()), program
        )
        self.device, self.whole = module.device, module.whole
        self.takes_host_memory = can_use_host_memory(module.context.ur)
        self.in_c = KernelInC(
            self.ur, self.device.ur, list(self.kinds), self.device.group_limits, self.required
        )
        self.sizes = self.required or (1, 1, 1)
        self.indirect = 0
        parameters = enumerate(module.list_parameters(name))
        self.spirv_sizes = {index: one.size for index, one in parameters if one.size}
        self.value_sizes = dict(self.spirv_sizes)
        self.not_local: set[int] = set()
        self.local_arguments: set[int] = set()
        self.sizes_known = False

    def describe_to_c(self) -> tuple[int, int, int, int]:
        return get_address(self.in_c.struct), 0, 0, 0

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The size of a work-group."""
        x, y, z = self.in_c.struct.sizes
        return x, y, z

    @sizes.setter
    def sizes(self, value: tuple[int, int, int]) -> None:
        self.in_c.struct.sizes = value

    @property
    def offsets(self) -> tuple[int, int, int]:
        """The first work-item."""
        x, y, z = self.in_c.struct.offsets
        return x, y, z

    @offsets.setter
    def offsets(self, value: tuple[int, int, int]) -> None:
        self.in_c.struct.offsets = value

    @cached_property
    def required(self) -> tuple[int, int, int] | None:
        """Return the work-group size that the kernel requires, None for any."""
        return self.ur.find_required_size(self.whole)

    @cached_property
    def kinds(self) -> tuple[int, ...]:
        """Return what each argument is (arguments.py), by the driver or by the SPIR-V."""
        said = [find_kind(self.ur, index) for index in range(self.ur.argument_count)]
        for index, one in enumerate(self.module.list_parameters(self.name)):
            if index < len(said) and said[index] == UNKNOWN:
                said[index] = SPIRV_KINDS[one.kind]
        return tuple(said)

    @property
    def pointer_indices(self) -> list[int]:
        """Return the arguments that are pointers, as far as the driver tells."""
        return [index for index, kind in enumerate(self.kinds) if kind == POINTER]

    def runs_on(self, context: ZeContext, device: ZeDevice) -> bool:
        """Return whether lists of a context and a device can launch it."""
        return self.context.shares(context) and device.is_part_of(self.device)

    def check_group(self, sizes: Sequence[int]) -> None:
        """Check that the kernel can be launched with a size of work-groups.

        Raises:
            LevelZeroError: INVALID_GROUP_SIZE_DIMENSION if it cannot.
        """
        limits = self.device.group_limits
        most = self.ur.query_group_size(self.whole)
        fits = all(1 <= size <= limit for size, limit in zip(sizes, limits, strict=True))
        if not fits or math.prod(sizes) > most:
            raise make_failure(
                "INVALID_GROUP_SIZE_DIMENSION",
                f"{tuple(sizes)}: a work-group has 1 to {most} work-items, at most {limits}",
            )
        if self.required and tuple(sizes) != self.required:
            raise make_failure(
                "INVALID_GROUP_SIZE_DIMENSION",
                f"{tuple(sizes)}: the kernel is compiled for {self.required}",
            )

    def read_argument(
        self, index: int, size: int, address: int, known: URKernelArgument | None = None
    ) -> URKernelArgument:
        """Read an argument from the caller's memory.

        Args:
            size: its bytes.
            address: where it is, 0 for local memory, a null pointer, or a value of zeros.
            known: what the driver has taken for it before, None if nothing.

        Raises:
            LevelZeroError: INVALID_KERNEL_ARGUMENT_INDEX, INVALID_KERNEL_ARGUMENT_SIZE,
                INVALID_ARGUMENT.
        """
        if index >= len(self.kinds):
            raise make_failure(
                "INVALID_KERNEL_ARGUMENT_INDEX",
                f"{self.name} has {len(self.kinds)} arguments, none is {index}",
            )
        kind = self.kinds[index]
        if kind == UNKNOWN and not address and index in self.not_local:
            kind = VALUE
        if kind == UNKNOWN and known is not None:
            if known.kind == URKernelArgument.POINTER:
                kind = POINTER
            elif known.kind == URKernelArgument.VALUE and not address:
                kind = VALUE
        made = read_argument(self.context, index, kind, size, address)
        room = self.spirv_sizes.get(index, 0)
        if made.kind == URKernelArgument.VALUE and made.size < room:  # as Intel's driver of GPUs
            return URKernelArgument(URKernelArgument.VALUE, room, made.value.ljust(room, b"\0"))
        return made

    def guess_again(self, argument: URKernelArgument) -> URKernelArgument | None:
        """Return what an argument may be that the driver has refused, None for nothing else.

        NULL is zeros where it is not local memory. An unknown address may be memory of the system.
        """
        if argument.kind == URKernelArgument.LOCAL:
            return URKernelArgument(URKernelArgument.VALUE, argument.size, bytes(argument.size))
        if argument.kind != URKernelArgument.VALUE or argument.size != HANDLE_SIZE:
            return None
        number = int.from_bytes(argument.value, "little")
        return (
            URKernelArgument(URKernelArgument.POINTER, 0, number)
            if self.takes_host_memory
            else None
        )

    def read_argument_of_launch(self, command: Any, index: int) -> URKernelArgument:
        """Return an argument that C has given to a launch (`fl_command`) of this kernel."""
        data = edits.get_argument_bytes(command, index)
        if self.kinds[index] == POINTER:
            return URKernelArgument(URKernelArgument.POINTER, 0, int.from_bytes(data, "little"))
        return URKernelArgument(URKernelArgument.VALUE, len(data), data)

    def check_argument(self, index: int, argument: URKernelArgument) -> None:
        """Check what only the driver knows: the size of a value, and the type of an image.

        Raises:
            LevelZeroError: INVALID_KERNEL_ARGUMENT_SIZE, INVALID_ARGUMENT.
        """
        is_known = self.value_sizes.get(index) == argument.size
        if argument.kind in _UNCHECKED or (argument.kind == URKernelArgument.VALUE and is_known):
            return
        copy = self.ur.create_copy()  # what is set on the kernel itself stays
        try:
            with self._convert_refusals(index, argument):
                set_arguments(copy, self.ur.context, [(index, argument)])
        finally:
            self.ur.table.clReleaseKernel(copy)

    @contextmanager
    def _convert_refusals(self, index: int, argument: URKernelArgument) -> Iterator[None]:
        """Give the driver's refusal of an argument its code, and note a size that it takes."""
        is_object = argument.kind in (URKernelArgument.MEM, URKernelArgument.SAMPLER)
        try:
            yield
        except OpenCLError as error:
            if error.code not in _REFUSALS:
                raise
            code = "INVALID_ARGUMENT" if is_object else "INVALID_KERNEL_ARGUMENT_SIZE"
            raise make_failure(code, f"argument {index} of {self.name}: {error}") from error
        if argument.kind == URKernelArgument.VALUE:
            self.value_sizes[index] = argument.size

    def set_argument(self, index: int, argument: URKernelArgument) -> None:
        """Set an argument on the OpenCL kernel.

        Raises:
            LevelZeroError: INVALID_KERNEL_ARGUMENT_SIZE, INVALID_ARGUMENT.
        """
        with self.ur.lock, self._convert_refusals(index, argument):
            set_on(self.ur, [(index, argument)])


@driver.entry
def zeKernelCreate(hModule: ZeModule, desc: Any) -> ZeKernel:
    return ZeKernel(hModule, ffi.string(desc.pKernelName).decode("utf-8", "replace"))


@driver.entry
def zeKernelSetGroupSize(
    hKernel: ZeKernel, groupSizeX: int, groupSizeY: int, groupSizeZ: int
) -> None:
    sizes = groupSizeX, groupSizeY, groupSizeZ
    hKernel.check_group(sizes)
    hKernel.sizes = sizes


@driver.entry
def zeKernelSetGlobalOffsetExp(hKernel: ZeKernel, offsetX: int, offsetY: int, offsetZ: int) -> None:
    hKernel.offsets = offsetX, offsetY, offsetZ


@driver.entry
def zeKernelSuggestGroupSize(
    hKernel: ZeKernel, globalSizeX: int, globalSizeY: int, globalSizeZ: int
) -> Sequence[int]:
    sizes = globalSizeX, globalSizeY, globalSizeZ
    return suggest_local_size(hKernel.ur, hKernel.whole, sizes, _LARGEST_SUGGESTION)


@driver.entry
def zeKernelSetArgumentValue(
    hKernel: ZeKernel, argIndex: int, argSize: int, pArgValue: int
) -> None:
    argument = hKernel.read_argument(argIndex, argSize, pArgValue)
    try:
        hKernel.set_argument(argIndex, argument)
    except (LevelZeroError, OpenCLError):
        other = hKernel.guess_again(argument)
        if other is None or hKernel.kinds[argIndex] != UNKNOWN:
            raise
        hKernel.set_argument(argIndex, other)
        hKernel.not_local.add(argIndex)
    else:
        if pArgValue:
            hKernel.not_local.add(argIndex)


@driver.entry
def zeKernelSetIndirectAccess(hKernel: ZeKernel, flags: int) -> None:
    set_indirect(hKernel.ur, bool(flags))
    hKernel.in_c.note_setting()
    hKernel.indirect = flags


driver.declare(
    zeKernelSuggestMaxCooperativeGroupCount=lambda hKernel: 1,
    zeKernelGetIndirectAccess=lambda hKernel: hKernel.indirect,
)


@driver.entry
def zeKernelSetCacheConfig(hKernel: ZeKernel, flags: int) -> None:
    """Do nothing: OpenCL has no such preference."""


@driver.entry
def zeKernelGetSourceAttributes(hKernel: ZeKernel, pSize: Any, pString: Any) -> None:
    text = hKernel.ur.query("CL_KERNEL_ATTRIBUTES").rstrip(b"\0") + b"\0"
    give_bytes(text, pSize, pString[0] or None if pString else None)


@driver.entry
def zeKernelGetName(hKernel: ZeKernel, pSize: Any, pName: Any) -> None:
    give_bytes(hKernel.name.encode() + b"\0", pSize, pName)


def _query_group_number(kernel: ZeKernel, name: str) -> int:
    try:
        data = kernel.ur.query_group_info(kernel.whole, name)
    except OpenCLError:
        return 0
    return min(int.from_bytes(data, "little"), LARGEST)


def _fill_preferred(kernel: ZeKernel, address: int) -> None:
    row = ffi.cast("ze_kernel_preferred_group_size_properties_t *", address)
    row.preferredMultiple = (
        _query_group_number(kernel, "CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE") or 1
    )


def _fill_largest(kernel: ZeKernel, address: int) -> None:
    row = ffi.cast("ze_kernel_max_group_size_properties_ext_t *", address)
    row.maxGroupSize = kernel.ur.query_group_size(kernel.whole)


#: What fills a struct that a caller chains to the properties of a kernel.
_CHAINED: Final = {
    ZE["ZE_STRUCTURE_TYPE_KERNEL_PREFERRED_GROUP_SIZE_PROPERTIES"]: _fill_preferred,
    ZE["ZE_STRUCTURE_TYPE_KERNEL_MAX_GROUP_SIZE_EXT_PROPERTIES"]: _fill_largest,
}


@driver.entry
def zeKernelGetProperties(hKernel: ZeKernel, pKernelProperties: Any) -> None:
    row, sizes = pKernelProperties, hKernel.required or (0, 0, 0)
    row.numKernelArgs = hKernel.ur.argument_count
    row.requiredGroupSizeX, row.requiredGroupSizeY, row.requiredGroupSizeZ = sizes
    row.requiredNumSubGroups = row.requiredSubgroupSize = row.spillMemSize = 0
    row.maxSubgroupSize = max(hKernel.device.sub_group_sizes)
    most = hKernel.ur.query_group_size(hKernel.whole)
    row.maxNumSubgroups = max(1, most // row.maxSubgroupSize)
    row.localMemSize = _query_group_number(hKernel, "CL_KERNEL_LOCAL_MEM_SIZE")
    row.privateMemSize = _query_group_number(hKernel, "CL_KERNEL_PRIVATE_MEM_SIZE")
    row.uuid.kid = row.uuid.mid = bytes(16)
    for stype, address in walk_chain(row.pNext):
        if stype in _CHAINED:
            _CHAINED[stype](hKernel, address)
