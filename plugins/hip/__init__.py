"""Unified Runtime on HIP: `libur_adapter_fairlead_hip.so.0`.

The modules are those of fairlead.plugins.cuda, loaded a second time under this package's name. They
find `api.py` and `images.py` here first. So the two adapters share the code and nothing else, and a
process may have both.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from ..sdk.gpu.shared_modules import load_shared_modules

__path__.append(str(Path(__file__).parents[1] / "cuda"))
load_shared_modules(__name__)

adapter: Any = import_module(f"{__name__}.core").adapter

__all__ = ["adapter"]
