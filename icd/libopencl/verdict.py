"""Writes for libOpenCL.so.1 which drivers are sound, and what is repaired.

The library starts a Python that runs `main` when it has no verdict, or when something has changed
that the last one depended on (native/verdict.c). A verdict is plain text:

    fairlead drivers 1          the form of the file
    host … variable … here …    the key: what the library says that the search depends on
    file MTIME INODE SIZE PATH  a file or folder as it was; 0 0 0 if there was none
    until SECONDS               when a driver was refused: the time of the next try
    refused TEXT                what was refused and why
    driver PATH                 a library to open
    siblings PATH               the same, after the libraries beside it that it misses
    cpu TRIPLE CPU LEVEL        the repair pocl-generic-cpu of that driver: two offsets and a name
    end

The file is replaced atomically. It is for its user alone.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from ...loader.base.forked import fork_children
from ..drivers import Driver, Drivers, drivers
from ..repairs import CPU_OFFSET, TRIPLE_OFFSET, cpu_level

_REFUSED_LASTS: Final = 3600  # seconds, as in loader/base/verdicts.py
_HERE: Final = Path(__file__).resolve()
#: Of fairlead itself: a verdict of another version is none.
_OURS: Final = (_HERE, _HERE.parents[1] / "drivers.py", _HERE.parents[1] / "driver_profiles.py")
_LINKER_CACHE: Final = "/etc/ld.so.cache"


def main(file: str, key: str) -> None:
    """Search, write the verdict into a file, and print it.

    Args:
        file: where it is kept; "" if this user has no cache.
        key: how it begins.
    """
    answer = os.dup(1)
    os.dup2(2, 1)  # drivers print to stdout
    fork_children()
    text = os.fsencode(key + "".join(f"{line}\n" for line in lines(drivers())))
    if file:
        with suppress(OSError):
            _replace(file, text)
    with os.fdopen(answer, "wb") as out:
        out.write(text)
        out.flush()
    sys.stdout.flush()
    os._exit(0)  # a driver may hang at the end of the process


def lines(found: Drivers) -> Iterator[str]:
    """The lines of a verdict behind its key."""
    for path in sorted(set(_looked_at(found))):
        if "\n" not in path:
            yield f"file {_state(path)} {path}"
    if len(found.refusals) > len(found.search.refusals):
        yield f"until {int(time.time()) + _REFUSED_LASTS}"
    for reason in found.reasons:
        yield f"refused {' '.join(reason.split())}"
    opened = dict.fromkeys(platform.driver for platform in found.platforms)
    for driver in opened:
        if "\n" not in driver.path:
            yield from _driver(driver)
    yield "end"


def _driver(driver: Driver) -> Iterator[str]:
    kind = "siblings" if "sibling-libraries" in driver.quirks else "driver"
    yield f"{kind} {driver.path}"
    if "pocl-generic-cpu" in driver.quirks:
        yield f"cpu {TRIPLE_OFFSET} {CPU_OFFSET} {cpu_level()}"


def _looked_at(found: Drivers) -> Iterator[str]:
    """Every absolute path that the search depended on."""
    return (path for path in _paths(found) if path.startswith("/"))


def _paths(found: Drivers) -> Iterator[str]:
    search = found.search
    yield from map(str, _OURS)
    yield _LINKER_CACHE
    for place in search.places:
        yield place.path
    for candidate in search.candidates:
        if candidate.manifest:
            yield str(candidate.manifest)
        yield candidate.library
    for refusal in search.refusals:
        yield refusal.what
    for driver in found.drivers:
        yield driver.path


def _state(path: str) -> str:
    try:
        status = os.stat(path)
    except OSError:
        return "0 0 0"
    return f"{status.st_mtime_ns} {status.st_ino} {status.st_size}"


def _replace(file: str, text: bytes) -> None:
    temporary = f"{file}.{os.getpid()}"
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as new:
            new.write(text)
        os.replace(temporary, file)
    finally:
        with suppress(OSError):
            os.unlink(temporary)
