"""The reference adapter: a Unified Runtime adapter over every OpenCL driver that fairlead finds. `adapter` is what a shell starts.

Each module declares the entry points of one kind of object; what is not declared answers UNSUPPORTED_FEATURE, and
docs/adapter_support.md says why.
"""

from __future__ import annotations

from . import (
    buffers,
    command_appends,
    command_buffers,
    command_launches,
    command_transfers,
    command_updates,
    contexts,
    devices,
    events,
    kernel_info,
    kernels,
    launches,
    platforms,
    program_builds,
    programs,
    queues,
    samplers,
    transfers,
    usm,
    usm_pools,
    usm_transfers,
)
from .core import adapter

__all__ = [
    "adapter", "buffers", "command_appends", "command_buffers", "command_launches", "command_transfers", "command_updates", "contexts",
    "devices", "events", "kernel_info", "kernels", "launches", "platforms", "program_builds", "programs", "queues", "samplers", "transfers",
    "usm", "usm_pools", "usm_transfers",
]  # fmt: skip
