"""Kernels: queries, settings other than arguments, and the local size that suits a launch."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Sequence
from typing import Any

from ...loader.ur.abi import UR
from ..sdk.kernels import declare_suggestions, read_exec_info
from .core import INVALID_VALUE, DriverError, adapter
from .devices import CuDevice
from .kernels import CuKernel
from .queues import CuQueue


def _make_attribute_query(name: str) -> Any:
    return lambda kernel: kernel.query_attribute(kernel.program.any_module.device, name)


adapter.info(
    "urKernelGetInfo",
    {
        "UR_KERNEL_INFO_FUNCTION_NAME": lambda kernel: kernel.name,
        "UR_KERNEL_INFO_NUM_ARGS": lambda kernel: len(kernel.parameter_sizes),
        "UR_KERNEL_INFO_REFERENCE_COUNT": lambda kernel: kernel.references,
        "UR_KERNEL_INFO_CONTEXT": lambda kernel: kernel.context,
        "UR_KERNEL_INFO_PROGRAM": lambda kernel: kernel.program,
        "UR_KERNEL_INFO_ATTRIBUTES": "",
        "UR_KERNEL_INFO_NUM_REGS": _make_attribute_query("NUM_REGS"),
        "UR_KERNEL_INFO_SPILL_MEM_SIZE": lambda kernel: [
            kernel.query_attribute(device, "LOCAL_SIZE_BYTES") for device in kernel.program.modules
        ],
    },
)


def _query_most_items(device: CuDevice) -> bytes:
    """Return the most work-items in each dimension, as three size_t."""
    most = (
        device.query_attribute(f"MAX_GRID_DIM_{axis}")
        * device.query_attribute(f"MAX_BLOCK_DIM_{axis}")
        for axis in "XYZ"
    )
    return struct.pack("@3N", *most)


@adapter.entry
def urKernelGetGroupInfo(hKernel: CuKernel, hDevice: CuDevice, propName: int) -> Any:
    name = UR.groups["ur_kernel_group_info_t"][propName].removeprefix("UR_KERNEL_GROUP_INFO_")
    if name == "GLOBAL_WORK_SIZE":
        return _query_most_items(hDevice)
    if name == "WORK_GROUP_SIZE":
        return hKernel.query_group_size(hDevice)
    if name == "COMPILE_WORK_GROUP_SIZE":
        return struct.pack("@3N", *(hKernel.find_required_size(hDevice) or (0, 0, 0)))
    if name == "LOCAL_MEM_SIZE":
        return hKernel.query_attribute(hDevice, "SHARED_SIZE_BYTES")
    if name == "PREFERRED_WORK_GROUP_SIZE_MULTIPLE":
        return hKernel.find_sub_group_size(hDevice)
    if name == "PRIVATE_MEM_SIZE":
        return hKernel.query_attribute(hDevice, "LOCAL_SIZE_BYTES")
    return None


@adapter.entry
def urKernelGetSubGroupInfo(hKernel: CuKernel, hDevice: CuDevice, propName: int) -> int:
    size = hKernel.find_sub_group_size(hDevice)
    return {
        "UR_KERNEL_SUB_GROUP_INFO_MAX_SUB_GROUP_SIZE": size,
        "UR_KERNEL_SUB_GROUP_INFO_MAX_NUM_SUB_GROUPS": -(
            -hKernel.query_group_size(hDevice) // size
        ),
        "UR_KERNEL_SUB_GROUP_INFO_COMPILE_NUM_SUB_GROUPS": 0,
        "UR_KERNEL_SUB_GROUP_INFO_SUB_GROUP_SIZE_INTEL": 0,
    }[UR.groups["ur_kernel_sub_group_info_t"][propName]]


@adapter.entry
def urKernelSetExecInfo(hKernel: CuKernel, propName: int, propSize: int, pPropValue: int) -> None:
    """Check settings, which the driver does not need: kernels may use all memory."""
    read_exec_info(propName, propSize, pPropValue)


def _suggest(
    kernel: CuKernel, queue: CuQueue, offsets: list[int], sizes: list[int], arguments: list[Any]
) -> Sequence[int]:
    kernel.check(arguments)
    return kernel.suggest(queue.device, sizes)


declare_suggestions(adapter, _suggest)


@adapter.entry
def urKernelSuggestMaxCooperativeGroupCount(
    hKernel: CuKernel,
    hDevice: CuDevice,
    workDim: int,
    pLocalWorkSize: list[int],
    dynamicSharedMemorySize: int,
) -> int:
    hKernel.check_group(hDevice, pLocalWorkSize)
    count, function = ctypes.c_int(), hKernel.get_function(hDevice)
    size, shared = math.prod(pLocalWorkSize), dynamicSharedMemorySize
    name = "OccupancyMaxActiveBlocksPerMultiprocessor"
    try:
        hDevice.call(name, ctypes.byref(count), function, size, shared)
    except DriverError as error:
        if error.value != INVALID_VALUE:
            raise
        return 0  # no work-group fits
    return count.value * hDevice.query_attribute("MULTIPROCESSOR_COUNT")
