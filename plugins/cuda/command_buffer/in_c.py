"""CUDA and HIP: what C knows of a command-buffer: its nodes, launches to repeat, and launches to
update.

C appends a launch of a kernel that Python has appended with the same sizes before
(plugins/sdk/native/gpu_appends.c). It takes values and addresses. Python appends launches with
buffers or local memory, and with events. C also makes the handles for updates. Python makes the
object of such a command when it first needs it.

C gives a launch new values and addresses. It enqueues a command-buffer whose enqueue is a launch of
the graph, and nothing else (plugins/sdk/native/gpu_launches.c).
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ...sdk._native import ffi, lib
from ...sdk.kernel_arguments import URKernelArgument
from ..contexts import CuContext
from ..core import API, adapter, check, failure, find_routine
from ..devices import CuDevice
from ..launches import CuLaunch

if TYPE_CHECKING:
    from .updates import CuLaunchState

adapter.in_c |= {
    "urCommandBufferAppendKernelLaunchWithArgsExp",
    "urCommandBufferUpdateKernelLaunchExp",
    "urEnqueueCommandBufferExp",
}

_MOST_ARGUMENTS: Final = 64


def _count_size(argument: URKernelArgument) -> int:
    """Return what `fl_gpu_launch.sizes` has for an argument."""
    if argument.kind == URKernelArgument.VALUE:
        return argument.size
    return 0 if argument.kind == URKernelArgument.POINTER else lib.FL_GPU_OTHER


def _list_sizes(state: CuLaunchState) -> list[int]:
    return [_count_size(state.arguments[index]) for index in range(len(state.arguments))]


def _describe(row: Any, state: CuLaunchState, launch: CuLaunch, parameters: Any) -> None:
    """Write a launch into an `fl_gpu_launch`.

    Args:
        launch: the same as the driver takes it.
    """
    sizes = _list_sizes(state)
    row.kernel = 0  # C may look for it meanwhile
    if len(sizes) > _MOST_ARGUMENTS:
        return
    row.dim, row.count, row.sizes = state.dim, len(sizes), sizes
    row.values = ffi.cast("void *const *", ctypes.addressof(launch.packed.pointers))
    row.value_count = len(launch.packed.pointers)
    row.parameters = ffi.cast("void *", ctypes.addressof(parameters))
    row.waits = does_wait(state)


def does_wait(state: CuLaunchState) -> bool:
    """Return whether a launch waits for the one before it, and so may start early.

    An update may choose another kernel, so all have to wait.
    """
    return all(kernel.program.get_code(state.device).waits for kernel in state.kernels)


def _find_number(state: CuLaunchState) -> int:
    """Return the number of the kernel's handle, 0 if the program has released the kernel."""
    handle = state.kernel.handle
    return ffi.cast("fl_handle *", handle).number if handle else 0


class GraphInC:
    """What C knows of a command-buffer.

    Args:
        in_order: whether each command comes after the one before it.
        updatable: whether launches may be updated.

    Attributes:
        struct: the `fl_gpu_graph`. Its `nodes` has the node that stands for each command.
        plans: what Python has planned of the launches that C repeats, if they may be updated.
    """

    def __init__(
        self, context: CuContext, device: CuDevice, graph: int, in_order: bool, updatable: bool
    ) -> None:
        parameters = API.make_launch(0, (1, 1, 1), (1, 1, 1), 0, 0)
        made = ffi.new(
            "fl_gpu_graph *",
            {
                "device": device.in_c,
                "add": device.find_slot("GraphAddKernelNode"),
                "set": device.find_slot("GraphExecKernelNodeSetParams"),
                "launch": device.find_slot("GraphLaunch"),
                **(
                    {
                        "remove_edge": device.find_slot("GraphRemoveDependencies"),
                        "add_edge": device.find_slot("GraphAddDependencies"),
                    }
                    if device.early_threads
                    else {}
                ),
                "owner": id(context),
                "graph": graph,
                "in_order": in_order,
                "is_open": True,
                "is_updatable": updatable,
                "parameter_bytes": ctypes.sizeof(parameters),
                "values_at": type(parameters).kernelParams.offset,
            },
        )
        self.struct: Any = ffi.gc(made, lib.fl_free_gpu_graph)
        self._updatable = updatable
        self.plans: list[CuLaunchState] = []
        most = None if updatable else lib.FL_GPU_LAUNCHES
        self._repeated: deque[tuple[CuLaunch, Any]] = deque(maxlen=most)
        self._next = 0

    @property
    def address(self) -> int:
        """Return the address of the struct."""
        return int(ffi.cast("uintptr_t", self.struct))

    def plan(self, before: Sequence[int]) -> list[int]:
        """Return the nodes that the next command comes after, by its place on the chains.

        Args:
            before: the numbers of the commands that it has to come after.

        Raises:
            MemoryError: there is no memory.
        """
        struct = self.struct
        if not lib.fl_plan_gpu_node(struct, ffi.new("uint32_t[]", [*before, 0]), len(before)):
            raise MemoryError
        return [struct.nodes[struct.planned[index]] for index in range(struct.planned_count)]

    def add(self, node: int, waits: bool) -> None:
        """Add the node that stands for the command that was planned. Raises MemoryError.

        Args:
            waits: whether the command is a launch that waits (`does_wait`), and nothing else.
        """
        if not lib.fl_add_gpu_node(self.struct, node, waits):
            raise MemoryError

    @property
    def chains(self) -> int:
        """Return on how many chains the commands are."""
        return lib.fl_count_gpu_chains(self.struct)

    def start_early(self, early: bool) -> int:
        """Let launches start early, or not any more. Return how many; 0 if CUDA refuses that.

        Raises:
            URError: OUT_OF_RESOURCES if the graph has lost an edge.
        """
        count = lib.fl_let_start_early(self.struct, early)
        if count == lib.FL_GPU_LOST:
            raise failure("OUT_OF_RESOURCES", "CUDA has taken an edge, and does not give it back")
        return max(count, 0)

    def add_late_edges(self) -> None:
        """Add the edges of launches that might have started early.

        Raises:
            URError: INVALID_CONTEXT if its context cannot become current.
        """
        code = lib.fl_add_late_edges(self.struct)
        if code == lib.FL_GPU_REFUSED:
            raise failure("INVALID_CONTEXT")
        if code:
            check(code, find_routine("GraphAddDependencies"))

    def close(self, executable: int) -> None:
        """Let C append nothing any more, and update `executable`, the driver's executable graph."""
        self.struct.is_open, self.struct.executable = False, executable

    def end(self) -> None:
        """End the handles that C has made."""
        lib.fl_end_gpu_commands(self.struct)

    def repeat(self, state: CuLaunchState, launch: CuLaunch | None) -> None:
        """Let C append launches like one, with other arguments, if it knows all of these.

        Args:
            state: what is launched. It has no parts.
            launch: the same as the driver takes it, whose arguments nobody else needs; or None.
        """
        sizes = _list_sizes(state)
        if lib.FL_GPU_OTHER in sizes or len(sizes) > _MOST_ARGUMENTS:
            return
        launch = launch or state.plan()[0]
        parameters, row = launch.parameters, self.struct.launches[self._next]
        _describe(row, state, launch, parameters)
        if self._updatable:
            row.plan = len(self.plans)
            self.plans.append(state.copy_alone())
        row.offset, row.size = state.offset, state.size
        row.local = state.local or [0] * state.dim
        row.kernel = _find_number(state)
        self._repeated.append((launch, parameters))
        self._next = (self._next + 1) % lib.FL_GPU_LAUNCHES


class CommandInC:
    """What C knows of a command that can be updated.

    Args:
        made: the `fl_gpu_command` that C has made, by default a new one.
    """

    def __init__(self, graph: GraphInC, made: Any = None) -> None:
        self._struct: Any = made or ffi.new("fl_gpu_command *", {"graph": graph.struct})
        self._graph = graph
        self._kept: Any = None

    @property
    def address(self) -> int:
        """Return the address of the struct."""
        return int(ffi.cast("uintptr_t", self._struct))

    def take(self, state: CuLaunchState, launch: CuLaunch) -> None:
        """Let C update a launch. It takes over the arguments. C does not use it meanwhile.

        Args:
            launch: the same as the driver takes it, or the first part of it.
        """
        parameters = launch.parameters
        _describe(self._struct.launch, state, launch, parameters)
        self._struct.launch.kernel = _find_number(state)
        (node,) = state.nodes if len(state.nodes) == 1 else (0,)  # C knows no parts
        known = len(state.arguments) <= _MOST_ARGUMENTS
        self._struct.node, self._struct.changed = node if known else 0, False
        self._kept = launch, parameters

    def update_from_c(self, state: CuLaunchState) -> None:
        """Read the launch's arguments that C has written. C does not use the command meanwhile."""
        row = self._struct.launch
        for index in range(row.count if self._struct.changed else 0):
            size = row.sizes[index]
            if size == lib.FL_GPU_OTHER:
                continue
            data = bytes(ffi.buffer(row.values[index], size or ctypes.sizeof(ctypes.c_void_p)))
            kind = URKernelArgument.VALUE if size else URKernelArgument.POINTER
            value = data if size else int.from_bytes(data, "little")
            state.arguments[index] = URKernelArgument(kind, size, value)
        self._struct.changed = False
