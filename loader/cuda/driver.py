"""Finds NVIDIA's CUDA driver, binds its functions, and lists its devices.

    >>> from fairlead.loader.cuda.driver import cuda
    >>> [device.name for device in cuda().devices]

`cuda` looks in `STEPS`, one place after the other. A library is tried in a child process first
(probe.py). Every place that does not lead to a device has a reason, and NotFoundError lists them.

The functions are in a dispatch table that fairlead fills: by cuGetProcAddress where the driver has
it, else by the library's symbols. A slot that the driver lacks returns CUDA_ERROR_NOT_SUPPORTED.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..base.errors import FairleadError, NotFoundError, reason_of
from ..base.forks import in_child, new_lock
from ..base.layers import new_table
from ..base.library import Library, open_library
from ..base.search import Candidate, Refusal, excluding_pattern
from ..base.table import DispatchTable
from ..base.verdicts import judge
from .abi import CUDA, CudaError, check

#: Where the driver may be, and what the place is.
STEPS: Final[tuple[Candidate, ...]] = (
    Candidate("libcuda.so.1", "the dynamic linker's search"),
    Candidate("/usr/lib/wsl/lib/libcuda.so.1", "the driver of Windows, under WSL"),
    Candidate("/usr/local/nvidia/lib64/libcuda.so.1", "a folder that containers mount"),
)

_GetProcAddress = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_char_p,
    ctypes.c_void_p,
    ctypes.c_int32,
    ctypes.c_uint64,
    ctypes.c_void_p,
)


@dataclass(frozen=True)
class CudaDevice:
    """A device of the CUDA driver.

    Attributes:
        number: its number, as CUDA_VISIBLE_DEVICES leaves it.
        handle: its CUdevice.
        name: what the driver calls it.
        uuid: 16 bytes, the same in OpenCL (cl_khr_device_uuid).
        memory: in bytes.
        capability: the compute capability, major and minor.
        shares_memory: whether its memory can be exported, so that OpenCL can import it.
    """

    number: int
    handle: int
    name: str
    uuid: bytes
    memory: int
    capability: tuple[int, int]
    shares_memory: bool


class CudaDriver:
    """The open CUDA driver.

    Attributes:
        library: its library.
        path: the real path of the library.
        found_via: the step that found it.
        table: its functions: `driver.table.cuMemCreate(...)` returns CUDA's code.
        version: the version of CUDA that it supports, major and minor.
        devices: its devices, at least one.
    """

    def __init__(self, library: Library, found_via: str) -> None:
        self.library, self.path, self.found_via = library, library.path, found_via
        address, slots = new_table(CUDA)
        for function in CUDA.slots:
            pointer = _address_of(library, function.name, function.since)
            if pointer:
                slots[function.slot or 0] = pointer
        self.table: Any = DispatchTable(CUDA, address, "CUDA")
        check(self.table.cuInit(0), "cuInit")
        number = ctypes.c_int()
        check(self.table.cuDriverGetVersion(ctypes.byref(number)), "cuDriverGetVersion")
        self.version = number.value // 1000, number.value % 1000 // 10
        self.devices = tuple(self._device(number) for number in range(self._count()))
        if not self.devices:
            raise CudaError.of(CUDA.codes["CUDA_ERROR_NO_DEVICE"], "cuDeviceGetCount")

    def _count(self) -> int:
        count = ctypes.c_int()
        check(self.table.cuDeviceGetCount(ctypes.byref(count)), "cuDeviceGetCount")
        return count.value

    def _device(self, number: int) -> CudaDevice:
        handle, memory = ctypes.c_int(), ctypes.c_size_t()
        name, uuid = ctypes.create_string_buffer(256), ctypes.create_string_buffer(16)
        table = self.table
        check(table.cuDeviceGet(ctypes.byref(handle), number), "cuDeviceGet")
        device = handle.value
        check(table.cuDeviceGetName(name, len(name), device), "cuDeviceGetName")
        check(table.cuDeviceGetUuid_v2(uuid, device), "cuDeviceGetUuid_v2")
        check(table.cuDeviceTotalMem_v2(ctypes.byref(memory), device), "cuDeviceTotalMem_v2")
        major, minor, maps, exports = (
            self._attribute(device, attribute)
            for attribute in (
                "COMPUTE_CAPABILITY_MAJOR",
                "COMPUTE_CAPABILITY_MINOR",
                "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED",
                "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED",
            )
        )
        return CudaDevice(
            number,
            device,
            name.value.decode(errors="replace"),
            uuid.raw,
            memory.value,
            (major, minor),
            bool(maps and exports),
        )

    def _attribute(self, device: int, name: str) -> int:
        value = ctypes.c_int()
        code = self.table.cuDeviceGetAttribute(
            ctypes.byref(value), CUDA[f"CU_DEVICE_ATTRIBUTE_{name}"], device
        )
        check(code, "cuDeviceGetAttribute")
        return value.value

    def device_of(self, uuid: bytes) -> CudaDevice | None:
        """Return the device with a UUID of 16 bytes, None if there is none."""
        return next((device for device in self.devices if device.uuid == uuid), None)

    def __repr__(self) -> str:
        return f"<CudaDriver {self.path} with {len(self.devices)} devices>"


def _address_of(library: Library, name: str, since: tuple[int, int]) -> int | None:
    """The address of a function, None if the driver does not have it.

    Args:
        library: the driver's.
        name: as the library exports it, such as "cuMemcpyHtoD_v2".
        since: the version of CUDA that introduced it.
    """
    entry = library.symbol("cuGetProcAddress_v2")
    if entry:
        found = ctypes.c_void_p()
        version = since[0] * 1000 + since[1] * 10
        plain = re.sub(r"_v\d+$", "", name).encode()
        code = _GetProcAddress(entry)(plain, ctypes.byref(found), version, 0, None)
        if code == 0 and found.value:
            return found.value
    return library.symbol(name)


def open_driver(library: str, found_via: str = "its path") -> CudaDriver:
    """Open a driver by its path or soname, without a probe.

    Raises:
        LibraryError: the library cannot be opened.
        CudaError: the driver fails, or has no device.
    """
    return CudaDriver(open_library(library), found_via)


def find(steps: Sequence[Candidate] = STEPS) -> tuple[CudaDriver | None, tuple[Refusal, ...]]:
    """Return the first driver that has a device, and why the places before it were not used.

    Args:
        steps: where to look.
    """
    from .probe import probe_all  # it runs this module in a child

    refusals: list[Refusal] = []
    for candidate in steps:
        if pattern := excluding_pattern(candidate.library):
            reason = f"FAIRLEAD_EXCLUDE has {pattern}"
            refusals.append(Refusal(candidate.library, reason, "", candidate.found_via))
            continue
        if "/" in candidate.library and not os.path.exists(candidate.library):
            reason = "there is no such file"
            refusals.append(Refusal(candidate.library, reason, "", candidate.found_via))
            continue
        failed = judge((candidate,), probe_all, "cuda").get(candidate)
        if failed is None:
            try:
                return open_driver(candidate.library, candidate.found_via), tuple(refusals)
            except FairleadError as error:
                failed = Refusal(
                    candidate.library,
                    reason_of(error, with_code=True),
                    error.remedy,
                    candidate.found_via,
                )
        refusals.append(failed)
    return None, tuple(refusals)


_lock = new_lock()
_driver: CudaDriver | None = None
_forked = False


@in_child
def _forget() -> None:
    """Forget the driver: CUDA does not survive a fork."""
    global _driver, _forked
    _forked = _forked or _driver is not None
    _driver = None


def cuda() -> CudaDriver:
    """Return the CUDA driver, opened once for the process.

    Raises:
        NotFoundError: no place has a driver with a device. Its `reasons` name every place.
        CudaError: the process was forked after the driver was opened.
    """
    global _driver
    with _lock:
        if _forked:
            raise CudaError.of(
                CUDA.codes["CUDA_ERROR_NOT_INITIALIZED"],
                "cuInit",
                "This process was forked from one that uses CUDA.",
                "start it with the method spawn",
            )
        if _driver is None:
            _driver, refusals = find()
            if _driver is None:
                raise NotFoundError(
                    "no CUDA driver with a device was found",
                    [_line(refusal) for refusal in refusals],
                    routine="fairlead.cuda",
                    code="CUDA_ERROR_NO_DEVICE",
                    remedy="install NVIDIA's driver; `nvidia-smi` says what it sees",
                )
        return _driver


def _line(refusal: Refusal) -> str:
    text = f"{refusal.what} ({refusal.found_via}): {refusal.reason}"
    return f"{text} ({refusal.remedy})" if refusal.remedy else text
