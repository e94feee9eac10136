"""fairlead finds OpenCL drivers, says why one is missing, and replays captured PyOpenCL loops.

    import fairlead, pyopencl

    device = fairlead.devices()[0].to_pyopencl()  # or an error that says why there is none
    context = pyopencl.Context([device])
    queue = pyopencl.CommandQueue(context)

    with fairlead.capture(queue) as graph:  # PyOpenCL code, unchanged: nothing runs here
        step(queue, ...)
    loop = graph.finalize()
    for t in range(10_000):
        loop.replay(queue)  # one native call for each iteration
    queue.finish()

A replay runs at the speed of a C loop. On the command line, `fairlead devices` lists the devices
and `fairlead doctor` explains missing ones. Importing this package is cheap. A name is loaded from
its module at its first use, and PyOpenCL is imported only by code that needs it.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

from .noted_programs import note_programs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .api import adapters, devices, level_zero, pi_plugins, platforms
    from .captured_graphs.context import CapturedGraph, CaptureError, capture
    from .captured_graphs.executable import Executable, ReplayError
    from .captured_graphs.graphed import GraphedWarning, graphed
    from .captured_graphs.parameter import Parameter
    from .captured_graphs.swaps import CaptureWarning
    from .graph_files.errors import GraphFileError
    from .graph_files.loaded import LoadedExecutable, LoadedGraph
    from .graph_files.loading import load
    from .icd.command_buffer.rewrites.checking import FusionError
    from .icd.errors import OpenCLError, PlatformNotFoundError
    from .icd.objects import Device, Platform
    from .loader.base.errors import FairleadError, LibraryError, NotFoundError
    from .loader.cuda.driver import cuda
    from .loader.hip.driver import hip
    from .loader.trace.trace import trace
    from .loader.ze.abi import LevelZeroError

    __version__: str

# These builds have no limited API, and PyOpenCL turns their GIL on (seen: 2026.1.4 on 3.14t).
if "t" in sys.abiflags:
    raise ImportError(
        "fairlead: free-threaded builds of CPython are not supported: use the usual build of the "
        "same version"
    )

__all__ = [
    "CaptureError",
    "CaptureWarning",
    "CapturedGraph",
    "Device",
    "Executable",
    "FairleadError",
    "FusionError",
    "GraphFileError",
    "GraphedWarning",
    "LevelZeroError",
    "LibraryError",
    "LoadedExecutable",
    "LoadedGraph",
    "NotFoundError",
    "OpenCLError",
    "Parameter",
    "Platform",
    "PlatformNotFoundError",
    "ReplayError",
    "__version__",
    "adapters",
    "capture",
    "cuda",
    "devices",
    "graphed",
    "hip",
    "level_zero",
    "load",
    "pi_plugins",
    "platforms",
    "trace",
]

#: Where each public name comes from.
_MODULES = {
    "CaptureError": ".captured_graphs.context",
    "CaptureWarning": ".captured_graphs.swaps",
    "CapturedGraph": ".captured_graphs.context",
    "Device": ".icd.objects",
    "Executable": ".captured_graphs.executable",
    "FairleadError": ".loader.base.errors",
    "FusionError": ".icd.command_buffer.rewrites.checking",
    "GraphFileError": ".graph_files.errors",
    "GraphedWarning": ".captured_graphs.graphed",
    "LevelZeroError": ".loader.ze.abi",
    "LibraryError": ".loader.base.errors",
    "LoadedExecutable": ".graph_files.loaded",
    "LoadedGraph": ".graph_files.loaded",
    "NotFoundError": ".loader.base.errors",
    "OpenCLError": ".icd.errors",
    "Parameter": ".captured_graphs.parameter",
    "Platform": ".icd.objects",
    "PlatformNotFoundError": ".icd.errors",
    "ReplayError": ".captured_graphs.executable",
    "adapters": ".api",
    "capture": ".captured_graphs.context",
    "cuda": ".loader.cuda.driver",
    "devices": ".api",
    "graphed": ".captured_graphs.graphed",
    "hip": ".loader.hip.driver",
    "level_zero": ".api",
    "load": ".graph_files.loading",
    "pi_plugins": ".api",
    "platforms": ".api",
    "trace": ".loader.trace.trace",
}


def read_version() -> str:
    """Return the version of the installed package, "unknown" for sources that are not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("fairlead")
    except PackageNotFoundError:
        return "unknown"


def name_extra(needing: str, missing: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return the error that names the extra of a missing package, the same if there is none."""
    if missing.name not in ("numpy", "pyopencl"):
        return missing
    return ModuleNotFoundError(
        f"{needing} needs {missing.name}, which is not installed: pip install 'fairlead[pyopencl]'",
        name=missing.name,
    )


if not TYPE_CHECKING:  # a type checker shall find what is misspelt

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            value: Any = read_version()
        elif name in _MODULES:
            try:
                value = getattr(import_module(_MODULES[name], __name__), name)
            except ModuleNotFoundError as missing:
                raise name_extra(f"fairlead.{name}", missing) from None
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


note_programs()
if os.environ.get("FAIRLEAD_CUDA"):
    from .icd.cuda_sharing import follow_environment

    follow_environment()
