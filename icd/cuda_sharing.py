"""Memory that OpenCL and CUDA share on NVIDIA's devices; without it no graph runs as a CUDA Graph.

`share_memory` is a program's choice: `import fairlead.cuda_sharing` or FAIRLEAD_CUDA=1. From then
on the buffers that the program creates on NVIDIA's platform are made of CUDA's memory, which OpenCL
imports (icd/native/cuda_buffers.c). The program sees no difference. Buffers of host memory stay the
driver's own.

In a context of several devices NVIDIA's OpenCL imports memory for one of them. Only the program
knows for which one (`make_buffers_on`), so there the other buffers stay the driver's own, too.

`find_shared_device` gives the engine `cuda` what it needs of a device: a context and a stream.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from ..loader.base.errors import FairleadError, NotFoundError, explain_error
from ..loader.base.forks import call_in_child, make_lock
from ..loader.base.log import warn
from ..loader.base.search import filter_environ
from ..loader.cuda.abi import CUDA, check
from ..loader.cuda.driver import CudaDevice, CudaDriver, cuda
from ._native import ffi, lib
from .abi import OPENCL
from .calls import call, find_device_profile, get_address
from .command_buffer.cuda_order import EARLY_SINCE
from .drivers import drivers
from .errors import check as check_opencl

#: How much of a device's memory is kept for later buffers, unless FAIRLEAD_CUDA_POOL says it.
_KEPT: Final = 1 / 16
_UUID: Final = OPENCL["CL_DEVICE_UUID_KHR"]


class SharedDevice:
    """A device of OpenCL's and CUDA's, with CUDA's primary context and a stream.

    It lives as long as the process.

    Args:
        opencl: OpenCL's handle.
        device: the same device in CUDA.

    Attributes:
        native: what C knows of it, an `fl_cuda_device *`.
        why_not_early: why `early_threads` is 0, "" if it is not.
    """

    def __init__(self, opencl: int, device: CudaDevice, driver: CudaDriver) -> None:
        self.opencl, self.device, self.driver = opencl, device, driver
        self.table: Any = driver.table
        self._copies_directly: set[SharedDevice] = set()
        context, stream = ctypes.c_void_p(), ctypes.c_void_p()
        code = self.table.cuDevicePrimaryCtxRetain(ctypes.byref(context), device.handle)
        check(code, "cuDevicePrimaryCtxRetain")
        self.native: Any = ffi.new("fl_cuda_device *")
        self.native.context = ffi.cast("void *", context.value or 0)
        self.native.table = ffi.cast("void **", driver.table.address_of_top)
        self.native.number = device.handle
        with self:
            code = self.table.cuStreamCreate(ctypes.byref(stream), CUDA["CU_STREAM_NON_BLOCKING"])
        check(code, "cuStreamCreate")
        self.native.stream = ffi.cast("void *", stream.value or 0)
        self.why_not_early = self._explain_not_early()
        self.early_threads = 0 if self.why_not_early else self._count_resident_threads() // 2
        self.native.reaches = 1 << device.handle
        # Buffers and graphs in C have it after Python has ended, too.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.native))

    @property
    def early_threads(self) -> int:
        """How many threads a kernel may have that lets the next one of its chain start.

        That is programmatic dependent launch. After larger ones it would be slower. 0: none starts
        before the one before it has ended.
        """
        return self.native.early_threads

    @early_threads.setter
    def early_threads(self, count: int) -> None:
        self.native.early_threads = count

    def reach(self, other: SharedDevice) -> None:
        """Let its kernels use memory of another device, if the driver allows it."""
        can = ctypes.c_int()
        pair = self.device.handle, other.device.handle
        code = self.table.cuDeviceCanAccessPeer(ctypes.byref(can), *pair)
        check(code, "cuDeviceCanAccessPeer")
        if can.value:
            self.native.reaches |= 1 << other.device.handle

    def enable_copies(self, other: SharedDevice) -> None:
        """Let copies to and from another device that it reaches go directly. Else they take longer.

        It makes each cuMemAlloc of the other one's context take longer, so only graphs of both ask.
        """
        if self.native.reaches >> other.device.handle & 1 and other not in self._copies_directly:
            with self:  # it may be enabled already, by another part of the program
                self.table.cuCtxEnablePeerAccess(get_address(other.native.context), 0)
            self._copies_directly.add(other)

    def _explain_not_early(self) -> str:
        if not find_device_profile(self.opencl).starts_kernels_early:
            return "the driver's profile does not allow it"
        if self.device.capability < EARLY_SINCE:
            return "the GPU is older than sm_90"
        if not self.driver.find_address(CUDA.functions["cuGraphAddDependencies_v2"]):
            return "the driver is older than CUDA 12.3"
        return ""

    def _count_resident_threads(self) -> int:
        """How many threads are on the device at the same time."""
        names = "MULTIPROCESSOR_COUNT", "MAX_THREADS_PER_MULTIPROCESSOR"
        count, most = (self.driver.attribute(self.device.handle, name) for name in names)
        return count * most

    def query_size(self) -> int:
        """How much memory the device has, in bytes."""
        size = ctypes.c_size_t()
        check(
            self.table.cuDeviceTotalMem_v2(ctypes.byref(size), self.device.handle),
            "cuDeviceTotalMem",
        )
        return size.value

    def __enter__(self) -> None:
        """Make the context current in this thread."""
        code = self.table.cuCtxPushCurrent_v2(get_address(self.native.context))
        check(code, "cuCtxPushCurrent_v2")

    def __exit__(self, *_: object) -> None:
        old = ctypes.c_void_p()
        self.table.cuCtxPopCurrent_v2(ctypes.byref(old))

    @property
    def lost(self) -> str | None:
        """Why nothing runs in its context any more, None if it works."""
        if not self.native.lost:
            return None
        name, sentence = CUDA.errors.get(self.native.lost, (f"CUDA_{self.native.lost}", ""))
        whose = ffi.string(self.native.lost_by).decode(errors="replace")
        return f"a kernel of {whose} has ended CUDA's context: {name}: {sentence}"


@dataclass(frozen=True)
class SharedMemory:
    """The memory that OpenCL and CUDA share in this process.

    Attributes:
        reasons: why others are not.
    """

    devices: tuple[SharedDevice, ...]
    reasons: tuple[str, ...]


_lock = make_lock()
_shared: Final[dict[int, SharedDevice]] = {}


@call_in_child
def _forget() -> None:
    """Forget the devices, which a forked child cannot use. Their immortal parts stay."""
    for opencl in _shared:
        lib.fl_unshare_memory(ffi.cast("void *", opencl))
    _shared.clear()


def find_shared_device(opencl: int) -> SharedDevice | None:
    """Return the device of an OpenCL handle, None if its memory is not shared."""
    return _shared.get(opencl)


def share_memory(importer: Any = None) -> SharedMemory:
    """Make the buffers that the program creates on NVIDIA's platform of CUDA's memory.

    A second call does nothing more. Buffers that exist already are not changed.

    Args:
        importer: how OpenCL imports memory, an `fl_cuda_import *`; None for file descriptors.

    Raises:
        NotFoundError: no device can share its memory. Its `reasons` say why.
    """
    with _lock:
        reasons: list[str] = []
        for opencl, name in _find_opencl_devices(reasons):
            if opencl in _shared:
                continue
            try:
                share_opencl_device(opencl, importer)
            except FairleadError as error:
                reasons.append(f"{name}: {explain_error(error, with_code=True)}")
        if not _shared:
            raise NotFoundError(
                "no device shares its memory between OpenCL and CUDA",
                reasons or ["no OpenCL platform is NVIDIA's"],
                routine="fairlead.cuda_sharing",
                remedy="run `fairlead doctor`",
            )
        return SharedMemory(tuple(_shared.values()), tuple(reasons))


def follow_environment() -> None:
    """Share memory if FAIRLEAD_CUDA is 1. Where that is not possible there is a warning line."""
    given = filter_environ().get("FAIRLEAD_CUDA", "")
    if given in ("", "0"):
        return
    if given != "1":
        warn(f"FAIRLEAD_CUDA={given} is ignored: 1 shares buffers with CUDA, and 0 does not")
        return
    try:
        share_memory()
    except FairleadError as error:
        warn(f"FAIRLEAD_CUDA=1 has no effect: {error}")


@contextmanager
def make_buffers_on(opencl: int) -> Iterator[None]:
    """Let this thread's new buffers be a device's in a block, in contexts of several devices.

    Args:
        opencl: OpenCL's handle of the device.
    """
    before = lib.fl_make_buffers_on(ffi.cast("void *", opencl))
    try:
        yield
    finally:
        lib.fl_make_buffers_on(before)


def may_ask() -> bool:
    """Whether the user has not decided, by FAIRLEAD_CUDA=0, that nothing is shared."""
    return filter_environ().get("FAIRLEAD_CUDA") != "0"


def stop_sharing() -> None:
    """Leave new buffers to the driver again. Buffers that are shared stay so."""
    with _lock:
        lib.fl_limit_kept(0)
        for opencl in _shared:
            lib.fl_unshare_memory(ffi.cast("void *", opencl))
        _shared.clear()


def _find_limit() -> int:
    """How many bytes are kept of what the program releases."""
    given = filter_environ().get("FAIRLEAD_CUDA_POOL", "")
    if re.fullmatch(r"[0-9]{1,9}", given):
        return int(given) << 20
    if given:
        warn(f"FAIRLEAD_CUDA_POOL={given} is ignored: it is a number of MiB")
    return int(max((device.query_size() for device in _shared.values()), default=0) * _KEPT)


def _find_opencl_devices(reasons: list[str]) -> Iterable[tuple[int, str]]:
    """Yield the devices whose compiler gives PTX, and their names."""
    for platform in drivers().platforms:
        try:
            for device in platform.devices:
                if find_device_profile(device.handle).compiles_to_ptx:
                    yield device.handle, device.name
        except FairleadError as error:
            reasons.append(f"{platform.name}: {explain_error(error, with_code=True)}")


def share_opencl_device(opencl: int, importer: Any = None) -> None:
    """Share the memory of an OpenCL device (a handle). See `share_memory`.

    Raises:
        FairleadError: CUDA does not have it, or it cannot share its memory.
    """
    uuid = ctypes.create_string_buffer(16)
    code = call(opencl, "clGetDeviceInfo", _UUID, 16, ctypes.addressof(uuid), None)
    check_opencl(code, "clGetDeviceInfo", "(CL_DEVICE_UUID_KHR)")
    driver = cuda()
    device = driver.find_device(uuid.raw)
    if device is None:
        raise FairleadError("CUDA does not list it", remedy="look at CUDA_VISIBLE_DEVICES")
    if not device.shares_memory:
        raise FairleadError("CUDA cannot export its memory")
    share_device(opencl, device, driver, importer)


def share_device(opencl: int, device: CudaDevice, driver: CudaDriver, importer: Any = None) -> None:
    """Share the memory of one device. See `share_memory`.

    Args:
        opencl: OpenCL's handle of the device.
        importer: see `share_memory`.

    Raises:
        CudaError: CUDA refuses a context or a stream.
        OpenCLError: the driver's table cannot be changed.
    """
    found = SharedDevice(opencl, device, driver)
    for other in _shared.values():
        found.reach(other)
        other.reach(found)
    code = lib.fl_share_memory(
        ffi.cast("void *", opencl), found.native, ffi.NULL if importer is None else importer
    )
    check_opencl(code, "fairlead.cuda_sharing")
    _shared[opencl] = found
    lib.fl_limit_kept(_find_limit())
