"""Fused kernels, and the launches of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from weakref import finalize

from ..._native import ffi, lib
from ...calls import build_program, call, find_device_profile, get_address
from ...errors import check
from ...kernel_source.conditions import Three
from ...program_binaries import query_sizes
from ..commands import CommandArray, CommandList
from .arguments import RecordedArgument, list_keys
from .launches import RecordedLaunch
from .parameters import FusedParameters

#: What does not flow: an argument, or a command.
FIXED: Final[int] = lib.FL_FIXED


class FusedKernel:
    """A fused kernel of a source. Raises OpenCLError if the driver does not build it.

    PoCL compiles its function for any local size here, not in the replay that is to call it. That
    does not take long, since it has no barriers.
    """

    def __init__(self, context: int, device: int, options: str, source: str) -> None:
        code = ffi.new("int32_t *")
        program = build_program(context, device, source.encode(), options.encode())
        try:
            self.handle = call(program, "clCreateKernel", b"fairlead_fused", get_address(code))
            check(code[0], "clCreateKernel")
            if find_device_profile(device).has_kernels_in_process:
                query_sizes(program)
        finally:
            call(program, "clReleaseProgram")
        finalize(self, call, self.handle, "clReleaseKernel").atexit = False


def find_flows(
    arguments: Sequence[RecordedArgument], place: int = 0, rows: Mapping[Any, int] | None = None
) -> Sequence[int]:
    """Return where arguments that may change are in the launch of a run, FIXED for others.

    Args:
        place: of their launch in the run.
        rows: the places in the new launch, by keys; None if their launch stays as it is.
    """
    pairs = zip(arguments, list_keys(place, arguments), strict=True)
    return tuple(
        FIXED if one.is_proven or one.address else rows[key] if rows else 0 for one, key in pairs
    )


@dataclass(frozen=True, eq=False)
class RunPlan:
    """What launches in a row become. Runs of the same launches share it.

    Attributes:
        launches: in order.
        parameters: of the new kernel.
        range: work-items in each dimension.
        group: work-items of a work-group, which lies along a row.
    """

    launches: Sequence[RecordedLaunch]
    source: str
    kernel: FusedKernel
    parameters: FusedParameters
    range: Three
    group: int

    @cached_property
    def flows(self) -> Sequence[Sequence[int]]:
        """Where numbers that may change are in the new launch, of each launch (flow.py)."""
        rows, launches = self.parameters.places, enumerate(self.launches)
        return [find_flows(one.arguments, place, rows) for place, one in launches]

    @cached_property
    def savings(self) -> str:
        """What a replay does not do any more."""
        items, before, reads, writes = self.launches[0].items, 0, set[Any](), set[Any]()
        for one in (one for launch in self.launches for one in launch.memory[0]):
            before += (one.reads + one.writes) * (one.width * items or one.end - one.first)
            place = one.root, one.first, one.end
            if one.handle not in self.parameters.temporaries:
                reads |= {place} if one.reads and place not in writes else set()
                writes |= {place} if one.writes else set()
        after = sum(end - first for _, first, end in (*reads, *writes))
        loops = sum(launch.kernel.loop is not None for launch in self.launches)
        saved = {
            "launches": len(self.launches) - 1,
            "loops over items": loops,
            "barriers": sum(len(one.reduction.form.tree) for one in self.launches if one.reduction),
            "bytes of memory traffic": max(0, before - after),
        }
        return ", ".join(f"{what} {count:,}" for what, count in saved.items() if count)


@dataclass(frozen=True, eq=False)
class FusedRun:
    """Launches, and the one that does the same.

    Attributes:
        numbers: of the commands that it stands for.
        lists: the `fl_arguments *` that have their arguments.
        handles: of their memory, by the numbers that the plan has (`MemoryNames`).
    """

    plan: RunPlan
    numbers: tuple[int, ...]
    lists: Sequence[Any]
    handles: Mapping[int, int]

    @property
    def hidden(self) -> list[int]:
        """The memory objects (handles) that it does not write any more."""
        return [self.handles[one] for one in self.plan.parameters.temporaries]

    def make_arguments(self) -> Any:
        """Return the launch's arguments, which share cells with the recorded ones.

        Raises:
            MemoryError: there is no memory.
        """
        parameters = self.plan.parameters
        rows, having = parameters.rows, [*self.lists, parameters.zero]
        lists = ffi.new("fl_arguments *[]", [having[one.place] for one in rows])
        indices = ffi.new("uint32_t[]", [one.argument for one in rows])
        arguments = lib.fl_pick_arguments(lists, indices, len(rows))
        if not arguments:
            raise MemoryError("no memory for a launch's arguments")
        return arguments

    def add(self, array: CommandArray, commands: CommandList, before: Sequence[int]) -> int:
        """Append the launch to an array. Returns its place.

        Args:
            before: the commands that it comes after.
        """
        return array.add(
            "kernel",
            before,
            kernel=self.plan.kernel.handle,
            arguments=self.make_arguments(),
            work_dim=3 if self.plan.range[1:] != (1, 1) else 1,
            has_local=1,
            global_size=self.plan.range,
            local_size=(self.plan.group, 1, 1),
            queue=commands.array[self.numbers[0]].queue,
        )


def put_together(
    old: CommandList, runs: Mapping[int, FusedRun], add: Callable[..., int]
) -> tuple[CommandList, Sequence[int], Sequence[int]]:
    """Return a command list with other commands for runs.

    Args:
        old: the recorded commands.
        runs: by the numbers of their launches.
        add: appends the commands of a run to an array, and returns the place of the last one.

    Returns:
        The list; for each of its commands the first of the old ones that it stands for; and for
            each of the old ones its place in the list.
    """
    array, numbers = CommandArray(), list[int]()
    place: list[int] = []  # in the new array, of each old command
    for number in range(len(old)):
        run = runs.get(number)
        if run is not None and number != run.numbers[0]:
            place.append(place[run.numbers[0]])
            continue
        stands_for = [number] if run is None else run.numbers
        before = {one for each in stands_for for one in old.order.dependencies[each]}
        places = sorted({place[one] for one in before if one < number})
        if run is None:
            row = old.array[number]
            place.append(array.add_copy(ffi.addressof(row), places, row.queue))
        else:
            place.append(add(run, array, old, places))
        numbers += [number] * (len(array) - len(numbers))
    made = CommandList(
        old.context,
        old.devices,
        array.array,
        array.order,
        (array, old.owner, {one.plan for one in runs.values()}),
        schedule=old.schedule,
        updatable=old.updatable,
        fenced=old.fenced,
        memory=old.memory,
        title=old.title,
    )
    return made, numbers, place
