"""Changes of recorded commands: copies that can be changed, new arguments, and other arrays.

A recording's own array never changes. A copy of a launch owns its list of arguments. Everything
else that a command points to belongs to the recording, which the copy's owner keeps.
"""

from __future__ import annotations

from typing import Any, Final

from .._native import ffi, lib
from ..calls import get_address, query_kernel_name, query_program
from ..errors import check, error

#: Kinds of arguments (enum fl_argument_kind). Local memory is a value without an address. The
#: recording has never seen an `UNSET` one.
UNSET: Final[int] = lib.FL_ARG_UNSEEN
VALUE: Final[int] = lib.FL_ARG_VALUE
MEMORY: Final[int] = lib.FL_ARG_MEM
SAMPLER: Final[int] = lib.FL_ARG_SAMPLER
POINTER: Final[int] = lib.FL_ARG_SVM


def copy_command(command: Any) -> Any:
    """Return a copy of a command that can be changed, with arguments of its own."""
    made = ffi.gc(ffi.new("fl_command *"), _release)
    put(made, command)
    return made


def _release(command: Any) -> None:
    lib.fl_release_arguments(command.arguments)


def put(target: Any, command: Any, queue: int | None = None) -> None:
    """Overwrite what `target` points to with a command.

    It keeps its queue's number, unless one is given.
    """
    old, arguments = target.arguments, _copy_arguments(command.arguments)
    target[0] = command[0]
    target.arguments = arguments
    if queue is not None:
        target.queue = queue
    lib.fl_release_arguments(old)


def _copy_arguments(arguments: Any) -> Any:
    if not arguments:
        return ffi.NULL
    made = lib.fl_change_arguments(arguments, lib.fl_argument_count(arguments), ffi.NULL, 0)
    if not made:
        raise MemoryError("no memory for a launch's arguments")
    return made


def describe_content(transfer: Any) -> tuple[Any, ...]:
    """Return what a transfer does, for comparison with another one."""
    data, size = transfer.pattern, transfer.pattern_size
    pattern = bytes(ffi.buffer(data, size)) if data else b""
    return transfer.op, transfer.source, transfer.target, transfer.host, pattern, *transfer.n


def count_arguments(command: Any) -> int:
    """Return how many arguments a launch has."""
    return lib.fl_argument_count(command.arguments)


def get_argument(command: Any, index: int) -> tuple[int, int, bool]:
    """Return an argument's kind, its size in bytes, and whether it is local memory."""
    found = ffi.new("fl_change *")
    check(lib.fl_get_argument(command.arguments, index, found), "clSetKernelArg")
    return found.kind, found.size, found.kind == VALUE and not found.value


def get_argument_bytes(command: Any, index: int) -> bytes:
    """The bytes of an argument; a pointer's are the pointer. Not of local memory."""
    found = ffi.new("fl_change *")
    check(lib.fl_get_argument(command.arguments, index, found), "clSetKernelArg")
    if found.kind == POINTER:
        return get_address(found.value).to_bytes(8, "little")
    return ffi.buffer(found.value, found.size)[:]


def get_cell(command: Any, index: int) -> int:
    """The number of the Parameter that an argument is, 0 if it is none."""
    return lib.fl_parameter_of(command.arguments, index)


def get_object(command: Any, index: int) -> tuple[int, int]:
    """Return an argument's kind, and its memory object or sampler (a handle), 0 if it is
    neither."""
    found = ffi.new("fl_change *")
    check(lib.fl_get_argument(command.arguments, index, found), "clSetKernelArg")
    is_object = found.kind in (MEMORY, SAMPLER) and found.value
    return found.kind, ffi.cast("uintptr_t *", found.value)[0] if is_object else 0


def set_argument(command: Any, index: int, kind: int, size: int, word: int) -> None:
    """Give a copied launch another argument. Raises OpenCLError.

    `word` is the address of a value (0: local memory), or else the handle or pointer itself.
    """
    if kind == VALUE:
        value = ffi.cast("void *", word)
    elif kind == POINTER:
        size, value = 0, ffi.cast("void *", word)
    else:  # OpenCL takes the address of a handle; NULL is a value like any other
        kind, size, value = kind if word else VALUE, 8, ffi.new("uintptr_t *", word)
    code = lib.fl_set_argument(command, index, kind, size, value)
    if code:
        raise error(code, "clSetKernelArg", f"(argument {index})")


def has_all_arguments(command: Any) -> bool:
    """Return whether all arguments of a launch are in its list.

    It can then use another kernel of the same function.
    """
    found, arguments = ffi.new("fl_change *"), command.arguments
    for index in range(lib.fl_argument_count(arguments)):
        lib.fl_get_argument(arguments, index, found)
        if found.kind == UNSET:
            return False
    return True


def have_same_function(one: Any, other: Any) -> bool:
    """Return whether two kernels are of the same function of the same program."""
    first, second = get_address(one), get_address(other)
    return first == second or (
        bool(first and second)
        and query_program(first) == query_program(second)
        and query_kernel_name(first) == query_kernel_name(second)
    )
