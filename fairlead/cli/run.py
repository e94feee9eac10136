"""`fairlead run`: runs a command under fairlead's libOpenCL.so.1."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..icd import libopencl
from .layers import expand
from .trace import execute


def run(command: Sequence[str], layers: str = "") -> int:
    """Run a command with variables that put the library in front of every other loader.

    Args:
        command: the program and its arguments.
        layers: OpenCL layers to load, a `:`-list of libraries and of names of fairlead's own
            layers; "" leaves OPENCL_LAYERS as it is.

    Returns:
        The exit code for the shell.

    Raises:
        CommandError: the command cannot be run.
        FairleadError: the library is missing, or its path cannot be named.
    """
    added = libopencl.environment(os.environ)
    if layers:
        added["OPENCL_LAYERS"] = expand(layers)
    return execute(command, {**os.environ, **added})
