"""NVRTC without a GPU: PTX of CUDA C, which NVIDIA's assembler takes.

NVRTC names a folder with the library, as `make test` fetches it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from helpers.support import CompileC, RunPython

from fairlead.plugins.sdk.gpu.runtime_compilers import RuntimeCompilerNames, open_compiler

COMPILE = """
import sys
from fairlead.plugins.sdk.gpu.runtime_compilers import *
compiler = open_compiler(NVRTC)
try:
    sys.stdout.write(compiler.compile(sys.argv[1].encode(), sys.argv[2]).rstrip(b"\\0").decode())
except RuntimeCompilerError as error:
    print("refused:", error)
"""
SOURCE = """
extern "C" __global__ void add(int *a, char b, double c) {
    extern __shared__ int shared[];
    shared[threadIdx.x] = b;
    __syncthreads();
    a[blockIdx.x * blockDim.x + threadIdx.x] += shared[0] + c;
}
"""


@pytest.fixture
def nvrtc() -> dict[str, str]:
    """The variables with which NVRTC is found."""
    found = next(Path(os.environ.get("NVRTC", ""), "lib").glob("libnvrtc.so.*"), None)
    if found is None:
        pytest.skip("NVRTC names no folder with libnvrtc: `make test` fetches it")
    return {"LD_LIBRARY_PATH": str(found.parent)}


def test_nvrtc_compiles_cuda_c(
    run_python: RunPython, nvrtc: dict[str, str], tmp_path: Path
) -> None:
    ptx = tmp_path / "add.ptx"
    ptx.write_text(run_python(COMPILE, SOURCE, "-arch=compute_90", env=nvrtc).out)
    assert ".visible .entry add(" in ptx.read_text()
    ptxas = os.environ.get("PTXAS") or shutil.which("ptxas")
    if ptxas:
        subprocess.run([ptxas, "-arch=sm_90", ptx, "-o", tmp_path / "add.cubin"], check=True)


def test_a_refused_program_has_the_compilers_log(
    run_python: RunPython, nvrtc: dict[str, str]
) -> None:
    broken = SOURCE.replace("+ c", "+ undeclared")
    said = run_python(COMPILE, broken, "-arch=compute_90", env=nvrtc).out
    assert said.startswith("refused:") and 'identifier "undeclared" is undefined' in said
    said = run_python(COMPILE, SOURCE, "--no-such-option", env=nvrtc).out
    assert "no-such-option" in said


def test_without_a_library_there_is_no_compiler(run_python: RunPython) -> None:
    code = """
from fairlead.plugins.sdk.gpu.runtime_compilers import *
print(open_compiler(NVRTC._replace(libraries=("libno_such_compiler.so",))))
print(open_compiler(NVRTC._replace(libraries=("libc.so.6",))))
"""
    assert run_python(code).out.split() == ["None", "None"]


def test_a_library_that_lacks_a_function_is_no_compiler(
    compile_c: CompileC, tmp_path: Path
) -> None:
    """It has all but GetErrorString."""
    names = ("CreateProgram", "CompileProgram", "DestroyProgram", "GetProgramLogSize")
    names += ("GetProgramLog", "GetPTXSize", "GetPTX", "Version")
    source = tmp_path / "compiler.c"
    source.write_text(
        "".join(
            f'__attribute__((visibility("default"))) int fake{name}(void) {{ return 0; }}\n'
            for name in names
        )
    )
    library = str(compile_c(source, tmp_path / "libfake.so"))
    assert open_compiler(RuntimeCompilerNames((library,), "fake", ("PTX",))) is None
