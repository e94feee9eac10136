"""Programs that are compiled, and linked: OpenCL C on CUDA and HIP, PTX and CUDA C on CUDA."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import pytest
from helpers.cuda import PTX
from helpers.ur_calls import array

from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.plugin import Plugin
from fairlead.plugins.cuda import device_code, opencl_c

from .conftest import COUNT, Adapted, Knobs, Work, only_cuda

PARTS = (
    b"int more(int value); kernel void store(global int *out, int value) { "
    b"out[get_global_id(0)] = more(value); }",
    b"int more(int value) { return value + 100; }",
)


def _programs(work: Work, *sources: bytes) -> list[int]:
    given = [(work.context, one, len(one), None) for one in sources]
    return [work.ur.make("urProgramCreateWithIL", *one).value or 0 for one in given]


def _build_info(work: Work, program: int, name: str, size: int = 4096) -> bytes:
    room, used = ctypes.create_string_buffer(size), ctypes.c_size_t()
    given = program, work.device, UR[f"UR_PROGRAM_BUILD_INFO_{name}"], size, room
    work.ur.ok("urProgramGetBuildInfo", *given, used)
    return room.raw[: used.value]


def _kind(work: Work, program: int) -> str:
    names = {UR[f"UR_PROGRAM_BINARY_TYPE_{one}"]: one for one in ("COMPILED_OBJECT", "EXECUTABLE")}
    return names.get(int.from_bytes(_build_info(work, program, "BINARY_TYPE"), "little"), "NONE")


def _run(work: Work, program: int, value: int) -> list[int]:
    kernel, out = work.ur.make("urKernelCreate", program, b"store").value or 0, work.memory()
    work.launch(kernel, out, ctypes.c_int32(value))
    return work.numbers(out)


@pytest.mark.parametrize("form", ["", "Exp"])
def test_programs_are_compiled_and_linked(work: Work, form: str) -> None:
    programs, devices = _programs(work, *PARTS), (1, array(work.device), 0)
    for program in programs:
        assert _kind(work, program) == "NONE"
        if form:
            work.ur.ok("urProgramCompileExp", program, *devices)
        else:
            work.ur.ok("urProgramCompile", work.context, program)
        assert _kind(work, program) == "COMPILED_OBJECT"
    given = len(programs), array(*programs), None
    linked = work.ur.make(
        f"urProgramLink{form}", work.context, *(devices if form else ()), *given
    ).value
    assert _kind(work, linked or 0) == "EXECUTABLE"
    for program in programs:
        work.ur.ok("urProgramRelease", program)
    assert _run(work, linked or 0, 5) == [105] * COUNT


def test_each_program_has_its_own_options(work: Work, adapted: Adapted) -> None:
    if adapted.plugin.backend == "cuda":
        pytest.skip("the driver of the tests gets the text, and no options")
    first, second = _programs(work, *(one.replace(b"value + 100", b"value + N") for one in PARTS))
    work.ur.ok("urProgramCompile", work.context, first)
    work.ur.ok("urProgramCompile", work.context, second, b"-DN=7")
    linked = work.ur.make("urProgramLink", work.context, 2, array(first, second)).value
    assert _run(work, linked or 0, 5) == [12] * COUNT


def test_what_cannot_be_linked(work: Work, gpu_plugin: Plugin) -> None:
    first, second, fresh = _programs(work, *PARTS, PARTS[1])
    link, made = ("urProgramLink", work.context), ctypes.byref(ctypes.c_void_p())
    for program in (first, second):
        work.ur.ok("urProgramCompile", work.context, program)
    assert work.ur(*link, 1, array(fresh), None, made) == "PROGRAM_LINK_FAILURE"
    assert work.ur(*link, 2, array(second, second), None, made) == "PROGRAM_LINK_FAILURE"
    words, number = ctypes.c_char_p(), ctypes.c_int32()
    given = gpu_plugin.handles[0], ctypes.byref(words), ctypes.byref(number)
    work.ur.ok("urAdapterGetLastError", *given)
    said = words.value or b""
    assert b"more" in said or said.startswith(b"clLinkProgram: ")  # NVIDIA's compiler gives no log
    assert work.ur(*link, 0, array(first), None, made) == "INVALID_SIZE"
    assert work.ur(*link, 1, array(work.device), None, made) == "INVALID_PROGRAM"


EXTERN = b""".version 8.0
.target sm_90
.address_size 64
.extern .func other
.visible .entry scale(.param .u64 a, .param .u32 b, .param .u32 c) { ret; }
"""
OTHER = b""".version 8.0
.target sm_90
.address_size 64
.visible .func other { ret; }
"""


@only_cuda
def test_ptx_is_linked_by_the_driver(work: Work, fake: Knobs) -> None:
    programs = _programs(work, EXTERN, OTHER)
    for program in programs:
        work.ur.ok("urProgramCompile", work.context, program)
    link, made = ("urProgramLink", work.context), ctypes.c_void_p()
    assert work.ur(*link, 1, array(programs[0]), None, ctypes.byref(made)) == "PROGRAM_LINK_FAILURE"
    linked = work.ur.make(*link, 2, array(*programs), None).value or 0
    kernel, out = work.ur.make("urKernelCreate", linked, b"scale").value or 0, work.memory()
    work.put(out, struct.pack(f"{COUNT}i", *range(COUNT)))
    work.launch(kernel, out, ctypes.c_int32(3), ctypes.c_int32(1))
    assert work.numbers(out) == [3 * number + 1 for number in range(COUNT)]


@only_cuda
@pytest.mark.parametrize("name", ["LinkCreate", "LinkAddData", "LinkComplete"])
def test_a_linker_that_fails_leaves_nothing(work: Work, fake: Knobs, name: str) -> None:
    programs = _programs(work, OTHER)
    work.ur.ok("urProgramCompile", work.context, programs[0])
    before = fake.calls("LinkDestroy")
    fake.fail(name, 2)
    made = ctypes.byref(ctypes.c_void_p())
    given = work.context, 1, array(*programs), None, made
    assert work.ur("urProgramLink", *given) == "OUT_OF_DEVICE_MEMORY"
    assert fake.calls("LinkDestroy") - before == (name != "LinkCreate")


@only_cuda
def test_opencl_c_is_linked_by_its_compiler(
    work: Work, fake: Knobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVIDIA's compiler gets the texts and their options, and its PTX is translated."""
    seen: list[Any] = []
    monkeypatch.setattr(device_code, "check_source", lambda *given: seen.append(given[1:]))

    def link(device: Any, sources: Any, options: str) -> Any:
        seen.append((sources, options))
        return opencl_c._read(PTX.encode())

    monkeypatch.setattr(device_code, "link_ptx", link)
    monkeypatch.setattr(device_code, "can_start_early", lambda device: False)
    first, second = _programs(work, b"kernel void scale() {}", b"kernel void total() {}")
    work.ur.ok("urProgramCompile", work.context, first, b"-DA")
    work.ur.ok("urProgramCompile", work.context, second, b"-DB")
    given = work.context, 2, array(first, second), b"-cl-fast-relaxed-math"
    linked = work.ur.make("urProgramLink", *given).value or 0
    sources = [(b"kernel void scale() {}", "-DA"), (b"kernel void total() {}", "-DB")]
    assert seen == [*sources, (sources, "-cl-fast-relaxed-math")]
    work.ur.make("urKernelCreate", linked, b"total")
    (ptx,) = _programs(work, OTHER)
    work.ur.ok("urProgramCompile", work.context, ptx)
    made = ctypes.byref(ctypes.c_void_p())
    code = work.ur("urProgramLink", work.context, 2, array(first, ptx), None, made)
    assert code == "PROGRAM_LINK_FAILURE"


def test_opencl_links_what_it_has_compiled(pocl_wheel: Any) -> None:
    """PoCL stands for NVIDIA's compiler."""
    from fairlead.icd.drivers import platforms

    (device,) = next(one for one in platforms() if "Portable" in one.name).devices
    parts = [(PARTS[0], ""), (PARTS[1].replace(b"100", b"N"), "-DN=3")]
    assert opencl_c._link(device, parts, "")
    with pytest.raises(opencl_c.SourceError, match="undeclared"):
        opencl_c._link(device, [(b"kernel void f(global int *a) { *a = undeclared; }", "")], "")
