"""Binds the functions of a GPU's driver, and lists its devices.

CUDA and HIP have the same calls for that under other names. cuda/driver.py and hip/driver.py derive
from `DeviceDriver` and name them. The functions are in a dispatch table that fairlead fills. A slot
that the library lacks returns the API's error for what is not supported.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from ..base.abi import Api, Function
from ..base.errors import CodeError
from ..base.layers import make_table
from ..base.library import Library, open_library
from ..base.table import DispatchTable

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class DriverDevice:
    """A device of a driver.

    Attributes:
        number: its number, as the variables that hide devices leave it.
        handle: what functions of the driver call it.
        name: what the driver calls it.
        uuid: 16 bytes.
        memory: in bytes.
        capability: the number of its architecture, major and minor.
    """

    number: int
    handle: int
    name: str
    uuid: bytes
    memory: int
    capability: tuple[int, int]

    @property
    def description(self) -> str:
        """What a list of devices calls it."""
        return self.name


DeviceT = TypeVar("DeviceT", bound=DriverDevice)


class DeviceDriver(ABC, Generic[DeviceT]):
    """An open driver.

    Attributes:
        api: its functions and constants.
        names: the functions that it exports, by their neutral names: those of CUDA without "cu" and
            "_v2".
        no_device: the codes that say that there is no device. The first one is the usual one.
        not_initialized: the code that says that the driver cannot be used.
        path: the real path of the library.
        table: its functions, such as `driver.table.cuMemCreate(...)`, which return the API's codes.
        version: the version of its API, major and minor.
        devices: its devices, at least one.

    Raises:
        CodeError: the driver fails, or has no device.
    """

    api: ClassVar[Api]
    error: ClassVar[type[CodeError]]
    names: ClassVar[Mapping[str, str]]
    no_device: ClassVar[tuple[str, ...]]
    not_initialized: ClassVar[str]

    def __init__(self, library: Library, found_via: str) -> None:
        self.library, self.path, self.found_via = library, library.path, found_via
        address, slots = make_table(self.api)
        for function in self.api.slots:
            pointer = self.find_address(function)
            if pointer:
                slots[function.slot or 0] = pointer
        self.table: Any = DispatchTable(self.api, address, self.error.api_name)
        self.call("Init", 0)
        self.version = self.decode_version(self.number("DriverGetVersion"))
        count = self.number("DeviceGetCount")
        self.devices = tuple(self._open_device(number) for number in range(count))
        if not self.devices:
            self.fail(self.api.codes[self.no_device[0]], "DeviceGetCount")

    @classmethod
    def open(cls, library: str, found_via: str = "its path") -> Self:
        """Open a driver by its path or soname, without a probe.

        Raises:
            LibraryError: the library cannot be opened.
            CodeError: the driver fails, or has no device.
        """
        return cls(open_library(library), found_via)

    def find_address(self, function: Function) -> int | None:
        """Return the address of a function, None if the driver does not have it."""
        return self.library.find_symbol(function.name)

    @staticmethod
    @abstractmethod
    def decode_version(number: int) -> tuple[int, int]:
        """Return the version, major and minor, that a number stands for."""

    @abstractmethod
    def make_device(self, found: DriverDevice) -> DeviceT:
        """Return a device with what only this API tells. `found` is what every API tells."""

    def explain(self, code: int) -> tuple[str, str]:
        """Return why the driver answers a code here, and what to do, as far as that is known."""
        return "", ""

    def fail(self, code: int, name: str) -> None:
        """Raise the exception for a code.

        Args:
            name: the neutral name of the function.
        """
        raise self.error.from_code(code, self.names[name], *self.explain(code))

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function. Raises CodeError."""
        code = getattr(self.table, self.names[name])(*arguments)
        if code:
            self.fail(code, name)

    def number(self, name: str, *arguments: Any) -> int:
        """Call a function that writes an int, and return that. The parameters: see `call`."""
        value = ctypes.c_int()
        self.call(name, ctypes.byref(value), *arguments)
        return value.value

    def _open_device(self, number: int) -> DeviceT:
        handle, memory = self.number("DeviceGet", number), ctypes.c_size_t()
        name, uuid = ctypes.create_string_buffer(256), ctypes.create_string_buffer(16)
        self.call("DeviceGetName", name, len(name), handle)
        self.call("DeviceGetUuid", uuid, handle)
        self.call("DeviceTotalMem", ctypes.byref(memory), handle)
        major, minor = (
            self.attribute(handle, f"COMPUTE_CAPABILITY_{part}") for part in ("MAJOR", "MINOR")
        )
        text = name.value.decode(errors="replace")
        return self.make_device(
            DriverDevice(number, handle, text, uuid.raw, memory.value, (major, minor))
        )

    @abstractmethod
    def find_attribute_number(self, name: str) -> int:
        """Return the number of an attribute by CUDA's name, without CU_DEVICE_ATTRIBUTE_."""

    def attribute(self, handle: int, name: str) -> int:
        """Return an attribute of a device. Raises CodeError.

        Args:
            name: CUDA's name of the attribute, without CU_DEVICE_ATTRIBUTE_.
        """
        return self.number("DeviceGetAttribute", self.find_attribute_number(name), handle)

    def find_device(self, uuid: bytes) -> DeviceT | None:
        """Return the device with a UUID of 16 bytes, None if there is none."""
        return next((device for device in self.devices if device.uuid == uuid), None)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path} with {len(self.devices)} devices>"
