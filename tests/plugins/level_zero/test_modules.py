"""Modules, their logs, kernels, and what is set on them."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int
from dataclasses import replace
from typing import Any

import pytest
from helpers.ze_bench import SOURCE, ZeBench
from helpers.ze_calls import new

from fairlead.plugins.level_zero import modules
from fairlead.plugins.opencl.platforms import platforms


def build(bench: ZeBench, source: bytes, format: int = 1) -> tuple[str, int, str]:
    """Return the code of a build, the module and the log."""
    text = ctypes.create_string_buffer(source, max(len(source), 1))
    desc = new("ze_module_desc_t", format=format, inputSize=len(source), pInputModule=text)
    module, log, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    given = bench.context, bench.device, byref(desc), byref(module), byref(log)
    code = bench.ze.code("zeModuleCreate", *given)
    if not log:
        return code, module.value or 0, ""
    bench.ze.ok("zeModuleBuildLogGetString", log, size)
    room = ctypes.create_string_buffer(size.value)
    bench.ze.ok("zeModuleBuildLogGetString", log, size, room)
    bench.ze.ok("zeModuleBuildLogDestroy", log)
    return code, module.value or 0, room.value.decode()


def test_ptx_is_a_binary(bench: ZeBench) -> None:
    """Only NVIDIA's driver takes it. For any driver it is no OpenCL C, although it is text."""
    code = build(bench, b"//\n\n.version 8.0\n.target sm_50\n.address_size 64\n")[0]
    assert code in ("INVALID_NATIVE_BINARY", "SUCCESS")
    assert build(bench, b"// .version 8.0\n" + SOURCE)[0] == "SUCCESS"


@pytest.mark.parametrize("breaks", [True, False])
def test_infos_of_arguments_may_break_a_build(
    bench: ZeBench, breaks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module is built again without them on a driver of which that is known."""
    compile_program = modules.build_program

    def refuse_infos(program: Any, devices: Any, options: str, **how: Any) -> None:
        if "-cl-kernel-arg-info" in options:
            raise modules.BuildError("syntax error")
        compile_program(program, devices, options, **how)

    monkeypatch.setattr(modules, "build_program", refuse_infos)
    for platform in platforms():
        profile = replace(platform.profile, argument_infos_break_builds=breaks)
        monkeypatch.setattr(platform, "profile", profile)
    code, module, log = build(bench, SOURCE)
    assert code == ("SUCCESS" if breaks else "MODULE_BUILD_FAILURE"), log
    assert breaks == bool(module)


def test_a_native_binary_makes_the_same_module(bench: ZeBench) -> None:
    size = ctypes.c_size_t()
    bench.ze.ok("zeModuleGetNativeBinary", bench.module(), size)
    whole = size.value
    binary = ctypes.create_string_buffer(whole)
    size.value = 0  # the function copies all, whatever the program leaves there
    bench.ze.ok("zeModuleGetNativeBinary", bench.module(), size, binary)
    assert size.value == whole
    code, module, _ = build(bench, binary.raw)
    assert code == "SUCCESS"
    assert sorted(bench.kernel_names(module)) == sorted(bench.kernel_names(bench.module()))
    text = ctypes.create_string_buffer(b"add")
    kernel = bench.ze.make("zeKernelCreate", module, new("ze_kernel_desc_t", pKernelName=text))
    out = bench.ints(1)
    bench.set(kernel, 0, out.pointer)
    bench.set(kernel, 1, c_int(41))
    made = bench.list()
    bench.launch(made, kernel)
    bench.close_list(made)
    bench.run(made)
    assert out[0] == 42


def test_wrong_settings_are_refused(bench: ZeBench) -> None:
    kernel, argument = bench.kernel("add"), "zeKernelSetArgumentValue"
    number = byref(ctypes.c_int64(1))
    for code, *given in (
        ("INVALID_KERNEL_ARGUMENT_INDEX", 2, 4, number),
        ("INVALID_KERNEL_ARGUMENT_SIZE", 0, 4, number),
        ("INVALID_KERNEL_ARGUMENT_SIZE", 1, 8, number),
        ("INVALID_KERNEL_ARGUMENT_SIZE", 1, 1 << 40, number),
        ("INVALID_KERNEL_ARGUMENT_SIZE", 1, 8, None),
    ):
        assert bench.ze.code(argument, kernel, *given) == code, given
    sizes = "zeKernelSetGroupSize"
    for wrong in ((0, 1, 1), (1 << 20, 1, 1), (4, 4, 1 << 16)):
        assert bench.ze.code(sizes, kernel, *wrong) == "INVALID_GROUP_SIZE_DIMENSION", wrong
    fours = bench.kernel("fours", size=4)
    assert bench.ze.code(sizes, fours, 8, 1, 1) == "INVALID_GROUP_SIZE_DIMENSION"
    text = ctypes.create_string_buffer(b"missing")
    made, desc = ctypes.c_void_p(), new("ze_kernel_desc_t", pKernelName=text)
    create = "zeKernelCreate", bench.module(), byref(desc), byref(made)
    assert bench.ze.code(*create) == "INVALID_KERNEL_NAME"


def test_null_stands_for_a_value_of_zeros(bench: ZeBench) -> None:
    """As on GPUs: Intel's adapters give NULL for eight bytes of zeros, also where nobody tells what
    the argument is."""
    out = bench.ints(5, 6)
    kernel = bench.kernel("mul", out.pointer, c_int(7))
    bench.ze.ok("zeKernelSetArgumentValue", kernel, 1, 4)
    code = bench.ze.code("zeKernelSetArgumentValue", kernel, 1, 1 << 40)
    assert code == "INVALID_KERNEL_ARGUMENT_SIZE"
    made = bench.list()
    bench.launch(made, kernel, 2)
    bench.close_list(made)
    bench.run(made)
    assert out.all == [0, 0]
