"""Files that only this user can have written: `$XDG_CACHE_HOME/fairlead` and folders in it.

What is in a cache decides which libraries later programs load. So all caches have these rules.
`icd/libopencl/native/verdict_file.c` has the same ones in C:

- A folder belongs to this user, and is not a link. Its mode becomes 0700.
- A file is believed if it belongs to this user, is a regular file, and nobody else may write to it.
- A new file gets a name that did not exist, and the mode 0600, whatever the umask is. Then it takes
  the place of the old one, at once.
- A process with more rights than its user has no cache. Nor has root in the home of another user:
  that user could exchange the folder, and could not use what root leaves there.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from .search import is_secure_process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
#: A named pipe is not waited for.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class OwnFolder:
    """A folder of fairlead's cache. Nothing is made before something is written.

    Args:
        names: the names of the folder in fairlead's own, and of those that it lies in.
    """

    def __init__(self, *names: str) -> None:
        self._names = ("fairlead", *names)

    def get_path(self) -> str:
        """Return where the folder is, or would be.

        Raises:
            OSError: this process has no cache.
        """
        return os.path.join(_find_base(), *self._names)

    def read(self, name: str) -> bytes:
        """Return what is in a file.

        Raises:
            OSError: there is none, or somebody else can have written it.
        """
        with self._open() as folder, os.fdopen(os.open(name, _READ, dir_fd=folder), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise _refuse("it is not a regular file", name)
            if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                raise _refuse("another user can have written it", name)
            return file.read()

    def replace(self, name: str, data: bytes) -> None:
        """Write a file. Others see the old contents or the new ones.

        Raises:
            OSError: it cannot be written, or others may write to its folder.
        """
        with self._open(make=True) as folder:
            new = f"{name}.{os.urandom(4).hex()}"
            file = os.open(new, _CREATE, 0o600, dir_fd=folder)
            try:
                with os.fdopen(file, "wb") as stream:
                    os.fchmod(file, 0o600)
                    stream.write(data)
                os.replace(new, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(new, dir_fd=folder)
                raise

    def list(self) -> list[str]:
        """Return the names of its files, none if it is not there or not ours."""
        with suppress(OSError), self._open() as folder:
            return sorted(os.listdir(folder))
        return []

    def remove(self, name: str) -> None:
        """Delete a file, if it can be deleted."""
        with suppress(OSError), self._open() as folder:
            os.unlink(name, dir_fd=folder)

    @contextmanager
    def _open(self, make: bool = False) -> Iterator[int]:
        """Open the folder, by descriptors only: a path could lead elsewhere at the next use.

        Raises:
            OSError: it is not there, or not this user's.
        """
        base = _find_base()
        if make:
            for folder in reversed(_list_folders(base)):
                if not os.path.exists(folder):
                    with suppress(FileExistsError):
                        os.mkdir(folder, 0o700)
        inside = os.open(base, _FOLDER)
        try:
            for name in self._names:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, 0o700, dir_fd=inside)
                outside = inside
                inside = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=outside)
                os.close(outside)
                status = os.fstat(inside)
                if status.st_uid != os.geteuid():
                    raise _refuse("it belongs to another user", os.path.join(base, name))
                if status.st_mode & 0o077:  # of an earlier version, or made by hand
                    os.fchmod(inside, 0o700)
            yield inside
        finally:
            os.close(inside)


def why_no_cache() -> tuple[str, str] | None:
    """Return what this process does not use as its cache, and why. None if there is no reason."""
    try:
        with OwnFolder()._open():
            return None
    except FileNotFoundError:  # nothing has been kept yet
        return None
    except OSError as error:
        return str(error.filename or "the cache"), error.strerror or "it cannot be opened"


def _find_base() -> str:
    """Return the user's folder of caches, in which fairlead has one.

    Raises:
        OSError: this process must not use it.
    """
    if is_secure_process():
        raise _refuse("this process has more rights than its user", "the cache")
    named = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~")
    if not os.path.isabs(named):
        raise _refuse("it is not an absolute path", named)
    if os.geteuid() == 0:
        nearest = next(filter(os.path.exists, _list_folders(named)))
        if os.stat(nearest).st_uid != 0:
            raise _refuse("it belongs to another user, and this process is root's", named)
    return named if os.environ.get("XDG_CACHE_HOME") else os.path.join(named, ".cache")


def _list_folders(path: str) -> list[str]:
    """Return an absolute path, and the folders that it lies in, the nearest first."""
    folders = [path]
    while folders[-1] != "/":
        folders.append(os.path.dirname(folders[-1].rstrip("/")) or "/")
    return folders


def _refuse(reason: str, what: str) -> OSError:
    return PermissionError(errno.EPERM, reason, what)
