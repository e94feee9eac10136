"""Programs for AMD's GPUs, apart from HIP's modules.

Code objects, and bundles of some, go to HIP. Text is compiled before: OpenCL C and HIP C++ by the
first compiler that is there (compilers.py).

HIP tells nothing of a kernel's parameters, so they are read from the code object. A module that the
program brings has none to read: its kernels cannot be used.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from ..sdk.conversions import failure
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
from .code_objects import MAGIC, CodeObject, CodeObjectError, CodeObjectKernel, prepare
from .comgr import BITCODE
from .compilers import HIP_C, OPENCL_C, get_compiler

if TYPE_CHECKING:
    from ..cuda.devices import CuDevice

#: Kinds of parameters in OpenCL C that HIP has nothing for.
_NOT_PASSED: Final = frozenset({"image", "sampler", "pipe", "queue"})
_INSTEAD: Final = "write the kernel in HIP C++, with texture and surface objects"

#: The shared modules catch this error of a compiler. HIP's compilers have no other one.
SourceError: Final = DeviceCodeError


class HipCode(DeviceCode):
    """A program on a device."""

    def __init__(self, found: CodeObject) -> None:
        super().__init__(found.image)
        self._kernels = found.kernels

    def _get_kernel(self, name: str) -> CodeObjectKernel:
        found = self._kernels.get(name)
        if found is None:
            raise failure("INVALID_KERNEL_NAME", f"the code object does not describe {name}")
        return found

    def list_kernel_names(self, module: int) -> list[str]:
        return leave_variants_out(self._kernels)

    def find_function_name(self, name: str, offset: Sizes) -> str:
        variant = name_variant(name)
        return variant if any(offset) and variant in self._kernels else name

    def list_parameter_sizes(self, name: str, function: int) -> tuple[int, ...]:
        """Return the sizes. An image of OpenCL C is more than HIP's object for it."""
        given = self._get_kernel(name).given
        for number, one in enumerate(given):
            if one.kind in _NOT_PASSED:
                why = f"{name}: parameter {number} is of the kind {one.kind}: HIP passes none"
                raise failure("UNSUPPORTED_FEATURE", why, remedy=_INSTEAD)
        return tuple(one.size for one in given)

    def find_required_size(self, name: str) -> Sizes | None:
        return self._get_kernel(name).required

    def find_sub_group_size(self, name: str) -> int:
        return self._get_kernel(name).wavefront

    def find_first_local(self, name: str) -> int:
        return self._get_kernel(name).local_bytes

    def list_offsets(self, name: str, offset: Sequence[int]) -> list[bytes]:
        x, y, z = start = (*offset, 0, 0, 0)[:3]
        function = self.find_function_name(name, (x, y, z))
        axes = (one for one in self._get_kernel(function).parameters if one.axis >= 0)
        hidden = [start[one.axis].to_bytes(one.size, "little") for one in axes]
        return hidden if function == name else [pack_offset(offset), *hidden]


class ForeignHipCode(DeviceCode):
    """A module that the program brings. Nothing is known of its kernels."""

    def list_kernel_names(self, module: int) -> list[str]:
        raise failure("UNSUPPORTED_FEATURE", "HIP does not tell the kernels of a module")

    def list_parameter_sizes(self, name: str, function: int) -> tuple[int, ...]:
        raise failure("UNSUPPORTED_FEATURE", "HIP does not tell the parameters of a kernel")


def _compile(device: CuDevice, data: bytes, options: str) -> bytes:
    """Return the code object of a text.

    Raises:
        DeviceCodeError: the compiler refuses it.
        URError: COMPILER_NOT_AVAILABLE.
    """
    language, architecture = HIP_C if _is_hip(data) else OPENCL_C, device.found.architecture
    compiler = get_compiler(language)
    adapter: Any = import_module(".core", __package__).adapter
    adapter.log("info", f"{language} is compiled by {compiler.name}")
    try:
        if language == HIP_C:
            return compiler.compile_hip(data, architecture, options)
        return compiler.compile_opencl(data, _find_target(device), options)
    except RuntimeCompilerError as error:
        raise DeviceCodeError(str(error)) from error


def _is_hip(data: bytes) -> bool:
    return b"__global__" in data or b"__device__" in data


def _find_target(device: CuDevice) -> str:
    return f"amdgcn-amd-amdhsa--{device.found.architecture}"


def build_code(device: CuDevice, data: bytes, options: str) -> DeviceCode:
    """Return a program on a device.

    Args:
        data: a code object, a bundle, OpenCL C or HIP C++.

    Raises:
        DeviceCodeError: the compiler refuses the program, or the code object cannot be read.
        URError: COMPILER_NOT_AVAILABLE.
    """
    if not data.startswith(MAGIC):
        data = _compile(device, data, options)
    return _prepare(device, data)


def _prepare(device: CuDevice, data: bytes) -> DeviceCode:
    """Return a code object or a bundle as a program. Raises DeviceCodeError."""
    try:
        return HipCode(prepare(data, device.found.architecture.split(":")[0]))
    except CodeObjectError as error:
        raise DeviceCodeError(str(error)) from error


def compile_object(device: CuDevice, data: bytes, options: str) -> bytes:
    """Return the bitcode of a program, to be linked.

    Args:
        data: OpenCL C, or bitcode.

    Raises:
        DeviceCodeError: the compiler refuses the program.
        URError: COMPILER_NOT_AVAILABLE, or UNSUPPORTED_FEATURE for what becomes no bitcode.
    """
    if data.startswith(BITCODE):
        return data
    if data.startswith(MAGIC) or _is_hip(data):
        raise failure("UNSUPPORTED_FEATURE", "only OpenCL C and bitcode can be linked")
    try:
        return get_compiler(OPENCL_C).compile_bitcode(data, _find_target(device), options)
    except RuntimeCompilerError as error:
        raise DeviceCodeError(str(error)) from error


def link_code(device: CuDevice, objects: Sequence[bytes], options: str) -> DeviceCode:
    """Return bitcode as one program.

    Args:
        options: those of clLinkProgram.

    Raises:
        DeviceCodeLinkError: they cannot be linked.
        DeviceCodeError: the code object cannot be read.
        URError: COMPILER_NOT_AVAILABLE.
    """
    try:
        return _prepare(device, get_compiler(OPENCL_C).link(objects, _find_target(device), options))
    except RuntimeCompilerError as error:
        raise DeviceCodeLinkError(str(error)) from error


def make_foreign_code(device: CuDevice, module: int) -> DeviceCode:
    """Return what is known of a module of the program's: nothing."""
    return ForeignHipCode(b"")


__all__ = ["MAGIC", "SourceError", "build_code", "compile_object", "link_code", "make_foreign_code"]
