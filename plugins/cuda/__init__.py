"""Unified Runtime on the CUDA driver: `libur_adapter_fairlead_cuda.so.0`.

`adapter` is what a shell starts. Each module declares the entry points of one type of object. Other
entry points answer UNSUPPORTED_FEATURE.
"""

from __future__ import annotations

from . import (
    buffers,
    clocks,
    contexts,
    device_globals,
    devices,
    events,
    kernels,
    launches,
    peers,
    platforms,
    pools,
    programs,
    queues,
    synchronization,
    transfers,
    usm,
    usm_transfers,
    virtual_memory,
)
from .command_buffer import appends as command_appends
from .command_buffer import command_buffers
from .command_buffer import launches as command_launches
from .command_buffer import transfers as command_transfers
from .command_buffer import updates as command_updates
from .core import adapter

__all__ = [
    "adapter",
    "buffers",
    "clocks",
    "command_appends",
    "command_buffers",
    "command_launches",
    "command_transfers",
    "command_updates",
    "contexts",
    "device_globals",
    "devices",
    "events",
    "kernels",
    "launches",
    "peers",
    "platforms",
    "pools",
    "programs",
    "queues",
    "synchronization",
    "transfers",
    "usm",
    "usm_transfers",
    "virtual_memory",
]
