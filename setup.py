"""Native builds only: everything else about the package is in setup.cfg."""

from __future__ import annotations

import os
import runpy
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext


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


class BuildNative(build_ext):
    """Builds what is no Python module, `lib…`, under a name that does not depend on the Python that built it."""

    def get_ext_filename(self, fullname: str) -> str:
        folder, name = os.path.split(super().get_ext_filename(fullname))
        return os.path.join(folder, f"{name.split('.')[0]}.so" if name.startswith("lib") else name)


if problem := missing_tool():
    sys.exit(problem)

setup(
    cffi_modules=["loader/native/build.py:ffibuilder", "icd/native/build.py:ffibuilder"],
    ext_modules=[runpy.run_path("icd/native/build.py")["trace_layer"]()],
    cmdclass={"build_ext": BuildNative},
)
