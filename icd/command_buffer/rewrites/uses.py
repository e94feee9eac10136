"""What is asked before a rewrite begins, in the program's own thread: a snapshot of the commands.

It has the sources of the kernels, what Parameters are, who uses the memory objects, and whether
anybody else can see these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from struct import Struct
from typing import Any, Final, NamedTuple
from weakref import finalize

from ..._native import ffi, lib
from ...abi import OPENCL
from ...calls import call, get_address, query_bytes, query_integer, query_program
from ..cells import AS_MEMORY, Cells, copy_commands
from ..commands import NAMES, CommandList
from ..edits import MEMORY

#: What `fl_pack_arguments` writes before the bytes of an argument; room for most lists, and for
#: their memory.
_HEAD: Final = Struct("=IIQ")
_ROOM: Final = 512
_MOST: Final = 32
#: The operations that can become one kernel.
_USING: Final = frozenset({"kernel", "copy", "fill"})


class Root(NamedTuple):
    """Where the bytes of a memory object are.

    Attributes:
        root: the memory object that has them: itself, or its parent.
        start: where it begins there.
        size: in bytes.
        is_of_host: whether a program may see them without it (CL_MEM_USE_HOST_PTR).
    """

    root: int
    start: int
    size: int
    is_of_host: bool


class PackedArguments(NamedTuple):
    """A list of arguments.

    Attributes:
        data: two lists that are alike but for their memory have the same.
        memory: the memory objects (handles), in order.
    """

    data: bytes
    memory: tuple[int, ...]


@dataclass(frozen=True)
class CellValue:
    """What the cell of a Parameter holds.

    Attributes:
        cell: an `fl_cell *`.
        is_memory: whether it is a memory object.
        turns: its bytes; those of both turns if it alternates.
    """

    cell: Any
    is_memory: bool
    turns: tuple[bytes, ...]


@dataclass(frozen=True)
class ListSnapshot:
    """A command list as it is now. It stays so while the list changes.

    Attributes:
        sources: of their programs, by handles.
        packed: the arguments of each command.
        users: the numbers of the commands that have a memory object, by the handles of those that
            nobody else can see.
        cells: by the addresses of their bytes.
        moving: the transfers whose memory is a Parameter.
        turns: 2 if buffers alternate, else 1.
        kept: what is referred to.
        roots: of memory objects, as far as somebody has asked (`look_up`).
        names: the numbers of memory (`MemoryNames`), by what they stand for.
        answers: what was found out about kernels and arguments. Launches are often alike.
    """

    commands: CommandList
    sources: Mapping[int, str]
    packed: Sequence[PackedArguments]
    users: Mapping[int, frozenset[int]]
    cells: Mapping[int, CellValue]
    moving: frozenset[int]
    turns: int
    kept: Any
    roots: dict[int, Root | None] = field(default_factory=dict)
    names: dict[tuple[int, ...], int] = field(default_factory=dict)
    answers: dict[Any, Any] = field(default_factory=dict)


def take_snapshot(
    commands: CommandList,
    find_sources: Callable[[Collection[int]], dict[int, str]],
    cells: Cells | None,
    count_others: Callable[[int], int],
) -> ListSnapshot:
    """Return what a rewrite has to know.

    Args:
        find_sources: returns the sources of programs that the driver does not tell, as far as they
            are known.
        cells: of the Parameters, None if there are none.
        count_others: returns how many references others have to memory (`References`).
    """
    if commands.updatable:
        copied = copy_commands(commands.array, len(commands))
        commands = replace(commands, array=copied.commands, owner=(copied, commands.owner))
    values = _list_cells(cells) if cells is not None else {}
    memory = [value for one in values.values() if one.is_memory for value in one.turns]
    changes = ffi.new("fl_change[]", max(1, len(memory)))
    kept = [ffi.new("unsigned char[]", value) for value in memory]
    for index, value in enumerate(kept):
        changes[index] = (index, MEMORY, 8, value)
    held = lib.fl_change_arguments(ffi.NULL, len(memory), changes, len(memory))
    rows = cells.rows if cells is not None else ()
    moving = (one.places[one.place_count - one.transfer_count : one.place_count] for one in rows)
    packed, roots = pack_all(commands), dict[int, Root | None]()
    snapshot = ListSnapshot(
        commands,
        list_sources(commands, find_sources),
        packed,
        find_users(commands, packed, count_others, roots),
        values,
        frozenset(number for numbers in moving for number in numbers),
        max([1, *(len(one.turns) for one in values.values())]),
        (ffi.gc(held, lib.fl_release_arguments) if held else None, cells),
        roots,
    )
    for program in snapshot.sources:  # Intel's driver tells no options of one that nobody has
        if not call(program, "clRetainProgram"):
            finalize(snapshot, call, program, "clReleaseProgram").atexit = False
    return snapshot


def why_not(snapshot: ListSnapshot) -> str | None:
    """Return why nothing of a list can be fused, None if only its kernels can tell."""
    commands = snapshot.commands
    if len(set(commands.devices)) > 1:
        return "it has several devices"
    if commands.wanted_events or commands.externals:
        return "the times or events of single commands are asked for"
    if not is_of_type(commands, "CL_DEVICE_TYPE_CPU", "CL_DEVICE_TYPE_GPU"):
        return "only kernels of CPUs and GPUs are fused"
    names = [commands.name_operation(number) for number in range(len(commands))]
    if "kernel" not in names:
        return "it launches no kernel"
    fit = [name in _USING for name in names]
    has_loop = any("for" in source for source in snapshot.sources.values())
    if not has_loop and not any(map(all, pairwise(fit))):
        return "no two launches follow each other"
    return None


def is_of_type(commands: CommandList, *types: str) -> bool:
    """Return whether the first device of a list is of one of some types."""
    told = query_integer(commands.devices[0], "clGetDeviceInfo", "CL_DEVICE_TYPE") or 0
    return any(told & OPENCL[one] for one in types)


def _list_cells(cells: Cells) -> dict[int, CellValue]:
    found, look = dict[int, CellValue](), ffi.new("fl_cell_look *")
    for row, key in zip(cells.rows, cells.keys, strict=True):
        lib.fl_look_at_cell(row.cell, look)
        turns = [bytes(ffi.buffer(look.bytes, key.size))]
        if row.cycle:
            cycle = ffi.buffer(row.cycle, 2 * key.size)
            turns = [cycle[: key.size], cycle[key.size :]]
        is_memory = key.conversion == AS_MEMORY
        found[get_address(look.bytes)] = CellValue(row.cell, is_memory, tuple(turns))
    return found


def pack_all(commands: CommandList) -> list[PackedArguments]:
    """Return the arguments of each command. Those that are alike are one object."""
    known = dict[PackedArguments, PackedArguments]()
    packed = (pack_arguments(commands.array[number].arguments) for number in range(len(commands)))
    return [known.setdefault(one, one) for one in packed]


def find_users(
    commands: CommandList,
    packed: Sequence[PackedArguments],
    count_others: Callable[[int], int],
    roots: dict[int, Root | None],
) -> dict[int, frozenset[int]]:
    """Return which commands have a memory object (a handle) that nobody else can see.

    Only launches, copies and fills of buffers use such memory.

    Args:
        packed: the arguments of each command.
        count_others: see `take_snapshot`.
        roots: takes what is found out (`look_up`).
    """
    users, other = dict[int, set[int]](), {0}
    for number, one in enumerate(packed):
        row = commands.array[number]
        handles = [get_address(row.source), get_address(row.target)]
        if NAMES[row.op] not in _USING:
            other.update(handles)
        for handle in (*handles, *one.memory):
            if handle in users:
                users[handle].add(number)
            elif handle not in other:
                root = None if count_others(handle) else look_up(handle, roots)
                if root is None or root.is_of_host:
                    other.add(handle)
                else:
                    users[handle] = {number}
    return {one: frozenset(numbers) for one, numbers in users.items() if one not in other}


class References:
    """Who has references to what commands use. It is asked before engines have any.

    Attributes:
        programs: of the kernels, handles.
    """

    def __init__(self, commands: CommandList) -> None:
        counted = lib.fl_count_references(commands.array, len(commands))
        self._counted, programs = ffi.gc(counted, lib.fl_free_references), ffi.new("void *const **")
        count = lib.fl_list_programs(counted, programs)
        self.programs = [get_address(programs[0][number]) for number in range(count)]

    def count_others(self, memory: int) -> int:
        """Return how many references to a memory object (a handle) others have than the recording
        and the commands."""
        return lib.fl_other_references(self._counted, ffi.cast("void *", memory))


def pack_arguments(listed: Any) -> PackedArguments:
    """Return a list of arguments."""
    size, room, most = 0, _ROOM, _MOST
    while True:
        data, memory = ffi.new("unsigned char[]", room), ffi.new("uintptr_t[]", most)
        count = ffi.new("uint32_t *", most)
        size = lib.fl_pack_arguments(listed, data, room, memory, count)
        if size <= room and count[0] <= most:
            return PackedArguments(ffi.buffer(data)[:size], tuple(ffi.unpack(memory, count[0])))
        room, most = max(room, size), max(most, count[0])


def unpack_arguments(packed: PackedArguments) -> Iterator[tuple[int, int, bytes]]:
    """Yield what each argument is, the address of a Parameter's cell or 0, and its bytes."""
    at, memory = 0, iter(packed.memory)
    while at < len(packed.data):
        kind, size, address = _HEAD.unpack_from(packed.data, at)
        at += _HEAD.size + size
        if kind == MEMORY and size:
            yield kind, address, next(memory).to_bytes(size, "little")
        else:
            yield kind, address, packed.data[at - size : at]


def look_up(memory: int, known: dict[int, Root | None]) -> Root | None:
    """Return where the bytes of a memory object (a handle) are, None if its driver does not tell.

    Args:
        known: what is known while nobody releases them. Takes the answer.
    """
    if memory not in known:
        told = ffi.new("uint64_t[4]")
        is_told = memory and not lib.fl_find_root(ffi.cast("void *", memory), told)
        known[memory] = Root(told[0], told[1], told[2], bool(told[3])) if is_told else None
    return known[memory]


def list_sources(
    commands: CommandList, find_others: Callable[[Collection[int]], dict[int, str]]
) -> dict[int, str]:
    """Return the sources of the programs of a list, by their handles.

    Args:
        find_others: returns those that the driver does not tell, as far as they are known.
    """
    kernels = {get_address(commands.array[number].kernel) for number in range(len(commands))}
    programs = {query_program(kernel) for kernel in kernels if kernel}
    told: dict[int, str] = {}
    for program in programs:
        answer = query_bytes(program, "clGetProgramInfo", "CL_PROGRAM_SOURCE") or b""
        told[program] = answer.rstrip(b"\0").decode("utf-8", "replace")  # its lines stay
    unknown = {program for program in programs if not told[program].strip()}
    return told | (find_others(unknown) if unknown else {})
