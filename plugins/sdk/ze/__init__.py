"""What a Level Zero driver written in Python is made of.

- `LevelZeroDriver`, `make_failure`: entry points, their objects, and their errors;
- `find_struct`, `walk_chain`: the structs that a caller chains to a descriptor.

The objects are those of adapters (`fairlead.plugins.Object`).
"""

from __future__ import annotations

from .chains import find_struct, make_failure, walk_chain
from .driver import LevelZeroDriver

__all__ = ["LevelZeroDriver", "find_struct", "make_failure", "walk_chain"]
