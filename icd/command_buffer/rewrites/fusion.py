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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import finalize

from pycparser import c_ast

from ..._native import ffi, lib
from ...abi import OPENCL
from ...calls import build_program, call, get_address
from ...errors import check
from ...kernel_source.parsing import write_opencl
from ...kernel_source.reading import KernelParameter
from ..commands import CommandArray, CommandList
from ..edits import MEMORY, VALUE
from .launches import KernelRead, NotFused, RecordedLaunch, read_launch
from .rewriting import Rewritten
from .uses import MemoryUse

#: Bytes of arguments that every device takes (SPEC CL_DEVICE_MAX_PARAMETER_SIZE).
_MOST_BYTES: Final = 1000
#: Items of a work-group. Whole groups have no test at their end.
_GROUP: Final = 128
_ITEM: Final = "fl_item"


def fuse(
    commands: CommandList, sources: Mapping[int, str], uses: Mapping[int, MemoryUse]
) -> Rewritten:
    """Return commands with launches that are fused.

    Args:
        commands: what is rewritten.
        sources: of its programs, by their handles.
        uses: who uses their memory objects.

    Raises:
        OpenCLError: a driver refuses a fused kernel.
    """
    if (reason := _why_not(commands)) is not None:
        return Rewritten(None, lines=[f"not fused: {reason}"])
    runs, lines = _find_runs(commands, sources)
    if not runs:
        return Rewritten(None, lines=lines)
    made = _Fused(commands, uses)
    for number in range(len(commands)):
        made.add(number, runs.get(number))
    return made.finish(lines)


def _why_not(commands: CommandList) -> str | None:
    """Return why nothing of a list is fused."""
    if commands.updatable:
        return "a graph that may be updated, or has Parameters, is not fused yet"
    if len(set(commands.devices)) > 1:
        return "it has several devices"
    if commands.wanted_events or commands.externals:
        return "the times or events of single commands are asked for"
    kind = ffi.new("uint64_t *")
    code = call(
        commands.devices[0], "clGetDeviceInfo", OPENCL["CL_DEVICE_TYPE"], 8, get_address(kind), None
    )
    if code or not kind[0] & OPENCL["CL_DEVICE_TYPE_CPU"]:
        return "only kernels of CPUs are fused yet"
    return None


@dataclass
class Run:
    """Launches that become one.

    Attributes:
        launches: in order.
    """

    launches: list[RecordedLaunch] = field(default_factory=list)

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
                if not all(one.allows(before) for before in other.memory):
                    return "an item uses what other items have written, or will write"
        try:
            parameters = _Parameters([*self.launches, launch])
        except NotFused as error:
            return str(error)
        if parameters.size > _MOST_BYTES:
            return "its kernel would have too many arguments"
        return None

    @property
    def gains(self) -> bool:
        """Whether the new launch can be better than the old ones."""
        return len(self.launches) > 1 or self.launches[0].kernel.loop is not None


def _find_runs(
    commands: CommandList, sources: Mapping[int, str]
) -> tuple[dict[int, Run], list[str]]:
    """Return the runs by the numbers of their launches, and what `explain()` says."""
    found, lines, run = dict[int, Run](), list[str](), Run()

    def end(reason: str) -> None:
        nonlocal run
        if run.launches and run.gains:
            first, last = run.launches[0].number, run.launches[-1].number
            found.update((one.number, run) for one in run.launches)
            many = f"commands {first}–{last} are" if first != last else f"command {first} is"
            lines.append(f"  {many} one fused kernel; {reason}")
        run = Run()

    for number in range(len(commands)):
        if commands.order.order_only[number]:
            end(f"command {number} only orders others")
            continue
        try:
            launch = read_launch(commands, number, sources)
        except NotFused as error:
            end(f"command {number} is not in it")
            lines.append(f"  command {number} is not fused: {error}")
            continue
        if (reason := run.why_not(launch)) is not None:
            end(f"command {number} is not in it: {reason}")
        run.launches.append(launch)
    end("the graph ends there")
    return found, lines


def find_temporaries(
    launches: Sequence[RecordedLaunch], uses: Mapping[int, MemoryUse]
) -> dict[int, str]:
    """Return the memory objects that a variable can stand for, and its type, by their handles."""
    run = {launch.number for launch in launches}
    found: dict[int, str] = {}
    for handle in {one.handle for launch in launches for one in launch.memory}:
        use = uses.get(handle)
        if use is None or use.references != 1 or not use.commands <= run:
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


class _Parameters:
    """The parameters of a fused kernel: each buffer and each value once.

    Attributes:
        temporaries: what a variable stands for, and its type, by handle.
        rows: a declaration, and the argument.
        size: bytes of the arguments.
    """

    def __init__(
        self, launches: Sequence[RecordedLaunch], temporaries: Mapping[int, str] = {}
    ) -> None:
        self.temporaries = temporaries
        self._variables = {handle: f"fl_own_{n}" for n, handle in enumerate(temporaries)}
        self._places: dict[tuple[str, int | bytes], int] = {}
        self.rows: list[tuple[str, int | bytes]] = []
        self.size = 0
        roots = {(one.root, one.handle) for launch in launches for one in launch.memory}
        alone = len({root for root, _ in roots}) == len(roots)
        self._restrict = "restrict " if alone else ""  # no two of them share bytes
        for launch in launches:
            for one, value in zip(launch.kernel.parameters, launch.arguments, strict=True):
                self._add(one, value)

    def _add(self, parameter: KernelParameter, value: int | bytes) -> None:
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
        return [
            f"    {kind} {self._variables[handle]};" for handle, kind in self.temporaries.items()
        ]

    def list_arguments(self, launch: RecordedLaunch) -> list[str]:
        """Return what the function of an old kernel is called with."""
        pairs = list(zip(launch.kernel.parameters, launch.arguments, strict=True))
        own = [f"&{self._variables[value]}" for _, value in pairs if value in self._variables]
        return [*(self._write(one.type, value) for one, value in pairs), *own]

    def _write(self, type_: Any, value: int | bytes) -> str:
        if value in self.temporaries:
            return f"({_write_pointer(type_)})0"
        key = ("", value) if isinstance(value, int) else (type_.name, value)
        name = f"fl_{self._places[key]}"
        return f"({_write_pointer(type_)}){name}" if isinstance(value, int) else name


def _write_pointer(type_: Any) -> str:
    return f"global {type_.target.name or 'void'} *"


def write_source(launches: Sequence[RecordedLaunch], parameters: _Parameters) -> str:
    """Return the source of a kernel that does what launches do, in order.

    Raises NotFused if two programs give one name two meanings.
    """
    texts, names = dict[str, str](), dict[tuple[int, tuple[str, ...]], str]()
    pragmas = dict.fromkeys(
        pragma for one in launches for pragma in one.kernel.access.program.pragmas
    )
    body = parameters.declare_variables()
    for launch in launches:
        kernel = launch.kernel
        own = tuple(
            one.name
            for one, value in zip(kernel.parameters, launch.arguments, strict=True)
            if value in parameters.temporaries
        )
        name = names.get((id(kernel), own))
        if name is None:
            name = names[id(kernel), own] = f"fl_kernel_{len(names)}"
            _add_declarations(kernel, texts)
            texts[name] = _write_function(kernel, name, own)
        body.append(f"    {name}({', '.join([*parameters.list_arguments(launch), _ITEM])});")
    whole = launches[0].items % _GROUP == 0
    test = "" if whole else f"  if ({_ITEM} < {launches[0].items}UL)\n"
    lines = [
        *(f"#pragma {pragma}" for pragma in pragmas),
        *texts.values(),
        f"kernel void fairlead_fused({', '.join(text for text, _ in parameters.rows)}) {{",
        f"  const size_t {_ITEM} = get_global_id(0);",
        f"{test}  {{",
        *body,
        "  }",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _add_declarations(kernel: KernelRead, texts: dict[str, str]) -> None:
    """Add what a program declares besides its kernels."""
    for node in kernel.access.program.declarations:
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
        function.decl.type.args.params.append(_declare(f"fl_own_{one}", kind, is_pointer=True))
    function.decl.type.args.params.append(_declare(_ITEM, "size_t"))
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
    item = c_ast.Assignment("=", c_ast.ID(variable), c_ast.ID(_ITEM))
    first: list[Any] = [item]
    if isinstance(loop.init, c_ast.DeclList):
        first = [*loop.init.decls, item]
    return c_ast.Compound([*first, c_ast.DoWhile(c_ast.Constant("int", "0"), loop.stmt)])


def _declare(name: str, kind: str, *, is_pointer: bool = False) -> Any:
    type_: Any = c_ast.TypeDecl(name, [], None, c_ast.IdentifierType([kind]))
    if is_pointer:
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
                _replace(node, name, c_ast.UnaryOp("*", c_ast.ID(self._pointer)))
            else:
                self.visit(child)


def _replace(node: Any, name: str, new: Any) -> None:
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
            node.name, node.args = c_ast.ID("(size_t)"), c_ast.ExprList([c_ast.ID(_ITEM)])
        else:
            self.generic_visit(node)


# programs


def _make_kernel(context: int, device: int, options: str, source: str) -> int:
    """Return the fused kernel of a source, a reference. Raises OpenCLError."""
    code = ffi.new("int32_t *")
    program = build_program(context, device, source.encode(), options.encode())
    try:
        kernel = call(program, "clCreateKernel", b"fairlead_fused", get_address(code))
        check(code[0], "clCreateKernel")
        return kernel
    finally:
        call(program, "clReleaseProgram")


class _Fused:
    """A command list in which launches are fused, as it is made."""

    def __init__(self, commands: CommandList, uses: Mapping[int, MemoryUse]) -> None:
        self._commands, self._uses = commands, uses
        self._array = CommandArray()
        self._place: list[int] = []  # in the new array, of each old command
        self._numbers: list[int] = []
        self._kernels: dict[str, int] = {}  # by their sources
        self._made: dict[int, int] = {}  # the place of a run's launch, by its first number

    def add(self, number: int, run: Run | None) -> None:
        """Add a command of the old list, or the launch of its run."""
        commands = self._commands
        before = {self._place[one] for one in commands.order.dependencies[number]}
        if run is None:
            row = commands.array[number]
            place = self._array.add_copy(ffi.addressof(row), sorted(before), row.queue)
            self._numbers.append(number)
        elif number == run.launches[0].number:
            place = self._made[number] = self._launch(run, sorted(before))
            self._numbers.append(number)
        else:
            place = self._made[run.launches[0].number]
            known = self._array.dependencies[place]
            self._array.dependencies[place] = sorted({*known, *before} - {place})
        self._place.append(place)

    def _launch(self, run: Run, before: Sequence[int]) -> int:
        commands, first = self._commands, run.launches[0]
        parameters = _Parameters(run.launches, find_temporaries(run.launches, self._uses))
        source = write_source(run.launches, parameters)
        if source not in self._kernels:
            device, options = commands.devices[0], first.kernel.options
            kernel = self._kernels[source] = _make_kernel(commands.context, device, options, source)
            finalize(self._array, call, kernel, "clReleaseKernel").atexit = False
        kept, changes = list[Any](), ffi.new("fl_change[]", max(1, len(parameters.rows)))
        for index, (_, value) in enumerate(parameters.rows):
            is_memory = isinstance(value, int)
            kept.append(
                ffi.new("uintptr_t *", value) if is_memory else ffi.new("unsigned char[]", value)
            )
            changes[index].index, changes[index].kind = index, MEMORY if is_memory else VALUE
            changes[index].size = 8 if isinstance(value, int) else len(value)
            changes[index].value = kept[-1]
        count = len(parameters.rows)
        arguments = lib.fl_change_arguments(ffi.NULL, count, changes, count)
        if not arguments:
            raise MemoryError("no memory for a launch's arguments")
        return self._array.add(
            "kernel",
            before,
            kernel=self._kernels[source],
            arguments=arguments,
            work_dim=1,
            has_local=1,
            global_size=(-(-first.items // _GROUP) * _GROUP, 1, 1),
            local_size=(_GROUP, 1, 1),
            queue=commands.array[first.number].queue,
        )

    def finish(self, lines: Sequence[str]) -> Rewritten:
        """Return what was made."""
        old = self._commands
        made = CommandList(
            old.context,
            old.devices,
            self._array.array,
            self._array.order,
            (self._array, old.owner),
            schedule=old.schedule,
            fenced=old.fenced,
            memory=old.memory,
            title=old.title,
        )
        return Rewritten(made, self._numbers, lines, list(self._kernels))
