"""The engine `cuda`: all commands as one CUDA Graph, on NVIDIA's OpenCL (icd/native/cuda.c).

NVIDIA's OpenCL compiler gives PTX, which CUDA runs after a small translation (icd/nvidia_ptx.py).
The buffers must be memory that CUDA has, too (icd/cuda_sharing.py). Then a launch of the graph
replaces an enqueue for each command. All commands run in CUDA or none, since the GPU takes long to
change between OpenCL and CUDA. docs/cuda.md says what this is worth.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Final

from ....loader.base.ends import call_at_end
from ....loader.base.interrupts import mark_uninterrupted
from ....loader.cuda.abi import CudaError
from ... import cuda_sharing
from ..._native import ffi, lib
from ...abi import OPENCL
from ...calls import find_device_profile, get_address, query_integer
from ...cuda_sharing import SharedDevice, find_shared_device
from ...errors import error
from .. import cuda_trust
from ..commands import NAMES, ORDER_ONLY, CommandList
from ..cuda_functions import CudaFunctions
from ..cuda_order import CHAINS, MOST_EARLY_CHAINS, Edges, chain_commands
from ..engine import BuiltCommands, Cost, Engine, QueueKind, Use
from ..trial import find_median

_NOT_SHARED: Final = (
    "its buffers are not shared with CUDA: import fairlead.cuda_sharing before the program creates "
    "them, or set FAIRLEAD_CUDA=1"
)

#: Why a command cannot be a node (enum fl_cuda_reason).
_REASONS: Final[dict[int, str]] = {
    lib.FL_CUDA_KERNEL: "its kernel is not a function of CUDA's: run it outside the block",
    lib.FL_CUDA_ARGUMENT: "an argument is not of the kind or size that its kernel has: pass one "
    "that is",
    lib.FL_CUDA_UNSEEN: "an argument was set before the block: set it in the block",
    lib.FL_CUDA_NOT_SHARED: "a buffer of it is not shared with CUDA: it is of host memory, or was "
    "made before the sharing began. Create it after import fairlead.cuda_sharing, without "
    "USE_HOST_PTR and ALLOC_HOST_PTR",
    lib.FL_CUDA_NOT_REACHED: "its kernel uses a buffer of another GPU, whose memory its own GPU "
    "does not reach: copy that into a buffer of its GPU",
    lib.FL_CUDA_SVM: "it uses shared virtual memory: use buffers, or run it outside the block",
    lib.FL_CUDA_RANGE: "CUDA may refuse its range or sizes: give sizes above 0, a range that is a "
    "multiple of the local size, and slices of whole rows",
    lib.FL_CUDA_GROUPS: "it has so many work-groups in y or z that it needs more than 16 parts: "
    "put the longest dimension first",
    lib.FL_CUDA_LOCAL_SIZE: "CUDA may refuse its local size: give the one that the kernel "
    "requires, or a smaller one",
    lib.FL_CUDA_IMAGE: "it uses images: use buffers, or run it outside the block",
    lib.FL_CUDA_NO_ROOM: "there is no memory: release some",
}

#: In a context of several devices memory is shared for one of them.
_ASK: Final = (
    ". Its context has several devices: create it by `with fairlead.cuda_sharing.on_device(device)`"
)
#: Commands that the engine knows.
_OPERATIONS: Final = frozenset(
    {"kernel", "fill", *ORDER_ONLY}
    | {f"{name}{form}" for name in ("copy", "read", "write") for form in ("", "_rect")}
)
#: A graph that would gain less from sharing (seconds for a replay) is not worth a line.
_WORTH_SAYING: Final = 50e-6

#: What a replay waits at least, in seconds, while the GPU changes from OpenCL to CUDA: half of what
#: it takes on an H100. Less than that is what the host takes for a launch.
_CHANGE: Final = 70e-6

#: Measured with the driver 580.159, where OpenCL runs nothing between two replays. One that is
#: waited for runs in the caller's thread. Of several, only the first is waited for by OpenCL. So it
#: is with single ones on a queue that is in order.
_COSTS: Final = {
    Use.ONCE: Cost(2.5e-6, 0.95e-6, "measured on an H200"),
    Use.WAITED: Cost(12e-6, 0.95e-6, "measured on an H100"),
    Use.SEVERAL: Cost(1.5e-6, 0.95e-6, "measured on an H100"),
}
#: Of one that the queue's order ends, as where OpenCL runs others between.
_COST: Final = Cost(20e-6, 0.95e-6, "measured on an H200")


@dataclass(frozen=True)
class FoundCuda:
    """What was found out about a list of commands; it lives as long as the list.

    Attributes:
        device: the one that launches the graph.
    """

    device: SharedDevice
    functions: CudaFunctions

    @property
    def lost(self) -> str | None:
        """Why nothing runs any more on one of the devices, None if all work."""
        return next(filter(None, (one.lost for one in self.functions.devices)), None)


class Cuda(Engine):
    """Gives all commands to CUDA as a graph."""

    name = "cuda"
    changes_device = True

    def why_not(self, commands: CommandList, target: QueueKind) -> str | None:
        if commands.schedule != "auto":
            return "a schedule was asked for: finalize without one"
        if commands.wanted_events or commands.externals:
            return "the times or events of single commands are asked for: ask for the graph's alone"
        devices: list[SharedDevice] = []
        for handle in dict.fromkeys([target.device, *commands.devices]):
            device = find_shared_device(handle)
            if device is None and not find_device_profile(handle).compiles_to_ptx:
                return "the driver is not NVIDIA's, whose compiler gives PTX"
            if device is None:
                return _NOT_SHARED
            if (why_not := device.lost or cuda_trust.why_not_device(handle)) is not None:
                return why_not
            devices.append(device)
        found = self._find(commands, devices)
        for kernel in commands.alternatives:
            if kernel in found.functions.why_not:
                return f"a launch may come to another kernel, {found.functions.why_not[kernel]}"
        return why_not_commands(commands, found.functions)

    def suggest_speedup(self, commands: CommandList, device: int) -> str | None:
        if find_shared_device(device) is not None or not cuda_sharing.may_ask():
            return None
        launch = find_device_profile(device).launch_seconds
        if launch is None:
            return None
        driver, graph = commands.count * launch, _COST.estimate(commands.count)
        if driver - graph < _WORTH_SAYING:
            return None
        operations = map(commands.name_operation, range(len(commands)))
        if not _OPERATIONS.issuperset(operations):
            return None
        return (
            f"as a CUDA Graph a replay of {commands.title} would take some {graph * 1e6:,.0f} "
            f"instead of {driver * 1e6:,.0f} µs: import fairlead.cuda_sharing before the program "
            "creates its buffers. FAIRLEAD_CUDA=0 asks for no such line"
        )

    def _find(self, commands: CommandList, devices: Sequence[SharedDevice]) -> FoundCuda:
        key = self.name, devices[0].opencl
        if commands.updatable or key not in commands.notes:  # an update may need other variants
            commands.notes[key] = FoundCuda(devices[0], CudaFunctions(commands, devices))
        return commands.notes[key]

    def cost(self, target: QueueKind) -> Cost | None:
        use = target.use or Use.ONCE
        return _COST if use is Use.ONCE and not target.in_order else _COSTS[use]

    def build(self, commands: CommandList, target: QueueKind) -> BuiltCuda:
        found = commands.notes[self.name, target.device]
        seconds = find_device_profile(target.device).launch_seconds
        return BuiltCuda(commands, target, found, seconds)


def why_not_commands(commands: CommandList, functions: CudaFunctions) -> str | None:
    """Return why the first command that cannot be a node cannot, None if each can."""
    reason, count = ffi.new("uint32_t *"), len(commands)
    first = lib.fl_check_cuda(functions.native, commands.array, count, reason)
    if first == count:
        return None
    row = commands.array[first]
    kernels = functions.why_not.get(get_address(row.kernel), "")
    why = f"{kernels}; it can run outside the block" if kernels else _REASONS[reason[0]]
    if reason[0] == lib.FL_CUDA_NOT_SHARED:
        count = query_integer(commands.context, "clGetContextInfo", "CL_CONTEXT_NUM_DEVICES")
        why += _ASK if count != 1 else ""
    return f"command {first} ({NAMES[row.op]}): {why}"


class BuiltCuda(BuiltCommands):
    """Commands as a CUDA Graph.

    Args:
        commands: all of a command-buffer; each can be a node.
        launch_seconds: what the driver takes for a launch; None if that is not known.

    Raises:
        OpenCLError: CUDA refuses the graph.
    """

    learns = True
    joins = True

    def __init__(
        self,
        commands: CommandList,
        target: QueueKind,
        found: FoundCuda,
        launch_seconds: float | None = None,
    ) -> None:
        functions = found.functions
        devices = self._devices = functions.devices
        for one, other in permutations(devices, 2):
            one.enable_copies(other)
        places = functions.find_places(commands)
        self._found = found
        self._edges = chain_commands(commands.order, CHAINS, places, len(devices))
        self._most_early = MOST_EARLY_CHAINS * len(devices)
        self._launch_seconds = launch_seconds
        self._count, code = commands.count, ffi.new("int *")
        self._graph: Any = lib.fl_new_cuda(
            found.device.native,
            ffi.cast("void *", commands.context),
            functions.native,
            commands.array,
            len(commands),
            ffi.new("uint32_t[]", self._edges.first),
            ffi.new("uint32_t[]", [*self._edges.flat, 0]),
            found.device.early_threads > 0 and self._edges.chains <= self._most_early,
            target.in_order,
            not target.in_order and not commands.fenced,
            commands.title.encode(),
            code,
        )
        if not self._graph:
            raise error(
                OPENCL.codes["CL_OUT_OF_RESOURCES"],
                "cuda",
                CudaError.from_code(code[0], "").message,
            )
        self._kept: Any = functions, commands.owner
        self.native: Any = ffi.new(
            "fl_built *",
            {
                "enqueue": ffi.addressof(lib, "fl_enqueue_cuda"),
                "update": ffi.addressof(lib, "fl_update_cuda"),
                "set_cell": ffi.addressof(lib, "fl_set_cell_of_cuda"),
                "run": ffi.addressof(lib, "fl_run_cuda"),
                "finish": ffi.addressof(lib, "fl_finish_for_cuda"),
                "run_until": ffi.addressof(lib, "fl_run_cuda_until"),
                "take_series": ffi.addressof(lib, "fl_take_series_cuda"),
                "self": self._graph,
                "count": len(commands),
            },
        )

    @property
    def edges(self) -> Edges:
        """What each command comes after in the graph."""
        return self._edges

    def explain_loss(self) -> str | None:
        return self._found.lost

    def find_slower_commands(self) -> Mapping[int, str] | None:
        """Return nothing, or every command: the GPU changes to CUDA and back for some replays.

        A replay after work of OpenCL's has two changes, of which the second falls to OpenCL. The
        device's own time has none. So what changes take is known apart from what the commands take.
        """
        count = lib.FL_CUDA_MEASURED
        taken, ran = ffi.new("uint64_t[]", count), ffi.new("uint64_t[]", count)
        if not lib.fl_cuda_times(self._graph, taken, ran):
            return None
        # the first one does not count: drivers prepare much at first use
        waits = [1e-9 * (taken[i] - ran[i]) - _COST.fixed for i in range(1, count)]
        changes = sorted(wait for wait in waits if wait > _CHANGE)
        if len(changes) < 2:  # one that was interrupted decides nothing
            return {}
        both = 2 * sum(changes) / len(waits)
        commands = 1e-9 * find_median(ran[1:count])
        saved = max(0.0, self._count * (self._launch_seconds or 0.0) - commands)
        if not self._launch_seconds or both <= saved:
            return {}
        often = f"{len(changes)} of {len(waits)} replays"
        why = (
            f"the GPU changes from OpenCL to CUDA and back for {often}, which costs "
            f"{both * 1e6:.0f} µs a replay"
        )
        return dict.fromkeys(range(len(self._edges.first) - 1), why)

    def measure_again(self) -> None:
        lib.fl_measure_cuda_again(self._graph)

    def explain(self) -> str:
        chains = self._edges.chains
        shape, count = "a chain" if chains == 1 else f"{chains} chains", len(self._devices)
        if count > 1:
            shape += f" on {count} devices"
        early, why_not = lib.fl_cuda_early(self._graph), self._found.device.why_not_early
        if early:
            shape += f", {early} of which start early (programmatic dependent launch)"
        elif why_not and 0 < chains <= self._most_early:
            shape += f", none of which starts early: {why_not}"
        return f"a CUDA Graph of {self._count} nodes in {shape}"

    def close(self) -> None:
        graph, self._graph = self._graph, None
        _forget_ended()
        if graph and lib.fl_release_cuda(graph):
            _unfinished[graph] = self._kept
            _forget_ended()  # it may have ended before it was in there


#: Graphs that were closed before they ended, and what they use.
_unfinished: Final[dict[Any, Any]] = {}


def _forget_ended() -> None:
    """Drop what graphs use that have ended."""
    for graph in [one for one in list(_unfinished) if lib.fl_cuda_has_ended(one)]:
        _unfinished.pop(graph, None)  # another thread may have done it


@ffi.def_extern(name="fl_python_ended", error=0)
@mark_uninterrupted
def _drop_ended_graphs(_: Any) -> int:
    """Drop what a graph uses that has ended now. Python's main thread calls it."""
    _forget_ended()
    return 0


_add_pending = ctypes.cast(ctypes.pythonapi.Py_AddPendingCall, ctypes.c_void_p).value
lib.fl_tell_cuda_ends(ffi.cast("fl_add_pending *", _add_pending), lib.fl_python_ended)
call_at_end("tables")(lambda: lib.fl_tell_cuda_ends(ffi.NULL, ffi.NULL))
