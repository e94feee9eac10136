"""Reads plugins.conf: the names of Unified Runtime adapters and PI plugins.

A line is `library interface backend SYCL_BE`. In a user's file it may also be only a library's name
or path. The other fields are then deduced from the name. `read_config` returns `PluginEntry`s, and
a `Refusal` with the line's number for a malformed line. It never raises. `discovery` searches for
the libraries. The file also says which plugin a value of SYCL_BE selects; DPC++ hard-codes that.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from ..base.errors import add_article
from ..base.frozen_value import Value
from ..base.manifests import read_manifest_lines
from ..base.search import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

#: The backend of a library whose name does not tell it. The open library reports it.
UNKNOWN: Final = "unknown"

# Predicates: regular expressions take milliseconds to import, which all programs would wait for.
_LOWER: Final = "abcdefghijklmnopqrstuvwxyz"
_UPPER: Final = _LOWER.upper()
_MORE: Final = "0123456789_"
_FORM: Final = "a line is `library`, or `library interface backend SYCL_BE` with - for no SYCL_BE"
_FIELDS: Final = (
    (
        "interface",
        lambda text: text in ("UR", "PI"),
        "write UR for a Unified Runtime adapter, PI for a DPC++ plugin",
    ),
    (
        "backend",
        lambda text: "a" <= text[:1] <= "z" and not text.strip(_LOWER + _MORE),
        "write it in lower case as device selectors do: opencl, level_zero, cuda, ...",
    ),
    (
        "SYCL_BE",
        lambda text: text == "-" or (text[:3] == "PI_" != text and not text.strip(_UPPER + _MORE)),
        "write PI_ and the backend in upper case, or - for none",
    ),
)
_INTERFACES: Final = {"libur_adapter_": "UR", "libpi_": "PI"}
#: Names that differ from their backend. PI called HIP ROCm until 2021.
_BACKENDS: Final = {"rocm": "hip", "level_zero_v2": "level_zero", "unified_runtime": UNKNOWN}


class PluginEntry(Value):
    """A line of plugins.conf.

    Attributes:
        library: a file name to search for, or an absolute path.
        interface: "UR" or "PI".
        backend: the backend's name in device selectors.
        sycl_be: the value of SYCL_BE that selects the plugin, "" if there is none.
    """

    library: str
    interface: str
    backend: str
    sycl_be: str = ""


def find_shipped_config() -> str:
    """Return the plugins.conf that ships with fairlead."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return os.path.join(root, "vendors_d", "plugins.conf")


def read_config(path: str, found_via: str) -> list[PluginEntry | Refusal]:
    """Return the entries of a configuration file in order, with refusals for malformed lines.

    Blanks separate fields, quotes protect blanks in a path, `#` begins a comment. A name that
    contains `/` is a path relative to the file's folder.

    Args:
        found_via: the variable or file that names it.
    """
    path = os.path.abspath(path)
    lines = read_manifest_lines(path, found_via)
    if isinstance(lines, Refusal):
        return [lines]
    return [_parse_entry(line, path, number, found_via) for number, line in lines.items()]


def deduce(library: str) -> PluginEntry:
    """Return the entry for a library of which only the name is known.

    `libur_adapter_X` and `libpi_X` tell what they are. Other libraries are plugins of an unknown
    backend.
    """
    stem, dot_so, version = os.path.basename(library).partition(".so")
    begin = next(filter(stem.startswith, _INTERFACES), None)
    name = stem.removeprefix(begin or stem)
    is_versioned = all(map(str.isdecimal, version.split(".")[1:])) and version[:1] in ("", ".")
    if not (begin and dot_so and name.replace("_", "x").isalnum() and is_versioned):
        return PluginEntry(library, "PI", UNKNOWN)
    interface, backend = _INTERFACES[begin], _BACKENDS.get(name, name)
    return PluginEntry(
        library,
        interface,
        backend,
        f"PI_{name.upper()}" if interface == "PI" and backend != UNKNOWN else "",
    )


def map_sycl_be_names(entries: Iterable[PluginEntry | Refusal]) -> dict[str, str]:
    """Return value of SYCL_BE to backend: {"PI_OPENCL": "opencl", ...}. First entries have
    precedence.
    """
    names: dict[str, str] = {}
    for entry in entries:
        if isinstance(entry, PluginEntry) and entry.sycl_be:
            names.setdefault(entry.sycl_be, entry.backend)
    return names


def _split(line: str) -> list[str]:
    """Return the fields of a line.

    Raises:
        ValueError: a quote or a backslash has no end.
    """
    if line.isascii() and not set(line) & set("'\"\\#\v\f"):
        return line.split()
    import shlex  # it is slow, and few lines need it

    return shlex.split(line, comments=True)


def _parse_entry(line: str, path: str, number: int, found_via: str) -> PluginEntry | Refusal:
    """Parse a line."""

    def make_refusal(reason: str, remedy: str) -> Refusal:
        return Refusal(f"{path}:{number}", reason, remedy, found_via)

    try:
        fields = _split(line)
    except ValueError:
        return make_refusal(
            f"a quote or a backslash in {line!r} has no end",
            "close the quote, or quote the backslash",
        )
    if len(fields) not in (1, 4) or not fields[0]:
        return make_refusal(
            f"{line!r} has {len(fields)} fields", f"{_FORM}; quote a path that holds blanks"
        )
    library = fields[0]
    if "/" in library:
        library = os.path.join(os.path.dirname(path), library.removeprefix("./"))
    if len(fields) == 1:
        return deduce(library)
    for value, (what, is_one, remedy) in zip(fields[1:], _FIELDS, strict=True):
        if not is_one(value):
            return make_refusal(f"{value!r} is not {add_article(what)}", remedy)
    _, interface, backend, sycl_be = fields
    return PluginEntry(library, interface, backend, "" if sycl_be == "-" else sycl_be)
