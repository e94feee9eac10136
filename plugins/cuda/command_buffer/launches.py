"""Launches in a command-buffer of CUDA and HIP: kernel nodes, with the arguments of this moment."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from ...sdk.command_buffers import declare_launch_appends
from ...sdk.kernel_arguments import URKernelArgument, read_arguments
from ..core import adapter, failure
from ..kernels import CuKernel
from .appends import Appended, CuAppend, appends
from .in_c import does_wait
from .updates import CuLaunchState


def _append(
    append: CuAppend,
    kernel: CuKernel,
    dim: int,
    offset: Sequence[int] | None,
    size: Sequence[int],
    local: Sequence[int] | None,
    others: list[CuKernel],
    arguments: dict[int, URKernelArgument],
) -> Appended:
    """Append a launch.

    Args:
        offset: the global work offset, or None.
        size: the global work size.
        local: the local work size, or None.
        others: the kernels that an update may choose instead.

    Raises:
        URError: what is wrong with the sizes or the arguments.
    """
    buffer = append.buffer
    append.check_kernels(kernel, others)
    state = CuLaunchState(buffer.device, kernel, dim, offset, size, local, arguments, others)
    if 0 in size:
        kernel.pack(arguments, kernel.program.get_code(buffer.device))
        return append.mark("KERNEL_LAUNCH")
    parts = state.plan()

    def build(after: Sequence[int]) -> int:
        for part in parts:  # one after the other
            made = buffer.add_node("KernelNode", after, ctypes.byref(part.parameters))
            state.nodes.append(made)
            after = [made]
        return state.nodes[-1]

    waits = len(parts) == 1 and does_wait(state)
    # An update may replace the arguments of a command with a handle, which keeps them itself.
    keep = (kernel, *others), None if append.command else parts[0].packed
    appended = append.add("KERNEL_LAUNCH", build, keep, waits)
    handle = appended[2]
    if handle is not None:
        handle.set_launch(state, parts[0])
    if len(parts) == 1:
        buffer.in_c.repeat(state, parts[0] if handle is None else None)
    return appended


def _append_as_set(append: CuAppend, kernel: CuKernel, *others: Any) -> Appended:
    """Append a launch with the arguments that are set on the kernel."""
    dim, offset, size, local, alternatives = others
    return _append(append, kernel, dim, offset, size, local, alternatives, kernel.arguments)


def _append_with(append: CuAppend, kernel: CuKernel, *others: Any) -> Appended:
    """Append a launch with arguments of its own. The last two of `others` are these."""
    dim, offset, size, local, alternatives, rows, count = others
    given = read_arguments(adapter, rows, count)
    arguments = dict(given)
    if len(arguments) < len(given) or len(arguments) < len(kernel.parameter_sizes):
        raise failure("INVALID_KERNEL_ARGUMENT_INDEX", "an argument is missing, or is given twice")
    kernel.check(given)
    return _append(append, kernel, dim, offset, size, local, alternatives, arguments)


declare_launch_appends(appends, _append_as_set, _append_with)
