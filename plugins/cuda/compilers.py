"""The compilers for NVIDIA's GPUs, of OpenCL C and of CUDA C.

Unlike this module, opencl_c.py finds the compiler of a certain GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from ...icd.driver_profiles import find_profile
from ...icd.drivers import drivers
from ...loader.base.errors import FairleadError
from ..sdk.gpu.runtime_compilers import NVRTC, RuntimeCompiler, open_compiler


@cache
def open_nvrtc() -> RuntimeCompiler | None:
    """Return the compiler of CUDA C, opened once; None if there is none."""
    return open_compiler(NVRTC)


def _find_opencl_name() -> str:
    """Return the name of the OpenCL platform whose compiler gives PTX, "" if there is none."""
    try:
        found = (one.name for one in drivers().platforms if find_profile(one).compiles_to_ptx)
        return next(found, "")
    except FairleadError:
        return ""


def main(data: Mapping[str, Any], progress: Callable[[str], None]) -> dict[str, Any]:
    """Return the names of the compilers, by the language. `fairlead doctor` asks in a child."""
    progress("opening the compilers for NVIDIA's GPUs")
    nvrtc = open_nvrtc()
    return {
        "compilers": {
            "OpenCL C": _find_opencl_name() or "none: install NVIDIA's OpenCL driver",
            "CUDA C": f"NVRTC ({nvrtc.library})" if nvrtc else "none: install libnvrtc",
        }
    }
