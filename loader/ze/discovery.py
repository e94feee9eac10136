"""Finds Level Zero drivers. Nothing is opened.

ZE_ENABLE_ALT_DRIVERS replaces the whole search, as in the Level Zero loader. Otherwise the names
that this loader knows (`NAMES`) are looked up in the Python environment, in LD_LIBRARY_PATH and in
the linker's places. Then come the drivers that packages register. The last candidate is fairlead's
own driver, if it is installed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from ..base.elf import check_file
from ..base.errors import LibraryError
from ..base.linker import find_library
from ..base.registered_libraries import DRIVERS
from ..base.search import (
    Candidate,
    Finding,
    Place,
    Refusal,
    SearchResult,
    Variable,
    collect,
    filter_environ,
    find_python_libraries,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

ALT_DRIVERS: Final = "ZE_ENABLE_ALT_DRIVERS"
LIBRARY_PATH: Final = "LD_LIBRARY_PATH"

#: The drivers that the Level Zero loader looks for, in its order.
NAMES: Final = (
    "libze_intel_gpu.so.1",
    "libze_intel_gpu_legacy1.so.1",
    "libze_intel_vpu.so.1",
    "libze_intel_npu.so.1",
)

#: fairlead's own driver. It lies in `plugins`, in the tree and in the installed package.
_ROOT: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
OWN: Final = os.path.join(_ROOT, "plugins", "libze_fairlead.so.1")

_LOADER: Final = ("Level Zero loader",)

VARIABLES: Final = (
    Variable(
        ALT_DRIVERS,
        _LOADER,
        "a comma list of drivers, in place of all others",
        True,
        "only these Level Zero drivers are used",
    ),
    Variable(
        "ZE_ENABLE_TRACING_LAYER",
        _LOADER,
        "1 lets tools see calls",
        True,
        "1 prints Level Zero calls to stderr",
    ),
    Variable(
        "ZE_ENABLE_PARAMETER_VALIDATION",
        _LOADER,
        "1 checks arguments, with ZE_ENABLE_VALIDATION_LAYER=1",
        True,
        "1 checks the arguments of Level Zero calls",
    ),
)


def find_drivers(
    environ: Mapping[str, str] | None = None, *, prefix: str | None = None, own: str | None = OWN
) -> SearchResult:
    """Search for Level Zero drivers.

    Args:
        environ: the environment, `os.environ` by default. A set-uid or set-gid process ignores it.
        prefix: the Python environment whose `lib` is searched; by default the running one and its
            base environment.
        own: fairlead's own driver; None leaves it out.

    Returns:
        The result, with the candidates in the order in which Level Zero lists drivers.
    """
    return collect(_find_all(filter_environ(environ), prefix, own))


def _find_all(environ: Mapping[str, str], prefix: str | None, own: str | None) -> Iterator[Finding]:
    named = environ.get(ALT_DRIVERS)
    if named is not None:
        yield from _find_named_drivers(named)
        state = f"not searched: {ALT_DRIVERS} is set and replaces them"
        yield Place("all other places", ALT_DRIVERS, state)
        return
    found: set[str] = set()
    for folder, via in _list_folders(environ, prefix).items():
        yield from _find_in_folder(folder, via, found)
    yield from _find_in_system(found)
    # Another Python environment's modules are not for this Python.
    for registered in DRIVERS.search() if prefix is None else ():
        yield registered if isinstance(registered, Refusal) else _check_file(*registered)
    if own:
        yield from _find_own_driver(own)


def _find_named_drivers(value: str) -> Iterator[Finding]:
    """Yield the elements of ZE_ENABLE_ALT_DRIVERS: paths, or names for the dynamic linker."""
    for number, element in enumerate(value.split(","), start=1):
        name = element.strip()
        if not name:
            reason = f"element {number} of {value!r} is empty"
            yield Refusal(ALT_DRIVERS, reason, f"name a driver in {ALT_DRIVERS}", ALT_DRIVERS)
        elif "/" not in name:
            yield Candidate(find_library(name) or name, ALT_DRIVERS)
        elif not os.path.exists(name):
            remedy = f"correct {ALT_DRIVERS}, or unset it to search the usual places"
            yield Refusal(os.path.abspath(name), "does not exist", remedy, ALT_DRIVERS)
        else:
            yield _check_file(os.path.abspath(name), ALT_DRIVERS)


def _list_folders(environ: Mapping[str, str], prefix: str | None) -> dict[str, str]:
    """Return the folders to look in, each with the step that adds it."""
    python = (os.path.join(prefix, "lib"),) if prefix else find_python_libraries()
    folders = {os.path.abspath(folder): "Python prefix" for folder in python}
    for part in environ.get(LIBRARY_PATH, "").replace(";", ":").split(":"):
        if part:
            folders.setdefault(os.path.abspath(part), LIBRARY_PATH)
    return folders


def _find_in_folder(folder: str, via: str, found: set[str]) -> Iterator[Finding]:
    """Yield the known names in a folder. A name that a folder before it had is not used."""
    if not os.path.isdir(folder):
        state = "is not a directory" if os.path.exists(folder) else "does not exist"
        yield Place(folder, via, state)
        return
    here = [name for name in NAMES if os.path.lexists(os.path.join(folder, name))]
    yield Place(folder, via, _count(len(here)))
    for name in here:
        if name not in found:
            finding = _check_file(os.path.join(folder, name), via)
            found.update({name} if isinstance(finding, Candidate) else ())
            yield finding


def _find_in_system(found: set[str]) -> Iterator[Finding]:
    """Yield the known names that the dynamic linker finds by itself."""
    located = {name: path for name in NAMES if (path := find_library(name))}
    yield Place("the linker's cache and default directories", "system", _count(len(located)))
    for name, path in located.items():
        if name not in found:
            yield _check_file(path, "system")


def _find_own_driver(own: str) -> Iterator[Finding]:
    if os.path.exists(own):
        yield _check_file(own, "fairlead")
    else:
        yield Place(own, "fairlead", "does not exist")


def _check_file(path: str, via: str) -> Candidate | Refusal:
    """Return the candidate, or why the file is not a library for this process."""
    try:
        check_file(path)
    except LibraryError as error:
        return Refusal(path, error.message, error.remedy, via)
    return Candidate(path, via)


def _count(drivers: int) -> str:
    return "no driver" if not drivers else f"{drivers} driver{'s' if drivers > 1 else ''}"
