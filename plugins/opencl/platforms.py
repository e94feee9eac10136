"""Platforms of the OpenCL adapter: those of every OpenCL driver that fairlead finds, in the order
of icd.drivers.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from functools import cache
from typing import TYPE_CHECKING, Any

from ...icd._native import ffi as icd_ffi
from ...icd._native import lib as icd_lib
from ...icd.abi import OPENCL
from ...icd.driver_profiles import find_profile
from ...icd.drivers import drivers
from ...icd.tables import query
from ...loader.base.forks import make_lock
from ...loader.base.memory import read_word
from ...loader.base.query import decode_text
from ...loader.base.search import find_python_libraries
from ..sdk._native import ffi
from ..sdk.answers import make_answers
from ..sdk.objects import Object
from ..sdk.platforms import declare_platforms
from .core import adapter, failure, get_address, icd

if TYPE_CHECKING:
    from .devices import URDevice


#: The functions of cl_intel_unified_shared_memory that C calls, by the fields of fl_driver.
_USM = {
    "set_pointer": "clSetKernelArgMemPointerINTEL",
    "copy": "clEnqueueMemcpyINTEL",
    "fill": "clEnqueueMemFillINTEL",
    "allocate_host": "clHostMemAllocINTEL",
    "allocate_device": "clDeviceMemAllocINTEL",
    "allocate_shared": "clSharedMemAllocINTEL",
    "free": "clMemBlockingFreeINTEL",
}


@adapter.kind
class URPlatform(Object):
    """A platform of a driver. It lives as long as the process."""

    type, counted = "ur_platform_handle_t", False

    def __init__(self, platform: icd.Platform) -> None:
        self.icd, self.cl, self.table = platform, platform.handle, platform.table
        self.profile = find_profile(platform)
        if self.profile.hides_failures:
            icd_lib.fl_ask_callbacks(icd_lib.fl_table_of(icd_ffi.cast("void *", self.cl)))
        self.answers = make_answers()
        self.struct = ffi.new(
            "fl_driver *",
            {
                "platform": self.cl,
                "table": self.table.address_of_top,
                "turns": self.profile.waits_one_at_a_time,
                "early": self.profile.blocking_write_returns_early,
                "splits_barriers": self.profile.splits_barriers,
                **{name: platform.extension_function(one) or 0 for name, one in _USM.items()},
            },
        )

    def describe_to_c(self) -> tuple[int, int, int, int]:
        return self.cl, 0, 0, get_address(self.answers)

    def get_native(self) -> int:
        return self.cl

    @property
    def devices(self) -> tuple[URDevice, ...]:
        """Return the platform's root devices, always the same objects."""
        from .devices import list_devices

        return list_devices(self)


def platforms() -> tuple[URPlatform, ...]:
    """Return all platforms. The first call opens the drivers."""
    with _lock:
        return _find_platforms()


_lock = make_lock()


@cache
def _find_platforms() -> tuple[URPlatform, ...]:
    found = tuple(map(URPlatform, drivers().platforms))
    for reason in drivers().reasons:
        adapter.log("debug", reason)
    if not found:
        adapter.log(
            "warning",
            "no OpenCL driver can be used; `fairlead doctor`, in the same environment, says why",
        )
    _open_loader()
    adapter.at_exit()
    return found


def _open_loader() -> None:
    """Load a libOpenCL.so.1, which nothing here calls.

    Other OpenCL adapters are linked with it. So dpctl, and others that call OpenCL with our native
    handles, look only for a library that is loaded.
    """
    for path in (
        "libOpenCL.so.1",
        *(os.path.join(folder, "libOpenCL.so.1") for folder in find_python_libraries()),
    ):
        with contextlib.suppress(OSError):
            ctypes.CDLL(path, mode=os.RTLD_LAZY)
            return


@cache
def find_extension(platform: URPlatform, name: str, prototype: Any = None) -> Any:
    """Return an extension function, which has no slot in dispatch tables.

    Args:
        prototype: its ctypes prototype, if icd/opencl.abi does not have it.

    Raises:
        URError: UNSUPPORTED_FEATURE if the driver has no function of that name.
    """
    address = platform.icd.extension_function(name)
    if not address:
        raise failure("UNSUPPORTED_FEATURE", f"the driver has no {name}")
    return (prototype or OPENCL.functions[name].prototype)(address)


def get_platform(native: int) -> URPlatform:
    """Return the platform of a cl_platform_id.

    Raises:
        URError: INVALID_PLATFORM if it is not ours.
    """
    for platform in platforms():
        if platform.cl == native:
            return platform
    raise failure(
        "INVALID_PLATFORM", "the handle is not a platform of a driver that fairlead has found"
    )


def get_driver(native: int) -> URPlatform:
    """Return a platform of the driver that made an OpenCL object.

    Both begin with the address of the driver's table.

    Raises:
        URError: INVALID_VALUE if there is no such driver.
    """
    table = read_word(native)
    for platform in platforms():
        if table and table == read_word(platform.cl):
            return platform
    raise failure("INVALID_VALUE", "the native handle is not of a driver that fairlead has found")


def _make_text_query(name: str) -> Any:
    return lambda platform: decode_text(
        query(platform.table, "clGetPlatformInfo", platform.cl, OPENCL[f"CL_PLATFORM_{name}"])
    )


def _choose_fast(platform: URPlatform) -> str:
    """Return the option that lets a driver compile fast, "" if it has none."""
    is_for_gpus = any("GPU" in device.icd.type for device in platform.devices)
    return platform.profile.fast_compile_option if is_for_gpus else ""


declare_platforms(
    adapter,
    platforms,
    {"-O0": "-cl-opt-disable", "-ftarget-compile-fast": _choose_fast},
    **{name: _make_text_query(name) for name in ("NAME", "VERSION", "EXTENSIONS", "PROFILE")},
    VENDOR_NAME=_make_text_query("VENDOR"),
)
