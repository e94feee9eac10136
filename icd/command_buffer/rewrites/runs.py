"""Runs: launches that follow each other and can become one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from functools import cached_property, partial
from itertools import chain
from typing import Any, Final, NamedTuple

from ...calls import query_compute_units, query_integer
from ...kernel_source.conditions import Three
from ...kernel_source.errors import UnreadableKernel
from ..commands import CommandList
from .arguments import NotFused, RecordedArgument, ask_once, list_keys
from .fused_runs import FusedKernel, FusedRun, RunPlan
from .kernels import has_inner_loops
from .launches import RecordedLaunch, read_launch
from .opaque import measure_kind
from .overflow import can_hide
from .parameters import FusedParameters
from .places import ElementPlace, find_own, find_place, find_temporaries
from .reductions import Reduction
from .sources import write_source
from .transfers import list_types, read_transfer
from .used_bytes import MemoryNames, UsedBytes
from .uses import ListSnapshot
from .vectors import count_lanes

#: Bytes of arguments that every device takes (SPEC CL_DEVICE_MAX_PARAMETER_SIZE).
_MOST_BYTES: Final = 1000
#: Launches of a run. A compiler takes longer for each.
_MOST_LAUNCHES: Final = 128
#: Work-items of a work-group, on CPUs and on GPUs: the first number that divides them, or else the
#: last. Whole groups have no test at their end. A CPU's driver takes longer for many groups.
_GROUPS: Final = ((8192, 4096, 2048, 1024, 512, 256, 128), (256,))
#: Larger ones leave this many for each compute unit.
_LARGE: Final = 1024
_EACH: Final = 2


class Border(NamedTuple):
    """Why a launch cannot be the next one of a run.

    Attributes:
        text: says it, up to the number of a command.
        place: of that command in the run, -1 for none.
        after: what follows the number.
    """

    text: str
    place: int = -1
    after: str = ""


class RunPath:
    """Launches in a row, from the first of a run on. Runs that begin alike share it.

    Args:
        launch: the last of them, None if there is none.

    Attributes:
        next: what a launch behind them leads to, with the numbers that its memory has in the run.
        plans: what they become, or why not, by the memory that nothing else accesses.
    """

    __slots__ = ("launch", "next", "plans")

    def __init__(self, launch: RecordedLaunch | None = None) -> None:
        self.launch = launch
        self.next: dict[tuple[RecordedLaunch, tuple[int, ...]], RunPath | Border] = {}
        self.plans: dict[Any, Any] = {}


class Run:
    """Launches that become one.

    Args:
        path: of no launches.
        snapshot: the commands.
        is_isolated: whether the function of each is isolated from the others' (isolation.py).
        most: work-items of a work-group that the device takes.
        units: its compute units.

    Attributes:
        launches: in order.
        numbers: of their commands.
        lists: the `fl_arguments *` that have their arguments.
        declared: what their programs declare: the text, by name. It is known after `look`.
    """

    def __init__(
        self, path: RunPath, snapshot: ListSnapshot, most: int, units: int, *, is_isolated: bool
    ) -> None:
        self.launches: list[RecordedLaunch] = []
        self.numbers: list[int] = []
        self.lists: list[Any] = []
        self.declared: dict[str, str] = {}
        self.is_isolated, self._most, self._units = is_isolated, most, units
        self._path, self._seen = path, 0
        self._names, self._roots = MemoryNames(snapshot), snapshot.roots
        # bytes of the arguments, by their keys, and of all of them
        self._sizes, self._size = dict[Any, int](), 0
        # by turn and root; and the place of the launch
        self._memory: list[dict[int, dict[UsedBytes, int]]] = []

    def take(
        self, number: int, launch: RecordedLaunch, names: MemoryNames, listed: Any
    ) -> str | None:
        """Take a launch as the next one, or return why that cannot be.

        Args:
            number: of its command.
            names: the numbers that its memory has in it.
            listed: the `fl_arguments *` that has its arguments.
        """
        key = launch, tuple(map(self._names.number, names.numbers))
        found = self._path.next.get(key)
        if found is None:
            renamed = launch.rename(dict(zip(names.numbers.values(), key[1], strict=True)))
            found = self._path.next[key] = self.why_not(renamed) or RunPath(renamed)
        if isinstance(found, Border):
            before = self.numbers[found.place] if found.after else ""
            return f"{found.text}{before}{found.after}"
        assert found.launch is not None
        self.launches.append(found.launch)
        self.numbers.append(number)
        self.lists.append(listed)
        self._path = found
        return None

    def why_not(self, launch: RecordedLaunch) -> Border | None:
        """Return why a launch cannot be the next one of it."""
        if not self.launches:
            return None
        if self.reduction is not None:
            return Border("a reduction ends a kernel")
        self.look()
        first, declared = self.launches[0], launch.kernel.declared
        if first.items != launch.items:
            return Border(f"it has {launch.items} items, those before it {first.items}")
        if self.grid and (launch.reduction or launch.grid not in (None, self.grid)):
            return Border("its items have other rows than those before it")
        if first.kernel.options != launch.kernel.options:
            return Border("its program has other build options")
        for turn, known in zip(launch.memory, self._memory, strict=True):
            for one in turn:
                for before, place in known.get(one.root, {}).items():
                    if not one.allows(before):
                        name = f"its {one.argument}, {before.argument} of command "
                        why = one.reason or before.reason or "they have other items' bytes there"
                        text = f"an item may use what other items write, {name}"
                        return Border(text, place, f": {why}")
                    if one.meets(before) and not one.is_like(before):
                        name = f"its {one.argument} has another type in command "
                        return Border(name, place, " ")
                    may_overflow = self.launches[place].may_overflow and not self.is_isolated
                    if may_overflow and one.reads and before.writes and not can_hide(before):
                        name = f"a compiler would see the {before.argument} of command "
                        return Border(name, place, ", a signed integer that may not fit")
                if (
                    self.is_isolated
                    and any(map(one.meets, known.get(one.root, {})))
                    and not self._passes(one, launch)
                ):
                    return Border(f"a GPU's compiler would see what passes in its {one.argument}")
        for name in declared.keys() & self.declared.keys():
            if declared[name] != self.declared[name]:
                return Border(f"two programs give {name} two meanings")
        zeros = 8 * (len(self.launches) + 1) * self.is_isolated
        if self._size + sum(self._measure(self._seen, launch).values()) + zeros > _MOST_BYTES:
            return Border("its kernel would have too many arguments")
        if len(self.launches) == _MOST_LAUNCHES:
            return Border("it has enough launches")
        return None

    def _passes(self, memory: UsedBytes, launch: RecordedLaunch) -> bool:
        """Return whether an item's element passes in a variable, to the next launch as well."""
        launches = [*self.launches, launch]
        for turn in zip(*(one.memory for one in launches), strict=True):
            used = list(chain(*turn))
            roots = {one.root for one in used if one.handle == memory.handle}
            if any(one.root in roots and one.handle != memory.handle for one in used):
                return False
        place = find_place(launches, memory.handle)
        return place is not None and place.fits and place.users > 1

    def look(self) -> None:
        """Find out what its launches use, as far as that is not known yet."""
        for place, launch in enumerate(self.launches[self._seen :], self._seen):
            self.declared.update(launch.kernel.declared)
            more = self._measure(place, launch)
            self._sizes.update(more)
            self._size += sum(more.values())
            self._memory = self._memory or [{} for _ in launch.memory]
            for turn, known in zip(launch.memory, self._memory, strict=True):
                for one in turn:
                    known.setdefault(one.root, {})[one] = place
        self._seen = len(self.launches)

    def _measure(self, place: int, launch: RecordedLaunch) -> dict[Any, int]:
        """Return the bytes of the arguments that are a launch's alone, by their keys."""
        found: dict[Any, int] = {
            key: max(8, len(value)) if isinstance(value := one.turns[0], bytes) else 8
            for key, one in zip(list_keys(place, launch.arguments), launch.arguments, strict=True)
            if key not in self._sizes
        }
        if not self.is_isolated and launch.may_overflow:
            found |= {(place, one.argument, "zero"): 8 for one in launch.memory[0]}
        return found

    @property
    def gains(self) -> bool:
        """Whether the new launch can be better than the old ones."""
        kernels = [one.kernel for one in self.launches if not one.is_transfer]
        ends = self.reduction is not None or any(one.loop is not None for one in kernels)
        return ends or (bool(kernels) and len(self.launches) > 1)

    @property
    def reduction(self) -> Reduction | None:
        """What its last launch does with the items' values, if it is a reduction."""
        return self.launches[-1].reduction if self.launches else None

    @property
    def is_apart(self) -> bool:
        """Whether no two of its memory arguments share bytes."""
        return all(
            len({one.handle for one in used}) == 1
            for turn in self._memory
            for used in turn.values()
        )

    @property
    def grid(self) -> Three | None:
        """The range, if items of its launches have several dimensions."""
        return next((one.grid for one in self.launches if one.grid), None)

    @property
    def group(self) -> int:
        """Work-items of a work-group of the new launch."""
        sizes = _GROUPS[self.is_isolated]
        # few items that take long are for all threads
        if any(has_inner_loops(one.kernel.access) for one in self.launches):
            sizes = sizes[-1:]
        items = self.launches[0].items
        row = self.grid[0] if self.grid else items
        most = min(self._most, max(_LARGE, items // (_EACH * self._units)))
        whole = (one for one in sizes if one <= most and row % one == 0)
        return next(whole, min(sizes[-1], row) if self.grid else sizes[-1])

    def make(
        self,
        commands: CommandList,
        users: Mapping[int, Collection[int]],
        kernels: dict[str, FusedKernel],
    ) -> FusedRun:
        """Return what the run becomes. Raises NotFused, or OpenCLError of the compiler.

        Args:
            users: see `find_own`.
            kernels: those that were made already, by their sources.
        """
        own = find_own(self._names.numbers, self.numbers, users)
        plan = ask_once(self._path.plans, own, lambda: self._plan(commands, own, kernels))
        return FusedRun(plan, tuple(self.numbers), self.lists, self._names.handles)

    def _plan(
        self, commands: CommandList, own: Set[int], kernels: dict[str, FusedKernel]
    ) -> RunPlan:
        self.look()
        temporaries = find_temporaries(self.launches, own)
        shared: dict[int, ElementPlace] | None = None
        wide, lanes = shared, 1
        if self.is_isolated:
            temporaries = {one: kind for one, kind in temporaries.items() if measure_kind(kind)}
            keys = (one.handle for launch in self.launches for one in launch.memory[0])
            places = {one: find_place(self.launches, one) for one in keys if one not in temporaries}
            wide = {key: one for key, one in places.items() if one and one.fits}
            shared = {key: one for key, one in wide.items() if one.users > 1}
            used = {
                one.handle for launch in self.launches for one in launch.memory[0] if one.stride
            }
            if self.is_apart and used <= wide.keys() | temporaries.keys():
                lanes = count_lanes(self.launches, wide, commands.devices[0], self._roots)
        parameters = FusedParameters(self, temporaries, wide, lanes)
        if lanes == 1 or parameters.size > _MOST_BYTES:
            parameters = FusedParameters(self, temporaries, shared)
        source = write_source(self, parameters)
        if source not in kernels:
            options = self.launches[0].kernel.options
            kernels[source] = FusedKernel(commands.context, commands.devices[0], options, source)
        x, y, z = self.grid or (self.launches[0].items, 1, 1)
        range_ = -(-x // (self.group * parameters.lanes)) * self.group, y, z
        group = self.group
        if self.reduction is not None:
            range_, group = (self.reduction.groups, 1, 1), 1
        return RunPlan(tuple(self.launches), source, kernels[source], parameters, range_, group)


class RunList:
    """All runs that were found in one command list, and why there are not fewer.

    Attributes:
        runs: in order.
        arguments: of each launch that is fused, or that could be after changes, by its number.
        lines: why there are borders between them: the command behind, and a text.
        launches: all that were understood, by number.
    """

    def __init__(self, snapshot: ListSnapshot, *, is_isolated: bool) -> None:
        self.runs, self.lines = list[Run](), list[tuple[int, str]]()
        self.arguments: dict[int, tuple[RecordedArgument, ...]] = {}
        self.snapshot, self.is_isolated = snapshot, is_isolated
        self.launches: dict[int, RecordedLaunch] = {}
        self._names: dict[int, MemoryNames] = {}
        self._reasons: dict[int, str] = {}
        numbers, array = range(len(snapshot.commands)), snapshot.commands.array
        for number in numbers:
            self._read_launch(number)
        likes = dict[int, RecordedLaunch]()
        following: RecordedLaunch | None = None
        for number in reversed(numbers):  # a transfer at the beginning is like the next launch
            following = self.launches.get(number, following)
            if following is not None:
                likes[number] = following
        device = snapshot.commands.devices[0]
        most = query_integer(device, "clGetDeviceInfo", "CL_DEVICE_MAX_WORK_GROUP_SIZE") or 0
        units = query_compute_units(device)
        new_run = partial(Run, RunPath(), snapshot, most, units, is_isolated=is_isolated)
        run = new_run()
        for number in numbers:
            launch, listed = self.launches.get(number), None
            like = run.launches[-1] if run.launches else likes.get(number)
            if launch is None and like is not None:
                launch, listed = self._read_transfer(number, like)
            if launch is None:
                text: str | None = f"is not fused: {self._reasons[number]}"
            else:
                listed = listed or array[number].arguments
                names = self._names[number]
                if (text := run.take(number, launch, names, listed)) is not None:
                    text = f"does not join those before it: {text}"
            if text is not None:
                self.lines.append((number, f"command {number} {text.rstrip()}"))
                self._end(run)
                run = new_run()
                if launch is not None:
                    run.take(number, launch, self._names[number], listed)
        self._end(run)

    def find_users(self) -> Mapping[int, Collection[int]]:
        """Return the commands that access memory objects that nobody else can see, by handle: not
        those that only have one as an argument."""

        def accesses(number: int, handle: int) -> bool:
            launch = self.launches.get(number)
            if launch is None or launch.kernel.access.program.decisions:  # which may be wrong
                return True
            return self._names[number].numbers.get(handle) in launch.used

        return {
            handle: {number for number in numbers if accesses(number, handle)}
            for handle, numbers in self.snapshot.users.items()
        }

    def _read_launch(self, number: int) -> None:
        try:
            if self.snapshot.commands.order.order_only[number]:
                raise NotFused("it only orders others")
            names = self._names[number] = MemoryNames(self.snapshot)
            launch = read_launch(self.snapshot, number, names, is_isolated=self.is_isolated)
            self.arguments[number] = launch.arguments
            self.launches[number] = launch
        except NotFused as error:
            self._reasons[number] = str(error)
            if error.arguments:
                self.arguments[number] = error.arguments

    @cached_property
    def _types(self) -> Mapping[tuple[int, int], str]:
        return list_types((one, self._names[number]) for number, one in self.launches.items())

    def _read_transfer(
        self, number: int, like: RecordedLaunch
    ) -> tuple[RecordedLaunch | None, Any]:
        names = self._names[number] = MemoryNames(self.snapshot)
        try:
            return read_transfer(self.snapshot, number, like, self._types, names)
        except (NotFused, UnreadableKernel) as error:
            if self.snapshot.commands.name_operation(number) in ("copy", "fill"):
                self._reasons[number] = str(error)
            return None, None

    def _end(self, run: Run) -> None:
        if run.launches and run.gains:
            self.runs.append(run)
