"""Copies, fills and regions of memory, and what memory is."""

from __future__ import annotations

import ctypes
import threading
from ctypes import byref

import pytest
from helpers.ze_bench import FOREVER, ZeBench
from helpers.ze_calls import new

from fairlead.icd._native import ffi
from fairlead.loader.ze.abi import ZE
from fairlead.plugins.level_zero.recording import ListRecording
from fairlead.plugins.level_zero.streams import Stream


@pytest.mark.parametrize("pattern", [b"x", b"ab", b"abc", b"abcdefgh"])
def test_memory_is_filled(bench: ZeBench, pattern: bytes) -> None:
    out, made = bench.ints(count=8), bench.list()
    bench.ze.ok("zeCommandListAppendMemoryFill", made, out.address, pattern, len(pattern), 24)
    bench.finish(made)
    assert out.raw == (pattern * 24)[:24] + bytes(8)


def test_what_was_built_is_kept_if_a_step_fails(
    bench: ZeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps before the one that failed may run, and use it."""
    out, made, kept = bench.ints(count=16), bench.immediate(), list[ListRecording]()
    drop_buffers = ListRecording.drop_buffers

    def fail(*_: object) -> None:
        kept.clear()  # what was built before
        raise MemoryError

    monkeypatch.setattr(Stream, "submit", fail)
    monkeypatch.setattr(
        ListRecording, "drop_buffers", lambda one: kept.append(one) or drop_buffers(one)
    )
    row = byref(new("ze_copy_region_t", width=4, height=2, depth=1))
    rows = (out.address, row, 16, 0), (out.address + 32, row, 16, 0)
    routine = "zeCommandListAppendMemoryCopyRegion"
    code = bench.ze.code(routine, made, *rows[0], *rows[1], None, 0, None)
    assert (code, len(kept)) == ("OUT_OF_HOST_MEMORY", 1)


def test_a_pitch_of_0_is_no_gap(bench: ZeBench) -> None:
    out, source, made = bench.ints(count=16), bench.ints(*range(16)), bench.list(in_order=True)
    box = byref(new("ze_copy_region_t", width=8, height=2, depth=2))
    right = byref(new("ze_copy_region_t", originX=4, width=8, height=2, depth=2))
    routine, rest = "zeCommandListAppendMemoryCopyRegion", (None, 0, None)
    bench.ze.ok(routine, made, out.address, box, 0, 0, source.address, right, 0, 0, *rest)
    bench.finish(made)
    assert out.all == [1, 2, 4, 5, 7, 8, 10, 11, *[0] * 8]


def test_regions_of_other_sizes_are_refused(bench: ZeBench) -> None:
    out, made = bench.ints(count=16), bench.list()
    one, two = (new("ze_copy_region_t", width=width, height=2, depth=1) for width in (4, 8))
    routine, rest = "zeCommandListAppendMemoryCopyRegion", (None, 0, None)
    places = (out.address, byref(one), 16, 0), (out.address, byref(two), 16, 0)
    assert bench.ze.code(routine, made, *places[0], *places[1], *rest) == "INVALID_SIZE"
    narrow = out.address, byref(two), 4, 0
    assert bench.ze.code(routine, made, *narrow, *narrow, *rest) == "INVALID_SIZE"


def test_what_an_address_is(bench: ZeBench) -> None:
    out = bench.ints(count=16)
    row, owner = new("ze_memory_allocation_properties_t"), ctypes.c_void_p()
    ask = bench.ze.ok, "zeMemGetAllocProperties", bench.context
    ask[0](ask[1], ask[2], out.address + 4, byref(row), byref(owner))
    kind = "SHARED" if bench.shares else "DEVICE"
    assert (row.type, owner.value) == (ZE[f"ZE_MEMORY_TYPE_{kind}"], bench.device)
    other = ctypes.create_string_buffer(8)
    ask[0](ask[1], ask[2], other, byref(row), byref(owner))
    assert (row.type, owner.value) == (ZE["ZE_MEMORY_TYPE_UNKNOWN"], None)
    base, size = ctypes.c_void_p(), ctypes.c_size_t()
    where = "zeMemGetAddressRange"
    bench.ze.ok(where, bench.context, out.address + 8, byref(base), byref(size))
    assert (base.value, size.value) == (out.address, 64)
    code = bench.ze.code(where, bench.context, other, byref(base), byref(size))
    assert code == "ADDRESS_NOT_FOUND"


def test_allocations_that_cannot_be_are_refused(bench: ZeBench) -> None:
    desc, made = new("ze_device_mem_alloc_desc_t"), ctypes.c_void_p()

    def allocate(size: int, alignment: int) -> str:
        given = bench.context, byref(desc), size, alignment, bench.device, byref(made)
        return bench.ze.code("zeMemAllocDevice", *given)

    assert allocate(0, 0) == "UNSUPPORTED_SIZE"
    assert allocate(1 << 62, 0) == "UNSUPPORTED_SIZE"
    for alignment, multiple in ((3, 4), (20, 32), (4096, 4096), (1 << 22, 1 << 22)):
        assert allocate(64, alignment) == "SUCCESS"
        assert (made.value or 1) % multiple == 0


def test_memory_is_freed_after_what_uses_it(bench: ZeBench) -> None:
    out, result = bench.ints(1, 2), bench.ints(count=2)
    made = bench.list()
    copy = "zeCommandListAppendMemoryCopy"
    bench.ze.ok(copy, made, result.address, out.address, 8, None, 0, None)
    bench.close_list(made)
    bench.run(made, wait=False)
    policy = new("ze_memory_free_ext_desc_t", freePolicy=1)
    bench.ze.ok("zeMemFreeExt", bench.context, policy, out.address)
    bench.ze.ok("zeCommandQueueSynchronize", bench.queue, FOREVER)
    assert result.all == [1, 2]


def test_memory_is_freed_later_and_the_call_does_not_wait(bench: ZeBench) -> None:
    """What uses it waits for the caller itself."""
    out, result, (gate,) = bench.ints(1, 2), bench.ints(count=2), bench.events(1)
    made = bench.list()
    bench.copy(made, result.address, out.address, 8, 0, gate)
    bench.close_list(made)
    bench.run(made, wait=False)
    policy = new("ze_memory_free_ext_desc_t", freePolicy=2)
    free = "zeMemFreeExt", bench.context, byref(policy), out.address
    bench.ze.ok(*free)
    assert bench.ze.code(*free) == "INVALID_ARGUMENT"
    assert bench.ze.code("zeMemFree", bench.context, out.address) == "INVALID_ARGUMENT"
    bench.ze.ok("zeEventHostSignal", gate)
    bench.ze.ok("zeCommandQueueSynchronize", bench.queue, FOREVER)
    assert result.all == [1, 2]
    # The next call that frees or allocates frees what can be freed.
    assert bench.ze.code("zeMemFree", bench.context, out.address) == "INVALID_ARGUMENT"
    row = new("ze_memory_allocation_properties_t")
    bench.ze.ok("zeMemGetAllocProperties", bench.context, out.address, row)
    assert row.type == ZE["ZE_MEMORY_TYPE_UNKNOWN"]


def test_a_fill_that_waited_for_the_host_keeps_its_pattern(bench: ZeBench) -> None:
    """The commands are enqueued by the signal, and run after the call that appended them."""
    may_go, (gate,), out = threading.Event(), bench.events(1), bench.ints(count=16)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: may_go.wait())
    made, size = bench.immediate(), 63  # no multiple of the pattern: it is copied, not filled
    holds = *(made, ctypes.cast(function, ctypes.c_void_p), None, None, None), 0, None
    bench.ze.ok("zeCommandListAppendHostFunction", *holds)
    pattern = ctypes.create_string_buffer(b"fairlead", 8)
    fill = made, out.pointer, pattern, 8, size, None, 1, byref(ctypes.c_void_p(gate))
    bench.ze.ok("zeCommandListAppendMemoryFill", *fill)
    bench.ze.ok("zeEventHostSignal", gate)
    others = [ffi.new("unsigned char[]", b"\xff" * size) for _ in range(100)]  # of freed memory
    may_go.set()
    bench.ze.ok("zeCommandListHostSynchronize", made, FOREVER)
    assert out.raw[:size] == (b"fairlead" * 8)[:size]
    del others
    bench.ze.ok("zeCommandListDestroy", made)
