"""What is asked of the driver before a rewrite begins, in the program's own thread.

Who uses the memory objects of a command list, whether anybody else can see them, and the sources of
the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from ..._native import ffi, lib
from ...abi import OPENCL
from ...calls import call, get_address, query_bytes, query_program
from ..commands import CommandList
from ..edits import MEMORY


@dataclass(frozen=True)
class MemoryUse:
    """The commands of a list that use a memory object, and who has references to it.

    Attributes:
        commands: their numbers.
        references: how many there are. The recording has one.
    """

    commands: frozenset[int]
    references: int


def list_uses(commands: CommandList) -> dict[int, MemoryUse]:
    """Return who uses each memory object (a handle) of a list.

    Call it before anything is built of the list: engines have references, too.
    """
    users: dict[int, set[int]] = {}
    found = ffi.new("fl_change *")
    for number in range(len(commands)):
        row = commands.array[number]
        handles = [get_address(row.source), get_address(row.target)]
        for index in range(lib.fl_argument_count(row.arguments) if row.arguments else 0):
            lib.fl_get_argument(row.arguments, index, found)
            if found.kind == MEMORY and found.value:
                handles.append(int(ffi.cast("uintptr_t *", found.value)[0]))
        for handle in handles:
            users.setdefault(handle, set()).add(number)
    launched = {
        handle: numbers
        for handle, numbers in users.items()
        if all(commands.name_operation(number) == "kernel" for number in numbers)
    }
    return {
        handle: MemoryUse(frozenset(numbers), _count_references(handle))
        for handle, numbers in launched.items()
        if handle
    }


def _count_references(memory: int) -> int:
    value = ffi.new("uint32_t *")
    name = OPENCL["CL_MEM_REFERENCE_COUNT"]
    code = call(memory, "clGetMemObjectInfo", name, 4, get_address(value), None)
    return 0 if code else value[0]


def list_sources(
    commands: CommandList, find_others: Callable[[Collection[int]], dict[int, str]]
) -> dict[int, str]:
    """Return the sources of the programs of a list, by their handles.

    Args:
        commands: the list.
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
