"""`fairlead env`: shell commands that make every OpenCL loader find the drivers of fairlead.

All loaders read a directory of manifests that OCL_ICD_VENDORS names. `write_manifests` makes such a
directory of the usable drivers, with the paths that their repairs found. A repair that changes a
driver in memory works only in programs that use fairlead.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from ..api import platforms
from ..icd import libopencl
from ..icd.driver_profiles import ROWS
from ..icd.drivers import Driver, drivers
from ..loader.base.errors import FairleadError
from ..loader.base.own_files import OwnFolder

#: Variables that would add drivers, or choose others.
_OTHERS: Final = ("OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH")


class ManifestError(FairleadError):
    """The directory of manifests cannot be written."""


def write_manifests(paths: Sequence[str]) -> str:
    """Write a manifest for each driver into a directory of the user's cache. Return the directory.

    The directory's name depends on what is in it, so what a program uses never changes.

    Raises:
        ManifestError: It cannot be written.
    """
    name = hashlib.sha256("\0".join(paths).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    remedy = "set XDG_CACHE_HOME to a directory that you may write"
    folder = OwnFolder("vendors", name)
    wanted: dict[str, bytes] = {}
    for number, path in enumerate(paths):
        stem = os.path.basename(path).split(".so")[0].removeprefix("lib")
        wanted[f"{number:02}-{stem}.icd"] = os.fsencode(path) + b"\n"
    try:
        for manifest in folder.list():
            if manifest.endswith(".icd") and manifest not in wanted:
                folder.remove(manifest)
        for manifest, content in wanted.items():
            if not _has(folder, manifest, content):
                folder.replace(manifest, content)
        return folder.get_path()
    except OSError as error:
        reason = f"{error.filename or 'the cache'} cannot be written: {error.strerror}."
        raise ManifestError(reason, remedy=remedy) from None


def _has(folder: OwnFolder, name: str, content: bytes) -> bool:
    with suppress(OSError):
        return folder.read(name) == content
    return False


def make_shell_commands(*, loader: bool = False) -> tuple[list[str], list[str]]:
    """Return the shell's commands, and what other programs do without: remarks for the user.

    Args:
        loader: Put fairlead's own libOpenCL.so.1 in front, too.

    Raises:
        PlatformNotFoundError: There is no usable driver.
        ManifestError: The directory of manifests cannot be written.
    """
    platforms()
    found = drivers().drivers
    directory = write_manifests([driver.path for driver in found])
    lines = [f"unset {name}" for name in _OTHERS if name in os.environ]
    lines.append(f"export OCL_ICD_VENDORS={shlex.quote(directory)}")
    if loader:
        folder = shlex.quote(os.path.dirname(libopencl.find_library()))
        lines.append(f"export LD_LIBRARY_PATH={folder}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}")
        return lines, []
    return lines, [remark for driver in found for remark in _find_remarks(driver)]


def _find_remarks(driver: Driver) -> list[str]:
    """Return what other loaders do not do for a driver."""
    return [
        f"{driver.path}: programs without fairlead do not get the repair {row.id}: it {row.does} "
        "(`fairlead run -- PROGRAM` and `fairlead env --loader` give it to them)"
        for row in ROWS
        if row.id in driver.quirks and row.locate is None
    ]
