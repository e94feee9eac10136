"""Work-group functions of kernels, taken from what PoCL's CL_PROGRAM_BINARIES holds.

PoCL compiles a kernel to a shared library. Its binary of a program has the library of the generic
work-group function, which takes any local size, offset and number of groups. `parse` reads a
binary. `PoclKernel.function` opens the library from memory and finds the function. A binary says
which layout it has; nothing is read of one that is not known.

Layout (little endian): "poclbin\\0", u64 device, u32 layout, u32 kernels, u64 flags, [from 9: u32
roots], hash[41], [if flag bit 1: u64 size of program-scope variables], files of the program,
kernels.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final, NamedTuple

from ..loader.base.errors import FairleadError
from ..loader.base.files import open_nameless
from ..loader.base.forks import make_lock
from ..loader.base.frozen_value import Value
from ..loader.base.search import filter_environ

#: The layouts that are known: of PoCL 3.0, 3.1, 4.0 to 7.1, and 7.2.
_LAYOUTS: Final = (8, 9, 11, 12)

_MAGIC: Final = b"poclbin\0"
_FLUSHES: Final = 1  # the flags of a program: denormals are zero,
_HAS_VARIABLES: Final = 2  # and it has variables of its own
_LOCAL: Final = 0x119C  # CL_KERNEL_ARG_ADDRESS_LOCAL
_VALUE, _POINTER = 0, 1  # what an argument is
_ARGUMENT: Final = struct.Struct("<IIQII")  # access, space, qualifiers, what it is, size in bytes

#: Sections that a loader writes to; a kernel writes to no other one.
_LOADER_WRITES: Final = (b".dynamic", b".got", b".got.plt", b".data.rel.ro", b".relro_padding")
_WRITE_AND_ALLOCATE: Final = 3
_NO_BITS: Final = 8  # a section without a place in the file

#: The folder of generic functions, and what its linker writes first: PoCL 7.0 and 7.1; 7.2.
_GENERIC: Final = b"/0-0-0"
_UNFINISHED: Final = re.compile(rb"parallel_.{6}\.so|.+\.so_.{6}\.so", re.DOTALL)


class PoclBinaryError(FairleadError):
    """The layout of PoCL's binary is not known, or a library in it cannot be opened."""


class PoclKernel(Value):
    """A kernel of a binary.

    Attributes:
        spaces: what each argument is: "value", "local", "memory" or "other".
        sizes: the size of each argument in bytes.
        automatic: the sizes of its local variables in bytes; they are further arguments.
        required: reqd_work_group_size, or zeros.
        flushes: whether it runs with denormals as zero.
        library: the shared library of its generic work-group function.
        folder: where PoCL's cache has its special functions, in the cache.
        why_not: why the function is not called, None if it can be.
    """

    name: str
    spaces: tuple[str, ...]
    sizes: tuple[int, ...]
    automatic: tuple[int, ...]
    required: tuple[int, ...]
    flushes: bool
    library: bytes
    folder: str
    why_not: str | None

    @cached_property
    def function(self) -> int:
        """The address of its work-group function. Raises PoclBinaryError if there is none."""
        return self._find_function(self.library)

    def find_specialized(self, local: Sequence[int], *, no_offset: bool, small_grid: bool) -> int:
        """The address of its function for one local size, which PoCL makes at the first launch.

        PoCL runs it wherever it can. It needs half as long as the generic one in a small group.

        Args:
            no_offset: for launches without an offset.
            small_grid: for launches with less than 65,535 work-items in each dimension.

        Returns:
            0 if PoCL's cache has none.
        """
        variant = "-".join(map(str, local))
        variant += "-goffs0" * no_offset + "-smallgrid" * small_grid
        cache = find_cache()
        if not cache:
            return 0
        path = os.path.join(cache, self.folder, variant, f"{self.name}.so")
        try:
            with open(path, "rb") as stream:
                library = stream.read()
            return self._find_function(library) if is_whole_library(library) else 0
        except (OSError, PoclBinaryError):
            return 0

    def _find_function(self, library: bytes) -> int:
        symbol = f"_pocl_kernel_{self.name}_workgroup"
        try:
            return ctypes.cast(getattr(_open(library), symbol), ctypes.c_void_p).value or 0
        except (OSError, AttributeError) as error:
            raise PoclBinaryError(
                f"the library of the kernel {self.name} cannot be used: {error}.", routine="dlopen"
            ) from error


def find_cache() -> str:
    """The folder of PoCL's cache of kernels, "" if it is not known.

    Without a home it is not in the current directory: others may have written what is there.
    """
    environ = filter_environ()
    own, user, home = map(environ.get, ("POCL_CACHE_DIR", "XDG_CACHE_HOME", "HOME"))
    user = user or (os.path.join(home, ".cache") if home else "")
    return own or (os.path.join(user, "pocl", "kcache") if user else "")


_libraries: Final[dict[bytes, Any]] = {}
_lock: Final = make_lock()


def _open(library: bytes) -> Any:
    """A library, opened from memory; equal ones are opened once. They stay open, as drivers do."""
    digest = hashlib.sha256(library).digest()
    with _lock:
        found = _libraries.get(digest)
        if found is None:
            with open_nameless() as file:
                file.write(library)
                file.flush()
                # dlopen tells libraries apart by their paths, and the number is used again
                different = format(len(_libraries) + 1, "b").replace("0", "/").replace("1", "/.")
                path = f"/proc/self/fd{different}/{file.fileno()}"
                found = ctypes.CDLL(path, os.RTLD_NOW | os.RTLD_LOCAL)
            _libraries[digest] = found
        return found


# The layout


class _BinaryReader:
    """Reads values one after the other. Raises struct.error or IndexError where there are none."""

    def __init__(self, data: bytes, place: int = 0, end: int | None = None) -> None:
        self.data, self.place = data, place
        self.end = len(data) if end is None else end

    def read_bytes(self, size: int) -> bytes:
        if size > self.end - self.place:
            raise IndexError(f"{size} bytes at {self.place} are more than there are")
        self.place += size
        return self.data[self.place - size : self.place]

    def read_number(self, kind: str = "I") -> int:
        return struct.unpack(f"<{kind}", self.read_bytes(struct.calcsize(f"<{kind}")))[0]

    def read_text(self) -> bytes:
        return self.read_bytes(self.read_number())

    def read_files(self) -> Iterator[tuple[bytes, bytes]]:
        while self.place < self.end:
            yield self.read_text(), self.read_text()


def parse(binary: bytes) -> dict[str, PoclKernel]:
    """The kernels of a binary, by name.

    Args:
        binary: what CL_PROGRAM_BINARIES gives.

    Raises:
        PoclBinaryError: it has another layout.
    """
    with _explain_layout():
        return {kernel.name: kernel for kernel in _read_kernels(binary)}


def read_bitcode(binary: bytes) -> bytes:
    """The program in a binary, as LLVM bitcode; b"" where there is none.

    Raises:
        PoclBinaryError: it has another layout.
    """
    reader = _BinaryReader(binary)
    with _explain_layout():
        files = _BinaryReader(_read_program(reader, _read_head(reader)).files).read_files()
        return next((data for path, data in files if path.endswith(b"/program.bc")), b"")


@contextmanager
def _explain_layout() -> Iterator[None]:
    try:
        yield
    except (struct.error, IndexError, ValueError) as error:
        raise PoclBinaryError(
            f"the program's binary has no layout of PoCL's that is known: {error}.",
            routine="clGetProgramInfo(CL_PROGRAM_BINARIES)",
        ) from error


def is_whole(binary: bytes) -> bool:
    """Whether a binary has the length that it says. One that is not PoCL's is whole.

    PoCL reads behind the end of one that is cut off.
    """
    if not binary.startswith(_MAGIC[: len(binary)]):
        return True
    reader = _BinaryReader(binary)
    try:
        head = _read_head(reader)
        if head.layout not in _LAYOUTS:
            return True
        _read_program(reader, head)
        for _ in range(head.kernels):
            size = reader.read_number("Q")  # of all of the kernel
            if size <= 8:
                return False
            reader.read_bytes(size - 8)
    except (struct.error, IndexError, ValueError):  # the name of its folder is not UTF-8
        return False
    return reader.place == reader.end


class _Head(NamedTuple):
    layout: int
    kernels: int
    flags: int


class _PoclProgram(NamedTuple):
    folder: str  # in PoCL's cache
    variables: int  # the size of its program-scope variables
    files: bytes  # with their paths


def _read_head(reader: _BinaryReader) -> _Head:
    if reader.read_bytes(len(_MAGIC)) != _MAGIC:
        raise ValueError("it does not begin with poclbin")
    reader.read_number("Q")  # the device
    return _Head(reader.read_number(), reader.read_number(), reader.read_number("Q"))


def _read_program(reader: _BinaryReader, head: _Head) -> _PoclProgram:
    """Read what lies between head and kernels."""
    roots = reader.read_number() if head.layout >= 9 else 0
    folder = reader.read_bytes(41).partition(b"\0")[0].decode()
    variables = reader.read_number("Q") if head.layout > 9 and head.flags & _HAS_VARIABLES else 0
    begin, parts = reader.place, list[bytes]()
    if head.layout == 8:
        for _ in ("path", "contents"):  # of the one file of the program
            reader.read_text()
        parts.append(reader.data[begin : reader.place])
    parts += [reader.read_bytes(reader.read_number("Q")) for _ in range(roots)]
    return _PoclProgram(folder, variables, b"".join(parts))


def _read_kernels(binary: bytes) -> Iterator[PoclKernel]:
    reader = _BinaryReader(binary)
    head = _read_head(reader)
    if head.layout not in _LAYOUTS:
        raise ValueError(f"its number is {head.layout}")
    program = _read_program(reader, head)
    for _ in range(head.kernels):
        yield _read_kernel(reader, bool(head.flags & _FLUSHES), program)
    if reader.place != reader.end:
        raise ValueError(f"{reader.end - reader.place} bytes follow its last kernel")


def _read_kernel(reader: _BinaryReader, flushes: bool, program: _PoclProgram) -> PoclKernel:
    begin = reader.place
    size, file_bytes = reader.read_number("Q"), reader.read_number("Q")
    argument_bytes = reader.read_number()
    name = reader.read_text().decode()
    argument_count, local_count = reader.read_number(), reader.read_number()
    required = tuple(reader.read_number("Q") for _ in range(3))
    automatic = tuple(reader.read_number("Q") for _ in range(local_count))
    end = begin + size
    if end > reader.end or file_bytes + argument_bytes > size:
        raise ValueError(f"the kernel {name} is larger than the binary")
    files = end - file_bytes
    arguments = _BinaryReader(reader.data, files - argument_bytes, files)
    rows = [_read_argument(arguments) for _ in range(argument_count)]
    library = _find_library(name, _BinaryReader(reader.data, files, end).read_files())
    reader.place = end
    has_variables = "the program has program-scope variables" if program.variables else None
    spaces, sizes = tuple(space for space, _ in rows), tuple(size for _, size in rows)
    return PoclKernel(
        name,
        spaces,
        sizes,
        automatic,
        required,
        flushes,
        library,
        os.path.join(program.folder, name),
        has_variables or _explain_untrusted(library),
    )


def _read_argument(reader: _BinaryReader) -> tuple[str, int]:
    _, space, _, what, size = _ARGUMENT.unpack(reader.read_bytes(_ARGUMENT.size))
    for _ in ("name", "type's name"):
        reader.read_text()
    if what == _VALUE:
        return "value", size
    if what != _POINTER:
        return "other", size
    return "local" if space == _LOCAL else "memory", size


def _find_library(name: str, files: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the library of the generic work-group function of a kernel, b"" if there is none.

    The linker of another process may write to a file beside it, which is in the binary, too.
    """
    found = {}
    for path, data in files:
        folder, _, file = path.rpartition(b"/")
        if folder.endswith(_GENERIC) and file.endswith(b".so"):
            found[file] = data
    exact = found.get(f"{name}.so".encode())
    if exact is not None:
        return exact
    # PoCL cuts a long name off, and adds a hash to it.
    others = (data for file, data in found.items() if not _UNFINISHED.fullmatch(file))
    return next(filter(None, others), b"")


def _explain_untrusted(library: bytes) -> str | None:
    if not library:
        return "its binary has no generic work-group function"
    if not is_whole_library(library):
        return "the library of its generic work-group function is cut off"
    if b"printf" in library:
        return "it calls printf"
    written = [name for name in _read_writable_sections(library) if name not in _LOADER_WRITES]
    if written:
        return f"the program has program-scope variables ({written[0].decode(errors='replace')})"
    return None


class _Section(NamedTuple):
    name: int  # its place in the section of names
    flags: int
    begin: int
    size: int
    in_file: bool


def _read_sections(library: bytes) -> tuple[list[_Section], int]:
    """Return the sections of an ELF file of this machine (System V ABI), and the number of that
    with the names."""
    table, entry, count, names = (
        struct.unpack_from("<Q", library, 0x28)[0],
        *struct.unpack_from("<HHH", library, 0x3A),
    )
    if table + count * entry > len(library):
        raise IndexError("it ends before its sections do")
    rows = (struct.unpack_from("<IIQQQQ", library, table + k * entry) for k in range(count))
    return [
        _Section(name, flags, begin, size, kind != _NO_BITS)
        for name, kind, flags, _, begin, size in rows
    ], names


def is_whole_library(library: bytes) -> bool:
    """Whether an ELF file ends where it says. One that is cut off ends the process by SIGBUS.

    The table of sections is behind everything else.
    """
    try:
        sections, _ = _read_sections(library)
    except (struct.error, IndexError):
        return False
    ends = [one.begin + one.size for one in sections if one.in_file]
    return bool(ends) and max(ends) <= len(library)


def _read_writable_sections(library: bytes) -> list[bytes]:
    """Return the names of the sections of an ELF file that are writable memory."""
    sections, names = _read_sections(library)
    text = sections[names].begin
    return [
        library[text + one.name : library.index(b"\0", text + one.name)]
        for one in sections
        if one.flags & _WRITE_AND_ALLOCATE == _WRITE_AND_ALLOCATE and one.size
    ]
