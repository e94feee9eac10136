"""Programs of OpenCL C that are compiled once in a run for a device.

Intel's driver and PoCL compile for 60 to 900 ms, also what they compiled before. They take 2 ms for
a program of binaries, which a test gets that is not about sources.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pyopencl as cl

from helpers.children import working_folder
from helpers.kept_files import digest


def build_once(context: cl.Context, source: str, options: str = "") -> cl.Program:
    """A program, built for the devices of a context.

    Args:
        context: gets the program.
        source: OpenCL C.
        options: for the compiler.
    """
    devices = context.devices
    files = [_file(device, source, options) for device in devices]
    if not all(file.exists() for file in files):
        program = cl.Program(context, source).build(options)
        binaries: Any = program.get_info(cl.program_info.BINARIES)
        for file, binary in zip(files, binaries, strict=True):
            _write(file, binary)
    return cl.Program(context, devices, [file.read_bytes() for file in files]).build()


def _file(device: cl.Device, source: str, options: str) -> Path:
    """Where the run keeps what a device's compiler makes."""
    names = (device.platform.name, device.platform.version, device.name, device.driver_version)
    return Path(working_folder(), f"program-{digest([*names, source, options])}")


def _write(file: Path, binary: bytes) -> None:
    """Write a file whole, which another process may write or read at the same time."""
    with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as own:
        own.write(binary)
    os.replace(own.name, file)
