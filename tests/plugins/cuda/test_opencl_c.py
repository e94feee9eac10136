"""Programs of OpenCL C on CUDA: NVIDIA's compiler, and the translation of its PTX for each launch.

PoCL stands for NVIDIA's driver where a compiler is called. The PTX is a stored one.
"""

from __future__ import annotations

import ctypes
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.cuda import PTX
from helpers.support import ROOT

from fairlead.icd.drivers import platforms
from fairlead.plugins.cuda import images, opencl_c
from fairlead.plugins.cuda.opencl_c import SourceError, is_opencl_c

from .conftest import COUNT, Knobs, Work, only_cuda


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's compiler, which always gives the stored PTX."""
    monkeypatch.setattr(opencl_c, "_find_opencl", lambda device: SimpleNamespace())
    monkeypatch.setattr(opencl_c, "_compile", lambda found, source, options: PTX.encode())
    monkeypatch.setattr(images, "starts_early", lambda device: False)


def _launch(work: Work, kernel: int, offset: int, *values: Any) -> str:
    sizes = [(ctypes.c_size_t * 1)(number) for number in (offset, COUNT)]
    given = work.queue, kernel, 1, *sizes, None, *work.arguments(*values), None, 0, None, None
    return work.ur("urEnqueueKernelLaunchWithArgsExp", *given)


@only_cuda
def test_each_offset_has_a_module(work: Work, fake: Knobs, compiler: None) -> None:
    before = fake.calls("ModuleLoadDataEx")
    scale, out = work.kernel("scale", b"kernel void scale() {}"), work.memory()
    work.put(out, struct.pack(f"{COUNT}i", *[1] * COUNT))
    values = out, ctypes.c_int32(2), ctypes.c_int32(1)
    for offset in (0, 8, 0, 8, 16):
        assert _launch(work, scale, offset, *values) == "SUCCESS"
    assert fake.calls("ModuleLoadDataEx") - before == 3
    assert work.numbers(out) == [63] * COUNT  # five times y * 2 + 1


@only_cuda
def test_without_the_compiler_there_are_no_offsets(work: Work, fake: Knobs) -> None:
    values = work.memory(), ctypes.c_int32(1)
    assert _launch(work, work.kernel("store"), 8, *values) == "UNSUPPORTED_FEATURE"


@only_cuda
def test_a_text_that_cannot_be_translated_is_a_build_failure(
    work: Work, fake: Knobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opencl_c, "_find_opencl", lambda device: SimpleNamespace())
    monkeypatch.setattr(opencl_c, "_compile", lambda found, source, options: b"no PTX")
    source = b"kernel void scale() {}"
    program = work.ur.made("urProgramCreateWithIL", work.context, source, len(source), None)
    assert work.ur("urProgramBuild", work.context, program, None) == "PROGRAM_BUILD_FAILURE"


def test_a_compiler_of_opencl_is_called(pocl_wheel: Any) -> None:
    (device,) = next(one for one in platforms() if "Portable" in one.name).devices
    assert opencl_c._compile(device, b"kernel void f(global int *a) { *a = N; }", "-DN=3")
    with pytest.raises(SourceError, match="undeclared"):
        opencl_c._compile(device, b"kernel void f(global int *a) { *a = undeclared; }", "")


@pytest.mark.parametrize("begin", images.MAGIC)
def test_binaries_are_not_compiled(begin: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_ptx(*given: object) -> None:
        raise AssertionError("a binary was given to the compiler")

    monkeypatch.setattr(images, "compile_ptx", compile_ptx)
    monkeypatch.setattr(images, "check_fat_binary", lambda data, device: None)
    device: Any = SimpleNamespace(found=SimpleNamespace(capability=(9, 0)))
    assert images.build_image(device, begin + b" kernel", "").data == begin + b" kernel"


def test_the_compiler_is_known_by_its_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    """FAIRLEAD_QUIRKS switches it off like all that is known of a driver."""

    def device(name: str) -> SimpleNamespace:
        platform = SimpleNamespace(name=name, vendor="", version="OpenCL 3.0", table=None)
        one = SimpleNamespace(platform=platform, handle=1, extensions=("cl_khr_device_uuid",))
        platform.devices = (one,)
        return one

    other, wanted = device("Portable Computing Language"), device("NVIDIA CUDA")
    both = SimpleNamespace(platforms=(other.platform, wanted.platform))
    monkeypatch.setattr(opencl_c, "drivers", lambda: both)
    monkeypatch.setattr(opencl_c, "query", lambda *given: b"the same GPU")
    gpu: Any = SimpleNamespace(found=SimpleNamespace(uuid=b"the same GPU"))
    assert opencl_c._find_opencl(gpu) is wanted
    monkeypatch.setenv("FAIRLEAD_QUIRKS", "-nvidia-ptx")
    assert opencl_c._find_opencl(gpu) is None


def test_ptx_and_opencl_c_are_told_apart() -> None:
    assert is_opencl_c(b"kernel void f() {}")
    assert not is_opencl_c(PTX.encode())
    assert not is_opencl_c(b"\x7fELF")


@only_cuda
def test_a_kernel_with_images_is_unsupported(
    work: Work, fake: Knobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    ptx = (ROOT / "tests/icd/ptx/images.ptx").read_bytes()
    monkeypatch.setattr(images, "starts_early", lambda device: False)
    monkeypatch.setattr(opencl_c, "_find_opencl", lambda device: SimpleNamespace())
    monkeypatch.setattr(opencl_c, "_compile", lambda found, source, options: ptx)
    source = b"kernel void im() {}"
    program = work.ur.made("urProgramCreateWithIL", work.context, source, len(source), None)
    work.ur.ok("urProgramBuild", work.context, program, None)
    made = ctypes.byref(ctypes.c_void_p())
    assert work.ur("urKernelCreate", program, b"im", made) == "UNSUPPORTED_FEATURE"
    assert work.ur("urKernelCreate", program, b"none", made) == "INVALID_KERNEL_NAME"
    assert work.ur("urKernelCreate", program, b"", made) == "INVALID_KERNEL_NAME"
