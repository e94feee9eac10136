"""What is asked before a rewrite begins, in the program's own thread: a snapshot of the commands.

It has the sources of the kernels, what Parameters are, who uses the memory objects, and whether
anybody else can see these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from struct import Struct
from typing import Any, Final
from weakref import finalize

from ..._native import ffi, lib
from ...abi import OPENCL
from ...calls import call, get_address, query_bytes, query_integer, query_program
from ..cells import AS_MEMORY, Cells, copy_commands
from ..commands import NAMES, CommandList
from ..edits import MEMORY

#: What `fl_pack_arguments` writes before the bytes of an argument, and room for most lists.
_HEAD: Final = Struct("=IIQ")
_ROOM: Final = 512
#: The operations that can become one kernel.
_USING: Final = frozenset({"kernel", "copy", "fill"})


#: The memory object that has the bytes of one, where it begins there, and its size.
Root = tuple[int, int, int]


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
        packed: the arguments of each command (`pack_arguments`).
        users: the numbers of the commands that have a memory object, by the handles of those that
            nobody else can see.
        cells: by the addresses of their bytes.
        moving: the transfers whose memory is a Parameter.
        turns: 2 if buffers alternate, else 1.
        kept: what is referred to.
        roots: of memory objects, as far as somebody has asked (`find_root`).
        answers: what was found out about kernels and arguments. Launches are often alike.
    """

    commands: CommandList
    sources: Mapping[int, str]
    packed: Sequence[bytes]
    users: Mapping[int, frozenset[int]]
    cells: Mapping[int, CellValue]
    moving: frozenset[int]
    turns: int
    kept: Any
    roots: dict[int, Root] = field(default_factory=dict)
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
    packed = pack_all(commands)
    snapshot = ListSnapshot(
        commands,
        list_sources(commands, find_sources),
        packed,
        find_users(commands, packed, count_others),
        values,
        frozenset(number for numbers in moving for number in numbers),
        max([1, *(len(one.turns) for one in values.values())]),
        (ffi.gc(held, lib.fl_release_arguments) if held else None, cells),
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


def pack_all(commands: CommandList) -> list[bytes]:
    """Return the arguments of each command. Those that are alike are one object."""
    known = dict[bytes, bytes]()
    packed = (pack_arguments(commands.array[number].arguments) for number in range(len(commands)))
    return [known.setdefault(one, one) for one in packed]


def find_users(
    commands: CommandList, packed: Sequence[bytes], count_others: Callable[[int], int]
) -> dict[int, frozenset[int]]:
    """Return which commands have a memory object (a handle) that nobody else can see.

    Only launches, copies and fills of buffers use such memory.

    Args:
        packed: the arguments of each command.
        count_others: see `take_snapshot`.
    """
    users, other, read = dict[int, set[int]](), {0}, dict[bytes, list[int]]()
    for number, one in enumerate(packed):
        row = commands.array[number]
        handles = [get_address(row.source), get_address(row.target)]
        if NAMES[row.op] not in _USING:
            other.update(handles)
        if one not in read:
            given = unpack_arguments(one)
            memory = (data for kind, _, data in given if kind == MEMORY and data)
            read[one] = [int.from_bytes(data, "little") for data in memory]
        for handle in (*handles, *read[one]):
            if handle not in other:
                if handle not in users and (count_others(handle) or _is_of_host(handle)):
                    other.add(handle)
                else:
                    users.setdefault(handle, set()).add(number)
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


def pack_arguments(listed: Any) -> bytes:
    """Return a list of arguments as bytes. Two lists that are alike have the same."""
    room = ffi.new("unsigned char[]", _ROOM)
    size = lib.fl_pack_arguments(listed, room, _ROOM)
    if size > _ROOM:
        room = ffi.new("unsigned char[]", size)
        lib.fl_pack_arguments(listed, room, size)
    return ffi.buffer(room)[:size]


def unpack_arguments(packed: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield what each argument is, the address of a Parameter's cell or 0, and its bytes."""
    at = 0
    while at < len(packed):
        kind, size, address = _HEAD.unpack_from(packed, at)
        at += _HEAD.size + size
        yield kind, address, packed[at - size : at]


def _is_of_host(memory: int) -> bool:
    """Return whether a program may see a buffer's bytes without it (CL_MEM_USE_HOST_PTR)."""
    told = query_integer(memory, "clGetMemObjectInfo", "CL_MEM_FLAGS")
    return told is None or bool(told & OPENCL["CL_MEM_USE_HOST_PTR"])


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
