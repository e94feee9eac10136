"""Builds of programs of the adapter on Level Zero: compile, link, specialization constants,
queries, and variables.

A failure is PROGRAM_BUILD_FAILURE or PROGRAM_LINK_FAILURE. urAdapterGetLastError returns the log.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from ...loader.base.spirv import read_module
from ...loader.ur.abi import UR, URError
from ..sdk.programs import (
    declare_addresses,
    declare_builds,
    declare_specialization,
    declare_variable_copies,
)
from .contexts import LZContext
from .core import LevelZeroError, adapter, call, failure
from .devices import LZDevice
from .enqueue import enqueues
from .memory import copy_memory
from .programs import LZBuild, LZProgram, link_modules

_EXECUTABLE: Final = "EXECUTABLE"
_MAY_IMPORT: Final = UR["UR_EXP_PROGRAM_FLAG_ALLOW_UNRESOLVED_SYMBOLS"]


def _build(
    program: LZProgram,
    devices: Sequence[LZDevice],
    options: str | None,
    flags: int,
    *,
    only_compiles: bool,
) -> None:
    kind = "COMPILED_OBJECT" if only_compiles else _EXECUTABLE
    may_import = bool(flags & _MAY_IMPORT)
    program.build(devices or program.devices, options or "", kind, may_import=may_import)


def _link(
    context: LZContext, devices: Sequence[LZDevice], programs: list[LZProgram], options: str | None
) -> tuple[LZProgram, URError | None]:
    """Link programs that are compiled.

    Args:
        devices: what to link for, nothing for all devices of the first program.

    Raises:
        URError: INVALID_OPERATION, INVALID_DEVICE, PROGRAM_LINK_FAILURE.
    """
    chosen = devices or programs[0].devices
    if any(program.builds[one].module is None for program in programs for one in program.devices):
        raise failure("INVALID_OPERATION", "a program to link is not compiled")
    sources = {}
    for device in chosen:
        own = [program for program in programs if device in program.sources]
        forms = {program.sources[device][0] for program in own}
        if len(forms) != 1:
            raise failure("INVALID_DEVICE", "a program is not for the device, or of another format")
        inputs = [
            replace(one, options=program.builds[device].options)
            for program in own
            for one in program.sources[device][1]
        ]
        sources[device] = forms.pop(), inputs
    made = LZProgram(context, sources)
    if len(programs) == 1:
        only = programs[0]
        for device in chosen:
            build = only.builds[device]
            code, log = build.module.link() if build.module is not None else (0, "")
            if code:
                raise failure("PROGRAM_LINK_FAILURE", log)
            made.builds[device] = LZBuild(build.module, "SUCCESS", _EXECUTABLE, log=build.log)
        return made, None
    try:
        made.build(chosen, options or "", _EXECUTABLE)
    except URError:
        log = "\n".join(build.log for build in made.builds.values())
        return made, failure("PROGRAM_LINK_FAILURE", log)
    return made, None


declare_builds(adapter, _build, _link, LZProgram.find_build)


@adapter.entry
def urProgramDynamicLinkExp(hContext: LZContext, phPrograms: list[LZProgram]) -> None:
    """Link executables that were built with UR_EXP_PROGRAM_FLAG_ALLOW_UNRESOLVED_SYMBOLS."""
    if not phPrograms:
        raise failure("INVALID_SIZE", "there is no program to link")
    hContext.check_same("a program", *phPrograms)
    for device in phPrograms[0].devices:
        code, log = link_modules([program.get_module(device) for program in phPrograms])
        if code:
            raise failure("PROGRAM_LINK_FAILURE", log)


def _specialize(program: LZProgram, constants: list[Any]) -> None:
    """Note values for the next build. The SPIR-V says which identifiers and sizes there are."""
    known = read_module(program.il).constants
    for constant in constants:
        size = known.get(constant.id)
        if size is None:
            raise failure("INVALID_SPEC_ID", f"the program has no constant {constant.id}")
        if constant.size != size:
            raise failure("INVALID_VALUE", f"constant {constant.id} has {size} bytes")
    given = {one.id: ctypes.string_at(one.pValue, one.size) for one in constants}
    for _, inputs in program.sources.values():
        inputs[0].constants.update(given)


declare_specialization(adapter, _specialize)


# addresses


def _find_function(program: LZProgram, device: LZDevice, name: str) -> int:
    module, address = program.get_module(device), ctypes.c_void_p()
    given = module.ze, name.encode(), ctypes.byref(address)
    try:
        call(module.table, "zeModuleGetFunctionPointer", *given)
    except LevelZeroError:
        if name in module.kernel_names:
            return 0
        raise
    return address.value or 0


def _find_variable(program: LZProgram, device: LZDevice, name: str) -> tuple[int, int]:
    module, size, address = program.get_module(device), ctypes.c_size_t(), ctypes.c_void_p()
    given = name.encode(), ctypes.byref(size), ctypes.byref(address)
    call(module.table, "zeModuleGetGlobalPointer", module.ze, *given)
    return size.value, address.value or 0


def _list_kernel_names(program: LZProgram, device: LZDevice) -> list[str]:
    return program.get_module(device).kernel_names


declare_addresses(adapter, _find_function, _list_kernel_names, _find_variable)
declare_variable_copies(enqueues, _find_variable, copy_memory)
