"""Finds NVIDIA's CUDA driver, binds its functions, and lists its devices.

    >>> from fairlead.loader.cuda.driver import cuda
    >>> [device.name for device in cuda().devices]

The functions come from cuGetProcAddress where the driver has it, else from the library's symbols.
Those whose names have a version, such as `_v2`, come from the symbols first: cuGetProcAddress takes
names without a version, and may give an older function.
gpu/search.py says how the driver is found.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Final

from ..base.abi import Function
from ..gpu.driver import DeviceDriver, DriverDevice
from ..gpu.places import PLACES
from ..gpu.search import GpuSearch
from .abi import CUDA, NAMES, CudaError, find_neutral_name

# CUresult cuGetProcAddress_v2(const char *, void **, int version, cuuint64_t flags, int *found)
_GetProcAddress = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_char_p,
    ctypes.c_void_p,
    ctypes.c_int32,
    ctypes.c_uint64,
    ctypes.c_void_p,
)


@dataclass(frozen=True)
class CudaDevice(DriverDevice):
    """A device of the CUDA driver. Its `uuid` is the same in OpenCL (cl_khr_device_uuid).

    Attributes:
        shares_memory: whether its memory can be exported, so that OpenCL can import it.
    """

    shares_memory: bool


class CudaDriver(DeviceDriver[CudaDevice]):
    """The open CUDA driver."""

    api, error, names = CUDA, CudaError, NAMES
    no_device, not_initialized = ("CUDA_ERROR_NO_DEVICE",), "CUDA_ERROR_NOT_INITIALIZED"

    def find_address(self, function: Function) -> int | None:
        plain = f"cu{find_neutral_name(function.name)}"
        exact = super().find_address(function) if plain != function.name else None
        if exact:
            return exact
        entry = self.library.find_symbol("cuGetProcAddress_v2")
        if entry:
            found = ctypes.c_void_p()
            version = function.since[0] * 1000 + function.since[1] * 10
            code = _GetProcAddress(entry)(plain.encode(), ctypes.byref(found), version, 0, None)
            if code == 0 and found.value:
                return found.value
        return super().find_address(function)

    @staticmethod
    def decode_version(number: int) -> tuple[int, int]:
        return number // 1000, number % 1000 // 10

    def find_attribute_number(self, name: str) -> int:
        return CUDA[f"CU_DEVICE_ATTRIBUTE_{name}"]

    def make_device(self, found: DriverDevice) -> CudaDevice:
        maps, exports = (
            self.attribute(found.handle, name)
            for name in (
                "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED",
                "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED",
            )
        )
        return CudaDevice(**vars(found), shares_memory=bool(maps and exports))


#: The search for the driver.
SEARCH: Final = GpuSearch(
    "cuda", CudaDriver, PLACES["cuda"], "install NVIDIA's driver; `nvidia-smi` says what it sees"
)


def cuda() -> CudaDriver:
    """Return the CUDA driver, opened once for the process.

    Raises:
        NotFoundError: no place has a driver with a device. Its `reasons` name every place.
        CudaError: the process was forked after the driver was opened.
    """
    return SEARCH.get()
