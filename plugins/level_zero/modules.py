"""Modules and their build logs. A module is a program of the reference adapter that is built.

A module is SPIR-V where the OpenCL driver takes it. The native format is what the OpenCL driver
makes of a program, or OpenCL C text. A module is linked completely when it is made: there are no
imports."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from ...icd.errors import OpenCLError
from ...loader.ur.abi import URError
from ..opencl.program_builds import BuildError, LinkError, urProgramBuildExp
from ..opencl.programs import (
    URProgram,
    urProgramCreateWithBinary,
    urProgramCreateWithIL,
    urProgramGetFunctionPointer,
    urProgramGetGlobalVariablePointer,
)
from ..sdk._native import ffi as ur_ffi
from ..sdk._native_ze import ffi
from ..sdk.conversions import keep_text
from ..sdk.objects import Object
from .contexts import ZeContext
from .core import ZE, code_of_adapter, driver, find_struct, ze_failure
from .devices import ZeDevice

driver.codes[BuildError] = "MODULE_BUILD_FAILURE"
driver.codes[LinkError] = "MODULE_LINK_FAILURE"

_SPIRV: Final = b"\x03\x02\x23\x07"
#: OpenCL's options for those of Level Zero. Others that begin with -ze- are left out.
_OPTIONS: Final = {"-ze-opt-disable": "-cl-opt-disable", "-ze-opt-level=O0": "-cl-opt-disable"}


@driver.kind
class ZeBuildLog(Object):
    """What the compiler said."""

    type = "ze_module_build_log_handle_t"

    def __init__(self, text: str) -> None:
        self.text = text.encode("utf-8", "replace") + b"\0"


@driver.kind
class ZeModule(Object):
    """A program that is built for a device.

    Args:
        context: its context.
        device: its device.
        program: the program.

    Attributes:
        whole: the device that it is built for, of which `device` may be a part.
    """

    type = "ze_module_handle_t"

    def __init__(self, context: ZeContext, device: ZeDevice, program: URProgram) -> None:
        self.context, self.device, self.program = context, device, program
        self.whole = device.ur.root

    @property
    def kernel_names(self) -> list[str]:
        """Return the names of its kernels."""
        return [name for name in self.program.kernel_names.split(";") if name]


def _options(flags: str) -> str:
    words = (_OPTIONS.get(word, word) for word in flags.split())
    return " ".join(word for word in words if not word.startswith("-ze-"))


def _program_of(context: ZeContext, device: ZeDevice, desc: Any) -> tuple[URProgram, str]:
    """Return a program that is not built, and the options to build it with."""
    if not desc.pInputModule:
        program_desc = find_struct(
            desc.pNext,
            "ZE_STRUCTURE_TYPE_MODULE_PROGRAM_EXP_DESC",
            "ze_module_program_exp_desc_t",
        )
        if program_desc is None:
            raise ze_failure("INVALID_NULL_POINTER", "desc->pInputModule")
        if program_desc.count != 1:
            raise ze_failure("UNSUPPORTED_FEATURE", "a module of several SPIR-V modules")
        address = int(ffi.cast("uintptr_t", program_desc.pInputModules[0]))
        size, flags = program_desc.inputSizes[0], ffi.NULL
        if program_desc.pBuildFlags:
            flags = program_desc.pBuildFlags[0]
        constants = program_desc.pConstants[0] if program_desc.pConstants else ffi.NULL
    else:
        address, size = int(ffi.cast("uintptr_t", desc.pInputModule)), desc.inputSize
        flags, constants = desc.pBuildFlags, desc.pConstants
    if not size or not address:
        raise ze_failure("INVALID_SIZE", "the module is empty")
    if constants and constants.numConstants:
        raise ze_failure("UNSUPPORTED_FEATURE", "specialization constants")
    text = ffi.string(flags).decode("utf-8", "replace") if flags else ""
    data = ctypes.string_at(address, size)
    is_spirv = data.startswith(_SPIRV)
    if desc.format == ZE["ZE_MODULE_FORMAT_IL_SPIRV"] and not is_spirv:
        raise ze_failure("INVALID_NATIVE_BINARY", "the module is not SPIR-V")
    try:
        program = urProgramCreateWithIL(context.ur, address, size, None)
        names_arguments = not is_spirv
    except URError:
        if is_spirv or desc.format != ZE["ZE_MODULE_FORMAT_NATIVE"]:
            raise
        listed = ur_ffi.new("uintptr_t[]", [address])
        program = urProgramCreateWithBinary(context.ur, 1, [device.ur.root], [size], listed, None)
        names_arguments = False
    options = _options(text)
    return program, f"{options} -cl-kernel-arg-info".strip() if names_arguments else options


@driver.entry
def zeModuleCreate(hContext: ZeContext, hDevice: ZeDevice, desc: Any, phBuildLog: Any) -> ZeModule:
    hContext.check(hDevice)
    try:
        program, options = _program_of(hContext, hDevice, desc)
        urProgramBuildExp(program, [hDevice.ur.root], 0, options or None)
    except (OpenCLError, URError) as error:
        if phBuildLog:
            phBuildLog[0] = driver.objects.give(ZeBuildLog(str(error)))
        raise
    if phBuildLog:
        phBuildLog[0] = driver.objects.give(ZeBuildLog(program.log))
    return ZeModule(hContext, hDevice, program)


@driver.entry
def zeModuleDynamicLink(numModules: int, phModules: list[ZeModule], phLinkLog: Any) -> None:
    """Succeed, because every module is linked already."""
    if not numModules:
        raise ze_failure("INVALID_SIZE", "there is nothing to link")
    if phLinkLog:
        phLinkLog[0] = driver.objects.give(ZeBuildLog(""))


def give_bytes(data: bytes, size: Any, into: Any) -> None:
    """Write as many bytes as there is room for, and how many there are.

    Args:
        data: the bytes.
        size: the room; where the number is written.
        into: where to write, None to ask for the number.
    """
    if into is not None:
        room = min(size[0], len(data))
        ffi.memmove(into, data, room)
    size[0] = len(data)


@driver.entry
def zeModuleBuildLogGetString(hModuleBuildLog: ZeBuildLog, pSize: Any, pBuildLog: Any) -> None:
    give_bytes(hModuleBuildLog.text, pSize, pBuildLog)


@driver.entry
def zeModuleGetNativeBinary(hModule: ZeModule, pSize: Any, pModuleNativeBinary: Any) -> None:
    """Write a module as the OpenCL driver has compiled it, all of it: there is no room to give.

    Intel's second Unified Runtime adapter leaves the size uninitialized.
    """
    program = hModule.program
    place = program.devices.index(hModule.whole)
    data = program.binaries[place]
    pSize[0] = len(data)
    give_bytes(data, pSize, pModuleNativeBinary)


@driver.entry
def zeModuleGetKernelNames(hModule: ZeModule, pCount: Any, pNames: Any) -> None:
    names, room = hModule.kernel_names, pCount[0]
    if pNames is None or not room or room > len(names):
        pCount[0] = len(names)
    if pNames is not None:
        for index, name in enumerate(names[:room]):
            pNames[index] = ffi.cast("char *", int(ur_ffi.cast("uintptr_t", keep_text(name))))


@driver.entry
def zeModuleGetProperties(hModule: ZeModule, pModuleProperties: Any) -> None:
    pModuleProperties.flags = 0  # there are no imports


@driver.entry
def zeModuleGetGlobalPointer(hModule: ZeModule, pGlobalName: str, pSize: Any, pptr: Any) -> None:
    try:
        found = urProgramGetGlobalVariablePointer(hModule.whole, hModule.program, pGlobalName)
    except URError as error:
        if code_of_adapter(error) == "UNSUPPORTED_FEATURE":
            raise
        raise ze_failure("INVALID_GLOBAL_NAME", pGlobalName) from error
    if pSize:
        pSize[0] = found[0]
    if pptr:
        pptr[0] = found[1]


@driver.entry
def zeModuleGetFunctionPointer(hModule: ZeModule, pFunctionName: str) -> int:
    try:
        return urProgramGetFunctionPointer(hModule.whole, hModule.program, pFunctionName)
    except URError as error:
        if code_of_adapter(error) == "UNSUPPORTED_FEATURE":
            raise
        raise ze_failure("INVALID_FUNCTION_NAME", pFunctionName) from error
