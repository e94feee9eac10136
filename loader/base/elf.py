"""Reads ELF files: whether a file is a shared library for this process, and what it needs.

No code of the library runs (System V ABI, chapters 4 and 5).
"""

from __future__ import annotations

import os
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache

from .errors import LibraryError
from .frozen_value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_MOST: Final = 1 << 16  # bytes that are read of a file at once

_FILE_ERRORS = {
    "FileNotFoundError": (
        "the file does not exist",
        "install the package that ships it, or correct the path",
    ),
    "NotADirectoryError": ("a part of its path is not a directory", "correct the path"),
    "PermissionError": (
        "this user may not read it",
        "give read permission, or run as a user who has it",
    ),
}


class _Header(Value):
    """The fields of an ELF header that matter here."""

    bits: int
    type: int
    machine: int
    program_offset: int
    program_size: int
    program_count: int
    order: str


def check_file(library: str) -> None:
    """Check that a file is a complete ELF shared library for the architecture of this process.

    Raises:
        LibraryError: it is not. The error says why.
    """

    def refuse(message: str, remedy: str = "") -> LibraryError:
        return LibraryError(message, routine=f"dlopen({library})", remedy=remedy)

    try:
        status = os.stat(library)
        if stat.S_ISDIR(status.st_mode):
            raise refuse("it is a directory, not a shared library", "name the library file itself")
        if not stat.S_ISREG(status.st_mode):
            raise refuse("it is not a regular file")
        with open(library, "rb") as file:
            start = file.read(4096)
    except OSError as error:
        if os.path.islink(library) and isinstance(error, FileNotFoundError):
            raise refuse(
                f"it is a symbolic link to {os.readlink(library)}, which does not exist",
                "reinstall the driver",
            ) from None
        raise refuse(
            *_FILE_ERRORS.get(type(error).__name__, (f"it cannot be read: {error.strerror}", ""))
        ) from None
    if not start.startswith(b"\x7fELF"):
        raise refuse(_describe_file(start), "name a shared library (.so)")
    header = _parse_header(start)
    if header is None:
        raise refuse("the file is truncated", "install it again")
    mine = _parse_own_header()
    if header.bits != mine.bits:
        raise refuse(
            f"it is a {header.bits}-bit library for {_name_architecture(header.machine)}, and this "
            f"is a {mine.bits}-bit process",
            f"install the {mine.bits}-bit driver",
        )
    if header.machine != mine.machine:
        raise refuse(
            f"it was built for another processor architecture, "
            f"{_name_architecture(header.machine)}",
            f"install the driver for {_name_architecture(mine.machine)}",
        )
    if header.type != 3:  # ET_DYN
        raise refuse("it is an ELF file but not a shared library", "name a shared library (.so)")
    if _end_of_segments(start, header) > status.st_size:
        raise refuse("the file is truncated", "install it again")


#: The architectures by their numbers in ELF headers (e_machine).
_ARCHITECTURES: Final = {
    3: "x86",
    8: "MIPS",
    20: "PowerPC",
    21: "64-bit PowerPC",
    22: "S/390",
    40: "ARM",
    62: "x86-64",
    183: "AArch64",
    243: "RISC-V",
    258: "LoongArch",
}


#: Their numbers by what `uname -m` calls the common ones.
_MACHINES: Final = {"x86_64": 62, "aarch64": 183, "riscv64": 243, "ppc64le": 21, "i686": 3}


def _name_architecture(machine: int) -> str:
    """The name of an architecture."""
    return _ARCHITECTURES.get(machine, f"number {machine}")


def _describe_file(start: bytes) -> str:
    if not start:
        return "the file is empty"
    if start.startswith(b"!<arch>"):
        return "it is a static archive, not a shared library"
    text = all(byte in b"\t\n\r\f" or byte >= 32 for byte in start)
    return (
        "it is a text file, not a shared library"
        if text
        else "it is not an ELF file, so it is not a shared library"
    )


def _parse_header(start: bytes) -> _Header | None:
    """Parse an ELF header (System V ABI, "ELF header"). None if the file ends inside it."""
    if len(start) < 64:
        return None
    bits = {1: 32, 2: 64}.get(start[4], 0)
    order = "<" if start[5] == 1 else ">"
    kind, machine = struct.unpack_from(order + "HH", start, 16)
    offset = struct.unpack_from(
        order + ("Q" if bits == 64 else "I"), start, 32 if bits == 64 else 28
    )[0]
    size, count = struct.unpack_from(order + "HH", start, 54 if bits == 64 else 42)
    return _Header(bits, kind, machine, offset, size, count, order)


def _end_of_segments(start: bytes, header: _Header) -> int:
    """Return where the last segment of the program headers ends, an offset in the file."""
    end = header.program_offset + header.program_size * header.program_count
    least = 56 if header.bits == 64 else 32  # bytes of an entry, whatever the header says
    for index in range(header.program_count):
        place = header.program_offset + index * header.program_size
        if place + max(header.program_size, least) > len(start):
            break
        offset, size = (
            struct.unpack_from(header.order + "Q16xQ", start, place + 8)
            if header.bits == 64
            else struct.unpack_from(header.order + "I8xI", start, place + 4)
        )
        end = max(end, offset + size)
    return end


@cache
def _parse_own_header() -> _Header:
    """Return the header of this process's program, of its interpreter where there is no /proc."""
    for path in ("/proc/self/exe", sys.executable or ""):
        with suppress(OSError), open(path, "rb") as file:
            header = _parse_header(file.read(64))
            if header is not None:
                return header
    bits = 64 if sys.maxsize > 2**32 else 32
    return _Header(bits, 3, _MACHINES.get(os.uname().machine, 0), 0, 0, 0, "<")


def is_loadable(path: str) -> bool:
    """Return whether the dynamic linker would accept a file.

    It silently ignores files of other architectures.
    """
    if not os.access(path, os.F_OK):  # most paths: an exception takes ten times as long
        return False
    try:
        with open(path, "rb") as file:
            start = file.read(64)
    except OSError:
        return False
    header = _parse_header(start) if start.startswith(b"\x7fELF") else None
    return header is not None and (header.bits, header.machine) == (
        _parse_own_header().bits,
        _parse_own_header().machine,
    )


def read_dynamic_section(path: str) -> tuple[list[str], tuple[str, ...], tuple[str, ...]]:
    """Return DT_NEEDED, DT_RPATH and DT_RUNPATH of a library, with $ORIGIN and $LIB replaced.

    All are empty if the file cannot be read.
    """
    needed: list[str] = []
    paths: dict[int, tuple[str, ...]] = {_RPATH: (), _RUNPATH: ()}
    try:
        with open(path, "rb") as file:
            for kind, text in _read_dynamic_texts(file.fileno()):
                if kind == _NEEDED:
                    needed.append(text)
                else:
                    paths[kind] = tuple(_expand(text, path))
    except (OSError, struct.error, ValueError, OverflowError):
        pass  # the message of ld.so is then the best explanation
    return needed, paths[_RPATH], paths[_RUNPATH]


#: Types of segments, and tags of entries of the dynamic section.
_LOAD, _DYNAMIC = 1, 2
_END, _NEEDED, _STRTAB, _RPATH, _RUNPATH = 0, 1, 5, 15, 29


def _read_dynamic_texts(file: int) -> Iterator[tuple[int, str]]:
    """Yield tag and text of the entries of a file's dynamic section that tell libraries or paths.

    Raises:
        OSError, struct.error, ValueError, OverflowError: the file is damaged.
    """

    def read(size: int, offset: int) -> bytes:
        return os.pread(file, min(size, _MOST), offset)  # a damaged file may name any size

    header = _parse_header(read(64, 0))
    if header is None or header.bits not in (32, 64):
        return
    # type, offset, address and size of a segment
    segment, entry = ("I4xQQ8xQ16x", "qQ") if header.bits == 64 else ("III4xI12x", "iI")
    table = read(header.program_size * header.program_count, header.program_offset)
    segments = [
        struct.unpack_from(header.order + segment, table, place)
        for place in range(0, len(table), max(header.program_size, 1))
    ]
    entries: list[tuple[int, int]] = []
    for kind, offset, _, size in segments:
        data = read(size, offset) if kind == _DYNAMIC else b""
        for tag, value in struct.iter_unpack(header.order + entry, data):
            if tag == _END:
                break
            entries.append((tag, value))
    places = [
        offset + value - address
        for tag, value in entries
        if tag == _STRTAB
        for kind, offset, address, size in segments
        if kind == _LOAD and address <= value < address + size
    ]
    for tag, value in entries if places else ():
        if tag in (_NEEDED, _RPATH, _RUNPATH):
            text = read(_MOST, places[0] + value)
            yield tag, os.fsdecode(text[: text.index(b"\0")])


def _expand(search_path: str, library: str) -> Iterator[str]:
    origin = os.path.dirname(os.path.realpath(library))
    for part in search_path.split(":"):
        for token, value in (
            ("ORIGIN", origin),
            ("LIB", "lib64" if _parse_own_header().bits == 64 else "lib"),
        ):
            part = part.replace("${" + token + "}", value).replace("$" + token, value)
        yield part or "."  # for ld.so, an empty element is the working directory
