"""What a recorded launch does: its kernel's source, its arguments, and the memory that it uses.

`read_launch` answers with a `RecordedLaunch`, or raises `NotFused` with the reason. It asks the
driver and reads the kernel (icd/kernel_source/), and it changes nothing.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pycparser import c_ast

from ..._native import ffi, lib
from ...calls import (
    decode_text,
    get_address,
    query_bytes,
    query_integer,
    query_kernel_name,
    query_program,
)
from ...errors import check
from ...kernel_source.c_types import SourceTypes
from ...kernel_source.errors import UnreadableKernel
from ...kernel_source.parsing import write_opencl
from ...kernel_source.reading import (
    ItemLoop,
    KernelAccess,
    KernelParameter,
    LaunchValues,
    Own,
    read_kernel,
)
from ...kernel_source.syntax import find_needed, list_names, uses_of_ids, walk_tree
from ..edits import MEMORY, VALUE
from .uses import BuiltSource, ListSnapshot

#: Options that change nothing that a kernel calculates. Others may let it round in another way.
_HARMLESS: Final = ("-cl-std=", "-cl-kernel-arg-info", "-w")
#: Attributes, and words in them, that change nothing that a kernel calculates.
_ATTRIBUTES: Final = re.compile(
    r"reqd_work_group_size|work_group_size_hint|vec_type_hint|opencl_unroll_hint|always_inline"
    r"|unused|\d+|(u?(char|short|int|long)|float|double|half)\d*"
)


class GroupMemory(NamedTuple):
    """An argument that is local memory."""

    size: int


#: A handle of memory, the bytes of a value, or local memory.
ArgumentValue = int | bytes | GroupMemory


class NotFused(Exception):
    """A launch is left as it is: the text says why.

    Attributes:
        arguments: what may change so that it is fused; none if nothing can.
    """

    arguments: Sequence[RecordedArgument] = ()


class RecordedArgument(NamedTuple):
    """An argument of a launch.

    Attributes:
        turns: what it is; in both turns if it alternates.
        key: launches whose arguments have the same key have one argument in a fused kernel. For
            memory it is the handle, or the address of a Parameter's cell.
        address: of a Parameter's cell, 0 if it is none.
        is_proven: whether what is known of the launch depends on it.
    """

    turns: Sequence[ArgumentValue]
    key: int | tuple[Any, ...]
    address: int
    is_proven: bool


@dataclass(frozen=True)
class UsedBytes:
    """Bytes that a launch uses.

    Attributes:
        handle: the memory object that the launch has; of a Parameter, the address of its cell.
        root: the memory object that has the bytes: the parent of a sub-buffer.
        first: the first byte of it that item 0 uses.
        end: the byte behind the last one that any item may use.
        stride: bytes from an item's to the next one's; 0: each item may use any of them.
        width: how many bytes an item uses.
        reads, writes: what it does.
        argument: the kernel's name for the memory.
        reason: why an item may use any bytes of it, "" if it has its own.
        offset: of the first byte from where the argument points to.
        fits: whether the bytes of all items lie in the memory object. A kernel whose range is
            rounded up tests its number, and does not use the others.
        kind: the type of the elements, "" if it is not known.
    """

    handle: int
    root: int
    first: int
    end: int
    stride: int
    width: int
    reads: bool
    writes: bool
    argument: str
    reason: str
    offset: int = 0
    fits: bool = False
    kind: str = ""

    def is_like(self, other: UsedBytes) -> bool:
        """Return whether both have elements of one type.

        A compiler may take memory of two types for two pieces of memory, and order accesses anew.
        """
        return bool(self.kind) and self.kind == other.kind

    def meets(self, other: UsedBytes) -> bool:
        """Return whether one of them writes what the other one uses."""
        if self.root != other.root or not (self.writes or other.writes):
            return False
        return self.end > other.first and other.end > self.first

    def allows(self, other: UsedBytes) -> bool:
        """Return whether both may be used by one kernel: no item meets what another one wrote."""
        if not self.meets(other):
            return True
        same = (self.first, self.stride, self.width) == (other.first, other.stride, other.width)
        return same and self.stride >= self.width > 0


@dataclass(frozen=True, eq=False)
class KernelRead:
    """A kernel that can be a part of a fused one.

    Attributes:
        access: what it reads and writes.
        options: the build options that its program needs.
        elements: how an item's element of an argument is written, where it is always written so: by
            the argument's name, the variable that is indexed, and the type of the element.
        declared: what it needs of its program: the text, by name.
    """

    access: KernelAccess
    options: str
    elements: Mapping[str, tuple[str, str]]
    declared: Mapping[str, str]

    @property
    def parameters(self) -> Sequence[KernelParameter]:
        """Its parameters, in order."""
        return self.access.parameters

    @property
    def loop(self) -> ItemLoop | None:
        """The loop over items; None if each work-item is an item."""
        return self.access.loop


@dataclass(frozen=True, eq=False)
class RecordedLaunch:
    """A launch that can be a part of a fused one.

    Attributes:
        number: of its command.
        kernel: what it launches.
        items: how many items there are.
        arguments: in order.
        memory: what it uses, in each turn.
        list: the `fl_arguments *` that has the arguments.
        is_transfer: whether it is a copy or a fill.
    """

    number: int
    kernel: KernelRead
    items: int
    arguments: Sequence[RecordedArgument]
    memory: Sequence[Sequence[UsedBytes]]
    list: Any
    is_transfer: bool

    def find_element(self, key: Any) -> str | None:
        """Return the type of an item's element of memory.

        "" if an item has none of its own, None if the launch has the memory but does not use it.
        """
        rows = {self.kernel.elements.get(name) for name in self._list_names(key)}
        kinds = {row[1] if row else "" for row in rows}
        places = {(one.first, one.stride, one.width) for one in self.memory[0] if one.handle == key}
        if not places and "" not in kinds:
            return None
        is_own = len(places) == 1 and next(iter(places))[1] > 0
        return kinds.pop() if is_own and len(kinds) == 1 else ""

    def writes_first(self, key: Any) -> bool:
        """Return whether each item writes its element of memory before it reads it."""
        names = self._list_names(key)
        return len(names) == 1 and self.kernel.access.arguments[names[0]].written_first

    def _list_names(self, key: Any) -> list[str]:
        pairs = zip(self.kernel.parameters, self.arguments, strict=True)
        return [one.name for one, value in pairs if value.key == key]


def read_launch(snapshot: ListSnapshot, number: int) -> RecordedLaunch:
    """Return what a launch does.

    Args:
        snapshot: the commands.
        number: of the launch.

    Raises:
        NotFused: it is not known well enough.
    """
    commands = snapshot.commands
    command = commands.array[number]
    if commands.name_operation(number) != "kernel":
        raise NotFused(f"{commands.name_operation(number)} is not fused")
    if command.has_offset and any(command.n[0 : command.work_dim]):
        raise NotFused("its range has an offset")
    if any(command.n[4 : 3 + command.work_dim][k] != 1 for k in range(command.work_dim - 1)):
        raise NotFused("its range has several dimensions")
    kernel = _read_kernel(get_address(command.kernel), commands.devices[0], snapshot.sources)
    local = (command.n[6], 1, 1) if command.has_local else None
    return _make_launch(snapshot, number, kernel, command.arguments, command.n[3], local)


#: A transfer as a kernel over the items of its neighbours.
_TRANSFERS: Final = {
    "copy": """kernel void copy_items(
        global const uchar *from, ulong from_at, global uchar *to, ulong to_at) {
      global const {0} *x = (global const {0} *)((global const uchar *)from + from_at);
      global {0} *z = (global {0} *)((global uchar *)to + to_at);
      z[get_global_id(0)] = x[get_global_id(0)];
    }""",
    "fill": """kernel void fill_items({0} value, global uchar *to, ulong to_at) {
      global {0} *z = (global {0} *)((global uchar *)to + to_at);
      z[get_global_id(0)] = value;
    }""",
}
#: Types of elements, by their bytes. Others are used where a launch has them.
_ELEMENTS: Final = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong", 16: "uint4"}
_BUILT_IN: Final = re.compile(r"(u?(char|short|int|long)|float|double)\d*")


def read_transfer(
    snapshot: ListSnapshot, number: int, like: RecordedLaunch, types: Mapping[tuple[int, int], str]
) -> RecordedLaunch:
    """Return a copy or a fill of a buffer as a launch over the items of another one.

    Args:
        snapshot: the commands.
        number: of the transfer.
        like: the other launch.
        types: of the elements of memory objects, by the root and the bytes of an element.

    Raises:
        NotFused: it is something else.
    """
    commands, name = snapshot.commands, snapshot.commands.name_operation(number)
    row, text = commands.array[number], _TRANSFERS.get(name)
    if text is None or number in snapshot.moving:
        raise NotFused(f"{name} is not fused")
    size, places = row.n[6], (row.n[0], row.n[3])
    width = size // like.items
    if width not in _ELEMENTS or size % like.items or any(place % width for place in places):
        raise NotFused(f"it has {size} bytes, those beside it {like.items} items")
    target, source = get_address(row.target), get_address(row.source)
    roots = (find_root(one)[0] for one in (source, target) if one)
    known = (types.get((root, width)) for root in roots)
    kind = next(filter(None, known), _ELEMENTS[width])
    given: list[int | bytes] = [target, places[1].to_bytes(8, "little")]
    if name == "copy":
        given = [source, places[0].to_bytes(8, "little"), *given]
    else:
        pattern = bytes(ffi.buffer(row.pattern, row.pattern_size))
        value = (pattern * width)[: max(width, len(pattern))]
        if value != value[:width] * (len(value) // width):
            raise NotFused("its pattern is larger than an item")
        given = [value[:width], *given]
    made = make_arguments(given)
    text, macros = text.replace("{0}", kind), _list_macros(commands.devices[0])
    access, options = _parse_kernel(text, like.kernel.options, f"{name}_items", macros)
    kernel = _make_kernel_read(access, options)
    listed = ffi.gc(made, lib.fl_release_arguments)
    return _make_launch(snapshot, number, kernel, listed, like.items, None)


def list_types(launches: Iterable[RecordedLaunch]) -> dict[tuple[int, int], str]:
    """Return the types of the elements that launches use: see `read_transfer`."""
    return {
        (one.root, one.width): kind
        for launch in launches
        for one in launch.memory[0]
        if one.stride == one.width
        if _BUILT_IN.fullmatch(kind := launch.find_element(one.handle) or "")
    }


def _make_launch(
    snapshot: ListSnapshot,
    number: int,
    kernel: KernelRead,
    listed: Any,
    size: int,
    local: tuple[int, int, int] | None,
) -> RecordedLaunch:
    given = [read_argument(snapshot, listed, one.index) for one in kernel.parameters]
    for one, (turns, _) in zip(kernel.parameters, given, strict=True):
        is_plain = one.type.kind in ("integer", "float", "vector") and one.type.name
        if not is_plain and isinstance(turns[0], bytes):
            raise NotFused(f"its argument {one.name} is a struct")
    asked = _Asked(
        (one.name, int.from_bytes(turns[0], "little", signed=one.type.signed))
        for one, (turns, _) in zip(kernel.parameters, given, strict=True)
        if one.type.kind == "integer" and isinstance(turns[0], bytes)
    )
    values = LaunchValues((size, 1, 1), local, arguments=asked)
    reason, items, memory = "", size, list[list[UsedBytes]]()
    try:
        if kernel.loop is not None:
            behind = values.value(kernel.loop.behind)
            if behind is None or values.value(kernel.loop.first) != 0:
                raise NotFused("how many items its loop has is not known")
            items = behind
        if items <= 0:
            raise NotFused("it has no items")
        memory = [
            _list_memory(kernel, given, turn, values, items) for turn in range(snapshot.turns)
        ]
        # one work-item may have run the whole loop, item by item
        if kernel.loop is not None and not all(
            a.allows(b) for turn in memory for a in turn for b in turn
        ):
            raise NotFused("an item of its loop uses what others write")
    except NotFused as error:
        reason = str(error)
    changes = snapshot.commands.updatable
    arguments = [
        _name_argument(one, turns, address, one.name in asked.names, number if changes else None)
        for one, (turns, address) in zip(kernel.parameters, given, strict=True)
    ]
    if reason:
        refusal = NotFused(reason)
        refusal.arguments = arguments
        raise refusal
    is_transfer = snapshot.commands.name_operation(number) != "kernel"
    return RecordedLaunch(number, kernel, items, arguments, memory, listed, is_transfer)


class _Asked(Mapping[str, int]):
    """The integers among arguments, and the names of those that were asked for."""

    def __init__(self, values: Iterable[tuple[str, int]]) -> None:
        self._values, self.names = dict(values), set[str]()

    def __getitem__(self, name: str) -> int:
        self.names.add(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def read_argument(
    snapshot: ListSnapshot, listed: Any, index: int
) -> tuple[Sequence[ArgumentValue], int]:
    """Return what an argument is in each turn, and the address of a Parameter's cell or 0.

    Raises NotFused if it is neither a value nor memory.
    """
    found = ffi.new("fl_change *")
    check(lib.fl_get_argument(listed, index, found), "clSetKernelArg")
    if found.kind not in (MEMORY, VALUE):
        raise NotFused(f"its argument {index} is neither a number nor a buffer")
    if not found.value:
        return [GroupMemory(found.size)], 0
    address = get_address(found.value) if lib.fl_parameter_of(listed, index) else 0
    cell = snapshot.cells.get(address)
    turns = cell.turns if cell is not None else [bytes(ffi.buffer(found.value, found.size))]
    if found.kind == MEMORY:
        return [int.from_bytes(turn, "little") for turn in turns], address
    return turns, address


def _name_argument(
    parameter: KernelParameter,
    turns: Sequence[ArgumentValue],
    address: int,
    is_proven: bool,
    number: int | None,
) -> RecordedArgument:
    """Args:
    number: of the launch if its numbers may change alone, else None.
    """
    if isinstance(turns[0], int):
        return RecordedArgument(turns, address or turns[0], address, True)
    what: tuple[Any, ...] = (turns[0],)
    if address or (number is not None and not is_proven):
        what = (address,) if address else (number, parameter.index)
    return RecordedArgument(turns, (parameter.type.name, *what), address, is_proven)


def _read_kernel(kernel: int, device: int, sources: Mapping[int, str]) -> KernelRead:
    access, options = read_access(kernel, device, sources)
    try:
        return _make_kernel_read(access, options)
    except UnreadableKernel as error:
        raise NotFused(f"its kernel is not understood: {error}") from None


def read_access(kernel: int, device: int, sources: Mapping[int, str]) -> tuple[KernelAccess, str]:
    """Return what a kernel reads and writes, and the build options that its program needs.

    Args:
        kernel: its handle.
        device: that it is for.
        sources: of programs, by their handles.

    Raises:
        NotFused: it is not known.
    """
    program = query_program(kernel)
    source = sources.get(program, "")
    if not source.strip():
        raise NotFused("nobody knows the source of its program")
    query = "CL_PROGRAM_BUILD_OPTIONS"
    told = query_bytes(program, "clGetProgramBuildInfo", query, device)
    if told is not None:
        options = os.fsdecode(told.rstrip(b"\0"))
    elif isinstance(source, BuiltSource):
        options = source.options
    else:  # "" would be a guess: options may change how it rounds
        raise NotFused("the driver does not tell its build options")
    macros = _list_macros(device)
    try:
        return _parse_kernel(source, options, query_kernel_name(kernel), macros)
    except UnreadableKernel as error:
        raise NotFused(f"its kernel is not understood: {error}") from None


@lru_cache(1024)
def _parse_kernel(
    source: str, options: str, name: str, macros: frozenset[tuple[str, str | None]]
) -> tuple[KernelAccess, str]:
    std = re.search(r"-cl-std=CL(\d)\.(\d)", options)
    version = f"{std[1]}{std[2]}0" if std else "120"  # SPEC clBuildProgram: 1.2 without -cl-std
    access = read_kernel(source, options, name, {**dict(macros), "__OPENCL_C_VERSION__": version})
    needed = find_needed(access.program.declarations, access.function)
    unknown = sorted(
        word
        for word, line in access.program.attributes
        if not _ATTRIBUTES.fullmatch(word) and any(one.first <= line <= one.last for one in needed)
    )
    if unknown:  # the tree lacks them, and `packed` or `overloadable` would mean something
        raise UnreadableKernel(f"its program has the attribute {unknown[0]}")
    if any("FP_CONTRACT" in pragma for pragma in access.program.pragmas):
        raise UnreadableKernel("it has a pragma FP_CONTRACT")
    return access, _keep_options(options)


@lru_cache(1024)
def _make_kernel_read(access: KernelAccess, options: str) -> KernelRead:
    if access.uses:
        raise UnreadableKernel(f"it uses {', '.join(sorted(access.uses))}")
    pointers = [one.type for one in access.parameters if one.type.kind == "pointer"]
    if any(type_.space != "global" for type_ in pointers):
        raise UnreadableKernel("an argument is not in global memory")
    _check_ids(access)
    return KernelRead(access, options, find_elements(access), declare_needed(access))


@lru_cache(1024)
def declare_needed(access: KernelAccess) -> Mapping[str, str]:
    """Return what a kernel needs of its program: see `KernelRead.declared`."""
    found: dict[str, str] = {}
    for node, *_ in find_needed(access.program.declarations, access.function):
        is_function = isinstance(node, c_ast.FuncDef)
        if is_function and "_Noreturn" in (node.decl.funcspec or []):  # a kernel
            continue
        name = node.decl.name if is_function else getattr(node, "name", None)
        text = write_opencl(node) + ("" if is_function else ";")
        if found.setdefault(name or text, text) != text:
            raise UnreadableKernel(f"its program declares {name} twice")
    return found


def _check_ids(access: KernelAccess) -> None:
    """Refuse a kernel whose result depends on more of its ids than the number of the item.

    Raises UnreadableKernel.
    """
    loop = access.loop
    if loop is None:
        if access.ids - {"get_global_id"}:
            raise UnreadableKernel(f"it asks for {min(access.ids - {'get_global_id'})}")
        calls = [one for one in walk_tree(access.function) if isinstance(one, c_ast.FuncCall)]
        for node in calls:
            name = node.name.name if isinstance(node.name, c_ast.ID) else ""
            if name == "get_global_id" and getattr(node.args.exprs[0], "value", "") != "0":
                raise UnreadableKernel("it asks for an id of another dimension")
            if name in access.program.functions and uses_of_ids(access.program.functions, node):
                raise UnreadableKernel(f"{name} asks for ids")
        return
    block = access.function.body.block_items
    after = block[block.index(loop.node) + 1 :]
    if any(not isinstance(one, c_ast.EmptyStatement) for one in after):
        raise UnreadableKernel("it goes on after its loop over items")
    if access.returns:
        raise UnreadableKernel("it may end before its loop over items")
    if loop.carried:
        raise UnreadableKernel(f"its loop keeps {min(loop.carried)} from one item to the next")
    if loop.uses_ids:
        raise UnreadableKernel("an item uses ids of its work-item")


@lru_cache(1024)
def _find_kinds(access: KernelAccess) -> Mapping[str, str]:
    """Return the types of the elements of arguments, by name, as far as they are known."""
    found = {name: kind for name, (_, kind) in find_elements(access).items()}
    needed = find_needed(access.program.declarations, access.function)
    casts = (one for row in needed for one in walk_tree(row.node) if isinstance(one, c_ast.Cast))
    if any(isinstance(one.to_type.type, c_ast.PtrDecl) for one in casts):
        return found
    targets = {one.name: one.type.target for one in access.parameters}
    return {name: one.name for name, one in targets.items() if one is not None} | found


@lru_cache(1024)
def find_elements(access: KernelAccess) -> Mapping[str, tuple[str, str]]:
    """See `KernelRead.elements`. A pointer that is used otherwise has no line."""
    types, found = SourceTypes(access.program), dict[str, tuple[str, str]]()
    uses, indexed = Counter[str](), Counter[str]()
    for node in walk_tree(access.function.body):
        if isinstance(node, c_ast.ID):
            uses[node.name] += 1
        if isinstance(node, c_ast.ArrayRef) and isinstance(node.name, c_ast.ID):
            indexed[node.name.name] += 1
    moved: dict[str, Any] = {}  # `global float *z = (global float *)((global char *)base + offset)`
    for node in access.function.body.block_items:
        if isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.PtrDecl) and node.init:
            origins = set(list_names(node.init)) & access.arguments.keys()
            if len(origins) == 1:
                moved[origins.pop()] = node
    for name, argument in access.arguments.items():
        variable, pointed = name, argument.parameter.type
        if uses[name] == 1 and not indexed[name] and name in moved:
            variable, pointed = moved[name].name, types.read(moved[name].type)
        target = pointed.target
        is_plain = target is not None and target.kind in ("integer", "float", "vector")
        if is_plain and target is not None and target.name and uses[variable] == indexed[variable]:
            found[name] = variable, target.name
    return found


def _keep_options(options: str) -> str:
    """Return the options of a fused program: macros and includes are in its text already."""
    kept, words = list[str](), iter(shlex.split(options))
    for word in words:
        if word in ("-D", "-I"):
            next(words, "")
        elif word.startswith(_HARMLESS):
            kept.append(word)
        elif not word.startswith(("-D", "-I")):
            raise UnreadableKernel(f"its program was built with {word}")
    return " ".join(kept)


# memory


def make_arguments(values: Sequence[ArgumentValue], instead: Mapping[int, int] = {}) -> Any:
    """Return a list of arguments, a reference.

    Args:
        values: a handle for memory, the bytes of a value.
        instead: what memory is exchanged for, by its handle.

    Raises:
        MemoryError: there is no memory.
    """
    kept, changes = list[Any](), ffi.new("fl_change[]", max(1, len(values)))
    for index, value in enumerate(values):
        kind, size = VALUE, 0
        if isinstance(value, GroupMemory):
            size, data = value.size, ffi.NULL
        elif isinstance(value, int):
            kind, size, data = MEMORY, 8, ffi.new("uintptr_t *", instead.get(value, value))
        else:
            size, data = len(value), ffi.new("unsigned char[]", value)
        kept.append(data)
        changes[index] = (index, kind, size, data)
    arguments = lib.fl_change_arguments(ffi.NULL, len(values), changes, len(values))
    if not arguments:
        raise MemoryError("no memory for a launch's arguments")
    return arguments


def _list_memory(
    kernel: KernelRead,
    arguments: Sequence[tuple[Sequence[ArgumentValue], int]],
    turn: int,
    values: LaunchValues,
    items: int,
) -> list[UsedBytes]:
    found: list[UsedBytes] = []
    for name, argument in kernel.access.arguments.items():
        turns, address = arguments[argument.parameter.index]
        handle = turns[turn % len(turns)]
        if not isinstance(handle, int):
            raise NotFused(f"its argument {name} is no buffer")
        root, start, size = find_root(handle)
        key, place = address or handle, _find_items(argument.own, values)
        does = argument.reads, argument.writes, name
        if place is None:
            why = argument.reason
            text = f"{why.text} (line {why.line})" if why else "its items overlap, or are not known"
            found.append(UsedBytes(key, root, start, start + size, 0, 0, *does, text))
        elif argument.reads or argument.writes:
            offset, stride, width = place
            first, end = start + offset, start + offset + stride * (items - 1) + width
            kind = _find_kinds(kernel.access).get(name, "")
            own = stride, width, *does, "", offset, end <= start + size, kind
            found.append(UsedBytes(key, root, first, end, *own))
    return found


def _find_items(own: Own | None, values: LaunchValues) -> tuple[int, int, int] | None:
    """Return the first byte of item 0, the bytes from an item to the next, and those that an item
    uses; None if an item may use any."""
    if own is None or not own.holds(values):
        return None
    varying, fixed = own.offset.split()
    first = values.value(fixed)
    if not own.width:
        return 0, 0, 0
    (symbol,) = varying.symbols if len(varying.symbols) == 1 else (None,)
    factor = own.offset.coefficient(symbol) if symbol is not None else None
    stride = factor and values.value(factor)
    if stride is None or first is None or stride < own.width or first < 0:
        return None
    return first, stride, own.width


def find_root(memory: int) -> tuple[int, int, int]:
    """Return the memory object that has the bytes of one, where it begins there, and its size."""
    routine = "clGetMemObjectInfo"
    size = _query_address(memory, routine, "CL_MEM_SIZE")
    parent = _query_address(memory, routine, "CL_MEM_ASSOCIATED_MEMOBJECT")
    if not parent:
        return memory, 0, size
    return parent, _query_address(memory, routine, "CL_MEM_OFFSET"), size


# queries


def _query_address(handle: int, routine: str, name: str) -> int:
    told = query_integer(handle, routine, name)
    if told is None:  # 0 would be a guess: "no parent" of a sub-buffer
        raise NotFused(f"the driver does not tell {name}")
    return told


@lru_cache(64)
def _list_macros(device: int) -> frozenset[tuple[str, str | None]]:
    """Return what a device's compiler defines, as far as it is known."""
    told = query_bytes(device, "clGetDeviceInfo", "CL_DEVICE_EXTENSIONS") or b""
    extensions = decode_text(told).split()
    numbers = {f"CL_VERSION_{n // 100}_{n // 10 % 10}": str(n) for n in (100, 110, 120)}
    found: Mapping[str, str | None] = {
        **dict.fromkeys(extensions, "1"),
        **numbers,
        "__ENDIAN_LITTLE__": "1",
    }
    return frozenset(found.items())
