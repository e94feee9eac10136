"""Unified Runtime on the CUDA driver: `libur_adapter_fairlead_cuda.so.0`.

`adapter` is what a shell starts. Each module declares the entry points of one type of object. Other
entry points answer UNSUPPORTED_FEATURE.

The modules are written for two APIs. fairlead.plugins.hip loads them a second time under its own
name, with another `api` and other `images`. Where they say CUDA and CU…, HIP has the same.
"""

from __future__ import annotations

from ..sdk.gpu.shared_modules import load_shared_modules
from .core import adapter

load_shared_modules(__name__, "memory_export")

__all__ = ["adapter"]
