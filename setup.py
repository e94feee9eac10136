"""Native builds only: everything else about the package is in setup.cfg."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import setup


def missing_tool() -> str | None:
    """What the native build needs and this machine lacks, in one line; None when all is there."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if not any(shutil.which(name) for name in (compiler, "cc", "gcc")):
        return (
            f"fairlead: no C compiler ({compiler}) on PATH: install one (Debian: apt-get install gcc; Fedora: dnf install gcc)"
        )
    include = Path(sysconfig.get_path("include"))
    if not (include / "Python.h").exists():
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return (
            f"fairlead: the headers of Python {version} are missing ({include}/Python.h): install them "
            f"(Debian: apt-get install python{version}-dev; Fedora: dnf install python3-devel)"
        )
    return None


if problem := missing_tool():
    sys.exit(problem)

setup(cffi_modules=["icd/native/build.py:ffibuilder"])
