"""Launches that are given the sizes of groups and all arguments at once."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int32, c_size_t
from typing import Any

from fairlead.conformance.checks import equal, rule
from fairlead.conformance.ze.calls import ZECalls, handles, new
from fairlead.conformance.ze.objects import ZEObjects

LAUNCH = "zeCommandListAppendLaunchKernelWithArguments"


def list_addresses(*arguments: Any) -> Any:
    """Return the addresses of ctypes values, which live as long."""
    made = handles(*map(ctypes.addressof, arguments))
    made.kept = arguments
    return made


def make_shape(groups: int, size: int) -> tuple[Any, Any]:
    """Return counts and sizes of groups."""
    counts = new("ze_group_count_t", groupCountX=groups, groupCountY=1, groupCountZ=1)
    sizes = new("ze_group_size_t", groupSizeX=size, groupSizeY=1, groupSizeZ=1)
    return counts, sizes


@rule(LAUNCH, "launches so many groups of a size with these arguments")
def test_launch(make: ZEObjects, ze: ZECalls, queue: int) -> None:
    out, made = make.ints(count=4), make.list()
    given = out.pointer, c_int32(5)
    ze.ok(LAUNCH, made, make.kernel("store"), *make_shape(1, 3), list_addresses(*given))
    given[1].value = 9
    make.close_list(made)
    make.check_result(queue, made, out, 5, 5, 5, 0)


@rule(LAUNCH, "local memory is given by its size")
def test_local(make: ZEObjects, ze: ZECalls, queue: int) -> None:
    out, made = make.ints(count=4), make.list()
    given = list_addresses(out.pointer, c_size_t(16))
    ze.ok(LAUNCH, made, make.kernel("sums"), *make_shape(1, 4), given)
    make.close_list(made)
    make.check_result(queue, made, out, 10, 10, 10, 10)


@rule(LAUNCH, "what it is given stays set on the kernel")
def test_stays(make: ZEObjects, ze: ZECalls, queue: int) -> None:
    out, made, kernel = make.ints(count=4), make.list(), make.kernel("store", size=1)
    given = list_addresses(out.pointer, c_int32(5))
    ze.ok(LAUNCH, made, kernel, *make_shape(0, 2), given)
    make.launch(made, kernel, 2)
    make.close_list(made)
    make.check_result(queue, made, out, 5, 5, 5, 5)


@rule(LAUNCH, "an immediate list waits for events and signals one")
def test_immediate(make: ZEObjects, ze: ZECalls) -> None:
    out, made, (gate, end) = make.ints(count=2), make.immediate(), make.events(2)
    given = list_addresses(out.pointer, c_int32(5))
    ze.ok(LAUNCH, made, make.kernel("store"), *make_shape(2, 1), given, None, end, 1, handles(gate))
    ze.answers("NOT_READY", "zeEventQueryStatus", end)
    ze.ok("zeEventHostSignal", gate)
    make.finish(made, end)
    equal(out.all, [5, 5], "what the kernel has written")


@rule(LAUNCH, "refuses an extension that it does not know")
def test_extension(make: ZEObjects, ze: ZECalls) -> None:
    out, other = make.ints(count=1), new("ze_fence_desc_t")
    given = list_addresses(out.pointer, c_int32(5))
    end = byref(other), None, 0, None
    code = ze.code(LAUNCH, make.list(), make.kernel("store"), *make_shape(1, 1), given, *end)
    equal(code.startswith("ZE_RESULT_ERROR_"), True, "it answers an error")


@rule(LAUNCH, "refuses NULL, and groups that are too large")
def test_wrong(make: ZEObjects, ze: ZECalls) -> None:
    out, made, kernel = make.ints(count=1), make.list(), make.kernel("store")
    given = list_addresses(out.pointer, c_int32(5))
    ze.refuses("INVALID_NULL_HANDLE", LAUNCH, None, kernel, *make_shape(1, 1), given)
    ze.refuses("INVALID_NULL_HANDLE", LAUNCH, made, None, *make_shape(1, 1), given)
    ze.refuses("INVALID_NULL_POINTER", LAUNCH, made, kernel, *make_shape(1, 1), None)
    for size in (0, 1 << 30):
        ze.refuses(
            "INVALID_GROUP_SIZE_DIMENSION", LAUNCH, made, kernel, *make_shape(1, size), given
        )
    ze.refuses("INVALID_SIZE", LAUNCH, made, kernel, *make_shape(1, 1), given, None, None, 1)
