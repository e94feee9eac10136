"""Launches of kernels.

An empty launch (a global size of 0) is nothing but its place in the queue's order. ur_api.h lists INVALID_WORK_DIMENSION for it,
but SYCL has such launches (`range<1>{0}`), and libsycl hands them on, with an event, and expects them to succeed.

A launch in which all work-groups run at the same time (UR_KERNEL_LAUNCH_FLAG_COOPERATIVE) is cl_intel_concurrent_dispatch's.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from ...icd.errors import OpenCLError
from ...loader.ur.abi import UR
from ..sdk._native import ffi
from .core import adapter, check, failure
from .devices import URDevice
from .events import UREvent
from .kernel_arguments import URKernelArgument, arguments_of
from .kernel_info import declare_memory, recreate_kernel, suggestion
from .kernels import URKernel, set_on
from .queues import URQueue, create_queue

#: Dimensions → what makes an array of size_t.
_PACK: Final = tuple(struct.Struct(f"@{dimensions}N").pack for dimensions in range(4))

_ROUTINE, _COMMAND = "clEnqueueNDRangeKernel", "KERNEL_LAUNCH"


@adapter.entry
def urEnqueueKernelLaunchWithArgsExp(
    hQueue: URQueue,
    hKernel: URKernel,
    workDim: int,
    pGlobalWorkOffset: list[int] | None,
    pGlobalWorkSize: list[int],
    pLocalWorkSize: list[int] | None,
    numArgs: int,
    pArgs: Any,
    launchPropList: Any,
    phEventWaitList: list[UREvent],
    phEvent: bool,
) -> UREvent | None:
    together = launchPropList is not None and _is_cooperative(launchPropList, hQueue.device)
    arguments = arguments_of(pArgs, numArgs)
    sizes = workDim, pGlobalWorkOffset, pGlobalWorkSize, pLocalWorkSize
    return _launch(hQueue, hKernel, sizes, arguments, together, phEventWaitList, phEvent)


@adapter.entry
def urEnqueueKernelLaunch(
    hQueue: URQueue,
    hKernel: URKernel,
    workDim: int,
    pGlobalWorkOffset: list[int] | None,
    pGlobalWorkSize: list[int],
    pLocalWorkSize: list[int] | None,
    launchPropList: Any,
    phEventWaitList: list[UREvent],
    phEvent: bool,
) -> UREvent | None:
    together = launchPropList is not None and _is_cooperative(launchPropList, hQueue.device)
    sizes = workDim, pGlobalWorkOffset, pGlobalWorkSize, pLocalWorkSize
    return _launch(hQueue, hKernel, sizes, [], together, phEventWaitList, phEvent)


def _launch(
    queue: URQueue,
    kernel: URKernel,
    sizes: tuple[int, list[int] | None, list[int], list[int] | None],
    arguments: list[tuple[int, URKernelArgument]],
    together: bool,
    waits: list[UREvent],
    wanted: bool,
) -> UREvent | None:
    if kernel.context.cl != queue.context.cl:
        raise failure("INVALID_CONTEXT", "the kernel is of another context than the queue")
    dimensions, offset, size, local = sizes
    if not 1 <= dimensions <= 3:
        raise failure("INVALID_WORK_DIMENSION")
    if local is None:
        required = kernel.required_size(queue.device)  # drivers differ on whether they find it out
        local = list(required[:dimensions]) if required else None
        if local is None and together and all(size):  # the driver chooses none there
            local = suggestion(kernel, queue.device, size)
    elif 0 in local:
        raise failure("INVALID_WORK_GROUP_SIZE", "a work-group has one work-item at least")
    pack = _PACK[dimensions]
    given = (
        kernel.cl,
        dimensions,
        pack(*offset) if offset is not None else None,
        pack(*size),
        pack(*local) if local is not None else None,
    )
    with kernel.lock:
        if arguments:
            set_on(kernel, arguments)
        if len(arguments) != kernel.argument_count:
            kernel.check_arguments()
        if kernel.has_indirect_access:
            declare_memory(kernel)
        if 0 in size:
            return queue.enqueue("clEnqueueMarkerWithWaitList", _COMMAND, (), waits, wanted)
        if together:
            with _concurrent(kernel):
                return queue.enqueue(_ROUTINE, _COMMAND, given, waits, wanted)
        try:
            return queue.enqueue(_ROUTINE, _COMMAND, given, waits, wanted)
        except OpenCLError as error:
            if error.code != "CL_INVALID_KERNEL_ARGS" or not recreate_kernel(kernel):
                raise
        return queue.enqueue(_ROUTINE, _COMMAND, (kernel.cl, *given[1:]), waits, wanted)


# launch properties

_COOPERATIVE: Final = UR["UR_KERNEL_LAUNCH_FLAG_COOPERATIVE"]
#: That launches are put one after the other where that is opportune is a leave: nothing has to be done.
_SERIALIZE: Final = UR["UR_KERNEL_LAUNCH_FLAG_OPPORTUNISTIC_QUEUE_SERIALIZE"]


def _is_cooperative(properties: Any, device: URDevice) -> bool:
    """Whether all work-groups have to run at once. Raises URError, INVALID_OPERATION for what the device cannot do."""
    if properties.flags & ~(_COOPERATIVE | _SERIALIZE):
        raise failure("INVALID_ENUMERATION", "launchPropList->flags")
    for kind, data in _chain(properties.pNext):
        if kind not in _TRIVIAL or not _TRIVIAL[kind](data):
            raise failure(
                "INVALID_OPERATION", f"no device of OpenCL has the launch property {kind:#x}"
            )
    together = bool(properties.flags & _COOPERATIVE)
    if together and not capabilities(device):
        raise failure(
            "INVALID_OPERATION", "the device cannot have all work-groups run at the same time"
        )
    return together


def _chain(address: int) -> Iterator[tuple[int, int]]:
    """Type and address of the structs of a list that is linked by pNext."""
    for _ in range(_LONGEST):
        if not address:
            return
        head = ffi.cast(
            "ur_kernel_launch_ext_properties_t *", address
        )  # all of them begin with a type and a pNext
        yield head.stype, address
        address = head.pNext
    raise failure("INVALID_VALUE", "the list of launch properties has no end")


_LONGEST: Final = 64  # structs: there are two kinds of them


def _no_cluster(address: int) -> bool:
    return list(ffi.cast("ur_kernel_launch_cluster_property_t *", address).clusterDim) == [1, 1, 1]


def _no_memory(address: int) -> bool:
    return ffi.cast("ur_kernel_launch_workgroup_property_t *", address).workgroup_mem_size == 0


#: What may stand in the list if it asks for nothing, by the struct's type.
_TRIVIAL: Final[dict[int, Callable[[int], bool]]] = {
    UR["UR_STRUCTURE_TYPE_KERNEL_LAUNCH_CLUSTER_PROPERTY"]: _no_cluster,
    UR["UR_STRUCTURE_TYPE_KERNEL_LAUNCH_WORKGROUP_PROPERTY"]: _no_memory,
}


# all work-groups at the same time

_EXTENSION: Final = "cl_intel_concurrent_dispatch"
#: The extension's constants and its function, which Khronos' headers do not have.
_DISPATCH_TYPE, _DEFAULT, _CONCURRENT = 0x4257, 0, 1
_COUNT: Final = "clGetKernelMaxConcurrentWorkGroupCountINTEL"
_CountPrototype: Final = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_uint32,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
)


def capabilities(device: URDevice) -> int:
    """UR_DEVICE_INFO_KERNEL_LAUNCH_CAPABILITIES."""
    there = _EXTENSION in device.icd.extensions and device.platform.icd.extension_function(_COUNT)
    return UR["UR_KERNEL_LAUNCH_PROPERTIES_FLAG_COOPERATIVE"] if there else 0


@contextmanager
def _concurrent(kernel: URKernel) -> Iterator[None]:
    """A block in which launches of the kernel, whose lock is held, are concurrent ones."""

    def set_type(value: int) -> int:
        return kernel.table.clSetKernelExecInfo(
            kernel.cl, _DISPATCH_TYPE, 4, ctypes.byref(ctypes.c_uint32(value))
        )

    check(set_type(_CONCURRENT), "clSetKernelExecInfo")
    try:
        yield
    finally:
        set_type(_DEFAULT)


@adapter.entry
def urKernelSuggestMaxCooperativeGroupCount(
    hKernel: URKernel,
    hDevice: URDevice,
    workDim: int,
    pLocalWorkSize: list[int],
    dynamicSharedMemorySize: int,
) -> int:
    if not 1 <= workDim <= 3:
        raise failure("INVALID_WORK_DIMENSION")
    hKernel.context.check_device(hDevice)
    if not capabilities(hDevice):
        raise failure("UNSUPPORTED_FEATURE", f"the device has no {_EXTENSION}")
    if 0 in pLocalWorkSize:
        raise failure("INVALID_WORK_GROUP_SIZE", "a work-group has one work-item at least")
    ask = _CountPrototype(hDevice.platform.icd.extension_function(_COUNT) or 0)
    queue = create_queue(hKernel.context, hDevice, 0)  # OpenCL asks for one
    count = ctypes.c_size_t()
    check(
        ask(
            queue.cl,
            hKernel.cl,
            workDim,
            None,
            _PACK[workDim](*pLocalWorkSize),
            ctypes.byref(count),
        ),
        _COUNT,
    )
    room = _groups_by_local_memory(hKernel, hDevice, dynamicSharedMemorySize)
    return min(count.value, room, 0xFFFFFFFF)


def _groups_by_local_memory(kernel: URKernel, device: URDevice, dynamic: int) -> int:
    """How many work-groups fit into the local memory of all compute units, each with `dynamic` bytes besides its own.

    OpenCL's query knows of no such bytes.
    """
    if not dynamic:
        return 0xFFFFFFFF
    own = int.from_bytes(kernel.group_info(device, "CL_KERNEL_LOCAL_MEM_SIZE"), "little")
    units = device.icd.info("CL_DEVICE_MAX_COMPUTE_UNITS")
    return units * (device.icd.info("CL_DEVICE_LOCAL_MEM_SIZE") // (own + dynamic))
