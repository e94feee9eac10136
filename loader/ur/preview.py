"""Examines an ELF file before it is loaded: is it an adapter, a plugin, and of which version?

`examine_file` reads the dynamic symbol table; no code of the library runs. An adapter exports
getters of Unified Runtime tables, a plugin exports piPluginInit (spec, sections A and C). The
newest function that a plugin exports gives its version (`SINCE`). A plugin older than PI 15 is
refused, because its function table has another layout. The check in its own piPluginInit is not
reliable.
"""

from __future__ import annotations

import filecmp
import glob
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from ..base.elf import check_file
from ..base.errors import LibraryError
from ..pi.abi import PI

#: PI function to the version that introduced it, the oldest first: the ABI data and one later
#: function.
SINCE: Final = dict(
    sorted(
        [
            *((f.name, f.since) for f in PI.slots if f.since > (1, 0)),
            ("piextCommandBufferUpdateKernelLaunch", (15, 48)),
        ],
        key=lambda item: item[1],
    )
)
#: The major version of PI whose layout is known, and the last change before it.
PI_MAJOR: Final = 15
_LAST_BEFORE: Final = max(version for version in SINCE.values() if version[0] < PI_MAJOR)
#: A plugin that exports this many functions exports its whole table, so a missing function shows
#: its version. Real plugins export at least 105. One that exports little more than piPluginInit
#: tells its version only after it is loaded.
_WHOLE_TABLE: Final = 50

_UR_GETTER: Final = re.compile(r"urGet\w+ProcAddrTable")
_PI_FUNCTION: Final = re.compile(r"pi(ext)?[A-Z]\w*")
_FILE_VERSION: Final = re.compile(r"\.so\.(\d+\.\d+)(\.\d+)*$")
_SYMBOL_VERSION: Final = re.compile(r"LIBUR_\w+_(\d+\.\d+)")
#: Symbols of other Unified Runtime libraries. As an adapter, such a library would call itself
#: forever.
_NOT_ADAPTERS: Final = {
    "urLoaderInit": "it is the Unified Runtime loader itself, not an adapter",
    "urLoaderLayerGetInterface": "it is a layer of the Unified Runtime loader, not an adapter",
}
#: OpenCL loaders (libOpenCL.so.1) define the symbol versions OPENCL_1.0 and so on, drivers do not.
_LOADER_VERSION: Final = re.compile(r"OPENCL_\d+\.\d+")
#: A limit for damaged symbol tables. Real libraries have less than a tenth of it.
_MAX_SYMBOLS: Final = 1_000_000


@dataclass(frozen=True)
class Preview:
    """The kind of a library file, as its symbols show it.

    Attributes:
        interface: "UR", "PI", or "" for neither.
        version: "0.12" for an adapter, ">=15.46" for a plugin, "" if unknown.
        reason: why it must not be loaded, "" if it may be.
        remedy: what to do about it.
        is_loader: whether it is an OpenCL loader, which is not a driver.
    """

    interface: str
    exports: frozenset[str] = frozenset()
    version: str = ""
    reason: str = ""
    remedy: str = ""
    is_loader: bool = False


def examine_file(path: str | os.PathLike[str]) -> Preview:
    """Examine a file. Errors are not raised but become the `reason`."""
    path = os.fspath(path)
    try:
        check_file(path)
        exports, symbol_versions = _read_dynamic_symbols(path)
    except LibraryError as error:
        return Preview("", reason=error.message, remedy=error.remedy)
    except Exception as error:  # pyelftools raises many kinds of errors for a damaged file
        return Preview(
            "", reason=f"its symbol table cannot be read: {error}", remedy="install it again"
        )
    for symbol, reason in _NOT_ADAPTERS.items():
        if symbol in exports:
            return Preview(
                "",
                exports,
                _find_ur_version(path, symbol_versions),
                reason,
                "name an adapter: libur_adapter_*.so.0",
            )
    if any(map(_UR_GETTER.fullmatch, exports)):
        return Preview("UR", exports, _find_ur_version(path, symbol_versions))
    if "piPluginInit" in exports:
        return _examine_plugin(exports)
    if (
        any(map(_LOADER_VERSION.fullmatch, symbol_versions))
        and "clIcdGetPlatformIDsKHR" not in exports
    ):
        reason = "it is an OpenCL loader, which opens drivers and is none itself"
        return Preview(
            "",
            exports,
            reason=reason,
            remedy="name the driver, adapter or plugin itself",
            is_loader=True,
        )
    reason = (
        "it exports no urGet…ProcAddrTable function and no piPluginInit, so it is neither a "
        "Unified Runtime adapter nor a PI plugin"
    )
    return Preview(
        "",
        exports,
        reason=reason,
        remedy="name an adapter (libur_adapter_*.so.0) or a plugin (libpi_*.so)",
    )


def _examine_plugin(exports: frozenset[str]) -> Preview:
    """Return a plugin's preview, refused if all its exports are older than the known layout."""
    newest = max((since for name, since in SINCE.items() if name in exports), default=(0, 0))
    version = f">={newest[0]}.{newest[1]}" if newest > (0, 0) else ""
    whole = sum(map(bool, map(_PI_FUNCTION.fullmatch, exports))) >= _WHOLE_TABLE
    if not whole or newest >= _LAST_BEFORE:
        return Preview("PI", exports, version)
    reason = (
        f"it is a plugin of a Plugin Interface before {PI_MAJOR}: it lacks what "
        f"{_LAST_BEFORE[0]}.{_LAST_BEFORE[1]} added"
    )
    remedy = (
        f"install a plugin of PI {PI_MAJOR}, such as DPC++ 2024.2 has, or a Unified Runtime adapter"
    )
    return Preview(
        "PI", exports, version, f"{reason}, and its function table is laid out differently", remedy
    )


def _find_ur_version(path: str, symbol_versions: list[str]) -> str:
    """Return the API version from the file's full name, else from its symbol versions.

    The symbol versions of adapters are 0.0 in all releases, which is not a version.
    """
    named = (match[1] for match in map(_FILE_VERSION.search, _find_copies(path)) if match)
    versions = (
        match[1]
        for match in map(_SYMBOL_VERSION.fullmatch, symbol_versions)
        if match and match[1] != "0.0"
    )
    return next(named, "") or next(versions, "")


def _find_copies(path: str) -> Iterator[str]:
    """Yield the real file, then copies of it with longer version numbers.

    A wheel contains copies instead of links.
    """
    real = os.path.realpath(path)
    yield real
    for name in sorted(glob.glob(f"{glob.escape(real)}.*")):
        try:
            same = filecmp.cmp(name, real, shallow=False)
        except OSError:
            same = False
        if same:
            yield name


def _read_dynamic_symbols(path: str) -> tuple[frozenset[str], list[str]]:
    """Return the exported symbols of a library, and the names of its symbol versions."""
    from elftools.elf.dynamic import DynamicSegment
    from elftools.elf.elffile import ELFFile
    from elftools.elf.gnuversions import GNUVerDefSection

    with open(path, "rb") as file:
        elf = ELFFile(file)
        segment = next(
            (segment for segment in elf.iter_segments() if isinstance(segment, DynamicSegment)),
            None,
        )
        symbols = islice(segment.iter_symbols(), _MAX_SYMBOLS) if segment else ()
        exports = frozenset(symbol.name for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF")
        section = elf.get_section_by_name(".gnu.version_d")
        versions = section.iter_versions() if isinstance(section, GNUVerDefSection) else ()
        return exports - {""}, [
            auxiliary.name for _, auxiliaries in versions for auxiliary in auxiliaries
        ]
