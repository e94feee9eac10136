"""Finds Unified Runtime adapters and PI plugins. Nothing is opened.

The names come from plugins.conf (`plugin_config`), the places from a table of search steps
(`plugin_places`). `find_adapters` and `find_plugins` look up every name in every place.
`search.collect` sorts what they find. The first usable file of a name is taken, as in the Unified
Runtime loader, which takes the first that dlopen accepts. UR_ADAPTERS_FORCE_LOAD replaces the whole
search. `plugin_variables` lists all variables.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from ..base.elf import check_file
from ..base.errors import LibraryError
from ..base.frozen_value import Value
from ..base.registered_libraries import ADAPTERS
from ..base.search import Candidate, Finding, Place, Refusal, SearchResult, collect, filter_environ
from .plugin_config import UNKNOWN, PluginEntry, deduce, find_shipped_config, read_config
from .plugin_places import PI_STEPS, UR_STEPS, LibraryPlace, PluginSearch, SearchStep
from .plugin_variables import (
    DEEP_BIND,
    FORCE_LOAD,
    OVERRIDES,
    PI_CONFIG,
    PRELOAD_FILTER,
    SELECTORS,
    is_true,
    split_quoted_list,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_NOUNS: Final = {"UR": ("adapter", "adapters"), "PI": ("plugin", "plugins")}


_COMPARED: Final = ("library", "found_via", "manifest", "interface", "backend", "deep_bind")


class PluginCandidate(Candidate, key=_COMPARED):
    """A UR adapter or PI plugin worth opening, a complete shared library for this architecture.

    Attributes:
        interface: "UR" or "PI".
        backend: the backend's name in device selectors, "unknown" if the file name does not tell.
        deep_bind: whether it is opened with RTLD_DEEPBIND.
        others: files of the same name in later places, used if this one cannot be opened.
    """

    interface: str = "UR"
    backend: str = UNKNOWN
    deep_bind: bool = False
    others: tuple[str, ...] = ()


class _WantedEntry(Value):
    """An entry to search for.

    Attributes:
        entry: the line of plugins.conf.
        named_by: the variable or file that names it.
        manifest: the configuration file, None if a variable names it.
    """

    entry: PluginEntry
    named_by: str
    manifest: str | None = None


def find_adapters(
    environ: Mapping[str, str] | None = None,
    *,
    prefix: str | None = None,
    accepts_backend: Callable[[str], bool] | None = None,
) -> SearchResult:
    """Search for Unified Runtime adapters.

    Args:
        environ: the environment, `os.environ` by default. A set-uid or set-gid process ignores it.
        prefix: the Python environment whose `lib` is searched; by default the running one and its
            base environment.
        accepts_backend: returns whether the device selector can select a device of a backend.
            Adapters of other backends are refused unless UR_LOADER_PRELOAD_FILTER=0. Adapters of
            UR_ADAPTERS_FORCE_LOAD and of unknown backends are never refused.

    Returns:
        The result, with `PluginCandidate`s in the order of their names.
    """
    return collect(
        _find_adapters(PluginSearch("UR", filter_environ(environ), prefix, accepts_backend))
    )


def find_plugins(
    environ: Mapping[str, str] | None = None,
    *,
    prefix: str | None = None,
    accepts_backend: Callable[[str], bool] | None = None,
) -> SearchResult:
    """Search for PI plugins. The arguments are those of `find_adapters`.

    Returns:
        The result, with `PluginCandidate`s: those of SYCL_OVERRIDE_PI_*, then those of the
        configuration file in its order.
    """
    return collect(
        _find_plugins(PluginSearch("PI", filter_environ(environ), prefix, accepts_backend))
    )


#: Interface to its search.
FIND: Final = {"UR": find_adapters, "PI": find_plugins}


def _find_adapters(request: PluginSearch) -> Iterator[Finding]:
    """Yield the adapters of UR_ADAPTERS_FORCE_LOAD, or those of the search if it is not set.

    A malformed list is ignored.
    """
    forced = (
        split_quoted_list(FORCE_LOAD, request.environ[FORCE_LOAD])
        if request.environ.get(FORCE_LOAD)
        else None
    )
    if isinstance(forced, list):
        yield from _find_forced_adapters(forced, request)
        yield from (
            Place(step.name, step.name, f"not searched: {FORCE_LOAD} is set and replaces it")
            for step in UR_STEPS
        )
        return
    if forced is not None:
        yield forced.copy_with(reason=f"{forced.reason}: the variable is ignored")
    wanted: list[_WantedEntry] = []
    for item in read_config(find_shipped_config(), "plugins.conf"):
        if isinstance(item, Refusal):
            yield item
        elif item.interface == "UR":
            wanted.append(_WantedEntry(item, "plugins.conf", find_shipped_config()))
    yield from _search(request, UR_STEPS, sorted(wanted, key=lambda one: one.entry.library))
    # Another Python environment's modules are not for this Python.
    for found in ADAPTERS.search() if request.prefix is None else ():
        if isinstance(found, Refusal):
            yield found
        else:
            library, via = found
            entry = PluginEntry(library, "UR", UNKNOWN)
            yield _accept(library, via, _WantedEntry(entry, via), request)


def _find_forced_adapters(paths: Sequence[str], request: PluginSearch) -> Iterator[Finding]:
    """Yield the files of UR_ADAPTERS_FORCE_LOAD. They must exist, and are not filtered."""
    for path in paths:
        if path.endswith(".a"):
            yield Refusal(
                path,
                "is a static library, which cannot be loaded",
                "name the shared library (.so)",
                FORCE_LOAD,
            )
        elif not os.path.exists(path):
            remedy = f"correct {FORCE_LOAD}, or unset it to search the usual places"
            yield Refusal(path, "does not exist", remedy, FORCE_LOAD)
        else:
            entry = deduce(os.path.abspath(path)).copy_with(interface="UR")
            yield _find_refusal(entry.library, FORCE_LOAD) or _accept(
                entry.library, FORCE_LOAD, _WantedEntry(entry, FORCE_LOAD), request
            )


def _find_plugins(request: PluginSearch) -> Iterator[Finding]:
    """Yield the plugins of the configuration file, except those that a variable overrides."""
    overrides: dict[str, str] = {}  # backend → variable
    for variable, backend in OVERRIDES.items():
        if request.environ.get(variable):
            overrides.setdefault(backend, variable)
    wanted = [_override(variable, backend, request) for backend, variable in overrides.items()]
    given = request.environ.get(PI_CONFIG)
    config, via = (
        (os.path.abspath(given), PI_CONFIG) if given else (find_shipped_config(), "plugins.conf")
    )
    for item in read_config(config, via):
        if isinstance(item, Refusal):
            yield item
        elif item.interface == "PI" and item.backend not in overrides:
            wanted.append(_WantedEntry(item, via, config))
        elif item.interface == "UR" and given:
            yield Refusal(
                item.library,
                f"is a UR adapter, and {PI_CONFIG} names plugins",
                f"name it in {FORCE_LOAD}",
                via,
            )
    yield from _search(request, PI_STEPS, wanted)


def _override(variable: str, backend: str, request: PluginSearch) -> _WantedEntry:
    """Return the entry of SYCL_OVERRIDE_PI_*: a path, or a name to search for.

    A path is relative to the current directory.
    """
    value = request.environ[variable]
    return _WantedEntry(
        PluginEntry(os.path.abspath(value) if "/" in value else value, "PI", backend), variable
    )


def _search(
    request: PluginSearch, steps: Sequence[SearchStep], wanted: Sequence[_WantedEntry]
) -> Iterator[Finding]:
    """Yield the state of every place, then what was found for each name."""
    names = [one.entry.library for one in wanted if "/" not in one.entry.library]
    places: dict[str, LibraryPlace] = {}
    for step in steps:
        for place in step.places(request, step.name):
            if not isinstance(place, LibraryPlace):
                yield place
            elif place.name in places:
                yield Place(
                    place.name,
                    place.found_via,
                    f"already searched via {places[place.name].found_via}",
                )
            else:
                places[place.name] = place
                found = sum(next(_list_paths(place, name), None) is not None for name in names)
                yield Place(place.name, place.found_via, _count_found(found, request.interface))
    for one in wanted:
        if "/" in one.entry.library:
            yield _find_refusal(one.entry.library, one.named_by) or _accept(
                one.entry.library, one.named_by, one, request
            )
        else:
            yield from _look_up(one, list(places.values()), request)


def _look_up(
    wanted: _WantedEntry, places: Sequence[LibraryPlace], request: PluginSearch
) -> Iterator[Finding]:
    """Yield the first usable file of a name, and refusals of the unusable ones before it.

    A name is also refused if it is found nowhere and the user gave it.
    """
    for place in places:
        via = wanted.named_by if wanted.named_by in OVERRIDES else place.found_via
        for path in _list_paths(place, wanted.entry.library):
            unusable = _find_refusal(path, via)
            if unusable is None:
                found = _accept(path, via, wanted, request)
                others = _find_other_files(path, wanted.entry.library, places)
                yield (
                    found.copy_with(others=others) if isinstance(found, PluginCandidate) else found
                )
                return
            yield unusable
    if wanted.manifest == find_shipped_config():
        yield Place(wanted.entry.library, wanted.named_by, "not found in any of these places")
    else:
        where = f"not found in {', '.join(place.name for place in places)}"
        yield Refusal(
            wanted.entry.library,
            where,
            f"correct {wanted.named_by}, or name it by its whole path",
            wanted.named_by,
        )


def _find_other_files(first: str, name: str, places: Sequence[LibraryPlace]) -> tuple[str, ...]:
    """Return the other usable files of a name, in the order of the places."""
    files = {
        os.path.realpath(path): path
        for place in reversed(places)
        for path in _list_paths(place, name)
    }
    ordered = dict.fromkeys(
        os.path.realpath(path) for place in places for path in _list_paths(place, name)
    )
    return tuple(
        files[file]
        for file in ordered
        if file != os.path.realpath(first) and _find_refusal(files[file], "") is None
    )


def _list_paths(place: LibraryPlace, name: str) -> Iterator[str]:
    """Yield the paths of a name in a place: `libur_adapter_X.so.0`, then `libur_adapter_X.so`."""
    stem, so, version = name.rpartition(".so")
    bare = stem + so if version.replace(".", "").isdecimal() else name
    yield from filter(None, map(place.locate, dict.fromkeys((name, bare))))


def _find_refusal(path: str, found_via: str) -> Refusal | None:
    """Return why a file is not a library for this process, None if it may be one."""
    try:
        check_file(path)
    except LibraryError as error:
        return Refusal(path, error.message, error.remedy, found_via)
    return None


def _accept(
    path: str, found_via: str, wanted: _WantedEntry, request: PluginSearch
) -> PluginCandidate | Refusal:
    """Return the candidate, or a refusal if the device selector excludes its backend."""
    backend, environ, accepts = wanted.entry.backend, request.environ, request.accepts_backend
    filtered = (
        backend != UNKNOWN and found_via != FORCE_LOAD and is_true(environ, PRELOAD_FILTER, True)
    )
    if accepts is not None and filtered and not accepts(backend):
        variable = next((name for name in SELECTORS if environ.get(name)), "the device selector")
        value = f"={environ[variable]}" if variable in environ else ""
        reason = f"left out by {variable}{value}, which selects no {backend} device"
        return Refusal(
            path, reason, f"let {variable} select {backend}, or set {PRELOAD_FILTER}=0", found_via
        )
    deep_bind = request.interface == "UR" and is_true(environ, DEEP_BIND, False)
    return PluginCandidate(path, found_via, wanted.manifest, request.interface, backend, deep_bind)


def _count_found(found: int, interface: str) -> str:
    """Describe what a place contains."""
    one, many = _NOUNS[interface]
    return f"no {one}" if not found else f"1 {one}" if found == 1 else f"{found} {many}"
