"""Predicts the dynamic linker: where it finds a library, and which dependencies are missing.

The search order is that of ld.so(8): RPATH, LD_LIBRARY_PATH, RUNPATH, the cache, the default
directories. Nothing is loaded.
"""

from __future__ import annotations

import _ctypes
import ctypes
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache

from .elf import is_loadable, read_dynamic_section
from .search import filter_environ

_CACHE = "/etc/ld.so.cache"
_CACHE_MAGIC = b"glibc-ld.so.cache1.1"
#: Debian's name for the architecture, such as "x86_64-linux-gnu".
_MULTIARCH = getattr(sys.implementation, "_multiarch", "")
_DEFAULT_DIRECTORIES = (
    f"/lib/{_MULTIARCH}",
    f"/usr/lib/{_MULTIARCH}",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
)


def find_missing_dependencies(path: str) -> tuple[str, ...]:
    """Return the sonames that a library needs, directly or indirectly, and that are not found."""
    return tuple(look_for_dependencies(path))


def look_for_dependencies(path: str) -> dict[str, tuple[str, ...]]:
    """Return the same sonames, each with the paths at which it was looked for."""
    missing: dict[str, tuple[str, ...]] = {}
    seen: set[str] = set()
    waiting: list[tuple[str, tuple[str, ...]]] = [(path, ())]
    while waiting:
        current, inherited = waiting.pop(0)
        needed, own, runpath = read_dynamic_section(current)
        # ld.so(8): RPATH also applies to the dependencies of dependencies, RUNPATH does not. A
        # library with RUNPATH has no RPATH, and is found without that of its users.
        handed_on = inherited if runpath else (*own, *inherited)
        rpath = () if runpath else handed_on
        for name in needed:
            if name in seen:
                continue
            seen.add(name)
            if _is_loaded(name):
                continue
            found = (
                name if "/" in name and os.path.exists(name) else find_library(name, rpath, runpath)
            )
            if found is None:
                missing[name] = tuple(list_places(name, rpath, runpath))
            else:
                waiting.append((found, handed_on))
    return missing


def find_library(
    name: str, rpath: tuple[str, ...] = (), runpath: tuple[str, ...] = ()
) -> str | None:
    """Return where the dynamic linker would find a bare soname, None if nowhere.

    Args:
        name: the soname.
        rpath: the RPATH directories that apply.
        runpath: the RUNPATH directories that apply.
    """
    return next(filter(is_loadable, list_places(name, rpath, runpath)), None)


def list_places(
    name: str, rpath: tuple[str, ...] = (), runpath: tuple[str, ...] = ()
) -> Iterator[str]:
    """Yield the paths at which the dynamic linker looks for a bare soname, in its order.

    Args:
        name: the soname.
    """
    variable = filter_environ().get("LD_LIBRARY_PATH", "").replace(";", ":")
    from_environment = [part or "." for part in variable.split(":")] if variable else []
    for directory in (*rpath, *from_environment, *runpath):
        yield os.path.join(directory, name)
    if b"\0%b\0" % os.fsencode(name) in _read_cache_file():  # parsing it takes 10 ms
        yield from read_linker_cache().get(name, ())
    for directory in _DEFAULT_DIRECTORIES:
        yield os.path.join(directory, name)


def can_find_library(name: str) -> bool:
    """Return whether dlopen, called by Python, would find a library with a bare soname.

    The RPATH and RUNPATH of Python count: environments of conda have them.

    Args:
        name: the soname.
    """
    found = _is_loaded(name) or find_library(name) is not None
    return found or any(find_library(name, *paths) for paths in _find_python_paths())


@cache
def _find_python_paths() -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """RPATH and RUNPATH of the program and of ctypes, where there are any."""
    files = (sys.executable, getattr(_ctypes, "__file__", ""))
    found = [read_dynamic_section(os.path.realpath(file))[1:] for file in files if file]
    return [paths for paths in found if any(paths)]


def _is_loaded(name: str) -> bool:
    """Return whether a library with this soname is loaded. It then satisfies DT_NEEDED."""
    try:
        ctypes.CDLL(name, mode=os.RTLD_LAZY | os.RTLD_NOLOAD)
    except OSError:
        return False
    return True


@cache
def read_linker_cache() -> dict[str, list[str]]:
    """Return soname to paths, from the cache that ldconfig writes; of a damaged one, its beginning.

    The format is `struct cache_file_new` of glibc (sysdeps/generic/dl-cache.h).
    """
    data = _read_cache_file()
    base = data.find(_CACHE_MAGIC)
    if base < 0:
        return {}
    data = data[base:]
    entries: dict[str, list[str]] = {}
    with suppress(struct.error, ValueError):
        (count,) = struct.unpack_from("=I", data, 20)
        for number in range(count):
            _, key, value = struct.unpack_from("=iII12x", data, 48 + 24 * number)
            name, path = (data[place : data.index(b"\0", place)] for place in (key, value))
            entries.setdefault(os.fsdecode(name), []).append(os.fsdecode(path))
    return entries


@cache
def _read_cache_file() -> bytes:
    try:
        with open(_CACHE, "rb") as file:
            return file.read()
    except OSError:
        return b""
