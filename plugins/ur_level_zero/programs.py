"""Programs: a module of Level Zero for each device, made by a build.

urProgramCreateWithIL takes SPIR-V. Unified Runtime has no function for source text. So it also
takes OpenCL C where the driver does in its native format, as fairlead's own driver. Such devices
have the extension fairlead_opencl_c.

Level Zero links a module when it makes it. So a compilation makes a module, too, and linking one
program takes that module. Several programs of SPIR-V are linked by ZE_experimental_module_program.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...loader.base.interrupts import run_aside
from ..sdk.objects import Object
from ..sdk.queries import program_info
from ..sdk.rules import check_metadata, read_binaries, source_of
from .contexts import LZContext
from .core import (
    ZE,
    adapter,
    call,
    check,
    failure,
    is_owned,
    struct,
)
from .devices import LZDevice

_SPIRV: Final = (b"\x03\x02\x23\x07", b"\x07\x23\x02\x03")
_IL, _NATIVE = ZE["ZE_MODULE_FORMAT_IL_SPIRV"], ZE["ZE_MODULE_FORMAT_NATIVE"]
#: What a driver answers that refuses a program, as opposed to one that fails.
_REFUSED: Final = frozenset(
    ZE.codes[f"ZE_RESULT_ERROR_{name}"]
    for name in ("MODULE_BUILD_FAILURE", "INVALID_NATIVE_BINARY", "MODULE_LINK_FAILURE")
)
_Constants: Final = ZE.struct("ze_module_constants_t")


class LZModule:
    """A ze_module_handle_t, destroyed when nobody holds it.

    Args:
        ze: its handle.
        device: its device.
        owned: whether it is destroyed.
    """

    def __init__(self, ze: int, device: LZDevice, owned: bool = True) -> None:
        self.ze, self.device, self.table = ze, device, device.table
        if owned:
            weakref.finalize(self, self.table.zeModuleDestroy, ze).atexit = False

    @property
    def kernel_names(self) -> list[str]:
        """Return the names of its kernels. Raises LevelZeroError."""
        count, routine = ctypes.c_uint32(), "zeModuleGetKernelNames"
        call(self.table, routine, self.ze, ctypes.byref(count), None)
        names = (ctypes.c_char_p * count.value)()
        if count.value:
            call(self.table, routine, self.ze, ctypes.byref(count), names)
        return [(name or b"").decode("utf-8", "replace") for name in names]

    @property
    def binary(self) -> bytes:
        """Return its native binary. Raises LevelZeroError."""
        size, routine = ctypes.c_size_t(), "zeModuleGetNativeBinary"
        call(self.table, routine, self.ze, ctypes.byref(size), None)
        data = ctypes.create_string_buffer(max(size.value, 1))
        if size.value:
            call(self.table, routine, self.ze, ctypes.byref(size), data)
        return data.raw[: size.value]


@dataclass
class LZBuild:
    """What a build has made of a program for a device."""

    module: LZModule | None = None
    status: str = "NONE"
    kind: str = "NONE"
    options: str = ""
    log: str = ""


@adapter.kind
class LZProgram(Object):
    """A program.

    Args:
        context: its context.
        sources: what its modules are made of, by the device: the format, and the data of one or
            more.
        il: the SPIR-V that it was made of, b"" if it was made of something else.

    Attributes:
        builds: what was built, by the device.
        constants: values of specialization constants, by their identifiers.
    """

    type = "ur_program_handle_t"

    def __init__(
        self,
        context: LZContext,
        sources: dict[LZDevice, tuple[int, Sequence[bytes]]],
        il: bytes = b"",
    ) -> None:
        self.context, self.sources, self.il = context, sources, il
        self.builds = {device: LZBuild() for device in sources}
        self.constants: dict[int, bytes] = {}

    @property
    def devices(self) -> tuple[LZDevice, ...]:
        """Return the devices that it is for."""
        return tuple(self.builds)

    def build(self, devices: Sequence[LZDevice], options: str, kind: str) -> None:
        """Make the modules.

        Args:
            devices: for which devices.
            options: the compiler's options.
            kind: "COMPILED_OBJECT" or "EXECUTABLE".

        Raises:
            URError: PROGRAM_BUILD_FAILURE, with the log, or INVALID_DEVICE.
            LevelZeroError: what else the driver answers.
        """
        for device in devices:
            found = next((one for one in self.builds if device.is_part_of(one)), None)
            if found is None:
                raise failure("INVALID_DEVICE", "the program is not for the device")
            self.builds[found] = made = LZBuild(options=options)
            code, made.module, made.log = self.make(found, options)
            made.status = "ERROR" if code else "SUCCESS"
            if code in _REFUSED:
                raise failure("PROGRAM_BUILD_FAILURE", made.log)
            check(code, "zeModuleCreate", made.log)
            made.kind = kind

    def make(self, device: LZDevice, options: str) -> tuple[int, LZModule | None, str]:
        """Make a module. Ctrl-C ends the wait for the compiler.

        Returns:
            A ze_result_t, the module, and the compiler's log.
        """
        form, parts = self.sources[device]
        table = device.table
        constants = self._constants()
        text = options.encode()
        if len(parts) == 1:
            desc = struct(
                "module_desc",
                format=form,
                inputSize=len(parts[0]),
                pInputModule=parts[0],
                pBuildFlags=text,
                pConstants=constants,
            )
        else:
            count = len(parts)
            data = [ctypes.create_string_buffer(part, len(part)) for part in parts]
            together = struct(
                "module_program_exp_desc",
                count=count,
                inputSizes=(ctypes.c_size_t * count)(*map(len, parts)),
                pInputModules=(ctypes.c_void_p * count)(*map(ctypes.addressof, data)),
                pBuildFlags=(ctypes.c_char_p * count)(*[text] * count),
            )
            desc = struct("module_desc", format=form, pNext=together)
        module, log = ctypes.c_void_p(), ctypes.c_void_p()
        given = device.ze, ctypes.byref(desc), ctypes.byref(module), ctypes.byref(log)

        def compile_it() -> tuple[int, LZModule | None, str]:
            code = table.zeModuleCreate(self.context.ze, *given)
            said = _read_log(table, log.value) if log.value else ""
            return code, None if code else LZModule(module.value or 0, device), said

        return run_aside(compile_it)

    def _constants(self) -> Any:
        if not self.constants:
            return None
        count = len(self.constants)
        values = [
            ctypes.create_string_buffer(value, len(value)) for value in self.constants.values()
        ]
        identifiers = (ctypes.c_uint32 * count)(*self.constants)
        places = (ctypes.c_void_p * count)(*map(ctypes.addressof, values))
        made = _Constants(count, ctypes.addressof(identifiers), ctypes.addressof(places))
        made.kept = values, identifiers, places
        return made

    def module_for(self, device: LZDevice) -> LZModule:
        """Return its module. Raises URError (INVALID_PROGRAM_EXECUTABLE) if it is not built."""
        for one, build in self.builds.items():
            if device.is_part_of(one) and build.kind == "EXECUTABLE" and build.module is not None:
                return build.module
        raise failure("INVALID_PROGRAM_EXECUTABLE", "the program is not built for the device")

    @property
    def modules(self) -> list[LZModule]:
        """Return its modules. Raises URError (INVALID_PROGRAM_EXECUTABLE) if it is not built."""
        found = [build.module for build in self.builds.values() if build.kind == "EXECUTABLE"]
        if not found:
            raise failure("INVALID_PROGRAM_EXECUTABLE", "the program is not built")
        return [module for module in found if module is not None]


def _read_log(table: Any, log: int) -> str:
    """Return what a build log says, and destroy it."""
    size = ctypes.c_size_t()
    table.zeModuleBuildLogGetString(log, ctypes.byref(size), None)
    data = ctypes.create_string_buffer(max(size.value, 1))
    if size.value:
        table.zeModuleBuildLogGetString(log, ctypes.byref(size), data)
    table.zeModuleBuildLogDestroy(log)
    return data.value.decode("utf-8", "replace").strip()


# creation


@adapter.entry
def urProgramCreateWithIL(
    hContext: LZContext, pIL: int, length: int, pProperties: Any
) -> LZProgram:
    check_metadata(pProperties)
    if not length:
        raise failure("INVALID_SIZE", "the IL is empty")
    data = ctypes.string_at(pIL, length)
    is_spirv = data.startswith(_SPIRV)
    takes_text = all(device.takes_text for device in hContext.devices)
    if not is_spirv and (source_of(data) is None or not takes_text):
        raise failure("INVALID_BINARY", "this is neither SPIR-V nor text that the driver takes")
    if is_spirv and not any(device.takes_spirv for device in hContext.devices):
        raise failure("COMPILER_NOT_AVAILABLE", "no device of the context takes SPIR-V")
    source = _IL if is_spirv else _NATIVE, (data,)
    made = LZProgram(hContext, dict.fromkeys(hContext.devices, source))
    made.il = data if is_spirv else b""
    return made


@adapter.entry
def urProgramCreateWithBinary(
    hContext: LZContext,
    numDevices: int,
    phDevices: list[LZDevice],
    pLengths: list[int],
    ppBinaries: Any,
    pProperties: Any,
) -> LZProgram:
    """Make a program of native binaries. The driver checks them at once."""
    check_metadata(pProperties)
    data = read_binaries(hContext, phDevices, pLengths, ppBinaries)
    made = LZProgram(
        hContext, {device: (_NATIVE, (one,)) for device, one in zip(phDevices, data, strict=True)}
    )
    for device in phDevices:
        code, module, log = made.make(device, "")
        if code in _REFUSED:
            raise failure("INVALID_NATIVE_BINARY", log)
        check(code, "zeModuleCreate", log)
        made.builds[device] = LZBuild(module, "SUCCESS", "COMPILED_OBJECT", log=log)
    return made


@adapter.entry
def urProgramGetNativeHandle(hProgram: LZProgram) -> int:
    return hProgram.modules[0].ze


@adapter.entry
def urProgramCreateWithNativeHandle(
    hNativeProgram: int, hContext: LZContext, pProperties: Any
) -> LZProgram:
    """Make the program of a module, which is for the context's first device."""
    if not hNativeProgram:
        raise failure("INVALID_NULL_HANDLE")
    device = hContext.devices[0]
    made = LZProgram(hContext, {device: (_NATIVE, ())})
    module = LZModule(hNativeProgram, device, is_owned(pProperties))
    made.builds[device] = LZBuild(module, "SUCCESS", "EXECUTABLE")
    return made


# queries


def _binaries(program: LZProgram) -> list[bytes]:
    builds = program.builds.values()
    return [build.module.binary if build.module is not None else b"" for build in builds]


adapter.info(
    "urProgramGetInfo",
    program_info(
        il=lambda program: program.il,
        binaries=_binaries,
        kernel_names=lambda program: program.modules[0].kernel_names,
    ),
)
