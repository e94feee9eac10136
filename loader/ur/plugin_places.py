"""The places where adapters and plugins are searched, in order (vendors.d/README.md).

`UR_STEPS` and `PI_STEPS` are the search steps. Each yields places in which a name can be located.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

from ..base.frozen_value import Value
from ..base.linker import find_library
from ..base.search import Finding, Place, Refusal
from .plugin_variables import LIBRARY_PATH, SEARCH_PATH, split_quoted_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

#: Adapters and plugins are installed beside these libraries. libsycl 7 is the last one with PI.
_LOADERS: Final = ("libur_loader.so.0",)


_RUNTIMES: Final = ("libsycl.so.7", "libsycl.so.8", "libsycl.so.6")


class PluginSearch(Value):
    """The parameters of a search.

    Attributes:
        interface: "UR" or "PI".
        environ: the trusted environment.
        prefix: the Python environment to search, None for the running one.
        accepts_backend: whether the device selector can select a device of a backend.
    """

    interface: str
    environ: Mapping[str, str]
    prefix: str | None
    accepts_backend: Callable[[str], bool] | None


class LibraryPlace(Value):
    """A place in which names are located.

    Attributes:
        name: the directory, or a description.
        locate: returns the path of a name there, None if there is none.
    """

    name: str
    found_via: str
    locate: Callable[[str], str | None]


class SearchStep(Value):
    """A step of the search.

    Attributes:
        places: yields the places that it adds, and findings about those that it cannot add.
    """

    name: str
    places: Callable[[PluginSearch, str], Iterator[LibraryPlace | Finding]]


def _make_place(path: str, found_via: str) -> LibraryPlace | Place:
    """Return a directory as a place. Like ld.so, it accepts a relative path."""
    directory = os.path.abspath(path)
    if not os.path.isdir(directory):
        return Place(
            directory,
            found_via,
            "is not a directory" if os.path.exists(directory) else "does not exist",
        )

    @cache
    def locate(name: str) -> str | None:
        library = os.path.join(directory, name)
        return library if os.path.lexists(library) else None

    return LibraryPlace(directory, found_via, locate)


def _search_path(request: PluginSearch, name: str) -> Iterator[LibraryPlace | Finding]:
    """Yield the directories of UR_ADAPTERS_SEARCH_PATH."""
    value = request.environ.get(name)
    directories = split_quoted_list(name, value) if value else []
    if isinstance(directories, Refusal):
        yield directories.copy_with(reason=f"{directories.reason}: the variable is ignored")
        return
    for path in directories:
        directory = _make_place(path, name)
        yield directory
        if isinstance(directory, Place):
            yield Refusal(path, directory.state, f"correct {name}, or make the directory", name)


def _find_in_python_prefix(request: PluginSearch, name: str) -> Iterator[LibraryPlace | Finding]:
    """Yield where pip and conda install libraries: the Python environment and its base."""
    yield from (_make_place(folder, name) for folder in _list_prefix_folders(request))


def _make_folder_step(
    libraries: Sequence[str],
) -> Callable[[PluginSearch, str], Iterator[LibraryPlace | Finding]]:
    """Return a step that searches the folder of the first of these libraries that ld.so finds.

    It adds nothing if one of them is in the Python environment.
    """

    def find_in_folder(request: PluginSearch, name: str) -> Iterator[LibraryPlace | Finding]:
        for folder in _list_prefix_folders(request):
            if any(os.path.exists(os.path.join(folder, library)) for library in libraries):
                yield Place(name, name, f"it is in {folder}")
                return
        path = next(filter(None, (_locate(library, request) for library in libraries)), None)
        if path:  # the real folder, where the runtime itself looks (spec, section C)
            yield _make_place(os.path.dirname(os.path.realpath(path)), name)
        else:
            yield Place(name, name, "not found")

    return find_in_folder


def _find_in_library_path(request: PluginSearch, name: str) -> Iterator[LibraryPlace | Finding]:
    """Yield the directories of LD_LIBRARY_PATH. An empty element is the current directory
    (ld.so(8)).
    """
    yield from (_make_place(path, name) for path in _list_library_path_folders(request))


def _find_in_system(request: PluginSearch, name: str) -> Iterator[LibraryPlace | Finding]:
    yield LibraryPlace("the linker's cache and default directories", name, cache(find_library))


#: The search steps in order.
UR_STEPS: Final = (
    SearchStep(SEARCH_PATH, _search_path),
    SearchStep("Python prefix", _find_in_python_prefix),
    SearchStep("libur_loader.so", _make_folder_step(_LOADERS)),
    SearchStep(LIBRARY_PATH, _find_in_library_path),
    SearchStep("system", _find_in_system),
)


PI_STEPS: Final = (
    SearchStep("Python prefix", _find_in_python_prefix),
    SearchStep("libsycl.so", _make_folder_step(_RUNTIMES)),
    SearchStep(LIBRARY_PATH, _find_in_library_path),
    SearchStep("system", _find_in_system),
)


def _list_prefix_folders(request: PluginSearch) -> list[str]:
    """Return `lib` of the given prefix, or of the running Python environment and its base."""
    roots = (request.prefix,) if request.prefix else (sys.prefix, sys.base_prefix)
    return list(dict.fromkeys(os.path.join(os.path.abspath(root), "lib") for root in roots))


def _list_library_path_folders(request: PluginSearch) -> list[str]:
    """Return the directories of LD_LIBRARY_PATH, each once."""
    value = request.environ.get(LIBRARY_PATH, "").replace(";", ":")
    return list(dict.fromkeys(part or "." for part in value.split(":"))) if value else []


def _locate(library: str, request: PluginSearch) -> str | None:
    """Return where ld.so finds a library with the LD_LIBRARY_PATH of the search."""
    paths = (os.path.join(folder, library) for folder in _list_library_path_folders(request))
    return next(filter(os.path.exists, paths), None) or find_library(library)
