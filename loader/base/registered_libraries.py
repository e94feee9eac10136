"""Libraries of entry points in Python that packages register: Unified Runtime adapters and Level
Zero drivers.

The entry point NAME names a module, and the variable that has the adapter or the driver. fairlead's
own libraries are in `plugins/`. Those of other packages are made in fairlead's cache when a search
finds the entry point. Nothing of the package is imported for that. When the library is opened, it
imports the module.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from .errors import FairleadError
from .frozen_value import Value
from .registered import Registered, list_registered
from .search import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_ROOT: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_PLUGINS: Final = os.path.join(_ROOT, "plugins")


class LibraryGroup(Value):
    """What packages register in a group, and the libraries that are made of it.

    Attributes:
        variable: the name of the variable in the module.
        file: the name of the library, with {} for that of the entry point.
        shell: the library's shell, in `plugins/`.
    """

    group: str
    variable: str
    file: str
    shell: str

    def list(self) -> tuple[Registered, ...]:
        """Return what is registered, in the order of its names."""
        return list_registered(self.group)

    def search(self) -> Iterator[tuple[str, str] | Refusal]:
        """Yield the library of each other package, and the step of the search that finds it.

        fairlead's own are left out: their devices have drivers that are found without them.
        """
        for one in self.list():
            via = f"the package {one.package}"
            try:
                if not one.is_own:
                    yield self.find_library(one), via
            except FairleadError as error:
                yield Refusal(one.name, error.message, error.remedy, via)

    def find_library(self, one: Registered) -> str:
        """Return the path of a library, which is made if need be.

        Raises:
            FairleadError: the entry point is wrong, or this process has no cache.
        """
        name = self.file.format(one.name)
        if one.is_own:
            return os.path.join(_PLUGINS, name)
        if not one.name.isidentifier() or one.variable != self.variable:
            raise FairleadError(
                f"{one.package} registers {one.name}={one.module}:{one.variable}",
                remedy=f"register NAME=MODULE:{self.variable}; "
                "NAME is of letters, digits and underscores",
            )
        import hashlib  # only here: on most machines `fairlead devices` finds no such package

        from .own_files import OwnFolder
        from .shell_copies import make_configuration, make_library

        try:
            # Each Python has its own: a library knows the Python that it starts.
            place = hashlib.sha256(make_configuration(one.module).encode()).hexdigest()[:16]
            made = make_library(os.path.join(_PLUGINS, self.shell), one.module)
            folder = OwnFolder("adapters", place)
            with suppress(OSError):
                if folder.read(name) == made:
                    return os.path.join(folder.get_path(), name)
            folder.replace(name, made)
            return os.path.join(folder.get_path(), name)
        except (OSError, ValueError) as error:
            raise FairleadError(
                f"the library of {one.module} cannot be made: {error}",
                remedy="let XDG_CACHE_HOME name a folder that this user may write to",
            ) from error


ADAPTERS: Final = LibraryGroup(
    "fairlead.adapters", "adapter", "libur_adapter_{}.so.0", "sdk/libfairlead_shell.so"
)
DRIVERS: Final = LibraryGroup(
    "fairlead.drivers", "driver", "libze_{}.so.1", "sdk/libfairlead_ze_shell.so"
)
