"""Puts fairlead's libOpenCL.so.1 under PyOpenCL, without environment variables.

    import fairlead.preload  # before PyOpenCL
    import pyopencl

Or, for a program that is not changed: `python -m fairlead.preload app.py …`, or `-m MODULE …`.

The library is opened so that later libraries find its functions first (RTLD_GLOBAL). So an
extension module that brings its own loader along, as PyOpenCL's wheels do, calls this one.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import sys
from typing import Final

from .icd import libopencl
from .loader.base.errors import FairleadError

#: Modules that call OpenCL. One that is loaded has found its functions elsewhere.
_CLIENTS: Final = ("pyopencl._cl",)


def preload() -> None:
    """Open the library for every extension module that is imported from now on.

    Raises:
        FairleadError: it is too late, or the library is missing or cannot be opened.
    """
    if late := [name for name in _CLIENTS if name in sys.modules]:
        raise FairleadError(
            f"{late[0]} is loaded already, with an OpenCL loader of its own",
            remedy="import fairlead.preload before it",
        )
    os.environ[libopencl.PYTHON_VARIABLE] = sys.executable
    library = libopencl.require_library()
    try:
        ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise FairleadError(
            f"the OpenCL loader cannot be opened: {error}",
            routine="dlopen",
            remedy="if too many files are open, raise that limit (ulimit -n); "
            "else install fairlead again",
        ) from error


def _run(arguments: list[str]) -> None:
    """Run a program, or with `-m` a module, as `python` does."""
    is_module = arguments[:1] == ["-m"]
    if not arguments[is_module:]:
        sys.exit("usage: python -m fairlead.preload PROGRAM.py … | -m MODULE …")
    sys.argv = arguments[is_module:]
    if is_module:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
        runpy.run_path(sys.argv[0], run_name="__main__")


preload()
if __name__ == "__main__":
    _run(sys.argv[1:])
