"""Launches of kernels of CUDA and HIP.

An empty launch has a global size of 0. It only has its place in the queue's order, as SYCL expects.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from itertools import product
from math import prod
from operator import floordiv, le, mod, sub
from typing import Any, Final, NamedTuple

from ..sdk.gpu.device_code import DeviceCode, Sizes
from ..sdk.kernel_arguments import URKernelArgument
from ..sdk.kernels import declare_launches
from .core import API, failure, get_constant
from .devices import CuDevice
from .enqueue import CuEnqueue, enqueues
from .events import CuEvent
from .kernels import CuArguments, CuKernel

#: Shapes of launches that a kernel remembers.
_MOST_SHAPES: Final = 256
#: Work-groups of a cluster. More of them need a permission, which not every device can use.
_PORTABLE_CLUSTER: Final = 8
#: Parts of a launch. Each needs a module of its own.
_MOST_PARTS: Final = 16


class CuLaunch(NamedTuple):
    """A launch as the driver takes it.

    Attributes:
        grid: work-groups in each dimension.
        block: work-items of a work-group in each dimension.
    """

    function: int
    grid: Sequence[int]
    block: Sequence[int]
    packed: CuArguments

    @property
    def parameters(self) -> Any:
        """Return the parameters of a node that launches it."""
        packed = self.packed
        sizes = self.grid, self.block, packed.shared
        return API.make_launch(self.function, *sizes, ctypes.addressof(packed.pointers))


def plan_parts(
    kernel: CuKernel,
    device: CuDevice,
    offset: Sequence[int] | None,
    size: Sequence[int],
    local: Sequence[int] | None,
    arguments: dict[int, URKernelArgument],
) -> list[CuLaunch]:
    """Return a launch whose global size is not 0, in parts if the driver does not take it at once.

    Args:
        offset: the global work offset, None for 0.
        size: the global work size.
        local: the local work size, None if one is to be chosen.

    Raises:
        URError: sizes or arguments that the launch cannot have.
    """
    module = kernel.program.get_plain_module(device)
    key = (
        *(module, tuple(size), tuple(offset) if offset else None),
        tuple(local) if local is not None else None,
    )
    shapes = kernel.shapes.get(key)
    if shapes is None:
        if len(kernel.shapes) == _MOST_SHAPES:
            kernel.shapes.clear()
        shapes = kernel.shapes[key] = _find_shapes(kernel, device, offset, size, local)
    packed = kernel.pack(arguments, kernel.program.get_code(device), offset)
    if packed.shared:
        for function, _, _ in shapes:
            kernel.allow_local(device, function, packed.shared)
    return [CuLaunch(*shape, packed) for shape in shapes]


def _find_shapes(
    kernel: CuKernel,
    device: CuDevice,
    offset: Sequence[int] | None,
    size: Sequence[int],
    local: Sequence[int] | None,
) -> list[tuple[int, Sizes, Sizes]]:
    """Return function, grid and block of each part. Arguments and errors are `plan_parts`'s."""
    if local is None:
        local = kernel.suggest(device, size)
    kernel.check_group(device, local)
    if any(whole % part for whole, part in zip(size, local, strict=True)):
        raise failure(
            "INVALID_WORK_GROUP_SIZE",
            f"{list(size)} work-items are not a multiple of work-groups of {list(local)}",
        )
    grid = _fill_to_three(whole // part for whole, part in zip(size, local, strict=True))
    block, dimensions = _fill_to_three(local), len(size)
    most = _fill_to_three(device.query_attribute(f"MAX_GRID_DIM_{axis}") for axis in "XYZ")
    if all(map(le, grid, most)):
        return [(kernel.get_function(device, dimensions, offset), grid, block)]
    _check_parts(kernel.program.get_code(device), grid, most)
    found = list[tuple[int, Sizes, Sizes]]()
    for first in product(*map(range, (0, 0, 0), grid, most)):
        start = _fill_to_three(first)
        part = _fill_to_three(map(min, most, map(sub, grid, start)))
        function = kernel.get_function(device, dimensions, offset, (start, grid, block))
        found.append((function, part, block))
    return found


def _fill_to_three(numbers: Iterable[int]) -> Sizes:
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z


def _check_parts(code: DeviceCode, grid: Sizes, most: Sizes) -> None:
    """Raise URError unless a launch that is too large for the driver can be made in parts."""
    axis, count, limit = next(one for one in zip("XYZ", grid, most, strict=True) if one[1] > one[2])
    size = f"{count} work-groups in {axis}, of {limit}"
    if code.choose_part(code.find_variant(1, (0, 0, 0)), (0, 0, 0), grid, (1, 1, 1)) is None:
        why = "only OpenCL C that NVIDIA's compiler has compiled is launched in parts"
        raise failure("INVALID_WORK_GROUP_SIZE", f"{size}: {why}")
    if prod(-(-whole // part) for whole, part in zip(grid, most, strict=True)) > _MOST_PARTS:
        raise failure("INVALID_WORK_GROUP_SIZE", f"{size}: that is more than {_MOST_PARTS} parts")


def _launch(
    enqueue: CuEnqueue,
    kernel: CuKernel,
    offset: list[int] | None,
    size: list[int],
    local: list[int] | None,
    given: list[tuple[int, URKernelArgument]],
    together: bool,
    cluster: tuple[int, int, int] | None,
) -> CuEvent | None:
    """Launch a kernel (sdk/kernels.py, `declare_launches`)."""
    if given:
        kernel.set(given)
    arguments, device = kernel.arguments, enqueue.queue.device
    if 0 in size:
        return enqueue.run()
    if cluster and local is None and not any(map(mod, size, cluster)):
        local = list(kernel.suggest(device, list(map(floordiv, size, cluster))))
    launches = plan_parts(kernel, device, offset, size, local, arguments)
    if len(launches) > 1 and (together or cluster):
        raise failure(
            "INVALID_WORK_GROUP_SIZE", "a launch in parts is not cooperative, and has no clusters"
        )

    def work(stream: int) -> None:
        for launch in launches:
            start(launch, stream)

    def start(launch: CuLaunch, stream: int) -> None:
        shape = launch.function, *launch.grid, *launch.block, launch.packed.shared
        pointers = launch.packed.pointers
        if cluster is not None:
            if prod(cluster) > _PORTABLE_CLUSTER:
                name = get_constant("CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED")
                enqueue.call("FuncSetAttribute", launch.function, name, 1)
            config = API.make_cluster_launch(shape[1:], stream, cluster, together)
            enqueue.call("LaunchKernelEx", config, launch.function, pointers, None)
        elif together:
            enqueue.call("LaunchCooperativeKernel", *shape, stream, pointers)
        else:
            enqueue.call("LaunchKernel", *shape, stream, pointers, None)

    return enqueue.run(work, (kernel, launches[0].packed))


declare_launches(
    enqueues, _launch, lambda device: device.is_cooperative, lambda device: device.has_clusters
)
