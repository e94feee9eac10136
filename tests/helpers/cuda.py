"""A CUDA driver without a GPU (tests/fake/cuda), alone and beside PoCL."""

from __future__ import annotations

import ctypes
import gc
import runpy
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from fairlead.icd import cuda_sharing
from fairlead.icd._native import ffi
from fairlead.icd.command_buffer import cuda_functions, cuda_trust
from fairlead.icd.nvidia_ptx import PtxKernel, PtxParameter, PtxProgram, Variant
from fairlead.loader.base.abi import Api
from fairlead.loader.cuda.abi import CUDA
from fairlead.loader.cuda.driver import CudaDriver
from helpers.kept_files import KeptFiles, digest
from helpers.support import ROOT

_FOLDER: Final = ROOT / "tests/fake/cuda"

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


#: What the self-test's kernel has as parameters, as NVIDIA's compiler says it.
_PARAMETERS = (
    PtxParameter("out", "memory", 8, 8),
    PtxParameter("small", "value", 1, 1),
    PtxParameter("large", "value", 8, 8),
    PtxParameter("four", "value", 16, 16),
    PtxParameter("both", "value", 32, 16),
    PtxParameter("table", "memory", 8, 4),
    PtxParameter("nothing", "memory", 8, 4),
    PtxParameter("given", "local", 8, 8),
)


class TranslatedOpenCL:
    """A program that stays OpenCL C: its translation gives a launch's place and dimensions.

    It stands for `PtxProgram`. The fake driver lets PoCL compile the text.

    Args:
        text: the self-test's kernel, or another one.
    """

    can_wait, asks = False, Variant(1, (1, 1, 1))
    _registers = frozenset(range(10))
    choose_part = PtxProgram.choose_part

    def __init__(self, text: str) -> None:
        self.text = text
        self.kernels = {
            "fairlead_everything": PtxKernel("fairlead_everything", _PARAMETERS, None, None)
        }

    def variant(self, work_dim: int, offset: tuple[int, int, int]) -> Variant:
        return Variant(work_dim, offset)

    def translate(self, variant: Variant) -> str:
        offset, first, groups = (
            ", ".join(map(str, (*numbers, 0)))
            for numbers in (variant.offset, variant.first, variant.groups)
        )
        return f"""
constant uint fl_offset[4] = {{{offset}}};
constant uint fl_first[4] = {{{first}}}, fl_groups[4] = {{{groups}}};
static size_t fl_global_id(uint d) {{ return get_global_id(d) + fl_offset[d]; }}
static size_t fl_group_id(uint d) {{ return get_group_id(d) + fl_first[d]; }}
static size_t fl_num_groups(uint d) {{ return fl_groups[d] ? fl_groups[d] : get_num_groups(d); }}
static size_t fl_global_size(uint d) {{ return fl_num_groups(d) * get_local_size(d); }}
static size_t fl_global_offset(uint d) {{ return fl_offset[d] - fl_first[d] * get_local_size(d); }}
#define get_global_id(d) fl_global_id(d)
#define get_global_offset(d) fl_global_offset(d)
#define get_group_id(d) fl_group_id(d)
#define get_num_groups(d) fl_num_groups(d)
#define get_global_size(d) fl_global_size(d)
#define get_work_dim() {variant.work_dim}
{self.text}"""


class FakeGpu:
    """The file of a fake driver of a GPU, and its knobs."""

    def __init__(self, path: Path) -> None:
        self.path, self.library = path, ctypes.CDLL(str(path))
        self.library.fake_cuda_fail.argtypes = [ctypes.c_char_p, ctypes.c_int]
        self.library.fake_cuda_calls.argtypes = [ctypes.c_char_p]

    def fail(self, function: str, code: int) -> None:
        """Let a function of the driver return a code from now on; 0: it works again."""
        self.library.fake_cuda_fail(function.encode(), code)

    def set_device_count(self, count: int) -> None:
        """Let the driver have so many devices in this process, and not in its children."""
        self.library.fake_cuda_devices(count)

    def hold(self) -> None:
        """Let nothing begin on the device until `let_go`."""
        gc.collect()
        gc.disable()  # what an earlier test left waits at its end for the whole device
        self.library.fake_cuda_hold(1)

    def let_go(self) -> None:
        """Let the device go on."""
        self.library.fake_cuda_hold(0)
        gc.enable()

    def drain(self) -> None:
        """Wait until the device has done everything."""
        self.library.fake_drain()

    def calls(self, function: str) -> int:
        """How often a function was called."""
        return self.library.fake_cuda_calls(function.encode())


class FakeCuda(FakeGpu):
    """The fake CUDA driver: its library, opened by fairlead and for its knobs."""

    def __init__(self, path: Path, driver: CudaDriver) -> None:
        super().__init__(path)
        self.driver = driver


def compile_fake_gpu(
    path: Path, texts: Mapping[str, str], more: Iterable[Path] = (), *options: str
) -> Path:
    """Compile the C files of tests/fake/cuda, or copy what an earlier run has compiled.

    Args:
        path: the library. Generated files are written into its folder when it is compiled.
        texts: names and texts of generated files.
        more: C files that are compiled, too.
        options: of the compiler.
    """
    build = runpy.run_path(str(ROOT / "icd/native/build.py"))
    made = {
        "cuda_abi.h": build["emit_table_header"]("cuda"),
        "cuda_functions.h": prototypes(CUDA),
        "opencl_abi.h": build["emit_header"](),
        **texts,
    }
    command = ["cc", "-std=gnu11", "-O0", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    libraries = ["-ldl", "-lpthread"]

    def compile_it() -> None:
        for name, text in made.items():
            (path.parent / name).write_text(text, encoding="utf-8")
        sources = map(str, [*sorted(_FOLDER.glob("*.c")), *more])
        parts = *command, f"-I{path.parent}", *options, *sources, "-o", str(path), *libraries
        subprocess.run(parts, check=True)

    kept = KeptFiles(_FOLDER / "modules.c", [_FOLDER, _FOLDER.with_name("hip")], *command)
    kept.copy(digest([path.name, *made.values()]), path, compile_it)
    return path


def prototypes(api: Api) -> str:
    """Return C: a prototype for each function of an API."""
    lines = (f"fn_{function.name} {function.name};" for function in api.slots)
    return "\n".join(["#pragma once", *lines, ""])


def build_fake_cuda(folder: Path) -> Path:
    """Compile the fake driver as libcuda.so.1 in a folder."""
    return compile_fake_gpu(folder / "libcuda.so.1", {})


@pytest.fixture(scope="session")
def fake_cuda_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake driver's file."""
    return build_fake_cuda(tmp_path_factory.mktemp("cuda"))


@pytest.fixture(scope="session")
def fake_cuda_driver(fake_cuda_path: Path) -> CudaDriver:
    """The fake driver with two devices, opened once: a process can trace 16 tables."""
    FakeGpu(fake_cuda_path).set_device_count(2)
    return CudaDriver.open(str(fake_cuda_path))


@pytest.fixture
def fake_cuda(fake_cuda_path: Path, fake_cuda_driver: CudaDriver) -> Iterator[FakeCuda]:
    """The fake driver, open in this process."""
    found = FakeCuda(fake_cuda_path, fake_cuda_driver)
    yield found
    found.let_go()
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
    monkeypatch.setattr(cuda_functions, "query_ptx", lambda *_: PTX)
    monkeypatch.setattr(cuda_trust, "why_not_device", lambda device: None)
    monkeypatch.setenv("FAIRLEAD_COMMAND_BUFFER", "cuda")
    yield fake_cuda
    cuda_sharing.stop_sharing()
