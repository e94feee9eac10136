"""Let libraries of a folder ask for no executable stack: `python clear_stacks.py FOLDER`.

glibc 2.41 and later refuse to open a library that asks for one. HIP of Debian 12 does so without
need. A file is replaced as a whole, because a test of another checkout may have it open.
"""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path
from typing import Final

_GNU_STACK: Final = 0x6474E551  # a segment of ELF files
_EXECUTABLE: Final = 1  # its flag


def clear(library: bytes) -> bytes:
    """Return an ELF file of 64 bits without the flag."""
    found = bytearray(library)
    (table,) = struct.unpack_from("<Q", found, 0x20)
    entry, count = struct.unpack_from("<HH", found, 0x36)
    for place in range(table, table + entry * count, entry):
        kind, flags = struct.unpack_from("<II", found, place)
        if kind == _GNU_STACK:
            struct.pack_into("<I", found, place + 4, flags & ~_EXECUTABLE)
    return bytes(found)


def main(folder: Path) -> None:
    """Clear the flag in the files of a folder and of those below it."""
    for file in folder.rglob("*.so.*"):
        before = b"" if file.is_symlink() else file.read_bytes()
        if before.startswith(b"\x7fELF") and (after := clear(before)) != before:
            temporary = file.with_name(f".{file.name}.{os.getpid()}")
            temporary.write_bytes(after)
            temporary.chmod(file.stat().st_mode)
            temporary.replace(file)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
