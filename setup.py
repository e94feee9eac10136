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


#: What is made of a shell (plugins/build.py): file → shell, module or adapter.
ADAPTERS = {
    "libur_adapter_fairlead.so.0": ("libfairlead_shell", "fairlead.plugins.opencl"),
    "libpi_fairlead.so": ("libfairlead_pi_shell", "libur_adapter_fairlead.so.0"),
}


class BuildNative(build_ext):
    """Builds what is no Python module, `lib…`, under a name that does not depend on the Python that built it, and the adapters.

    An adapter that stays in the tree is told where this Python is. One that goes into a wheel is not: it finds the one that it
    is installed in.
    """

    def run(self) -> None:
        super().run()
        configure = runpy.run_path("plugins/build.py")["configure"]
        stays = bool(self.inplace or getattr(self, "editable_mode", False))
        for name, (shell, module) in ADAPTERS.items():
            configure(self.adapter(shell), self.adapter(shell).with_name(name), module, here=stays)

    def adapter(self, shell: str) -> Path:
        """The path of a shell."""
        return Path(self.get_ext_fullpath(f"fairlead.plugins.{shell}"))

    def get_outputs(self) -> list[str]:
        return [*super().get_outputs(), *(str(self.adapter(shell).with_name(name)) for name, (shell, _) in ADAPTERS.items())]

    def get_ext_filename(self, fullname: str) -> str:
        folder, name = os.path.split(super().get_ext_filename(fullname))
        return os.path.join(folder, f"{name.split('.')[0]}.so" if name.startswith("lib") else name)


if problem := missing_tool():
    sys.exit(problem)

setup(
    cffi_modules=[f"{folder}/native/build.py:ffibuilder" for folder in ("loader", "icd", "plugins")],
    ext_modules=[
        runpy.run_path("icd/native/build.py")["trace_layer"](),
        *runpy.run_path("plugins/native/build.py")["shells"](),
    ],
    cmdclass={"build_ext": BuildNative},
)
