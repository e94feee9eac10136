"""Programs of OpenCL C: built by NVIDIA's OpenCL compiler, whose PTX is translated for CUDA.

The compiler belongs to NVIDIA's OpenCL driver, which is asked for the same device by its UUID. Its
PTX has registers and parameters that CUDA does not give kernels (icd/nvidia_ptx.py). The
translation depends on the global offset, and in some programs on the number of dimensions. So a
program may become several modules (images.py).

Without that driver the text goes to CUDA as it is. CUDA refuses it.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final

from ...icd.abi import OPENCL
from ...icd.driver_profiles import profile_of
from ...icd.drivers import drivers
from ...icd.errors import OpenCLError
from ...icd.errors import check as check_opencl
from ...icd.nvidia_ptx import PtxError, PtxProgram
from ...icd.tables import query
from ...loader.base.errors import FairleadError
from .core import adapter, failure

if TYPE_CHECKING:
    from .devices import CuDevice

_UUID: Final = "cl_khr_device_uuid"
_PTX: Final = b".version", b".target", b".entry"


def is_opencl_c(text: bytes) -> bool:
    """Return whether a text is not PTX."""
    return not all(word in text for word in _PTX[:2]) and not text.startswith(b"\x7fELF")


class SourceError(OpenCLError):
    """NVIDIA's OpenCL compiler refuses a program. The text is its log."""


adapter.codes[SourceError] = "PROGRAM_BUILD_FAILURE"
adapter.codes[OpenCLError] = "COMPILER_NOT_AVAILABLE"


def _find_opencl(device: CuDevice) -> Any:
    """Return the OpenCL device (icd.objects.Device) that is the same GPU, None if there is none."""
    try:
        found = [one for platform in drivers().platforms for one in platform.devices]
    except FairleadError as error:
        adapter.log("info", f"no OpenCL driver can be used: {error}")
        return None
    for one in found:
        if _UUID in one.extensions and profile_of(one.platform).compiles_to_ptx:
            uuid = query(
                one.platform.table, "clGetDeviceInfo", one.handle, OPENCL["CL_DEVICE_UUID_KHR"]
            )
            if uuid == device.found.uuid:
                return one
    return None


def _compile(found: Any, source: bytes, options: str) -> bytes:
    """Return the PTX of a program of OpenCL C. Raises OpenCLError, SourceError."""
    table, code = found.platform.table, ctypes.c_int32()
    handle = (ctypes.c_void_p * 1)(found.handle)
    context = table.clCreateContext(None, 1, handle, None, None, ctypes.byref(code))
    check_opencl(code.value, "clCreateContext")
    text = (ctypes.c_char_p * 1)(source)
    program = table.clCreateProgramWithSource(context, 1, text, None, ctypes.byref(code))
    try:
        check_opencl(code.value, "clCreateProgramWithSource")
        failed = table.clBuildProgram(program, 1, handle, options.encode(), None, None)
        if failed:
            name = OPENCL["CL_PROGRAM_BUILD_LOG"]
            log = query(table, "clGetProgramBuildInfo", program, found.handle, name)
            words = log.rstrip(b"\0").decode(errors="replace")
            raise SourceError.of(failed, "clBuildProgram", words)
        (size,) = (ctypes.c_size_t * 1).from_buffer_copy(
            query(table, "clGetProgramInfo", program, OPENCL["CL_PROGRAM_BINARY_SIZES"])
        )
        made = ctypes.create_string_buffer(size)
        array = (ctypes.c_void_p * 1)(ctypes.addressof(made))
        name = OPENCL["CL_PROGRAM_BINARIES"]
        answer = table.clGetProgramInfo(program, name, ctypes.sizeof(array), array, None)
        check_opencl(answer, "clGetProgramInfo")
        return made.raw.rstrip(b"\0")
    finally:
        if program:
            table.clReleaseProgram(program)
        table.clReleaseContext(context)


def compile_ptx(device: CuDevice, source: bytes, options: str) -> PtxProgram | None:
    """Return what NVIDIA's compiler makes of a program, None without the compiler.

    Args:
        device: the device.
        source: the program.
        options: those of clBuildProgram.

    Raises:
        OpenCLError: the compiler refuses it.
        URError: PROGRAM_BUILD_FAILURE if its PTX cannot be translated.
    """
    found = _find_opencl(device)
    if found is None:
        return None
    try:
        return PtxProgram(_compile(found, source, options).decode())
    except PtxError as error:
        raise failure("PROGRAM_BUILD_FAILURE", str(error)) from error
