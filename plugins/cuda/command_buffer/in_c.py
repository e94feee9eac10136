"""What C knows of a command-buffer: its nodes, and the launches that C can repeat.

C appends a launch of a kernel that Python has appended with the same sizes before
(plugins/sdk/native/gpu_appends.c). It takes values and addresses. Python appends launches with
buffers or local memory, with events, and with handles for updates.
"""

from __future__ import annotations

import ctypes
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from ...sdk._native import ffi, lib
from ...sdk.kernel_arguments import URKernelArgument
from ..core import API, adapter, routine_of
from ..devices import CuDevice
from ..launches import CuLaunch

if TYPE_CHECKING:
    from .updates import CuLaunchState

adapter.in_c.add("urCommandBufferAppendKernelLaunchWithArgsExp")

_PLAIN: Final = URKernelArgument.VALUE, URKernelArgument.POINTER
_MOST_ARGUMENTS: Final = 64


class GraphInC:
    """What C knows of a command-buffer.

    Args:
        device: its device.
        graph: the driver's graph.
        in_order: whether each command comes after the one before it.

    Attributes:
        struct: the `fl_gpu_graph`. Its `nodes` has the node that stands for each command.
    """

    def __init__(self, device: CuDevice, graph: int, in_order: bool) -> None:
        enter, leave = (API.abi.functions[name].slot for name in API.context_calls)
        made = ffi.new(
            "fl_gpu_graph *",
            {
                "table": ffi.cast("void *const *const *", device.table.address_of_top),
                "add": API.abi.functions[routine_of("GraphAddKernelNode")].slot,
                "enter": enter,
                "leave": leave,
                "is_device": API.contexts_are_devices,
                "context": device.native if API.contexts_are_devices else device.context,
                "graph": graph,
                "in_order": in_order,
                "is_open": True,
            },
        )
        self.struct: Any = ffi.gc(made, lib.fl_free_gpu_graph)
        self._repeated: deque[tuple[CuLaunch, Any]] = deque(maxlen=lib.FL_GPU_LAUNCHES)
        self._next = 0

    @property
    def address(self) -> int:
        """Return the address of the struct."""
        return int(ffi.cast("uintptr_t", self.struct))

    def add(self, node: int) -> None:
        """Add the node that stands for the next command. Raises MemoryError."""
        if not lib.fl_add_gpu_node(self.struct, node):
            raise MemoryError

    def close(self) -> None:
        """Let C append nothing any more."""
        self.struct.is_open = False

    def repeat(self, state: CuLaunchState, launch: CuLaunch) -> None:
        """Let C append launches like one, with other arguments. It takes over the arguments.

        Args:
            state: what is launched.
            launch: the same as the driver takes it.
        """
        arguments = [state.arguments[index] for index in range(len(state.arguments))]
        if len(arguments) > _MOST_ARGUMENTS or any(one.kind not in _PLAIN for one in arguments):
            return
        parameters = launch.parameters
        row = self.struct.launches[self._next]
        row.kernel = 0
        row.dim, row.count = state.dim, len(arguments)
        row.offset, row.size = state.offset, state.size
        row.local = state.local or [0] * state.dim
        row.sizes = [one.size if one.kind == URKernelArgument.VALUE else 0 for one in arguments]
        row.values = ffi.cast("void *const *", ctypes.addressof(launch.packed.pointers))
        row.parameters = ffi.cast("void *", ctypes.addressof(parameters))
        row.kernel = ffi.cast("fl_handle *", state.kernel.handle).number
        self._repeated.append((launch, parameters))
        self._next = (self._next + 1) % lib.FL_GPU_LAUNCHES
