"""USM of the adapter on Level Zero: allocated, freed, queried, imported. pools.py has the pools."""

from __future__ import annotations

from typing import Final

from ..sdk.usm import (
    Allocator,
    declare_allocation,
    declare_imports,
    declare_memory_query,
    find_known,
)
from .allocations import allocate, forget_imported, import_memory, locate
from .core import adapter

_SUPPORT: Final = {
    "host": "hostAllocCapabilities",
    "device": "deviceAllocCapabilities",
    "shared": "sharedSingleDeviceAllocCapabilities",
}


allocator: Final = Allocator(
    allocate,
    find_largest=lambda device: device.properties.maxMemAllocSize,
    has_kind=lambda device, kind: bool(getattr(device.access, _SUPPORT[kind])),
)
declare_allocation(adapter, allocator.allocate, lambda device: 64)


declare_memory_query(adapter, find_known)
declare_imports(adapter, locate=locate, take=import_memory, forget=forget_imported)
