"""The properties of launches: what a program asks for, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from ...loader.ur.abi import UR
from ._native import ffi
from .conversions import failure

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
