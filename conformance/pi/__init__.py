"""What the DPC++ Plugin Interface (pi.h of 15.47) demands of a plugin.

Unified Runtime followed PI. So its cases test plugins, too, where PI has the function:
as_adapter.py calls a plugin as an adapter, by pi_from_ur.map. The cases here are about what only
PI has.
"""

from pathlib import Path
from typing import Final

#: The areas of Unified Runtime whose functions PI has.
_AREAS: Final = (
    *("command_buffer", "command_buffer_commands", "command_buffer_enqueue", "context", "device"),
    *("enqueue", "event", "images", "kernel", "launch", "lifetime", "memory", "native_handles"),
    *("program", "queue", "sampler", "threads", "usm", "platform", "arguments", "bad_input"),
)
#: The files of their cases.
BORROWED: Final = [Path(__file__).parents[1] / f"ur/test_{area}.py" for area in _AREAS]
