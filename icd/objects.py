"""Platforms and devices: a driver's handles, the table to call them by, and their properties.

`info("CL_DEVICE_NAME")` gives any property by its OpenCL name, as a Python value. The ABI data has
the types of most answers, and `_WITHOUT_A_TYPE` has the others. Some drivers give empty or
truncated answers. An answer that cannot be of its type raises FairleadError. (OpenCL specification,
tables of clGetPlatformInfo and clGetDeviceInfo.)
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property

from ..loader.base.errors import FairleadError, add_article
from ..loader.base.frozen_value import Value
from ..loader.base.memory import read_word
from ..loader.base.query import decode_text
from ..loader.base.table import DispatchTable
from .abi import CL_SUCCESS, OPENCL
from .errors import check, error
from .tables import parse_version, query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from .drivers import Driver

_CL_INVALID_VALUE: Final = -30
_CL_DEVICE_NOT_FOUND: Final = -1
_NAME_VERSION: Final = struct.Struct("=I64s")
_MOST_DEVICES: Final = 4096


def _decode_version(value: bytes) -> tuple[int, int, int]:
    """A cl_version: 10 bits of major, 10 of minor, 12 of patch."""
    (number,) = struct.unpack("=I", value)
    return number >> 22, number >> 12 & 0x3FF, number & 0xFFF


def _decode_names_and_versions(value: bytes) -> tuple[tuple[str, tuple[int, int, int]], ...]:
    """An array of struct cl_name_version."""
    return tuple(
        (decode_text(name), _decode_version(struct.pack("=I", number)))
        for number, name in _NAME_VERSION.iter_unpack(value)
    )


def _decode_numbers(value: bytes) -> tuple[int, ...]:
    """An array of size_t or intptr_t."""
    return struct.unpack(f"@{len(value) // struct.calcsize('@n')}n", value)


def _decode_number(value: bytes) -> int:
    """An unsigned number of 4 or 8 bytes: cl_uint, cl_ulong, size_t, a bit-field, a handle."""
    if len(value) not in (4, 8):
        raise struct.error
    return int.from_bytes(value, "little")


def _decode_flag(value: bytes) -> bool:
    """A cl_bool."""
    return bool(_decode_number(value))


def _decode_by_size(value: bytes) -> int | bytes:
    return _decode_number(value) if len(value) in (4, 8) else value


_BY_TYPE: Final[dict[str, Callable[[bytes], Any]]] = {
    "": _decode_by_size,
    "char[]": decode_text,
    "cl_bool": _decode_flag,
    "size_t[]": _decode_numbers,
    "cl_device_partition_property[]": _decode_numbers,
}

#: How to read the answers whose type the ABI data does not say, by their names.
_WITHOUT_A_TYPE: Final[dict[str, Callable[[bytes], Any]]] = {
    **dict.fromkeys(("CL_PLATFORM_UNLOADABLE_KHR", "CL_DEVICE_LUID_VALID"), _decode_flag),
    **dict.fromkeys(("CL_PLATFORM_NUMERIC_VERSION", "CL_DEVICE_NUMERIC_VERSION"), _decode_version),
    **dict.fromkeys(("CL_DEVICE_UUID", "CL_DRIVER_UUID", "CL_DEVICE_LUID"), bytes),
    **dict.fromkeys(
        (
            "CL_PLATFORM_EXTENSIONS_WITH_VERSION",
            "CL_DEVICE_EXTENSIONS_WITH_VERSION",
            "CL_DEVICE_ILS_WITH_VERSION",
            "CL_DEVICE_BUILT_IN_KERNELS_WITH_VERSION",
            "CL_DEVICE_OPENCL_C_ALL_VERSIONS",
            "CL_DEVICE_OPENCL_C_FEATURES",
        ),
        _decode_names_and_versions,
    ),
}


def _find_decoder(name: str, answer: str) -> Callable[[bytes], Any]:
    if name in _WITHOUT_A_TYPE:
        return _WITHOUT_A_TYPE[name]
    return _BY_TYPE.get(answer, _decode_by_size if answer.endswith("[]") else _decode_number)


_DEVICE_TYPES: Final = ("CPU", "GPU", "ACCELERATOR", "CUSTOM")


def name_device_type(bits: int) -> str:
    """Return a CL_DEVICE_TYPE as `CLDevice.type` has it."""
    return "|".join(
        name for name in _DEVICE_TYPES if bits & OPENCL[f"CL_DEVICE_TYPE_{name}"]
    ) or hex(bits)


def _query_info(table: DispatchTable, routine: str, handle: int, name: str) -> Any:
    answer = OPENCL.find_answer(name)
    if answer is None:
        raise error(_CL_INVALID_VALUE, routine, f"OpenCL has no constant {name}.")
    value = query(table, routine, handle, OPENCL[name], detail=f"({name})")
    try:
        return _find_decoder(name, answer)(value)
    except struct.error:
        raise FairleadError(
            f"the answer to {name} has {len(value)} bytes, "
            f"which is not {add_article(answer or 'value of its type')}",
            routine=routine,
            remedy="update the driver",
        ) from None


def _find_class(name: str) -> Any:
    """Return a class of PyOpenCL. Raises ModuleNotFoundError if it is not installed.

    Where only PoCL's wheel is, there is a folder `pyopencl` that Python imports as a package.
    """
    with suppress(ModuleNotFoundError):
        import pyopencl

        if hasattr(pyopencl, name):
            return getattr(pyopencl, name)
    raise ModuleNotFoundError(
        "this needs pyopencl, which is not installed: pip install 'fairlead[pyopencl]'",
        name="pyopencl",
    )


def _read_for_repr(thing: CLPlatform | CLDevice, name: str) -> str:
    """A property in a repr, which must not fail."""
    try:
        return repr(getattr(thing, name))
    except FairleadError:
        return f"of unknown {name}"


class CLPlatform(Value, key=("handle",)):
    """A platform of a driver. Two are equal when they have the same handle.

    Attributes:
        handle: the cl_platform_id.
        table: the complete dispatch table to call it by.
        icd_version: 1 or 2 (cl_khr_icd).
        notes: remarks on how it was bound.
        foreign_dispatch_data: for ICD 2 the address that another loader in this process had stored
            before ours, 0 if there was none. That loader goes on working with our data, which
            begins with a complete cl_icd_dispatch.
    """

    handle: int
    table: DispatchTable
    driver: Driver
    icd_version: int
    notes: tuple[str, ...] = ()
    foreign_dispatch_data: int = 0

    def info(self, name: str) -> Any:
        """A property as a Python value.

        Args:
            name: its OpenCL name, such as "CL_PLATFORM_HOST_TIMER_RESOLUTION".

        Raises:
            OpenCLError: the driver does not tell it.
            FairleadError: the answer cannot be of its type.
        """
        return _query_info(self.table, "clGetPlatformInfo", self.handle, name)

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

    @property
    def devices(self) -> tuple[CLDevice, ...]:
        """All devices of the platform, in the driver's order; empty if it has none.

        Handles that are NULL are left out: see `device_faults`.

        Raises:
            OpenCLError: the driver refuses to list them (clGetDeviceIDs).
            FairleadError: it gives a number of devices that cannot be.
        """
        return self._listed[0]

    @property
    def device_faults(self) -> tuple[str, ...]:
        """The faults of the driver's list of devices. Raises what `devices` raises."""
        return self._listed[1]

    @cached_property
    def _listed(self) -> tuple[tuple[CLDevice, ...], tuple[str, ...]]:
        count, routine = ctypes.c_uint(), "clGetDeviceIDs"
        every = OPENCL["CL_DEVICE_TYPE_ALL"]
        code = self.table.clGetDeviceIDs(self.handle, every, 0, None, ctypes.byref(count))
        if code == _CL_DEVICE_NOT_FOUND or (code == CL_SUCCESS and not count.value):
            return (), ()
        check(code, routine)
        if count.value > _MOST_DEVICES:
            raise FairleadError(
                f"the driver says that it has {count.value} devices, which cannot be",
                routine=routine,
                remedy="update the driver",
            )
        handles = (ctypes.c_void_p * count.value)()
        check(self.table.clGetDeviceIDs(self.handle, every, count.value, handles, None), routine)
        found = tuple(CLDevice(handle, self) for handle in handles if handle)
        null = count.value - len(found)
        fault = f"{routine} gave {count.value} devices, and {null} of their handles are NULL"
        return found, (fault,) if null else ()

    @property
    def dispatch_data_is_ours(self) -> bool:
        """Whether the driver still has our dispatch data; always for ICD 1.

        Another loader may have replaced it. Calls through `table` do not depend on it.
        """
        return (
            self.icd_version == 1
            or read_word(self.handle + ctypes.sizeof(ctypes.c_void_p)) == self.table.address
        )

    def extension_function(self, name: str) -> int | None:
        """The address of an extension function of this platform, None if it has none of that name.

        The functions of the ICD protocol (clIcd…) are not extension functions (cl_khr_icd).
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
        """Return this platform as a `pyopencl.Platform`, even if PyOpenCL's own loader does not
        find it."""
        return _find_class("Platform").from_int_ptr(self.handle)

    def __repr__(self) -> str:
        name, version = _read_for_repr(self, "name"), _read_for_repr(self, "version")
        return f"<Platform {name} {version}, ICD {self.icd_version}, {self.driver.path}>"


class CLDevice(Value, key=("handle",)):
    """A device of a platform. Two are equal when they have the same handle, the cl_device_id."""

    handle: int
    platform: CLPlatform

    @property
    def table(self) -> DispatchTable:
        """The dispatch table to call it by."""
        return self.platform.table

    def info(self, name: str) -> Any:
        """A property as a Python value.

        Args:
            name: its OpenCL name, such as "CL_DEVICE_MAX_COMPUTE_UNITS".

        Raises:
            OpenCLError: the driver does not tell it.
            FairleadError: the answer cannot be of its type.
        """
        return _query_info(self.table, "clGetDeviceInfo", self.handle, name)

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
        """ "CPU", "GPU", "ACCELERATOR" or "CUSTOM", with "|" between them if the driver names
        several."""
        return name_device_type(self.info("CL_DEVICE_TYPE"))

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
        return _find_class("Device").from_int_ptr(self.handle)

    def __repr__(self) -> str:
        kind = _read_for_repr(self, "type").strip("'")
        name, platform = _read_for_repr(self, "name"), _read_for_repr(self.platform, "name")
        return f"<Device {name} ({kind}) of {platform}>"


#: The public names, as `fairlead.Platform` and `fairlead.Device`. In this package the names say the
#: layer, because Unified Runtime's platforms and devices are there too.
Platform = CLPlatform
Device = CLDevice
