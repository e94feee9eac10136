"""Opens a shared library, or says in plain words why it cannot be opened and what to do.

`open_library` looks at the file's ELF header first, because the dynamic linker may be killed by a truncated file, then calls dlopen
with RTLD_NOW | RTLD_LOCAL. Only when that fails is the rest of this module used: `missing_dependencies` walks DT_NEEDED the way ld.so
does (ld.so(8): RPATH, LD_LIBRARY_PATH, RUNPATH, the cache, the default directories) and names every library that is not there.
Nothing in that walk runs code of a library.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from .errors import LibraryError
from .search import secure_environ

_RTLD_DI_LINKMAP = 2
_CACHE = Path("/etc/ld.so.cache")
_CACHE_MAGIC = b"glibc-ld.so.cache1.1"
_MULTIARCH = getattr(
    sys.implementation, "_multiarch", ""
)  # Debian's name for the architecture, "x86_64-linux-gnu"
_DEFAULT_DIRECTORIES = (
    f"/lib/{_MULTIARCH}",
    f"/usr/lib/{_MULTIARCH}",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
)

#: Well known libraries that drivers need, by pattern, and where they come from.
REMEDIES = (
    ("lib*imf.so*", "pip install intel-cmplr-lib-rt"),
    ("lib*svml*.so*", "pip install intel-cmplr-lib-rt"),
    ("libirng.so*", "pip install intel-cmplr-lib-rt"),
    ("libintlc.so*", "pip install intel-cmplr-lib-rt"),
    ("libirc.so*", "pip install intel-cmplr-lib-rt"),
    ("libcommon_clang.so*", "pip install intel-opencl-rt"),
    ("libtbb*.so*", "pip install tbb"),
    ("libumf.so*", "pip install umf"),
    ("libtinfo.so.5*", "install the distribution's package libtinfo5 or ncurses-compat-libs"),
    ("libtinfo.so*", "install the distribution's package libtinfo6 or ncurses-libs"),
    (
        "libLLVM*",
        "install the distribution's LLVM library of exactly that version, such as the package "
        "libllvm15",
    ),
    ("libclang*", "install the distribution's clang library of exactly that version"),
    ("libhwloc.so*", "install the distribution's package libhwloc15 or hwloc-libs"),
    ("libamd_comgr.so*", "install ROCm's package comgr"),
    ("libhsa-runtime64.so*", "install ROCm's package hsa-rocr"),
    ("libnuma.so*", "install the distribution's package libnuma1 or numactl-libs"),
    ("libze_loader.so*", "install the distribution's package libze1 or level-zero"),
    ("libig[cd]*.so*", "install the distribution's package intel-igc or libigc1, and libigdgmm12"),
    (
        "libnvidia-*",
        "install the NVIDIA driver; in a container use the NVIDIA container toolkit with "
        "NVIDIA_DRIVER_CAPABILITIES=compute",
    ),
    (
        "libcuda.so*",
        "install the NVIDIA driver; in a container use the NVIDIA container toolkit with "
        "NVIDIA_DRIVER_CAPABILITIES=compute",
    ),
    ("libstdc++.so*", "install the distribution's package libstdc++6 or libstdc++"),
    ("libz.so*", "install the distribution's package zlib1g or zlib"),
)

#: What the dynamic linker says, by what it contains, and what helps.
_LINKER_REMEDIES = (
    (
        "GLIBC",
        "the library was built for a newer system: use an older build of it, or a newer "
        "distribution",
    ),
    (
        "not found (required by",
        "another copy of a library that it needs is found first: look at LD_LIBRARY_PATH",
    ),
    (
        "undefined symbol",
        "it and a library that it needs are of different versions: reinstall both from one source",
    ),
    (
        "failed to map segment",
        "the file system is mounted noexec, or the memory limit is too small",
    ),
    (
        "executable stack",
        "the system forbids executable stacks: clear the flag with patchelf --clear-execstack, or "
        "update the library",
    ),
    ("static TLS", "load it before other large libraries: LD_PRELOAD it"),
)

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


class _Header(NamedTuple):
    """The start of an ELF file: what it is, and where its program headers are."""

    bits: int
    type: int
    machine: int
    program_offset: int
    program_size: int
    program_count: int
    order: str


@dataclass(frozen=True)
class Library:
    """An open shared library; `path` is the real path of the file that the dynamic linker chose."""

    cdll: ctypes.CDLL
    path: str

    @cached_property
    def handle(self) -> int:
        """The handle that dlopen gave."""
        return self.cdll._handle

    def symbol(self, name: str) -> int | None:
        """The address of an exported symbol, or None. As with dlsym, the library's dependencies are searched too."""
        try:
            return ctypes.cast(self.cdll[name], ctypes.c_void_p).value
        except AttributeError:
            return None

    def own_symbol(self, name: str) -> int | None:
        """The address of a symbol that the library itself defines, or None: what a dependency exports does not count."""
        address = self.symbol(name)
        return address if address and _file_of(address) == self.path else None

    def close(self) -> None:
        """dlclose: afterwards no address inside the library may be used."""
        function = _libc().dlclose
        function.argtypes = [ctypes.c_void_p]
        function(self.handle)


def open_library(library: str) -> Library:
    """Open `library`, a path or a bare name for ld.so to find; LibraryError says why it cannot be."""
    if "/" in library:
        check_file(library)
    try:
        return dlopen(library)
    except OSError as error:
        raise explain(library, str(error)) from None


def dlopen(library: str, flags: int = 0) -> Library:
    """dlopen with RTLD_NOW | RTLD_LOCAL | `flags` and no questions asked; OSError carries dlerror's words."""
    cdll = ctypes.CDLL(library, mode=os.RTLD_NOW | os.RTLD_LOCAL | flags)
    return Library(cdll, _path_of(cdll._handle) or library)


def open_with_siblings(
    path: str, directories: Sequence[str] = (), flags: int = 0, *, waiting: tuple[str, ...] = ()
) -> Library | None:
    """Open `path` after the libraries that dlopen calls missing and that lie beside it, or in one of `directories`; None if that
    does not help.

    dlerror begins with the name of the library that was not found. Each one is opened by its path, its own siblings first; ld.so
    then meets its soname as already loaded. They stay open: who needs them needs them for as long as it lives. `waiting` are the
    libraries whose turn comes after this one; one that needs such a library is part of a ring, and stays missing.
    """
    opened: set[str] = set()
    while True:
        try:
            return dlopen(path, flags)
        except OSError as error:
            name = str(error).split(":", 1)[0]
        places = (
            os.path.join(directory, name) for directory in (os.path.dirname(path), *directories)
        )
        sibling = next((place for place in places if os.path.isfile(place)), None)
        if "/" in name or name in opened or name in waiting or sibling is None:
            return None
        if open_with_siblings(sibling, directories, waiting=(*waiting, name)) is None:
            return None
        opened.add(name)


def check_file(library: str) -> None:
    """Raise LibraryError unless the file is a complete ELF shared library for this process's architecture."""

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
        raise refuse(_what_it_is(start), "name a shared library (.so)")
    header = _header(start)
    if header is None:
        raise refuse("the file is truncated", "install it again")
    mine = _own_header()
    if header.bits != mine.bits:
        raise refuse(
            f"it is a {header.bits}-bit library and this is a {mine.bits}-bit process",
            f"install the {mine.bits}-bit driver",
        )
    if header.machine != mine.machine:
        raise refuse(
            "it was built for another processor architecture",
            "install the driver for this architecture",
        )
    if header.type != 3:  # ET_DYN
        raise refuse("it is an ELF file but not a shared library", "name a shared library (.so)")
    if _end_of_segments(start, header) > status.st_size:
        raise refuse("the file is truncated", "install it again")


def explain(library: str, dlerror: str) -> LibraryError:
    """Why dlopen refused `library`: the dependencies that are missing, else dlerror's own words."""
    routine = f"dlopen({library})"
    path = library if "/" in library else find_library(library)
    if path is None:
        return LibraryError(
            "no library of this name is in LD_LIBRARY_PATH, the linker's cache or the default "
            "directories",
            routine=routine,
            remedy=remedy_for((library,))
            or "install the driver, run ldconfig, or name the library by its whole path",
            missing=(library,),
        )
    missing = missing_dependencies(path)
    if missing:
        names = ", ".join(missing)
        message = f"it needs {names}, which {'is' if len(missing) == 1 else 'are'} not found"
        return LibraryError(message, routine=routine, missing=missing, remedy=remedy_for(missing))
    remedy = next((remedy for words, remedy in _LINKER_REMEDIES if words in dlerror), "")
    return LibraryError(f"the dynamic linker refused it: {dlerror}", routine=routine, remedy=remedy)


def remedy_for(missing: tuple[str, ...]) -> str:
    """What to install for missing libraries, each remedy once."""
    found = (
        next((remedy for pattern, remedy in REMEDIES if fnmatch(name, pattern)), "")
        for name in missing
    )
    known = "; ".join(dict.fromkeys(remedy for remedy in found if remedy))
    return (
        known
        or f"install what provides {', '.join(missing)}, or add its directory to LD_LIBRARY_PATH"
    )


def missing_dependencies(path: str) -> tuple[str, ...]:
    """Every soname that `path` needs, directly or through others, and that is nowhere to be found; nothing is loaded."""
    missing: dict[str, None] = {}
    seen: set[str] = set()
    waiting: list[tuple[str, tuple[str, ...]]] = [(path, ())]
    while waiting:
        current, inherited = waiting.pop(0)
        needed, rpath, runpath = dynamic_section(current)
        rpath = (
            () if runpath else (*rpath, *inherited)
        )  # ld.so(8): RPATH counts for what is loaded through it, RUNPATH does not
        for name in needed:
            if name in seen:
                continue
            seen.add(name)
            if _is_loaded(name):
                continue
            found = (
                name if "/" in name and os.path.exists(name) else find_library(name, rpath, runpath)
            )
            if found is None:
                missing[name] = None
            else:
                waiting.append((found, rpath))
    return tuple(missing)


def find_library(
    name: str, rpath: tuple[str, ...] = (), runpath: tuple[str, ...] = ()
) -> str | None:
    """Where ld.so would find a bare soname, or None."""
    variable = secure_environ().get("LD_LIBRARY_PATH", "").replace(";", ":")
    from_environment = [part or "." for part in variable.split(":")] if variable else []
    for directory in (*rpath, *from_environment, *runpath):
        if _usable(os.path.join(directory, name)):
            return os.path.join(directory, name)
    cached = next((path for path in linker_cache().get(name, ()) if _usable(path)), None)
    return cached or next(
        (p for p in (os.path.join(d, name) for d in _DEFAULT_DIRECTORIES) if _usable(p)), None
    )


def _libc() -> Any:
    return ctypes.CDLL(None)


def _path_of(handle: int) -> str:
    """The real path of an open library: `l_name` is the second word of its link map (dlinfo(3))."""
    link_map = ctypes.POINTER(ctypes.c_char_p)()
    dlinfo = _libc().dlinfo
    dlinfo.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
    if dlinfo(handle, _RTLD_DI_LINKMAP, ctypes.byref(link_map)) or not link_map[1]:
        return ""
    return os.path.realpath(os.fsdecode(link_map[1]))


class _DlInfo(ctypes.Structure):
    """What dladdr(3) gives."""

    _fields_ = (
        ("fname", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("sname", ctypes.c_char_p),
        ("saddr", ctypes.c_void_p),
    )


def _file_of(address: int) -> str:
    """The real path of the library that an address is in, "" if it is in none."""
    info, dladdr = _DlInfo(), _libc().dladdr
    dladdr.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return _real_path(info.fname) if dladdr(address, ctypes.byref(info)) and info.fname else ""


@lru_cache(64)
def _real_path(name: bytes) -> str:
    return os.path.realpath(os.fsdecode(name))


def _is_loaded(name: str) -> bool:
    """Whether a library of that soname is in the process: then it satisfies DT_NEEDED wherever it came from."""
    try:
        ctypes.CDLL(name, mode=os.RTLD_LAZY | os.RTLD_NOLOAD)
    except OSError:
        return False
    return True


def _what_it_is(start: bytes) -> str:
    if not start:
        return "the file is empty"
    if start.startswith(b"!<arch>"):
        return "it is a static archive, not a shared library"
    text = all(byte in b"\t\n\r\f" or byte >= 32 for byte in start)
    return (
        "it is a text file, not a shared library"
        if text
        else "it is not an ELF file, so it is no shared library"
    )


def _header(start: bytes) -> _Header | None:
    """The ELF header (System V ABI, "ELF header"), None if the file ends inside it."""
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
    """The file offset behind the last byte that the program headers refer to."""
    end = header.program_offset + header.program_size * header.program_count
    for index in range(header.program_count):
        place = header.program_offset + index * header.program_size
        if place + header.program_size > len(start):
            break
        offset, size = (
            struct.unpack_from(header.order + "Q16xQ", start, place + 8)
            if header.bits == 64
            else struct.unpack_from(header.order + "I8xI", start, place + 4)
        )
        end = max(end, offset + size)
    return end


@cache
def _own_header() -> _Header:
    with open("/proc/self/exe", "rb") as file:
        header = _header(file.read(64))
    return header or _Header(64 if sys.maxsize > 2**32 else 32, 3, 0, 0, 0, 0, "<")


def _usable(path: str) -> bool:
    """Whether ld.so would take this file: it passes over other architectures silently."""
    try:
        with open(path, "rb") as file:
            start = file.read(64)
    except OSError:
        return False
    header = _header(start) if start.startswith(b"\x7fELF") else None
    return header is not None and (header.bits, header.machine) == (
        _own_header().bits,
        _own_header().machine,
    )


def dynamic_section(path: str) -> tuple[list[str], tuple[str, ...], tuple[str, ...]]:
    """DT_NEEDED, DT_RPATH and DT_RUNPATH of a library, with $ORIGIN and $LIB replaced."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.dynamic import DynamicSegment
    from elftools.elf.elffile import ELFFile

    needed: list[str] = []
    paths: dict[str, tuple[str, ...]] = {"DT_RPATH": (), "DT_RUNPATH": ()}
    try:
        with open(path, "rb") as file:
            for segment in ELFFile(file).iter_segments():
                for tag in segment.iter_tags() if isinstance(segment, DynamicSegment) else ():
                    if tag.entry.d_tag == "DT_NEEDED":
                        needed.append(tag.needed)  # pyright: ignore[reportAttributeAccessIssue]
                    elif tag.entry.d_tag == "DT_RPATH":
                        paths["DT_RPATH"] = tuple(_expand(tag.rpath, path))  # pyright: ignore[reportAttributeAccessIssue]
                    elif tag.entry.d_tag == "DT_RUNPATH":
                        paths["DT_RUNPATH"] = tuple(_expand(tag.runpath, path))  # pyright: ignore[reportAttributeAccessIssue]
    except (OSError, ELFError):
        pass  # ld.so's own words are then the best there is
    return needed, paths["DT_RPATH"], paths["DT_RUNPATH"]


def _expand(search_path: str, library: str) -> Iterator[str]:
    origin = os.path.dirname(os.path.realpath(library))
    for part in search_path.split(":"):
        for token, value in (
            ("ORIGIN", origin),
            ("LIB", "lib64" if _own_header().bits == 64 else "lib"),
        ):
            part = part.replace("${" + token + "}", value).replace("$" + token, value)
        yield part or "."  # ld.so takes an empty element for the working directory


@cache
def linker_cache() -> dict[str, list[str]]:
    """soname → paths, from the cache that ldconfig writes (glibc, sysdeps/generic/dl-cache.h: struct cache_file_new)."""
    try:
        data = _CACHE.read_bytes()
    except OSError:
        return {}
    base = data.find(_CACHE_MAGIC)
    if base < 0:
        return {}
    data = data[base:]
    entries: dict[str, list[str]] = {}
    (count,) = struct.unpack_from("=I", data, 20)
    for _, key, value in struct.iter_unpack("=iII12x", data[48 : 48 + 24 * count]):
        name, path = (data[place : data.index(b"\0", place)] for place in (key, value))
        entries.setdefault(os.fsdecode(name), []).append(os.fsdecode(path))
    return entries
