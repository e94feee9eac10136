"""The copies of libOpenCL.so.1 on this machine, and the one that PyOpenCL uses.

A program links against one loader, and each loader searches for drivers in other places. There are
the system's loader, a conda environment's, the one inside PyOpenCL's wheel, and those that vendors
ship. `find_copies` finds the files. `find_pyopencl` reads from the ELF file of PyOpenCL's extension
module which of them it loads, and lists the manifests that this loader reads. Files are only read:
no loader is opened, and PyOpenCL is not imported.
"""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

from ...icd.discovery import SYSTEM_VENDORS, find_pyopencl_folders
from ...loader.base.elf import read_dynamic_section
from ...loader.base.linker import find_library, read_linker_cache
from ...loader.base.search import filter_environ

_DIRECTORIES: Final = (
    "/lib",
    "/lib64",
    "/lib/*-linux-gnu",
    "/usr/lib",
    "/usr/lib64",
    "/usr/lib/*-linux-gnu",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/usr/local/cuda*/lib64",
    "/opt/rocm*/lib",
    "/opt/intel/oneapi/compiler/*/lib",
)

#: Bytes that only one loader's file contains. (All contain "clGetICDLoaderInfoOCLICD"; the name
#: "ocl-icd" is also in the build path of a Khronos loader.)
_MARKS: Final = (
    (b"fairlead drivers ", "fairlead"),
    (b"OCL_ICD_PLATFORM_SORT", "ocl-icd"),
    (b"Khronos OpenCL ICD Loader", "Khronos"),
    (b"KHR ICD trace", "Khronos"),
    (b"khrIcd", "Khronos"),
    (b"OpenCL/vendors", "another loader"),
)
_VERSION_NODE: Final = re.compile(rb"OPENCL_(\d\.\d)\0")
_VENDOR_DIRECTORY: Final = re.compile(rb"[\x20-\x7e]*/etc/OpenCL/vendors(?=/?\0)")


@dataclass(frozen=True)
class LoaderCopy:
    """A libOpenCL.

    Attributes:
        path: its real path.
        names: the paths that lead to it.
        kind: whose it is: "fairlead", "ocl-icd", "Khronos", ….
        symbols: its newest symbol version, "3.0".
    """

    path: str
    names: tuple[str, ...]
    kind: str
    symbols: str


@dataclass(frozen=True)
class PyOpenCL:
    """The PyOpenCL of this Python.

    Attributes:
        loader: the file of that, "" if there is none: then PyOpenCL cannot be imported.
        reads: the manifests that the loader reads and the libraries that variables name, in order.
        extension: the file of its extension module, which loads that.
    """

    version: str
    needs: str
    loader: str
    reads: tuple[str, ...]
    extension: str = ""


def find_copies(also: str = "") -> tuple[LoaderCopy, ...]:
    """Return every libOpenCL that a program of this user may load."""
    found: dict[str, dict[str, None]] = {}
    for name in (*_find_files(), *([also] if also else ())):
        if os.path.isfile(name):
            found.setdefault(os.path.realpath(name), {})[name] = None
    return tuple(LoaderCopy(path, tuple(names), *_identify(path)) for path, names in found.items())


def find_default_copy() -> str:
    """Return the real path of what dlopen("libOpenCL.so.1") opens in this process, "" if
    nothing."""
    found = find_library("libOpenCL.so.1")
    return os.path.realpath(found) if found else ""


def find_pyopencl() -> PyOpenCL | None:
    """Return the PyOpenCL of this Python, None if it has none."""
    extension = _find_extension()
    if extension is None:
        return None
    needed, rpath, runpath = read_dynamic_section(str(extension))
    needs = next((name for name in needed if name.startswith("libOpenCL")), "")
    found = (find_library(needs, rpath, runpath) if needs else None) or ""
    data = _read(found) if found else b""
    reads = tuple(_find_search_places(data, extension.parent)) if found else ()
    try:
        version = metadata.version("pyopencl")
    except metadata.PackageNotFoundError:
        version = "of unknown version"
    loader = os.path.realpath(found) if found else ""
    return PyOpenCL(version, needs, loader, reads, str(extension))


def _find_files() -> Iterator[str]:
    """Paths of all files called libOpenCL.so*, or libOpenCL-5519dec5.so.1.0.0 as in wheels."""
    for name, paths in read_linker_cache().items():
        if name.startswith("libOpenCL.so"):
            yield from paths
    environ = filter_environ()
    prefixes = (sys.prefix, sys.base_prefix, environ.get("CONDA_PREFIX", ""))
    directories = [
        glob.escape(part)
        for part in environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":")
        if part
    ]
    directories += [
        os.path.join(glob.escape(prefix), "lib") for prefix in dict.fromkeys(prefixes) if prefix
    ]
    directories += _DIRECTORIES
    for package in (
        place for place in sys.path if os.path.basename(place) in ("site-packages", "dist-packages")
    ):
        directories += [
            os.path.join(glob.escape(package), part) for part in ("*", "*.libs", "*/.libs", "*/lib")
        ]
    for directory in dict.fromkeys(directories):
        for name in sorted(glob.glob(os.path.join(directory, "libOpenCL[.-]*"))):
            if ".so" in name:
                yield name


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


@cache
def _identify(path: str) -> tuple[str, str]:
    """Whose loader a file is, and its newest symbol version, "3.0"."""
    data = _read(path)
    if not data:
        return "not readable", ""
    kind = next(
        (kind for mark, kind in _MARKS if mark in data), "no loader: a vendor's own library"
    )
    versions = [match.decode() for match in _VERSION_NODE.findall(data)]
    return kind, max(versions, default="")


def _find_extension() -> Path | None:
    """Return the file of PyOpenCL's extension module."""
    packages = find_pyopencl_folders()
    paths = (
        Path(package) / f"_cl{suffix}" for package in packages for suffix in EXTENSION_SUFFIXES
    )
    return next((path for path in paths if path.is_file()), None)


def _find_search_places(data: bytes, package: Path) -> Iterator[str]:
    """Yield where a loader searches for drivers. It knows the variables whose names its file
    contains.

    Every loader takes a directory in OCL_ICD_VENDORS. ocl-icd also takes a manifest, which it
    searches in the vendor directory first, or a library. The loader inside PyOpenCL's wheels then
    reads the manifests in the package's .libs, unless OCL_ICD_VENDORS names what does not exist.

    Args:
        data: the content of the loader's file.
        package: PyOpenCL's package.
    """

    def read_variable(variable: str) -> str:
        return filter_environ().get(variable, "") if variable.encode() in data else ""

    built_in = _VENDOR_DIRECTORY.search(data)
    vendors = read_variable("OPENCL_VENDOR_PATH") or (
        os.fsdecode(built_in[0]) if built_in else str(SYSTEM_VENDORS)
    )
    place = read_variable("OCL_ICD_VENDORS") or vendors
    yield from filter(None, read_variable("OCL_ICD_FILENAMES").split(":"))
    if os.path.isdir(place):
        yield from sorted(glob.glob(os.path.join(glob.escape(place), "*.icd")))
    elif b"OCL_ICD_PLATFORM_SORT" in data and os.path.isfile(os.path.join(vendors, place)):
        yield os.path.join(vendors, place)
    elif b"OCL_ICD_PLATFORM_SORT" in data and (os.path.isfile(place) or "/" not in place):
        yield place
    named = read_variable("OCL_ICD_VENDORS")
    if b"PYOPENCL_HOME" in data and (not named or os.path.exists(named)):
        yield from sorted(glob.glob(os.path.join(glob.escape(str(package)), ".libs", "*.icd")))
