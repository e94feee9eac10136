"""Files that are written completely, or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replace_file(place: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file to write. It takes its place when the block ends, unless the block raises.

    A pipe or a device, and a file in a folder where none can be made, are written as they are.

    Raises:
        OSError: it cannot be written.
    """
    target = Path(os.path.realpath(place))
    if (target.exists() and not target.is_file()) or not os.access(target.parent, os.W_OK):
        with open(target, "wb") as stream:
            yield stream
        return
    number, made = _create_beside(target)
    try:
        with open(number, "wb") as stream:
            yield stream
        os.replace(made, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(made)
        raise


def open_nameless() -> BinaryIO:
    """Open memory, or a file, that has no name: however the process ends, nothing is left."""
    try:
        return open(os.memfd_create("fairlead"), "w+b")
    except (AttributeError, OSError):  # some Pythons of conda have it not, some sandboxes forbid it
        import tempfile  # seldom needed

        return tempfile.TemporaryFile()


def _create_beside(target: Path) -> tuple[int, str]:
    """Create a file beside another one, with the rights of any new file. Returns its descriptor
    and its path."""
    while True:
        path = f"{target}.{os.urandom(4).hex()}"
        with suppress(FileExistsError):
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), path
