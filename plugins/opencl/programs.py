"""Programs of the OpenCL adapter: created, queried, and the addresses of what they define.
program_builds.py builds them.

urProgramCreateWithIL takes SPIR-V if the driver does. Unified Runtime has no function for source
text. So this function also takes OpenCL C, as an extension of ours, on every driver.
"""

from __future__ import annotations

import ctypes
import struct
from functools import cached_property
from typing import Any, Final

from ...icd.abi import OPENCL
from ...icd.errors import OpenCLError
from ...icd.pocl_kernels import is_whole
from ...icd.program_binaries import query_binaries, query_sizes
from ...loader.base.spirv import is_spirv
from ..sdk.programs import declare_addresses, declare_creation
from ..sdk.rules import decode_source, is_ptx
from .contexts import URContext, check_native
from .core import (
    CLObject,
    adapter,
    check,
    create,
    failure,
    make_handle_array,
    query,
    retain_unless_owned,
)
from .devices import URDevice, can_take_spirv, get_device
from .platforms import find_extension


@adapter.kind
class URProgram(CLObject):
    """A cl_program.

    Args:
        cl: its handle, a reference to which is ours.
        il: the SPIR-V that it was made of, b"" if it was made of something else.
    """

    type = "ur_program_handle_t"
    release, retain_function = "clReleaseProgram", "clRetainProgram"

    def __init__(self, cl: int, context: URContext, il: bytes = b"") -> None:
        super().__init__(cl, context.table)
        self.context, self.il = context, il

    @cached_property
    def devices(self) -> tuple[URDevice, ...]:
        """Return the program's devices in OpenCL's order, which is that of the binaries."""
        known = {device.cl: device for device in self.context.devices}
        found = struct.iter_unpack("@P", self.query("CL_PROGRAM_DEVICES"))
        return tuple(known.get(cl) or get_device(cl) for (cl,) in found)

    def query_build_info(self, device: URDevice, name: str) -> bytes:
        """Return the raw answer of clGetProgramBuildInfo to a property."""
        routine = "clGetProgramBuildInfo"
        return query(self.table, routine, self.cl, device.cl, OPENCL[name], detail=f"({name})")

    @property
    def log(self) -> str:
        """Return the compiler's or the linker's log for all devices, "" if the driver has none."""
        try:
            logs = [
                decode_text(self.query_build_info(device, "CL_PROGRAM_BUILD_LOG"))
                for device in self.devices
            ]
        except OpenCLError:
            return ""
        return "\n".join(log.strip() for log in dict.fromkeys(logs) if log.strip())

    @property
    def kernel_names(self) -> str:
        """Return the names of the program's kernels with semicolons between them.

        Raises:
            OpenCLError: CL_INVALID_PROGRAM_EXECUTABLE if it is not built.
        """
        if not self.query_number("CL_PROGRAM_NUM_KERNELS"):
            return ""  # the query of the names crashes NVIDIA's driver then
        return decode_text(self.query("CL_PROGRAM_KERNEL_NAMES"))

    @property
    def binary_sizes(self) -> list[int]:
        """Return the bytes of the binary for each device, 0 where there is none."""
        return query_sizes(self.cl)

    @property
    def binaries(self) -> list[bytes]:
        """Return the program's binary for each device, b"" where it has none."""
        return query_binaries(self.cl)


def decode_text(data: bytes) -> str:
    """Return a C string as a str, with the white space at its ends."""
    return data.split(b"\0", 1)[0].decode("utf-8", "replace")


# creation


def create_from_il(context: URContext, data: bytes) -> URProgram:
    """Make a program of SPIR-V or OpenCL C. Raises URError (INVALID_BINARY), OpenCLError."""
    if is_spirv(data):
        return URProgram(_create_from_il(context, data), context, data)
    source = decode_source(data)
    if source is None or is_ptx(source):
        raise failure("INVALID_BINARY", "this is neither SPIR-V nor OpenCL C")
    text = (ctypes.c_char_p * 1)(source)
    cl = create(context.table, "clCreateProgramWithSource", context.cl, 1, text, None)
    return URProgram(cl, context)


def _create_from_il(context: URContext, data: bytes) -> int:
    if not any(map(can_take_spirv, context.devices)):
        raise failure("COMPILER_NOT_AVAILABLE", "no device of the context takes SPIR-V")
    create_with_il: Any = context.table.clCreateProgramWithIL
    if context.platform.icd.version_number < (2, 1):
        address = context.platform.icd.extension_function("clCreateProgramWithILKHR")
        if not address:
            raise failure("COMPILER_NOT_AVAILABLE", "the driver has no clCreateProgramWithILKHR")
        create_with_il = OPENCL.functions["clCreateProgramWithIL"].prototype(address)
    code = ctypes.c_int32()
    made = create_with_il(context.cl, data, len(data), ctypes.byref(code))
    if OPENCL.errors.get(code.value, ("",))[0] in ("CL_INVALID_VALUE", "CL_INVALID_BINARY"):
        raise failure("INVALID_BINARY", "the driver does not take this SPIR-V")
    check(code.value, "clCreateProgramWithIL")
    return made


def create_from_binaries(
    context: URContext, devices: list[URDevice], binaries: list[bytes]
) -> URProgram:
    """Make a program of the driver's binaries. Raises URError (INVALID_BINARY), OpenCLError."""
    if not all(map(is_whole, binaries)):  # PoCL would crash
        raise failure("INVALID_BINARY", "a binary of PoCL ends too early")
    count, code = len(binaries), ctypes.c_int32()
    lengths = (ctypes.c_size_t * count)(*map(len, binaries))
    given = make_handle_array(devices), lengths, (ctypes.c_char_p * count)(*binaries), None
    made = context.table.clCreateProgramWithBinary(context.cl, count, *given, ctypes.byref(code))
    if code.value == OPENCL.codes["CL_INVALID_BINARY"]:
        raise failure("INVALID_BINARY", "the driver did not make it, or not for this device")
    check(code.value, "clCreateProgramWithBinary")
    return URProgram(made, context)


def make_program(native: int, context: URContext, properties: Any) -> URProgram:
    """Create an object for a cl_program.

    Args:
        native: the cl_program.
        properties: a struct with `isNativeHandleOwned`, or None.

    Raises:
        URError: INVALID_NULL_HANDLE, INVALID_VALUE, INVALID_CONTEXT.
    """
    check_native(native, context, "clGetProgramInfo", "CL_PROGRAM_CONTEXT")
    retain_unless_owned(URProgram, native, context.table, properties)
    return URProgram(native, context)


declare_creation(adapter, create_from_il, create_from_binaries, make_program)


# queries

adapter.info(
    "urProgramGetInfo",
    {
        "UR_PROGRAM_INFO_REFERENCE_COUNT": lambda program: program.references,
        "UR_PROGRAM_INFO_CONTEXT": lambda program: program.context,
        "UR_PROGRAM_INFO_NUM_DEVICES": lambda program: len(program.devices),
        "UR_PROGRAM_INFO_DEVICES": lambda program: program.devices,
        "UR_PROGRAM_INFO_IL": lambda program: program.il,
        "UR_PROGRAM_INFO_BINARY_SIZES": lambda program: program.binary_sizes,
        "UR_PROGRAM_INFO_BINARIES": lambda program: program.binaries,
        "UR_PROGRAM_INFO_NUM_KERNELS": lambda program: program.query_number(
            "CL_PROGRAM_NUM_KERNELS"
        ),
        "UR_PROGRAM_INFO_KERNEL_NAMES": lambda program: program.kernel_names,
    },
)


# addresses

#: Functions of Intel's drivers that Khronos' headers do not have.
# cl_int (cl_device_id, cl_program, const char *name, cl_ulong *address)
_FunctionPointer: Final = ctypes.CFUNCTYPE(
    ctypes.c_int32, *[ctypes.c_void_p] * 2, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint64)
)
# cl_int (cl_device_id, cl_program, const char *name, size_t *size, void **address)
_VariablePointer: Final = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    *[ctypes.c_void_p] * 2,
    *(ctypes.c_char_p, ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_void_p)),
)


def find_function(program: URProgram, device: URDevice, name: str) -> int:
    """Return the address of a function on a device, 0 if there is none.

    Raises:
        URError: UNSUPPORTED_FEATURE.
    """
    routine = "clGetDeviceFunctionPointerINTEL"
    address = ctypes.c_uint64()
    function = find_extension(program.context.platform, routine, _FunctionPointer)
    code = function(device.cl, program.cl, name.encode(), ctypes.byref(address))
    if code == OPENCL.codes["CL_INVALID_ARG_VALUE"]:
        return 0
    check(code, routine)
    return address.value


def find_variable(program: URProgram, device: URDevice, name: str) -> tuple[int, int]:
    """Return the size and the address of a global variable on a device.

    Raises:
        URError: INVALID_VALUE if there is none, UNSUPPORTED_FEATURE.
    """
    routine = "clGetDeviceGlobalVariablePointerINTEL"
    size, address = ctypes.c_size_t(), ctypes.c_void_p()
    function = find_extension(program.context.platform, routine, _VariablePointer)
    given = name.encode(), ctypes.byref(size), ctypes.byref(address)
    code = function(device.cl, program.cl, *given)
    if code == OPENCL.codes["CL_INVALID_ARG_VALUE"] or (not code and not address.value):
        raise failure("INVALID_VALUE", "the program has no global variable of that name")
    check(code, routine)
    return size.value, address.value or 0


declare_addresses(
    adapter, find_function, lambda program, device: program.kernel_names.split(";"), find_variable
)
