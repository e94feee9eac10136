"""The reference adapter: Unified Runtime over every OpenCL driver that fairlead finds.

`adapter` is what a shell starts. Each module declares the entry points of one type of object. Other
entry points answer UNSUPPORTED_FEATURE. docs/adapter_support.md says why.
"""

from __future__ import annotations

from . import (
    buffers,
    clocks,
    contexts,
    device_info,
    devices,
    event_info,
    events,
    images,
    kernel_info,
    kernels,
    launches,
    platforms,
    program_builds,
    programs,
    queues,
    synchronization,
    transfers,
)
from .command_buffer import appends as command_appends
from .command_buffer import command_buffers
from .command_buffer import launches as command_launches
from .command_buffer import updates as command_updates
from .core import adapter
from .usm import allocations as usm
from .usm import pools as usm_pools
from .usm import transfers as usm_transfers

from . import in_c  # isort: skip  # it needs what all others declare

__all__ = ["adapter"]
