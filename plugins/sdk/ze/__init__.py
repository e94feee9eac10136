"""What a Level Zero driver written in Python is made of.

- `LevelZeroDriver`, `ze_failure`: entry points, their objects, and their errors;
- `find_struct`, `chain`: the structs that a caller chains to a descriptor.

The objects are those of adapters (`fairlead.plugins.Object`).
"""

from __future__ import annotations

from .chains import chain, find_struct, ze_failure
from .driver import LevelZeroDriver

__all__ = ["LevelZeroDriver", "chain", "find_struct", "ze_failure"]
