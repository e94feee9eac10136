"""What drivers depend on: device nodes of GPUs, and directories for compiled kernels.

A driver that has no access to its device's node or its cache seldom says so. It answers that it has
no device. Nothing is opened or written here: os.stat and os.access give the facts.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from ...loader.base.search import filter_environ

#: Nodes by which drivers access their devices, as patterns below /dev.
_NODES: Final = (
    "dri/renderD*",
    "kfd",
    "nvidiactl",
    "nvidia[0-9]*",
    "nvidia-uvm",
    "dxg",
    "mali[0-9]*",
    "kgsl-3d0",
)


@dataclass(frozen=True)
class DeviceNode:
    """A device node.

    Attributes:
        mode: as `ls` prints it.
        accessible: whether this process may read and write it.
        remedy: what to do if it may not.
    """

    path: str
    group: str
    mode: str
    accessible: bool
    remedy: str = ""


def find_user_name() -> str:
    """Return the name of the effective user, or the number if it has no name, as in some
    containers."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def find_device_nodes(dev: Path = Path("/dev")) -> tuple[DeviceNode, ...]:
    """Return the device nodes that are there, in the order of `_NODES`."""
    return tuple(_examine_node(path) for pattern in _NODES for path in sorted(dev.glob(pattern)))


def _examine_node(path: Path) -> DeviceNode:
    try:
        status = path.stat()
    except OSError as error:
        return DeviceNode(str(path), "", "", False, f"it cannot be examined: {error.strerror}")
    accessible = os.access(path, os.R_OK | os.W_OK)
    try:
        entry = grp.getgrgid(status.st_gid)
        group, members = entry.gr_name, entry.gr_mem
    except KeyError:
        group, members = str(status.st_gid), []
    remedy = "" if accessible else _find_remedy(status, group, members)
    return DeviceNode(str(path), group, stat.filemode(status.st_mode), accessible, remedy)


def _find_remedy(status: os.stat_result, group: str, members: list[str]) -> str:
    """Return what a user does to get access to a node."""
    if status.st_mode & 0o060 != 0o060 or group == "root":
        return (
            "its group gives no access: install the device's driver package, "
            "which has the udev rule for it"
        )
    if group.isdecimal():
        return f"its group {group} has no name here: start the container with --group-add {group}"
    if find_user_name() in members:
        return f"you joined the group {group} after this session began: log in again"
    return f"sudo usermod -aG {group} $USER, then log in again"


@dataclass(frozen=True)
class _Cache:
    """Where some drivers keep compiled kernels.

    Attributes:
        drivers: patterns of their files' names.
        variable: the variable that names the directory.
        directory: the directory without that, below the user's cache directory.
        essential: whether they have no device without it.
    """

    drivers: tuple[str, ...]
    variable: str
    directory: str
    essential: bool


_CACHES: Final = (
    _Cache(("*pocl*",), "POCL_CACHE_DIR", "pocl", True),
    _Cache(("libigdrcl*",), "NEO_CACHE_DIR", "neo_compiler_cache", False),
)


@dataclass(frozen=True)
class CacheDirectory:
    """A driver's cache directory.

    Attributes:
        writable: whether it can be written, or made.
        essential: whether the driver has no device without it.
    """

    path: str
    variable: str
    writable: bool
    essential: bool


def find_cache_directories(libraries: Iterable[str]) -> tuple[CacheDirectory, ...]:
    """Return the cache directories of drivers, as far as they are known to have one."""
    names = [os.path.basename(library) for library in libraries]
    return tuple(_find_directories(names))


def _find_directories(names: list[str]) -> Iterator[CacheDirectory]:
    environ = filter_environ()
    user = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    for cache in _CACHES:
        if any(fnmatch(name, pattern) for name in names for pattern in cache.drivers):
            path = environ.get(cache.variable) or os.path.join(user, cache.directory)
            yield CacheDirectory(path, cache.variable, _can_write(Path(path)), cache.essential)


def _can_write(path: Path) -> bool:
    """Whether a directory, or else the nearest one above it that exists, can be written."""
    nearest = next(
        place for place in (path.absolute(), *path.absolute().parents) if os.path.lexists(place)
    )
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
