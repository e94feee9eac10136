"""Native builds only: everything else about the package is in setup.cfg."""

from __future__ import annotations

import hashlib
import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from configparser import ConfigParser
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_ext import build_ext


def missing_tool() -> str | None:
    """Return in one line what the native build needs and this machine lacks; None if nothing."""
    if "t" in sys.abiflags:  # it has no limited API
        return (
            "fairlead: free-threaded builds of CPython are not supported: install it in the usual "
            "build of the same version"
        )
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if not any(shutil.which(name) for name in (compiler, "cc", "gcc")):
        return (
            f"fairlead: no C compiler ({compiler}) on PATH: install one "
            "(Debian: apt-get install gcc; Fedora: dnf install gcc)"
        )
    include = Path(sysconfig.get_path("include"))
    if not (include / "Python.h").exists():
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return (
            f"fairlead: the headers of Python {version} are missing ({include}/Python.h): install "
            "them "
            f"(Debian: apt-get install python{version}-dev; Fedora: dnf install python3-devel)"
        )
    return None


def version() -> str:
    """The version of fairlead."""
    metadata = ConfigParser()
    metadata.read("setup.cfg", encoding="utf-8")
    return metadata["metadata"]["version"]


def list_registered(group: str) -> dict[str, str]:
    """What setup.cfg registers in a group: name → module."""
    metadata = ConfigParser()
    metadata.read("setup.cfg", encoding="utf-8")
    rows = (line.split("=") for line in metadata["options.entry_points"][group].split())
    return {name: value.split(":")[0] for name, value in rows}


#: What is made of a shell (loader/base/shell_copies.py): file → shell, module or library.
ADAPTERS = {
    **{
        f"libur_adapter_{name}.so.0": ("sdk.libfairlead_shell", module)
        for name, module in list_registered("fairlead.adapters").items()
    },
    **{
        f"libze_{name}.so.1": ("sdk.libfairlead_ze_shell", module)
        for name, module in list_registered("fairlead.drivers").items()
    },
    "libpi_fairlead.so": ("sdk.libfairlead_pi_shell", "libur_adapter_fairlead.so.0"),
    "libfairlead_command_buffer.so": (
        "command_buffer_layer.libfairlead_layer",
        "fairlead.plugins.command_buffer_layer",
    ),
}


#: Libraries whose file names are not their names and `.so`.
FILE_NAMES = {"libOpenCL": "libOpenCL.so.1", "libze_loader": "libze_loader.so.1"}


#: Where objects are kept for later builds of a tree. FAIRLEAD_OBJECTS names the folder of another
#: tree, for a build of the same sources.
OBJECTS = Path("build/objects")


class KeptObjects:
    """Objects of earlier builds, by what the preprocessor makes of a source."""

    def __init__(self, compiler: Any, folder: Path) -> None:
        self._command, self._compile = compiler.compiler_so, compiler._compile
        self._folder, self._used = folder, set[str]()
        version = subprocess.run([*self._command, "--version"], capture_output=True, check=True)
        self._version = version.stdout
        folder.mkdir(parents=True, exist_ok=True)

    def compile(
        self,
        made: str,
        source: str,
        suffix: str,
        options: list[str],
        more: list[str],
        macros: list[str],
    ) -> None:
        """Copy an object that was kept, or compile its source: the compiler's `_compile`."""
        seen = subprocess.run(
            [*self._command, "-E", "-P", *macros, *more, source], capture_output=True, check=False
        )
        rest = [*self._command, *more, *(part for part in options if part not in macros)]
        texts = (self._version, "\0".join(rest).encode(), seen.stdout)
        name = hashlib.sha256(b"\0".join(texts)).hexdigest()[:32] + ".o"
        self._used.add(name)
        kept = self._folder / name
        if seen.returncode == 0 and kept.exists():
            shutil.copyfile(kept, made)
            return
        self._compile(made, source, suffix, options, more, macros)
        own = kept.with_suffix(f".{os.getpid()}")  # another build may be keeping the same object
        shutil.copyfile(made, own)
        own.replace(kept)

    def forget_others(self) -> None:
        """Delete the objects that this build did not use."""
        for path in self._folder.glob("*.o"):
            if path.name not in self._used:
                path.unlink()


class BuildNative(build_ext):
    """Builds Python modules, shared libraries that are none, `lib…`, and the adapters.

    Their names do not depend on the Python that built them. An adapter in the tree knows the path
    of this Python. One in a wheel does not: it finds the Python that it is installed in.
    """

    def run(self) -> None:
        super().run()
        configure = runpy.run_path("fairlead/loader/base/shell_copies.py")["configure"]
        stays = self.stays()
        for name, (shell, module) in ADAPTERS.items():
            shell_path = Path(self.get_ext_fullpath(f"fairlead.plugins.{shell}"))
            configure(shell_path, self.adapter(name), module, here=stays)

    def stays(self) -> bool:
        """Whether this Python imports the built modules from the tree."""
        return bool(self.inplace or getattr(self, "editable_mode", False))

    def build_extensions(self) -> None:
        """Compile each source once, on all cores.

        Libraries share sources, and the thunks of a layer are linked 16 times
        (loader/base/native/build.py). What is generated is optimized lightly.
        """
        compile_all, objects = self.compiler.compile, {}
        get_level = runpy.run_path("fairlead/loader/base/native/building.py")["get_level"]

        def compile_once(sources: list[str], **options: Any) -> list[str]:
            missing = [source for source in dict.fromkeys(sources) if source not in objects]
            written = options.pop("extra_postargs")

            def compile_one(source: str) -> str:
                more = [*written, *get_level(source)]
                return compile_all([source], extra_postargs=more, **options)[0]

            with ThreadPoolExecutor(os.cpu_count()) as pool:
                found = pool.map(compile_one, missing)
                objects.update(zip(missing, found, strict=True))
            return [objects[source] for source in sources]

        self.compiler.compile = compile_once
        elsewhere = os.environ.get("FAIRLEAD_OBJECTS")
        kept = None
        if elsewhere or self.stays():
            kept = KeptObjects(self.compiler, Path(elsewhere or OBJECTS))
            self.compiler._compile = kept.compile
        if self.stays():
            for extension in self.extensions:
                if extension.name.endswith(".libOpenCL"):
                    extension.define_macros.append(("FL_PYTHON", f'"{sys.executable}"'))
        super().build_extensions()
        if kept and not elsewhere:
            kept.forget_others()

    def adapter(self, name: str) -> Path:
        """The path of an adapter."""
        return Path(self.get_ext_fullpath("fairlead.plugins.libfairlead_adapter")).with_name(name)

    def get_outputs(self) -> list[str]:
        return [*super().get_outputs(), *(str(self.adapter(name)) for name in ADAPTERS)]

    def get_ext_filename(self, fullname: str) -> str:
        folder, name = os.path.split(super().get_ext_filename(fullname))
        stem = name.split(".")[0]
        # setuptools on CPython 3.15 names the platform, too, which no earlier Python looks for
        suffix = ".so" if stem.startswith("lib") else ".abi3.so"
        return os.path.join(folder, FILE_NAMES.get(stem, f"{stem}{suffix}"))


if problem := missing_tool():
    sys.exit(problem)


def native() -> dict[str, Any]:
    """What `setup` is to build. It takes a second to say, for C is generated and parsed."""
    return {
        "cffi_modules": [
            *(
                f"fairlead/{folder}/native/build.py:ffibuilder"
                for folder in ("loader/base", "icd", "plugins/sdk")
            ),
            "fairlead/plugins/sdk/native/build_ze.py:ffibuilder",
        ],
        "ext_modules": [
            runpy.run_path("fairlead/captured_graphs/native/build.py")["describe_replay_method"](),
            *runpy.run_path("fairlead/icd/native/build.py")["describe_layers"](),
            runpy.run_path("fairlead/icd/libopencl/native/build.py")["describe_libopencl"](
                version()
            ),
            runpy.run_path("fairlead/loader/ze/libze_loader/native/build.py")[
                "describe_libze_loader"
            ](),
            *runpy.run_path("fairlead/plugins/sdk/native/shells.py")["describe_shells"](),
            *runpy.run_path("fairlead/plugins/sdk/native/build_ze.py")["describe_shells"](),
            runpy.run_path("fairlead/plugins/command_buffer_layer/native/build.py")[
                "describe_layer"
            ](),
        ],
    }


# Before it builds, pip asks twice for metadata alone.
is_asked_for_metadata = bool({"egg_info", "dist_info"}.intersection(sys.argv))
setup(cmdclass={"build_ext": BuildNative}, **({} if is_asked_for_metadata else native()))
