"""Clang as AMD's compiler, where libamd_comgr or hipRTC is not installed.

It is a program, so it runs in a process of its own. OpenCL C needs AMD's device libraries
(rocm-device-libs), and lld, which links. HIP C++ needs the header hip/hip_runtime.h and the C++
headers of the host besides.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from ...loader.base.search import filter_environ
from ..sdk.gpu.runtime_compilers import RuntimeCompilerError, split_options
from .comgr import DECLARATIONS, find_rocm_files

#: Where it may be below a folder of ROCM_PATH, /opt/rocm and /usr.
_PROGRAMS: Final = "llvm/bin/clang", "lib/llvm*/bin/clang"
_DEVICE_LIBRARIES: Final = "amdgcn/bitcode", "lib/*/amdgcn/bitcode", "lib/amdgcn/bitcode"
#: What hipRTC includes without being asked.
_INCLUDED: Final = "__clang_hip_runtime_wrapper.h", "hip/hip_runtime.h"


class ClangError(RuntimeCompilerError):
    """A program was not compiled. The text is what clang printed."""


class Clang:
    """An installed clang that compiles for AMD's GPUs.

    Args:
        libraries: the folder of AMD's device libraries, "" if there is none.
        headers: the folder in which hip/hip_runtime.h is, "" if there is none.

    Attributes:
        has_headers: whether it can compile HIP C++.
    """

    def __init__(self, program: str, libraries: str, headers: str) -> None:
        self._program, self._headers = program, headers
        self.has_headers = bool(headers)
        self._library_options = [f"--rocm-device-lib-path={libraries}"] if libraries else []
        self.name = f"clang ({program})"

    def compile_opencl(self, source: bytes, target: str, options: str = "") -> bytes:
        """Return the code object of a program of OpenCL C.

        Args:
            target: what it is for, such as "amdgcn-amd-amdhsa--gfx90a".
            options: those of clBuildProgram.

        Raises:
            ClangError: the program is refused.
        """
        return self._run(self._list_opencl_options(target, options), source)

    def compile_bitcode(self, source: bytes, target: str, options: str = "") -> bytes:
        """Return the bitcode of a program of OpenCL C, which `link` takes.

        Arguments and errors are `compile_opencl`'s.
        """
        return self._run([*self._list_opencl_options(target, options), "-c", "-emit-llvm"], source)

    def link(self, parts: Sequence[bytes], target: str, options: str = "") -> bytes:
        """Return the code object of bitcode. It has the device's functions in it already.

        Args:
            options: those of clLinkProgram, which change nothing here.

        Raises:
            ClangError: the parts cannot be linked.
        """
        split_options(options)
        with tempfile.TemporaryDirectory(prefix="fairlead-") as folder:
            paths = [Path(folder, f"part{number}.bc") for number in range(len(parts))]
            for path, part in zip(paths, parts, strict=True):
                path.write_bytes(part)
            words = [*_list_target_options(target), "-nogpulib", "-flto", "-O3", *map(str, paths)]
            return self._run(words)

    def compile_hip(self, source: bytes, architecture: str, options: str = "") -> bytes:
        """Return the bundle with the code object of a program of HIP C++.

        Args:
            architecture: what it is for, such as "gfx90a:xnack-".

        Raises:
            ClangError: the program is refused.
        """
        included = [word for name in _INCLUDED for word in ("-include", name)]
        where = ["-nogpuinc", f"-I{self._headers}", *included, *self._library_options]
        kind = ["-x", "hip", "--cuda-device-only", f"--offload-arch={architecture}"]
        return self._run([*kind, *where, "-O3", *split_options(options), "-"], source)

    def _list_opencl_options(self, target: str, options: str) -> list[str]:
        given = split_options(options)
        standard = [] if any("-cl-std" in one for one in given) else ["-cl-std=CL2.0"]
        words = [
            "-x",
            "cl",
            *standard,
            *DECLARATIONS,
            *_list_target_options(target),
            *self._library_options,
        ]
        return [*words, "-O3", *given, "-"]

    def _run(self, words: Sequence[str], source: bytes = b"") -> bytes:
        """Run clang, and return the file that it writes. Raises ClangError.

        It leaves a folder of its own where its temporary files are, so these go with ours.
        """
        with tempfile.TemporaryDirectory(prefix="fairlead-") as folder:
            made, environ = Path(folder, "made"), {**os.environ, "TMPDIR": folder}
            command = [self._program, *words, "-o", str(made)]
            try:
                done = subprocess.run(
                    command, input=source, capture_output=True, check=False, env=environ
                )
            except OSError as error:
                raise ClangError(f"{shlex.join(command)}: {error}") from error
            if done.returncode or not made.exists():
                said = done.stderr.decode(errors="replace").strip()
                raise ClangError(said or f"{self._program} ended with code {done.returncode}")
            return made.read_bytes()


def _list_target_options(target: str) -> list[str]:
    triple, _, processor = target.partition("--")
    return ["-target", triple, f"-mcpu={processor}"]


@cache
def open_clang() -> Clang | None:
    """Return the first clang; None if there is none.

    ROCm's comes first, then the distribution's newest one, then that of PATH.
    """
    on_path = shutil.which("clang", path=filter_environ().get("PATH", ""))
    program = next(find_rocm_files(*_PROGRAMS), on_path)
    if not program:
        return None
    libraries = next(find_rocm_files(*(f"{one}/ocml.bc" for one in _DEVICE_LIBRARIES)), "")
    headers = next(find_rocm_files("include/hip/hip_runtime.h"), "")
    return Clang(program, os.path.dirname(libraries), headers[: -len("/hip/hip_runtime.h")])


def open_hip_clang() -> Clang | None:
    """Return the first clang if it can compile HIP C++; None if it cannot."""
    found = open_clang()
    return found if found is not None and found.has_headers else None
