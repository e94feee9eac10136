"""libOpenCL.so.1: an OpenCL loader for any program, with the drivers and repairs of fairlead."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from ...loader.base.errors import FairleadError


def path() -> Path:
    """The path of the library. Its folder can stand in LD_LIBRARY_PATH."""
    return Path(__file__).with_name("libOpenCL.so.1")


def existing_path() -> Path:
    """The same, after a look whether it is there.

    Raises:
        FairleadError: it is not.
    """
    if not path().exists():
        raise FairleadError(
            f"the OpenCL loader {path()} is missing",
            remedy="install fairlead again, from its wheel or its source",
        )
    return path()


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables to add for a program that shall use the library in place of its own loader.

    Args:
        environ: the program's environment. What its variables name already comes later.

    Raises:
        FairleadError: the library is missing, or the variables cannot name its path.
    """
    library = str(existing_path())
    if set(library) & set(": ;"):
        raise FairleadError(
            f"LD_PRELOAD cannot name {library}: it has a blank, ':' or ';' in it",
            remedy="install fairlead in a folder whose path has none of them",
        )
    added = {
        "LD_LIBRARY_PATH": ":".join(
            filter(None, (str(path().parent), environ.get("LD_LIBRARY_PATH")))
        ),
        "LD_PRELOAD": ":".join(filter(None, (library, environ.get("LD_PRELOAD")))),
    }
    return (
        {"FAIRLEAD_PYTHON": sys.executable, **added} if "FAIRLEAD_PYTHON" not in environ else added
    )
