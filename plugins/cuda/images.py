"""Programs for NVIDIA's GPUs, apart from the driver's modules.

| made of | by |
|---|---|
| PTX, a cubin, a fat binary | the driver |
| OpenCL C | NVIDIA's OpenCL compiler, then a translation of its PTX (opencl_c.py) |
| CUDA C | NVRTC, where it is installed |
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from ..sdk.gpu.images import DeviceImage, ImageError, Sizes
from ..sdk.gpu.runtime_compilers import NVRTC, RuntimeCompilerError, open_compiler
from .core import failure
from .opencl_c import SourceError, compile_ptx, is_opencl_c

if TYPE_CHECKING:
    from ...icd.nvidia_ptx import PtxProgram, Variant
    from .devices import CuDevice

_NO_OFFSET: Final = (0, 0, 0)

#: How binaries begin: cubins and fat binaries.
MAGIC: Final = b"\x7fELF", b"\x50\xed\x55\xba"

_open_nvrtc = cache(open_compiler)


class CudaImage(DeviceImage):
    """A program for the driver. The driver knows its kernels.

    Args:
        device: the device.
        data: what the driver loads.
    """

    def __init__(self, device: CuDevice, data: bytes) -> None:
        super().__init__(data)
        self._device = device

    def kernel_names(self, module: int) -> list[str]:
        count, device = ctypes.c_uint32(), self._device
        device.call("ModuleGetFunctionCount", ctypes.byref(count), module)
        found = (ctypes.c_void_p * max(count.value, 1))()
        device.call("ModuleEnumerateFunctions", found, count.value, module)
        names = []
        for function in found[: count.value]:
            name = ctypes.c_char_p()
            device.call("FuncGetName", ctypes.byref(name), function)
            names.append((name.value or b"").decode(errors="replace"))
        return names

    def parameter_sizes(self, name: str, function: int) -> tuple[int, ...]:
        sizes: list[int] = []
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        pointers = ctypes.byref(offset), ctypes.byref(size)
        while not self._device.ask("FuncGetParamInfo", function, len(sizes), *pointers):
            sizes.append(size.value)
        return tuple(sizes)

    def variant(self, dimensions: int, offset: Sizes) -> Any:
        if any(offset):
            raise failure("UNSUPPORTED_FEATURE", "CUDA has no global offsets, only OpenCL C has")
        return None


class TranslatedImage(CudaImage):
    """A program of OpenCL C. Its translation depends on the launch.

    Args:
        device: the device.
        ptx: what NVIDIA's compiler has made of it.
    """

    def __init__(self, device: CuDevice, ptx: PtxProgram) -> None:
        super().__init__(device, ptx.translate(ptx.variant(1, _NO_OFFSET)).encode())
        self._ptx = ptx

    def refusal(self, name: str) -> str:
        found = self._ptx.kernels.get(name)
        return (found.why_not or "") if found is not None else ""

    def required_size(self, name: str) -> Sizes | None:
        found = self._ptx.kernels.get(name)
        return found.required if found is not None else None

    def variant(self, dimensions: int, offset: Sizes) -> Variant:
        return self._ptx.variant(dimensions, offset)

    def data_for(self, variant: Variant) -> bytes:
        return self._ptx.translate(variant).encode()


def build_image(device: CuDevice, data: bytes, options: str) -> DeviceImage:
    """Return a program on a device. Without the compiler that it needs the driver gets the text.

    Args:
        device: the device.
        data: a binary, PTX, OpenCL C or CUDA C.
        options: the compiler's.

    Raises:
        ImageError: the compiler refuses the program.
        SourceError: NVIDIA's OpenCL compiler does.
        URError: PROGRAM_BUILD_FAILURE if its PTX cannot be translated.
    """
    if data.startswith(MAGIC) or not is_opencl_c(data):
        return CudaImage(device, data)
    if b"__global__" in data:
        compiler = _open_nvrtc(NVRTC)
        if compiler is None:
            raise failure("COMPILER_NOT_AVAILABLE", "CUDA C needs NVRTC, which was not found")
        architecture = "-arch=compute_{}{}".format(*device.found.capability)
        try:
            return CudaImage(device, compiler.compile(data, f"{architecture} {options}"))
        except RuntimeCompilerError as error:
            raise ImageError(str(error)) from error
    ptx = compile_ptx(device, data, options)
    return CudaImage(device, data) if ptx is None else TranslatedImage(device, ptx)


def foreign_image(device: CuDevice, module: int) -> DeviceImage:
    """Return the program of a CUmodule. It has no data."""
    return CudaImage(device, b"")


__all__ = ["MAGIC", "SourceError", "build_image", "foreign_image"]
