"""libOpenCL.so.1: an OpenCL loader for any program, with the drivers and repairs of fairlead."""

from __future__ import annotations

from pathlib import Path


def path() -> Path:
    """The path of the library. Its folder can stand in LD_LIBRARY_PATH."""
    return Path(__file__).with_name("libOpenCL.so.1")
