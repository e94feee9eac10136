"""Kernels of the OpenCL adapter: queries, settings other than arguments, and the local size that
suits a launch.
"""

from __future__ import annotations

import ctypes
import math
import struct
import sys
from collections.abc import Sequence
from typing import Any, Final

from ...icd.abi import OPENCL
from ...icd.errors import OpenCLError
from ...loader.base.query import decode_text
from ..sdk.kernels import declare_suggestions
from .core import adapter, check, failure
from .devices import URDevice
from .kernel_arguments import set_on
from .kernels import URKernel
from .queues import URQueue
from .usm.registry import list_allocations

_INVALID_VALUE: Final = "CL_INVALID_VALUE"


def _query_spilled(kernel: URKernel) -> list[int] | None:
    """Return the bytes that registers are spilled to, for each device of the program."""
    devices = kernel.program.devices
    if any("cl_intel_required_subgroup_size" not in device.icd.extensions for device in devices):
        return None
    try:
        sizes = [
            kernel.get_constant_info(device, "CL_KERNEL_SPILL_MEM_SIZE_INTEL") for device in devices
        ]
    except OpenCLError as error:
        if error.code != _INVALID_VALUE:
            raise
        return None
    return [int.from_bytes(size, "little") for size in sizes]


adapter.info(
    "urKernelGetInfo",
    {
        "UR_KERNEL_INFO_FUNCTION_NAME": lambda kernel: decode_text(
            kernel.query("CL_KERNEL_FUNCTION_NAME")
        ),
        "UR_KERNEL_INFO_NUM_ARGS": lambda kernel: kernel.argument_count,
        "UR_KERNEL_INFO_REFERENCE_COUNT": lambda kernel: kernel.references,
        "UR_KERNEL_INFO_CONTEXT": lambda kernel: kernel.context,
        "UR_KERNEL_INFO_PROGRAM": lambda kernel: kernel.program,
        "UR_KERNEL_INFO_ATTRIBUTES": lambda kernel: decode_text(
            kernel.query("CL_KERNEL_ATTRIBUTES")
        ),
        "UR_KERNEL_INFO_NUM_REGS": None,  # OpenCL does not tell
        "UR_KERNEL_INFO_SPILL_MEM_SIZE": _query_spilled,
    },
)


def _make_group_query(name: str, constant: bool, numbers: bool) -> Any:
    def answer(kernel: URKernel, device: URDevice) -> Any:
        ask = kernel.get_constant_info if constant else kernel.query_group_info
        try:
            data = ask(device, f"CL_KERNEL_{name}")
        except OpenCLError as error:
            if error.code != _INVALID_VALUE:
                raise
            return None
        return data if numbers else int.from_bytes(data, "little")

    return answer


#: OpenCL has no query for the largest work-group that a source allows. Only built-in kernels have a
#: global work size. Sizes are 8 bytes in both interfaces.
adapter.info(
    "urKernelGetGroupInfo",
    {
        name: _make_group_query(name, constant, numbers)
        for name, constant, numbers in (
            ("GLOBAL_WORK_SIZE", True, True),
            ("WORK_GROUP_SIZE", True, False),
            ("COMPILE_WORK_GROUP_SIZE", True, True),
            ("LOCAL_MEM_SIZE", False, False),
            ("PREFERRED_WORK_GROUP_SIZE_MULTIPLE", True, False),
            ("PRIVATE_MEM_SIZE", False, False),
        )
    },
    "UR_KERNEL_GROUP_INFO_",
)


# sub-groups


def _make_sub_group_query(name: str, without: int) -> Any:
    query = _query_required if name.endswith("_INTEL") else _query_sub_group

    def answer(kernel: URKernel, device: URDevice) -> int:
        try:
            found = query(kernel, device, name)
        except OpenCLError as error:
            if error.code not in ("CL_INVALID_OPERATION", _INVALID_VALUE):
                raise
            found = None
        return without if found is None else found

    return answer


def _query_required(kernel: URKernel, device: URDevice, name: str) -> int | None:
    if "cl_intel_required_subgroup_size" not in device.icd.extensions:
        return None
    return int.from_bytes(kernel.get_constant_info(device, name), "little")


def _query_sub_group(kernel: URKernel, device: URDevice, name: str) -> int | None:
    ask: Any = kernel.table.clGetKernelSubGroupInfo
    if device.icd.version_number < (2, 1):
        address = device.platform.icd.extension_function("clGetKernelSubGroupInfoKHR")
        if not address:
            return None
        ask = OPENCL.functions["clGetKernelSubGroupInfoKHR"].prototype(address)
    for_size = name.endswith("_FOR_NDRANGE")
    sizes = device.icd.info("CL_DEVICE_MAX_WORK_ITEM_SIZES") if for_size else ()
    given = (ctypes.c_size_t * len(sizes))(*sizes) if sizes else None
    answer = ctypes.c_size_t()
    data = (ctypes.sizeof(given), given) if given is not None else (0, None)
    out = ctypes.sizeof(answer), ctypes.byref(answer), None
    code = ask(kernel.cl, device.cl, OPENCL[name], *data, *out)
    check(code, "clGetKernelSubGroupInfo")
    return answer.value


#: OpenCL's names, and the answers without sub-groups: a work-item is a sub-group (as in
#: device_info.py), and a source does not mention them.
adapter.info(
    "urKernelGetSubGroupInfo",
    {
        name: _make_sub_group_query(f"CL_KERNEL_{opencl}", without)
        for name, opencl, without in (
            ("MAX_SUB_GROUP_SIZE", "MAX_SUB_GROUP_SIZE_FOR_NDRANGE", 1),
            ("MAX_NUM_SUB_GROUPS", "MAX_NUM_SUB_GROUPS", 1),
            ("COMPILE_NUM_SUB_GROUPS", "COMPILE_NUM_SUB_GROUPS", 0),
            ("SUB_GROUP_SIZE_INTEL", "COMPILE_SUB_GROUP_SIZE_INTEL", 0),
        )
    },
    "UR_KERNEL_SUB_GROUP_INFO_",
)


# settings

_INDIRECT: Final = tuple(
    OPENCL[f"CL_KERNEL_EXEC_INFO_INDIRECT_{kind}_ACCESS_INTEL"]
    for kind in ("HOST", "DEVICE", "SHARED")
)


def _set(kernel: URKernel, name: int, value: Any, size: int) -> None:
    with kernel.lock:
        check(kernel.table.clSetKernelExecInfo(kernel.cl, name, size, value), "clSetKernelExecInfo")
        kernel.note_setting()


def _has_usm(kernel: URKernel) -> bool:
    return all(
        "cl_intel_unified_shared_memory" in device.icd.extensions
        for device in kernel.context.devices
    )


def _has_svm(kernel: URKernel) -> bool:
    return kernel.context.platform.icd.version_number >= (2, 0)


def set_indirect(kernel: URKernel, allowed: bool) -> None:
    """Set whether the kernel may use pointers that it reads from memory. On a CPU it always may."""
    if _has_usm(kernel):
        value = ctypes.byref(ctypes.c_uint32(allowed or bool(kernel.declared_memory)))
        for name in _INDIRECT:
            _set(kernel, name, value, 4)
    else:
        kernel.has_indirect_access = (
            allowed
            and _has_svm(kernel)
            and any(device.icd.type != "CPU" for device in kernel.context.devices)
        )


def declare_memory(kernel: URKernel) -> None:
    """Give the driver the addresses of all SVM, for a kernel that may use any. Its lock is held.

    Args:
        kernel: a kernel with `has_indirect_access`.
    """
    bases = [allocation.driver_base for allocation in list_allocations(kernel.context)]
    if bases and bases != kernel.declared_memory:
        _declare(kernel, bases)


def _declare(kernel: URKernel, pointers: list[int]) -> None:
    array = (ctypes.c_void_p * len(pointers))(*pointers)
    _set(kernel, OPENCL["CL_KERNEL_EXEC_INFO_SVM_PTRS"], array, ctypes.sizeof(array))
    kernel.declared_memory = pointers


def recreate_kernel(kernel: URKernel) -> bool:
    """Exchange the cl_kernel for a new one with the same arguments. The kernel's lock is held.

    It helps if an argument was an SVM pointer, and the driver cannot make anything else of it. A
    kernel whose native handle others may know is not exchanged.

    Returns:
        Whether it was exchanged.
    """
    sticks = kernel.context.platform.profile.svm_arguments_stick
    if not (sticks and kernel.had_pointers) or kernel.shared or _has_usm(kernel):
        return False
    arguments, declared_memory = kernel.arguments, kernel.declared_memory
    new = URKernel(kernel.create_copy(), kernel.program)
    with new.lock:
        set_on(new, list(arguments.items()))
    kernel.exchange(new)
    if declared_memory:
        _declare(kernel, declared_memory)
    return True


def set_pointers(kernel: URKernel, pointers: list[int]) -> None:
    """Set the USM that a kernel uses besides its arguments."""
    if not (_has_usm(kernel) or _has_svm(kernel)):
        raise failure(
            "UNSUPPORTED_FEATURE",
            "the driver has no memory that a kernel could use without an argument",
        )
    kind = "USM_PTRS_INTEL" if _has_usm(kernel) else "SVM_PTRS"
    array = (ctypes.c_size_t * len(pointers))(*pointers)
    _set(kernel, OPENCL[f"CL_KERNEL_EXEC_INFO_{kind}"], array, ctypes.sizeof(array))
    kernel.declared_memory = pointers
    if _has_usm(kernel):  # Intel's CPU driver also wants all memory of that kind to be allowed
        set_indirect(kernel, True)


# the local size that suits a launch


def _suggest(
    kernel: URKernel, queue: URQueue, offsets: list[int], sizes: list[int], arguments: list[Any]
) -> list[int]:
    with kernel.lock:
        set_on(kernel, arguments)
        suggested = _ask(kernel, queue, offsets, sizes)
        return suggested or suggest_local_size(kernel, queue.device, sizes)


declare_suggestions(adapter, _suggest)


def _ask(
    kernel: URKernel, queue: URQueue, offsets: list[int], sizes: list[int]
) -> list[int] | None:
    """Ask the driver for a local size (cl_khr_suggested_local_work_size, OpenCL 3.1).

    None means that the driver has no such function, or that it crashes.
    """
    routine = "clGetKernelSuggestedLocalWorkSize"
    platform = queue.context.platform
    address = platform.icd.extension_function(f"{routine}KHR")
    if not address or not platform.profile.suggests_local_sizes:
        return None
    array = ctypes.c_size_t * len(sizes)
    made = array()
    ask = OPENCL.functions[routine].prototype(address)
    check(ask(queue.cl, kernel.cl, len(sizes), array(*offsets), array(*sizes), made), routine)
    return list(made)


def suggest_local_size(
    kernel: URKernel, device: URDevice, sizes: Sequence[int], most: int = sys.maxsize
) -> list[int]:
    """Return a local size that divides the global one and gives each compute unit a work-group.

    In the first dimension it is a multiple of what the device prefers, if such a size divides.

    Args:
        sizes: the global work size.
        most: how many work-items a work-group may have, if the device does not say less.
    """
    required = kernel.find_required_size(device)
    if required:
        return list(required[: len(sizes)])
    data = kernel.get_constant_info(device, "CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE")
    multiple = int.from_bytes(data, "little") or 1
    fair = max(multiple, math.prod(sizes) // device.icd.info("CL_DEVICE_MAX_COMPUTE_UNITS"))
    room = min(kernel.query_group_size(device), fair, most)
    local = []
    limits = device.icd.info("CL_DEVICE_MAX_WORK_ITEM_SIZES")
    for index, (size, limit) in enumerate(zip(sizes, limits, strict=False)):
        best = _find_divisor(size, min(room, limit), 1 if index else multiple)
        local.append(best)
        room //= best
    return local


def _find_divisor(size: int, most: int, multiple: int) -> int:
    """Return the largest divisor of `size` up to `most`, of the multiples of `multiple` if any."""
    found = [number for number in range(1, min(size, most) + 1) if size % number == 0]
    return max((number for number in found if number % multiple == 0), default=max(found))


assert struct.calcsize("@N") == ctypes.sizeof(ctypes.c_size_t)
