"""What a recorded launch does: its kernel's source, its arguments, and the memory that it uses.

`read_launch` answers with a `RecordedLaunch`, or raises `NotFused` with the reason. It asks the
driver and reads the kernel (icd/kernel_source/), and it changes nothing.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pycparser import c_ast

from ..._native import ffi, lib
from ...calls import decode_text, get_address, query_bytes, query_kernel_name, query_program
from ...errors import check
from ...kernel_source.c_types import SourceTypes
from ...kernel_source.errors import UnreadableKernel
from ...kernel_source.reading import (
    ItemLoop,
    KernelAccess,
    KernelParameter,
    LaunchValues,
    Own,
    read_kernel,
)
from ...kernel_source.syntax import find_needed, list_names, uses_of_ids, walk_tree
from ..commands import CommandList
from ..edits import MEMORY, VALUE

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
    """A launch is left as it is: the text says why."""


@dataclass(frozen=True)
class UsedBytes:
    """Bytes that a launch uses.

    Attributes:
        handle: the memory object that the launch has.
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
    """

    access: KernelAccess
    options: str
    elements: Mapping[str, tuple[str, str]]

    @property
    def parameters(self) -> Sequence[KernelParameter]:
        """Its parameters, in order."""
        return self.access.parameters

    @property
    def loop(self) -> ItemLoop | None:
        """The loop over items; None if each work-item is an item."""
        return self.access.loop


@dataclass(frozen=True)
class RecordedLaunch:
    """A launch that can be a part of a fused one.

    Attributes:
        number: of its command.
        kernel: what it launches.
        items: how many items there are.
        arguments: a handle for memory, the bytes of a value.
        memory: what it uses.
    """

    number: int
    kernel: KernelRead
    items: int
    arguments: Sequence[ArgumentValue]
    memory: Sequence[UsedBytes]


def read_launch(commands: CommandList, number: int, sources: Mapping[int, str]) -> RecordedLaunch:
    """Return what a launch does.

    Args:
        commands: the list.
        number: of the launch.
        sources: of programs, by their handles.

    Raises:
        NotFused: it is not known well enough.
    """
    command = commands.array[number]
    if commands.name_operation(number) != "kernel":
        raise NotFused(f"{commands.name_operation(number)} is not fused")
    if command.has_offset and any(command.n[0 : command.work_dim]):
        raise NotFused("its range has an offset")
    if any(command.n[4 : 3 + command.work_dim][k] != 1 for k in range(command.work_dim - 1)):
        raise NotFused("its range has several dimensions")
    handle = get_address(command.kernel)
    kernel = _read_kernel(handle, commands.devices[0], sources)
    arguments = [read_argument(command, index) for index in range(len(kernel.parameters))]
    values = _make_values(command, kernel, arguments)
    if kernel.loop is not None:
        items = values.value(kernel.loop.behind)
        if items is None or values.value(kernel.loop.first) != 0:
            raise NotFused("how many items its loop has is not known")
    else:
        items = command.n[3]
    if items <= 0:
        raise NotFused("it has no items")
    memory = _list_memory(kernel, arguments, values, items)
    # one work-item may have run the whole loop, item by item
    if kernel.loop is not None and not all(a.allows(b) for a in memory for b in memory):
        raise NotFused("an item of its loop uses what others write")
    return RecordedLaunch(number, kernel, items, arguments, memory)


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
    if told is None:  # "" would be a guess: options may change how it rounds
        raise NotFused("the driver does not tell its build options")
    options = os.fsdecode(told.rstrip(b"\0"))
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
    return KernelRead(access, options, find_elements(access))


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


# arguments and memory


def read_argument(command: Any, index: int) -> ArgumentValue:
    found = ffi.new("fl_change *")
    check(lib.fl_get_argument(command.arguments, index, found), "clSetKernelArg")
    if found.kind == MEMORY:
        return int(ffi.cast("uintptr_t *", found.value)[0])
    if found.kind == VALUE and not found.value:
        return GroupMemory(found.size)
    if found.kind != VALUE:
        raise NotFused(f"its argument {index} is neither a number nor a buffer")
    return bytes(ffi.buffer(found.value, found.size))


def make_arguments(values: Sequence[ArgumentValue], instead: Mapping[int, int]) -> Any:
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


def _make_values(
    command: Any, kernel: KernelRead, arguments: Sequence[ArgumentValue]
) -> LaunchValues:
    numbers = {
        one.name: int.from_bytes(value, "little", signed=one.type.signed)
        for one, value in zip(kernel.parameters, arguments, strict=True)
        if one.type.kind == "integer" and isinstance(value, bytes)
    }
    local = (command.n[6], 1, 1) if command.has_local else None
    return LaunchValues((command.n[3], 1, 1), local, arguments=numbers)


def _list_memory(
    kernel: KernelRead, arguments: Sequence[ArgumentValue], values: LaunchValues, items: int
) -> list[UsedBytes]:
    found: list[UsedBytes] = []
    for name, argument in kernel.access.arguments.items():
        handle = arguments[argument.parameter.index]
        if not isinstance(handle, int):
            raise NotFused(f"its argument {name} is no buffer")
        root, start, size = find_root(handle)
        place = _find_items(argument.own, values)
        does = argument.reads, argument.writes, name
        if place is None:
            why = argument.reason
            text = f"{why.text} (line {why.line})" if why else "its items overlap, or are not known"
            found.append(UsedBytes(handle, root, start, start + size, 0, 0, *does, text))
        elif argument.reads or argument.writes:
            first, stride, width = start + place[0], place[1], place[2]
            end = first + stride * (items - 1) + width
            found.append(
                UsedBytes(
                    handle,
                    root,
                    first,
                    end,
                    stride,
                    width,
                    *does,
                    "",
                    place[0],
                    end <= start + size,
                )
            )
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
    told = query_bytes(handle, routine, name)
    if not told:  # 0 would be a guess: "no parent" of a sub-buffer
        raise NotFused(f"the driver does not tell {name}")
    return int.from_bytes(told, "little")


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
