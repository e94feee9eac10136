"""Platform and Device: a driver's handles with the table to call them by, and their properties as Python values.

`info("CL_DEVICE_NAME")` gives any property by its OpenCL name. `_KINDS` says which are not plain numbers; what it does not list
is read by the size of the answer: 4 and 8 bytes are an unsigned number (cl_uint, cl_bool, cl_ulong, size_t, a bit-field, a
handle), anything else stays bytes. (OpenCL specification, tables of clGetPlatformInfo and clGetDeviceInfo.)
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from ..loader.base.memory import read_word
from ..loader.base.query import text
from ..loader.base.table import DispatchTable
from .abi import CL_SUCCESS, OPENCL
from .errors import check, error
from .tables import parse_version, query

if TYPE_CHECKING:
    from .drivers import Driver

_CL_INVALID_VALUE: Final = -30
_CL_DEVICE_NOT_FOUND: Final = -1
_NAME_VERSION: Final = struct.Struct("=I64s")


def _version(number: int) -> tuple[int, int, int]:
    """cl_version: 10 bits of major, 10 of minor, 12 of patch."""
    return number >> 22, number >> 12 & 0x3FF, number & 0xFFF


def _names_and_versions(value: bytes) -> tuple[tuple[str, tuple[int, int, int]], ...]:
    """An array of struct cl_name_version."""
    return tuple(
        (text(name), _version(number)) for number, name in _NAME_VERSION.iter_unpack(value)
    )


def _numbers(value: bytes) -> tuple[int, ...]:
    """An array of size_t or intptr_t."""
    return struct.unpack(f"@{len(value) // struct.calcsize('@n')}n", value)


def _by_size(value: bytes) -> int | bytes:
    return int.from_bytes(value, "little") if len(value) in (4, 8) else value


#: How to read the properties that are not plain numbers: a converter, and the names after the prefix CL_.
_KINDS: Final[tuple[tuple[Callable[[bytes], Any], str], ...]] = (
    (
        text,
        "PLATFORM_PROFILE PLATFORM_VERSION PLATFORM_NAME PLATFORM_VENDOR PLATFORM_EXTENSIONS PLATFORM_ICD_SUFFIX_KHR",
    ),
    (
        text,
        "DEVICE_NAME DEVICE_VENDOR DRIVER_VERSION DEVICE_PROFILE DEVICE_VERSION DEVICE_EXTENSIONS DEVICE_OPENCL_C_VERSION",
    ),
    (text, "DEVICE_BUILT_IN_KERNELS DEVICE_IL_VERSION DEVICE_LATEST_CONFORMANCE_VERSION_PASSED"),
    (
        any,
        "PLATFORM_UNLOADABLE_KHR DEVICE_IMAGE_SUPPORT DEVICE_ERROR_CORRECTION_SUPPORT DEVICE_ENDIAN_LITTLE",
    ),
    (
        any,
        "DEVICE_AVAILABLE DEVICE_COMPILER_AVAILABLE DEVICE_LINKER_AVAILABLE DEVICE_HOST_UNIFIED_MEMORY",
    ),
    (any, "DEVICE_PREFERRED_INTEROP_USER_SYNC DEVICE_SUB_GROUP_INDEPENDENT_FORWARD_PROGRESS"),
    (any, "DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT DEVICE_WORK_GROUP_COLLECTIVE_FUNCTIONS_SUPPORT"),
    (any, "DEVICE_GENERIC_ADDRESS_SPACE_SUPPORT DEVICE_PIPE_SUPPORT DEVICE_LUID_VALID"),
    (_numbers, "DEVICE_MAX_WORK_ITEM_SIZES DEVICE_PARTITION_PROPERTIES DEVICE_PARTITION_TYPE"),
    (
        lambda value: _version(int.from_bytes(value, "little")),
        "PLATFORM_NUMERIC_VERSION DEVICE_NUMERIC_VERSION",
    ),
    (
        _names_and_versions,
        "PLATFORM_EXTENSIONS_WITH_VERSION DEVICE_EXTENSIONS_WITH_VERSION DEVICE_ILS_WITH_VERSION",
    ),
    (
        _names_and_versions,
        "DEVICE_BUILT_IN_KERNELS_WITH_VERSION DEVICE_OPENCL_C_ALL_VERSIONS DEVICE_OPENCL_C_FEATURES",
    ),
    (bytes, "DEVICE_UUID DRIVER_UUID DEVICE_LUID"),
)
_CONVERTERS: Final = {
    f"CL_{name}": converter for converter, names in _KINDS for name in names.split()
}

_DEVICE_TYPES: Final = ("CPU", "GPU", "ACCELERATOR", "CUSTOM")


def _info(table: DispatchTable, routine: str, handle: int, name: str) -> Any:
    if name not in OPENCL.constants:
        raise error(_CL_INVALID_VALUE, routine, f"OpenCL has no constant {name}.")
    value = query(table, routine, handle, OPENCL[name], detail=f"({name})")
    return _CONVERTERS.get(name, _by_size)(value)


@dataclass(frozen=True)
class Platform:
    """A platform of a driver. Two are equal when they have the same handle.

    `handle` is the cl_platform_id, `table` the complete dispatch table to call it by. `icd_version` is 1 or 2, `notes` are
    remarks on how it was bound. For ICD 2, `foreign_dispatch_data` is the address that another loader in this process had stored
    before ours, 0 if there was none. That loader goes on working with our data, which begins with a complete cl_icd_dispatch.
    """

    handle: int
    table: DispatchTable = field(compare=False)
    driver: Driver = field(compare=False)
    icd_version: int = field(compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    foreign_dispatch_data: int = field(default=0, compare=False)

    def info(self, name: str) -> Any:
        """A property by its OpenCL name, such as "CL_PLATFORM_HOST_TIMER_RESOLUTION", as a Python value."""
        return _info(self.table, "clGetPlatformInfo", self.handle, name)

    @cached_property
    def name(self) -> str:
        """CL_PLATFORM_NAME."""
        return self.info("CL_PLATFORM_NAME")

    @cached_property
    def vendor(self) -> str:
        """CL_PLATFORM_VENDOR."""
        return self.info("CL_PLATFORM_VENDOR")

    @cached_property
    def version(self) -> str:
        """CL_PLATFORM_VERSION, "OpenCL 3.0 …"."""
        return self.info("CL_PLATFORM_VERSION")

    @cached_property
    def version_number(self) -> tuple[int, int]:
        """The OpenCL version as (major, minor)."""
        return parse_version(self.version)

    @cached_property
    def extensions(self) -> frozenset[str]:
        """CL_PLATFORM_EXTENSIONS, split."""
        return frozenset(self.info("CL_PLATFORM_EXTENSIONS").split())

    @cached_property
    def suffix(self) -> str:
        """CL_PLATFORM_ICD_SUFFIX_KHR, the ending of the vendor's own extension functions."""
        return self.info("CL_PLATFORM_ICD_SUFFIX_KHR")

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """All devices of the platform, in the driver's order; empty when it has none (CL_DEVICE_NOT_FOUND)."""
        count = ctypes.c_uint()
        every = OPENCL["CL_DEVICE_TYPE_ALL"]
        code = self.table.clGetDeviceIDs(self.handle, every, 0, None, ctypes.byref(count))
        if code == _CL_DEVICE_NOT_FOUND or (code == CL_SUCCESS and not count.value):
            return ()
        check(code, "clGetDeviceIDs")
        handles = (ctypes.c_void_p * min(count.value, 4096))()
        check(
            self.table.clGetDeviceIDs(self.handle, every, len(handles), handles, None),
            "clGetDeviceIDs",
        )
        return tuple(Device(handle, self) for handle in handles if handle)

    @property
    def dispatch_data_is_ours(self) -> bool:
        """Whether the driver still holds our dispatch data; another loader may have replaced it. Always so for ICD 1.

        Calls through `table` do not depend on it.
        """
        return (
            self.icd_version == 1
            or read_word(self.handle + ctypes.sizeof(ctypes.c_void_p)) == self.table.address
        )

    def extension_function(self, name: str) -> int | None:
        """The address of an extension function of this platform, None if it has none of that name.

        The functions of the ICD protocol itself (clIcd…) are no extension functions (cl_khr_icd).
        """
        if name.startswith("clIcd"):
            return None
        if self.version_number >= (1, 2):
            return (
                self.table.clGetExtensionFunctionAddressForPlatform(self.handle, name.encode())
                or None
            )
        return self.driver.extension_function(name)

    def to_pyopencl(self) -> Any:
        """This platform as a `pyopencl.Platform`, whether or not PyOpenCL's own loader has found the driver."""
        import pyopencl

        return pyopencl.Platform.from_int_ptr(self.handle)

    def __repr__(self) -> str:
        return (
            f"<Platform {self.name!r} {self.version!r}, ICD {self.icd_version}, {self.driver.path}>"
        )


@dataclass(frozen=True)
class Device:
    """A device of a platform. Two are equal when they have the same handle, the cl_device_id."""

    handle: int
    platform: Platform = field(compare=False)

    @property
    def table(self) -> DispatchTable:
        """The dispatch table to call it by."""
        return self.platform.table

    def info(self, name: str) -> Any:
        """A property by its OpenCL name, such as "CL_DEVICE_MAX_COMPUTE_UNITS", as a Python value."""
        return _info(self.table, "clGetDeviceInfo", self.handle, name)

    @cached_property
    def name(self) -> str:
        """CL_DEVICE_NAME."""
        return self.info("CL_DEVICE_NAME")

    @cached_property
    def vendor(self) -> str:
        """CL_DEVICE_VENDOR."""
        return self.info("CL_DEVICE_VENDOR")

    @cached_property
    def type(self) -> str:
        """ "CPU", "GPU", "ACCELERATOR" or "CUSTOM"; "|" between them if the driver names several."""
        bits = self.info("CL_DEVICE_TYPE")
        return "|".join(
            name for name in _DEVICE_TYPES if bits & OPENCL[f"CL_DEVICE_TYPE_{name}"]
        ) or hex(bits)

    @cached_property
    def version(self) -> str:
        """CL_DEVICE_VERSION."""
        return self.info("CL_DEVICE_VERSION")

    @cached_property
    def version_number(self) -> tuple[int, int]:
        """The OpenCL version as (major, minor)."""
        return parse_version(self.version)

    @cached_property
    def driver_version(self) -> str:
        """CL_DRIVER_VERSION."""
        return self.info("CL_DRIVER_VERSION")

    @cached_property
    def extensions(self) -> frozenset[str]:
        """CL_DEVICE_EXTENSIONS, split."""
        return frozenset(self.info("CL_DEVICE_EXTENSIONS").split())

    @property
    def available(self) -> bool:
        """CL_DEVICE_AVAILABLE, asked anew each time."""
        return self.info("CL_DEVICE_AVAILABLE")

    def to_pyopencl(self) -> Any:
        """This device as a `pyopencl.Device`."""
        import pyopencl

        return pyopencl.Device.from_int_ptr(self.handle)

    def __repr__(self) -> str:
        return f"<Device {self.name!r} ({self.type}) of {self.platform.name!r}>"
