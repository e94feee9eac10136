"""A Unified Runtime adapter on every Level Zero driver that fairlead finds.

`adapter` is what a shell starts. Each module declares the entry points of one type of object. Other
entry points answer UNSUPPORTED_FEATURE. docs/level_zero_adapter.md says why.
"""

from __future__ import annotations

from . import (
    captured_graphs,
    contexts,
    device_info,
    devices,
    events,
    images,
    kernels,
    launches,
    memory,
    platforms,
    program_builds,
    programs,
    queues,
    synchronization,
    transfers,
    usm,
)
from .command_buffer import appends as command_appends
from .command_buffer import command_buffers
from .command_buffer import updates as command_updates
from .core import adapter

__all__ = ["adapter"]
