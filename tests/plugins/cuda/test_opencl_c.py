"""Programs of OpenCL C on CUDA: NVIDIA's compiler, and the translation of its PTX for each launch.

PoCL stands for NVIDIA's driver where a compiler is called. The PTX is a stored one.
"""

from __future__ import annotations

import ctypes
import struct
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.cuda import PTX, TranslatedOpenCL
from helpers.launching import last_error
from helpers.support import ROOT

from fairlead.icd.drivers import platforms
from fairlead.plugins.cuda import device_code, opencl_c
from fairlead.plugins.cuda.opencl_c import SourceError, is_opencl_c

from .conftest import COUNT, Knobs, Work, only_cuda
from .test_adapter import PTX as BINARY
from .test_adapter import program_of_binary
from .test_captures import Captures
from .test_command_buffers import Recorded, Updatable


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's compiler, which always gives the stored PTX."""
    monkeypatch.setattr(opencl_c, "_find_opencl", lambda device: SimpleNamespace())
    monkeypatch.setattr(opencl_c, "_compile", lambda found, source, options: PTX.encode())
    monkeypatch.setattr(device_code, "can_start_early", lambda device: False)


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


#: Writes what each work-item sees of the launch.
PLACES = b"""
kernel void places(global uint4 *out) {
    size_t y = get_global_id(1), z = get_global_id(2), width = get_global_size(1);
    size_t place = (y - get_global_offset(1)) + width * z;
    out[place] = (uint4)(get_group_id(1), get_num_groups(1), get_global_offset(1), y * 10 + z);
}
"""
#: The most work-groups that CUDA takes in y and in z.
MOST = 65535


@pytest.fixture
def translated(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's compiler gives a text that stays OpenCL C."""
    monkeypatch.setattr(opencl_c, "_find_opencl", lambda device: SimpleNamespace())
    monkeypatch.setattr(opencl_c, "_compile", lambda found, source, options: source)
    monkeypatch.setattr(opencl_c, "PtxProgram", TranslatedOpenCL)
    monkeypatch.setattr(device_code, "can_start_early", lambda device: False)


def _launch_at(work: Work, kernel: int, offset: Any, size: Any, local: Any, out: int) -> str:
    sizes = [(ctypes.c_size_t * 3)(*numbers) for numbers in (offset, size, local)]
    given = work.queue, kernel, 3, *sizes, *work.arguments(out), None, 0, None, None
    return work.ur("urEnqueueKernelLaunchWithArgsExp", *given)


def _append_at(buffer: Recorded, kernel: int, offset: Any, size: Any, local: Any, out: int) -> int:
    """Append such a launch. Returns its handle."""
    sizes = [(ctypes.c_size_t * 3)(*numbers) for numbers in (offset, size, local)]
    rows = buffer.work.arguments(out)
    return buffer.append("KernelLaunchWithArgs", kernel, 3, *sizes, *rows, 0, None)[2]


def _check_places(work: Work, out: int, size: Any, local: Any, offset: Any) -> None:
    """Check what `places` has written."""
    count = size[1] * size[2]
    found = np.frombuffer(work.get(out, 16 * count), np.uint32).reshape(count, 4)
    y, z = np.tile(np.arange(size[1]), size[2]), np.repeat(np.arange(size[2]), size[1])
    assert (found[:, 0] == y // local[1]).all()
    assert (found[:, 1] == size[1] // local[1]).all() and (found[:, 2] == offset[1]).all()
    assert (found[:, 3] == (y + offset[1]) * 10 + z).all()


@only_cuda
@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize(
    ("size", "local", "offset", "parts"),
    [
        ((1, 140_000, 1), (1, 1, 1), (0, 0, 0), 3),
        ((1, 2 * (MOST + 1), 1), (1, 2, 1), (0, 7, 0), 2),
        ((1, MOST + 2, 2), (1, 1, 1), (0, 3, 0), 2),
        ((1, MOST, 1), (1, 1, 1), (0, 0, 0), 1),
    ],
)
def test_a_launch_of_many_work_groups_has_parts(
    work: Work,
    fake: Knobs,
    translated: None,
    size: Any,
    local: Any,
    offset: Any,
    parts: int,
    recorded: bool,
) -> None:
    """Each part sees itself as a part of the whole."""
    kernel, out = work.kernel("places", PLACES), work.memory(size=16 * size[1] * size[2])
    name = "GraphAddKernelNode" if recorded else "LaunchKernel"
    before = fake.calls(name)
    if recorded:
        buffer = Recorded(work)
        _append_at(buffer, kernel, offset, size, local, out)
        buffer.finalize()
        buffer.run()
    else:
        assert _launch_at(work, kernel, offset, size, local, out) == "SUCCESS"
    assert fake.calls(name) - before == parts
    _check_places(work, out, size, local, offset)


@only_cuda
def test_updates_reach_all_parts(work: Work, fake: Knobs, translated: None) -> None:
    """A launch may lose parts, and have them back."""
    first, second = (work.memory(size=16 * 140_000) for _ in range(2))
    whole, little, ones, nowhere = (1, 140_000, 1), (1, 100, 1), (1, 1, 1), (0, 0, 0)
    buffer = Updatable(work)
    kernel = work.kernel("places", PLACES)
    command = _append_at(buffer, kernel, nowhere, whole, ones, first)
    buffer.finalize()
    buffer.run()
    for memory, size in ((second, whole), (second, little), (first, whole)):
        for cleared in (first, second):
            work.put(cleared, bytes(16 * 140_000))
        assert buffer.update(command, (0, memory), size=size, dimensions=3) == "SUCCESS"
        buffer.run()
        _check_places(work, memory, size, ones, nowhere)
        other = second if memory == first else first
        assert not any(work.get(other, 16 * 140_000))
        assert not any(work.get(memory, 16 * 140_000)[16 * size[1] :])
    fake.fail("GraphNodeSetEnabled", 1)
    assert buffer.update(command, size=little, dimensions=3) == "INVALID_VALUE"
    fake.heal()
    larger = buffer.update(command, size=(1, 4 * MOST, 1), dimensions=3)
    assert larger == "INVALID_WORK_GROUP_SIZE"
    assert "4 parts, and was appended with 3" in last_error(work.ur)[0]
    work.put(first, bytes(16 * 140_000))
    buffer.run()  # it is as before
    _check_places(work, first, whole, ones, nowhere)


@only_cuda
def test_a_capture_takes_all_parts_or_refuses(work: Work, fake: Knobs, translated: None) -> None:
    captures = Captures(work)
    whole, ones, nowhere = (1, MOST + 1, 1), (1, 1, 1), (0, 0, 0)
    out, buffer = work.memory(size=16 * whole[1]), Updatable(work)
    command = _append_at(buffer, work.kernel("places", PLACES), nowhere, whole, ones, out)
    buffer.finalize()
    captures.begin(work.queue)
    buffer.run()
    executable = captures.executable(captures.end(work.queue))
    captures.run(executable)
    _check_places(work, out, whole, ones, nowhere)
    assert buffer.update(command, size=(1, 1, 1), dimensions=3) == "SUCCESS"
    captures.begin(work.queue)
    code = work.ur("urEnqueueCommandBufferExp", work.queue, buffer.handle)
    assert code == "GRAPH_CAPTURE_UNSUPPORTED"
    captures.end(work.queue)


@only_cuda
def test_what_cannot_have_parts_says_why(work: Work, fake: Knobs, translated: None) -> None:
    kernel, out = work.kernel("places", PLACES), work.memory()

    code = _launch_at(work, kernel, (0, 0, 0), (1, 17 * MOST, 1), (1, 1, 1), out)
    assert code == "INVALID_WORK_GROUP_SIZE"
    assert f"of {MOST}: that is more than 16 parts" in last_error(work.ur)[0]
    binary = program_of_binary(work, BINARY)
    work.ur.ok("urProgramBuild", work.context, binary)
    plain = work.ur.make("urKernelCreate", binary, b"scale").value or 0
    text = f"{MOST + 1} work-groups in Z, of {MOST}: only OpenCL C that NVIDIA's compiler"
    rows = work.arguments(out, ctypes.c_int32(1), ctypes.c_int32(1))
    sizes = [(ctypes.c_size_t * 3)(*numbers) for numbers in ((1, 1, MOST + 1), (1, 1, 1))]
    given = work.queue, plain, 3, None, *sizes, *rows, None, 0, None, None
    assert work.ur("urEnqueueKernelLaunchWithArgsExp", *given) == "INVALID_WORK_GROUP_SIZE"
    assert text in last_error(work.ur)[0]


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
    program = work.ur.make("urProgramCreateWithIL", work.context, source, len(source))
    assert work.ur("urProgramBuild", work.context, program) == "PROGRAM_BUILD_FAILURE"


def test_a_compiler_of_opencl_is_called(pocl_wheel: Any) -> None:
    (device,) = next(one for one in platforms() if "Portable" in one.name).devices
    assert opencl_c._compile(device, b"kernel void f(global int *a) { *a = N; }", "-DN=3")
    with pytest.raises(SourceError, match="undeclared"):
        opencl_c._compile(device, b"kernel void f(global int *a) { *a = undeclared; }", "")


@pytest.mark.parametrize("begin", device_code.MAGIC)
def test_binaries_are_not_compiled(begin: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_ptx(*given: object) -> None:
        raise AssertionError("a binary was given to the compiler")

    monkeypatch.setattr(device_code, "compile_ptx", compile_ptx)
    monkeypatch.setattr(device_code, "check_fat_binary", lambda data, device: None)
    device: Any = SimpleNamespace(found=SimpleNamespace(capability=(9, 0)))
    assert device_code.build_code(device, begin + b" kernel", "").data == begin + b" kernel"


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
    monkeypatch.setattr(device_code, "can_start_early", lambda device: False)
    monkeypatch.setattr(opencl_c, "_find_opencl", lambda device: SimpleNamespace())
    monkeypatch.setattr(opencl_c, "_compile", lambda found, source, options: ptx)
    source = b"kernel void im() {}"
    program = work.ur.make("urProgramCreateWithIL", work.context, source, len(source))
    work.ur.ok("urProgramBuild", work.context, program)
    made = ctypes.byref(ctypes.c_void_p())
    assert work.ur("urKernelCreate", program, b"im", made) == "UNSUPPORTED_FEATURE"
    assert work.ur("urKernelCreate", program, b"none", made) == "INVALID_KERNEL_NAME"
    assert work.ur("urKernelCreate", program, b"", made) == "INVALID_KERNEL_NAME"
