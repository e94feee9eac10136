"""Reads plugins.conf: the names of Unified Runtime adapters and PI plugins, with what each one is.

A line is `library interface backend SYCL_BE`; in a file of the user's own it may also be a library's name or path alone, of which
the rest is then deduced. `read_config` turns a file into `PluginEntry`s, and whatever it cannot use into a `Refusal` with the line's
number; no file makes it raise. Where the libraries lie is the business of `discovery`. The correspondence between SYCL_BE and a
plugin, hard-coded in DPC++, is part of this file.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..base.search import Refusal, manifest_lines

#: The backend of a library whose name tells nothing: it is found out once the library is open.
UNKNOWN: Final = "unknown"

_FORM: Final = "a line is `library`, or `library interface backend SYCL_BE` with - for no SYCL_BE"
_FIELDS: Final = (
    (
        "interface",
        re.compile("UR|PI"),
        "write UR for a Unified Runtime adapter, PI for a DPC++ plugin",
    ),
    (
        "backend",
        re.compile("[a-z][a-z0-9_]*"),
        "write it in lower case as device selectors do: opencl, level_zero, cuda, ...",
    ),
    (
        "SYCL_BE",
        re.compile("-|PI_[A-Z0-9_]+"),
        "write PI_ and the backend in upper case, or - for none",
    ),
)
_NAME: Final = re.compile(r"lib(?P<interface>ur_adapter|pi)_(?P<backend>\w+)\.so(\.\d+)*")
_INTERFACES: Final = {"ur_adapter": "UR", "pi": "PI"}
#: Names that say something else than their backend. ROCm is what PI called HIP until 2021.
_BACKENDS: Final = {"rocm": "hip", "level_zero_v2": "level_zero", "unified_runtime": UNKNOWN}


@dataclass(frozen=True)
class PluginEntry:
    """A line of plugins.conf.

    `library` is a bare file name to look for, or an absolute path; `interface` is "UR" or "PI"; `sycl_be` is the value of SYCL_BE
    that stands for the plugin, "" if none does.
    """

    library: str
    interface: str
    backend: str
    sycl_be: str = ""


def shipped_config() -> Path:
    """The plugins.conf that ships with fairlead, among its manifests."""
    return Path(__file__).parents[2] / "vendors_d" / "plugins.conf"


def read_config(path: Path, found_via: str) -> list[PluginEntry | Refusal]:
    """The entries of a configuration file in the order of its lines; what cannot be used is a Refusal in its line's place.

    Blanks separate the fields, quotes keep a path with blanks together, `#` begins a comment. A name with `/` is a path, relative
    to the file's folder.
    """
    path = Path(os.path.abspath(path))
    lines = manifest_lines(path, found_via)
    if isinstance(lines, Refusal):
        return [lines]
    return [_entry(line, path, number, found_via) for number, line in lines.items()]


def deduce(library: str) -> PluginEntry:
    """The entry for a library that is named alone: `libur_adapter_X` and `libpi_X` tell what they are, others are unknown plugins."""
    match = _NAME.fullmatch(os.path.basename(library))
    if not match:
        return PluginEntry(library, "PI", UNKNOWN)
    interface, name = _INTERFACES[match["interface"]], match["backend"]
    backend = _BACKENDS.get(name, name)
    return PluginEntry(
        library,
        interface,
        backend,
        f"PI_{name.upper()}" if interface == "PI" and backend != UNKNOWN else "",
    )


def sycl_be_names(entries: Iterable[PluginEntry | Refusal]) -> dict[str, str]:
    """What each value of SYCL_BE stands for: {"PI_OPENCL": "opencl", ...}. The first entry that has a value counts."""
    names: dict[str, str] = {}
    for entry in entries:
        if isinstance(entry, PluginEntry) and entry.sycl_be:
            names.setdefault(entry.sycl_be, entry.backend)
    return names


def _entry(line: str, path: Path, number: int, found_via: str) -> PluginEntry | Refusal:
    """One line as an entry."""

    def refusal(reason: str, remedy: str) -> Refusal:
        return Refusal(f"{path}:{number}", reason, remedy, found_via)

    try:
        fields = shlex.split(line, comments=True)
    except ValueError:
        return refusal(
            f"a quote or a backslash in {line!r} has no end",
            "close the quote, or quote the backslash",
        )
    if len(fields) not in (1, 4) or not fields[0]:
        return refusal(
            f"{line!r} has {len(fields)} fields", f"{_FORM}; quote a path that holds blanks"
        )
    library = str(path.parent / fields[0]) if "/" in fields[0] else fields[0]
    if len(fields) == 1:
        return deduce(library)
    for value, (what, pattern, remedy) in zip(fields[1:], _FIELDS, strict=True):
        if not pattern.fullmatch(value):
            return refusal(f"{value!r} is no {what}", remedy)
    _, interface, backend, sycl_be = fields
    return PluginEntry(library, interface, backend, "" if sycl_be == "-" else sycl_be)
