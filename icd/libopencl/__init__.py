"""libOpenCL.so.1: an OpenCL loader for any program, with the drivers and repairs of fairlead."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress

from ...loader.base.errors import FairleadError
from ...loader.base.own_files import OwnFolder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

#: Names this Python for a library that does not find it; FAIRLEAD_PYTHON is the user's.
PYTHON_VARIABLE: Final = "FAIRLEAD_LIBOPENCL_PYTHON"

#: The folder of the library's verdict files.
FOLDER: Final = OwnFolder("drivers")


def forget_refusals() -> None:
    """Let the library look anew where its last answer refused a driver."""
    for name in FOLDER.list():
        with suppress(OSError):
            if b"\nuntil " in FOLDER.read(name):
                FOLDER.remove(name)


def find_library() -> str:
    """The path of the library. Its folder can stand in LD_LIBRARY_PATH."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "libOpenCL.so.1")


def require_library() -> str:
    """Return the library's path, after a check that the file exists.

    Raises:
        FairleadError: it does not exist.
    """
    if not os.path.exists(find_library()):
        raise FairleadError(
            f"the OpenCL loader {find_library()} is missing",
            remedy="install fairlead again, from its wheel or its source",
        )
    return find_library()


def make_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables to add for a program that shall use the library in place of its own loader.

    Args:
        environ: the program's environment. What its variables name already comes later.

    Raises:
        FairleadError: the library is missing, or the variables cannot name its path.
    """
    library = require_library()
    if set(library) & set(": ;"):
        raise FairleadError(
            f"LD_PRELOAD cannot name {library}: it has a blank, ':' or ';' in it",
            remedy="install fairlead in a folder whose path has none of them",
        )
    return {
        PYTHON_VARIABLE: sys.executable,
        "LD_LIBRARY_PATH": _put_first(os.path.dirname(library), environ.get("LD_LIBRARY_PATH", "")),
        "LD_PRELOAD": _put_first(library, environ.get("LD_PRELOAD", "")),
    }


def _put_first(element: str, others: str) -> str:
    """Return a `:`-list with an element before the others."""
    return f"{element}:{others}" if others else element
