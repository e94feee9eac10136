"""Programs of OpenCL C: built by NVIDIA's OpenCL compiler, whose PTX is translated for CUDA.

The compiler belongs to NVIDIA's OpenCL driver, which is asked for the same device by its UUID. Its
PTX has registers and parameters that CUDA does not give kernels (icd/nvidia_ptx.py). The
translation depends on the global offset, and in some programs on the number of dimensions. So a
program may become several modules (device_code.py).

Without that driver the text goes to CUDA as it is. CUDA refuses it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

from ...icd.abi import OPENCL
from ...icd.calls import find_device_profile
from ...icd.driver_profiles import find_profile
from ...icd.drivers import drivers
from ...icd.errors import OpenCLError
from ...icd.errors import check as check_opencl
from ...icd.nvidia_ptx import PtxError, PtxProgram
from ...icd.tables import query
from ...loader.base.errors import FairleadError
from ..sdk.rules import is_ptx
from .core import adapter, failure

if TYPE_CHECKING:
    from .devices import CuDevice

_UUID: Final = "cl_khr_device_uuid"


def is_opencl_c(text: bytes) -> bool:
    """Return whether data is neither PTX nor a binary."""
    return not is_ptx(text) and not text.startswith(b"\x7fELF")


class SourceError(OpenCLError):
    """NVIDIA's OpenCL compiler refuses a program. The text is its log."""


class SourceLinkError(SourceError):
    """NVIDIA's OpenCL compiler does not link programs. The text is its log."""


adapter.codes[SourceError] = "PROGRAM_BUILD_FAILURE"
adapter.codes[SourceLinkError] = "PROGRAM_LINK_FAILURE"
adapter.codes[OpenCLError] = "COMPILER_NOT_AVAILABLE"


def _find_opencl(device: CuDevice) -> Any:
    """Return the OpenCL device (icd.objects.Device) that is the same GPU, None if there is none."""
    try:
        found = [one for platform in drivers().platforms for one in platform.devices]
    except FairleadError as error:
        adapter.log("info", f"no OpenCL driver can be used: {error}")
        return None
    for one in found:
        if _UUID in one.extensions and find_profile(one.platform).compiles_to_ptx:
            uuid = query(
                one.platform.table, "clGetDeviceInfo", one.handle, OPENCL["CL_DEVICE_UUID_KHR"]
            )
            if uuid == device.found.uuid:
                return one
    return None


@contextmanager
def _make_context(found: Any) -> Iterator[int]:
    """Make an OpenCL context of a device for a block. Raises OpenCLError."""
    code = ctypes.c_int32()
    handle = (ctypes.c_void_p * 1)(found.handle)
    make = found.platform.table.clCreateContext
    context = make(None, 1, handle, None, None, ctypes.byref(code))
    check_opencl(code.value, "clCreateContext")
    try:
        yield context
    finally:
        found.platform.table.clReleaseContext(context)


@contextmanager
def _make_program(found: Any, context: int, source: bytes) -> Iterator[int]:
    """Make an OpenCL program for a block. Raises OpenCLError."""
    code, text = ctypes.c_int32(), (ctypes.c_char_p * 1)(source)
    make = found.platform.table.clCreateProgramWithSource
    program = make(context, 1, text, None, ctypes.byref(code))
    check_opencl(code.value, "clCreateProgramWithSource")
    try:
        yield program
    finally:
        found.platform.table.clReleaseProgram(program)


def _read_log(found: Any, program: int) -> str:
    name = OPENCL["CL_PROGRAM_BUILD_LOG"]
    log = query(found.platform.table, "clGetProgramBuildInfo", program, found.handle, name)
    return log.rstrip(b"\0").decode(errors="replace")


def _query_binary(found: Any, program: int) -> bytes:
    """Return what a program was compiled to. Raises OpenCLError."""
    table = found.platform.table
    (size,) = (ctypes.c_size_t * 1).from_buffer_copy(
        query(table, "clGetProgramInfo", program, OPENCL["CL_PROGRAM_BINARY_SIZES"])
    )
    made = ctypes.create_string_buffer(size)
    array = (ctypes.c_void_p * 1)(ctypes.addressof(made))
    name = OPENCL["CL_PROGRAM_BINARIES"]
    answer = table.clGetProgramInfo(program, name, ctypes.sizeof(array), array, None)
    check_opencl(answer, "clGetProgramInfo")
    return made.raw.rstrip(b"\0")


def _call(found: Any, name: str, program: int, options: str, *others: Any) -> None:
    """Call clBuildProgram or clCompileProgram. Raises SourceError."""
    handle = (ctypes.c_void_p * 1)(found.handle)
    failed = getattr(found.platform.table, name)(program, 1, handle, options.encode(), *others)
    if failed:
        raise SourceError.from_code(failed, name, _read_log(found, program))


def _compile(found: Any, source: bytes, options: str) -> bytes:
    """Return the PTX of a program of OpenCL C. Raises OpenCLError, SourceError."""
    with _make_context(found) as context, _make_program(found, context, source) as program:
        _call(found, "clBuildProgram", program, options, None, None)
        return _query_binary(found, program)


def _link(found: Any, sources: Sequence[tuple[bytes, str]], options: str) -> bytes:
    """Return the PTX of several programs, each with its options.

    Raises:
        SourceError: the compiler refuses one.
        SourceLinkError: it does not link them.
    """
    table, code = found.platform.table, ctypes.c_int32()
    with ExitStack() as stack:
        context = stack.enter_context(_make_context(found))
        programs = [stack.enter_context(_make_program(found, context, text)) for text, _ in sources]
        for program, (_, own) in zip(programs, sources, strict=True):
            _call(found, "clCompileProgram", program, own, 0, None, None, None, None)
        parts = (ctypes.c_void_p * len(programs))(*programs)
        handle = (ctypes.c_void_p * 1)(found.handle)
        given = context, 1, handle, options.encode(), len(programs), parts, None, None
        linked = table.clLinkProgram(*given, ctypes.byref(code))
        if linked:
            stack.callback(table.clReleaseProgram, linked)
        if code.value:
            log = _read_log(found, linked) if linked else ""
            raise SourceLinkError.from_code(code.value, "clLinkProgram", log)
        return _query_binary(found, linked)


def compile_ptx(device: CuDevice, source: bytes, options: str) -> PtxProgram | None:
    """Return what NVIDIA's compiler makes of a program, None without the compiler.

    Args:
        options: those of clBuildProgram.

    Raises:
        OpenCLError: the compiler refuses it.
        URError: PROGRAM_BUILD_FAILURE if its PTX cannot be translated.
    """
    found = _find_opencl(device)
    return None if found is None else _read(_compile(found, source, options))


def check_source(device: CuDevice, source: bytes, options: str) -> None:
    """Let NVIDIA's compiler compile a program that is linked later. Without it do nothing.

    Raises:
        OpenCLError: the compiler refuses it.
    """
    found = _find_opencl(device)
    if found is not None:
        with _make_context(found) as context, _make_program(found, context, source) as program:
            _call(found, "clCompileProgram", program, options, 0, None, None, None, None)


def link_ptx(
    device: CuDevice, sources: Sequence[tuple[bytes, str]], options: str
) -> PtxProgram | None:
    """Return what NVIDIA's compiler makes of several programs, None without the compiler.

    Args:
        sources: the programs, and the options that each is compiled with.
        options: those of clLinkProgram.

    Raises:
        OpenCLError: the compiler refuses one, or does not link them.
        URError: PROGRAM_BUILD_FAILURE if its PTX cannot be translated.
    """
    found = _find_opencl(device)
    return None if found is None else _read(_link(found, sources, options))


def can_start_early(device: CuDevice) -> bool:
    """Return whether kernels may start early that NVIDIA's compiler has compiled for a device."""
    found = _find_opencl(device) if device.early_threads else None
    return found is not None and find_device_profile(found.handle).starts_kernels_early


def _read(ptx: bytes) -> PtxProgram:
    try:
        return PtxProgram(ptx.decode())
    except PtxError as error:
        raise failure("PROGRAM_BUILD_FAILURE", str(error)) from error
