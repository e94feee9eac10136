"""Modules and their build logs. A module is a program of the reference adapter that is built.

A module is SPIR-V where the OpenCL driver takes it. The native format is what the OpenCL driver
makes of a program, or OpenCL C text. A module may have several inputs, which are linked. SPIR-V may
import what other modules export: module_links.py links such modules.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Final

from ...icd.errors import OpenCLError
from ...icd.nvidia_ptx import PtxError, PtxProgram
from ...icd.pocl_structs import find_struct_sizes
from ...loader.base.spirv import SpirvModule, SpirvParameter, is_spirv, read_module, read_parameters
from ...loader.ur.abi import URError
from ...loader.ze.abi import LevelZeroError
from ..opencl.core import create
from ..opencl.kernels import URKernel
from ..opencl.program_builds import (
    BuildError,
    LinkError,
    build_program,
    check_specialization,
    link_programs,
    specialize,
)
from ..opencl.programs import (
    URProgram,
    create_from_binaries,
    create_from_il,
    find_function,
    find_variable,
)
from ..sdk._native import ffi as ur_ffi
from ..sdk._native_ze import ffi
from ..sdk.conversions import keep_text
from ..sdk.objects import Object
from ..sdk.rules import is_ptx
from .contexts import ZeContext
from .core import ZE, driver, find_adapter_code, find_struct, make_failure
from .devices import ZeDevice

driver.codes[BuildError] = "MODULE_BUILD_FAILURE"
driver.codes[LinkError] = "MODULE_LINK_FAILURE"

_IL, _NATIVE = ZE["ZE_MODULE_FORMAT_IL_SPIRV"], ZE["ZE_MODULE_FORMAT_NATIVE"]
_HAS_IMPORTS: Final = ZE["ZE_MODULE_PROPERTY_FLAG_IMPORTS"]
_NO_SPIRV: Final = SpirvModule({}, (), (), ())
_ARGUMENT_INFOS: Final = "-cl-kernel-arg-info"
_SIZE_KERNEL: Final = "fairlead_size_of"
#: What only drivers of GPUs do with a module.
_ZE_OPTION: Final = re.compile(r"(?<!\S)-(?:ze-|zet-|library-compilation(?!\S))\S*")
#: An option, and one of OpenCL C (OpenCL 3.0: "Compiler Options").
_OPTION: Final = re.compile(r"(?<!\S)-\S+")
_KNOWN: Final = re.compile(
    "-(?:D|I|w$|Werror$|g$|cl-(?:std=|kernel-arg-info|single-precision|denorms|fp32-correctly"
    "|opt-disable|strict-aliasing|uniform-work|no-subgroup|mad-enable|no-signed|unsafe-math"
    "|finite-math|fast-relaxed))"
)
#: OpenCL's options for those of Level Zero. Others of its own are left out.
_OPTIONS: Final = {"-ze-opt-disable": "-cl-opt-disable", "-ze-opt-level=O0": "-cl-opt-disable"}


@driver.kind
class ZeBuildLog(Object):
    """What the compiler said."""

    type = "ze_module_build_log_handle_t"

    def __init__(self, text: str) -> None:
        self.text = text.encode("utf-8", "replace") + b"\0"


class ModuleInput:
    """What a module is made of: SPIR-V, text or a binary.

    Args:
        form: a ze_module_format_t.
        constants: values of specialization constants, a ze_module_constants_t or NULL.

    Raises:
        LevelZeroError: INVALID_NATIVE_BINARY, MODULE_BUILD_FAILURE, INVALID_ARGUMENT,
            INVALID_NULL_POINTER.
    """

    def __init__(self, form: int, data: bytes, flags: str, constants: Any) -> None:
        self._form, self.data, self.is_spirv = form, data, is_spirv(data)
        if form == _IL and not self.is_spirv:
            raise make_failure("INVALID_NATIVE_BINARY", "the module is not SPIR-V")
        self.spirv = read_module(data) if self.is_spirv else _NO_SPIRV
        self._options = _ZE_OPTION.sub(lambda found: _OPTIONS.get(found[0], ""), flags)
        self._constants = dict(self._read_constants(constants)) if constants else {}

    @cached_property
    def parameters(self) -> Mapping[str, tuple[SpirvParameter, ...]]:
        """Return what SPIR-V says of the parameters of its kernels, by their names."""
        return read_parameters(self.data) if self.is_spirv else {}

    def _read_constants(self, row: Any) -> Iterator[tuple[int, bytes]]:
        """Yield the identifier and the value of each constant."""
        if row.numConstants and not self.is_spirv:
            raise make_failure("INVALID_ARGUMENT", "only SPIR-V has specialization constants")
        if row.numConstants and not (row.pConstantIds and row.pConstantValues):
            raise make_failure("INVALID_NULL_POINTER", "identifiers or values of constants")
        for index in range(row.numConstants):
            number, value = row.pConstantIds[index], row.pConstantValues[index]
            size = self.spirv.constants.get(number)
            if size is None:
                detail = f"the module has no specialization constant {number}"
                raise make_failure("MODULE_BUILD_FAILURE", detail)
            if not value:
                raise make_failure("INVALID_NULL_POINTER", f"the value of constant {number}")
            yield number, bytes(ffi.buffer(ffi.cast("char *", value), size))

    def create(
        self, context: ZeContext, device: ZeDevice, more: bytes = b""
    ) -> tuple[URProgram, str]:
        """Return a new program that is not built, and the options to build it with.

        Args:
            more: further text, if it is text.

        Raises:
            URError, OpenCLError: what the reference adapter and the OpenCL driver answer.
        """
        data = self.data.rstrip(b"\0") + more if more else self.data
        options = self._options
        try:
            program = create_from_il(context.ur, data)
            if not self.is_spirv:
                options = f"{options} {_ARGUMENT_INFOS}".strip()
        except URError:
            if self.is_spirv or self._form != _NATIVE:
                raise
            program = create_from_binaries(context.ur, [device.ur.root], [data])
        if self._constants:
            rows = ur_ffi.new("ur_specialization_constant_info_t[]", len(self._constants))
            kept = {number: ur_ffi.from_buffer(value) for number, value in self._constants.items()}
            for row, (number, value) in zip(rows, kept.items(), strict=True):
                row.id, row.size = number, len(value)
                row.pValue = int(ur_ffi.cast("uintptr_t", value))
            check_specialization(program)
            specialize(program, list(rows))
        return program, options


def _find_unknown(options: str) -> list[str]:
    """Return the options that are not OpenCL's."""
    return [word for word in _OPTION.findall(options) if not _KNOWN.match(word)]


@driver.kind
class ZeModule(Object):
    """A program that is built for a device.

    Raises:
        BuildError, LinkError, URError, OpenCLError: what the reference adapter and the OpenCL
            driver answer.

    Attributes:
        whole: the device that it is built for, of which `device` may be a part.
        imports: the names of what other modules have to define.
        links: the modules that it is linked with, beside itself; None if it has imports that are
            not linked yet.
        log: what the compiler and the linker have said.
    """

    type = "ze_module_handle_t"

    def __init__(self, context: ZeContext, device: ZeDevice, inputs: Sequence[ModuleInput]) -> None:
        self.context, self.device, self.whole = context, device, device.ur.root
        self._inputs = inputs
        exports = self.exports
        needed = (name for one in inputs for name in one.spirv.imports)
        self.imports = tuple(dict.fromkeys(name for name in needed if name not in exports))
        self.links: tuple[ZeModule, ...] | None = None
        self._program: URProgram | None = None
        self.log = ""
        self._remarks: list[str] = []
        try:
            self.use(self._compile(inputs[0]) if len(inputs) == 1 else self.link(()))
            self.imports = ()  # the driver itself has what is imported, if anything is
        except (BuildError, LinkError):
            if not self.imports:
                raise
            self.log = self._join_logs(self.compiled)

    def _compile(
        self, one: ModuleInput, more: bytes = b"", *, only_compiles: bool = False
    ) -> URProgram:
        """Return an input as a program, compiled or built. Raises BuildError.

        Args:
            more: further text, if it is text.
            only_compiles: whether it is not linked.
        """
        program, options = one.create(self.context, self.device, more)
        given = options
        for shorter in (*self._shorten(options), None):
            try:
                build_program(program, [self.whole], options, only_compiles=only_compiles)
                break
            except BuildError:
                if shorter is None:
                    raise
            program, options = one.create(self.context, self.device, more)[0], shorter
        ignored = [word for word in _find_unknown(given) if word not in options.split()]
        if ignored:
            self._remarks.append(f"unknown build flags are ignored: {' '.join(ignored)}")
        return program

    def _shorten(self, options: str) -> Iterator[str]:
        """Yield what to build it with if the driver refuses these options."""
        if _find_unknown(options):
            options = _OPTION.sub(lambda one: one[0] if _KNOWN.match(one[0]) else "", options)
            yield options
        if self.whole.platform.profile.argument_infos_break_builds and _ARGUMENT_INFOS in options:
            yield options.replace(_ARGUMENT_INFOS, "")

    @property
    def exports(self) -> frozenset[str]:
        """Return the names of the symbols that the module exports."""
        return frozenset(name for one in self._inputs for name in one.spirv.exports)

    @property
    def program(self) -> URProgram:
        """Return the program. Raises LevelZeroError (INVALID_MODULE_UNLINKED) without one."""
        if self._program is None:
            detail = f"imports are not linked: {', '.join(self.imports)}"
            raise make_failure("INVALID_MODULE_UNLINKED", detail)
        return self._program

    @cached_property
    def compiled(self) -> list[URProgram]:
        """Return the inputs, compiled for linking. Raises BuildError and what drivers answer."""
        return [self._compile(one, only_compiles=True) for one in self._inputs]

    def link(self, links: Sequence[ZeModule]) -> URProgram:
        """Link the module with other modules. `use` makes the result its program.

        Raises:
            LinkError: they cannot be linked.
        """
        programs = [program for one in (self, *links) for program in one.compiled]
        made, failed = link_programs(self.context.ur, [self.whole], programs, None)
        if failed is not None:
            raise failed
        assert made is not None
        return made

    def use(self, program: URProgram, links: Sequence[ZeModule] = ()) -> None:
        """Take the module's program, which is linked with other modules."""
        self._program, self.links = program, tuple(links)
        self.log = self._join_logs([program])

    def _join_logs(self, programs: Sequence[URProgram]) -> str:
        return "\n".join(text for text in (*self._remarks, *(one.log for one in programs)) if text)

    @property
    def binary(self) -> bytes:
        """Return the OpenCL driver's binary, or the SPIR-V of an unlinked module.

        Raises:
            LevelZeroError: INVALID_MODULE_UNLINKED if that are several inputs.
            OpenCLError: the driver does not tell.
        """
        if self._program is None and len(self._inputs) == 1:
            return self._inputs[0].data
        return self.program.binaries[self.program.devices.index(self.whole)]

    @cached_property
    def ptx(self) -> PtxProgram | None:
        """Return the PTX, which tells what arguments are. None if the driver makes none."""
        binary = self.binary.rstrip(b"\0")
        try:
            return PtxProgram(binary.decode()) if is_ptx(binary) else None
        except (UnicodeDecodeError, PtxError):
            return None

    @cached_property
    def struct_sizes(self) -> Mapping[str, Mapping[int, int]]:
        """Return the bytes of structs as far as the binary has them: by kernel, by argument."""
        return find_struct_sizes(self.binary)

    def find_size(self, name: str) -> int:
        """Return the bytes of a type of its OpenCL C, 0 if it is not made of any.

        A kernel of this size of groups is compiled with each input. Nothing runs.
        """
        sizes = f"reqd_work_group_size(sizeof({name}), 1, 1)"
        text = f"\nkernel __attribute__(({sizes})) void {_SIZE_KERNEL}(void) {{}}\n"
        for one in self._inputs:
            with suppress(URError, OpenCLError):  # it does not define the type
                program = self._compile(one, text.encode())
                cl = create(program.table, "clCreateKernel", program.cl, _SIZE_KERNEL.encode())
                size, _, _ = URKernel(cl, program).find_required_size(self.whole) or (0, 0, 0)
                return size
        return 0

    def list_parameters(self, kernel: str) -> Sequence[SpirvParameter]:
        """Return what SPIR-V says of the parameters of a kernel, nothing without SPIR-V."""
        return next((p for one in self._inputs if (p := one.parameters.get(kernel))), ())

    @property
    def kernel_names(self) -> list[str]:
        """Return the names of the module's own kernels, not of those linked to it."""
        if all(one.is_spirv for one in self._inputs):
            return [name for one in self._inputs for name in one.spirv.kernels]
        try:
            names = self.program.kernel_names
        except OpenCLError as error:
            if error.code != "CL_INVALID_PROGRAM_EXECUTABLE":  # Intel's answer without kernels
                raise
            return []
        return [name for name in names.split(";") if name]


def _read_text(flags: Any) -> str:
    return ffi.string(flags).decode("utf-8", "replace") if flags else ""


def _read_data(pointer: Any, size: int) -> bytes:
    if not size or not pointer:
        raise make_failure("INVALID_SIZE", "the module is empty")
    return ctypes.string_at(int(ffi.cast("uintptr_t", pointer)), size)


def _read_inputs(desc: Any) -> list[ModuleInput]:
    """Return what a ze_module_desc_t has. Raises LevelZeroError: see `ModuleInput`."""
    stype, kind = "ZE_STRUCTURE_TYPE_MODULE_PROGRAM_EXP_DESC", "ze_module_program_exp_desc_t"
    several = find_struct(desc.pNext, stype, kind)
    if several is None:
        if not desc.pInputModule:
            raise make_failure("INVALID_NULL_POINTER", "desc->pInputModule")
        data, flags = _read_data(desc.pInputModule, desc.inputSize), _read_text(desc.pBuildFlags)
        return [ModuleInput(desc.format, data, flags, desc.pConstants)]
    if not several.count or not several.inputSizes or not several.pInputModules:
        raise make_failure("INVALID_SIZE", "there are no input modules")
    return [
        ModuleInput(
            desc.format,
            _read_data(several.pInputModules[index], several.inputSizes[index]),
            _read_text(several.pBuildFlags[index]) if several.pBuildFlags else "",
            several.pConstants[index] if several.pConstants else ffi.NULL,
        )
        for index in range(several.count)
    ]


@driver.entry
def zeModuleCreate(hContext: ZeContext, hDevice: ZeDevice, desc: Any, phBuildLog: Any) -> ZeModule:
    hContext.check(hDevice)
    try:
        made = ZeModule(hContext, hDevice, _read_inputs(desc))
    except (OpenCLError, URError, LevelZeroError) as error:
        give_log(str(error), phBuildLog)
        raise
    give_log(made.log, phBuildLog)
    return made


def give_log(text: str, into: Any) -> None:
    """Give a log to a caller that asks for it."""
    if into:
        into[0] = driver.objects.give(ZeBuildLog(text))


def keep_string(text: str) -> Any:
    """Return a `char *` of Level Zero for a text. It is never freed."""
    return ffi.cast("char *", int(ur_ffi.cast("uintptr_t", keep_text(text))))


def give_bytes(data: bytes, size: Any, into: Any) -> None:
    """Write as many bytes as there is room for, and how many there are.

    Args:
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
    data = hModule.binary
    pSize[0] = len(data)
    give_bytes(data, pSize, pModuleNativeBinary)


@driver.entry
def zeModuleGetKernelNames(hModule: ZeModule, pCount: Any, pNames: Any) -> None:
    names, room = hModule.kernel_names, pCount[0]
    if pNames is None or not room or room > len(names):
        pCount[0] = len(names)
    if pNames is not None:
        for index, name in enumerate(names[:room]):
            pNames[index] = keep_string(name)


@driver.entry
def zeModuleGetProperties(hModule: ZeModule, pModuleProperties: Any) -> None:
    pModuleProperties.flags = _HAS_IMPORTS if hModule.imports else 0


@driver.entry
def zeModuleGetGlobalPointer(hModule: ZeModule, pGlobalName: str, pSize: Any, pptr: Any) -> None:
    try:
        found = find_variable(hModule.program, hModule.whole, pGlobalName)
    except URError as error:
        if find_adapter_code(error) == "UNSUPPORTED_FEATURE":
            raise
        raise make_failure("INVALID_GLOBAL_NAME", pGlobalName) from error
    if pSize:
        pSize[0] = found[0]
    if pptr:
        pptr[0] = found[1]


@driver.entry
def zeModuleGetFunctionPointer(hModule: ZeModule, pFunctionName: str) -> int:
    found = find_function(hModule.program, hModule.whole, pFunctionName)
    if not found:
        raise make_failure("INVALID_FUNCTION_NAME", pFunctionName)
    return found
