"""What a library's ELF file says about it before it is loaded: a Unified Runtime adapter, a PI plugin, or neither, and its version.

`preview` reads the dynamic symbol table; no code of the library runs. The getters of the Unified Runtime's tables make an adapter,
piPluginInit makes a plugin (spec, sections A and C). A plugin's version follows from the newest function that it exports, by the
table `SINCE`. A plugin that is surely older than PI 15 is refused here: its function table is laid out differently, and the check
in its own piPluginInit cannot be trusted to say so.
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

#: PI functions by the version that introduced them, the oldest first: what the ABI data tells, and the first later one.
SINCE: Final = dict(
    sorted(
        [
            *((f.name, f.since) for f in PI.slots if f.since > (1, 0)),
            ("piextCommandBufferUpdateKernelLaunch", (15, 48)),
        ],
        key=lambda item: item[1],
    )
)
#: The major version of PI whose layout fairlead knows, and the last change before it.
PI_MAJOR: Final = 15
_LAST_BEFORE: Final = max(version for version in SINCE.values() if version[0] < PI_MAJOR)
#: A plugin that exports this many functions exports its whole table, so that a function's absence means something: real ones
#: export 105 and more. One that exports piPluginInit and little else tells its version only once it is loaded.
_WHOLE_TABLE: Final = 50

_UR_GETTER: Final = re.compile(r"urGet\w+ProcAddrTable")
_PI_FUNCTION: Final = re.compile(r"pi(ext)?[A-Z]\w*")
_FILE_VERSION: Final = re.compile(r"\.so\.(\d+\.\d+)(\.\d+)*$")
_SYMBOL_VERSION: Final = re.compile(r"LIBUR_\w+_(\d+\.\d+)")
#: Symbols of the Unified Runtime's other libraries. Loaded as an adapter, such a one would call itself without end.
_NO_ADAPTERS: Final = {
    "urLoaderInit": "it is the Unified Runtime loader itself, not an adapter",
    "urLoaderLayerGetInterface": "it is a layer of the Unified Runtime loader, not an adapter",
}
#: OpenCL loaders define the symbol versions OPENCL_1.0 and so on, as libOpenCL.so.1 does everywhere; drivers define none.
_LOADER_VERSION: Final = re.compile(r"OPENCL_\d+\.\d+")
#: No library of today has a tenth of this: a damaged symbol table that claims more cannot keep us busy.
_MAX_SYMBOLS: Final = 1_000_000


@dataclass(frozen=True)
class Preview:
    """What a library says before it is loaded.

    `interface` is "UR", "PI", or "" for neither; `exports` are the symbols that it defines for others; `version` is "0.12" for an
    adapter, ">=15.46" for a plugin, "" if it cannot be told. A `reason` that is not empty says why it must not be loaded, and
    `remedy` what to do. `is_loader` says that it is an OpenCL loader, none of whose functions are for a caller that looks for a driver.
    """

    interface: str
    exports: frozenset[str] = frozenset()
    version: str = ""
    reason: str = ""
    remedy: str = ""
    is_loader: bool = False


def preview(path: str | os.PathLike[str]) -> Preview:
    """Read what a library exports and judge what it is. Never raises: what is wrong with the file is the preview's `reason`."""
    path = os.fspath(path)
    try:
        check_file(path)
        exports, symbol_versions = _dynamic_symbols(path)
    except LibraryError as error:
        return Preview("", reason=error.message, remedy=error.remedy)
    except (
        Exception
    ) as error:  # pyelftools meets a damaged file with whatever its parsing runs into
        return Preview(
            "", reason=f"its symbol table cannot be read: {error}", remedy="install it again"
        )
    for symbol, reason in _NO_ADAPTERS.items():
        if symbol in exports:
            return Preview(
                "",
                exports,
                _ur_version(path, symbol_versions),
                reason,
                "name an adapter: libur_adapter_*.so.0",
            )
    if any(map(_UR_GETTER.fullmatch, exports)):
        return Preview("UR", exports, _ur_version(path, symbol_versions))
    if "piPluginInit" in exports:
        return _plugin(exports)
    if (
        any(map(_LOADER_VERSION.fullmatch, symbol_versions))
        and "clIcdGetPlatformIDsKHR" not in exports
    ):
        reason = "it is an OpenCL loader, which leads to drivers and is none itself"
        return Preview(
            "",
            exports,
            reason=reason,
            remedy="name the driver, adapter or plugin itself",
            is_loader=True,
        )
    reason = "it exports no urGet…ProcAddrTable function and no piPluginInit, so it is neither a Unified Runtime adapter nor a PI plugin"
    return Preview(
        "",
        exports,
        reason=reason,
        remedy="name an adapter (libur_adapter_*.so.0) or a plugin (libpi_*.so)",
    )


def _plugin(exports: frozenset[str]) -> Preview:
    """A plugin, refused if everything it exports is older than the layout that is known."""
    newest = max((since for name, since in SINCE.items() if name in exports), default=(0, 0))
    version = f">={newest[0]}.{newest[1]}" if newest > (0, 0) else ""
    whole = sum(map(bool, map(_PI_FUNCTION.fullmatch, exports))) >= _WHOLE_TABLE
    if not whole or newest >= _LAST_BEFORE:
        return Preview("PI", exports, version)
    reason = f"it is a plugin of a Plugin Interface before {PI_MAJOR}: it lacks what {_LAST_BEFORE[0]}.{_LAST_BEFORE[1]} added"
    remedy = (
        f"install a plugin of PI {PI_MAJOR}, such as DPC++ 2024.2 has, or a Unified Runtime adapter"
    )
    return Preview(
        "PI", exports, version, f"{reason}, and its function table is laid out differently", remedy
    )


def _ur_version(path: str, symbol_versions: list[str]) -> str:
    """The API's version by the file's full name, else by its symbol versions. An adapter's are 0.0 in all releases: no version."""
    named = (match[1] for match in map(_FILE_VERSION.search, _same_files(path)) if match)
    versions = (
        match[1]
        for match in map(_SYMBOL_VERSION.fullmatch, symbol_versions)
        if match and match[1] != "0.0"
    )
    return next(named, "") or next(versions, "")


def _same_files(path: str) -> Iterator[str]:
    """The real file, then files of more versioned names beside it with the same content: a wheel has copies in the place of links."""
    real = os.path.realpath(path)
    yield real
    for name in sorted(glob.glob(f"{glob.escape(real)}.*")):
        try:
            same = filecmp.cmp(name, real, shallow=False)
        except OSError:
            same = False
        if same:
            yield name


def _dynamic_symbols(path: str) -> tuple[frozenset[str], list[str]]:
    """The names of the symbols that the library defines for others, and those of its symbol versions."""
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
