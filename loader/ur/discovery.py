"""Where Unified Runtime adapters and PI plugins are looked for, and what becomes of each environment variable. Nothing is opened.

The names come from plugins.conf (`plugin_config`). `find_adapters` and `find_plugins` turn each table of `SearchStep`s into an ordered
list of places, look every name up in them, and yield what they found, passed over and where they looked; `search.collect` sorts
that. The first usable file of a name wins, as in the Unified Runtime's own loader, where the first that dlopen accepts does.
UR_ADAPTERS_FORCE_LOAD takes the place of the whole search. `VARIABLES` is every variable that bears on this, and
`explain_variables()` says what each one that is set did.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from ..base import search
from ..base.errors import LibraryError
from ..base.library import check_file, find_library
from ..base.search import (
    Candidate,
    Finding,
    Place,
    Refusal,
    SearchResult,
    Variable,
    VariableInUse,
    collect,
    secure_environ,
)
from .plugin_config import UNKNOWN, PluginEntry, deduce, read_config, shipped_config

_UR_LOADER, _LIBSYCL, _FAIRLEAD = "Unified Runtime loader", "DPC++ runtime", "fairlead"

_FORCE, _SEARCH_PATH, _FILTER = (
    "UR_ADAPTERS_FORCE_LOAD",
    "UR_ADAPTERS_SEARCH_PATH",
    "UR_LOADER_PRELOAD_FILTER",
)
_DEEP_BIND, _CONFIG, _LIBRARY_PATH = "UR_ADAPTERS_DEEP_BIND", "SYCL_PI_CONFIG", "LD_LIBRARY_PATH"
_SELECTORS: Final = (
    "ONEAPI_DEVICE_SELECTOR",
    "SYCL_DEVICE_FILTER",
    "SYCL_BE",
)  # in the order of their precedence
#: SYCL_OVERRIDE_PI_*: the backend whose plugin each one replaces. ROCM is an older name of HIP.
_OVERRIDES: Final = {
    "SYCL_OVERRIDE_PI_OPENCL": "opencl",
    "SYCL_OVERRIDE_PI_LEVEL_ZERO": "level_zero",
    "SYCL_OVERRIDE_PI_CUDA": "cuda",
    "SYCL_OVERRIDE_PI_HIP": "hip",
    "SYCL_OVERRIDE_PI_ROCM": "hip",
}
#: Libraries beside which adapters and plugins are installed. libsycl 7 is the last release that has PI.
_LOADERS: Final = ("libur_loader.so.0",)
_RUNTIMES: Final = ("libsycl.so.7", "libsycl.so.8", "libsycl.so.6")
_NOUNS: Final = {"UR": ("adapter", "adapters"), "PI": ("plugin", "plugins")}
_VERSION: Final = re.compile(r"(\.so)(\.\d+)+$")


@dataclass(frozen=True)
class PluginCandidate(Candidate):
    """A UR adapter or a PI plugin worth opening: a file that is a complete shared library for this architecture.

    `interface` is "UR" or "PI"; `backend` is what device selectors call it, "unknown" if its name does not tell; `deep_bind` asks
    for RTLD_DEEPBIND when it is opened. `others` are files of the same name in later places, for the case that this one cannot be
    opened.
    """

    interface: str = "UR"
    backend: str = UNKNOWN
    deep_bind: bool = False
    others: tuple[str, ...] = field(default=(), compare=False)


VARIABLES: Final = (
    Variable(
        _FORCE,
        (_UR_LOADER,),
        "`,`-list of adapters to open in place of all others; quote a path that holds : or ;",
        True,
        "these adapters are the only ones; nothing else is searched and no device selector filters them",
    ),
    Variable(
        _SEARCH_PATH,
        (_UR_LOADER,),
        "`,`-list of directories to search for adapters first; quote one that holds : or ;",
        True,
        "these directories come before the Python environment, LD_LIBRARY_PATH and the system",
        (_FORCE,),
    ),
    Variable(
        _FILTER,
        (_UR_LOADER,),
        "0 opens adapters of every backend, whatever the device selector says",
        True,
        "1 is the default; any other value opens adapters and plugins of every backend",
        (_FORCE,),
    ),
    Variable(
        _DEEP_BIND,
        (_UR_LOADER,),
        "1 opens adapters with RTLD_DEEPBIND",
        True,
        "1 opens adapters with RTLD_DEEPBIND: their own symbols go before those of the process",
    ),
    Variable(
        "UR_ENABLE_LOADER_INTERCEPT",
        (_UR_LOADER,),
        "1 sends calls through the loader's own table even with a single adapter",
        False,
        "fairlead calls each adapter's own table and has none of its own in between",
    ),
    Variable(
        _CONFIG,
        (_FAIRLEAD, "DPC++ design"),
        "file with the plugins' names",
        True,
        "the plugins of this file replace those of vendors.d/plugins.conf",
    ),
    *(
        Variable(
            name,
            (_FAIRLEAD, "DPC++ of 2021"),
            f"library to open in place of the {backend} plugin",
            True,
            f"this library takes the place of the {backend} plugin",
            ("SYCL_OVERRIDE_PI_HIP",) if name.endswith("ROCM") else (),
        )
        for name, backend in _OVERRIDES.items()
    ),
    Variable(
        _LIBRARY_PATH,
        ("ld.so",),
        "`:`-list of directories to search for libraries",
        True,
        "searched for adapters and plugins after the Python environment and the folders of libur_loader.so and libsycl.so",
    ),
    Variable(
        "ONEAPI_DEVICE_SELECTOR",
        (_UR_LOADER, _LIBSYCL),
        "which devices may be used",
        True,
        f"an adapter or plugin none of whose devices it can select is not opened, unless {_FILTER}=0",
    ),
)


@dataclass(frozen=True)
class _Search:
    """What a search is about: the environment that may be trusted, a prefix or None, the device selector's word on a backend."""

    interface: str
    environ: Mapping[str, str]
    prefix: Path | None
    accepts_backend: Callable[[str], bool] | None


@dataclass(frozen=True)
class _Source:
    """A place to look names up in; `locate` gives a name's path there, or None."""

    place: str
    found_via: str
    locate: Callable[[str], str | None]


@dataclass(frozen=True)
class _Wanted:
    """An entry to look for, the file that names it, and the variable or file that a path in it came from."""

    entry: PluginEntry
    named_by: str
    manifest: Path | None = None


@dataclass(frozen=True)
class SearchStep:
    """A step of the search: `sources` yields the places that it adds, and findings about those it could not add."""

    name: str
    sources: Callable[[_Search, str], Iterator[_Source | Finding]]


def find_adapters(
    environ: Mapping[str, str] | None = None,
    *,
    prefix: Path | None = None,
    accepts_backend: Callable[[str], bool] | None = None,
) -> SearchResult:
    """Search for Unified Runtime adapters; its candidates are `PluginCandidate`s in the order of their names.

    Args:
        environ: the environment, `os.environ` by default. A set-uid or set-gid process ignores it.
        prefix: the Python environment whose `lib` is searched; the running one and its base by default.
        accepts_backend: says whether the device selector can select a device of a backend. What it leaves out is refused, unless
            UR_LOADER_PRELOAD_FILTER=0; UR_ADAPTERS_FORCE_LOAD and the backend "unknown" are never left out.
    """
    return collect(_adapters(_Search("UR", secure_environ(environ), prefix, accepts_backend)))


def find_plugins(
    environ: Mapping[str, str] | None = None,
    *,
    prefix: Path | None = None,
    accepts_backend: Callable[[str], bool] | None = None,
) -> SearchResult:
    """Search for PI plugins; its candidates are `PluginCandidate`s: those of SYCL_OVERRIDE_PI_*, then the file's in its order.

    The arguments are those of `find_adapters`.
    """
    return collect(_plugins(_Search("PI", secure_environ(environ), prefix, accepts_backend)))


#: The search of each interface.
FIND: Final = {"UR": find_adapters, "PI": find_plugins}


def explain_variables(environ: Mapping[str, str] | None = None) -> tuple[VariableInUse, ...]:
    """What each of `VARIABLES` that is set in the environment did, in the order of the table."""
    return search.explain_variables(VARIABLES, _effect, environ)


def _effect(variable: Variable, trusted: Mapping[str, str]) -> str:
    """Why a variable that is set does not do what it is for, "" if it does."""
    if malformed := _malformed(variable.name, trusted):
        return f"ignored: {malformed.reason}"
    winner = next(
        (
            name
            for name in variable.replaced_by
            if trusted.get(name) and not _malformed(name, trusted)
        ),
        None,
    )
    return f"no effect: {winner} is set and replaces it" if winner else ""


def split_quoted_list(variable: str, text: str) -> list[str] | Refusal:
    """The elements of a `,`-list of the Unified Runtime, or why all of it is ignored (spec, section A).

    An element that holds `:` or `;` must be in quotes; quotes do not protect a comma; one comma at the end does not count.
    """
    elements: list[str] = []
    for number, element in enumerate(text.removesuffix(",").split(","), start=1):
        quoted = len(element) > 1 and element[0] == element[-1] and element[0] in "'\""
        bare = element[1:-1] if quoted else element
        if not bare:
            return Refusal(
                variable, f"element {number} of {text!r} is empty", "remove the extra ','", variable
            )
        if not quoted and set(bare) & {":", ";"}:
            reason = f"element {number} of {text!r} holds ':' or ';' and is not in quotes"
            return Refusal(
                variable,
                reason,
                f"separate elements by ',', or write {variable}='\"{bare}\"'",
                variable,
            )
        elements.append(bare)
    return elements


def _malformed(variable: str, environ: Mapping[str, str]) -> Refusal | None:
    """What is wrong with one of the lists, None if nothing is or if the variable is no such list."""
    elements = (
        split_quoted_list(variable, environ[variable])
        if variable in (_FORCE, _SEARCH_PATH)
        else None
    )
    return elements if isinstance(elements, Refusal) else None


def _is_true(environ: Mapping[str, str], variable: str, default: bool) -> bool:
    """A switch as the Unified Runtime reads it: whatever is none of these words is off."""
    value = environ.get(variable)
    return value.lower() in ("y", "yes", "t", "true", "1") if value else default


def _adapters(request: _Search) -> Iterator[Finding]:
    """All about adapters: those of UR_ADAPTERS_FORCE_LOAD if it is well-formed, else those that the steps find."""
    forced = (
        split_quoted_list(_FORCE, request.environ[_FORCE]) if request.environ.get(_FORCE) else None
    )
    if isinstance(forced, list):
        yield from _forced(forced, request)
        yield from (
            Place(step.name, step.name, f"not searched: {_FORCE} is set and replaces it")
            for step in UR_STEPS
        )
        return
    if forced is not None:
        yield replace(forced, reason=f"{forced.reason}: the variable is ignored")
    wanted: list[_Wanted] = []
    for item in read_config(shipped_config(), "plugins.conf"):
        if isinstance(item, Refusal):
            yield item
        elif item.interface == "UR":
            wanted.append(_Wanted(item, "plugins.conf", shipped_config()))
    yield from _search(request, UR_STEPS, sorted(wanted, key=lambda one: one.entry.library))


def _forced(paths: Sequence[str], request: _Search) -> Iterator[Finding]:
    """UR_ADAPTERS_FORCE_LOAD: existing files only, and no filter."""
    for path in paths:
        if path.endswith(".a"):
            yield Refusal(
                path,
                "is a static library, which cannot be loaded",
                "name the shared library (.so)",
                _FORCE,
            )
        elif not os.path.exists(path):
            remedy = f"correct {_FORCE}, or unset it to search the usual places"
            yield Refusal(path, "does not exist", remedy, _FORCE)
        else:
            entry = replace(deduce(os.path.abspath(path)), interface="UR")
            yield _unusable(entry.library, _FORCE) or _judge(
                entry.library, _FORCE, _Wanted(entry, _FORCE), request
            )


def _plugins(request: _Search) -> Iterator[Finding]:
    """All about plugins: the configuration file's names, some of them replaced, wherever the steps find them."""
    overrides: dict[str, str] = {}  # backend → variable
    for variable, backend in _OVERRIDES.items():
        if request.environ.get(variable):
            overrides.setdefault(backend, variable)
    wanted = [_override(variable, backend, request) for backend, variable in overrides.items()]
    given = request.environ.get(_CONFIG)
    config, via = (
        (Path(os.path.abspath(given)), _CONFIG) if given else (shipped_config(), "plugins.conf")
    )
    for item in read_config(config, via):
        if isinstance(item, Refusal):
            yield item
        elif item.interface == "PI" and item.backend not in overrides:
            wanted.append(_Wanted(item, via, config))
        elif item.interface == "UR" and given:
            yield Refusal(
                item.library,
                f"is a UR adapter, and {_CONFIG} names plugins",
                f"name it in {_FORCE}",
                via,
            )
    yield from _search(request, PI_STEPS, wanted)


def _override(variable: str, backend: str, request: _Search) -> _Wanted:
    """SYCL_OVERRIDE_PI_*: a path, relative to the current directory, or a name that the steps find."""
    value = request.environ[variable]
    return _Wanted(
        PluginEntry(os.path.abspath(value) if "/" in value else value, "PI", backend), variable
    )


def _search(
    request: _Search, steps: Sequence[SearchStep], wanted: Sequence[_Wanted]
) -> Iterator[Finding]:
    """The state of all places, then what each name comes to in them."""
    names = [one.entry.library for one in wanted if "/" not in one.entry.library]
    sources: dict[str, _Source] = {}
    for step in steps:
        for source in step.sources(request, step.name):
            if not isinstance(source, _Source):
                yield source
            elif source.place in sources:
                yield Place(
                    source.place,
                    source.found_via,
                    f"already searched via {sources[source.place].found_via}",
                )
            else:
                sources[source.place] = source
                found = sum(next(_paths(source, name), None) is not None for name in names)
                yield Place(source.place, source.found_via, _count(found, request.interface))
    for one in wanted:
        if "/" in one.entry.library:
            yield _unusable(one.entry.library, one.named_by) or _judge(
                one.entry.library, one.named_by, one, request
            )
        else:
            yield from _look_up(one, list(sources.values()), request)


def _look_up(wanted: _Wanted, sources: Sequence[_Source], request: _Search) -> Iterator[Finding]:
    """The first usable file of a name. Unusable ones before it are refused, and so is a name of the user's that is nowhere."""
    for source in sources:
        via = wanted.named_by if wanted.named_by in _OVERRIDES else source.found_via
        for path in _paths(source, wanted.entry.library):
            unusable = _unusable(path, via)
            if unusable is None:
                found = _judge(path, via, wanted, request)
                others = _later(path, wanted.entry.library, sources)
                yield replace(found, others=others) if isinstance(found, PluginCandidate) else found
                return
            yield unusable
    if wanted.manifest == shipped_config():
        yield Place(wanted.entry.library, wanted.named_by, "not found in any of these places")
    else:
        where = f"not found in {', '.join(source.place for source in sources)}"
        yield Refusal(
            wanted.entry.library,
            where,
            f"correct {wanted.named_by}, or name it by its whole path",
            wanted.named_by,
        )


def _later(first: str, name: str, sources: Sequence[_Source]) -> tuple[str, ...]:
    """The other usable files of a name, in the order of the places: the Unified Runtime loader takes the first that dlopen accepts."""
    files = {
        os.path.realpath(path): path
        for source in reversed(sources)
        for path in _paths(source, name)
    }
    ordered = dict.fromkeys(
        os.path.realpath(path) for source in sources for path in _paths(source, name)
    )
    return tuple(
        files[file]
        for file in ordered
        if file != os.path.realpath(first) and _unusable(files[file], "") is None
    )


def _paths(source: _Source, name: str) -> Iterator[str]:
    """Where a name lies in a place, then where the name without its version does: `libur_adapter_X.so.0`, `libur_adapter_X.so`."""
    yield from filter(None, map(source.locate, dict.fromkeys((name, _VERSION.sub(r"\1", name)))))


def _unusable(path: str, found_via: str) -> Refusal | None:
    """Why a file is surely no library for this process, None if it may be one."""
    try:
        check_file(path)
    except LibraryError as error:
        return Refusal(path, error.message, error.remedy, found_via)
    return None


def _judge(
    path: str, found_via: str, wanted: _Wanted, request: _Search
) -> PluginCandidate | Refusal:
    """A library as a candidate, unless the device selector has no use for its backend."""
    backend, environ, accepts = wanted.entry.backend, request.environ, request.accepts_backend
    filtered = backend != UNKNOWN and found_via != _FORCE and _is_true(environ, _FILTER, True)
    if accepts is not None and filtered and not accepts(backend):
        variable = next((name for name in _SELECTORS if environ.get(name)), "the device selector")
        value = f"={environ[variable]}" if variable in environ else ""
        reason = f"left out by {variable}{value}, which selects no {backend} device"
        return Refusal(
            path, reason, f"let {variable} select {backend}, or set {_FILTER}=0", found_via
        )
    deep_bind = request.interface == "UR" and _is_true(environ, _DEEP_BIND, False)
    return PluginCandidate(path, found_via, wanted.manifest, request.interface, backend, deep_bind)


def _count(found: int, interface: str) -> str:
    """A place's state in words."""
    one, many = _NOUNS[interface]
    return f"no {one}" if not found else f"1 {one}" if found == 1 else f"{found} {many}"


def _directory(path: str, found_via: str) -> _Source | Place:
    """A directory as a place to look names up in; a relative one is relative to the current directory, as for ld.so."""
    directory = os.path.abspath(path)
    if not os.path.isdir(directory):
        return Place(
            directory,
            found_via,
            "is not a directory" if os.path.exists(directory) else "does not exist",
        )

    def locate(name: str) -> str | None:
        library = os.path.join(directory, name)
        return library if os.path.lexists(library) else None

    return _Source(directory, found_via, locate)


def _search_path(request: _Search, name: str) -> Iterator[_Source | Finding]:
    """UR_ADAPTERS_SEARCH_PATH: directories."""
    value = request.environ.get(name)
    directories = split_quoted_list(name, value) if value else []
    if isinstance(directories, Refusal):
        yield replace(directories, reason=f"{directories.reason}: the variable is ignored")
        return
    for path in directories:
        directory = _directory(path, name)
        yield directory
        if isinstance(directory, Place):
            yield Refusal(path, directory.state, f"correct {name}, or make the directory", name)


def _python_prefix(request: _Search, name: str) -> Iterator[_Source | Finding]:
    """Where pip and conda put shared libraries: in the Python environment, and in the one that a virtual environment was made from."""
    yield from (_directory(folder, name) for folder in _prefix_folders(request))


def _beside(libraries: Sequence[str]) -> Callable[[_Search, str], Iterator[_Source | Finding]]:
    """The folder of the first of these libraries that ld.so finds, unless one of them is in the Python environment."""

    def sources(request: _Search, name: str) -> Iterator[_Source | Finding]:
        for folder in _prefix_folders(request):
            if any(os.path.exists(os.path.join(folder, library)) for library in libraries):
                yield Place(name, name, f"it is in {folder}")
                return
        path = next(filter(None, (_locate(library, request) for library in libraries)), None)
        if path:  # its real folder: that is where the runtime itself looks (spec, section C)
            yield _directory(os.path.dirname(os.path.realpath(path)), name)
        else:
            yield Place(name, name, "not found")

    return sources


def _library_path(request: _Search, name: str) -> Iterator[_Source | Finding]:
    """LD_LIBRARY_PATH: directories; an empty element is the current directory (ld.so(8))."""
    yield from (_directory(path, name) for path in _library_path_folders(request))


def _system(request: _Search, name: str) -> Iterator[_Source | Finding]:
    yield _Source("the linker's cache and default directories", name, find_library)


#: The order of the search, as vendors.d/README.md explains it to users.
UR_STEPS: Final = (
    SearchStep(_SEARCH_PATH, _search_path),
    SearchStep("Python prefix", _python_prefix),
    SearchStep("libur_loader.so", _beside(_LOADERS)),
    SearchStep(_LIBRARY_PATH, _library_path),
    SearchStep("system", _system),
)
PI_STEPS: Final = (
    SearchStep("Python prefix", _python_prefix),
    SearchStep("libsycl.so", _beside(_RUNTIMES)),
    SearchStep(_LIBRARY_PATH, _library_path),
    SearchStep("system", _system),
)


def _prefix_folders(request: _Search) -> list[str]:
    """`lib` of the prefix that was asked for, or of the running Python environment and its base."""
    roots = (request.prefix,) if request.prefix else (sys.prefix, sys.base_prefix)
    return list(dict.fromkeys(os.path.join(os.path.abspath(root), "lib") for root in roots))


def _library_path_folders(request: _Search) -> list[str]:
    """The directories of LD_LIBRARY_PATH, each once."""
    value = request.environ.get(_LIBRARY_PATH, "").replace(";", ":")
    return list(dict.fromkeys(part or "." for part in value.split(":"))) if value else []


def _locate(library: str, request: _Search) -> str | None:
    """Where ld.so finds a library, by the LD_LIBRARY_PATH of the request."""
    paths = (os.path.join(folder, library) for folder in _library_path_folders(request))
    return next(filter(os.path.exists, paths), None) or find_library(library)
