"""What installed packages provide for fairlead: entry points of Python packages.

A package names it in its metadata, in a group such as `fairlead.adapters`:

    [project.entry-points."fairlead.adapters"]
    toy = "toy_adapter:adapter"

docs/write_an_adapter.md lists the groups. The runtime's start asks for adapters, too. So their
files are read here, in a millisecond: importlib.metadata takes 20 times as long. Reading imports
nothing of a package, and does not wait for a named pipe.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module

from .errors import FairleadError
from .frozen_value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

_LARGEST: Final = 1 << 20  # bytes of a file of entry points
#: A named pipe is not waited for.
_OPEN: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


class Registered(Value):
    """An object that a package registers by an entry point.

    Attributes:
        package: the package's name and version, "toy_adapter 1.0".
    """

    name: str
    module: str
    variable: str
    package: str

    @property
    def is_own(self) -> bool:
        """Return whether fairlead itself provides it."""
        return self.package.split()[0] == "fairlead"

    def __str__(self) -> str:
        variable = f":{self.variable}" if self.variable else ""
        return f"{self.module}{variable} of the package {self.package}"

    def load(self) -> Any:
        """Import the package's module, and return what the entry point names in it.

        Raises:
            FairleadError: the module cannot be imported, or does not have it.
        """
        try:
            found: Any = import_module(self.module)
            for name in filter(None, self.variable.split(".")):
                found = getattr(found, name)
            return found
        except (Exception, SystemExit) as error:  # whatever the module of another author raises
            raise self.refuse(f"cannot be imported: {type(error).__name__}: {error}") from error

    def call(self) -> Any:
        """Import the package's module, and call what the entry point names in it.

        Raises:
            FairleadError: it cannot be imported, or it fails.
        """
        function = self.load()
        try:
            return function()
        except (Exception, SystemExit) as error:
            raise self.refuse(f"fails: {type(error).__name__}: {error}") from error

    def refuse(self, why: str, remedy: str = "") -> FairleadError:
        """Return the error that says why it cannot be used."""
        package = self.package.split()[0]
        remedy = remedy or f"update the package, or remove it: pip uninstall {package}"
        return FairleadError(f"{self} {why}", remedy=remedy)


def list_registered(group: str, path: Sequence[str] | None = None) -> tuple[Registered, ...]:
    """Return what packages provide in a group, in the order of its names.

    Of two packages with one name the first on the path counts, as for an import. So does the first
    of two entry points with one name, but fairlead's own keep their names.

    Args:
        group: such as "fairlead.adapters".
        path: the folders of packages, `sys.path` by default.
    """
    found: dict[str, Registered] = {}
    packages = set[str]()
    for folder in sys.path if path is None else path:
        for name, version, file in _list_packages(folder or os.curdir):
            if name and name not in packages:
                packages.add(name)
                for one in _read(file, group, f"{name} {version}".strip()):
                    if one.is_own or one.name not in found:
                        found[one.name] = one
    return tuple(sorted(found.values(), key=lambda one: one.name))


def _list_packages(folder: str) -> Iterator[tuple[str, str, str]]:
    """Yield name and version of each package in a folder, and the file of its entry points."""
    try:
        entries = sorted(os.listdir(folder))
    except OSError:  # it is not there, or is a zip file
        return
    for entry in entries:
        stem, _, kind = entry.rpartition(".")
        if kind in ("dist-info", "egg-info"):
            name, _, rest = stem.partition("-")
            file = os.path.join(folder, entry, "entry_points.txt")
            yield name.replace(".", "_").lower(), rest.partition("-")[0], file


def _read(file: str, group: str, package: str) -> Iterator[Registered]:
    """Yield what a file has in a group. A line with control characters names nothing."""
    try:
        with os.fdopen(os.open(file, _OPEN), "rb") as stream:
            is_file = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
            text = stream.read(_LARGEST).decode(errors="replace") if is_file else ""
    except OSError:  # most packages have none
        return
    if group not in text:
        return
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[]").strip()
        elif section == group and "=" in line and line[0] not in "#;" and line.isprintable():
            name, _, value = line.partition("=")
            module, _, variable = value.partition("[")[0].partition(":")
            yield Registered(name.strip(), module.strip(), variable.strip(), package)
