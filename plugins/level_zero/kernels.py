"""Kernels, what is set on them, and what a launch takes of them.

An argument of Level Zero is a size and an address. What it is, the kernel says: OpenCL tells where
an argument points to (clGetKernelArgInfo). Programs of SPIR-V and binaries may not tell. Then eight
bytes that are an address in memory of the context are a pointer."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from ...icd._native import ffi as icd_ffi
from ...icd._native import lib as icd_lib
from ...icd.abi import OPENCL
from ...icd.command_buffer import edits
from ...icd.errors import OpenCLError, check
from ...loader.base.query import text
from ...loader.ur.abi import UR
from ...loader.ze.abi import LevelZeroError
from ..opencl.core import create
from ..opencl.kernel_info import suggest_local_size, urKernelSetExecInfo
from ..opencl.kernels import URKernel, set_on
from ..opencl.usm.addresses import pointer_argument
from ..opencl.usm.registry import find
from ..sdk._native_ze import ffi
from ..sdk.conversions import keep_text
from ..sdk.kernel_arguments import HANDLE_SIZE, URKernelArgument
from ..sdk.objects import Object
from .core import ZE, chain, driver, ze_failure
from .in_c import LOCAL, POINTER, UNKNOWN, VALUE, KernelInC, number_of
from .modules import ZeModule, give_bytes

_LARGEST: Final = 0xFFFFFFFF
_LARGEST_VALUE: Final = 1 << 16  # bytes; no device takes as many
_QUALIFIER: Final = OPENCL["CL_KERNEL_ARG_ADDRESS_QUALIFIER"]
_GLOBAL, _LOCAL, _CONSTANT, _PRIVATE = (
    OPENCL[f"CL_KERNEL_ARG_ADDRESS_{name}"] for name in ("GLOBAL", "LOCAL", "CONSTANT", "PRIVATE")
)
#: What C calls them.
_IN_C: Final[dict[int | None, int]] = {
    _GLOBAL: POINTER,
    _CONSTANT: POINTER,
    _LOCAL: LOCAL,
    _PRIVATE: VALUE,
}
_INDIRECT: Final = UR["UR_KERNEL_EXEC_INFO_USM_INDIRECT_ACCESS"]


@dataclass(frozen=True)
class LaunchShape:
    """The sizes of a launch: how many groups, how many work-items in each, and the first item."""

    counts: tuple[int, int, int]
    sizes: tuple[int, int, int]
    offsets: tuple[int, int, int] = (0, 0, 0)

    @property
    def dim(self) -> int:
        """Return the dimensions that it needs."""
        rows = zip(self.counts, self.sizes, self.offsets, strict=True)
        used = [number for number, (n, size, at) in enumerate(rows, 1) if n * size > 1 or at]
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
        """Write it to an `fl_command`."""
        command.n[0:9] = self.numbers
        command.work_dim, command.has_local = self.dim, 1
        command.has_offset = any(self.offsets)


@driver.kind
class ZeKernel(Object):
    """A kernel, with what is set on it.

    Attributes:
        ur: the kernel of the reference adapter, which has the arguments.
        in_c: what C knows of it.
        indirect: ze_kernel_indirect_access_flags_t.
        not_local: the arguments that are known to be no local memory, though the driver does not
            tell what they are. NULL stands for zeros there.
    """

    type = "ze_kernel_handle_t"

    def __init__(self, module: ZeModule, name: str) -> None:
        self.module, self.name, self.context = module, name, module.context
        program = module.program
        self.ur = URKernel(
            create(program.table, "clCreateKernel", program.cl, name.encode()), program
        )
        self.device = module.device
        self.in_c = KernelInC(
            self.ur,
            self.device.ur,
            [_IN_C.get(where, UNKNOWN) for where in self.qualifiers],
            self.device.group_limits,
            self.required,
        )
        self.sizes = self.required or (1, 1, 1)
        self.indirect = 0
        self.value_sizes: dict[int, int] = {}
        self.not_local: set[int] = set()

    def describe_to_c(self) -> tuple[int, int, int, int]:
        """Return what native/ze_calls.h says."""
        return number_of(self.in_c.struct), 0, 0, 0

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
        """Return the size of work-groups that it is compiled for, None for any."""
        return self.ur.required_size(self.device.ur)

    @cached_property
    def qualifiers(self) -> tuple[int | None, ...]:
        """Return where each argument points to, None where the driver does not tell."""
        return tuple(map(self._qualifier, range(self.ur.argument_count)))

    @property
    def pointer_indices(self) -> list[int]:
        """Return the arguments that are pointers, as far as the driver tells."""
        found = enumerate(self.qualifiers)
        return [index for index, where in found if where in (_GLOBAL, _CONSTANT)]

    def _qualifier(self, index: int) -> int | None:
        value = ctypes.c_uint32()
        code = self.ur.table.clGetKernelArgInfo(
            self.ur.cl, index, _QUALIFIER, 4, ctypes.byref(value), None
        )
        return value.value if code == 0 else None

    def check_group(self, sizes: Sequence[int]) -> None:
        """Check that it can be launched with a size of work-groups.

        Raises:
            LevelZeroError: INVALID_GROUP_SIZE_DIMENSION if it cannot.
        """
        limits = self.device.group_limits
        most = self.ur.group_size(self.device.ur)
        fits = all(1 <= size <= limit for size, limit in zip(sizes, limits, strict=True))
        if not fits or math.prod(sizes) > most:
            raise ze_failure(
                "INVALID_GROUP_SIZE_DIMENSION",
                f"{tuple(sizes)}: a work-group has 1 to {most} work-items, at most {limits}",
            )
        if self.required and tuple(sizes) != self.required:
            raise ze_failure(
                "INVALID_GROUP_SIZE_DIMENSION",
                f"{tuple(sizes)}: the kernel is compiled for {self.required}",
            )

    def read_argument(self, index: int, size: int, address: int) -> URKernelArgument:
        """Read an argument from the caller's memory.

        Args:
            index: which argument.
            size: its bytes.
            address: where it is, 0 for local memory, a null pointer, or a value of zeros.

        Raises:
            LevelZeroError: INVALID_KERNEL_ARGUMENT_INDEX, INVALID_KERNEL_ARGUMENT_SIZE,
                INVALID_ARGUMENT.
        """
        if index >= len(self.qualifiers):
            raise ze_failure(
                "INVALID_KERNEL_ARGUMENT_INDEX",
                f"{self.name} has {len(self.qualifiers)} arguments, none is {index}",
            )
        where = self.qualifiers[index]
        if where is None and not address:
            where = _PRIVATE if index in self.not_local else _LOCAL
        if size > _LARGEST_VALUE and where != _LOCAL:
            raise ze_failure("INVALID_KERNEL_ARGUMENT_SIZE", f"no argument has {size} bytes")
        data = ctypes.string_at(address, size) if address else b""
        if where is None:
            where = self._guess(data, size)
        if where == _LOCAL:
            if address:
                raise ze_failure("INVALID_ARGUMENT", f"argument {index} is local memory")
            return URKernelArgument(URKernelArgument.LOCAL, size, None)
        if where in (_GLOBAL, _CONSTANT):
            if size != HANDLE_SIZE:
                raise ze_failure(
                    "INVALID_KERNEL_ARGUMENT_SIZE", f"argument {index} is a pointer of 8 bytes"
                )
            return URKernelArgument(URKernelArgument.POINTER, 0, int.from_bytes(data, "little"))
        return URKernelArgument(URKernelArgument.VALUE, size, data or bytes(size))

    def _guess(self, data: bytes, size: int) -> int:
        """Say what an argument with a value is of which the driver tells nothing."""
        is_address = size == HANDLE_SIZE and find(self.context.ur, int.from_bytes(data, "little"))
        return _GLOBAL if is_address else _PRIVATE

    def argument_in(self, command: Any, index: int) -> URKernelArgument:
        """Return an argument that C has given to a launch (`fl_command`) of this kernel."""
        data = edits.bytes_of(command, index)
        if self.qualifiers[index] in (_GLOBAL, _CONSTANT):
            return URKernelArgument(URKernelArgument.POINTER, 0, int.from_bytes(data, "little"))
        return URKernelArgument(URKernelArgument.VALUE, len(data), data)

    def check_value(self, index: int, argument: URKernelArgument) -> None:
        """Check the size of a value, which only the driver knows.

        Raises:
            LevelZeroError: INVALID_KERNEL_ARGUMENT_SIZE if it has another size.
            OpenCLError: what else the driver answers.
        """
        if argument.kind != URKernelArgument.VALUE or self.value_sizes.get(index) == argument.size:
            return
        copy = self.ur.create_copy()  # what is set on the kernel itself stays
        try:
            code = self.ur.table.clSetKernelArg(copy, index, argument.size, argument.value)
        finally:
            self.ur.table.clReleaseKernel(copy)
        if OPENCL.errors.get(code, ("",))[0] in ("CL_INVALID_ARG_SIZE", "CL_INVALID_ARG_VALUE"):
            raise ze_failure("INVALID_KERNEL_ARGUMENT_SIZE", f"argument {index} of {self.name}")
        check(code, "clSetKernelArg")
        self.value_sizes[index] = argument.size

    def set_argument(self, index: int, argument: URKernelArgument) -> None:
        """Set an argument on the OpenCL kernel.

        Raises:
            LevelZeroError: INVALID_KERNEL_ARGUMENT_SIZE.
            OpenCLError: what else the driver answers.
        """
        with self.ur.lock:
            try:
                set_on(self.ur, [(index, argument)])
            except OpenCLError as error:
                if error.code not in ("CL_INVALID_ARG_SIZE", "CL_INVALID_ARG_VALUE"):
                    raise
                raise ze_failure(
                    "INVALID_KERNEL_ARGUMENT_SIZE", f"argument {index} of {self.name}: {error}"
                ) from error
        if argument.kind == URKernelArgument.VALUE:
            self.value_sizes[index] = argument.size


def make_arguments(
    kernel: ZeKernel, arguments: Mapping[int, URKernelArgument]
) -> tuple[Any, list[Any]]:
    """Return the arguments of a launch as commands have them, which the caller releases.

    Args:
        kernel: the kernel.
        arguments: what is set, by index.

    Returns:
        An `fl_arguments *`, and what has to live as long.

    Raises:
        MemoryError: there is no memory.
        URError: an address that the context cannot use.
    """
    changes = icd_ffi.new("fl_change[]", len(arguments))
    kept: list[Any] = []
    for row, (index, (kind, size, value)) in zip(changes, arguments.items(), strict=True):
        row.index = index
        if kind == URKernelArgument.LOCAL:
            row.kind, row.size = edits.VALUE, size
        elif kind == URKernelArgument.POINTER:
            setter, number = pointer_argument(kernel.context.ur, value)
            if setter in ("svm", "usm"):
                row.kind, row.value = edits.POINTER, icd_ffi.cast("void *", number)
            else:
                kept.append(icd_ffi.new("uintptr_t *", number))
                row.kind, row.size = edits.MEMORY if number else edits.VALUE, HANDLE_SIZE
                row.value = icd_ffi.cast("void *", kept[-1])
        else:
            kept.append(icd_ffi.from_buffer(value))
            row.kind, row.size = edits.VALUE, size
            row.value = icd_ffi.cast("void *", kept[-1])
    count = kernel.ur.argument_count
    made = icd_lib.fl_change_arguments(icd_ffi.NULL, count, changes, len(changes))
    if not made and count:
        raise MemoryError("no memory for a launch's arguments")
    return made, kept


@driver.entry
def zeKernelCreate(hModule: ZeModule, desc: Any) -> ZeKernel:
    if not desc.pKernelName:
        raise ze_failure("INVALID_NULL_POINTER", "desc->pKernelName")
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
    if not all(sizes):
        raise ze_failure("INVALID_GLOBAL_WIDTH_DIMENSION", "there is nothing to divide")
    return suggest_local_size(hKernel.ur, hKernel.device.ur, sizes)


@driver.entry
def zeKernelSuggestMaxCooperativeGroupCount(hKernel: ZeKernel) -> int:
    return 1  # groups of OpenCL do not have to run at the same time


@driver.entry
def zeKernelSetArgumentValue(
    hKernel: ZeKernel, argIndex: int, argSize: int, pArgValue: int
) -> None:
    argument = hKernel.read_argument(argIndex, argSize, pArgValue)
    try:
        hKernel.set_argument(argIndex, argument)
    except LevelZeroError:
        if argument.kind != URKernelArgument.LOCAL or hKernel.qualifiers[argIndex] is not None:
            raise
        hKernel.not_local.add(argIndex)  # NULL stands for zeros
        hKernel.set_argument(argIndex, hKernel.read_argument(argIndex, argSize, pArgValue))
    else:
        if pArgValue:
            hKernel.not_local.add(argIndex)


@driver.entry
def zeKernelSetIndirectAccess(hKernel: ZeKernel, flags: int) -> None:
    allowed = ctypes.c_bool(bool(flags))
    urKernelSetExecInfo(hKernel.ur, _INDIRECT, 1, ctypes.addressof(allowed))
    hKernel.in_c.note_setting()
    hKernel.indirect = flags


@driver.entry
def zeKernelGetIndirectAccess(hKernel: ZeKernel) -> int:
    return hKernel.indirect


@driver.entry
def zeKernelSetCacheConfig(hKernel: ZeKernel, flags: int) -> None:
    """Do nothing: OpenCL has no such preference."""


@driver.entry
def zeKernelGetSourceAttributes(hKernel: ZeKernel, pSize: Any, pString: Any) -> None:
    found = text(hKernel.ur.query("CL_KERNEL_ATTRIBUTES"))
    if pString:
        pString[0] = ffi.cast("char *", int(_address(keep_text(found))))
    pSize[0] = len(found.encode()) + 1


def _address(pointer: Any) -> int:
    from ..sdk._native import ffi as ur_ffi

    return int(ur_ffi.cast("uintptr_t", pointer))


@driver.entry
def zeKernelGetName(hKernel: ZeKernel, pSize: Any, pName: Any) -> None:
    give_bytes(hKernel.name.encode() + b"\0", pSize, pName)


def _group_number(kernel: ZeKernel, name: str) -> int:
    try:
        data = kernel.ur.group_info(kernel.device.ur, name)
    except OpenCLError:
        return 0
    return min(int.from_bytes(data, "little"), _LARGEST)


def _fill_preferred(kernel: ZeKernel, address: int) -> None:
    row = ffi.cast("ze_kernel_preferred_group_size_properties_t *", address)
    row.preferredMultiple = (
        _group_number(kernel, "CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE") or 1
    )


def _fill_largest(kernel: ZeKernel, address: int) -> None:
    row = ffi.cast("ze_kernel_max_group_size_properties_ext_t *", address)
    row.maxGroupSize = kernel.ur.group_size(kernel.device.ur)


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
    most = hKernel.ur.group_size(hKernel.device.ur)
    row.maxNumSubgroups = max(1, most // row.maxSubgroupSize)
    row.localMemSize = _group_number(hKernel, "CL_KERNEL_LOCAL_MEM_SIZE")
    row.privateMemSize = _group_number(hKernel, "CL_KERNEL_PRIVATE_MEM_SIZE")
    row.uuid.kid = row.uuid.mid = bytes(16)
    for stype, address in chain(row.pNext):
        if stype in _CHAINED:
            _CHAINED[stype](hKernel, address)
