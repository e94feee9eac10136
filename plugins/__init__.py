"""Adapters written in Python and built as drop-in shared libraries.

`opencl` is the reference adapter, for any OpenCL driver. `cuda` is one for the CUDA driver, and
`hip` the same for HIP.
Adapters are made of these (docs/write_an_adapter.md):

- `Adapter`, `Object`, `failure`: entry points, their objects, and their errors;
- `UR`: the constants of Unified Runtime by their names, `UR["UR_DEVICE_TYPE_CPU"]`;
- `check_memory`, `select_binary`: what entry points have to check;
- `build_adapter`: the shared library that any Unified Runtime loader takes;
- `build_plugin`: the shared library that DPC++ up to 2024.2 takes.

`ur_level_zero` is an adapter for any Level Zero driver (docs/level_zero_adapter.md).

`level_zero` is a Level Zero driver on any OpenCL driver (docs/level_zero_driver.md). Another one is
made of `sdk.ze` and `build_level_zero_driver`.
"""

from __future__ import annotations

from pathlib import Path

from ..loader.ur.abi import UR
from .sdk.adapter import Adapter
from .sdk.build import build_adapter, build_level_zero_driver, build_plugin
from .sdk.conversions import failure
from .sdk.objects import Object
from .sdk.rules import check_memory, select_binary

__all__ = [
    "UR",
    "Adapter",
    "Object",
    "build_adapter",
    "build_level_zero_driver",
    "build_plugin",
    "check_memory",
    "cuda_adapter",
    "failure",
    "hip_adapter",
    "level_zero_adapter",
    "level_zero_driver",
    "reference_adapter",
    "reference_plugin",
    "select_binary",
]


def reference_adapter() -> str:
    """Return the path of the reference adapter, for UR_ADAPTERS_FORCE_LOAD."""
    return str(Path(__file__).with_name("libur_adapter_fairlead.so.0"))


def cuda_adapter() -> str:
    """Return the path of the adapter for the CUDA driver, for UR_ADAPTERS_FORCE_LOAD."""
    return str(Path(__file__).with_name("libur_adapter_fairlead_cuda.so.0"))


def hip_adapter() -> str:
    """Return the path of the adapter for HIP, for UR_ADAPTERS_FORCE_LOAD."""
    return str(Path(__file__).with_name("libur_adapter_fairlead_hip.so.0"))


def reference_plugin() -> str:
    """Return the path of the reference adapter as a PI plugin.

    DPC++ up to 2024.2 loads it under the name libpi_opencl.so.
    """
    return str(Path(__file__).with_name("libpi_fairlead.so"))


def level_zero_adapter() -> str:
    """Return the path of the adapter on Level Zero, for UR_ADAPTERS_FORCE_LOAD."""
    return str(Path(__file__).with_name("libur_adapter_fairlead_level_zero.so.0"))


def level_zero_driver() -> str:
    """Return the path of the Level Zero driver, for ZE_ENABLE_ALT_DRIVERS."""
    return str(Path(__file__).with_name("libze_fairlead.so.1"))
