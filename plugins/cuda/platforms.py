"""The platform of CUDA and HIP: the driver of this machine. There is one, or none."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from ...loader.base.forks import make_lock
from ..sdk.gpu.api import GpuDriver
from ..sdk.platforms import declare_platforms
from .core import API, Object, adapter, find_driver

if TYPE_CHECKING:
    from .devices import CuDevice


@adapter.kind
class CuPlatform(Object):
    """The driver. It lives as long as the process.

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
        """Return the platform's devices, always the same objects."""
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


declare_platforms(
    adapter,
    list_platforms,  # the driver's compiler always optimizes, so it has no options
    NAME=f"{API.name} (fairlead)",
    VENDOR_NAME=API.vendor,
    VERSION=lambda platform: platform.version,
    EXTENSIONS="",
)
