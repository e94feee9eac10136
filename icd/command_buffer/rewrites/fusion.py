"""Fusion: launches that follow each other over the same items become one launch.

Each old kernel becomes a function of one item, and the new kernel calls them in order. That does
the same, bit for bit, because:

- an item of a launch uses nothing of its ids but its own number (launches.py);
- two launches are fused only if no item meets what another item wrote: where both use the same
  bytes and one writes them, each item has its own, by the same map (`UsedBytes.allows`);
- the functions have the old expressions, so a compiler rounds where it did. A value that crosses an
  old border is stored and loaded, or kept in a variable of its type;
- memory is replaced by such a variable only if nobody can see it: only the recording has a
  reference to it, only launches of this run use it, and each item writes its element first.

A launch alone is rewritten, too, if its kernel loops over its items in strides of the global size.
Without the loop a CPU runs along the memory instead of across it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple
from weakref import finalize

from pycparser import c_ast

from ..._native import ffi, lib
from ...abi import OPENCL
from ...calls import build_program, call, get_address, query_integer
from ...errors import OpenCLError, check
from ...kernel_source.errors import UnreadableKernel
from ...kernel_source.parsing import write_opencl
from ..commands import CommandArray, CommandList
from .checking import FusionCheck
from .flow import FIXED, Flow
from .isolation import isolate, measure_kind, why_not_isolated
from .launches import (
    ArgumentValue,
    KernelRead,
    NotFused,
    RecordedArgument,
    RecordedLaunch,
    UsedBytes,
    list_types,
    make_arguments,
    read_launch,
    read_transfer,
)
from .rewriting import Rewritten
from .uses import ListSnapshot, MemoryUse
from .vectors import count_lanes

#: Bytes of arguments that every device takes (SPEC CL_DEVICE_MAX_PARAMETER_SIZE).
_MOST_BYTES: Final = 1000
#: Launches of a run. A compiler takes longer for each.
_MOST_LAUNCHES: Final = 128
#: Work-items of a work-group, on CPUs and on GPUs. Whole groups have no test at their end.
_GROUPS: Final = (128, 256)
ITEM: Final = "fl_item"
#: The first item of a vector (vectors.py).
FIRST: Final = "fl_first"
#: What the names of vectors begin with.
_VECTOR: Final = "fl_vector_"
#: The key of an argument that is 0 (isolation.py).
_ZERO: Final = "zero"


def fuse(
    commands: CommandList,
    snapshot: ListSnapshot,
    add_readers: Callable[[RunList], None],
    *,
    checks: bool = False,
) -> Rewritten:
    """Return commands with launches that are fused.

    Args:
        commands: what is rewritten. It may change meanwhile.
        snapshot: what it was.
        add_readers: that of reductions.py.
        checks: whether the first replays run both ways (checking.py), if the commands never change.
    """
    if (reason := _why_not(commands)) is not None:
        return Rewritten(None, lines=[f"not fused: {reason}"])
    found, old = RunList(snapshot, is_isolated=needs_isolation(commands)), snapshot.commands
    if not found.is_isolated and not commands.updatable:
        add_readers(found)
    lines, made, kernels = found.lines, dict[int, FusedRun](), dict[str, FusedKernel]()
    for run in found.runs:
        first, last = run.numbers[0], run.numbers[-1]
        many = f"commands {first}–{last} are" if first != last else f"command {first} is"
        try:
            one = run.make(old, snapshot.uses, kernels)
        except (NotFused, OpenCLError) as error:  # this run stays as it was captured
            lines.append((last, f"{many} not fused: {' '.join(str(error).split())}"))
            continue
        lines.append((last, f"{many} one fused kernel, which saves: {one.describe_savings()}"))
        made.update((number, one) for number in run.numbers)
    texts = [f"  {text}" for _, text in sorted(lines, key=lambda line: line[0])]
    fused, numbers, places = _put_together(old, made, lambda run, *rest: run.add(*rest))
    flow = check = None
    if commands.updatable:
        flow = _make_flow(commands, snapshot, found, made, fused, places)
    elif checks and made:
        check = FusionCheck()
        check.commands, check.numbers, _ = _put_together(old, made, check.add)
    sources = {one.numbers: one.source for one in made.values()}
    hidden = frozenset(chain(*(one.temporaries for one in made.values())))
    return Rewritten(fused if made else None, numbers, texts, sources, check, flow, hidden)


def _why_not(commands: CommandList) -> str | None:
    """Return why nothing of a list is fused."""
    if len(set(commands.devices)) > 1:
        return "it has several devices"
    if commands.wanted_events or commands.externals:
        return "the times or events of single commands are asked for"
    if not _is_of_type(commands, "CL_DEVICE_TYPE_CPU", "CL_DEVICE_TYPE_GPU"):
        return "only kernels of CPUs and GPUs are fused"
    return None


def needs_isolation(commands: CommandList) -> bool:
    """Return whether the device's compiler may round otherwise in a fused kernel (isolation.py)."""
    return _is_of_type(commands, "CL_DEVICE_TYPE_GPU")


def _is_of_type(commands: CommandList, *types: str) -> bool:
    told = query_integer(commands.devices[0], "clGetDeviceInfo", "CL_DEVICE_TYPE") or 0
    return any(told & OPENCL[one] for one in types)


class Run:
    """Launches that become one.

    Args:
        launches: as many as can be one; the others are left out.
        is_isolated: whether the function of each is isolated from the others' (isolation.py).

    Attributes:
        launches: in order.
        declared: what their programs declare: the text, by name.
    """

    def __init__(
        self, launches: Iterable[RecordedLaunch] = (), *, is_isolated: bool = False
    ) -> None:
        self.launches: list[RecordedLaunch] = []
        self.declared: dict[str, str] = {}
        self.is_isolated = is_isolated
        self._sizes: dict[Any, int] = {}  # bytes of the arguments, by their keys
        self._memory: list[dict[UsedBytes, int]] = []  # by turn; and the number of the command
        for launch in launches:
            if self.why_not(launch) is not None:
                break
            self.add(launch)

    def why_not(self, launch: RecordedLaunch) -> str | None:
        """Return why a launch cannot be the next one of it."""
        if not self.launches:
            return None
        first, declared = self.launches[0], launch.kernel.declared
        if first.items != launch.items:
            return f"it has {launch.items} items, those before it {first.items}"
        if first.kernel.options != launch.kernel.options:
            return "its program has other build options"
        for turn, known in zip(launch.memory, self._memory, strict=True):
            for one in turn:
                for before, number in known.items():
                    if not one.allows(before):
                        name = f"its {one.argument}, {before.argument} of command {number}"
                        why = one.reason or before.reason or "they have other items' bytes there"
                        return f"an item may use what other items write, {name}: {why}"
                    if one.meets(before) and not one.is_like(before):
                        return f"its {one.argument} has another type in command {number}"
                if (
                    self.is_isolated
                    and any(map(one.meets, known))
                    and not self._passes(one, launch)
                ):
                    return f"a GPU's compiler would see what passes in its {one.argument}"
        for name in declared.keys() & self.declared.keys():
            if declared[name] != self.declared[name]:
                return f"two programs give {name} two meanings"
        zeros = 8 * (len(self.launches) + 1) * self.is_isolated
        if sum({**self._sizes, **_measure(launch)}.values()) + zeros > _MOST_BYTES:
            return "its kernel would have too many arguments"
        return "it has enough launches" if len(self.launches) == _MOST_LAUNCHES else None

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

    def add(self, launch: RecordedLaunch) -> None:
        """Add a launch that can be the next one."""
        self.launches.append(launch)
        self.declared.update(launch.kernel.declared)
        self._sizes.update(_measure(launch))
        self._memory = self._memory or [{} for _ in launch.memory]
        for turn, known in zip(launch.memory, self._memory, strict=True):
            known.update(dict.fromkeys(turn, launch.number))

    @property
    def gains(self) -> bool:
        """Whether the new launch can be better than the old ones."""
        kernels = [one.kernel for one in self.launches if not one.is_transfer]
        return any(one.loop is not None for one in kernels) or (
            bool(kernels) and len(self.launches) > 1
        )

    @property
    def is_apart(self) -> bool:
        """Whether no two of its memory arguments share bytes."""
        return all(
            len({(one.root, one.handle) for one in turn}) == len({one.root for one in turn})
            for turn in self._memory
        )

    @property
    def group(self) -> int:
        """Work-items of a work-group of the new launch."""
        return _GROUPS[self.is_isolated]

    @property
    def numbers(self) -> list[int]:
        """Of the commands that it stands for."""
        return [launch.number for launch in self.launches]

    def make(
        self,
        commands: CommandList,
        uses: Mapping[int, MemoryUse],
        kernels: dict[str, FusedKernel],
    ) -> FusedRun:
        """Return what it becomes. Raises NotFused, or OpenCLError of the compiler.

        `kernels` has those that were made already, by their sources.
        """
        temporaries = find_temporaries(self.launches, uses)
        shared: dict[int, ElementPlace] | None = None
        wide, lanes = shared, 1
        if self.is_isolated:
            temporaries = {one: kind for one, kind in temporaries.items() if measure_kind(kind)}
            keys = (one.handle for launch in self.launches for one in launch.memory[0])
            places = {one: find_place(self.launches, one) for one in keys if one not in temporaries}
            wide = {key: one for key, one in places.items() if one and one.fits}
            shared = {key: one for key, one in wide.items() if one.users > 1}
            own = {one.handle for launch in self.launches for one in launch.memory[0] if one.stride}
            if self.is_apart and own <= wide.keys() | temporaries.keys():
                lanes = count_lanes(self.launches, wide, commands.devices[0])
        parameters = FusedParameters(self, temporaries, wide, lanes)
        if lanes == 1 or parameters.size > _MOST_BYTES:
            parameters = FusedParameters(self, temporaries, shared)
        source = write_source(self, parameters)
        kernel = self.compile(commands, kernels, source)
        return FusedRun(self.launches, source, kernel, parameters, self.group)

    def compile(
        self, commands: CommandList, kernels: dict[str, FusedKernel], source: str
    ) -> FusedKernel:
        """Return the kernel of a source: see `make`."""
        if source not in kernels:
            options = self.launches[0].kernel.options
            kernels[source] = FusedKernel(commands.context, commands.devices[0], options, source)
        return kernels[source]


def _measure(launch: RecordedLaunch) -> dict[Any, int]:
    return {
        one.key: max(8, len(one.turns[0])) if isinstance(one.turns[0], bytes) else 8
        for one in launch.arguments
    }


class RunList:
    """The runs of a command list.

    Attributes:
        runs: in order.
        arguments: of each launch that is fused, or that could be after changes, by its number.
        lines: why there are borders between them: the command behind, and a text.
        launches: all that were understood, by number.
        snapshot: of the list.
    """

    def __init__(self, snapshot: ListSnapshot, *, is_isolated: bool) -> None:
        self.runs, self.lines = list[Run](), list[tuple[int, str]]()
        self.arguments: dict[int, Sequence[RecordedArgument]] = {}
        self.snapshot, self.is_isolated = snapshot, is_isolated
        self.launches: dict[int, RecordedLaunch] = {}
        self._reasons: dict[int, str] = {}
        numbers = range(len(snapshot.commands))
        for number in numbers:
            self._read_launch(number)
        types, likes = list_types(self.launches.values()), dict[int, RecordedLaunch]()
        following: RecordedLaunch | None = None
        for number in reversed(numbers):  # a transfer at the beginning is like the next launch
            following = self.launches.get(number, following)
            if following is not None:
                likes[number] = following
        run = Run(is_isolated=is_isolated)
        for number in numbers:
            launch = self.launches.get(number)
            like = run.launches[-1] if run.launches else likes.get(number)
            if launch is None and like is not None:
                launch = self._read_transfer(number, like, types)
            if launch is None:
                text: str | None = f"is not fused: {self._reasons[number]}"
            elif (text := run.why_not(launch)) is not None:
                text = f"does not join those before it: {text}"
            if text is not None:
                self.lines.append((number, f"command {number} {text}"))
                self._end(run)
                run = Run(is_isolated=is_isolated)
            if launch is not None:
                run.add(launch)
        self._end(run)

    def _read_launch(self, number: int) -> None:
        try:
            if self.snapshot.commands.order.order_only[number]:
                raise NotFused("it only orders others")
            launch = read_launch(self.snapshot, number)
            self.arguments[number] = launch.arguments
            if self.is_isolated:
                _check_isolation(launch)
            self.launches[number] = launch
        except NotFused as error:
            self._reasons[number] = str(error)
            if error.arguments:
                self.arguments[number] = error.arguments

    def _read_transfer(
        self, number: int, like: RecordedLaunch, types: Mapping[tuple[int, int], str]
    ) -> RecordedLaunch | None:
        try:
            return read_transfer(self.snapshot, number, like, types)
        except (NotFused, UnreadableKernel) as error:
            if self.snapshot.commands.name_operation(number) in ("copy", "fill"):
                self._reasons[number] = str(error)
            return None

    def _end(self, run: Run) -> None:
        if run.launches and run.gains:
            self.runs.append(run)


def _check_isolation(launch: RecordedLaunch) -> None:
    """Refuse a launch that cannot be isolated. Raises NotFused."""
    kernel = launch.kernel
    if kernel.access.arguments.keys() - kernel.elements.keys():
        raise NotFused("it uses memory otherwise than by indices")
    reason = why_not_isolated(kernel.access, {name for name, _ in kernel.elements.values()})
    if reason is not None:
        raise NotFused(reason)


@dataclass(frozen=True)
class ElementPlace:
    """Where an item's element of memory is: the same in all launches that use it.

    Attributes:
        kind: its type.
        offset: of item 0's, from where the argument points to, in bytes.
        stride: bytes from an element to the next one.
        is_loaded: whether a launch may read it before any has written it.
        is_stored: whether a launch writes it.
        fits: whether a variable can stand for it.
        users: how many launches use it.
    """

    kind: str
    offset: int
    stride: int
    is_loaded: bool
    is_stored: bool
    fits: bool
    users: int

    def write(self, pointer: str, lanes: int = 1) -> str:
        """Return how the element is written, or the vector of some that begins with it."""
        kind, item = (f"{self.kind}{lanes}", FIRST) if lanes > 1 else (self.kind, ITEM)
        return f"*(global {kind} *)({pointer} + {self.offset}UL + {self.stride}UL * {item})"


def find_place(launches: Sequence[RecordedLaunch], key: int) -> ElementPlace | None:
    """Return where an item's element of memory is; None if an item may use others, too."""
    having = [one for one in launches if any(given.key == key for given in one.arguments)]
    using = [one for one in having if any(used.handle == key for used in one.memory[0])]
    memory = [one for launch in using for one in chain(*launch.memory) if one.handle == key]
    places = {(one.offset, one.stride, one.width) for one in memory}
    kinds = {kind for one in having if (kind := one.find_element(key)) is not None}
    if len(places) != 1 or len(kinds) != 1 or not (kind := kinds.pop()):
        return None
    ((offset, stride, width),) = places
    fits = measure_kind(kind) == width and all(one.fits for one in memory)
    is_loaded, is_stored = not using[0].writes_first(key), any(one.writes for one in memory)
    return ElementPlace(kind, offset, stride, is_loaded, is_stored, fits, len(using))


def find_temporaries(
    launches: Sequence[RecordedLaunch], uses: Mapping[int, MemoryUse]
) -> dict[int, str]:
    """Return the memory objects that a variable can stand for, and its type, by their handles."""
    run, found = {launch.number for launch in launches}, dict[int, str]()
    memory = [one for launch in launches for one in launch.memory[0]]
    # the bytes of a sub-buffer can be seen through its parent
    parts = {one.handle for one in memory if one.handle != one.root}
    for key in dict.fromkeys(one.handle for one in memory):
        use = uses.get(key)
        if use is None or use.others or not use.commands <= run or key in parts:
            continue
        place = find_place(launches, key)
        if place is not None and not place.is_loaded:
            found[key] = place.kind
    return found


class FusedArgument(NamedTuple):
    """An argument of a fused kernel.

    Attributes:
        kind: its type, and what stands before its name.
        name: its name.
        list: an `fl_arguments *` that has it.
        place: where.
        value: what it is now.
    """

    kind: str
    name: str
    list: Any
    place: int
    value: ArgumentValue

    @property
    def text(self) -> str:
        """The declaration of its parameter."""
        return f"{self.kind}{self.name}"


class FusedParameters:
    """The parameters of a fused kernel: each buffer and each value once.

    Args:
        run: its launches.
        temporaries: what a variable stands for, and its type, by handle.
        shared: memory whose elements pass from launch to launch in variables, by handle; None if
            launches are not isolated.
        lanes: how many items a work-item takes.

    Attributes:
        variables: their names, by handle.
        rows: the arguments.
        places: of the rows, by the keys of the launches' arguments.
        size: bytes of the arguments.
    """

    def __init__(
        self,
        run: Run,
        temporaries: Mapping[int, str],
        shared: Mapping[int, ElementPlace] | None = None,
        lanes: int = 1,
    ) -> None:
        self.temporaries, self.shared, self.lanes = temporaries, shared, lanes
        handles = [*temporaries, *(shared or ())]
        self.variables = {handle: f"fl_own_{n}" for n, handle in enumerate(handles)}
        self.places: dict[Any, int] = {}
        self.rows: list[FusedArgument] = []
        pointer = f"global uchar *{'restrict ' if run.is_apart else ''}"
        for launch in run.launches:
            pairs = zip(launch.kernel.parameters, launch.arguments, strict=True)
            for index, (one, (turns, key, *_)) in enumerate(pairs):
                if key not in temporaries and key not in self.places:
                    kind = pointer if isinstance(key, int) else f"{one.type.name} "
                    self._add(key, kind, f"fl_{len(self.rows)}", launch.list, index, turns[0])
        if shared is not None:
            zeros, kind = bytes(4 * lanes), f"uint{lanes} {_VECTOR}" if lanes > 1 else "uint "
            zero = ffi.gc(make_arguments([zeros]), lib.fl_release_arguments)
            for launch in run.launches:
                number = launch.number
                self._add((_ZERO, number), kind, f"fl_zero_{number}", zero, 0, zeros)
        values = [row.value for row in self.rows]
        self.size = sum(max(8, len(one)) if isinstance(one, bytes) else 8 for one in values)

    def _add(self, key: Any, *row: Any) -> None:
        self.places[key] = len(self.rows)
        self.rows.append(FusedArgument(*row))

    def _name(self, key: Any) -> str:
        return self.rows[self.places[key]].name

    def write_body(self, calls: Sequence[str]) -> list[str]:
        """Return the statements of a work-item.

        Args:
            calls: the statements for an item, between those that load and store its variables.
        """
        own = [f"    {kind} {self.variables[one]};" for one, kind in self.temporaries.items()]
        if self.lanes == 1:
            load, store = self._pass_variables(self._write_memory)
            return [*own, *load, *calls, *store]
        lines, store = self._pass_variables(self._write_memory, _VECTOR, str(self.lanes))
        zeros = [row.name for row in self.rows if row.kind.endswith(_VECTOR)]
        for lane in range(self.lanes):
            load, last = self._pass_variables(
                lambda handle, lane=lane: f"{_VECTOR}{self.variables[handle]}.s{lane}"
            )
            first = [f"    const uint {zero} = {_VECTOR}{zero}.s{lane};" for zero in zeros]
            item = f"    const size_t {ITEM} = {FIRST} + {lane};"
            lines += ["    {", item, *first, *own, *load, *calls, *last, "    }"]
        return [*lines, *store]

    def _pass_variables(
        self, write: Callable[[int], str], prefix: str = "", lanes: str = ""
    ) -> tuple[list[str], list[str]]:
        """Return the statements that declare the variables of shared memory, and that store them.

        Args:
            write: writes what a variable stands for, of a handle.
            prefix: of the variables' names.
            lanes: of their types.
        """
        first, last = list[str](), list[str]()
        for handle, one in (self.shared or {}).items():
            name = prefix + self.variables[handle]
            value = f" = {write(handle)}" if one.is_loaded else ""
            first.append(f"    {one.kind}{lanes} {name}{value};")
            if one.is_stored:
                last.append(f"    {write(handle)} = {name};")
        return first, last

    def _write_memory(self, handle: int) -> str:
        assert self.shared is not None
        return self.shared[handle].write(self._name(handle), self.lanes)

    def write_call(self, name: str, launch: RecordedLaunch, met: Collection[int]) -> list[str]:
        """Return the statements that call the function of an old kernel.

        Args:
            name: of the function.
            launch: the launch.
            met: the memory that launches before it use, handles.
        """
        if self.shared is None:
            return [f"    {name}({', '.join([*self._list_arguments(launch), ITEM])});"]
        zero = self._name((_ZERO, launch.number))
        kinds = {**self.temporaries, **{one: row.kind for one, row in self.shared.items()}}
        # what nobody has used yet comes from memory, as in the old kernel
        read = {one.handle for one in launch.memory[0] if not launch.writes_first(one.handle)}
        before = [
            f"    {variable} = {isolate(variable, kinds[handle], zero)};"
            for handle, variable in self.variables.items()
            if handle in read and handle in met
        ]
        arguments = [*self._list_arguments(launch, zero), isolate(ITEM, "ulong", zero)]
        return [*before, f"    {name}({', '.join(arguments)});"]

    def _list_arguments(self, launch: RecordedLaunch, zero: str = "") -> list[str]:
        keys = [one.key for one in launch.arguments]
        own = [f"&{self.variables[key]}" for key in keys if key in self.variables]
        pairs = zip(launch.kernel.parameters, keys, strict=True)
        return [*(self._write(one.type, key, zero) for one, key in pairs), *own]

    def _write(self, type_: Any, key: Any, zero: str) -> str:
        if not isinstance(key, int):
            return isolate(self._name(key), type_.name, zero) if zero else self._name(key)
        pointer = f"(global {type_.target.name or 'void'} *)"
        if key in self.variables:
            return f"{pointer}0"
        return f"{pointer}({self._name(key)} + {zero})" if zero else pointer + self._name(key)


def write_functions(run: Run, parameters: FusedParameters) -> tuple[list[str], list[str]]:
    """Return what launches need and functions that do what they do; and the calls, in order."""
    functions, names = list[str](), dict[tuple[int, tuple[str, ...]], str]()
    calls, met = list[str](), set[int]()
    for launch in run.launches:
        kernel = launch.kernel
        own = tuple(
            one.name
            for one, value in zip(kernel.parameters, launch.arguments, strict=True)
            if value.key in parameters.variables
        )
        name = names.get((id(kernel), own))
        if name is None:
            name = names[id(kernel), own] = f"fl_kernel_{len(names)}"
            functions.append(_write_function(kernel, name, own))
        calls += parameters.write_call(name, launch, met)
        met |= {one.handle for one in launch.memory[0]}
    texts = [*run.declared.values(), *functions]
    return texts, parameters.write_body(calls)


def write_pragmas(launches: Sequence[RecordedLaunch]) -> list[str]:
    """Return the pragmas of the programs of launches."""
    found = [pragma for one in launches for pragma in one.kernel.access.program.pragmas]
    return [f"#pragma {pragma}" for pragma in dict.fromkeys(found)]


def write_source(run: Run, parameters: FusedParameters) -> str:
    """Return the source of a kernel that does what launches do, in order."""
    texts, body = write_functions(run, parameters)
    items, lanes = run.launches[0].items, parameters.lanes
    item, first = (ITEM, "") if lanes == 1 else (FIRST, f" * {lanes}")
    test = f"  if ({item} < {items}UL)\n" if items % (run.group * lanes) else ""
    lines = [
        *write_pragmas(run.launches),
        *texts,
        f"kernel void fairlead_fused({', '.join(one.text for one in parameters.rows)}) {{",
        f"  const size_t {item} = get_global_id(0){first};",
        f"{test}  {{",
        *body,
        "  }",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _write_function(kernel: KernelRead, name: str, own: Sequence[str]) -> str:
    """Return a kernel as a function of one item.

    Args:
        kernel: the kernel.
        name: of the function.
        own: the arguments instead of whose elements it takes pointers to variables.
    """
    function = copy.deepcopy(kernel.access.function)
    function.decl.funcspec = []
    function.decl.name = function.decl.type.type.declname = name
    for one in own:
        variable, kind = kernel.elements[one]
        _TakeVariable(variable, f"fl_own_{one}").visit(function.body)
        function.decl.type.args.params.append(declare(f"fl_own_{one}", kind, is_pointer=True))
    function.decl.type.args.params.append(declare(ITEM, "size_t"))
    block = function.body.block_items
    if kernel.loop is None:
        _TakeItem().visit(function.body)
    else:
        place = kernel.access.function.body.block_items.index(kernel.loop.node)
        block[place] = _run_once(block[place], kernel.loop.variable)
    return write_opencl(function)


def _run_once(loop: Any, variable: str) -> Any:
    """Return the body of a loop over items for the item of this call.

    `continue` in it ends the item, as it did in the loop.
    """
    item = c_ast.Assignment("=", c_ast.ID(variable), c_ast.ID(ITEM))
    first: list[Any] = [item]
    if isinstance(loop.init, c_ast.DeclList):
        first = [*loop.init.decls, item]
    return c_ast.Compound([*first, c_ast.DoWhile(c_ast.Constant("int", "0"), loop.stmt)])


def declare(name: str, kind: str, *, is_pointer: bool = False, is_memory: bool = False) -> Any:
    """Return the declaration of a parameter, a pointer to a variable, or one to global memory."""
    quals = ["_Atomic"] if is_memory else []
    type_: Any = c_ast.TypeDecl(name, quals, None, c_ast.IdentifierType([kind]))
    if is_pointer or is_memory:
        type_ = c_ast.PtrDecl([], type_)
    return c_ast.Decl(*(name, [], [], [], []), type_, None, None)


class _TakeVariable(c_ast.NodeVisitor):
    """Lets a function use a variable for the element of an array."""

    def __init__(self, array: str, pointer: str) -> None:
        self._array, self._pointer = array, pointer

    def generic_visit(self, node: Any) -> None:
        for name, child in node.children():
            is_element = isinstance(child, c_ast.ArrayRef) and isinstance(child.name, c_ast.ID)
            if is_element and child.name.name == self._array:
                replace_child(node, name, c_ast.UnaryOp("*", c_ast.ID(self._pointer)))
            else:
                self.visit(child)


def replace_child(node: Any, name: str, new: Any) -> None:
    """Exchange a child of a syntax tree. `name` is as `children` gives it: "args" or "exprs[1]"."""
    field, _, place = name.partition("[")
    if place:
        getattr(node, field)[int(place[:-1])] = new
    else:
        setattr(node, field, new)


class _TakeItem(c_ast.NodeVisitor):
    """Lets a function take the number of its item instead of asking for its id."""

    def visit_FuncCall(self, node: Any) -> None:
        if getattr(node.name, "name", "") == "get_global_id":
            node.name, node.args = c_ast.ID("(size_t)"), c_ast.ExprList([c_ast.ID(ITEM)])
        else:
            self.generic_visit(node)


# the new launches


class FusedKernel:
    """A fused kernel of a source. Raises OpenCLError if the driver does not build it."""

    def __init__(self, context: int, device: int, options: str, source: str) -> None:
        code = ffi.new("int32_t *")
        program = build_program(context, device, source.encode(), options.encode())
        try:
            self.handle = call(program, "clCreateKernel", b"fairlead_fused", get_address(code))
            check(code[0], "clCreateKernel")
        finally:
            call(program, "clReleaseProgram")
        finalize(self, call, self.handle, "clReleaseKernel").atexit = False


@dataclass(frozen=True, eq=False)
class FusedRun:
    """Launches, and the one that does the same.

    Attributes:
        launches: in order.
        source: of the kernel.
        kernel: the kernel.
        parameters: its own.
        group: work-items of a work-group.
    """

    launches: Sequence[RecordedLaunch]
    source: str
    kernel: FusedKernel
    parameters: FusedParameters
    group: int = 0

    @property
    def temporaries(self) -> Mapping[int, str]:
        """The memory that they do not write any more, and its type, by handle."""
        return self.parameters.temporaries

    @property
    def numbers(self) -> tuple[int, ...]:
        """Of the commands that it stands for."""
        return tuple(launch.number for launch in self.launches)

    def describe_savings(self) -> str:
        """Return what a replay does not do any more."""
        items, before, reads, writes = self.launches[0].items, 0, set[Any](), set[Any]()
        for one in (one for launch in self.launches for one in launch.memory[0]):
            before += (one.reads + one.writes) * (one.width * items or one.end - one.first)
            place = one.root, one.first, one.end
            if one.handle not in self.temporaries:
                reads |= {place} if one.reads and place not in writes else set()
                writes |= {place} if one.writes else set()
        after = sum(end - first for _, first, end in (*reads, *writes))
        loops = sum(launch.kernel.loop is not None for launch in self.launches)
        saved = {
            "launches": len(self.launches) - 1,
            "loops over items": loops,
            "bytes of memory traffic": max(0, before - after),
        }
        return ", ".join(f"{what} {count:,}" for what, count in saved.items() if count)

    def make_arguments(self, instead: Mapping[int, int]) -> Any:
        """Return the launch's arguments, which share cells with the recorded ones.

        Args:
            instead: what memory is exchanged for, by handle. Then nothing is shared.

        Raises:
            MemoryError: there is no memory.
        """
        rows = self.parameters.rows
        if instead:
            return make_arguments([one.value for one in rows], instead)
        lists = ffi.new("fl_arguments *[]", [one.list for one in rows])
        indices = ffi.new("uint32_t[]", [one.place for one in rows])
        arguments = lib.fl_pick_arguments(lists, indices, len(rows))
        if not arguments:
            raise MemoryError("no memory for a launch's arguments")
        return arguments

    def add(
        self,
        array: CommandArray,
        commands: CommandList,
        before: Sequence[int],
        instead: Mapping[int, int] = {},
    ) -> int:
        """Append the launch to an array. Returns its place.

        Args:
            array: the array.
            commands: the recorded ones.
            before: the commands that it comes after.
            instead: what its memory is exchanged for, by handle.
        """
        items = -(-self.launches[0].items // (self.group * self.parameters.lanes)) * self.group
        return array.add(
            "kernel",
            before,
            kernel=self.kernel.handle,
            arguments=self.make_arguments(instead),
            work_dim=1,
            has_local=1,
            global_size=(items, 1, 1),
            local_size=(self.group, 1, 1),
            queue=commands.array[self.launches[0].number].queue,
        )


def _put_together(
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
        (array, old.owner, [one.kernel for one in runs.values()]),
        schedule=old.schedule,
        updatable=old.updatable,
        fenced=old.fenced,
        memory=old.memory,
        title=old.title,
    )
    return made, numbers, place


def _make_flow(
    commands: CommandList,
    snapshot: ListSnapshot,
    found: RunList,
    made: Mapping[int, FusedRun],
    fused: CommandList,
    places: Sequence[int],
) -> Flow:
    """Return how changes of commands reach what was made of them."""
    watched: dict[int, Sequence[tuple[RecordedArgument, int]]] = {}
    for number in sorted(found.arguments.keys() | made.keys()):
        rows = made[number].parameters.places if number in made else {}
        watched[number] = [
            (one, FIXED if one.is_proven or one.address else rows.get(one.key, 0))
            for one in found.arguments.get(number, ())
        ]
    runs = set(made.values())
    launches = [launch for run in runs for launch in run.launches]
    others = [one for launch in launches for one in launch.arguments]
    copies = [number for number in range(len(commands)) if number not in made]
    hidden = [one for run in runs for one in run.temporaries]
    list_ = fused if made else None
    return Flow(commands, snapshot, list_, places, copies, watched, hidden, others)
