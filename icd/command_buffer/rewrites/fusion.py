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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import finalize

from pycparser import c_ast

from ..._native import ffi
from ...abi import OPENCL
from ...calls import build_program, call, get_address, query_bytes
from ...errors import OpenCLError, check
from ...kernel_source.parsing import write_opencl
from ...kernel_source.reading import KernelAccess, KernelParameter
from ...kernel_source.syntax import find_needed
from ..commands import CommandArray, CommandList
from .checking import FusionCheck
from .isolation import isolate, measure_kind, why_not_isolated
from .launches import (
    ArgumentValue,
    KernelRead,
    NotFused,
    RecordedLaunch,
    UsedBytes,
    make_arguments,
    read_launch,
)
from .rewriting import Rewritten
from .uses import MemoryUse

#: Bytes of arguments that every device takes (SPEC CL_DEVICE_MAX_PARAMETER_SIZE).
_MOST_BYTES: Final = 1000
#: Items of a work-group, on CPUs and on GPUs. Whole groups have no test at their end.
_GROUPS: Final = (128, 256)
ITEM: Final = "fl_item"


def fuse(
    commands: CommandList,
    sources: Mapping[int, str],
    uses: Mapping[int, MemoryUse],
    add_readers: Callable[..., None],
    *,
    checks: bool = False,
) -> Rewritten:
    """Return commands with launches that are fused.

    Args:
        commands: what is rewritten.
        sources: of its programs, by their handles.
        uses: who uses their memory objects.
        add_readers: that of reductions.py.
        checks: whether the first replays run both ways (checking.py).
    """
    if (reason := _why_not(commands)) is not None:
        return Rewritten(None, lines=[f"not fused: {reason}"])
    is_isolated = needs_isolation(commands)
    runs, lines = _find_runs(commands, sources, is_isolated)
    if not is_isolated:
        add_readers(commands, sources, uses, runs, lines)
    made, kernels = dict[int, FusedRun](), dict[str, FusedKernel]()
    for run in runs:
        first, last = run.numbers[0], run.numbers[-1]
        many = f"commands {first}–{last} are" if first != last else f"command {first} is"
        try:
            one = run.make(commands, uses, kernels)
        except (NotFused, OpenCLError) as error:  # this run stays as it was captured
            lines.append((last, f"{many} not fused: {' '.join(str(error).split())}"))
            continue
        lines.append((last, f"{many} one fused kernel, which saves: {one.describe_savings()}"))
        made.update((number, one) for number in run.numbers)
    texts = [f"  {text}" for _, text in sorted(lines, key=lambda line: line[0])]
    if not made:
        return Rewritten(None, lines=texts)
    fused, numbers = _put_together(commands, made, lambda run, *rest: run.add(*rest))
    check = None
    if checks:
        check = FusionCheck()
        check.commands, check.numbers = _put_together(commands, made, check.add)
    found = {one.numbers: one.source for one in made.values()}
    return Rewritten(fused, numbers, texts, found, check)


def _why_not(commands: CommandList) -> str | None:
    """Return why nothing of a list is fused."""
    if commands.updatable:
        return "a graph that may be updated, or has Parameters, is not fused yet"
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
    told = query_bytes(commands.devices[0], "clGetDeviceInfo", "CL_DEVICE_TYPE") or b""
    return any(int.from_bytes(told, "little") & OPENCL[one] for one in types)


@dataclass
class Run:
    """Launches that become one.

    Attributes:
        launches: in order.
        is_isolated: whether the function of each is isolated from the others' (isolation.py).
    """

    launches: list[RecordedLaunch] = field(default_factory=list)
    is_isolated: bool = False

    def why_not(self, launch: RecordedLaunch) -> str | None:
        """Return why a launch cannot be the next one of it."""
        if not self.launches:
            return None
        if self.launches[0].items != launch.items:
            return f"it has {launch.items} items, those before it {self.launches[0].items}"
        if self.launches[0].kernel.options != launch.kernel.options:
            return "its program has other build options"
        for other in self.launches:
            for one in launch.memory:
                for before in other.memory:
                    if not one.allows(before):
                        name = f"its {one.argument}, {before.argument} of command {other.number}"
                        why = one.reason or before.reason or "they have other items' bytes there"
                        return f"an item may use what other items write, {name}: {why}"
        for one in launch.memory if self.is_isolated else ():
            meets = any(one.meets(before) for other in self.launches for before in other.memory)
            if meets and not self._find_place(one, launch):
                return f"a GPU's compiler would see what passes in its {one.argument}"
        try:
            more, empty = [*self.launches, launch], dict[int, ElementPlace]()
            parameters = FusedParameters(more, shared=empty if self.is_isolated else None)
        except NotFused as error:
            return str(error)
        if parameters.size > _MOST_BYTES:
            return "its kernel would have too many arguments"
        return None

    def _find_place(self, memory: UsedBytes, launch: RecordedLaunch) -> ElementPlace | None:
        """Return how an item's element is used in all launches, the next one included."""
        launches = [*self.launches, launch]
        alone = all(
            one.handle == memory.handle
            for each in launches
            for one in each.memory
            if one.root == memory.root
        )
        return _find_shared(launches, memory.handle) if alone else None

    @property
    def gains(self) -> bool:
        """Whether the new launch can be better than the old ones."""
        return len(self.launches) > 1 or self.launches[0].kernel.loop is not None

    @property
    def group(self) -> int:
        """Items of a work-group of the new launch."""
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
        if self.is_isolated:
            temporaries = {one: kind for one, kind in temporaries.items() if measure_kind(kind)}
            handles = {one.handle for launch in self.launches for one in launch.memory}
            places = {one: _find_shared(self.launches, one) for one in handles - {*temporaries}}
            shared = {handle: one for handle, one in places.items() if one is not None}
        parameters = FusedParameters(self.launches, temporaries, shared)
        source = write_source(self.launches, parameters, self.group)
        if source not in kernels:
            options = self.launches[0].kernel.options
            kernels[source] = FusedKernel(commands.context, commands.devices[0], options, source)
        values = [value for _, value in parameters.rows]
        return FusedRun(self.launches, temporaries, source, kernels[source], values, self.group)


def _find_runs(
    commands: CommandList, sources: Mapping[int, str], is_isolated: bool
) -> tuple[list[Run], list[tuple[int, str]]]:
    """Return the runs, and why there are borders between them: the command behind, and a text."""
    found, lines, run = list[Run](), list[tuple[int, str]](), Run(is_isolated=is_isolated)
    for number in range(len(commands)):
        launch: RecordedLaunch | None = None
        try:
            if commands.order.order_only[number]:
                raise NotFused("it only orders others")
            launch = read_launch(commands, number, sources)
            if is_isolated:
                _check_isolation(launch)
            reason = run.why_not(launch)
            if reason is not None:
                lines.append((number, f"command {number} does not join those before it: {reason}"))
        except NotFused as error:
            launch, reason = None, str(error)
            lines.append((number, f"command {number} is not fused: {reason}"))
        if reason is not None:
            found.append(run)
            run = Run(is_isolated=is_isolated)
        if launch is not None:
            run.launches.append(launch)
    return [one for one in (*found, run) if one.launches and one.gains], lines


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
    """Where an item's element is, that several launches use.

    Attributes:
        kind: its type.
        offset: of item 0's, from where the argument points to, in bytes.
        stride: bytes from an element to the next one.
        is_loaded: whether a launch may read it before any has written it.
        is_stored: whether a launch writes it.
    """

    kind: str
    offset: int
    stride: int
    is_loaded: bool
    is_stored: bool

    def write(self, pointer: str) -> str:
        """Return how the element is written."""
        return f"*(global {self.kind} *)({pointer} + {self.offset}UL + {self.stride}UL * {ITEM})"


def _find_shared(launches: Sequence[RecordedLaunch], handle: int) -> ElementPlace | None:
    """Return where an item's element of memory is that several launches use, None if it has none.

    Then a variable can stand for it, and it is the same for all of them.
    """
    using = [one for one in launches if handle in one.arguments]
    memory = [one for launch in using for one in launch.memory if one.handle == handle]
    places = {(one.offset, one.stride, one.width) for one in memory}
    kinds = {_find_element(launch, handle) for launch in using}
    if len(using) < 2 or len(places) != 1 or len(kinds) != 1 or not all(one.fits for one in memory):
        return None
    (kind,), ((offset, stride, width),) = kinds, places
    if not width or measure_kind(kind) != width:
        return None
    is_loaded = not _writes_first(using[0], handle)
    return ElementPlace(kind, offset, stride, is_loaded, any(one.writes for one in memory))


def find_temporaries(
    launches: Sequence[RecordedLaunch], uses: Mapping[int, MemoryUse]
) -> dict[int, str]:
    """Return the memory objects that a variable can stand for, and its type, by their handles."""
    run = {launch.number for launch in launches}
    found: dict[int, str] = {}
    # the bytes of a sub-buffer can be seen through its parent
    parts = {one.handle for launch in launches for one in launch.memory if one.handle != one.root}
    for handle in {one.handle for launch in launches for one in launch.memory}:
        use = uses.get(handle)
        if use is None or use.references != 1 or not use.commands <= run or handle in parts:
            continue
        kinds = {_find_element(launch, handle) for launch in launches if handle in launch.arguments}
        first = next(launch for launch in launches if handle in launch.arguments)
        if len(kinds) == 1 and (kind := kinds.pop()) and _writes_first(first, handle):
            found[handle] = kind
    return found


def _find_element(launch: RecordedLaunch, handle: int) -> str:
    """Return the type of an item's element of a memory object, "" if it has none of its own."""
    pairs = zip(launch.kernel.parameters, launch.arguments, strict=True)
    rows = {launch.kernel.elements.get(one.name) for one, value in pairs if value == handle}
    kinds = {row[1] if row else "" for row in rows}
    places = {(one.first, one.stride, one.width) for one in launch.memory if one.handle == handle}
    is_own = len(places) == 1 and next(iter(places))[1] > 0
    return kinds.pop() if is_own and len(kinds) == 1 else ""


def _writes_first(launch: RecordedLaunch, handle: int) -> bool:
    """Return whether each item writes its element before it reads it."""
    pairs = zip(launch.kernel.parameters, launch.arguments, strict=True)
    names = [one.name for one, value in pairs if value == handle]
    return len(names) == 1 and launch.kernel.access.arguments[names[0]].written_first


class FusedParameters:
    """The parameters of a fused kernel: each buffer and each value once.

    Attributes:
        temporaries: what a variable stands for, and its type, by handle.
        variables: their names, by handle.
        shared: memory whose elements pass from launch to launch in variables, by handle; None if
            launches are not isolated.
        rows: a declaration, and the argument.
        size: bytes of the arguments.
    """

    def __init__(
        self,
        launches: Sequence[RecordedLaunch],
        temporaries: Mapping[int, str] = {},
        shared: Mapping[int, ElementPlace] | None = None,
    ) -> None:
        self.temporaries, self.shared = temporaries, shared
        handles = [*temporaries, *(shared or ())]
        self.variables = {handle: f"fl_own_{n}" for n, handle in enumerate(handles)}
        self._places: dict[tuple[str, ArgumentValue], int] = {}
        self.rows: list[tuple[str, ArgumentValue]] = []
        self.size = 0
        roots = {(one.root, one.handle) for launch in launches for one in launch.memory}
        alone = len({root for root, _ in roots}) == len(roots)
        self._restrict = "restrict " if alone else ""  # no two of them share bytes
        for launch in launches:
            for one, value in zip(launch.kernel.parameters, launch.arguments, strict=True):
                self._add(one, value)
        if shared is not None:
            self.rows += [(f"uint {_write_zero(launch)}", bytes(4)) for launch in launches]
            self.size += 8 * len(launches)

    def _add(self, parameter: KernelParameter, value: ArgumentValue) -> None:
        type_ = parameter.type
        if value in self.temporaries:
            return
        if isinstance(value, int):
            key, text = ("", value), f"global uchar *{self._restrict}"
        elif type_.kind in ("integer", "float", "vector") and type_.name:
            key, text = (type_.name, value), f"{type_.name} "
        else:
            raise NotFused(f"its argument {parameter.name} is a struct")
        if key in self._places:
            return
        self._places[key] = len(self.rows)
        self.rows.append((f"{text}fl_{len(self.rows)}", value))
        self.size += 8 if isinstance(value, int) else max(8, len(value))

    def declare_variables(self) -> list[str]:
        """Return the variables that stand for memory."""
        pairs = self.temporaries.items()
        lines = [f"    {kind} {self.variables[handle]};" for handle, kind in pairs]
        for handle, one in (self.shared or {}).items():
            first = f" = {self._write_element(handle)}" if one.is_loaded else ""
            lines.append(f"    {one.kind} {self.variables[handle]}{first};")
        return lines

    def store_variables(self) -> list[str]:
        """Return the statements that give memory what the variables have."""
        return [
            f"    {self._write_element(handle)} = {self.variables[handle]};"
            for handle, one in (self.shared or {}).items()
            if one.is_stored
        ]

    def _write_element(self, handle: int) -> str:
        assert self.shared is not None
        return self.shared[handle].write(f"fl_{self._places['', handle]}")

    def write_call(self, name: str, launch: RecordedLaunch) -> list[str]:
        """Return the statements that call the function of an old kernel."""
        if self.shared is None:
            return [f"    {name}({', '.join([*self._list_arguments(launch), ITEM])});"]
        zero, memory = _write_zero(launch), launch.memory
        kinds = {**self.temporaries, **{one: row.kind for one, row in self.shared.items()}}
        written = {one.handle for one in memory if one.writes}
        read = {one.handle for one in memory if not _writes_first(launch, one.handle)}
        before, after = (
            [
                f"    {variable} = {isolate(variable, kinds[handle], zero)};"
                for handle, variable in self.variables.items()
                if handle in handles
            ]
            for handles in (read, written)
        )
        arguments = [*self._list_arguments(launch, zero), isolate(ITEM, "ulong", zero)]
        return [*before, f"    {name}({', '.join(arguments)});", *after]

    def _list_arguments(self, launch: RecordedLaunch, zero: str = "") -> list[str]:
        pairs = list(zip(launch.kernel.parameters, launch.arguments, strict=True))
        values = (value for _, value in pairs if isinstance(value, int))
        own = [f"&{self.variables[value]}" for value in values if value in self.variables]
        return [*(self._write(one.type, value, zero) for one, value in pairs), *own]

    def _write(self, type_: Any, value: ArgumentValue, zero: str) -> str:
        if value in self.variables:
            return f"({_write_pointer(type_)})0"
        key = ("", value) if isinstance(value, int) else (type_.name, value)
        name = f"fl_{self._places[key]}"
        if isinstance(value, int):
            return f"({_write_pointer(type_)}){f'({name} + {zero})' if zero else name}"
        return isolate(name, type_.name, zero) if zero else name


def _write_zero(launch: RecordedLaunch) -> str:
    return f"fl_zero_{launch.number}"


def _write_pointer(type_: Any) -> str:
    return f"global {type_.target.name or 'void'} *"


def write_functions(
    launches: Sequence[RecordedLaunch], parameters: FusedParameters
) -> tuple[dict[str, str], list[str]]:
    """Return functions that do what launches do, by name, and statements that call them in order.

    Raises NotFused if two programs give one name two meanings.
    """
    texts, names = dict[str, str](), dict[tuple[int, tuple[str, ...]], str]()
    body = parameters.declare_variables()
    for launch in launches:
        kernel = launch.kernel
        own = tuple(
            one.name
            for one, value in zip(kernel.parameters, launch.arguments, strict=True)
            if value in parameters.variables
        )
        name = names.get((id(kernel), own))
        if name is None:
            name = names[id(kernel), own] = f"fl_kernel_{len(names)}"
            add_declarations(kernel.access, texts)
            texts[name] = _write_function(kernel, name, own)
        body += parameters.write_call(name, launch)
    return texts, [*body, *parameters.store_variables()]


def write_pragmas(launches: Sequence[RecordedLaunch]) -> list[str]:
    """Return the pragmas of the programs of launches."""
    found = [pragma for one in launches for pragma in one.kernel.access.program.pragmas]
    return [f"#pragma {pragma}" for pragma in dict.fromkeys(found)]


def write_source(
    launches: Sequence[RecordedLaunch], parameters: FusedParameters, group: int
) -> str:
    """Return the source of a kernel that does what launches do, in order.

    Args:
        launches: the launches.
        parameters: of the kernel.
        group: items of a work-group.

    Raises NotFused if two programs give one name two meanings.
    """
    texts, body = write_functions(launches, parameters)
    whole = launches[0].items % group == 0
    test = "" if whole else f"  if ({ITEM} < {launches[0].items}UL)\n"
    lines = [
        *write_pragmas(launches),
        *texts.values(),
        f"kernel void fairlead_fused({', '.join(text for text, _ in parameters.rows)}) {{",
        f"  const size_t {ITEM} = get_global_id(0);",
        f"{test}  {{",
        *body,
        "  }",
        "}",
    ]
    return "\n".join(lines) + "\n"


def add_declarations(access: KernelAccess, texts: dict[str, str]) -> None:
    """Add what a kernel needs of its program.

    Raises NotFused if two programs give one name two meanings.
    """
    for node, *_ in find_needed(access.program.declarations, access.function):
        is_function = isinstance(node, c_ast.FuncDef)
        if is_function and _is_kernel(node):
            continue
        name = node.decl.name if is_function else getattr(node, "name", None)
        text = write_opencl(node) + ("" if is_function else ";")
        key = name or text
        if texts.setdefault(key, text) != text:
            raise NotFused(f"two programs give {name} two meanings")


def _is_kernel(node: c_ast.FuncDef) -> bool:
    return "_Noreturn" in (node.decl.funcspec or [])


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
        temporaries: the memory that they do not write any more, and its type, by handle.
        source: of the kernel.
        kernel: the kernel.
        values: its arguments: a handle for memory, the bytes of a value.
    """

    launches: Sequence[RecordedLaunch]
    temporaries: Mapping[int, str]
    source: str
    kernel: FusedKernel
    values: Sequence[ArgumentValue]
    group: int = 0

    @property
    def numbers(self) -> tuple[int, ...]:
        """Of the commands that it stands for."""
        return tuple(launch.number for launch in self.launches)

    def describe_savings(self) -> str:
        """Return what a replay does not do any more."""
        items, before, reads, writes = self.launches[0].items, 0, set[Any](), set[Any]()
        for one in (one for launch in self.launches for one in launch.memory):
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
        items = -(-self.launches[0].items // self.group) * self.group
        return array.add(
            "kernel",
            before,
            kernel=self.kernel.handle,
            arguments=make_arguments(self.values, instead),
            work_dim=1,
            has_local=1,
            global_size=(items, 1, 1),
            local_size=(self.group, 1, 1),
            queue=commands.array[self.launches[0].number].queue,
        )


def _put_together(
    old: CommandList, runs: Mapping[int, FusedRun], add: Callable[..., int]
) -> tuple[CommandList, Sequence[int]]:
    """Return a command list with other commands for runs.

    Args:
        old: the recorded commands.
        runs: by the numbers of their launches.
        add: appends the commands of a run to an array, and returns the place of the last one.

    Returns:
        The list; and for each of its commands the first of the old ones that it stands for.
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
        fenced=old.fenced,
        memory=old.memory,
        title=old.title,
    )
    return made, numbers
