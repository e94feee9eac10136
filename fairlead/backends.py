"""The UR adapters and PI plugins of this machine, as `fairlead.adapters()` and `fairlead.pi_plugins()` answer them.

An adapter for OpenCL looks for OpenCL drivers of its own, through whatever libOpenCL it finds, and that loader misses what only
fairlead finds (drivers that pip installed, above all). So it is given the same drivers: `nested_environment` registers every usable
driver in a directory of manifests, and the plugin loads with OCL_ICD_VENDORS naming that directory.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from .icd.drivers import drivers
from .loader.base.forks import new_lock
from .loader.ur.plugins import Plugins, open_plugins

_opened: Final[dict[str, Plugins]] = {}
_lock = new_lock()


def adapters() -> Plugins:
    """The Unified Runtime adapters that can be used, opened once for the process.

    `adapters().select()` gives the devices that ONEAPI_DEVICE_SELECTOR, SYCL_DEVICE_FILTER or SYCL_BE pick. Raises SelectorError if
    that variable cannot be understood; what else goes wrong is in `reasons`.
    """
    return _open("UR")


def pi_plugins() -> Plugins:
    """The DPC++ PI plugins that can be used, opened once for the process. See `adapters`."""
    return _open("PI")


def _open(interface: str) -> Plugins:
    with _lock:
        known = _opened.get(interface)
        if known is None or known.closed or any(plugin.closed for plugin in known):
            _opened[interface] = open_plugins(interface, environment=nested_environment())
        return _opened[interface]


@cache
def nested_environment() -> dict[str, str]:
    """The variables by which a plugin's own OpenCL loader finds the drivers that fairlead found; {} if there are none."""
    return registered([driver.path for driver in drivers().drivers])


def registered(libraries: Sequence[str]) -> dict[str, str]:
    """The variables by which an OpenCL loader finds these drivers, and no others; {} if there are none. They hold for this process."""
    if not libraries:
        return {}
    directory = Path(tempfile.mkdtemp(prefix="fairlead-vendors-"))
    atexit.register(_remove, directory, os.getpid())
    for number, library in enumerate(libraries):
        (directory / f"{number:03}.icd").write_bytes(os.fsencode(f"{library}\n"))
    # every loader takes a directory here; OCL_ICD_FILENAMES would name the same drivers a second time
    return {"OCL_ICD_VENDORS": str(directory), "OCL_ICD_FILENAMES": ""}


def _remove(directory: Path, owner: int) -> None:
    """Remove a directory at the end of the process that made it; a forked child leaves it to its parent."""
    if os.getpid() == owner:
        shutil.rmtree(directory, ignore_errors=True)
