"""`fairlead run`: runs a command under fairlead's libOpenCL.so.1 and libze_loader.so.1."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from ..icd import libopencl
from ..loader.base.forked import fork_children
from ..loader.base.processes import end_in_order
from ..loader.ze import libze_loader
from ..loader.ze.sound_drivers import find_sound_drivers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def run(command: Sequence[str], layers: str = "", *, share_cuda: bool = False) -> NoReturn:
    """Become a command with variables that put the libraries in front of every other loader.

    Level Zero's drivers are probed first, so that one that crashes does not reach the program.

    Args:
        layers: OpenCL layers to load, a `:`-list of libraries and of names of registered
            layers; "" leaves OPENCL_LAYERS as it is.
        share_cuda: whether buffers are shared with CUDA (FAIRLEAD_CUDA=1).

    Raises:
        CommandError: the command cannot be run.
        FairleadError: a library is missing, its path cannot be named, or a layer is unknown.
    """
    fork_children()
    end_in_order()
    added = libopencl.make_environment(os.environ)
    added |= libze_loader.make_environment({**os.environ, **added}, find_sound_drivers())
    if layers:
        from .layers import expand

        added["OPENCL_LAYERS"] = expand(layers)
    if share_cuda:
        added["FAIRLEAD_CUDA"] = "1"
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and programs do not
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], list(command), {**os.environ, **added})
    except OSError as error:
        from .execution import explain_failure

        raise explain_failure(command[0], error) from None
