"""The Unified Runtime adapters that packages register, in the group `fairlead.adapters`.

The entry point NAME names a module, and the variable that has the `Adapter`. Its library is
`libur_adapter_NAME.so.0`. fairlead's own libraries are in `plugins/`. Those of other packages are
made in fairlead's cache when a search finds the entry point. Nothing of the package is imported for
that. When the library is opened, it imports the module.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from ..base.errors import FairleadError
from ..base.own_files import OwnFolder
from ..base.registered import Registered, list_registered

GROUP: Final = "fairlead.adapters"
_PLUGINS: Final = Path(__file__).parents[2] / "plugins"
_SHELL: Final = _PLUGINS / "sdk/libfairlead_shell.so"


def list_adapters() -> tuple[Registered, ...]:
    """Return the registered adapters, in the order of their names."""
    return list_registered(GROUP)


def find_library(adapter: Registered) -> str:
    """Return the path of an adapter's library, which is made if need be.

    Raises:
        FairleadError: the entry point is wrong, or this process has no cache.
    """
    name = f"libur_adapter_{adapter.name}.so.0"
    if adapter.is_own:
        return str(_PLUGINS / name)
    if not adapter.name.isidentifier() or adapter.variable != "adapter":
        raise FairleadError(
            f"{adapter.package} registers {adapter.name}={adapter.module}:{adapter.variable}",
            remedy="register NAME=MODULE:adapter; NAME is of letters, digits and underscores",
        )
    import hashlib  # only here: on most machines `fairlead devices` finds no such package

    from ..base.shell_copies import make_configuration, make_library

    try:
        # Each Python has its own: a library knows the Python that it starts.
        place = hashlib.sha256(make_configuration(adapter.module).encode()).hexdigest()[:16]
        made, folder = make_library(_SHELL, adapter.module), OwnFolder("adapters", place)
        with suppress(OSError):
            if folder.read(name) == made:
                return str(folder.get_path() / name)
        folder.replace(name, made)
        return str(folder.get_path() / name)
    except (OSError, ValueError) as error:
        raise FairleadError(
            f"the library of {adapter.module} cannot be made: {error}",
            remedy="let XDG_CACHE_HOME name a folder that this user may write to",
        ) from error
