"""Opens shared libraries, and explains in plain words why one cannot be opened.

`open_library` first examines the file (`elf.check_file`), because a truncated file may kill the
dynamic linker. Then it calls dlopen with RTLD_NOW | RTLD_LOCAL. If that fails, `explain` names the
missing dependencies (`linker.find_missing_dependencies`), and the remedy.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cached_property, lru_cache

from .elf import check_file
from .errors import LibraryError
from .forked import stop_forking
from .frozen_value import Value
from .linker import find_library, find_missing_dependencies

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_RTLD_DI_LINKMAP = 2

#: Pattern of the name of a library that drivers need, and how to install it.
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

#: Part of a message of the dynamic linker, and the remedy.
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


class Library(Value):
    """An open shared library.

    Attributes:
        path: the real path of the file that the dynamic linker chose.
    """

    cdll: ctypes.CDLL
    path: str

    @cached_property
    def handle(self) -> int:
        """The handle that dlopen returned."""
        return self.cdll._handle

    def find_symbol(self, name: str) -> int | None:
        """Return the address of an exported symbol, None if there is none.

        Like dlsym(3), it also searches the library's dependencies.
        """
        try:
            return ctypes.cast(self.cdll[name], ctypes.c_void_p).value
        except AttributeError:
            return None

    def find_own_symbol(self, name: str) -> int | None:
        """Return the address of a symbol that the library itself defines, None if there is none."""
        address = self.find_symbol(name)
        return address if address and find_file(address) == self.path else None

    def close(self) -> None:
        """Call dlclose. No address inside the library may be used afterwards."""
        # int dlclose(void *handle)
        function = _open_libc().dlclose
        function.argtypes = [ctypes.c_void_p]
        function(self.handle)


def open_library(library: str) -> Library:
    """Open a shared library.

    Args:
        library: a path, or a bare name that the dynamic linker searches for.

    Raises:
        LibraryError: the library cannot be opened. The error says why.
    """
    if "/" in library:
        check_file(library)
    try:
        return dlopen(library)
    except OSError as error:
        raise explain(library, str(error)) from None


def dlopen(library: str, flags: int = 0) -> Library:
    """Call dlopen with RTLD_NOW | RTLD_LOCAL | `flags`, without checks.

    Raises:
        OSError: dlopen failed. The error contains the text of dlerror.
    """
    stop_forking()
    cdll = ctypes.CDLL(library, mode=os.RTLD_NOW | os.RTLD_LOCAL | flags)
    return Library(cdll, _find_path(cdll._handle) or library)


def open_with_siblings(
    path: str, directories: Sequence[str] = (), flags: int = 0, *, waiting: tuple[str, ...] = ()
) -> Library | None:
    """Open a library after its missing dependencies, which are opened by their paths.

    dlerror begins with the name of the missing library. Once that library is loaded, its soname
    satisfies the dependency. The dependencies are opened recursively and are never closed.

    Args:
        directories: where dependencies are searched, after the directory of `path`.
        waiting: the libraries that wait for this one. They end a circle of dependencies.

    Returns:
        The library, None if it cannot be opened this way.
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


def explain(library: str, dlerror: str) -> LibraryError:
    """Return an error that says why dlopen refused a library.

    Args:
        library: the argument of dlopen.
        dlerror: the text of dlerror. The error contains it if no dependency is missing.
    """
    routine = f"dlopen({library})"
    path = library if "/" in library else find_library(library)
    if path is None and not dlerror.startswith("/"):  # else the linker found a file, and names it
        return LibraryError(
            "no library of this name is in LD_LIBRARY_PATH, the linker's cache or the default "
            "directories",
            routine=routine,
            remedy=find_remedy((library,))
            or "install the driver, run ldconfig, or name the library by its whole path",
            missing=(library,),
        )
    missing = find_missing_dependencies(path) if path else ()
    if missing:
        names = ", ".join(missing)
        message = f"it needs {names}, which {'is' if len(missing) == 1 else 'are'} not found"
        return LibraryError(message, routine=routine, missing=missing, remedy=find_remedy(missing))
    remedy = next((remedy for words, remedy in _LINKER_REMEDIES if words in dlerror), "")
    return LibraryError(f"the dynamic linker refused it: {dlerror}", routine=routine, remedy=remedy)


def find_remedy(missing: tuple[str, ...]) -> str:
    """Return what to install for missing libraries, each remedy once."""
    from fnmatch import fnmatch  # whose regular expressions take milliseconds

    found = (
        next((remedy for pattern, remedy in REMEDIES if fnmatch(name, pattern)), "")
        for name in missing
    )
    known = "; ".join(dict.fromkeys(remedy for remedy in found if remedy))
    return (
        known
        or f"install what provides {', '.join(missing)}, or add its directory to LD_LIBRARY_PATH"
    )


def _open_libc() -> Any:
    return ctypes.CDLL(None)


def _find_path(handle: int) -> str:
    """Return the real path of an open library, "" if unknown.

    `l_name` is the second word of its link map (dlinfo(3)).
    """
    link_map = ctypes.POINTER(ctypes.c_char_p)()
    # int dlinfo(void *handle, int request, void *info)
    dlinfo = _open_libc().dlinfo
    dlinfo.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
    if dlinfo(handle, _RTLD_DI_LINKMAP, ctypes.byref(link_map)) or not link_map[1]:
        return ""
    return os.path.realpath(os.fsdecode(link_map[1]))


class _DlInfo(ctypes.Structure):
    """The result of dladdr(3)."""

    _fields_ = (
        ("fname", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("sname", ctypes.c_char_p),
        ("saddr", ctypes.c_void_p),
    )


def find_file(address: int) -> str:
    """Return the real path of the library that contains an address, "" if there is none."""
    # int dladdr(const void *address, Dl_info *)
    info, dladdr = _DlInfo(), _open_libc().dladdr
    dladdr.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return _resolve_path(info.fname) if dladdr(address, ctypes.byref(info)) and info.fname else ""


@lru_cache(64)
def _resolve_path(name: bytes) -> str:
    return os.path.realpath(os.fsdecode(name))
