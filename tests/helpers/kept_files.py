"""Files that are made of one source for tests, and kept in build/ until what they are made of
changes."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

from fairlead.icd.pocl_kernels import is_whole_library
from helpers.support import ROOT


def digest(parts: Iterable[str | bytes]) -> str:
    """A short name for texts: other texts have another one."""
    made = hashlib.sha1(usedforsecurity=False)
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode()
        made.update(b"%d " % len(data) + data)
    return made.hexdigest()[:16]


def remove_damaged_kernels(kernels: Path) -> None:
    """Remove the programs of PoCL's cache that have an empty file, or half of one.

    PoCL links to a file of another name and renames it, but it does not flush it to the disk. So a
    machine that is switched off may leave such a file. PoCL takes it for ever.
    """
    for program in kernels.glob("*/*/program.bc"):
        files = [program, *program.parent.rglob("*.so")]
        if not all(_is_whole(file) for file in files):
            shutil.rmtree(program.parent, ignore_errors=True)


def _is_whole(file: Path) -> bool:
    try:
        data = file.read_bytes()
    except OSError:  # another run removes it
        return True
    return data.startswith(b"BC\xc0\xde") if file.suffix == ".bc" else is_whole_library(data)


class KeptFiles:
    """What was compiled from a source in C with these headers, by this compiler.

    Args:
        source: the source; the headers beside it belong to it.
        folders: further headers.
        parts: what else the files are made of.
    """

    def __init__(self, source: Path, folders: Iterable[Path], *parts: str) -> None:
        compiler = subprocess.run(["cc", "--version"], capture_output=True, check=True).stdout
        helpers = Path(__file__).with_name("fixtures.py")  # it has the compiler's options
        files = [source, helpers, *source.parent.glob("*.h")]
        files += [file for folder in folders for file in folder.rglob("*") if file.is_file()]
        content = digest([compiler, *parts, *(file.read_bytes() for file in sorted(files))])
        self._others = ROOT / "build/tests"
        self._stem = source.stem
        self._folder = self._others / f"{source.stem}-{content}"

    def folder(self, name: str) -> Path:
        """A folder that is kept, for files that any process adds whole, by renaming them."""
        folder = self._folder / name
        if not folder.exists():
            self._forget()
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _forget(self) -> None:
        """Remove what was made of another content."""
        if not self._folder.exists():
            for old in self._others.glob(f"{self._stem}-*"):
                if old != self._folder:  # which another process makes meanwhile
                    shutil.rmtree(old, ignore_errors=True)

    def copy(self, name: str, path: Path, make: Callable[[], object]) -> None:
        """Copy a kept file to a path, or make it there and keep it if it has a name.

        Of several processes that ask for the same file, one makes it, and the others wait.
        """
        if not name:
            make()
            return
        kept = self._folder / name
        if not kept.exists():
            self._forget()
            self._folder.mkdir(parents=True, exist_ok=True)
            with open(f"{kept}.lock", "w", encoding="utf-8") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not kept.exists():
                    make()
                    own = kept.with_suffix(".new")  # whole when it gets its name
                    shutil.copy(path, own)
                    own.replace(kept)
                    return
        shutil.copy(kept, path)
