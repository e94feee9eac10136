"""The self-test of the engine `direct`: the driver and direct calls must give equal results.

direct_trust.py runs `main` in a child process (self_tests.py). The kernel also writes how memory is
aligned, and the flags of the floating point unit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ...loader.base.children import decode_candidate
from ...loader.base.errors import FairleadError
from ..abi import OPENCL
from ..drivers import load
from ..pocl_kernels import PoclVersion, find_version
from .commands import CommandList
from .direct_device import get_device
from .engine import BuiltCommands, QueueKind
from .engines.direct import BuiltDirect, Found
from .group_functions import GroupFunctions
from .self_tests import find_difference

_OPTIONS: Final = ("-DHOST", "-DHOST -cl-denorms-are-zero")
_CPU: Final = OPENCL["CL_DEVICE_TYPE_CPU"]


def main(data: dict[str, Any], progress: Callable[[str], None]) -> dict[str, Any]:
    """Called in the child, for the driver whose candidate's `asdict` is `data`."""
    progress("opening the library")
    platform = load(decode_candidate(data)).platforms[0]
    progress("looking at its devices")
    cpus = [device for device in platform.devices if device.info("CL_DEVICE_TYPE") & _CPU]
    version = find_version(platform.version)
    if version is None or not cpus:
        return {"difference": f"{platform.version} is not known, or it has no CPU"}
    device, found = cpus[0].handle, ""
    for special in False, True:  # the driver has made the special functions by then
        builder_in = _make_builder(device, version, special=special)
        found = found or find_difference(device, _OPTIONS, builder_in, progress)
    return {"difference": found}


def _make_builder(device: int, version: PoclVersion, *, special: bool) -> Any:
    def make_in_context(context: int) -> Any:
        known, target = get_device(context, device, False), QueueKind(context, device, 0)

        def builder(kernel: int) -> Callable[[CommandList], BuiltCommands]:
            found = Found(known, GroupFunctions([kernel], device, version))
            if found.functions.why_not:
                raise FairleadError(found.functions.why_not[kernel])

            def build(commands: CommandList) -> BuiltCommands:
                if special:
                    found.find_reasons(commands)  # opens them
                return BuiltDirect(commands, target, found)

            return build

        return builder

    return make_in_context
