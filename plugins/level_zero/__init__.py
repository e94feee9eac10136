"""A Level Zero driver on every OpenCL driver that fairlead finds: libze_fairlead.so.1.

`driver` is what a shell starts. Each module declares the entry points of one type of object. Other
entry points answer UNSUPPORTED_FEATURE. docs/level_zero_driver.md lists them.
"""

from __future__ import annotations

from . import (
    appends,
    clones,
    contexts,
    device_properties,
    devices,
    events,
    execution,
    graphs,
    host_steps,
    image_copies,
    images,
    kernels,
    lists,
    module_links,
    modules,
    mutable,
    queues,
    whole_launches,
)
from .core import driver

__all__ = ["driver"]
