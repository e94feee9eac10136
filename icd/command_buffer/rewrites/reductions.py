"""Launches become a part of the kernel that reads their results, as a reduction or a scan does.

The reading kernel stays as it is, but for one thing: where it read an element of an array, it calls
a function that calculates what the launches wrote there. That does the same, bit for bit, because:

- the launches have one item for each element of the array, and item i writes element i;
- nobody else can see what they write (`find_temporaries`);
- the reading kernel writes nothing that they read;
- the function has the expressions of the old kernels, as in fusion.py.

Only kernels that use local memory are rewritten so. They read each element once or a few times. A
kernel that reads all elements in each item would calculate them all again in each item.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pycparser import c_ast

from ..._native import ffi, lib
from ...calls import get_address
from ...kernel_source.parsing import write_opencl
from ...kernel_source.syntax import declared, list_names, walk_tree
from ..commands import CommandArray, CommandList
from .fusion import (
    ITEM,
    FusedKernel,
    FusedParameters,
    FusedRun,
    Run,
    add_declarations,
    declare,
    find_temporaries,
    replace_child,
    write_functions,
    write_pragmas,
)
from .launches import (
    KernelRead,
    NotFused,
    RecordedLaunch,
    UsedBytes,
    find_elements,
    find_root,
    make_arguments,
    read_access,
    read_argument,
    read_launch,
)
from .uses import MemoryUse

#: Launches that one kernel takes in. Compilers take longer for each.
_MOST: Final = 32
_USES: Final = {"barrier", "local memory"}


def add_readers(
    commands: CommandList,
    sources: Mapping[int, str],
    uses: Mapping[int, MemoryUse],
    runs: list[Run],
    lines: list[tuple[int, str]],
) -> None:
    """Let kernels that read the results of runs calculate them.

    Args:
        commands: the list.
        sources: of its programs, by their handles.
        uses: who uses their memory objects.
        runs: the runs. The list is changed.
        lines: what `explain()` says, and of which command. The list is changed.
    """
    for number in range(len(commands)):
        if any(number in run.numbers for run in runs):
            continue
        try:
            reader = _read_reader(commands, number, sources)
        except NotFused:
            continue
        found = _find_launches(commands, sources, uses, reader)
        if not found.launches:
            continue
        taken = set(found.numbers)
        for run in list(runs):
            if taken & set(run.numbers):
                runs.remove(run)
                rest = Run([one for one in run.launches if one.number not in taken])
                runs += [rest] if rest.launches and rest.gains else []
        runs.append(found)
        lines[:] = [line for line in lines if line[0] not in taken]


def _read_reader(commands: CommandList, number: int, sources: Mapping[int, str]) -> RecordedLaunch:
    """Return a launch that works in groups. It may use any bytes of its memory."""
    command = commands.array[number]
    if commands.order.order_only[number] or commands.name_operation(number) != "kernel":
        raise NotFused("it is not a launch")
    access, options = read_access(get_address(command.kernel), commands.devices[0], sources)
    if not command.has_local or "local memory" not in access.uses or not access.uses <= _USES:
        raise NotFused("it does not work in groups")
    arguments = [read_argument(command, index) for index in range(len(access.parameters))]
    memory: list[UsedBytes] = []
    for name, argument in access.arguments.items():
        handle = arguments[argument.parameter.index]
        if not isinstance(handle, int):
            raise NotFused(f"its argument {name} is not a buffer")
        root, start, size = find_root(handle)
        does = argument.reads, argument.writes
        memory.append(UsedBytes(handle, root, start, start + size, 0, 0, *does, name, "it may"))
    kernel = KernelRead(access, options, find_elements(access))
    return RecordedLaunch(number, kernel, 0, arguments, memory)


def _find_launches(
    commands: CommandList,
    sources: Mapping[int, str],
    uses: Mapping[int, MemoryUse],
    reader: RecordedLaunch,
) -> ReaderRun:
    """Return a reader with the launches right before it that it can calculate itself."""
    found, seen = ReaderRun(reader=reader), dict[int, MemoryUse]()
    for number in range(reader.number - 1, max(-1, reader.number - 1 - _MOST), -1):
        try:
            if commands.order.order_only[number]:
                break
            launch = read_launch(commands, number, sources)
        except NotFused:
            break
        for one in launch.memory:
            if one.writes and one.handle in uses:
                seen[one.handle] = _leave_out(commands, sources, uses, one.handle, reader.number)
        launches = [launch, *found.launches]
        more = ReaderRun(launches, reader=reader, temporaries=find_temporaries(launches, seen))
        if not more.is_right():
            break
        found = more
    return found


def _leave_out(
    commands: CommandList,
    sources: Mapping[int, str],
    uses: Mapping[int, MemoryUse],
    handle: int,
    reader: int,
) -> MemoryUse:
    """Return the use of a memory object without its reader, and without commands that have it as an
    argument and do not access it. The second kernel of a reduction is such a one."""

    def accesses(number: int) -> bool:
        try:
            memory = _read_reader(commands, number, sources).memory
        except NotFused:
            return True
        return any(one.handle == handle and (one.reads or one.writes) for one in memory)

    others = uses[handle].commands - {reader}
    return replace(uses[handle], commands=frozenset(filter(accesses, others)))


@dataclass
class ReaderRun(Run):
    """Launches that become a part of the launch after them.

    Attributes:
        reader: that launch.
        temporaries: the memory that they write for it, and its type, by handle.
    """

    reader: RecordedLaunch = field(kw_only=True)
    temporaries: Mapping[int, str] = field(default_factory=dict, kw_only=True)

    @property
    def numbers(self) -> list[int]:
        """Of the commands that it stands for."""
        return [*super().numbers, self.reader.number]

    def is_right(self) -> bool:
        """Whether the reader can calculate what all launches write."""
        run = Run()
        for launch in self.launches:
            if run.why_not(launch) is not None:
                return False
            run.launches.append(launch)
        memory = [one for launch in self.launches for one in launch.memory]
        written = {one.root for one in self.reader.memory if one.writes}
        reads = {handle: self.find_reads(handle) for handle in self.temporaries}
        kinds = dict(self.reader.kernel.elements.values())
        return (
            self.launches[0].kernel.options == self.reader.kernel.options
            and {one.handle for one in memory if one.writes} <= self.temporaries.keys()
            and not {one.root for one in memory} & written
            and any(reads.values())
            and all(
                names is not None and all(kinds[name] == self.temporaries[handle] for name in names)
                for handle, names in reads.items()
            )
        )

    def find_reads(self, handle: int) -> list[str] | None:
        """Return the names of the reader's variables whose elements are those of an array.

        None if it reads the array otherwise.
        """
        names: list[str] = []
        memory = [one for launch in self.launches for one in launch.memory if one.handle == handle]
        _, start, size = find_root(handle)
        items, body = self.launches[0].items, self.reader.kernel.access.function.body
        places = {(one.first, one.stride, one.width * items) for one in memory}
        for one in self.reader.memory:
            if one.handle != handle or not one.reads:
                continue
            variable = self.reader.kernel.elements.get(one.argument, ("", ""))[0]
            if not variable or places != {(start, memory[0].width, size)}:
                return None
            if not self._is_at_first(one.argument, variable):
                return None
            if any(_is_address(node, variable) for node in walk_tree(body)):
                return None
            names.append(variable)
        return names

    def _is_at_first(self, name: str, variable: str) -> bool:
        """Whether a variable of the reader points to where its argument does."""
        if name == variable:
            return True
        kernel = self.reader.kernel
        origin = declared(kernel.access.function.body)[variable].init
        nodes = list(walk_tree(origin))
        zeros = {
            one.name
            for one, value in zip(kernel.parameters, self.reader.arguments, strict=True)
            if isinstance(value, bytes) and not any(value) and one.type.kind == "integer"
        }
        return (
            {one.op for one in nodes if isinstance(one, c_ast.BinaryOp)} <= {"+"}
            and set(list_names(origin)) <= zeros | {name}
            and not any(isinstance(one, c_ast.Constant | c_ast.UnaryOp) for one in nodes)
        )

    def make(
        self,
        commands: CommandList,
        uses: Mapping[int, MemoryUse],
        kernels: dict[str, FusedKernel],
    ) -> FusedRun:
        """See `Run.make`."""
        parameters = FusedParameters(self.launches, self.temporaries)
        source = self.write_source(parameters)
        if source not in kernels:
            options = self.reader.kernel.options
            kernels[source] = FusedKernel(commands.context, commands.devices[0], options, source)
        values = [*self.reader.arguments, *(value for _, value in parameters.rows)]
        launches = [*self.launches, self.reader]
        return FusedReader(launches, self.temporaries, source, kernels[source], values)

    def write_source(self, parameters: FusedParameters) -> str:
        """Return the source of a kernel that does what the launches and the reader do."""
        access = self.reader.kernel.access
        texts, body = write_functions(self.launches, parameters)
        add_declarations(access, texts)
        rows = [text for text, _ in parameters.rows]
        names = [text.split()[-1].lstrip("*") for text in rows]
        function = copy.deepcopy(access.function)
        for handle, kind in self.temporaries.items():
            name = f"fl_read_{len(texts)}"
            head = f"{kind} {name}({', '.join([*rows, f'size_t {ITEM}'])}) {{"
            result = f"    return {parameters.variables[handle]};"
            variables = self.find_reads(handle)
            if variables:
                texts[name] = "\n".join([head, *body, result, "}"])
            for variable in variables or ():
                _TakeResult(variable, name, names).visit(function.body)
        function.decl.name = function.decl.type.type.declname = "fairlead_fused"
        for (text, value), name in zip(parameters.rows, names, strict=True):
            is_memory = isinstance(value, int)
            kind = "uchar" if is_memory else text.split()[0]
            function.decl.type.args.params.append(declare(name, kind, is_memory=is_memory))
        pragmas = write_pragmas([*self.launches, self.reader])
        return "\n".join([*pragmas, *texts.values(), write_opencl(function)]) + "\n"


class FusedReader(FusedRun):
    """Launches and their reader, and the launch that does the same: in the reader's range."""

    def add(
        self,
        array: CommandArray,
        commands: CommandList,
        before: Sequence[int],
        instead: Mapping[int, int] = {},
    ) -> int:
        """See `FusedRun.add`."""
        row = commands.array[self.launches[-1].number]
        place = array.add_copy(ffi.addressof(row), before, row.queue)
        made = array.array[place]
        lib.fl_release_arguments(made.arguments)
        made.arguments = ffi.NULL
        made.arguments = make_arguments(self.values, instead)
        made.kernel = ffi.cast("void *", self.kernel.handle)
        return place


class _TakeResult(c_ast.NodeVisitor):
    """Lets a kernel call a function instead of reading an element of an array."""

    def __init__(self, array: str, function: str, arguments: Sequence[str]) -> None:
        self._array, self._function, self._arguments = array, function, arguments

    def generic_visit(self, node: Any) -> None:
        for name, child in node.children():
            self.visit(child)
            is_element = isinstance(child, c_ast.ArrayRef) and isinstance(child.name, c_ast.ID)
            if is_element and child.name.name == self._array:
                given = [*(c_ast.ID(one) for one in self._arguments), child.subscript]
                call = c_ast.FuncCall(c_ast.ID(self._function), c_ast.ExprList(given))
                replace_child(node, name, call)


def _is_address(node: c_ast.Node, variable: str) -> bool:
    return isinstance(node, c_ast.UnaryOp) and node.op == "&" and variable in list_names(node)
