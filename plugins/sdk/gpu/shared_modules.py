"""The modules of an adapter on a GPU's driver, and how a package gets them."""

from __future__ import annotations

from importlib import import_module
from typing import Final

#: The modules that declare entry points.
SHARED_MODULES: Final = (
    *("devices", "device_info", "contexts", "queues", "events", "clocks", "synchronization"),
    *("buffers", "transfers", "pools", "virtual_memory", "peers", "interprocess"),
    *("memory_images", "bindless"),
    *("programs", "kernels", "launches", "captured_graphs"),
    *(f"command_buffer.{name}" for name in ("appends", "launches", "transfers", "updates")),
)


def load_shared_modules(package: str, *more: str) -> None:
    """Import the modules of an adapter, which declare its entry points.

    Args:
        package: the name of the adapter's package. It has the modules, or finds them in another
            folder by its `__path__`.
        more: modules that not every adapter has.
    """
    for name in (*SHARED_MODULES, *more):
        import_module(f"{package}.{name}")
