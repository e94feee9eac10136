"""What installed packages provide for fairlead: entry points of Python packages.

A package names it in its metadata, in a group such as `fairlead.adapters`:

    [project.entry-points."fairlead.adapters"]
    toy = "toy_adapter:adapter"

The runtime's start asks for adapters, too. So their files are read here, in a millisecond:
importlib.metadata takes 20 times as long.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from .errors import FairleadError
from .frozen_value import Value


class Registered(Value):
    """An object that a package registers by an entry point.

    Attributes:
        module: the module that has it.
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

    def load(self) -> Any:
        """Import the package's module, and return it.

        Raises:
            FairleadError: the module cannot be imported, or does not have it.
        """
        try:
            return getattr(import_module(self.module), self.variable)
        except Exception as error:  # whatever the module of another author raises
            raise FairleadError(
                f"{self.module}:{self.variable} of the package {self.package} cannot be imported: "
                f"{type(error).__name__}: {error}",
                remedy=f"update the package, or remove it: pip uninstall {self.package.split()[0]}",
            ) from error


def list_registered(group: str, path: Sequence[str] | None = None) -> tuple[Registered, ...]:
    """Return what packages provide in a group, in the order of its names.

    Of two packages with one name the first on the path counts, as for an import.

    Args:
        group: such as "fairlead.adapters".
        path: the folders of packages, `sys.path` by default.
    """
    found: dict[str, Registered] = {}
    packages = set[str]()
    for folder in sys.path if path is None else path:
        for name, version, file in _list_packages(folder or os.curdir):
            if name not in packages:
                packages.add(name)
                for one in _read(file, group, f"{name} {version}".strip()):
                    found.setdefault(one.name, one)
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
            yield re.sub(r"[-_.]+", "_", name).lower(), rest.partition("-")[0], file


def _read(file: str, group: str, package: str) -> Iterator[Registered]:
    """Yield what a file has in a group."""
    try:
        with open(file, encoding="utf-8", errors="replace") as stream:
            lines = stream.read().splitlines()
    except OSError:  # most packages have none
        return
    section = ""
    for line in map(str.strip, lines):
        if line.startswith("["):
            section = line.strip("[]").strip()
        elif section == group and "=" in line and line[0] not in "#;":
            name, _, value = line.partition("=")
            module, _, variable = value.partition("[")[0].partition(":")
            yield Registered(name.strip(), module.strip(), variable.strip(), package)
