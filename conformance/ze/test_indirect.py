"""Launches whose group counts are in memory."""

from __future__ import annotations

from ctypes import byref, c_int32, c_void_p

import pytest

from fairlead.conformance.checks import equal, rule
from fairlead.conformance.ze.calls import ZECalls, handles
from fairlead.conformance.ze.objects import Ints, ZEObjects

ONE = "zeCommandListAppendLaunchKernelIndirect"
SEVERAL = "zeCommandListAppendLaunchMultipleKernelsIndirect"


def append(make: ZEObjects, made: int, kernel: int, counts: Ints, signal: int = 0) -> None:
    make.ze.ok(ONE, made, kernel, c_void_p(counts.address), signal)


@pytest.mark.parametrize("in_order", [False, True])
@rule(ONE, "each execution of a list reads the group count anew")
def test_read_anew(make: ZEObjects, queue: int, in_order: bool) -> None:
    out, counts, made = make.ints(count=3), make.ints(1, 1, 1), make.list(in_order=in_order)
    append(make, made, make.kernel("store", out.pointer, c_int32(5)), counts)
    counts.fill(2, 1, 1)
    make.close_list(made)
    make.check_result(queue, made, out, 5, 5, 0)
    out.fill(0)
    counts.fill(3, 1, 1)
    make.check_result(queue, made, out, 5, 5, 5)
    out.fill(0)
    counts.fill(1, 1, 1)
    make.check_result(queue, made, out, 5, 0, 0)


@pytest.mark.parametrize("in_order", [False, True])
@rule(ONE, "reads what a kernel before it has written")
def test_written_before(make: ZEObjects, queue: int, in_order: bool) -> None:
    out, counts, made = make.ints(count=3), make.ints(1, 1, 1), make.list(in_order=in_order)
    make.launch(made, make.kernel("store", counts.pointer, c_int32(2)), 1)
    make.barrier(made)
    append(make, made, make.kernel("store", out.pointer, c_int32(5)), counts)
    make.close_list(made)
    make.check_result(queue, made, out, 5, 5, 0)


@rule(ONE, "no groups launch nothing, and the event is signaled")
def test_no_groups(make: ZEObjects, ze: ZECalls, queue: int) -> None:
    out, counts, made = make.ints(7), make.ints(0, 1, 1), make.list()
    (event,) = make.events()
    append(make, made, make.kernel("store", out.pointer, c_int32(5)), counts, event)
    make.close_list(made)
    make.check_result(queue, made, out, 7)
    ze.ok("zeEventQueryStatus", event)


@rule(ONE, "an immediate list reads the group count after the events that it waits for")
def test_immediate(make: ZEObjects, ze: ZECalls) -> None:
    out, counts, (gate, end) = make.ints(count=2), make.ints(1, 1, 1), make.events(2)
    kernel, made = make.kernel("store", out.pointer, c_int32(5)), make.immediate()
    ze.ok(ONE, made, kernel, c_void_p(counts.address), end, 1, handles(gate))
    ze.answers("NOT_READY", "zeEventQueryStatus", end)
    counts.fill(2, 1, 1)
    ze.ok("zeEventHostSignal", gate)
    make.finish(made, end)
    equal(out.all, [5, 5], "what the launch has written")


@rule(SEVERAL, "launches as many kernels as memory says, then signals its event")
def test_several(make: ZEObjects, ze: ZECalls, queue: int) -> None:
    number, counts = make.ints(2), make.ints(1, 1, 1, 2, 1, 1, 2, 1, 1)
    outs = [make.ints(count=2) for _ in range(3)]
    kernels = [make.kernel("store", out.pointer, c_int32(n)) for n, out in enumerate(outs, 1)]
    made, (event,) = make.list(), make.events()
    pointers = c_void_p(number.address), c_void_p(counts.address)
    ze.ok(SEVERAL, made, 3, handles(*kernels), *pointers, event)
    make.close_list(made)
    make.run(queue, made)
    ze.ok("zeEventQueryStatus", event)
    equal([out.all for out in outs], [[1, 0], [2, 2], [0, 0]], "what the launches have written")
    number.fill(3)
    make.run(queue, made)
    equal([out.all for out in outs], [[1, 0], [2, 2], [3, 3]], "what the launches have written")


@rule(ONE, "refuses NULL")
def test_null(make: ZEObjects, ze: ZECalls) -> None:
    counts, made = make.ints(1, 1, 1), make.list()
    where = c_void_p(counts.address)
    ze.refuses("INVALID_NULL_HANDLE", ONE, made, None, where)
    kernel = make.kernel("store", make.ints(0).pointer, c_int32(5))
    ze.refuses("INVALID_NULL_POINTER", ONE, made, kernel, None)
    for pointers in ((None, where), (byref(c_int32(1)), None)):
        ze.refuses("INVALID_NULL_POINTER", SEVERAL, made, 1, handles(kernel), *pointers)
