"""The platform: the driver of this machine. There is one, or none."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from ...loader.base.forks import make_lock
from ...loader.ur.abi import API_VERSION, UR
from ..sdk.gpu.api import GpuDriver
from .core import API, Object, adapter, failure, find_driver

if TYPE_CHECKING:
    from .devices import CuDevice


@adapter.kind
class CuPlatform(Object):
    """The driver. It lives as long as the process.

    Args:
        driver: the driver.

    Attributes:
        table: its functions, under the names that it exports.
    """

    type, counted = "ur_platform_handle_t", False

    def __init__(self, driver: GpuDriver) -> None:
        self.driver, self.table = driver, driver.table

    @property
    def version(self) -> str:
        """Return the API and its version, such as "CUDA 13.0"."""
        return "{} {}.{}".format(API.name, *self.driver.version)

    def get_native(self) -> int:
        return self.handle  # drivers have no platforms

    @property
    def devices(self) -> tuple[CuDevice, ...]:
        """Return its devices, always the same objects."""
        from .devices import list_devices

        return list_devices(self)


_lock: Final = make_lock()


def list_platforms() -> tuple[CuPlatform, ...]:
    """Return all platforms, always the same objects. The first call opens the driver."""
    with _lock:
        return _open_platforms()


@cache
def _open_platforms() -> tuple[CuPlatform, ...]:
    driver = find_driver()
    adapter.at_exit()
    return () if driver is None else (CuPlatform(driver),)


@adapter.entry
def urPlatformGet(NumEntries: int) -> list[CuPlatform]:
    return list(list_platforms())


adapter.info(
    "urPlatformGetInfo",
    {
        "UR_PLATFORM_INFO_NAME": f"{API.name} (fairlead)",
        "UR_PLATFORM_INFO_VENDOR_NAME": API.vendor,
        "UR_PLATFORM_INFO_VERSION": lambda platform: platform.version,
        "UR_PLATFORM_INFO_EXTENSIONS": "",
        "UR_PLATFORM_INFO_PROFILE": "FULL_PROFILE",
        "UR_PLATFORM_INFO_BACKEND": UR[API.backend],
        "UR_PLATFORM_INFO_ADAPTER": adapter,
    },
)


@adapter.entry
def urPlatformGetApiVersion(hPlatform: CuPlatform) -> int:
    return API_VERSION


@adapter.entry
def urPlatformGetBackendOption(hPlatform: CuPlatform, pFrontendOption: str) -> str:
    """Return "" for each option of DPC++, because the driver's compiler always optimizes."""
    if pFrontendOption not in ("", "-O0", "-O1", "-O2", "-O3", "-ftarget-compile-fast"):
        raise failure("INVALID_VALUE", f"the driver has no option for {pFrontendOption}")
    return ""


@adapter.entry
def urPlatformCreateWithNativeHandle(hNativePlatform: int) -> CuPlatform:
    for platform in list_platforms():
        if platform.handle == hNativePlatform:
            return platform
    raise failure(
        "INVALID_PLATFORM", "the driver has no platforms, so there is only our own handle"
    )
