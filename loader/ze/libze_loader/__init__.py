"""libze_loader.so.1: a Level Zero loader for any program, with the drivers of fairlead."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

from ...base.errors import FairleadError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_DRIVERS: Final = "ZE_ENABLE_ALT_DRIVERS"


def find_library() -> str:
    """The path of the library. Its folder can stand in LD_LIBRARY_PATH."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "libze_loader.so.1")


def make_environment(
    environ: Mapping[str, str], drivers: Sequence[str] | None = None
) -> dict[str, str]:
    """The variables to add for a program that shall use the library in place of its own loader.

    ZEL_LIBRARY_PATH is for the loaders that programs have linked in: Intel's adapters have one.

    Args:
        environ: the program's environment. What its variables name already comes later.
        drivers: the drivers to use, unless ZE_ENABLE_ALT_DRIVERS names others. None leaves the
            search to the library.

    Raises:
        FairleadError: the library is missing, or the variables cannot name its path.
    """
    library = find_library()
    if not os.path.exists(library):
        raise FairleadError(
            f"the Level Zero loader {library} is missing",
            remedy="install fairlead again, from its wheel or its source",
        )
    if set(library) & set(": ;"):
        raise FairleadError(
            f"LD_PRELOAD cannot name {library}: it has a blank, ':' or ';' in it",
            remedy="install fairlead in a folder whose path has none of them",
        )
    folder = os.path.dirname(library)
    added = {
        "ZEL_LIBRARY_PATH": folder,
        "LD_LIBRARY_PATH": _prepend(folder, environ.get("LD_LIBRARY_PATH", "")),
        "LD_PRELOAD": _prepend(library, environ.get("LD_PRELOAD", "")),
    }
    if drivers is not None and _DRIVERS not in environ:
        added[_DRIVERS] = ",".join(path for path in drivers if "," not in path)
    return added


def start(drivers: Sequence[str]) -> None:
    """Open a loader for other libraries of this process, and initialize it, unless one is open.

    dpctl asks for the loader that a program uses (RTLD_NOLOAD), and calls it without an init.

    Args:
        drivers: the drivers to use, unless ZE_ENABLE_ALT_DRIVERS names others.

    Raises:
        OSError: the library is missing, or cannot be opened.
    """
    with suppress(OSError):
        ctypes.CDLL("libze_loader.so.1", os.RTLD_NOLOAD)
        return
    added = make_environment(os.environ, drivers).get(_DRIVERS)
    library = ctypes.CDLL(find_library())  # which stays open
    if added is not None:  # it reads the variable now
        os.environ[_DRIVERS] = added
    try:
        library.zeInit(0)
    finally:
        if added is not None:
            del os.environ[_DRIVERS]


def _prepend(element: str, others: str) -> str:
    """A `:`-list with an element before the others."""
    return f"{element}:{others}" if others else element
