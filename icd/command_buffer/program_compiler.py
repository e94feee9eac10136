"""Compiles a program for any local size, in a child process (prepared_programs.py)."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ...loader.base.children import decode_candidate
from ..calls import build_program, create_context, identify_device
from ..drivers import load
from ..program_binaries import query_sizes

#: The other work of the machine goes first.
_NICE: Final = 19


def main(data: dict[str, Any], progress: Callable[[str], None]) -> dict[str, Any]:
    """Called in the child: build a program and ask for the size of its binary."""
    with suppress(OSError):
        os.nice(_NICE)
        # Linux shares the cores among sessions first, and the child has one of its own.
        Path("/proc/self/autogroup").write_text(str(_NICE))
    progress("opening the library")
    platforms = load(decode_candidate(data["driver"])).platforms
    handles = [device.handle for platform in platforms for device in platform.devices]
    device = next(one for one in handles if list(identify_device(one)) == data["device"])
    source = data["source"].encode("latin-1")
    progress("building the program")
    options = os.fsencode(data["options"])
    program = build_program(create_context(device), device, source, options)
    progress("compiling its kernels for any local size")
    query_sizes(program)
    return {}
