"""Opens a Level Zero driver, and lists its devices.

    >>> from fairlead.loader.ze.driver import load
    >>> driver = load(candidate)                        # one of discovery.find_drivers()
    >>> [device.name for device in driver.devices]
    ['Intel(R) Arc(TM) …']
    >>> driver.table.zeContextCreate(...)               # every function, by its name

A driver stays open until the process ends: Level Zero has no function that ends one.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from ..base.elf import check_file
from ..base.errors import FairleadError
from ..base.library import Library, open_library, open_with_siblings
from ..base.query import decode_text
from ..base.search import Candidate, find_python_libraries
from ..base.table import DispatchTable
from .abi import PLATFORM_EXTENSION, ZE, LevelZeroError, check
from .binding import DriverBinding, bind_driver, format_version
from .validation import ParameterValidation, is_wanted

_MOST: Final = 1 << 16  # of handles or properties that a driver may report
_ALL_TYPES: Final = sum(ZE.groups["ze_init_driver_type_flags_t"])
_NO_DEVICE: Final = "check that its device is in this machine and that this user may use it"
#: What a driver answers that has no device here, as opposed to one that fails.
_NOTHING_HERE: Final = ("ZE_RESULT_ERROR_UNINITIALIZED", "ZE_RESULT_ERROR_UNSUPPORTED_FEATURE")


@dataclass(eq=False)
class ZEDriver:
    """An open Level Zero driver.

    Attributes:
        handles: its driver handles, usually one.
        idle: why it has no device, "" if it has one.
        remedy: what to do about that.
        validation: the checks of arguments, None if they are off.
    """

    candidate: Candidate
    library: Library
    binding: DriverBinding
    handles: tuple[int, ...] = ()
    idle: str = ""
    remedy: str = ""
    validation: ParameterValidation | None = field(default=None, repr=False)

    @property
    def table(self) -> DispatchTable:
        """Its functions by name: `table.zeContextCreate(...)`."""
        return self.binding.table

    @property
    def path(self) -> str:
        """The real path of the library."""
        return self.library.path

    @cached_property
    def devices(self) -> tuple[ZEDevice, ...]:
        """The root devices of all its handles.

        Raises:
            LevelZeroError: the driver does not list them.
        """
        return tuple(
            ZEDevice(handle, driver, self)
            for driver in self.handles
            for handle in _query_handles(self.table.zeDeviceGet, "zeDeviceGet", driver)
        )

    @cached_property
    def api_version(self) -> str:
        """The version of Level Zero that its first handle reports, such as "1.6".

        Raises:
            LevelZeroError: the driver does not tell.
        """
        version = ctypes.c_uint32()
        code = self.table.zeDriverGetApiVersion(self.handles[0], ctypes.byref(version))
        check(code, "zeDriverGetApiVersion")
        return format_version(version.value)

    @cached_property
    def extensions(self) -> dict[str, str]:
        """The extensions of its first handle: name to version, such as "1.0".

        Raises:
            LevelZeroError: the driver does not list them.
        """
        return self.query_extensions(self.handles[0])

    def find_name(self, handle: int) -> str:
        """What one of the driver's handles stands for.

        Level Zero has no names of drivers. fairlead's own driver has a handle for each OpenCL
        platform, whose name is in the name of an extension.

        Returns:
            The name of the OpenCL platform, else that of the library's file.

        Raises:
            LevelZeroError: the driver does not list its extensions.
        """
        beginning = PLATFORM_EXTENSION
        names = (one for one in self.query_extensions(handle) if one.startswith(beginning))
        return next(names, "").removeprefix(beginning) or os.path.basename(self.path)

    def query_extensions(self, handle: int) -> dict[str, str]:
        """The extensions of one of its handles. See `extensions`."""
        found = _query_list(
            self.table.zeDriverGetExtensionProperties,
            "zeDriverGetExtensionProperties",
            ZE.get_struct("ze_driver_extension_properties_t"),
            handle,
        )
        return {decode_text(each.name): format_version(each.version) for each in found}


@dataclass(frozen=True)
class ZEDevice:
    """A root device of a Level Zero driver.

    Attributes:
        handle: its ze_device_handle_t.
        driver_handle: the ze_driver_handle_t that lists it.
    """

    handle: int
    driver_handle: int
    driver: ZEDriver = field(repr=False)

    @cached_property
    def properties(self) -> Any:
        """Its ze_device_properties_t, as a ctypes struct.

        Raises:
            LevelZeroError: the device does not describe itself.
        """
        found = ZE.get_struct("ze_device_properties_t")()
        found.stype = ZE["ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES"]
        code = self.driver.table.zeDeviceGetProperties(self.handle, ctypes.byref(found))
        check(code, "zeDeviceGetProperties")
        return found

    @property
    def name(self) -> str:
        """The device's name."""
        return decode_text(self.properties.name)

    @property
    def type(self) -> str:
        """The device's type, such as "GPU" or "VPU"; a number if Level Zero does not define it."""
        number = self.properties.type
        name = ZE.groups["ze_device_type_t"].get(number, str(number))
        return name.removeprefix("ZE_DEVICE_TYPE_")

    @cached_property
    def driver_version(self) -> str:
        """The version of its driver: the number that zeDriverGetProperties gives.

        Raises:
            LevelZeroError: the driver does not tell.
        """
        found = ZE.get_struct("ze_driver_properties_t")()
        found.stype = ZE["ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES"]
        code = self.driver.table.zeDriverGetProperties(self.driver_handle, ctypes.byref(found))
        check(code, "zeDriverGetProperties")
        return str(found.driverVersion)


def load(candidate: Candidate, *, progress: Callable[[str], None] = lambda step: None) -> ZEDriver:
    """Open a driver in this process, without a probe, and initialize it.

    Args:
        candidate: what `discovery` found.
        progress: called with a description of each step before it.

    Raises:
        LibraryError: the library cannot be opened.
        DriverBindError: it is not a driver.
        LevelZeroError: it fails to initialize.
    """
    if "/" in candidate.library:
        check_file(candidate.library)
    progress("opening the library")
    folders = find_python_libraries()
    library = open_with_siblings(candidate.library, folders) or open_library(candidate.library)
    progress("binding its functions")
    try:
        driver = ZEDriver(candidate, library, bind_driver(library))
    except FairleadError:
        library.close()
        raise
    if is_wanted():
        driver.validation = ParameterValidation(driver.table)
    progress("initializing it")
    try:
        driver.handles = tuple(initialize(driver.table))
    except LevelZeroError as error:
        if error.code not in _NOTHING_HERE:
            if driver.validation is not None:
                driver.validation.remove()
            raise
        driver.idle = f"it has no device: {error.routine} [{error.code}]"
    if not driver.handles:
        driver.idle = driver.idle or "it has no device: it lists no driver handle"
        driver.remedy = _NO_DEVICE
    return driver


def initialize(table: DispatchTable) -> list[int]:
    """Initialize a driver, and return its handles.

    zeInitDrivers is asked first. Drivers of before 1.10 have zeInit and zeDriverGet.

    Raises:
        LevelZeroError: it fails.
    """
    desc = ZE.get_struct("ze_init_driver_type_desc_t")()
    desc.stype = ZE["ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC"]
    desc.flags = _ALL_TYPES
    try:
        return _query_handles(table.zeInitDrivers, "zeInitDrivers", after=(ctypes.byref(desc),))
    except LevelZeroError as error:
        if error.code != "ZE_RESULT_ERROR_UNSUPPORTED_FEATURE":
            raise
    check(table.zeInit(0), "zeInit")
    return _query_handles(table.zeDriverGet, "zeDriverGet")


def _query_handles(call: Any, routine: str, *before: Any, after: Sequence[Any] = ()) -> list[int]:
    """Return the handles that `call(*before, &count, handles, *after)` writes, without NULLs."""
    found = _query_list(call, routine, ctypes.c_void_p, *before, after=after)
    return [handle for handle in found if handle]


def _query_list(
    call: Any, routine: str, kind: Any, *before: Any, after: Sequence[Any] = ()
) -> list[Any]:
    """Return what a function lists that is asked for the number first.

    Raises:
        FairleadError: the number is impossibly large.
        LevelZeroError: the function fails.
    """
    count = ctypes.c_uint32()
    check(call(*before, ctypes.byref(count), None, *after), routine)
    if count.value > _MOST:
        raise FairleadError(
            f"it reports a count of {count.value}, which is impossible", routine=routine
        )
    if not count.value:
        return []
    room = count.value
    found = (kind * room)()
    check(call(*before, ctypes.byref(count), found, *after), routine)
    return list(found)[: min(count.value, room)]
