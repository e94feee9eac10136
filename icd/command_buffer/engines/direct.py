"""The engine `direct`: C calls work-group functions, without the driver (icd/native/direct.c).

It runs on PoCL's CPU devices, whose kernels are functions of this process. A run of commands is one
native kernel in the queue. For a replay that is waited for, it runs in the caller's own thread. It
takes launches, copies, fills, reads, writes and rectangles. Everything unusual is left to the
driver, which then answers as it always does. docs/direct_engine.md says what is trusted, and why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from ....loader.base.frozen_value import Value
from ..._native import ffi, lib
from ...calls import get_address, query_compute_units, query_integer, query_program
from ...errors import OpenCLError, error
from ..commands import CommandList
from ..direct_device import DirectDevice, get_device
from ..direct_trust import why_not_device
from ..engine import BuiltCommands, Engine, QueueKind
from ..group_functions import GroupFunctions, has_functions
from ..launch_cost import measure_launch
from ..prepared_programs import Preparation, prepare

#: Why a command is left to the driver (enum fl_direct_reason).
_REASONS: Final[dict[int, str]] = {
    lib.FL_DIRECT_KERNEL: "its kernel has no function that can be called",
    lib.FL_DIRECT_ARGUMENT: "an argument is not of the kind or size that its kernel has",
    lib.FL_DIRECT_UNSEEN: "an argument was set before the block",
    lib.FL_DIRECT_IMAGE: "it uses an image or a sampler",
    lib.FL_DIRECT_MEMORY: "the host may not map a buffer of it",
    lib.FL_DIRECT_RANGE: "the driver may refuse its range or sizes",
    lib.FL_DIRECT_LOCAL_SIZE: "the driver does not tell the local size that it chooses",
    lib.FL_DIRECT_NO_ROOM: "there is no memory",
}

#: A launch goes to the driver's threads if they take clearly less time. Shorter ones (ns) are
#: ignored.
_CLEARLY: Final = 0.9
_SHORT: Final = 2000


class Found(Value):
    """What was found out about a list of commands on a device; it lives as long as the list."""

    device: DirectDevice
    functions: GroupFunctions

    def find_reasons(self, commands: CommandList) -> bytes:
        """Why each command cannot be run (enum fl_direct_reason).

        What launches could have besides the generic functions is opened.
        """
        count, reasons = len(commands), ffi.new("uint8_t[]", max(1, len(commands)))
        functions, device = self.functions, self.device.native
        lib.fl_direct_check(
            device, functions.array, functions.count, commands.array, count, reasons
        )
        functions.open_specials()
        return bytes(ffi.buffer(reasons, count))


class Direct(Engine):
    """Calls work-group functions itself."""

    name, divides = "direct", True
    always_faster = "a run is one native kernel, not an enqueue for each command"

    def _why_never(self, commands: CommandList, target: QueueKind) -> str | None:
        count = query_integer(commands.context, "clGetContextInfo", "CL_CONTEXT_NUM_DEVICES")
        if len(set(commands.devices)) > 1 or count != 1:
            return "the context has several devices"
        if commands.schedule != "auto":
            return "a schedule was asked for"
        if commands.wanted_events:
            return "the times or events of single commands are asked for"
        return why_not_device(target.device)

    def why_not(self, commands: CommandList, target: QueueKind) -> str | None:
        if (why_not := self._why_never(commands, target)) is not None:
            return why_not
        try:
            found = self._find(commands, target)
        except OpenCLError as refusal:
            return f"the driver refused what it needs, {refusal}"
        for kernel in commands.alternatives:
            if kernel in found.functions.why_not:
                return f"a launch may come to another kernel, {found.functions.why_not[kernel]}"
        return None

    def prepare(self, commands: CommandList, target: QueueKind) -> Sequence[Preparation]:
        if self._why_never(commands, target) is not None:
            return ()
        try:
            programs = {query_program(kernel) for kernel in _list_kernels(commands)}
            asked = [program for program in programs if not has_functions(program)]
            known = [(program, prepare(program, target.device)) for program in asked]
        except OpenCLError:  # why_not meets it, too, and says so
            return ()
        prepared = {program: one for program, one in known if one is not None}
        if prepared:
            commands.notes.pop((self.name, target.device), None)
            commands.notes[self.name, target.device, "prepared"] = prepared
        return [one for one in prepared.values() if not one.has_ended]

    def _find(self, commands: CommandList, target: QueueKind) -> Found:
        key = self.name, target.device
        if key not in commands.notes:
            kernels = _list_kernels(commands)
            device = get_device(commands.context, target.device)
            rows = (commands.array[number] for number in range(len(commands)))
            if commands.updatable or any(row.kernel and not row.has_local for row in rows):
                device.ask_for_local_sizes()
            prepared = commands.notes.get((*key, "prepared"), {})
            functions = GroupFunctions(kernels, target.device, prepared)
            commands.notes[key] = Found(device, functions)
        return commands.notes[key]

    def list_refusals(self, commands: CommandList, target: QueueKind) -> Mapping[int, str]:
        found = self._find(commands, target)
        refused: dict[int, str] = dict.fromkeys(
            commands.externals, "it waits for events from outside the graph"
        )
        reasons = found.find_reasons(commands)
        for number in range(len(reasons)) if any(reasons) else ():
            if reasons[number]:
                kernel = get_address(commands.array[number].kernel)
                refused[number] = found.functions.why_not.get(kernel) or _REASONS[reasons[number]]
        return refused

    def build(self, commands: CommandList, target: QueueKind) -> BuiltDirect:
        found = self._find(commands, target)
        found.device.count_threads()
        return BuiltDirect(commands, target, found)


class BuiltDirect(BuiltCommands):
    """Commands as a script that is run without calling the driver.

    Args:
        commands: what is run; all of them can be.

    Raises:
        OpenCLError: there is no memory, or the driver does not tell where a buffer lies.
    """

    learns = True

    def __init__(self, commands: CommandList, target: QueueKind, found: Found) -> None:
        self._commands, self._target, self._found = commands, target, found
        code, functions = ffi.new("int *"), found.functions
        order = commands.order
        can_share = self._threads > 1 and order.width > 1
        self._levels: Any = ffi.new("uint32_t[]", order.levels) if can_share else ffi.NULL
        made = lib.fl_new_direct(
            found.device.native,
            functions.array,
            functions.count,
            commands.array,
            len(commands),
            not target.in_order and commands.fenced,
            self._levels,
            code,
        )
        if not made:
            raise error(code[0], "direct")
        self._direct = ffi.gc(made, lib.fl_release_direct)
        self.native: Any = ffi.new(
            "fl_built *",
            {
                "enqueue": ffi.addressof(lib, "fl_enqueue_direct"),
                "update": ffi.addressof(lib, "fl_update_direct"),
                "set_cell": ffi.addressof(lib, "fl_set_cell_of_direct"),
                "run": ffi.addressof(lib, "fl_run_direct"),
                "take_series": ffi.addressof(lib, "fl_take_series_direct"),
                "run_until": ffi.addressof(lib, "fl_run_direct_until"),
                "find_address": ffi.addressof(lib, "fl_find_address_direct"),
                "self": self._direct,
                "count": len(commands),
            },
        )

    def find_slower_commands(self) -> Mapping[int, str] | None:
        """Return the launches that the driver's threads run faster, from the times of the first
        replays."""
        count = len(self._commands)
        alone, groups = ffi.new("uint32_t[]", max(1, count)), ffi.new("uint64_t[]", max(1, count))
        times = ffi.new("uint32_t[]", max(1, count))
        if not lib.fl_direct_times(self._direct, alone, times, groups):
            return None
        alike: dict[tuple[int, int], list[tuple[float, float, int]]] = {}
        for number in range(count):
            ways, taken = min(self._units, groups[number] * self._width), times[number]
            if ways < 2 or taken < _SHORT:
                continue
            launch = measure_launch(self._target, groups[number])
            spread = launch * 1e9 + alone[number] / ways
            key = get_address(self._commands.array[number].kernel), groups[number]
            alike.setdefault(key, []).append((taken, spread, number))
        longer: dict[int, str] = {}
        for launches in alike.values():  # one that was interrupted decides nothing
            taken, spread, _ = sorted(launches, key=lambda one: one[1] / one[0])[len(launches) // 2]
            if spread < _CLEARLY * taken:
                reason = (
                    f"it took {taken / 1e3:.1f} µs, and {self._units} threads of the driver's some "
                    f"{spread / 1e3:.1f} µs"
                )
                longer |= dict.fromkeys((number for _, _, number in launches), reason)
        return longer

    @property
    def _threads(self) -> int:
        return self._found.device.native.thread_limits.threads

    @cached_property
    def _units(self) -> int:
        return query_compute_units(self._target.device)

    @cached_property
    def _width(self) -> int:
        """How many commands the driver would run at the same time."""
        return 1 if self._target.in_order else max(1, self._commands.order.width)

    def explain(self) -> str:
        threads = ffi.new("uint32_t *")
        shared = lib.fl_direct_shared(self._direct, threads)
        by = f"; {threads[0]} threads run {shared} commands together" if shared else ""
        return f"one native kernel, or the caller's thread for replay(wait=True){by}"

    def close(self) -> None:
        ffi.release(self._direct)


def _list_kernels(commands: CommandList) -> set[int]:
    """Return the kernels that are launched, or may be launched after an update."""
    rows = (commands.array[number] for number in range(len(commands)))
    return {*(get_address(row.kernel) for row in rows if row.kernel), *commands.alternatives}
