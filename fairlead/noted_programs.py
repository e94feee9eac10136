"""PyOpenCL's programs note their build options when they are built.

A kernel has its program's source in PyOpenCL, so it keeps what is noted there. Intel's driver
forgets the options of a program that only its kernels keep. pyopencl.array has such programs, and
so has every function that returns a kernel.

`import fairlead` calls `note_programs`, so this module imports as little as it can. PyOpenCL may be
imported before or after it.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from typing import Any

#: The programs that PyOpenCL has built since `note_programs`, by their addresses.
noted: MutableMapping[int, Any] = {}


class _PyOpenCLFinder:
    """Finds PyOpenCL as the other finders do, and changes it when it has been imported."""

    _asks_others = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "pyopencl" or self._asks_others:
            return None
        import importlib.util

        self._asks_others = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._asks_others = False
        loader: Any = spec and spec.loader
        if loader is not None:
            execute = loader.exec_module

            def execute_and_change(module: Any) -> None:
                execute(module)
                sys.meta_path.remove(self)
                _change(module)

            loader.exec_module = execute_and_change
        return spec


def note_programs() -> None:
    """Let programs that PyOpenCL builds from now on note their build options."""
    if hasattr(sys.modules.get("pyopencl"), "Program"):
        _change(sys.modules["pyopencl"])
    elif "pyopencl" not in sys.modules:
        sys.meta_path.insert(0, _PyOpenCLFinder())


def _change(pyopencl: Any) -> None:
    from functools import wraps
    from weakref import WeakValueDictionary

    from .icd.built_source import BuiltSource

    global noted
    noted = WeakValueDictionary()
    build = pyopencl.Program.build

    @wraps(build)
    def build_and_note(self: Any, options: Any = None, *rest: Any, **named: Any) -> Any:
        source = None
        try:
            given, _ = self._process_build_options(self._context, options)
            if isinstance(self._source, str):
                source = BuiltSource(self._source)
                source.options = os.fsdecode(given)
        except Exception:  # a program without a source, or PyOpenCL has changed
            pass
        built = build(self, options, *rest, **named)
        if source is not None:
            self._source = source
        noted[id(self)] = self
        return built

    pyopencl.Program.build = build_and_note
