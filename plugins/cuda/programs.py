"""Programs of CUDA and HIP: created, built, queried. A built program is a module of the driver's on
each device.

urProgramCreateWithBinary takes binaries, urProgramCreateWithIL takes text. device_code.py says how
text is compiled. Unified Runtime has no function for source text, so this is an extension of ours.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from ...loader.base.errors import CodeError
from ..sdk.conversions import is_owned
from ..sdk.gpu.device_code import DeviceCode, DeviceCodeError, DeviceCodeLinkError, Sizes
from ..sdk.programs import (
    ProgramBuild,
    declare_addresses,
    declare_builds,
    declare_creation,
    make_program_info,
)
from ..sdk.rules import decode_source
from .contexts import CuContext
from .core import API, NOT_FOUND, DriverError, Object, adapter, failure
from .device_code import (
    MAGIC,
    SourceError,
    build_code,
    compile_object,
    link_code,
    make_foreign_code,
)
from .devices import CuDevice
from .jit_log import JitLog


class ModuleError(CodeError):
    """The driver does not take a program. The text is the compiler's log."""

    api, api_name, unknown = API.abi, API.name, DriverError.unknown


adapter.codes[ModuleError] = adapter.codes[DeviceCodeError] = "PROGRAM_BUILD_FAILURE"
adapter.codes[DeviceCodeLinkError] = "PROGRAM_LINK_FAILURE"


class CuModule:
    """A module of the driver's on a device, unloaded when it is dropped.

    Args:
        handle: the driver's module.
        log: what the compiler said.
        owned: whether the driver's module is ours.
    """

    def __init__(self, device: CuDevice, handle: int, log: str = "", *, owned: bool = True) -> None:
        self.device, self.handle, self.log, self.owned = device, handle, log, owned

    @classmethod
    def load(cls, device: CuDevice, binary: bytes) -> CuModule:
        """Load a module.

        Raises:
            ModuleError: the driver does not take it.
        """
        data = ctypes.create_string_buffer(binary)  # text ends with a NUL
        log, made = JitLog(), ctypes.c_void_p()
        code = device.ask("ModuleLoadDataEx", ctypes.byref(made), data, *log.options)
        log.check(code, "ModuleLoadDataEx", ModuleError.from_code)
        return cls(device, made.value or 0, log.text)

    def find_function(self, name: str) -> int:
        """Return the driver's function of a kernel. Raises DriverError."""
        return self.device.make("ModuleGetFunction", self.handle, name.encode())

    def __del__(self) -> None:
        if self.__dict__.get("owned"):
            self.device.ask("ModuleUnload", self.handle)


@adapter.kind
class CuProgram(Object):
    """A program.

    Args:
        inputs: what it is made of, for each of its devices.
        il: the text that it was made of, b"" if it was made of binaries.

    Attributes:
        modules: its modules, by the device, after a build.
        built: what it was built to, by the device. It knows the kernels.
        objects: what it was compiled to, by the device, to be linked.
        status: its ur_program_build_status_t, by the device.
        options: those of the last build.
    """

    type = "ur_program_handle_t"

    def __init__(self, context: CuContext, inputs: dict[CuDevice, bytes], il: bytes = b"") -> None:
        self.context, self.inputs, self.il = context, inputs, il
        self.modules: dict[CuDevice, CuModule] = {}
        self.built: dict[CuDevice, DeviceCode] = {}
        self.objects: dict[CuDevice, Any] = {}
        self._variants: dict[tuple[CuModule, Any], CuModule] = {}
        self.status: dict[CuDevice, str] = {}
        self.logs: dict[CuDevice, str] = {}
        self.options = ""

    def get_native(self) -> int:
        """Return the driver's module on the first device for which it is built.

        Raises:
            URError: UNSUPPORTED_FEATURE if it is built for no device. The query lists no other
                code for that.
        """
        if not self.modules:
            raise failure("UNSUPPORTED_FEATURE", "a program that is not built has no module")
        return self.any_module.handle

    def leave_native(self) -> None:
        for module in self.modules.values():
            module.owned = False

    @property
    def devices(self) -> tuple[CuDevice, ...]:
        """Return the program's devices."""
        return tuple(self.inputs)

    def build(self, devices: list[CuDevice], options: str | None) -> None:
        """Build the program for devices.

        Raises:
            ModuleError: the driver does not take it.
        """

        def build(device: CuDevice, data: bytes) -> None:
            code = build_code(device, data, self.options)
            self.adopt(CuModule.load(device, code.data), code)

        self._call_for_each(devices, options, build)

    def compile(self, devices: list[CuDevice], options: str | None) -> None:
        """Compile the program for devices, to be linked.

        Raises:
            DeviceCodeError: the compiler refuses it.
        """

        def compile_it(device: CuDevice, data: bytes) -> None:
            self.objects[device] = compile_object(device, data, self.options)

        self._call_for_each(devices, options, compile_it)

    def _call_for_each(
        self, devices: list[CuDevice], options: str | None, work: Callable[[CuDevice, bytes], None]
    ) -> None:
        self.options = options or ""
        for device in devices:
            if device not in self.inputs:
                raise failure("INVALID_DEVICE", "the program has no binary for the device")
            self.status[device], self.logs[device] = "ERROR", ""
            try:
                work(device, self.inputs[device])
            except (ModuleError, DeviceCodeError, SourceError) as error:
                self.logs[device] = str(error)
                raise
            self.status[device] = "SUCCESS"

    def adopt(self, module: CuModule, code: DeviceCode) -> None:
        """Note what the program is built to on the module's device.

        Args:
            module: the module for launches of one dimension without an offset.
            code: what the module was loaded from.
        """
        device = module.device
        self.modules[device], self.logs[device] = module, module.log
        self.built[device], self.status[device] = code, "SUCCESS"

    def get_plain_module(self, device: CuDevice) -> CuModule:
        """Return the program's module on a device. Raises URError (INVALID_PROGRAM_EXECUTABLE)."""
        found = self.modules.get(device)
        if found is None:
            raise failure("INVALID_PROGRAM_EXECUTABLE", "the program is not built for the device")
        return found

    def get_code(self, device: CuDevice) -> DeviceCode:
        """Return the program's code on a device. Raises URError (INVALID_PROGRAM_EXECUTABLE)."""
        self.get_plain_module(device)
        return self.built[device]

    def get_module(
        self, device: CuDevice, dimensions: int, offset: Sizes, part: Sequence[Sizes] = ()
    ) -> CuModule:
        """Return the program's module for a launch.

        Args:
            part: for a part of a launch, what `DeviceCode.choose_part` takes.

        Raises:
            URError: INVALID_PROGRAM_EXECUTABLE, UNSUPPORTED_FEATURE.
        """
        first, code = self.get_plain_module(device), self.get_code(device)
        variant = code.find_variant(dimensions, offset)
        if part:
            variant = code.choose_part(variant, *part)
        if variant == code.find_variant(1, (0, 0, 0)):
            return first
        if (first, variant) not in self._variants:
            self._variants[first, variant] = CuModule.load(device, code.make_data(variant))
        return self._variants[first, variant]

    @property
    def kernel_names(self) -> list[str]:
        """Return the names of its kernels. Raises DriverError, and as `any_module`."""
        module = self.any_module
        return self.built[module.device].list_kernel_names(module.handle)

    @property
    def any_module(self) -> CuModule:
        """Return one of the program's modules. Raises URError (INVALID_PROGRAM_EXECUTABLE)."""
        if not self.modules:
            raise failure("INVALID_PROGRAM_EXECUTABLE", "the program is not built")
        return next(iter(self.modules.values()))


def is_binary(data: bytes) -> bool:
    """Return whether the driver may load data: a binary, or text with kernels."""
    if data.startswith(MAGIC):
        return True
    text = decode_source(data)
    return text is not None and any(word in text for word in (b".version", b"kernel"))


def _create_from_text(context: CuContext, data: bytes) -> CuProgram:
    text = decode_source(data)
    if text is None:
        raise failure("INVALID_BINARY", "this is not text")
    return CuProgram(context, dict.fromkeys(context.devices, text), text)


def _create_from_binaries(
    context: CuContext, devices: list[CuDevice], binaries: list[bytes]
) -> CuProgram:
    if not all(map(is_binary, binaries)):
        raise failure("INVALID_BINARY", f"it is neither text nor a binary of {API.name}")
    return CuProgram(context, dict(zip(devices, binaries, strict=True)))


def _build(
    program: CuProgram,
    devices: Sequence[CuDevice],
    options: str | None,
    flags: int,
    *,
    only_compiles: bool,
) -> None:
    make = program.compile if only_compiles else program.build
    make(list(devices or program.devices), options)


def _link(
    context: CuContext,
    devices: Sequence[CuDevice],
    programs: Sequence[CuProgram],
    options: str | None,
) -> tuple[CuProgram, None]:
    """Make a program of compiled ones.

    Raises:
        DeviceCodeLinkError: they cannot be linked.
    """
    binaries = {}
    for device in devices or context.devices:
        if not all(device in one.objects for one in programs):
            raise DeviceCodeLinkError(
                "urProgramCompile comes before, for each program and each device"
            )
        objects = [one.objects[device] for one in programs]
        binaries[device] = link_code(device, objects, options or "")
    made = CuProgram(context, {device: code.data for device, code in binaries.items()})
    made.options = options or ""
    for device, code in binaries.items():
        made.adopt(CuModule.load(device, code.data), code)
    return made, None


def _find_build(program: CuProgram, device: CuDevice) -> ProgramBuild:
    compiled = "COMPILED_OBJECT" if device in program.objects else "NONE"
    kind = "EXECUTABLE" if device in program.modules else compiled
    status, log = program.status.get(device, "NONE"), program.logs.get(device, "")
    return ProgramBuild(status, kind, program.options, log)


declare_builds(adapter, _build, _link, _find_build)


def make_program(native: int, context: CuContext, properties: Any) -> CuProgram:
    """Return a program for a module of the driver's. It has no binary.

    Args:
        native: the driver's module.
        properties: a struct with `isNativeHandleOwned`, or None.
    """
    made = CuProgram(context, {context.device: b""})
    device = context.device
    module = CuModule(device, native, owned=is_owned(properties))
    made.adopt(module, make_foreign_code(device, native))
    return made


declare_creation(adapter, _create_from_text, _create_from_binaries, make_program)

adapter.info(
    "urProgramGetInfo",
    make_program_info(
        il=lambda program: program.il + b"\0" if program.il else b"",
        binaries=lambda program: list(program.inputs.values()),
        kernel_names=lambda program: program.kernel_names,
    ),
)


# device globals


def find_variable(program: CuProgram, device: CuDevice, name: str) -> tuple[int, int]:
    """Return the size and the address of a global variable of a program.

    Raises:
        URError: INVALID_VALUE if there is none, INVALID_PROGRAM_EXECUTABLE.
    """
    address, size, module = ctypes.c_uint64(), ctypes.c_size_t(), program.get_plain_module(device)
    pointers = ctypes.byref(address), ctypes.byref(size)
    try:
        device.call("ModuleGetGlobal", *pointers, module.handle, name.encode())
    except DriverError as error:
        if error.value != NOT_FOUND:
            raise
        raise failure("INVALID_VALUE", f"the program has no variable {name}") from error
    return size.value, address.value


def _list_kernel_names(program: CuProgram, device: CuDevice) -> Sequence[str]:
    module = program.get_plain_module(device)
    return program.built[device].list_kernel_names(module.handle)


def _find_function(program: CuProgram, device: CuDevice, name: str) -> int:
    return 0  # the host has no address of it


declare_addresses(adapter, _find_function, _list_kernel_names, find_variable)
