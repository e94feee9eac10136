"""Kernels of CUDA and HIP: queries, settings other than arguments, and the local size that suits a
launch.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Sequence
from typing import Any

from ..sdk.kernels import declare_kernels, declare_suggestions
from .core import adapter
from .devices import CuDevice
from .kernels import CuKernel, take_native_kernel
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


adapter.info(
    "urKernelGetGroupInfo",
    {
        "GLOBAL_WORK_SIZE": lambda kernel, device: _query_most_items(device),
        "WORK_GROUP_SIZE": CuKernel.query_group_size,
        "COMPILE_WORK_GROUP_SIZE": lambda kernel, device: struct.pack(
            "@3N", *(kernel.find_required_size(device) or (0, 0, 0))
        ),
        "LOCAL_MEM_SIZE": lambda kernel, device: kernel.query_attribute(
            device, "SHARED_SIZE_BYTES"
        ),
        "PREFERRED_WORK_GROUP_SIZE_MULTIPLE": CuKernel.find_sub_group_size,
        "PRIVATE_MEM_SIZE": lambda kernel, device: kernel.query_attribute(
            device, "LOCAL_SIZE_BYTES"
        ),
    },
    "UR_KERNEL_GROUP_INFO_",
)
adapter.info(
    "urKernelGetSubGroupInfo",
    {
        "MAX_SUB_GROUP_SIZE": CuKernel.find_sub_group_size,
        "MAX_NUM_SUB_GROUPS": lambda kernel, device: (
            -(-kernel.query_group_size(device) // kernel.find_sub_group_size(device))
        ),
        "COMPILE_NUM_SUB_GROUPS": 0,
        "SUB_GROUP_SIZE_INTEL": 0,
    },
    "UR_KERNEL_SUB_GROUP_INFO_",
)


def _suggest(
    kernel: CuKernel, queue: CuQueue, offsets: list[int], sizes: list[int], arguments: list[Any]
) -> Sequence[int]:
    kernel.check(arguments)
    return kernel.suggest(queue.device, sizes)


declare_suggestions(adapter, _suggest)


def _count_groups(kernel: CuKernel, device: CuDevice, local: list[int], dynamic: int) -> int:
    kernel.check_group(device, local)
    count, function = ctypes.c_int(), kernel.get_function(device)
    if kernel.count_local(device, dynamic) > device.local_memory:
        return 0  # no work-group fits
    kernel.allow_local(device, function, dynamic)
    name = "OccupancyMaxActiveBlocksPerMultiprocessor"
    device.call(name, ctypes.byref(count), function, math.prod(local), dynamic)
    return count.value * device.query_attribute("MULTIPROCESSOR_COUNT")


declare_kernels(
    adapter,
    create=CuKernel,
    take_native=take_native_kernel,
    set_execution=lambda kernel, info: None,  # kernels may use all memory
    count_groups=_count_groups,
)
