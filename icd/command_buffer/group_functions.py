"""The work-group functions of the kernels that commands launch, for the engine `direct`.

`ProgramFunctions` are those of a program, read once from its binary. `GroupFunctions` are those of
a list of commands, in an array for C. Both keep what they were made from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final
from weakref import WeakValueDictionary, finalize

from ...loader.base.forks import make_lock
from .._native import ffi, lib
from ..abi import OPENCL
from ..calls import call, get_address, query_kernel_name, query_program
from ..errors import OpenCLError, check
from ..pocl_kernels import PoclBinaryError, PoclKernel, parse
from ..program_binaries import query_binaries
from .prepared_programs import Preparation, say_if_long

_SPACES: Final = {
    "value": lib.FL_SPACE_VALUE,
    "local": lib.FL_SPACE_LOCAL,
    "memory": lib.FL_SPACE_MEMORY,
    "other": lib.FL_SPACE_OTHER,
}


class ProgramFunctions:
    """The kernels of a program that was built for one device.

    Args:
        program: a handle, to which a reference is kept: it cannot become another program's.

    Attributes:
        why_not: why there are none, None if there are.
    """

    def __init__(self, program: int) -> None:
        self.kernels: dict[str, PoclKernel] = {}
        self.why_not: str | None = None
        call(program, "clRetainProgram")
        # Not by __del__: while that runs, `_programs` still gives the object to other threads.
        finalize(self, call, program, "clReleaseProgram").atexit = False
        try:
            with say_if_long("and a replay waits for it"):
                self.kernels = parse(query_binary(program))
        except (OpenCLError, PoclBinaryError) as error:
            self.why_not = str(error)


_programs: Final[WeakValueDictionary[int, ProgramFunctions]] = WeakValueDictionary()
_lock: Final = make_lock()


def get_functions(program: int) -> ProgramFunctions:
    """The functions of a program (a handle); those that somebody has already are not read again."""
    with _lock:
        found = _programs.get(program)
        if found is None:
            found = _programs[program] = ProgramFunctions(program)
        return found


def has_functions(program: int) -> bool:
    """Return whether somebody has the functions of a program (a handle) already."""
    return program in _programs


def query_binary(program: int) -> bytes:
    """Return CL_PROGRAM_BINARIES of a program with one device.

    Raises OpenCLError, or PoclBinaryError if it has several devices.
    """
    found = query_binaries(program)
    if len(found) != 1:
        raise PoclBinaryError("the program is of several devices.", routine="clGetProgramInfo")
    return found[0]


class GroupFunctions:
    """What C knows of kernels: an array of `fl_group_function`, in the order of the kernels'
    handles.

    Args:
        kernels: handles; they live at least as long.
        device: a handle.
        prepared: programs (handles) that a child compiles or has compiled.

    Attributes:
        why_not: why a kernel has no function that is called, by its handle.
    """

    def __init__(
        self,
        kernels: Iterable[int],
        device: int,
        prepared: Mapping[int, Preparation] = MappingProxyType({}),
    ) -> None:
        self._prepared = prepared
        self.why_not: dict[int, str] = {}
        self._kept: list[Any] = []
        self._kernels: dict[int, PoclKernel] = {}
        rows = [self._make_row(kernel, device) for kernel in sorted(set(kernels))]
        self.array, self.count = ffi.new("fl_group_function[]", rows), len(rows)

    def _make_row(self, kernel: int, device: int) -> dict[str, Any]:
        row: dict[str, Any] = {"kernel": ffi.cast("void *", kernel)}
        try:
            found, row["most_items"] = (
                self._find(kernel),
                _query_most_items(kernel, device),
            )
            row["function"] = ffi.cast("void *", found.function)
            self._kernels[kernel] = found
        except (OpenCLError, PoclBinaryError) as error:
            self.why_not[kernel] = str(error)
            return row
        parts = (
            ffi.new("uint8_t[]", [_SPACES[space] for space in found.spaces]),
            ffi.new("uint32_t[]", found.sizes),
            ffi.new("uint64_t[]", found.automatic),
        )
        self._kept.append(parts)
        row["spaces"], row["sizes"], row["automatic"] = parts
        row["argument_count"], row["automatic_count"] = len(found.spaces), len(found.automatic)
        row["required"], row["flushes"] = found.required, found.flushes
        return row

    def open_specials(self) -> None:
        """Open the functions for one local size each that launches could have, if there are any."""
        for number in range(self.count):
            row = self.array[number]
            for place in range(row.special_count):
                special = row.specials[place]
                if not special.function:
                    found = self._kernels[get_address(row.kernel)].find_specialized(
                        list(special.local),
                        no_offset=bool(special.no_offset),
                        small_grid=bool(special.small_grid),
                    )
                    special.function = ffi.cast("void *", found)

    def _find(self, kernel: int) -> PoclKernel:
        """Return the kernel in its program's binary.

        Raises PoclBinaryError if it is missing, or not called.
        """
        handle, name = query_program(kernel), query_kernel_name(kernel)
        preparation = self._prepared.get(handle)
        if preparation is not None and preparation.why_not:
            raise PoclBinaryError(f"the kernel {name}: {preparation.why_not}", routine="direct")
        program = get_functions(handle)
        self._kept.append(program)
        found = program.kernels.get(name)
        if found is None or found.why_not:
            reason = (found and found.why_not) or program.why_not or "its program's binary lacks it"
            raise PoclBinaryError(f"the kernel {name}: {reason}", routine="direct")
        return found


def _query_most_items(kernel: int, device: int) -> int:
    """CL_KERNEL_WORK_GROUP_SIZE of a kernel on a device. Raises OpenCLError."""
    value, name = ffi.new("size_t *"), OPENCL["CL_KERNEL_WORK_GROUP_SIZE"]
    code = call(kernel, "clGetKernelWorkGroupInfo", device, name, 8, get_address(value), None)
    check(code, "clGetKernelWorkGroupInfo")
    return value[0]
