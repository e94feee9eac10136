"""Launches of kernels of the OpenCL adapter.

An empty launch has a global size of 0. It only has its place in the queue's order. ur_api.h lists
INVALID_WORK_DIMENSION for it. But SYCL has such launches (`range<1>{0}`), and libsycl expects that
they succeed and have an event.

UR_KERNEL_LAUNCH_FLAG_COOPERATIVE means that all work-groups run at the same time. That needs
cl_intel_concurrent_dispatch.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from ...icd.errors import OpenCLError
from ...loader.ur.abi import UR
from ..sdk.kernels import ExecInfo, count_groups_by_local_memory, declare_kernels, declare_launches
from .core import adapter, check, create, failure
from .devices import URDevice
from .enqueue import Enqueue, enqueues
from .events import UREvent
from .kernel_arguments import set_on
from .kernel_info import (
    declare_memory,
    recreate_kernel,
    set_indirect,
    set_pointers,
    suggest_local_size,
)
from .kernels import URKernel, take_native_kernel
from .platforms import find_extension
from .programs import URProgram
from .queues import create_queue

#: What makes an array of size_t, by the number of dimensions.
_PACK: Final = tuple(struct.Struct(f"@{dimensions}N").pack for dimensions in range(4))

_ROUTINE: Final = "clEnqueueNDRangeKernel"


def _launch(
    enqueue: Enqueue,
    kernel: URKernel,
    offset: list[int] | None,
    size: list[int],
    local: list[int] | None,
    arguments: list[Any],
    together: bool,
    cluster: None,
) -> UREvent | None:
    """Launch a kernel (sdk/kernels.py, `declare_launches`)."""
    queue, dimensions = enqueue.queue, len(size)
    sizes = kernel.choose_group(queue.device, dimensions, local)
    if sizes is None and together and all(size):  # then the driver does not choose one
        sizes = suggest_local_size(kernel, queue.device, size)
    pack = _PACK[dimensions]
    given = (
        kernel.cl,
        dimensions,
        pack(*offset) if offset is not None else None,
        pack(*size),
        pack(*sizes) if sizes is not None else None,
    )
    with kernel.lock:
        kernel.describe_required_size_to_c(queue.device)
        if arguments:
            set_on(kernel, arguments)
        if len(arguments) != kernel.argument_count:
            kernel.check_arguments()
        if kernel.has_indirect_access:
            declare_memory(kernel)
        if 0 in size:
            return enqueue.mark()
        if together:
            with _make_concurrent(kernel):
                return enqueue.call(_ROUTINE, *given)
        try:
            return queue.enqueue(_ROUTINE, enqueue.command, given, enqueue.waits, enqueue.wanted)
        except OpenCLError as error:
            if error.code != "CL_INVALID_KERNEL_ARGS" or not recreate_kernel(kernel):
                raise
        return enqueue.call(_ROUTINE, kernel.cl, *given[1:])


# all work-groups at the same time

_EXTENSION: Final = "cl_intel_concurrent_dispatch"
#: The extension's constants and its function, which Khronos' headers do not have.
_DISPATCH_TYPE, _DEFAULT, _CONCURRENT = 0x4257, 0, 1
_COUNT: Final = "clGetKernelMaxConcurrentWorkGroupCountINTEL"
# cl_int (cl_command_queue, cl_kernel, cl_uint dim, const size_t *offset, const size_t *local,
#     size_t *count)
_CountPrototype: Final = ctypes.CFUNCTYPE(
    ctypes.c_int32, *[ctypes.c_void_p] * 2, ctypes.c_uint32, *[ctypes.c_void_p] * 3
)


def find_launch_capabilities(device: URDevice) -> int:
    """Return the answer to UR_DEVICE_INFO_KERNEL_LAUNCH_CAPABILITIES."""
    has_function = _EXTENSION in device.icd.extensions and device.platform.icd.extension_function(
        _COUNT
    )
    return UR["UR_KERNEL_LAUNCH_PROPERTIES_FLAG_COOPERATIVE"] if has_function else 0


declare_launches(enqueues, _launch, lambda device: bool(find_launch_capabilities(device)))


@contextmanager
def _make_concurrent(kernel: URKernel) -> Iterator[None]:
    """Launch a kernel, whose lock is held, concurrently in this block."""

    def set_type(value: int) -> int:
        return kernel.table.clSetKernelExecInfo(
            kernel.cl, _DISPATCH_TYPE, 4, ctypes.byref(ctypes.c_uint32(value))
        )

    check(set_type(_CONCURRENT), "clSetKernelExecInfo")
    try:
        yield
    finally:
        set_type(_DEFAULT)


def _create(program: URProgram, name: str) -> URKernel:
    return URKernel(create(program.table, "clCreateKernel", program.cl, name.encode()), program)


def _set_execution(kernel: URKernel, info: ExecInfo) -> None:
    if info.pointers is not None:
        set_pointers(kernel, info.pointers)
    elif info.indirect is not None:
        set_indirect(kernel, info.indirect)


def _count_groups(kernel: URKernel, device: URDevice, local: list[int], dynamic: int) -> int:
    if not find_launch_capabilities(device):
        raise failure("UNSUPPORTED_FEATURE", f"the device has no {_EXTENSION}")
    ask = find_extension(device.platform, _COUNT, _CountPrototype)
    queue = create_queue(kernel.context, device, 0)  # OpenCL's function needs one
    dim, count = len(local), ctypes.c_size_t()
    check(ask(queue.cl, kernel.cl, dim, None, _PACK[dim](*local), ctypes.byref(count)), _COUNT)
    room = count_groups_by_local_memory(
        dynamic,
        int.from_bytes(kernel.query_group_info(device, "CL_KERNEL_LOCAL_MEM_SIZE"), "little"),
        device.icd.info("CL_DEVICE_LOCAL_MEM_SIZE"),
        device.icd.info("CL_DEVICE_MAX_COMPUTE_UNITS"),
    )
    return min(count.value, room, 0xFFFFFFFF)


declare_kernels(
    adapter,
    create=_create,
    take_native=take_native_kernel,
    set_execution=_set_execution,
    count_groups=_count_groups,
)
