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
from dataclasses import replace
from typing import Any, Final

from pycparser import c_ast

from ..._native import ffi, lib
from ...calls import get_address
from ...kernel_source.errors import UnreadableKernel
from ...kernel_source.parsing import write_opencl
from ...kernel_source.syntax import declared, list_names, walk_tree
from ..commands import CommandArray, CommandList
from .arguments import NotFused, RecordedArgument, make_arguments, read_argument
from .fused_runs import FusedKernel, FusedRun
from .kernels import KernelRead, declare_needed, find_elements, read_access
from .launches import RecordedLaunch
from .parameters import FusedParameters
from .places import ITEM, find_temporaries
from .runs import Run, RunList
from .sources import declare, replace_child, write_functions, write_pragmas
from .used_bytes import UsedBytes, find_root
from .uses import ListSnapshot, MemoryUse, Root

#: Launches that one kernel takes in. Compilers take longer for each.
_MOST: Final = 32
_USES: Final = {"barrier", "local memory"}


def add_readers(found: RunList) -> None:
    """Let kernels that read the results of runs calculate them.

    Args:
        found: the runs of a list that does not change.
    """
    fused = {number for run in found.runs for number in run.numbers}
    for number in range(len(found.snapshot.commands)):
        if number in fused or number - 1 not in found.launches:
            continue
        try:
            reader = _read_reader(found.snapshot, number)
        except NotFused:
            continue
        one = _find_launches(found, reader)
        if not one.launches:
            continue
        taken = set(one.numbers)
        for run in list(found.runs):
            if taken & set(run.numbers):
                found.runs.remove(run)
                rest = Run(each for each in run.launches if each.number not in taken)
                found.runs += [rest] if rest.launches and rest.gains else []
        found.runs.append(one)
        found.lines[:] = [line for line in found.lines if line[0] not in taken]


def _read_reader(snapshot: ListSnapshot, number: int) -> RecordedLaunch:
    """Return a launch that works in groups. It may use any bytes of its memory."""
    commands, command = snapshot.commands, snapshot.commands.array[number]
    if commands.order.order_only[number] or commands.name_operation(number) != "kernel":
        raise NotFused("it is not a launch")
    kernel = get_address(command.kernel)
    access, options = read_access(kernel, snapshot)
    if not command.has_local or "local memory" not in access.uses or not access.uses <= _USES:
        raise NotFused("it does not work in groups")
    given = [read_argument(snapshot, command.arguments, one.index) for one in access.parameters]
    memory: list[UsedBytes] = []
    for name, argument in access.arguments.items():
        handle = given[argument.parameter.index][0][0]
        if not isinstance(handle, int):
            raise NotFused(f"its argument {name} is not a buffer")
        root, start, size = find_root(handle, snapshot.roots)
        does = argument.reads, argument.writes
        memory.append(UsedBytes(handle, root, start, start + size, 0, 0, *does, name, "it may"))
    try:
        read = KernelRead(access, options, find_elements(access), declare_needed(access))
    except UnreadableKernel as error:
        raise NotFused(str(error)) from None
    arguments = [
        RecordedArgument(turns, (index,), 0, False) for index, (turns, _) in enumerate(given)
    ]
    return RecordedLaunch(number, read, 0, arguments, [memory], command.arguments, False)


def _find_launches(found: RunList, reader: RecordedLaunch) -> ReaderRun:
    """Return a reader with the launches right before it that it can calculate itself."""
    roots, uses = found.snapshot.roots, found.snapshot.uses
    run, seen = ReaderRun([], reader, {}, roots), dict[int, MemoryUse]()
    for number in range(reader.number - 1, max(-1, reader.number - 1 - _MOST), -1):
        launch = found.launches.get(number)
        if launch is None:
            break
        for one in launch.memory[0]:
            if one.writes and one.handle in uses:
                seen[one.handle] = _leave_out(found.snapshot, one.handle, reader.number)
        launches = [launch, *run.launches]
        more = ReaderRun(launches, reader, find_temporaries(launches, seen), roots)
        if len(more.launches) < len(launches) or not more.is_right():
            break
        run = more
    return run


def _leave_out(snapshot: ListSnapshot, handle: int, reader: int) -> MemoryUse:
    """Return the use of a memory object without its reader, and without commands that have it as an
    argument and do not access it. The second kernel of a reduction is such a one."""

    def accesses(number: int) -> bool:
        try:
            (memory,) = _read_reader(snapshot, number).memory
        except NotFused:
            return True
        return any(one.handle == handle and (one.reads or one.writes) for one in memory)

    use = snapshot.uses[handle]
    return replace(use, commands=frozenset(filter(accesses, use.commands - {reader})))


class ReaderRun(Run):
    """Launches that become a part of the launch after them.

    Args:
        reader: the launch after them.
        temporaries: the memory that they write for it, and its type, by handle.
        roots: see `find_root`.
    """

    def __init__(
        self,
        launches: Sequence[RecordedLaunch],
        reader: RecordedLaunch,
        temporaries: Mapping[int, str],
        roots: dict[int, Root],
    ) -> None:
        super().__init__(launches)
        self.reader, self.temporaries, self._roots = reader, temporaries, roots

    @property
    def numbers(self) -> list[int]:
        """Of the commands that it stands for."""
        return [*super().numbers, self.reader.number]

    def is_right(self) -> bool:
        """Whether the reader can calculate what all launches write."""
        memory = [one for launch in self.launches for one in launch.memory[0]]
        written = {one.root for one in self.reader.memory[0] if one.writes}
        reads = {handle: self.find_reads(handle) for handle in self.temporaries}
        kernel = self.reader.kernel
        kinds = dict(kernel.elements.values())
        return (
            self.launches[0].kernel.options == kernel.options
            and all(kernel.declared.get(name, text) == text for name, text in self.declared.items())
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
        own = [one for launch in self.launches for one in launch.memory[0] if one.handle == handle]
        _, start, size = find_root(handle, self._roots)
        items, body = self.launches[0].items, self.reader.kernel.access.function.body
        places = {(one.first, one.stride, one.width * items) for one in own}
        for one in self.reader.memory[0]:
            if one.handle != handle or not one.reads:
                continue
            variable = self.reader.kernel.elements.get(one.argument, ("", ""))[0]
            if not variable or places != {(start, own[0].width, size)}:
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
            for one, given in zip(kernel.parameters, self.reader.arguments, strict=True)
            if isinstance(value := given.turns[0], bytes) and not any(value)
            if one.type.kind == "integer"
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
        parameters = FusedParameters(self, self.temporaries)
        source = self.write_source(parameters)
        kernel = self.compile(commands, kernels, source)
        return FusedReader([*self.launches, self.reader], source, kernel, parameters)

    def write_source(self, parameters: FusedParameters) -> str:
        """Return the source of a kernel that does what the launches and the reader do."""
        function = copy.deepcopy(self.reader.kernel.access.function)
        self.declared.update(self.reader.kernel.declared)
        texts, body = write_functions(self, parameters)
        rows = parameters.rows
        names = [one.name for one in rows]
        for handle, kind in self.temporaries.items():
            name, variables = f"fl_read_{len(texts)}", self.find_reads(handle)
            if variables:
                given = ", ".join([*(one.text for one in rows), f"size_t {ITEM}"])
                result = f"    return {parameters.variables[handle]};"
                texts.append("\n".join([f"{kind} {name}({given}) {{", *body, result, "}"]))
            for variable in variables or ():
                _TakeResult(variable, name, names).visit(function.body)
        function.decl.name = function.decl.type.type.declname = "fairlead_fused"
        for one in rows:
            is_memory = isinstance(one.value, int)
            kind = "uchar" if is_memory else one.kind.strip()
            function.decl.type.args.params.append(declare(one.name, kind, is_memory=is_memory))
        pragmas = write_pragmas([*self.launches, self.reader])
        return "\n".join([*pragmas, *texts, write_opencl(function)]) + "\n"


class FusedReader(FusedRun):
    """Launches and their reader, and the launch that does the same: in the reader's range."""

    def make_arguments(self, instead: Mapping[int, int]) -> Any:
        """See `FusedRun.make_arguments`."""
        own = [one.turns[0] for one in self.launches[-1].arguments]
        return make_arguments([*own, *(one.value for one in self.parameters.rows)], instead)

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
        made.arguments = self.make_arguments(instead)
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
