"""`fairlead run`: runs a command under fairlead's libOpenCL.so.1 and libze_loader.so.1."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..icd import libopencl
from ..loader.ze import libze_loader
from ..loader.ze.drivers import find_sound_drivers
from .execution import execute
from .layers import expand


def run(command: Sequence[str], layers: str = "", *, share_cuda: bool = False) -> int:
    """Run a command with variables that put the libraries in front of every other loader.

    Level Zero's drivers are probed first, so that one that crashes does not reach the program.

    Args:
        command: the program and its arguments.
        layers: OpenCL layers to load, a `:`-list of libraries and of names of fairlead's own
            layers; "" leaves OPENCL_LAYERS as it is.
        share_cuda: whether buffers are shared with CUDA (FAIRLEAD_CUDA=1).

    Returns:
        The exit code for the shell.

    Raises:
        CommandError: the command cannot be run.
        FairleadError: a library is missing, its path cannot be named, or a layer is unknown.
    """
    added = libopencl.make_environment(os.environ)
    added |= libze_loader.make_environment({**os.environ, **added}, find_sound_drivers())
    if layers:
        added["OPENCL_LAYERS"] = expand(layers)
    if share_cuda:
        added["FAIRLEAD_CUDA"] = "1"
    return execute(command, {**os.environ, **added})
