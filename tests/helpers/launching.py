"""What tests of programs, kernels and launches share: kernels, and what it takes to run one."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

import pytest

from fairlead.conformance.ur.values import (
    BufferValue,
    LocalValue,
    PointerValue,
    SamplerValue,
    make_arguments,
)
from fairlead.icd.abi import OPENCL
from fairlead.loader.base.memory import read_word
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.devices import PluginDevice
from helpers.ur_calls import Calls, array

SOURCE: Final = b"""
kernel void store(global int *out, int value) {
    out[get_global_id(0)] = value + (int)get_global_id(0);
}
kernel void nothing(void) {}
kernel void shape(global int *out) {
    if (get_local_id(0) == 0 && get_local_id(1) == 0 && get_local_id(2) == 0) {
        out[0] = get_global_size(0), out[3] = get_local_size(0), out[6] = get_global_offset(0);
        out[1] = get_global_size(1), out[4] = get_local_size(1), out[7] = get_global_offset(1);
        out[2] = get_global_size(2), out[5] = get_local_size(2), out[8] = get_global_offset(2);
    }
}
kernel __attribute__((reqd_work_group_size(4, 1, 1))) void fours(global int *out) {
    out[get_global_id(0)] = get_local_size(0);
}
kernel void sums(global int *out, local int *scratch) {
    scratch[get_local_id(0)] = get_local_id(0) + 1;
    barrier(CLK_LOCAL_MEM_FENCE);
    int sum = 0;
    for (int i = 0; i < get_local_size(0); i++) sum += scratch[i];
    out[get_global_id(0)] = sum;
}
"""
BROKEN: Final = b"kernel void broken(global int *a) { a[0] = nonsense; }"
UNRESOLVED: Final = (
    b"void elsewhere(global int *a); kernel void unresolved(global int *a) { elsewhere(a); }"
)

VALUE, POINTER, MEM, LOCAL, SAMPLER = (
    UR[f"UR_EXP_KERNEL_ARG_TYPE_{kind}"]
    for kind in ("VALUE", "POINTER", "MEM_OBJ", "LOCAL", "SAMPLER")
)

#: What a device's compiler made of a source.
_BINARIES: Final[dict[tuple[bytes, bytes], bytes]] = {}

Row = UR.get_struct("ur_exp_kernel_arg_properties_t")


def program_of(ur: Calls, context: int, source: bytes = SOURCE) -> int:
    """A program that is not built yet."""
    return ur.make("urProgramCreateWithIL", context, source, len(source)).value or 0


def is_intel(device: PluginDevice) -> bool:
    """Whether it is of Intel's driver."""
    return "Intel" in device.platform.name


def find_foreign(device: PluginDevice) -> PluginDevice:
    """A device of another driver. The test is skipped where there is none."""
    for found in device.platform.plugin.devices:
        if found.platform.handle != device.platform.handle:
            return found
    pytest.skip("needs a second driver")


def has_usm_extension(ur: Calls, device: PluginDevice) -> bool:
    """Whether its driver has cl_intel_unified_shared_memory: Intel's has, and PoCL from 7 on."""
    listed = ur.info("urDeviceGetInfo", device.handle, "UR_DEVICE_INFO_EXTENSIONS")
    return b"cl_intel_unified_shared_memory" in listed


def takes_spirv(ur: Calls, device: PluginDevice) -> bool:
    """Whether its driver makes programs of SPIR-V."""
    version = ur.info("urDeviceGetInfo", device.handle, "UR_DEVICE_INFO_IL_VERSION")
    return b"SPIR-V" in version


def build_program(ur: Calls, context: int, program: int) -> None:
    """Build a program. If that fails, show the compiler's log."""
    if (code := ur("urProgramBuild", context, program)) != "SUCCESS":
        devices = ur.info("urContextGetInfo", context, "UR_CONTEXT_INFO_DEVICES")
        device, size = int.from_bytes(devices[:8], "little"), ctypes.c_size_t()
        ask = program, device, UR["UR_PROGRAM_BUILD_INFO_LOG"]
        ur.ok("urProgramGetBuildInfo", *ask, 0, None, size)
        log = ctypes.create_string_buffer(size.value + 1)
        ur.ok("urProgramGetBuildInfo", *ask, size.value, log)
        raise AssertionError(f"urProgramBuild: {code}: {log.value.decode()}")


def built(ur: Calls, context: int, source: bytes = SOURCE) -> int:
    """A program that is built."""
    program = program_of(ur, context, source)
    build_program(ur, context, program)
    return program


def build_once(ur: Calls, context: int, source: bytes = SOURCE) -> int:
    """Like `built`, but a process compiles a source once for the only device of contexts.

    Intel's driver and PoCL compile for 60 to 900 ms. They take 2 ms for a program of a binary.
    """
    device = ur.info("urContextGetInfo", context, "UR_CONTEXT_INFO_DEVICES")
    if binary := _BINARIES.get((device, source)):
        data = ctypes.create_string_buffer(binary, len(binary))
        given = device, (ctypes.c_size_t * 1)(len(binary)), array(ctypes.addressof(data)), None
        program = ur.make("urProgramCreateWithBinary", context, 1, *given).value or 0
    else:
        program = program_of(ur, context, source)
    build_program(ur, context, program)
    if not binary and len(device) == ctypes.sizeof(ctypes.c_void_p):
        data = ctypes.create_string_buffer(
            ur.number("urProgramGetInfo", program, "UR_PROGRAM_INFO_BINARY_SIZES")
        )
        given = UR["UR_PROGRAM_INFO_BINARIES"], 8, array(ctypes.addressof(data)), None
        ur.ok("urProgramGetInfo", program, *given)
        _BINARIES[device, source] = data.raw
    return program


def rows(*arguments: Any) -> Any:
    """Return arguments as launches take them, by their places.

    An int is a value; others are `(MEM, handle)`, `(POINTER, address)` and `(LOCAL, size)`.
    """
    kinds = {POINTER: PointerValue, MEM: BufferValue, LOCAL: LocalValue}
    made = make_arguments(
        *(
            ctypes.c_int32(one) if isinstance(one, int) else kinds.get(one[0], SamplerValue)(one[1])
            for one in arguments
        )
    )
    for row, one in zip(made, arguments, strict=True):
        row.type = VALUE if isinstance(one, int) else one[0]  # which may be none that there is
    return made


def sizes(numbers: Sequence[int] | None) -> Any:
    """Numbers as an array of size_t, None for none."""
    return (ctypes.c_size_t * len(numbers))(*numbers) if numbers is not None else None


def launch(
    ur: Calls,
    queue: int,
    kernel: int,
    size: Sequence[int],
    *arguments: Any,
    local: Sequence[int] | None = None,
    offset: Sequence[int] | None = None,
    waits: Sequence[Any] = (),
    event: Any = None,
    properties: Any = None,
    dimensions: int | None = None,
) -> str:
    """The code of urEnqueueKernelLaunchWithArgsExp."""
    return ur(
        "urEnqueueKernelLaunchWithArgsExp",
        queue,
        kernel,
        len(size) if dimensions is None else dimensions,
        sizes(offset),
        sizes(size),
        sizes(local),
        len(arguments),
        rows(*arguments) if arguments else None,
        properties,
        len(waits),
        array(*waits) if waits else None,
        event,
    )


class Numbers:
    """A buffer of 32-bit numbers on the device."""

    def __init__(self, ur: Calls, context: int, count: int) -> None:
        self.ur, self.count = ur, count
        given = "urMemBufferCreate", context, UR["UR_MEM_FLAG_READ_WRITE"], 4 * count, None
        self.handle = ur.make(*given).value or 0

    @property
    def argument(self) -> tuple[int, int]:
        """It as an argument of `launch`."""
        return MEM, self.handle

    def read(self, queue: int) -> list[int]:
        """What is in it, after all that the queue has to do."""
        found = (ctypes.c_int32 * self.count)()
        self.ur.ok("urEnqueueMemBufferRead", queue, self.handle, True, 0, 4 * self.count, found)
        return list(found)


class Exported:
    """The functions that a library exports, as a table.

    New tables lack urEnqueueKernelLaunch and the functions that set one argument.
    """

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)

    def __getattr__(self, name: str) -> Any:
        return UR.functions[name].prototype((name, self._library))


def opencl(native: int) -> DispatchTable:
    """The table of the driver that made a native handle."""
    return DispatchTable(OPENCL, read_word(native) or 0)


def native(ur: Calls, routine: str, handle: int) -> int:
    """What a …GetNativeHandle function gives."""
    return ur.make(routine, handle).value or 0


def references(table: DispatchTable, routine: str, handle: int, name: str) -> int:
    """OpenCL's own count of an object's references."""
    count = ctypes.c_uint32()
    assert getattr(table, routine)(handle, OPENCL[name], 4, ctypes.byref(count), None) == 0
    return count.value


def last_error(ur: Calls) -> tuple[str, int]:
    """What urAdapterGetLastError says in this thread."""
    adapter, text, code = ctypes.c_void_p(), ctypes.c_char_p(), ctypes.c_int32()
    ur.ok("urAdapterGet", 1, adapter)
    ur.ok("urAdapterGetLastError", adapter, ctypes.byref(text), code)
    ur.ok("urAdapterRelease", adapter)
    return (text.value or b"").decode(), code.value
