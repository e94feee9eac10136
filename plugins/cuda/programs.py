"""Programs: created, built, queried. A built program is a module of CUDA's on each device.

| made of | by | built by |
|---|---|---|
| PTX, a cubin, a fat binary | urProgramCreateWithBinary, urProgramCreateWithIL | the driver |
| OpenCL C | urProgramCreateWithIL | NVIDIA's OpenCL compiler, then a translation of its PTX |

Unified Runtime has no function for source text, so this is an extension of ours.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from ...loader.ur.abi import UR
from ..sdk.queries import program_info
from ..sdk.rules import check_build_devices, check_metadata, read_binaries, source_of
from .contexts import CuContext
from .core import CUDA, NAMES, CudaError, Object, adapter, check, failure
from .devices import CuDevice
from .opencl_c import SourceError, TranslatedProgram, is_opencl_c

_LOG: Final = 1 << 16  # bytes of room for the compiler's log
_STATUS: Final = {
    name: UR[f"UR_PROGRAM_BUILD_STATUS_{name}"] for name in ("NONE", "ERROR", "SUCCESS")
}


class ModuleError(CudaError):
    """A program was not built. The text is the compiler's log."""


adapter.codes[ModuleError] = "PROGRAM_BUILD_FAILURE"

#: The codes that say that the driver does not take a program.
_REFUSALS: Final = frozenset(
    CUDA.codes[f"CUDA_ERROR_{name}"]
    for name in (
        *("INVALID_IMAGE", "INVALID_PTX", "INVALID_SOURCE", "NO_BINARY_FOR_GPU"),
        *("UNSUPPORTED_PTX_VERSION", "INVALID_VALUE"),
    )
)


class CuModule:
    """A module of CUDA's on a device, unloaded when it is dropped.

    Args:
        device: the device.
        handle: the CUmodule.
        log: what the compiler said.
        owned: whether the CUmodule is ours.
    """

    def __init__(self, device: CuDevice, handle: int, log: str = "", *, owned: bool = True) -> None:
        self.device, self.handle, self.log, self.owned = device, handle, log, owned

    @classmethod
    def load(cls, device: CuDevice, image: bytes) -> CuModule:
        """Load a module.

        Args:
            device: the device.
            image: what the driver loads.

        Raises:
            ModuleError: the driver does not take it.
            CudaError: what else the driver answers.
        """
        made = ctypes.c_void_p()
        logs = ctypes.create_string_buffer(_LOG), ctypes.create_string_buffer(_LOG)
        rows = (
            ("INFO_LOG_BUFFER", ctypes.addressof(logs[0])),
            ("INFO_LOG_BUFFER_SIZE_BYTES", _LOG),
            ("ERROR_LOG_BUFFER", ctypes.addressof(logs[1])),
            ("ERROR_LOG_BUFFER_SIZE_BYTES", _LOG),
        )
        names = (ctypes.c_uint32 * len(rows))(*(CUDA[f"CU_JIT_{name}"] for name, _ in rows))
        values = (ctypes.c_void_p * len(rows))(*(value for _, value in rows))
        data = ctypes.create_string_buffer(image)  # text ends with a NUL
        pointer = ctypes.byref(made)
        code = device.ask("ModuleLoadDataEx", pointer, data, len(rows), names, values)
        text = "\n".join(filter(None, (log.value.decode(errors="replace") for log in logs)))
        if code in _REFUSALS:
            raise ModuleError.of(code, NAMES["ModuleLoadDataEx"], text)
        check(code, NAMES["ModuleLoadDataEx"])
        return cls(device, made.value or 0, text)

    def function(self, name: str) -> int:
        """Return a kernel's CUfunction. Raises CudaError."""
        return self.device.make("ModuleGetFunction", self.handle, name.encode())

    def kernel_names(self) -> list[str]:
        """Return the names of its kernels. Raises CudaError."""
        count = ctypes.c_uint32()
        self.device.call("ModuleGetFunctionCount", ctypes.byref(count), self.handle)
        found = (ctypes.c_void_p * max(count.value, 1))()
        self.device.call("ModuleEnumerateFunctions", found, count.value, self.handle)
        names = []
        for function in found[: count.value]:
            name = ctypes.c_char_p()
            self.device.call("FuncGetName", ctypes.byref(name), function)
            names.append((name.value or b"").decode(errors="replace"))
        return names

    def __del__(self) -> None:
        if self.__dict__.get("owned"):
            self.device.ask("ModuleUnload", self.handle)


@adapter.kind
class CuProgram(Object):
    """A program.

    Args:
        context: its context.
        images: what it is made of, for each of its devices.
        il: the text that it was made of, b"" if it was made of binaries.

    Attributes:
        modules: its modules, by the device, after a build.
        source: its translation, if it is OpenCL C.
        status: its ur_program_build_status_t, by the device.
        logs: what the compiler said, by the device.
        options: those of the last build.
    """

    type = "ur_program_handle_t"

    def __init__(self, context: CuContext, images: dict[CuDevice, bytes], il: bytes = b"") -> None:
        self.context, self.images, self.il = context, images, il
        self.modules: dict[CuDevice, CuModule] = {}
        self.source: dict[CuDevice, TranslatedProgram] = {}
        self.status: dict[CuDevice, int] = {}
        self.logs: dict[CuDevice, str] = {}
        self.options = ""

    @property
    def devices(self) -> tuple[CuDevice, ...]:
        """Return the devices that it is for."""
        return tuple(self.images)

    def build(self, devices: list[CuDevice], options: str | None) -> None:
        """Build it for devices.

        Raises:
            ModuleError: the driver does not take it.
            CudaError: what else the driver answers.
        """
        self.options = options or ""
        for device in devices:
            if device not in self.images:
                raise failure("INVALID_DEVICE", "the program has no binary for the device")
            self.status[device], self.logs[device] = _STATUS["ERROR"], ""
            image = self.images[device]
            try:
                if self.il and is_opencl_c(image):
                    found = TranslatedProgram.build(device, image, self.options)
                    if found is not None:
                        self.source[device], image = found, found.plain
                made = CuModule.load(device, image)
            except (ModuleError, SourceError) as error:
                self.logs[device] = str(error)
                raise
            self.adopt(made)

    def adopt(self, module: CuModule) -> None:
        """Note that a module is what it is built to on the module's device."""
        device = module.device
        self.modules[device], self.logs[device] = module, module.log
        self.status[device] = _STATUS["SUCCESS"]

    def module(self, device: CuDevice) -> CuModule:
        """Return its module on a device. Raises URError (INVALID_PROGRAM_EXECUTABLE)."""
        found = self.modules.get(device)
        if found is None:
            raise failure("INVALID_PROGRAM_EXECUTABLE", "the program is not built for the device")
        return found

    @property
    def any_module(self) -> CuModule:
        """Return one of its modules. Raises URError (INVALID_PROGRAM_EXECUTABLE)."""
        if not self.modules:
            raise failure("INVALID_PROGRAM_EXECUTABLE", "the program is not built")
        return next(iter(self.modules.values()))


#: How cubins and fat binaries begin.
_MAGIC: Final = b"\x7fELF", b"\x50\xed\x55\xba"


def is_image(data: bytes) -> bool:
    """Return whether CUDA may load data: a cubin, a fat binary, or text with kernels."""
    if data.startswith(_MAGIC):
        return True
    text = source_of(data)
    return text is not None and any(word in text for word in (b".version", b"kernel"))


@adapter.entry
def urProgramCreateWithIL(
    hContext: CuContext, pIL: int, length: int, pProperties: Any
) -> CuProgram:
    check_metadata(pProperties)
    if not length:
        raise failure("INVALID_SIZE", "the IL is empty")
    data = source_of(ctypes.string_at(pIL, length))
    if data is None:
        raise failure("INVALID_BINARY", "this is neither PTX nor OpenCL C")
    return CuProgram(hContext, dict.fromkeys(hContext.devices, data), data)


@adapter.entry
def urProgramCreateWithBinary(
    hContext: CuContext,
    numDevices: int,
    phDevices: list[CuDevice],
    pLengths: list[int],
    ppBinaries: Any,
    pProperties: Any,
) -> CuProgram:
    check_metadata(pProperties)
    images = read_binaries(hContext, phDevices, pLengths, ppBinaries)
    if not all(map(is_image, images)):
        raise failure("INVALID_NATIVE_BINARY", "it is no text, no cubin and no fat binary")
    return CuProgram(hContext, dict(zip(phDevices, images, strict=True)))


@adapter.entry
def urProgramBuild(hContext: CuContext, hProgram: CuProgram, pOptions: str | None) -> None:
    hContext.check_same("the program", hProgram)
    hProgram.build(list(hProgram.devices), pOptions)


@adapter.entry
def urProgramBuildExp(
    hProgram: CuProgram, phDevices: list[CuDevice], flags: int, pOptions: str | None
) -> None:
    check_build_devices(hProgram.context, phDevices)
    hProgram.build(phDevices, pOptions)


@adapter.entry
def urProgramGetNativeHandle(hProgram: CuProgram) -> int:
    """Return the CUmodule on the first device for which it is built."""
    return hProgram.any_module.handle


@adapter.entry
def urProgramCreateWithNativeHandle(
    hNativeProgram: int, hContext: CuContext, pProperties: Any
) -> CuProgram:
    """Make a program of a CUmodule, which is one of the context's first device."""
    if not hNativeProgram:
        raise failure("INVALID_NULL_HANDLE")
    return program_of(hNativeProgram, hContext, pProperties)


def program_of(native: int, context: CuContext, properties: Any) -> CuProgram:
    """Return a program for a CUmodule. It has no binary.

    Args:
        native: the CUmodule.
        context: its context.
        properties: a struct with `isNativeHandleOwned`, or None.
    """
    made = CuProgram(context, {context.device: b""})
    owned = bool(properties and properties.isNativeHandleOwned)
    made.adopt(CuModule(context.device, native, owned=owned))
    return made


adapter.info(
    "urProgramGetInfo",
    program_info(
        il=lambda program: program.il + b"\0" if program.il else b"",
        binaries=lambda program: list(program.images.values()),
        kernel_names=lambda program: program.any_module.kernel_names(),
    ),
)


@adapter.entry
def urProgramGetBuildInfo(hProgram: CuProgram, hDevice: CuDevice, propName: int) -> Any:
    hProgram.context.check_device(hDevice)
    is_built = hDevice in hProgram.modules
    kind = "EXECUTABLE" if is_built else "NONE"
    return {
        "UR_PROGRAM_BUILD_INFO_STATUS": hProgram.status.get(hDevice, _STATUS["NONE"]),
        "UR_PROGRAM_BUILD_INFO_OPTIONS": hProgram.options,
        "UR_PROGRAM_BUILD_INFO_LOG": hProgram.logs.get(hDevice, ""),
        "UR_PROGRAM_BUILD_INFO_BINARY_TYPE": UR[f"UR_PROGRAM_BINARY_TYPE_{kind}"],
    }.get(UR.groups["ur_program_build_info_t"][propName])


# device globals


def variable_of(program: CuProgram, device: CuDevice, name: str) -> tuple[int, int]:
    """Return address and size of a global variable of a program.

    Raises:
        URError: INVALID_VALUE if there is none, INVALID_PROGRAM_EXECUTABLE.
        CudaError: what the driver answers.
    """
    address, size, module = ctypes.c_uint64(), ctypes.c_size_t(), program.module(device)
    pointers = ctypes.byref(address), ctypes.byref(size)
    try:
        device.call("ModuleGetGlobal", *pointers, module.handle, name.encode())
    except CudaError as error:
        if error.code != "CUDA_ERROR_NOT_FOUND":
            raise
        raise failure("INVALID_VALUE", f"the program has no variable {name}") from error
    return address.value, size.value


@adapter.entry
def urProgramGetGlobalVariablePointer(
    hDevice: CuDevice, hProgram: CuProgram, pGlobalVariableName: str
) -> tuple[int, int]:
    hProgram.context.check_device(hDevice)
    address, size = variable_of(hProgram, hDevice, pGlobalVariableName)
    return size, address


@adapter.entry
def urProgramGetFunctionPointer(hDevice: CuDevice, hProgram: CuProgram, pFunctionName: str) -> int:
    """Say whether the program has a function: CUDA has no address of one for the host."""
    hProgram.context.check_device(hDevice)
    if pFunctionName in hProgram.module(hDevice).kernel_names():
        raise failure("FUNCTION_ADDRESS_NOT_AVAILABLE", "CUDA has no address of it")
    raise failure("INVALID_KERNEL_NAME", "the program has no function of that name")
