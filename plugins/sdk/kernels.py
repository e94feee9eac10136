"""What kernels of all adapters share: execution information, local sizes, launches."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from ...loader.ur.abi import UR
from ._native import ffi
from .adapter import Adapter
from .conversions import failure
from .families import EnqueueFamily
from .kernel_arguments import HANDLE_SIZE, read_arguments
from .wrap import list_parameters, name_parameters

_COOPERATIVE: Final = UR["UR_KERNEL_LAUNCH_FLAG_COOPERATIVE"]
#: It allows launches to run one after the other, and needs nothing.
_SERIALIZE: Final = UR["UR_KERNEL_LAUNCH_FLAG_OPPORTUNISTIC_QUEUE_SERIALIZE"]
_CLUSTER: Final = UR["UR_STRUCTURE_TYPE_KERNEL_LAUNCH_CLUSTER_PROPERTY"]
_LONGEST: Final = 64  # structs: there are two kinds of them


def is_cooperative(properties: Any, can: bool, *, has_clusters: bool = False) -> bool:
    """Return whether all work-groups have to run at the same time.

    Args:
        properties: a pointer to a ur_kernel_launch_ext_properties_t.
        can: whether the device can do that.
        has_clusters: whether the device has clusters of work-groups (`find_cluster`).

    Raises:
        URError: INVALID_OPERATION for a property that the device does not have, INVALID_ENUMERATION
            for unknown flags.
    """
    if properties.flags & ~(_COOPERATIVE | _SERIALIZE):
        raise failure("INVALID_ENUMERATION", "launchPropList->flags")
    for kind, data in _walk_chain(properties.pNext):
        if has_clusters and kind == _CLUSTER:
            continue
        if kind not in _TRIVIAL or not _TRIVIAL[kind](data):
            raise failure("INVALID_OPERATION", f"the driver has no launch property {kind:#x}")
    together = bool(properties.flags & _COOPERATIVE)
    if together and not can:
        raise failure("INVALID_OPERATION", "the device cannot run all work-groups at the same time")
    return together


def find_cluster(properties: Any, dimensions: int) -> tuple[int, int, int] | None:
    """Return how many work-groups a cluster of a launch has in each dimension.

    DPC++ gives the last dimension first, as SYCL has them. None: there is no cluster.

    Args:
        properties: a pointer to a ur_kernel_launch_ext_properties_t.

    Raises:
        URError: INVALID_VALUE for a cluster of nothing.
    """
    for kind, data in _walk_chain(properties.pNext):
        if kind == _CLUSTER and not _has_no_cluster(data):
            x, y, z = ffi.cast("ur_kernel_launch_cluster_property_t *", data).clusterDim
            if not x * y * z:
                raise failure("INVALID_VALUE", "a cluster has no work-group")
            return {2: (y, x, z), 3: (z, y, x)}.get(dimensions, (x, y, z))
    return None


def _walk_chain(address: int) -> Iterator[tuple[int, int]]:
    """Yield type and address of the structs of a list that is linked by pNext."""
    for _ in range(_LONGEST):
        if not address:
            return
        # Every struct begins with a type and a pNext.
        head = ffi.cast("ur_kernel_launch_ext_properties_t *", address)
        yield head.stype, address
        address = head.pNext
    raise failure("INVALID_VALUE", "the list of launch properties has no end")


def _has_no_cluster(address: int) -> bool:
    return list(ffi.cast("ur_kernel_launch_cluster_property_t *", address).clusterDim) == [1, 1, 1]


def _has_no_memory(address: int) -> bool:
    return ffi.cast("ur_kernel_launch_workgroup_property_t *", address).workgroup_mem_size == 0


#: The structs that are allowed if they ask for nothing.
_TRIVIAL: Final[dict[int, Callable[[int], bool]]] = {
    _CLUSTER: _has_no_cluster,
    UR["UR_STRUCTURE_TYPE_KERNEL_LAUNCH_WORKGROUP_PROPERTY"]: _has_no_memory,
}


_POINTERS: Final = UR["UR_KERNEL_EXEC_INFO_USM_PTRS"]
_INDIRECT: Final = UR["UR_KERNEL_EXEC_INFO_USM_INDIRECT_ACCESS"]


class ExecInfo(NamedTuple):
    """What urKernelSetExecInfo sets. A preference about caches is checked, and sets nothing.

    Attributes:
        pointers: the USM that a kernel uses besides its arguments, None if it is not set.
        indirect: whether it may use all USM, None if it is not set.
    """

    pointers: list[int] | None = None
    indirect: bool | None = None


def read_exec_info(name: int, size: int, address: int) -> ExecInfo:
    """Read the value of a ur_kernel_exec_info_t.

    Args:
        size: the bytes of the value.

    Raises:
        URError: INVALID_VALUE.
    """
    if name == _POINTERS:
        return ExecInfo(
            pointers=list((ctypes.c_size_t * (size // HANDLE_SIZE)).from_address(address))
        )
    if name == _INDIRECT:
        return ExecInfo(indirect=ctypes.c_bool.from_address(address).value)
    value = ctypes.c_uint32.from_address(address).value
    if value not in UR.groups["ur_kernel_cache_config_t"]:
        raise failure("INVALID_VALUE", "there is no such configuration")
    return ExecInfo()


def declare_kernels(
    adapter: Adapter,
    *,
    create: Callable[[Any, str], Any],
    take_native: Callable[[int, Any, Any, Any], Any],
    set_execution: Callable[[Any, ExecInfo], None],
    count_groups: Callable[[Any, Any, list[int], int], int],
) -> None:
    """Declare how kernels are made, their settings, and how many work-groups run at a time.

    Args:
        create: gets a program and the name of a kernel.
        take_native: gets a native handle, a context, a program or None, and properties.
        set_execution: sets on a kernel what urKernelSetExecInfo is given.
        count_groups: returns how many work-groups of a kernel a device runs at the same time. It
            gets the local size, and the bytes of local memory that a launch adds.
    """

    def count(
        hKernel: Any, hDevice: Any, pLocalWorkSize: list[int], dynamicSharedMemorySize: int
    ) -> int:
        check_local_size(pLocalWorkSize)
        return count_groups(hKernel, hDevice, pLocalWorkSize, dynamicSharedMemorySize)

    adapter.declare(
        urKernelCreate=lambda hProgram, pKernelName: create(hProgram, pKernelName),
        urKernelCreateWithNativeHandle=lambda hNativeKernel, hContext, hProgram, pProperties: (
            take_native(hNativeKernel, hContext, hProgram, pProperties)
        ),
        urKernelSetExecInfo=lambda hKernel, propName, propSize, pPropValue: set_execution(
            hKernel, read_exec_info(propName, propSize, pPropValue)
        ),
        urKernelSuggestMaxCooperativeGroupCount=count,
    )


def check_group_size(
    local: Sequence[int], limits: Sequence[int], largest: int, required: Sequence[int] | None
) -> None:
    """Check that a kernel can be launched with a local size.

    Args:
        limits: the most work-items of the device in each dimension.
        largest: the most work-items of the kernel in a work-group.
        required: the local size that it is compiled for, None for any.

    Raises:
        URError: INVALID_WORK_GROUP_SIZE, INVALID_WORK_ITEM_SIZE.
    """
    if any(size > limit for size, limit in zip(local, limits, strict=False)):
        raise failure("INVALID_WORK_ITEM_SIZE", f"the device takes {limits} work-items at most")
    if not 1 <= math.prod(local) <= largest:
        raise failure("INVALID_WORK_GROUP_SIZE", f"a work-group has 1 to {largest} work-items")
    if required and tuple(local) != tuple(required[: len(local)]):
        raise failure(
            "INVALID_WORK_GROUP_SIZE", f"the kernel is compiled for work-groups of {required}"
        )


Suggest = Callable[[Any, Any, list[int], list[int], list[Any]], Sequence[int]]


def declare_suggestions(adapter: Adapter, suggest: Suggest) -> None:
    """Declare the queries for the local size that suits a launch.

    Args:
        suggest: gets a kernel, a queue, the global offset, the global size and new arguments. It
            returns a local size.
    """

    def answer(
        hKernel: Any,
        hQueue: Any,
        numWorkDim: int,
        pGlobalWorkOffset: Any,
        pGlobalWorkSize: Any,
        pSuggestedLocalWorkSize: Any,
        numArgs: int = 0,
        pArgs: Any = None,
    ) -> None:
        hQueue.context.check_same("the kernel", hKernel)
        offsets = [pGlobalWorkOffset[index] for index in range(numWorkDim)]
        sizes = [pGlobalWorkSize[index] for index in range(numWorkDim)]
        if not all(sizes):
            raise failure("INVALID_WORK_DIMENSION", "there is nothing to divide")
        arguments = read_arguments(adapter, pArgs, numArgs)
        for index, value in enumerate(suggest(hKernel, hQueue, offsets, sizes, arguments)):
            pSuggestedLocalWorkSize[index] = value

    names = list_parameters(answer)
    adapter.declare(
        urKernelGetSuggestedLocalWorkSize=name_parameters(partial(answer), *names[:6]),
        urKernelGetSuggestedLocalWorkSizeWithArgs=answer,
    )


_SIZES: Final = "hKernel", "workDim", "pGlobalWorkOffset", "pGlobalWorkSize", "pLocalWorkSize"


def declare_launches(
    enqueues: EnqueueFamily,
    launch: Callable[..., Any],
    runs_together: Callable[[Any], bool],
    has_clusters: Callable[[Any], bool] = lambda device: False,
) -> None:
    """Declare the launches of kernels on queues.

    Args:
        enqueues: the family of the adapter's entry points.
        launch: launches a kernel. It gets the call, the kernel, and its sizes: the global offset
            (None for 0), the global size, the local size (None if one is to be chosen). Then come
            the arguments that are set first, with their indices. Last it gets whether all
            work-groups run at the same time, and the cluster (`find_cluster`).
        runs_together: whether a device can run all work-groups at the same time.
        has_clusters: whether a device has clusters of work-groups.
    """

    def entry(
        enqueue: Any,
        kernel: Any,
        dimensions: int,
        offset: list[int] | None,
        size: list[int],
        local: list[int] | None,
        properties: Any,
        count: int = 0,
        rows: Any = None,
    ) -> Any:
        together, cluster = False, None
        if properties is not None:
            device = enqueue.queue.device
            clusters = has_clusters(device)
            together = is_cooperative(properties, runs_together(device), has_clusters=clusters)
            cluster = find_cluster(properties, dimensions) if clusters else None
        arguments = read_arguments(enqueues.adapter, rows, count) if count else []
        if kernel.context is not enqueue.queue.context:
            enqueue.check_context("the kernel", kernel)
        if local is not None and 0 in local:
            check_local_size(local)
        return launch(enqueue, kernel, offset, size, local, arguments, together, cluster)

    parameters = *_SIZES, "launchPropList"
    enqueues.declare("urEnqueueKernelLaunch", "KERNEL_LAUNCH", entry, *parameters)
    with_arguments = "urEnqueueKernelLaunchWithArgsExp"
    parameters = *parameters, "numArgs", "pArgs"
    enqueues.declare(with_arguments, "KERNEL_LAUNCH", entry, *parameters)


def check_local_size(local: Sequence[int]) -> None:
    """Raise URError (INVALID_WORK_GROUP_SIZE) for a work-group of nothing."""
    if 0 in local:
        raise failure("INVALID_WORK_GROUP_SIZE", "a work-group has one work-item at least")


def count_groups_by_local_memory(dynamic: int, own: int, room: int, units: int) -> int:
    """Return how many work-groups fit into local memory at the same time.

    The drivers' own answers do not have the bytes that a launch adds.

    Args:
        dynamic: bytes that a launch adds for each work-group. Without them memory sets no bound.
        own: bytes that each work-group has besides.
        room: bytes of local memory that a unit of the device has.
    """
    return units * (room // (own + dynamic)) if dynamic else 0xFFFFFFFF
