"""Virtual memory: reserve, map physical memory, use, unmap, free."""

from __future__ import annotations

import ctypes

from fairlead.conformance.arrays import ints
from fairlead.conformance.checks import equal, failed, rule
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.objects import COUNT, URObjects
from fairlead.conformance.ur.values import PointerValue
from fairlead.loader.ur.abi import UR


@rule("urVirtualMemGranularityGetInfo", "the recommended step is a multiple of the smallest")
def test_granularity(ur: URCalls, make: URObjects, context: int, device: int) -> None:
    step = make.granularity()
    query = "UR_VIRTUAL_MEM_GRANULARITY_INFO_RECOMMENDED"
    recommended = ur.info("urVirtualMemGranularityGetInfo", context, query, device, 1)
    if step < 1 or recommended % step:
        failed("a multiple", (step, recommended))


@rule(
    "urVirtualMemReserve", "gives addresses that are aligned, and urVirtualMemFree takes them back"
)
def test_reserve(ur: URCalls, make: URObjects, context: int) -> None:
    step = make.granularity()
    start = ur.new("urVirtualMemReserve", context, None, 2 * step)
    ur.ok("urVirtualMemFree", context, start, 2 * step)
    equal(start % step, 0, "the address modulo the step")


@rule("urVirtualMemMap", "mapped memory can be used by a kernel")
def test_map(ur: URCalls, make: URObjects, context: int, queue: int) -> None:
    step = make.granularity()
    physical, start = make.physical(), ur.new("urVirtualMemReserve", context, None, step)
    flags = UR["UR_VIRTUAL_MEM_ACCESS_FLAG_READ_WRITE"]
    ur.ok("urVirtualMemMap", context, start, step, physical, 0, flags)
    make.launch(queue, make.kernel(), PointerValue(start), ints([3]))
    found = make.get(queue, start)
    access = ctypes.c_uint32()
    query = UR["UR_VIRTUAL_MEM_INFO_ACCESS_MODE"]
    ur.ok("urVirtualMemGetInfo", context, start, step, query, 4, access)
    ur.ok("urVirtualMemUnmap", context, start, step)
    ur.ok("urVirtualMemFree", context, start, step)
    equal(found, [3] * COUNT, "what the kernel wrote")
    equal(access.value, flags, "the access mode")


@rule("urPhysicalMemCreate", "INVALID_SIZE for a size that is not a multiple of the smallest step")
def test_odd_size(ur: URCalls, make: URObjects, context: int, device: int) -> None:
    size = make.granularity() + 1
    ur.fails("urPhysicalMemCreate", "INVALID_SIZE", context, device, size, None, ctypes.c_void_p())
