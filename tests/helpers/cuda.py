"""A CUDA driver without a GPU (tests/fake/cuda), alone and beside PoCL."""

from __future__ import annotations

import ctypes
import runpy
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fairlead.icd import cuda_sharing
from fairlead.icd._native import ffi
from fairlead.icd.command_buffer import cuda_functions
from fairlead.loader.cuda.driver import CudaDriver, open_driver
from helpers.support import ROOT

#: What NVIDIA's compiler makes of the kernels of `SOURCE`: as much of it as is looked at.
PTX = """//
.version 9.0
.target sm_90, texmode_independent
.address_size 64

.entry scale(
	.param .u64 .ptr .global .align 4 scale_param_0,
	.param .u32 scale_param_1,
	.param .u32 scale_param_2
)
{
	mov.b32 	%r1, %envreg3;
	ret;
}
.entry total(
	.param .u64 .ptr .global .align 4 total_param_0,
	.param .u64 .ptr .global .align 4 total_param_1
)
{
	mov.b32 	%r1, %envreg3;
	ret;
}
.entry prints(
	.param .u64 .ptr .global .align 4 prints_param_0
)
{
	call.uni (retval0),
	vprintf,
	ret;
}
"""
SOURCE = """
kernel void scale(global int *y, int factor, int summand) {
    size_t i = get_global_id(0);
    y[i] = y[i] * factor + summand;
}
kernel void total(global int *to, global const int *from) {
    size_t i = get_global_id(0);
    to[i] = to[i] * 3 + from[i];
}
kernel void prints(global int *y) { y[get_global_id(0)] = 1; }
"""


@dataclass(frozen=True)
class FakeCuda:
    """The fake driver: its library, opened by fairlead and for its knobs."""

    path: Path
    driver: CudaDriver
    library: ctypes.CDLL

    def fail(self, function: str, code: int) -> None:
        """Let a function of CUDA's return a code from now on; 0: it works again."""
        self.library.fake_cuda_fail(function.encode(), code)

    def calls(self, function: str) -> int:
        """How often a function was called."""
        return self.library.fake_cuda_calls(function.encode())


def build_fake_cuda(folder: Path) -> Path:
    """Compile the fake driver as libcuda.so.1 in a folder."""
    build = runpy.run_path(str(ROOT / "icd/native/build.py"))
    (folder / "cuda_abi.h").write_text(build["generated_cuda_header"](), encoding="utf-8")
    (folder / "opencl_abi.h").write_text(build["generated_header"](), encoding="utf-8")
    path = folder / "libcuda.so.1"
    command = ["cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    sources = map(str, sorted((ROOT / "tests/fake/cuda").glob("*.c")))
    subprocess.run(
        [*command, f"-I{folder}", *sources, "-o", str(path), "-ldl", "-lpthread"], check=True
    )
    return path


@pytest.fixture(scope="session")
def fake_cuda_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake driver's file."""
    return build_fake_cuda(tmp_path_factory.mktemp("cuda"))


@pytest.fixture(scope="session")
def fake_cuda_driver(fake_cuda_path: Path) -> CudaDriver:
    """The fake driver, opened once: a process can trace 16 tables."""
    return open_driver(str(fake_cuda_path))


@pytest.fixture
def fake_cuda(fake_cuda_path: Path, fake_cuda_driver: CudaDriver) -> Iterator[FakeCuda]:
    """The fake driver, open in this process."""
    library = ctypes.CDLL(str(fake_cuda_path))
    library.fake_cuda_fail.argtypes = [ctypes.c_char_p, ctypes.c_int]
    library.fake_cuda_calls.argtypes = [ctypes.c_char_p]
    found = FakeCuda(fake_cuda_path, fake_cuda_driver, library)
    yield found
    for function in found.driver.table.api.functions:
        found.fail(function, 0)
    found.fail("fake_cuda_import", 0)


def importer(fake: FakeCuda) -> Any:
    """How PoCL imports memory of the fake driver's: it lies in this process."""
    address = ctypes.cast(fake.library.fake_cuda_import, ctypes.c_void_p).value
    return ffi.cast("fl_cuda_import *", address)


@pytest.fixture
def cuda_on_pocl(
    fake_cuda: FakeCuda, pocl_wheel: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeCuda]:
    """PoCL shares its buffers with the fake driver, and its compiler gives `PTX`."""
    from fairlead.icd.drivers import platforms

    (device,) = next(one for one in platforms() if "Portable" in one.name).devices
    cuda_sharing.share_device(
        device.handle, fake_cuda.driver.devices[0], fake_cuda.driver, importer(fake_cuda)
    )
    monkeypatch.setattr(cuda_functions, "ptx_of", lambda program: PTX)
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "cuda")
    yield fake_cuda
    cuda_sharing.stop_sharing()
