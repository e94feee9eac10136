"""What programs see through a copy of libOpenCL, asked in a child process
(loader/base/children.py).

The loader itself answers, so the result is the truth for its clients. A loader may crash or hang on
a driver or a manifest. Then the child does.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any, Final

from ...icd.abi import OPENCL

_MOST: Final = 256  # platforms


def main(data: dict[str, Any], progress: Callable[[str], None]) -> dict[str, Any]:
    """List the platforms of a loader.

    Args:
        data: "loader" is its path, "extension" that of PyOpenCL's module which loads it, or "".
        progress: is called with the next step.

    Returns:
        "code" of clGetPlatformIDs, and "platforms": the name and the version of each.
    """
    progress("opening the loader")
    if data["extension"]:  # its search path for libraries is the loader's, too
        os.environ["PYOPENCL_HOME"] = os.path.dirname(data["extension"])  # as PyOpenCL does
        ctypes.CDLL(data["extension"])
    library = ctypes.CDLL(data["loader"])
    progress("listing its platforms")
    count, handles = ctypes.c_uint32(), (ctypes.c_void_p * _MOST)()
    code = library.clGetPlatformIDs(_MOST, handles, ctypes.byref(count))
    platforms: list[list[str]] = []
    for handle in handles[: min(count.value, _MOST)] if not code else ():
        progress("asking a platform for its name")
        names = ("CL_PLATFORM_NAME", "CL_PLATFORM_VERSION")
        platforms.append([_query_text(library, handle, OPENCL[name]) for name in names])
    return {"code": code, "platforms": platforms}


def _query_text(library: Any, platform: Any, what: int) -> str:
    """Return an answer of clGetPlatformInfo; "" if there is none."""
    text, size = ctypes.create_string_buffer(4096), ctypes.c_size_t()
    asked = ctypes.c_void_p(platform), what, ctypes.c_size_t(4095), text, ctypes.byref(size)
    return "" if library.clGetPlatformInfo(*asked) else text.value.decode("utf-8", "replace")
