"""Unified Runtime on HIP: `libur_adapter_fairlead_hip.so.0`.

The modules are those of fairlead.plugins.cuda, loaded a second time under this package's name. They
find `api.py` and `device_code.py` here first. So the two adapters share their modules and nothing
else, and a process may have both (tests/plugins/cuda/test_both_adapters.py).

Modules that ran once would have to take the driver's table and the adapter from an object of each
call: more code in 250 places, and slower, since constants would be looked up in each call. What
they know of streams and memory, by handle and address, they would have to know by driver, too.
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
