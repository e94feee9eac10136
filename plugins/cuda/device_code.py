"""Programs for NVIDIA's GPUs, apart from the driver's modules.

| made of | by |
|---|---|
| PTX, a cubin, a fat binary | the driver |
| OpenCL C | NVIDIA's OpenCL compiler, then a translation of its PTX (opencl_c.py) |
| CUDA C | NVRTC, where it is installed |

OpenCL C is linked by its compiler, and everything else by CUDA's linker.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from ..sdk.gpu.device_code import (
    DeviceCode,
    DeviceCodeError,
    DeviceCodeLinkError,
    Sizes,
    leave_variants_out,
    name_variant,
    pack_offset,
)
from ..sdk.gpu.runtime_compilers import RuntimeCompilerError
from .compilers import open_nvrtc
from .core import failure, get_constant
from .jit_log import JitLog
from .opencl_c import SourceError, can_start_early, check_source, compile_ptx, is_opencl_c, link_ptx

if TYPE_CHECKING:
    from ...icd.nvidia_ptx import PtxProgram, Variant
    from .devices import CuDevice


#: How fat binaries begin, which `fatbinary` and nvcc write: a head and parts, each with a head of
#: its own. The driver takes the part for the device. It believes the sizes in the heads, so they
#: are checked before.
FAT_BINARY: Final = b"\x50\xed\x55\xba"
#: The magic, a version, bytes of this head, bytes of all parts.
_HEAD: Final = struct.Struct("<4sHHQ")
#: Kind, a version, bytes of this head, bytes of the contents, compressed bytes or 0, place
#: of the options in this head; behind 4 bytes 90 for sm_90.
_PART: Final = struct.Struct("<HHIQII4xI28x")
#: Where the text of PTX's options is in the head, and its bytes.
_OPTIONS: Final = struct.Struct("<II")
_PTX, _CUBIN = 1, 2
_NAMES: Final = {_PTX: "compute", _CUBIN: "sm"}


class FatBinaryPart(NamedTuple):
    """A part of a fat binary.

    Attributes:
        kind: 1 is PTX, 2 a cubin. There are others.
        architecture: what it is for: 90 is sm_90.
    """

    kind: int
    architecture: int

    def may_fit(self, device: int) -> bool:
        """Return whether a driver may take it for a device, such as 90."""
        if self.kind not in _NAMES:
            return True
        same_major = self.architecture // 10 == device // 10
        return self.architecture <= device and (self.kind == _PTX or same_major)

    def __str__(self) -> str:
        return f"{_NAMES.get(self.kind, f'kind {self.kind}')}_{self.architecture}"


def split_fat_binary(data: bytes) -> list[FatBinaryPart]:
    """Return the parts of a fat binary. Raises DeviceCodeError if they are not all there."""
    try:
        _, _, at, size = _HEAD.unpack_from(data)
        parts, end = list[FatBinaryPart](), at + size
        while at < end:
            kind, _, head, size, packed, options, architecture = _PART.unpack_from(data, at)
            if head < _PART.size or at + head + size > min(end, len(data)):
                raise DeviceCodeError("the fat binary is damaged: a part has a wrong size")
            if kind == _PTX:
                _check_options(data[at : at + head], options)
                if not packed and data[at + head + size - 1]:
                    raise DeviceCodeError("the fat binary is damaged: a part's PTX has no end")
            parts.append(FatBinaryPart(kind, architecture))
            at += head + size
    except struct.error as error:
        raise DeviceCodeError("the fat binary is damaged: it is too short") from error
    return parts


def _check_options(head: bytes, at: int) -> None:
    """Check the options of PTX, which the driver reads wherever their place says that they are.

    Raises:
        DeviceCodeError: they are not in the head of their part.
        struct.error: their place is not in it.
    """
    text, size = _OPTIONS.unpack_from(head, at)
    if at < _PART.size or text + size > len(head):
        raise DeviceCodeError("the fat binary is damaged: a part has no options")


def check_fat_binary(data: bytes, device: int) -> None:
    """Check a fat binary before a driver reads it.

    Args:
        device: what it is for: 90 is sm_90.

    Raises:
        DeviceCodeError: it is damaged, or has nothing for the device.
    """
    parts = split_fat_binary(data)
    if not any(one.may_fit(device) for one in parts):
        names = ", ".join(map(str, parts)) or "nothing"
        raise DeviceCodeError(
            f"the fat binary has {names}, and the device needs code for sm_{device}"
        )


_NO_OFFSET: Final = (0, 0, 0)

#: How binaries begin: cubins and fat binaries.
MAGIC: Final = b"\x7fELF", FAT_BINARY


class CudaCode(DeviceCode):
    """A program for the driver. The driver knows its kernels.

    Args:
        data: what the driver loads.
    """

    def __init__(self, device: CuDevice, data: bytes) -> None:
        super().__init__(data)
        self._device = device

    def list_kernel_names(self, module: int) -> list[str]:
        count, device = ctypes.c_uint32(), self._device
        device.call("ModuleGetFunctionCount", ctypes.byref(count), module)
        found = (ctypes.c_void_p * max(count.value, 1))()
        device.call("ModuleEnumerateFunctions", found, count.value, module)
        names = []
        for function in found[: count.value]:
            name = ctypes.c_char_p()
            device.call("FuncGetName", ctypes.byref(name), function)
            names.append((name.value or b"").decode(errors="replace"))
        return leave_variants_out(names)

    def list_parameter_sizes(self, name: str, function: int) -> tuple[int, ...]:
        sizes: list[int] = []
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        pointers = ctypes.byref(offset), ctypes.byref(size)
        while not self._device.ask("FuncGetParamInfo", function, len(sizes), *pointers):
            sizes.append(size.value)
        return tuple(sizes)

    def find_function_name(self, name: str, offset: Sizes) -> str:
        return name_variant(name) if any(offset) else name

    def list_offsets(self, name: str, offset: Sequence[int]) -> list[bytes]:
        return [pack_offset(offset)] if any(offset) else []


class TranslatedCode(CudaCode):
    """A program of OpenCL C. Its translation depends on the launch.

    Args:
        ptx: what NVIDIA's compiler has made of it.
    """

    def __init__(self, device: CuDevice, ptx: PtxProgram) -> None:
        self._ptx = ptx
        self.waits = device.early_threads if ptx.can_wait and can_start_early(device) else 0
        super().__init__(device, b"")
        self.data = self.make_data(self.find_variant(1, _NO_OFFSET))

    def find_refusal(self, name: str) -> str:
        found = self._ptx.kernels.get(name)
        return (found.why_not or "") if found is not None else ""

    def find_function_name(self, name: str, offset: Sizes) -> str:
        return name  # the module itself has the offset

    def list_offsets(self, name: str, offset: Sequence[int]) -> list[bytes]:
        return []

    def find_required_size(self, name: str) -> Sizes | None:
        found = self._ptx.kernels.get(name)
        return found.required if found is not None else None

    def find_variant(self, dimensions: int, offset: Sizes) -> Variant:
        return replace(self._ptx.variant(dimensions, offset), waits=self.waits)

    def choose_part(self, variant: Variant, first: Sizes, groups: Sizes, local: Sizes) -> Variant:
        return self._ptx.choose_part(variant, first, groups, local)

    def make_data(self, variant: Variant) -> bytes:
        return self._ptx.translate(variant).encode()


def build_code(device: CuDevice, data: bytes, options: str) -> DeviceCode:
    """Return a program on a device. Without the compiler that it needs the driver gets the text.

    Args:
        data: a binary, PTX, OpenCL C or CUDA C.

    Raises:
        DeviceCodeError: the compiler refuses the program, or a fat binary lacks the device.
        SourceError: NVIDIA's OpenCL compiler does.
        URError: PROGRAM_BUILD_FAILURE if its PTX cannot be translated.
    """
    if data.startswith(FAT_BINARY):
        major, minor = device.found.capability
        check_fat_binary(data, 10 * major + minor)
    if data.startswith(MAGIC) or not is_opencl_c(data):
        return CudaCode(device, data)
    if _is_cuda_c(data):
        return CudaCode(device, _compile_cuda_c(device, data, options))
    ptx = compile_ptx(device, data, options)
    return CudaCode(device, data) if ptx is None else TranslatedCode(device, ptx)


def _is_cuda_c(data: bytes) -> bool:
    return b"__global__" in data or b"__device__" in data


def _compile_cuda_c(device: CuDevice, data: bytes, options: str) -> bytes:
    """Return the PTX or the cubin of CUDA C.

    Raises:
        DeviceCodeError: the compiler refuses it.
        URError: COMPILER_NOT_AVAILABLE.
    """
    compiler = open_nvrtc()
    if compiler is None:
        raise failure("COMPILER_NOT_AVAILABLE", "CUDA C needs NVRTC, which was not found")
    # a driver refuses the PTX of a compiler that is newer, and takes its cubins
    is_newer = compiler.version > device.platform.driver.version
    code, kind = ("CUBIN", "sm") if is_newer else ("PTX", "compute")
    architecture = "-arch={}_{}{}".format(kind, *device.found.capability)
    try:
        return compiler.compile(data, f"{architecture} {options}", code)
    except RuntimeCompilerError as error:
        raise DeviceCodeError(str(error)) from error


class CudaObject(NamedTuple):
    """A program that is linked later.

    Attributes:
        data: a binary, PTX, or OpenCL C.
        options: those that OpenCL C is compiled with.
        is_opencl_c: whether it is OpenCL C.
    """

    data: bytes
    options: str
    is_opencl_c: bool


def compile_object(device: CuDevice, data: bytes, options: str) -> CudaObject:
    """Return a program that can be linked on a device. Arguments and errors are `build_code`'s."""
    if data.startswith(MAGIC) or not is_opencl_c(data):
        return CudaObject(data, "", False)
    if _is_cuda_c(data):
        ptx = _compile_cuda_c(device, data, f"--relocatable-device-code=true {options}")
        return CudaObject(ptx, "", False)
    check_source(device, data, options)
    return CudaObject(data, options, True)


def link_code(device: CuDevice, objects: Sequence[CudaObject], options: str) -> DeviceCode:
    """Return programs as one. Without the compiler that it needs the driver gets OpenCL C.

    Args:
        options: the linker's, for OpenCL C.

    Raises:
        DeviceCodeLinkError: they cannot be linked.
        OpenCLError: NVIDIA's OpenCL compiler does not link them.
        URError: PROGRAM_BUILD_FAILURE if its PTX cannot be translated.
    """
    kinds = {one.is_opencl_c for one in objects}
    if len(kinds) > 1:
        raise DeviceCodeLinkError("OpenCL C is linked with OpenCL C alone")
    if kinds == {True}:
        ptx = link_ptx(device, [(one.data, one.options) for one in objects], options)
        if ptx is not None:
            return TranslatedCode(device, ptx)
    return CudaCode(device, _link(device, [one.data for one in objects]))


#: How the kinds of the linker's inputs begin. What begins in another way is PTX.
_INPUTS: Final = dict(zip(MAGIC, ("CUBIN", "FATBINARY"), strict=True))


def _make_link_error(code: int, routine: str, log: str) -> DeviceCodeLinkError:
    return DeviceCodeLinkError(f"{routine}: {log or f'code {code}'}")


def _link(device: CuDevice, parts: Sequence[bytes]) -> bytes:
    """Return what the driver makes of binaries and PTX. Raises DeviceCodeLinkError, DriverError."""
    log, state = JitLog(), ctypes.c_void_p()
    device.call("LinkCreate", *log.options, ctypes.byref(state))
    try:
        for number, part in enumerate(parts):
            name = next((name for begin, name in _INPUTS.items() if part.startswith(begin)), "PTX")
            data = ctypes.create_string_buffer(part)  # text ends with a NUL
            kind, size = get_constant(f"CU_JIT_INPUT_{name}"), ctypes.sizeof(data)
            given = state, kind, data, size, f"program {number}".encode(), 0, None, None
            log.check(device.ask("LinkAddData", *given), "LinkAddData", _make_link_error)
        made, size = ctypes.c_void_p(), ctypes.c_size_t()
        given = state, ctypes.byref(made), ctypes.byref(size)
        log.check(device.ask("LinkComplete", *given), "LinkComplete", _make_link_error)
        return ctypes.string_at(made.value or 0, size.value)
    finally:
        device.ask("LinkDestroy", state)


def make_foreign_code(device: CuDevice, module: int) -> DeviceCode:
    """Return the program of a CUmodule. It has no data."""
    return CudaCode(device, b"")


__all__ = ["MAGIC", "SourceError", "build_code", "compile_object", "link_code", "make_foreign_code"]
