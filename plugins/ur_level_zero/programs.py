"""Programs of the adapter on Level Zero: a module of Level Zero for each device, made by a build.

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
from dataclasses import dataclass, field
from typing import Any, Final

from ...loader.base.interrupts import run_aside
from ...loader.base.spirv import is_spirv
from ..sdk.objects import Object
from ..sdk.programs import declare_creation, make_program_info
from ..sdk.rules import decode_source, is_ptx
from .contexts import LZContext
from .core import ZE, adapter, call, check, failure, is_owned, make_struct
from .devices import LZDevice

_IL, _NATIVE = ZE["ZE_MODULE_FORMAT_IL_SPIRV"], ZE["ZE_MODULE_FORMAT_NATIVE"]
#: What a driver answers that refuses a program, as opposed to one that fails.
_REFUSED: Final = frozenset(
    ZE.codes[f"ZE_RESULT_ERROR_{name}"]
    for name in ("MODULE_BUILD_FAILURE", "INVALID_NATIVE_BINARY", "MODULE_LINK_FAILURE")
)
_HAS_IMPORTS: Final = ZE["ZE_MODULE_PROPERTY_FLAG_IMPORTS"]
_Constants: Final = ZE.get_struct("ze_module_constants_t")


class LZModule:
    """A ze_module_handle_t, destroyed when nobody holds it.

    Args:
        owned: whether it is destroyed.
    """

    def __init__(self, ze: int, device: LZDevice, owned: bool = True) -> None:
        self.ze, self.device, self.table = ze, device, device.table
        self._end = weakref.finalize(self, self.table.zeModuleDestroy, ze)
        self._end.atexit = False
        if not owned:
            self.leave()

    def leave(self) -> None:
        """Let the program have the handle, which it gave."""
        self._end.detach()

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
        """Return the module's native binary. Raises LevelZeroError."""
        size, routine = ctypes.c_size_t(), "zeModuleGetNativeBinary"
        call(self.table, routine, self.ze, ctypes.byref(size), None)
        data = ctypes.create_string_buffer(max(size.value, 1))
        if size.value:
            call(self.table, routine, self.ze, ctypes.byref(size), data)
        return data.raw[: size.value]

    def link(self) -> tuple[int, str]:
        """Link the module with nothing else, which fails if it has imports.

        Returns:
            A ze_result_t, and the linker's log.
        """
        row = make_struct("module_properties")
        call(self.table, "zeModuleGetProperties", self.ze, ctypes.byref(row))
        if not row.flags & _HAS_IMPORTS:
            return 0, ""
        return link_modules([self])


@dataclass
class LZBuild:
    """What a build has made of a program for a device."""

    module: LZModule | None = None
    status: str = "NONE"
    kind: str = "NONE"
    options: str = ""
    log: str = ""


@dataclass(frozen=True)
class LZInput:
    """What a module is made of, or one of several inputs that are linked.

    Attributes:
        data: SPIR-V, text or a binary.
        options: the options of the compiler that are its own.
        constants: values of specialization constants, by their identifiers.
    """

    data: bytes
    options: str = ""
    constants: dict[int, bytes] = field(default_factory=dict)

    def describe_constants(self) -> Any:
        """Return the ze_module_constants_t, None without constants."""
        if not self.constants:
            return None
        values = [
            ctypes.create_string_buffer(value, len(value)) for value in self.constants.values()
        ]
        count = len(values)
        identifiers = (ctypes.c_uint32 * count)(*self.constants)
        places = (ctypes.c_void_p * count)(*map(ctypes.addressof, values))
        made = _Constants(count, ctypes.addressof(identifiers), ctypes.addressof(places))
        made.kept = values, identifiers, places
        return made


@adapter.kind
class LZProgram(Object):
    """A program.

    Args:
        sources: what its modules are made of, by the device: the format, and one or more inputs.
        il: the SPIR-V that it was made of, b"" if it was made of something else.
    """

    type = "ur_program_handle_t"

    def __init__(
        self,
        context: LZContext,
        sources: dict[LZDevice, tuple[int, Sequence[LZInput]]],
        il: bytes = b"",
    ) -> None:
        self.context, self.sources, self.il = context, sources, il
        self.builds = {device: LZBuild() for device in sources}

    def get_native(self) -> int:
        return self.modules[0].ze

    def leave_native(self) -> None:
        for build in self.builds.values():
            if build.module is not None:
                build.module.leave()

    @property
    def devices(self) -> tuple[LZDevice, ...]:
        """Return the program's devices."""
        return tuple(self.builds)

    def build(
        self, devices: Sequence[LZDevice], options: str, kind: str, *, may_import: bool = False
    ) -> None:
        """Make the modules.

        Args:
            kind: "COMPILED_OBJECT" or "EXECUTABLE".
            may_import: whether an executable may lack what `urProgramDynamicLinkExp` links.

        Raises:
            URError: PROGRAM_BUILD_FAILURE, with the log, or INVALID_DEVICE.
        """
        for device in devices:
            found = self._find_device(device)
            self.builds[found] = made = LZBuild(options=options)
            code, made.module, made.log = self.make(found, options)
            if made.module is not None and kind == "EXECUTABLE" and not may_import:
                code, log = made.module.link()
                made.log = "\n".join(one for one in (made.log, log) if one)
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
        flags = [f"{part.options} {options}".strip().encode() for part in parts]
        constants = [part.describe_constants() for part in parts]
        if len(parts) == 1:
            desc = make_struct(
                "module_desc",
                format=form,
                inputSize=len(parts[0].data),
                pInputModule=parts[0].data,
                pBuildFlags=flags[0],
                pConstants=constants[0],
            )
        else:
            count = len(parts)
            data = [ctypes.create_string_buffer(part.data, len(part.data)) for part in parts]
            places = [0 if one is None else ctypes.addressof(one) for one in constants]
            together = make_struct(
                "module_program_exp_desc",
                count=count,
                inputSizes=(ctypes.c_size_t * count)(*(len(part.data) for part in parts)),
                pInputModules=(ctypes.c_void_p * count)(*map(ctypes.addressof, data)),
                pBuildFlags=(ctypes.c_char_p * count)(*flags),
                pConstants=(ctypes.c_void_p * count)(*places),
            )
            desc = make_struct("module_desc", format=form, pNext=together)
        module, log = ctypes.c_void_p(), ctypes.c_void_p()
        given = device.ze, ctypes.byref(desc), ctypes.byref(module), ctypes.byref(log)

        def compile_it() -> tuple[int, LZModule | None, str]:
            code = table.zeModuleCreate(self.context.ze, *given)
            said = _read_log(table, log.value) if log.value else ""
            return code, None if code else LZModule(module.value or 0, device), said

        return run_aside(compile_it)

    def _find_device(self, device: LZDevice) -> LZDevice:
        for one in self.builds:
            if device.is_part_of(one):
                return one
        raise failure("INVALID_DEVICE", "the program is not for the device")

    def find_build(self, device: LZDevice) -> LZBuild:
        """Return what was built for a device. Raises URError (INVALID_DEVICE)."""
        return self.builds[self._find_device(device)]

    def get_module(self, device: LZDevice) -> LZModule:
        """Return the module. Raises URError (INVALID_PROGRAM_EXECUTABLE) if it is not built."""
        for one, build in self.builds.items():
            if device.is_part_of(one) and build.kind == "EXECUTABLE" and build.module is not None:
                return build.module
        raise failure("INVALID_PROGRAM_EXECUTABLE", "the program is not built for the device")

    @property
    def modules(self) -> list[LZModule]:
        """Return the modules. Raises URError (INVALID_PROGRAM_EXECUTABLE) if it is not built."""
        found = [build.module for build in self.builds.values() if build.kind == "EXECUTABLE"]
        if not found:
            raise failure("INVALID_PROGRAM_EXECUTABLE", "the program is not built")
        return [module for module in found if module is not None]


def link_modules(modules: Sequence[LZModule]) -> tuple[int, str]:
    """Link modules of one driver, of which some have imports. Returns a ze_result_t and the log."""
    table, log = modules[0].table, ctypes.c_void_p()
    listed = (ctypes.c_void_p * len(modules))(*(one.ze for one in modules))
    code = table.zeModuleDynamicLink(len(modules), listed, ctypes.byref(log))
    return code, _read_log(table, log.value) if log.value else ""


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


def _create_from_il(context: LZContext, data: bytes) -> LZProgram:
    has_spirv = is_spirv(data)
    has_text = decode_source(data) is not None and not is_ptx(data)
    takes_text = all(device.takes_text for device in context.devices)
    if not has_spirv and not (has_text and takes_text):
        raise failure("INVALID_BINARY", "this is neither SPIR-V nor text that the driver takes")
    if has_spirv and not any(device.takes_spirv for device in context.devices):
        raise failure("COMPILER_NOT_AVAILABLE", "no device of the context takes SPIR-V")
    source = _IL if has_spirv else _NATIVE, (LZInput(data),)
    made = LZProgram(context, dict.fromkeys(context.devices, source))
    made.il = data if has_spirv else b""
    return made


def _create_from_binaries(
    context: LZContext, devices: list[LZDevice], binaries: list[bytes]
) -> LZProgram:
    """Make a program of native binaries. The driver checks them at once."""
    inputs = [(_NATIVE, (LZInput(one),)) for one in binaries]
    made = LZProgram(context, dict(zip(devices, inputs, strict=True)))
    for device in devices:
        code, module, log = made.make(device, "")
        if code in _REFUSED:
            raise failure("INVALID_BINARY", log)
        check(code, "zeModuleCreate", log)
        made.builds[device] = LZBuild(module, "SUCCESS", "COMPILED_OBJECT", log=log)
    return made


def _take_native(native: int, context: LZContext, properties: Any) -> LZProgram:
    """Return the program of a module, which is for the context's first device."""
    device = context.devices[0]
    made = LZProgram(context, {device: (_NATIVE, ())})
    module = LZModule(native, device, is_owned(properties))
    made.builds[device] = LZBuild(module, "SUCCESS", "EXECUTABLE")
    return made


declare_creation(adapter, _create_from_il, _create_from_binaries, _take_native)


# queries


def _list_binaries(program: LZProgram) -> list[bytes]:
    builds = program.builds.values()
    return [build.module.binary if build.module is not None else b"" for build in builds]


adapter.info(
    "urProgramGetInfo",
    make_program_info(
        il=lambda program: program.il,
        binaries=_list_binaries,
        kernel_names=lambda program: program.modules[0].kernel_names,
    ),
)
