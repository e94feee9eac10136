"""Launches that are given everything at once: counts and sizes of groups, and all arguments.

The caller gives an address for each argument, and no sizes. OpenCL does not tell the size of a
value. But its drivers refuse another one, so sizes are tried until one is taken. PoCL takes a
struct of any size. Its binaries have the size. For a version whose binaries are unknown the
compiler tells it, if the module is made of OpenCL C. The PTX of NVIDIA's driver has all sizes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ...icd.nvidia_ptx import PtxParameter
from ..sdk._native_ze import ffi
from ..sdk.kernel_arguments import HANDLE_SIZE, URKernelArgument
from .appends import zeCommandListAppendLaunchKernelWithParameters
from .arguments import query_type_name
from .core import driver, make_failure
from .events import ZeEvent
from .in_c import LOCAL, UNKNOWN, VALUE
from .kernels import ZeKernel
from .lists import ZeCommandList

#: A size in bytes that no value has. A driver that takes it takes any size.
_NO_SIZE: Final = 1 << 16
#: Sizes of values in bytes that are tried first.
_USUAL: Final = 4, 8, 1, 2, 16, 32, 64, 128
#: Sizes in bytes that no address has, and hardly any value. Local memory has any size.
_LOCAL_SIZES: Final = 24, 40


class _SizeProbe:
    """A kernel on which arguments are tried."""

    def __init__(self, kernel: ZeKernel) -> None:
        self._kernel, self._cl = kernel, kernel.ur.create_copy()
        self._zeros = bytes(_NO_SIZE)

    def close(self) -> None:
        """Release the copy of the kernel."""
        self._kernel.ur.table.clReleaseKernel(self._cl)

    def takes(self, index: int, size: int, value: bytes | None) -> bool:
        """Return whether the driver accepts an argument of so many bytes. None is local memory."""
        return not self._kernel.ur.table.clSetKernelArg(self._cl, index, size, value)

    def is_local(self, index: int) -> bool:
        """Return whether an argument is local memory, which has no value.

        NVIDIA's driver takes any size without a value for other arguments, too.
        """
        takes_sizes = all(self.takes(index, size, None) for size in _LOCAL_SIZES)
        return takes_sizes and not self.takes(index, HANDLE_SIZE, self._zeros)

    def find_size(self, index: int) -> int:
        """Return the bytes of a value or an object, 0 if the driver takes any number of them."""
        if self.takes(index, _NO_SIZE, self._zeros):
            return 0
        most = self._kernel.device.query_number("CL_DEVICE_MAX_PARAMETER_SIZE", 1024)
        sizes = (*_USUAL, *range(1, min(most, _NO_SIZE - 1) + 1))
        found = (size for size in sizes if self.takes(index, size, self._zeros))
        return next(found, HANDLE_SIZE)  # objects do not take zeros


def _find_sizes(kernel: ZeKernel) -> None:
    """Find out the size of each value, and which arguments are local memory."""
    ptx = kernel.module.ptx
    if ptx is not None and kernel.name in ptx.kernels:
        _read_sizes(kernel, ptx.kernels[kernel.name].parameters)
        return
    probe = _SizeProbe(kernel)
    try:
        for index, kind in enumerate(kernel.kinds):
            if kind == UNKNOWN and probe.is_local(index):
                kernel.local_arguments.add(index)
            elif kind in (UNKNOWN, VALUE) and index not in kernel.value_sizes:
                kernel.value_sizes[index] = probe.find_size(index) or _ask_compiler(kernel, index)
    finally:
        probe.close()


def _read_sizes(kernel: ZeKernel, parameters: Sequence[PtxParameter]) -> None:
    """Take what PTX says of arguments. NVIDIA's driver crashes if sizes are tried."""
    for index, one in enumerate(parameters):
        if one.kind == "local":
            kernel.local_arguments.add(index)
        elif one.kind != "other":
            kernel.value_sizes[index] = one.size if one.kind == "value" else HANDLE_SIZE


def _ask_compiler(kernel: ZeKernel, index: int) -> int:
    """Return an argument's bytes as the compiled module tells them, 0 if it does not."""
    if size := kernel.module.struct_sizes.get(kernel.name, {}).get(index, 0):
        return size
    name = query_type_name(kernel.ur, index).decode()
    return kernel.module.find_size(name) if name else 0


def _read(kernel: ZeKernel, places: Any) -> Iterator[URKernelArgument]:
    """Yield the arguments at an array of addresses, `void **`.

    Raises:
        LevelZeroError: INVALID_NULL_POINTER; what `ZeKernel.read_argument` raises;
            UNSUPPORTED_FEATURE if nobody tells the size of a value.
    """
    for index, kind in enumerate(kernel.kinds):
        where = int(ffi.cast("uintptr_t", places[index]))
        if not where:
            raise make_failure("INVALID_NULL_POINTER", f"pArguments[{index}]")
        if kind == LOCAL or index in kernel.local_arguments:
            size = ctypes.c_size_t.from_address(where).value
            yield URKernelArgument(URKernelArgument.LOCAL, size, None)
            continue
        size = kernel.value_sizes.get(index, 0) if kind in (UNKNOWN, VALUE) else HANDLE_SIZE
        if not size:
            detail = f"the driver does not tell the size of argument {index} of {kernel.name}"
            raise make_failure("UNSUPPORTED_FEATURE", detail)
        yield kernel.read_argument(index, size, where)


@driver.entry
def zeCommandListAppendLaunchKernelWithArguments(
    hCommandList: ZeCommandList,
    hKernel: ZeKernel,
    groupCounts: Any,
    groupSizes: Any,
    pArguments: Any,
    pNext: int,
    hSignalEvent: ZeEvent | None,
    phWaitEvents: list[ZeEvent],
) -> None:
    """Append a launch. What it is given stays set on the kernel."""
    sizes = groupSizes.groupSizeX, groupSizes.groupSizeY, groupSizes.groupSizeZ
    hKernel.check_group(sizes)
    if not hKernel.sizes_known:
        _find_sizes(hKernel)
        hKernel.sizes_known = True
    arguments = list(_read(hKernel, pArguments))
    hKernel.sizes = sizes
    for index, argument in enumerate(arguments):
        hKernel.set_argument(index, argument)
    zeCommandListAppendLaunchKernelWithParameters(
        hCommandList, hKernel, groupCounts, pNext, hSignalEvent, phWaitEvents
    )
