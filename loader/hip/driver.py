"""Finds HIP, AMD's driver library, binds its functions, and lists its devices.

    >>> from fairlead.loader.hip.driver import hip
    >>> [(device.name, device.architecture) for device in hip().devices]

The functions are the library's symbols. gpu/search.py says how the library is found. It works on
machines without a GPU up to a code, 100 or 101, which says that there is no device.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import Any, Final

from ..base.abi import Function
from ..gpu.driver import DeviceDriver, DriverDevice
from ..gpu.places import PLACES
from ..gpu.search import GpuSearch
from .abi import CONSTANTS, HIP, NAMES, HipError, find_name

#: The symbols of functions that HIP before 6.0 has for C++ alone. Their parameters are those of C.
CXX_SYMBOLS: Final = {
    "hipCreateSurfaceObject": "_Z22hipCreateSurfaceObjectPP13__hip_surfacePK15hipResourceDesc",
    "hipDestroySurfaceObject": "_Z23hipDestroySurfaceObjectP13__hip_surface",
}

#: The file of the kernel's driver. Without it HIP has no device.
KFD = "/dev/kfd"


@dataclass(frozen=True)
class HipDevice(DriverDevice):
    """A device of HIP.

    Attributes:
        architecture: what programs are compiled for, such as "gfx90a:sramecc+:xnack-".
    """

    architecture: str

    @property
    def description(self) -> str:
        return f"{self.name} ({self.architecture})"


class HipDriver(DeviceDriver[HipDevice]):
    """The open library of HIP.

    Attributes:
        generation: 6 if it has the functions of HIP 6.0, otherwise 5.
    """

    api, error, names = HIP, HipError, NAMES
    no_device = "hipErrorNoDevice", "hipErrorInvalidDevice"
    not_initialized = "hipErrorInitializationError"

    @property
    def generation(self) -> int:
        return 6 if self.library.find_symbol("hipGetDevicePropertiesR0600") else 5

    def get_constant(self, name: str) -> int:
        """Return a constant of hip.abi, as the library's version has it."""
        return HIP[find_name(name, self.version)]

    def get_struct(self, name: str) -> Any:
        """Return the ctypes class of a struct of hip.abi, as the library's version has it."""
        return HIP.get_struct(find_name(name, self.version))

    def find_address(self, function: Function) -> int | None:
        other = CXX_SYMBOLS.get(function.name)
        return super().find_address(function) or (
            self.library.find_symbol(other) if other else None
        )

    @staticmethod
    def decode_version(number: int) -> tuple[int, int]:
        return number // 10_000_000, number % 10_000_000 // 100_000

    def find_attribute_number(self, name: str) -> int:
        return HIP[CONSTANTS[f"CU_DEVICE_ATTRIBUTE_{name}"]]

    def make_device(self, found: DriverDevice) -> HipDevice:
        properties = self.get_struct("hipDeviceProp_t")()
        name = "hipGetDeviceProperties" + ("R0600" if self.generation == 6 else "")
        code = getattr(self.table, name)(ctypes.byref(properties), found.handle)
        if code:
            raise HipError.from_code(code, name)
        architecture = properties.gcnArchName.decode(errors="replace")
        return HipDevice(**vars(found), architecture=architecture)

    def explain(self, code: int) -> tuple[str, str]:
        if HipError.describe(code)[0] not in self.no_device:
            return "", ""
        if not os.path.exists(KFD):
            return (
                f"There is no {KFD}, so no AMD GPU is in use here.",
                f"load the kernel's driver, amdgpu; a container needs --device={KFD} "
                "--device=/dev/dri",
            )
        if not os.access(KFD, os.R_OK | os.W_OK):
            return (
                f"This user may not open {KFD}.",
                "add the user to the groups render and video, and log in again",
            )
        return "", ""


#: The search for the library.
SEARCH: Final = GpuSearch(
    "hip",
    HipDriver,
    PLACES["hip"],
    "install AMD's ROCm, or libamdhip64 of Debian or Ubuntu; `fairlead doctor` says what is here",
)


def hip() -> HipDriver:
    """Return HIP's driver, opened once for the process.

    Raises:
        NotFoundError: no place has a driver with a device. Its `reasons` name every place.
        HipError: the process was forked after the driver was opened.
    """
    return SEARCH.get()
