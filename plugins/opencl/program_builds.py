"""Builds of programs of the OpenCL adapter: compile, link, specialization constants, and queries
about builds.

A failure is PROGRAM_BUILD_FAILURE or PROGRAM_LINK_FAILURE, whatever code the driver had for it.
urAdapterGetLastError returns the log.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final

from ...icd.abi import OPENCL
from ...icd.errors import OpenCLError
from ...loader.base.interrupts import run_aside
from ..sdk.programs import declare_builds, declare_specialization
from .contexts import URContext
from .core import adapter, check, failure, make_handle_array
from .devices import URDevice, can_take_specialization_constants
from .programs import URProgram, decode_text


class BuildError(OpenCLError):
    """A program was not compiled. The text is the compiler's log."""


class LinkError(OpenCLError):
    """Programs were not linked. The text is the linker's log."""


adapter.codes[BuildError] = "PROGRAM_BUILD_FAILURE"
adapter.codes[LinkError] = "PROGRAM_LINK_FAILURE"

_BUILD: Final = frozenset(
    OPENCL.codes[name]
    for name in (
        "CL_BUILD_PROGRAM_FAILURE",
        "CL_COMPILE_PROGRAM_FAILURE",
        "CL_LINK_PROGRAM_FAILURE",
        "CL_INVALID_BUILD_OPTIONS",
        "CL_INVALID_COMPILER_OPTIONS",
        "CL_INVALID_LINKER_OPTIONS",
    )
)
_INVALID_OPERATION: Final = OPENCL.codes["CL_INVALID_OPERATION"]
#: PoCL answers CL_INVALID_OPERATION for a program that is not compiled.
_LINK: Final = _BUILD | {_INVALID_OPERATION}


def _convert_options(text: str | None) -> bytes | None:
    return text.encode() if text else None


def _run_aside(programs: Sequence[URProgram], work: Callable[[], Any]) -> Any:
    """Call a function of the driver that may take long, and return what `work` returns.

    Ctrl-C ends the wait. The function continues, so its programs are retained.

    Args:
        work: calls the function.
    """
    cls = [program.cl for program in programs]
    table = programs[0].table

    def call() -> Any:
        try:
            return work()
        finally:
            for cl in cls:
                table.clReleaseProgram(cl)

    for cl in cls:
        table.clRetainProgram(cl)
    return run_aside(call)


_COMPILERS: Final[dict[bool, tuple[str, tuple[Any, ...]]]] = {
    False: ("clBuildProgram", (None, None)),
    True: ("clCompileProgram", (0, None, None, None, None)),
}


def build_program(
    program: URProgram,
    devices: Sequence[URDevice],
    options: str | None,
    flags: int = 0,
    *,
    only_compiles: bool = False,
) -> None:
    """Build or compile a program.

    Args:
        devices: its devices that it is built for; all of them if empty.
        flags: UR_EXP_PROGRAM_FLAG_ALLOW_UNRESOLVED_SYMBOLS has no effect. What OpenCL compiles may
            have such symbols, what it links must not.
        only_compiles: whether it is not linked.

    Raises:
        BuildError: the compiler refuses it.
    """
    routine, rest = _COMPILERS[only_compiles]
    if only_compiles:
        options = f"{options or ''} {program.context.platform.profile.compile_option}".rstrip()
    function, listed = getattr(program.table, routine), make_handle_array(devices)
    text = _convert_options(options)
    code = _run_aside((program,), lambda: function(program.cl, len(devices), listed, text, *rest))
    if code in _BUILD:
        raise BuildError.from_code(code, routine, program.log)
    check(code, routine)


def link_programs(
    context: URContext,
    devices: Sequence[URDevice],
    programs: Sequence[URProgram],
    options: str | None,
) -> tuple[URProgram | None, LinkError | None]:
    """Link programs.

    Args:
        devices: what to link for, nothing for all devices of the context.
        programs: what to link, one at least, of the context.

    Returns:
        The program, which the driver may make also after a failure; and why they cannot be linked,
        None if they are.
    """
    code = ctypes.c_int32()
    listed, text = make_handle_array(devices), _convert_options(options)
    parts = make_handle_array(programs)
    arguments = len(devices), listed, text, len(programs), parts, None, None, ctypes.byref(code)
    cl = _run_aside(programs, lambda: context.table.clLinkProgram(context.cl, *arguments))
    made = URProgram(cl, context) if cl else None
    if code.value and code.value not in _LINK:
        check(code.value, "clLinkProgram")
    log = made.log if code.value and made is not None else ""
    return made, LinkError.from_code(code.value, "clLinkProgram", log) if code.value else None


# specialization constants


def check_specialization(program: URProgram) -> None:
    """Raise URError (UNSUPPORTED_FEATURE) for a program that takes no specialization constants."""
    if not any(map(can_take_specialization_constants, program.devices)):
        raise failure("UNSUPPORTED_FEATURE", "specialization constants need SPIR-V and OpenCL 2.2")


def specialize(program: URProgram, constants: list[Any]) -> None:
    """Set specialization constants.

    Args:
        constants: ur_specialization_constant_info_t.

    Raises:
        URError: UNSUPPORTED_FEATURE.
    """
    routine = "clSetProgramSpecializationConstant"
    for constant in constants:
        code = program.table.clSetProgramSpecializationConstant(
            program.cl, constant.id, constant.size, constant.pValue
        )
        if code == _INVALID_OPERATION:  # the driver has the function, which does nothing
            raise failure("UNSUPPORTED_FEATURE", f"the driver has no {routine}")
        check(code, routine, f"Its id is {constant.id}, its size {constant.size}.")


declare_specialization(adapter, specialize, check_specialization)


# queries

#: The ends of Unified Runtime's names by OpenCL's numbers. Other numbers are NONE.
_STATUSES: Final = {
    OPENCL[f"CL_BUILD_{name}"] & 0xFFFFFFFF: name
    for name in ("NONE", "ERROR", "SUCCESS", "IN_PROGRESS")
}
_KINDS: Final = {
    OPENCL[f"CL_PROGRAM_BINARY_TYPE_{name}"]: name.replace("INTERMEDIATE", "COMPILED_OBJECT")
    for name in ("COMPILED_OBJECT", "LIBRARY", "EXECUTABLE", "INTERMEDIATE")
}


class _Build:
    """What the driver says about the build of a program for a device."""

    def __init__(self, program: URProgram, device: URDevice) -> None:
        self._program, self._device = program, device

    def _ask(self, name: str) -> bytes:
        return self._program.query_build_info(self._device, f"CL_PROGRAM_{name}")

    @property
    def status(self) -> str:
        return _STATUSES.get(int.from_bytes(self._ask("BUILD_STATUS"), "little"), "NONE")

    @property
    def kind(self) -> str:
        return _KINDS.get(int.from_bytes(self._ask("BINARY_TYPE"), "little"), "NONE")

    @property
    def options(self) -> str:
        return decode_text(self._ask("BUILD_OPTIONS"))

    @property
    def log(self) -> str:
        return decode_text(self._ask("BUILD_LOG"))


declare_builds(adapter, build_program, link_programs, _Build)
