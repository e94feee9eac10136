"""Launches that are given sizes and arguments at once: values of all sizes, objects, refusals."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_double, c_float, c_int, c_int8, c_size_t
from typing import Any

import pytest
from helpers.ze_bench import FOREVER, ZeBench
from helpers.ze_calls import array, new

from fairlead.icd.nvidia_ptx import PtxProgram
from fairlead.plugins.level_zero import kernels, modules, whole_launches
from fairlead.plugins.level_zero.in_c import UNKNOWN

LAUNCH = "zeCommandListAppendLaunchKernelWithArguments"
SOURCE = b"""
typedef struct { char tag; double value; int numbers[11]; } record;
kernel void take(global int *out, char small, record one, float4 four, local int *scratch,
                long large, short3 three) {
    scratch[get_local_id(0)] = get_local_id(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) == 0) {
        out[0] = small; out[1] = one.tag; out[2] = (int)one.value; out[3] = one.numbers[10];
        out[4] = (int)four.w; out[5] = (int)(large >> 32); out[6] = three.z;
        out[7] = scratch[get_local_size(0) - 1];
    }
}
kernel void nothing(void) {}
"""
PTX = """
.version 9.0
.target sm_90
.address_size 64
.entry sums(
    .param .u64 .ptr .global .align 4 sums_param_0,
    .param .u64 .ptr .shared .align 4 sums_param_1
)
{
    ret;
}
.entry add(
    .param .u64 .ptr .global .align 4 add_param_0,
    .param .u32 add_param_1
)
{
    ret;
}
"""


class Record(ctypes.Structure):
    """The struct of the kernel."""

    _fields_ = (("tag", c_int8), ("value", c_double), ("numbers", c_int * 11))


def places(*arguments: Any) -> Any:
    """Return the addresses of ctypes values, which live as long."""
    made = array(*map(ctypes.addressof, arguments))
    made.kept = arguments
    return made


def shape(groups: int = 1, size: int = 1) -> tuple[Any, Any]:
    """Return counts and sizes of groups."""
    counts = new("ze_group_count_t", groupCountX=groups, groupCountY=1, groupCountZ=1)
    return counts, new("ze_group_size_t", groupSizeX=size, groupSizeY=1, groupSizeZ=1)


def append(bench: ZeBench, made: int, kernel: int, arguments: Any, **sizes: int) -> str:
    return bench.ze.code(LAUNCH, made, kernel, *shape(**sizes), arguments)


def test_values_of_all_sizes(bench: ZeBench) -> None:
    bench.compiles = True
    out, immediate = bench.ints(count=8), bench.immediate()
    kernel = bench.kernel("take", module=bench.module(SOURCE))
    record = Record(2, 3.0, (c_int * 11)(*range(11)))
    four, three = (c_float * 4)(0, 0, 0, 4), (ctypes.c_int16 * 4)(0, 0, 6, 0)
    large = ctypes.c_int64(5 << 32)
    given = out.pointer, c_int8(1), record, four, c_size_t(16), large, three
    assert append(bench, immediate, kernel, places(*given), size=4) == "SUCCESS"
    bench.ze.ok("zeCommandListHostSynchronize", immediate, FOREVER)
    assert out.all == [1, 2, 3, 10, 4, 5, 6, 3]
    record.tag = 9  # the next launch reads them anew
    assert append(bench, immediate, kernel, places(*given), size=2) == "SUCCESS"
    bench.ze.ok("zeCommandListHostSynchronize", immediate, FOREVER)
    assert out.all == [1, 9, 3, 10, 4, 5, 6, 1]


def test_groups_that_run_together(bench: ZeBench) -> None:
    out, immediate = bench.ints(count=1), bench.immediate()
    desc = new("ze_command_list_append_launch_kernel_param_cooperative_desc_t")
    desc.stype, desc.isCooperative = 131126, True
    given = places(out.pointer, c_int(5))
    for groups, expected in ((1, "SUCCESS"), (2, "UNSUPPORTED_FEATURE")):
        end = byref(desc), None, 0, None
        kernel = bench.kernel("add")
        assert bench.ze.code(LAUNCH, immediate, kernel, *shape(groups), given, *end) == expected
    bench.ze.ok("zeCommandListHostSynchronize", immediate, FOREVER)
    assert out.all == [5]


def test_what_is_refused_changes_nothing(bench: ZeBench) -> None:
    out, immediate, kernel = bench.ints(count=4), bench.immediate(), bench.kernel("add", size=2)
    other = bench.ints(count=4)
    bench.set(kernel, 0, out.pointer)
    bench.set(kernel, 1, c_int(3))
    far = places(other.pointer, c_int(1))
    assert append(bench, immediate, kernel, far, size=1 << 30) == "INVALID_GROUP_SIZE_DIMENSION"
    null = places(other.pointer, c_int(1))
    null[1] = None
    assert append(bench, immediate, kernel, null) == "INVALID_NULL_POINTER"
    fence = new("ze_fence_desc_t")
    end = byref(fence), None, 0, None
    assert bench.ze.code(LAUNCH, bench.list(), kernel, *shape(), far, *end) == "UNSUPPORTED_FEATURE"
    bench.set(kernel, 0, out.pointer)
    bench.set(kernel, 1, c_int(3))
    bench.launch(immediate, kernel, 2)
    bench.ze.ok("zeCommandListHostSynchronize", immediate, FOREVER)
    assert (out.all[0], other.all) == (3, [0] * 4)


def test_a_struct_of_a_module_that_is_made_of_a_binary(bench: ZeBench) -> None:
    """Its text and its compiler tell nothing. PoCL takes a struct of any size."""
    out, immediate = bench.ints(count=8), bench.immediate()
    module = bench.build(bench.native(bench.module(SOURCE)))
    record = Record(2, 3.0, (c_int * 11)(*range(11)))
    four, three = (c_float * 4)(0, 0, 0, 4), (ctypes.c_int16 * 4)(0, 0, 6, 0)
    given = out.pointer, c_int8(1), record, four, c_size_t(16), ctypes.c_int64(5 << 32), three
    kernel = bench.kernel("take", module=module)
    assert append(bench, immediate, kernel, places(*given), size=4) == "SUCCESS"
    bench.ze.ok("zeCommandListHostSynchronize", immediate, FOREVER)
    assert out.all == [1, 2, 3, 10, 4, 5, 6, 3]


@pytest.fixture
def takes_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that takes values of any size, as PoCL takes structs."""
    take = whole_launches._SizeProbe, "takes"
    monkeypatch.setattr(*take, lambda self, index, size, value: value is not None)


@pytest.mark.usefixtures("takes_any_size")
def test_the_compiler_tells_sizes_where_the_driver_takes_any(bench: ZeBench) -> None:
    bench.compiles = True
    out, immediate = bench.ints(count=1), bench.immediate()
    given = places(out.pointer, c_int(5))
    assert append(bench, immediate, bench.kernel("add"), given) == "SUCCESS"
    bench.ze.ok("zeCommandListHostSynchronize", immediate, FOREVER)
    assert out.all == [5]


@pytest.mark.usefixtures("takes_any_size")
def test_a_size_that_nobody_tells(bench: ZeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no text of a module that is made of a binary."""
    monkeypatch.setattr(modules.ZeModule, "ptx", None)
    bench.kernel("add")
    again = ZeBench(bench.ze, bench.driver)
    given = places(again.ints(count=1).pointer, c_int(5))
    assert append(again, again.immediate(), again.kernel("add"), given) == "UNSUPPORTED_FEATURE"
    again.close()


@pytest.mark.parametrize("ptx", [True, False])
def test_a_driver_that_tells_nothing_of_arguments(
    bench: ZeBench, monkeypatch: pytest.MonkeyPatch, ptx: bool
) -> None:
    """What the driver takes tells what an argument is.

    With PTX nothing is tried, because that crashes NVIDIA's driver.
    """
    monkeypatch.setattr(kernels, "find_kind", lambda kernel, index: UNKNOWN)
    if ptx:
        monkeypatch.setattr(whole_launches, "_SizeProbe", None)
        monkeypatch.setattr(modules.ZeModule, "ptx", PtxProgram(PTX))
    out, immediate = bench.ints(count=4), bench.immediate()
    for kernel, value, shape, sum_ in (
        ("sums", c_size_t(16), {"size": 4}, 10),
        ("add", c_int(5), {"groups": 4}, 15),
    ):
        given = places(out.pointer, value)
        assert append(bench, immediate, bench.kernel(kernel), given, **shape) == "SUCCESS"
        bench.ze.ok("zeCommandListHostSynchronize", immediate, FOREVER)
        assert out.all == [sum_] * 4
