"""The self-test of the engine `cuda`: kernels must do the same in OpenCL and, translated, in CUDA.

cuda_trust.py runs `main` in a child process (self_tests.py). Its buffers are shared, too: OpenCL
reads what CUDA has written.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from ...loader.base.children import decode_candidate
from ...loader.base.errors import FairleadError
from ..calls import find_device_profile
from ..cuda_sharing import SharedDevice, find_shared_device, share_opencl_device
from ..drivers import load
from .commands import CommandList
from .cuda_functions import CudaFunctions
from .engine import BuiltCommands, QueueKind
from .engines.cuda import BuiltCuda, FoundCuda, why_not_commands
from .self_tests import find_difference

_OPTIONS: Final = ("", "-cl-denorms-are-zero")


def main(data: dict[str, Any], progress: Callable[[str], None]) -> dict[str, Any]:
    """Called in the child, for the driver whose candidate's `asdict` is `data`."""
    progress("opening the library")
    platform = load(decode_candidate(data)).platforms[0]
    found = "no device of it shares its memory with CUDA"
    for device in platform.devices:
        if not find_device_profile(device.handle).compiles_to_ptx:
            continue
        progress(f"sharing the memory of {device.name}")
        with suppress(FairleadError):  # the program cannot share it either
            share_opencl_device(device.handle)
        shared = find_shared_device(device.handle)
        if shared is not None:
            found = find_difference_on_cuda(shared, _OPTIONS, progress)
        if found:
            break
    return {"difference": found}


def find_difference_on_cuda(
    device: SharedDevice, options: tuple[str, ...], progress: Callable[[str], None]
) -> str:
    """Return the first difference between OpenCL's results and CUDA's, or "".

    Args:
        options: what the kernel is built with, one after the other.
        progress: called with the next step.
    """

    def build(commands: CommandList) -> BuiltCommands:
        functions = CudaFunctions(commands, [device])
        why_not = why_not_commands(commands, functions)
        if why_not:
            raise FairleadError(why_not)
        target = QueueKind(commands.context, device.opencl, 0)
        return BuiltCuda(commands, target, FoundCuda(device, functions))

    return find_difference(device.opencl, options, lambda context: lambda kernel: build, progress)
