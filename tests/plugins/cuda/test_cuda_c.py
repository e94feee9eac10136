"""Programs of CUDA C: compiled by NVRTC, which needs no GPU, and loaded as PTX.

NVRTC names a folder with the library, as `make test` fetches it.
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.loader.ur.abi import UR
from fairlead.plugins.cuda import device_code
from fairlead.plugins.sdk.gpu.runtime_compilers import NVRTC, RuntimeCompiler

from .conftest import COUNT, Work, only_cuda

pytestmark = only_cuda

SOURCE = b"""
extern "C" __global__ void scale(int *y, int factor, int summand) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = y[i] * factor + summand + N;
}
"""


@pytest.fixture
def nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVRTC, of the folder that NVRTC names."""
    found = next(Path(os.environ.get("NVRTC", ""), "lib").glob("libnvrtc.so.*"), None)
    if found is None:
        pytest.skip("NVRTC names no folder with libnvrtc: `make test` fetches it")
    compiler = RuntimeCompiler(NVRTC, str(found))
    monkeypatch.setattr(device_code, "open_nvrtc", lambda: compiler)


def _program(work: Work, source: bytes) -> int:
    made = work.ur.make("urProgramCreateWithIL", work.context, source, len(source))
    return made.value or 0


def test_a_program_is_compiled_with_its_options(work: Work, nvrtc: None) -> None:
    program, out = _program(work, SOURCE), work.memory()
    work.ur.ok("urProgramBuild", work.context, program, b"-DN=0")
    kernel = work.ur.make("urKernelCreate", program, b"scale").value or 0
    work.put(out, struct.pack(f"{COUNT}i", *range(COUNT)))
    work.launch(kernel, out, ctypes.c_int32(3), ctypes.c_int32(1))
    assert work.numbers(out) == [3 * number + 1 for number in range(COUNT)]


@pytest.mark.usefixtures("adapted", "nvrtc")
def test_a_compiler_newer_than_the_driver_makes_a_cubin() -> None:
    """The driver would refuse its PTX."""
    for version, begin in ((99, 0), b"//"), ((1, 0), b"\x7fELF"):
        driver = SimpleNamespace(version=version)
        device: Any = SimpleNamespace(
            found=SimpleNamespace(capability=(9, 0)), platform=SimpleNamespace(driver=driver)
        )
        code = device_code.build_code(device, SOURCE, "-DN=0")
        assert code.data.lstrip().startswith(begin)


def test_a_refused_program_has_the_compilers_log(work: Work, nvrtc: None) -> None:
    program = _program(work, SOURCE)  # N is not defined
    assert work.ur("urProgramBuild", work.context, program) == "PROGRAM_BUILD_FAILURE"
    log = ctypes.create_string_buffer(4096)
    given = program, work.device, UR["UR_PROGRAM_BUILD_INFO_LOG"], len(log), log, None
    work.ur.ok("urProgramGetBuildInfo", *given)
    assert b'identifier "N" is undefined' in log.value


def test_without_nvrtc_there_is_no_cuda_c(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_code, "open_nvrtc", lambda: None)
    program = _program(work, SOURCE)
    assert work.ur("urProgramBuild", work.context, program) == "COMPILER_NOT_AVAILABLE"
