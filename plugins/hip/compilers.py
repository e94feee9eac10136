"""The compilers for AMD's GPUs. None needs a GPU.

| language | compilers, the first one that is there is taken |
|---|---|
| OpenCL C | libamd_comgr, which HIP itself needs; clang |
| HIP C++ | hipRTC; clang with HIP's headers |

`fairlead doctor` says which they are. So does the log of the adapter, when it compiles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from ..sdk.conversions import failure
from ..sdk.gpu.runtime_compilers import HIPRTC, RuntimeCompiler, open_compiler
from .clang import open_clang, open_hip_clang
from .comgr import open_comgr

OPENCL_C: Final = "OpenCL C"
HIP_C: Final = "HIP C++"


class HipRtc:
    """hipRTC, with the interface of `Clang`."""

    def __init__(self, compiler: RuntimeCompiler) -> None:
        self._compiler, self.name = compiler, f"hipRTC ({compiler.library})"

    def compile_hip(self, source: bytes, architecture: str, options: str = "") -> bytes:
        """Return a code object of HIP C++. Raises RuntimeCompilerError."""
        return self._compiler.compile(source, f"--offload-arch={architecture} {options}")


@cache
def open_hiprtc() -> HipRtc | None:
    """Return hipRTC, opened once; None if there is none."""
    found = open_compiler(HIPRTC)
    return HipRtc(found) if found is not None else None


#: What opens the compilers of a language.
COMPILERS: Final[dict[str, tuple[Callable[[], Any], ...]]] = {
    OPENCL_C: (open_comgr, open_clang),
    HIP_C: (open_hiprtc, open_hip_clang),
}
_NEEDS: Final = {
    OPENCL_C: "libamd_comgr, or clang with rocm-device-libs and lld",
    HIP_C: "hipRTC, or clang with rocm-device-libs, lld and HIP's headers",
}


def find_compiler(language: str) -> Any:
    """Return the compiler of a language, None if there is none.

    Args:
        language: a key of `COMPILERS`.
    """
    opened = (open_() for open_ in COMPILERS[language])
    return next((one for one in opened if one is not None), None)


def get_compiler(language: str) -> Any:
    """Return the compiler of a language. Raises URError (COMPILER_NOT_AVAILABLE)."""
    found = find_compiler(language)
    if found is None:
        raise failure(
            "COMPILER_NOT_AVAILABLE",
            f"no compiler of {language} was found",
            remedy=f"install {_NEEDS[language]}",
        )
    return found


def main(data: Mapping[str, Any], progress: Callable[[str], None]) -> dict[str, Any]:
    """Return the names of the compilers, by the language. `fairlead doctor` asks in a child."""
    progress("opening the compilers for AMD's GPUs")
    found = {language: find_compiler(language) for language in COMPILERS}
    return {
        "compilers": {
            language: one.name if one is not None else f"none: install {_NEEDS[language]}"
            for language, one in found.items()
        }
    }
