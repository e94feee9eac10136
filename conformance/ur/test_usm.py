"""Unified shared memory: kinds, alignment, queries of addresses, copies and fills, 2D forms,
hints."""

from __future__ import annotations

import ctypes
from itertools import pairwise

import pytest

from fairlead.conformance.arrays import ints
from fairlead.conformance.checks import each, equal, failed, rule, unsupported
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.kinds import USM_KINDS, select_kinds
from fairlead.conformance.ur.objects import COUNT, SIZE, URObjects
from fairlead.conformance.ur.values import PointerValue
from fairlead.loader.ur.abi import UR

COPIES = [(source, target) for source in USM_KINDS for target in USM_KINDS]


@pytest.mark.parametrize(
    "kind", select_kinds("urUSM{}Alloc", "a copy in and a copy out give what was put in")
)
def test_round_trip(make: URObjects, queue: int, kind: str) -> None:
    memory = make.usm(kind)
    make.put(queue, memory, range(COUNT))
    equal(make.get(queue, memory), list(range(COUNT)), "what was copied out")


@pytest.mark.parametrize(
    "kind", select_kinds("urUSM{}Alloc", "a kernel writes it through its address")
)
def test_kernel(make: URObjects, queue: int, kind: str) -> None:
    memory = make.usm(kind)
    make.launch(queue, make.kernel(), PointerValue(memory), ints([21]))
    equal(make.get(queue, memory), [21] * COUNT, "what the kernel wrote")


@pytest.mark.parametrize(
    "kind",
    [
        p
        for p in select_kinds("urUSM{}Alloc", "the host reads and writes it directly")
        if p.id != "Device"
    ],
)
def test_host_access(ur: URCalls, make: URObjects, queue: int, kind: str) -> None:
    memory = make.usm(kind)
    numbers = (ctypes.c_int32 * COUNT).from_address(memory)
    numbers[:] = range(COUNT)
    make.launch(queue, make.kernel("twice"), PointerValue(memory))
    ur.ok("urQueueFinish", queue)
    equal(list(numbers), [2 * value for value in range(COUNT)], "what the host reads")


@pytest.mark.parametrize(
    "kind",
    select_kinds(
        "urUSMGetMemAllocInfo", "says of any address in it: type, beginning, size, device"
    ),
)
def test_info(ur: URCalls, make: URObjects, context: int, device: int, kind: str) -> None:
    memory = make.usm(kind)
    query = "urUSMGetMemAllocInfo", context, "UR_USM_ALLOC_INFO_{}"
    for place in (memory, memory + SIZE // 2):
        names = ("TYPE", "BASE_PTR", "SIZE")
        found = {name: ur.info(query[0], context, query[2].format(name), place) for name in names}
        base = found["BASE_PTR"]
        found["BASE_PTR"] = int.from_bytes(base, "little") if isinstance(base, bytes) else base
        equal(
            found,
            {"TYPE": UR[f"UR_USM_TYPE_{kind.upper()}"], "BASE_PTR": memory, "SIZE": SIZE},
            "what is said of it",
        )
    if kind != "Host":
        equal(ur.info(query[0], context, query[2].format("DEVICE"), memory), device, "the device")


@rule("urUSMGetMemAllocInfo", "an address that is not an allocation has UR_USM_TYPE_UNKNOWN")
def test_info_of_other_memory(ur: URCalls, make: URObjects, context: int) -> None:
    make.usm()
    data = ctypes.create_string_buffer(64)
    kind = ur.info(
        "urUSMGetMemAllocInfo", context, "UR_USM_ALLOC_INFO_TYPE", ctypes.addressof(data)
    )
    equal(UR.groups["ur_usm_type_t"].get(kind, kind), "UR_USM_TYPE_UNKNOWN", "the type")


@pytest.mark.parametrize("align", [1, 4, 8, 16, 64, 128])
@pytest.mark.parametrize(
    "kind", select_kinds("urUSM{}Alloc", "has the alignment that was asked for")
)
def test_alignment(
    ur: URCalls, make: URObjects, context: int, device: int, kind: str, align: int
) -> None:
    make.usm(kind)  # ends the case if the device has none
    how = ur.struct("ur_usm_desc_t", align=align)
    where = () if kind == "Host" else (device,)
    memory = make.own(
        "urUSMFree",
        context,
        ur.new(f"urUSM{kind}Alloc", context, *where, ctypes.byref(how), None, 3 * align),
    )
    equal(memory % align, 0, f"the address modulo {align}")


@pytest.mark.parametrize(
    "kind", select_kinds("urUSM{}Alloc", "allocations of 1 byte and of 16 MiB")
)
def test_sizes(ur: URCalls, make: URObjects, queue: int, kind: str) -> None:
    for size in (1, 3, 1 << 24):
        memory, out = make.usm(kind, size), ctypes.c_uint8()
        ur.ok("urEnqueueUSMFill", queue, memory, 1, b"\x07", size)
        ur.ok("urEnqueueUSMMemcpy", queue, True, out, memory + size - 1, 1)
        equal(out.value, 7, f"the last byte of {size}")


@pytest.mark.parametrize("kind", select_kinds("urUSM{}Alloc", "two allocations do not overlap"))
def test_apart(make: URObjects, kind: str) -> None:
    found = sorted(make.usm(kind) for _ in range(16))
    for low, high in pairwise(found):
        if high - low < SIZE:
            failed("addresses that are apart", f"{low:#x} and {high:#x}")


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        pytest.param(*pair, marks=rule("urEnqueueUSMMemcpy", f"from {pair[0]} to {pair[1]}"))
        for pair in COPIES
    ],
)
def test_copies(ur: URCalls, make: URObjects, queue: int, source: str, destination: str) -> None:
    first, second = make.usm(source), make.usm(destination)
    make.put(queue, first, range(COUNT))
    ur.ok("urEnqueueUSMMemcpy", queue, False, second, first, SIZE)
    equal(make.get(queue, second), list(range(COUNT)), "what was copied")


@rule("urEnqueueUSMMemcpy", "blocking: the memory is there when it returns")
def test_blocking_copy(ur: URCalls, make: URObjects, queue: int, memory: int) -> None:
    make.put(queue, memory, [5] * COUNT)
    data = ints([0] * COUNT)
    make.enqueue("urEnqueueUSMMemcpy", queue, True, data, memory, SIZE)
    equal(list(data), [5] * COUNT, "what was copied")


@rule("urEnqueueUSMMemcpy", "waits for the events of its list")
def test_copy_waits(ur: URCalls, make: URObjects, queue: int, memory: int) -> None:
    gate, data = make.user_event(), ints([1] * COUNT)
    make.put(queue, memory, [0] * COUNT)
    event = make.enqueue(
        "urEnqueueUSMMemcpy", queue, False, memory, data, SIZE, after=(gate.handle,)
    )
    data[:] = [2] * COUNT
    gate.complete()
    make.wait(event)
    equal(make.get(queue, memory), [2] * COUNT, "what a copy that had to wait copied")


@pytest.mark.parametrize(
    "size", each((1, 2, 3, 4, 5, 8, 16, 32, 64, 128), "urEnqueueUSMFill", "a pattern of {} bytes")
)
def test_fill(ur: URCalls, make: URObjects, queue: int, memory: int, size: int) -> None:
    pattern, whole = bytes(range(1, size + 1)), SIZE // size * size
    make.put(queue, memory, [0] * COUNT)
    ur.ok("urEnqueueUSMFill", queue, memory, size, pattern, whole)
    out = ctypes.create_string_buffer(SIZE)
    ur.ok("urEnqueueUSMMemcpy", queue, True, out, memory, SIZE)
    equal(out.raw, pattern * (SIZE // size) + b"\0" * (SIZE - whole), "the bytes")


@rule("urEnqueueUSMFill", "the pattern may be changed as soon as it returns")
def test_fill_copies_its_pattern(ur: URCalls, make: URObjects, queue: int, memory: int) -> None:
    pattern, gate = ints([3]), make.user_event()
    event = make.enqueue("urEnqueueUSMFill", queue, memory, 4, pattern, SIZE, after=(gate.handle,))
    pattern[0] = 4
    gate.complete()
    make.wait(event)
    equal(make.get(queue, memory), [3] * COUNT, "what was filled")


@rule("urEnqueueUSMMemcpy2D", "copies rows of different pitch")
def test_copy_2d(ur: URCalls, make: URObjects, queue: int) -> None:
    source, target = make.usm(), make.usm()
    make.put(queue, source, range(COUNT))
    make.put(queue, target, [-1] * COUNT)
    ur.ok("urEnqueueUSMMemcpy2D", queue, False, target, 64, source, 32, 16, 4)
    expected = [8 * (i // 16) + i % 16 if i % 16 < 4 else -1 for i in range(COUNT)]
    equal(make.get(queue, target), expected, "the target")


@rule("urEnqueueUSMFill2D", "fills a rectangle")
def test_fill_2d(ur: URCalls, make: URObjects, queue: int, memory: int) -> None:
    make.put(queue, memory, [0] * COUNT)
    ur.ok("urEnqueueUSMFill2D", queue, memory, 64, 4, ints([6]), 16, 3)
    expected = [6 if i % 16 < 4 and i < 48 else 0 for i in range(COUNT)]
    equal(make.get(queue, memory), expected, "the memory")


@rule("urEnqueueUSMPrefetch", "is a command with an event; a hint that is not supported is ignored")
def test_prefetch(ur: URCalls, make: URObjects, queue: int) -> None:
    memory = make.usm("Shared")
    make.put(queue, memory, range(COUNT))
    event = make.enqueue(
        "urEnqueueUSMPrefetch", queue, memory, SIZE, UR["UR_USM_MIGRATION_FLAG_HOST_TO_DEVICE"]
    )
    make.wait(event)
    equal(make.get(queue, memory), list(range(COUNT)), "the memory")


@pytest.mark.parametrize(
    "advice",
    each(
        sorted(UR.groups["ur_usm_advice_flags_t"].values()),
        "urEnqueueUSMAdvise",
        "{}: a hint, ignored if it is not supported",
    ),
)
def test_advise(ur: URCalls, make: URObjects, queue: int, advice: str) -> None:
    memory = make.usm("Shared")
    make.put(queue, memory, range(COUNT))
    event = ctypes.c_void_p()
    code = ur.code("urEnqueueUSMAdvise", queue, memory, SIZE, UR[advice], event)
    if event.value:
        make.events(event.value)
    if code not in (
        "UR_RESULT_SUCCESS",
        "UR_RESULT_ERROR_ADAPTER_SPECIFIC",
    ):  # the second with a warning for who asks
        failed("UR_RESULT_SUCCESS or a warning (UR_RESULT_ERROR_ADAPTER_SPECIFIC)", code)
    equal(make.get(queue, memory), list(range(COUNT)), "the memory")


@rule("urUSMContextMemcpyExp", "copies when it returns")
def test_context_copy(ur: URCalls, make: URObjects, context: int, queue: int) -> None:
    source, target = make.usm(), make.usm()
    make.put(queue, source, range(COUNT))
    if not ur.device_says("UR_DEVICE_INFO_USM_CONTEXT_MEMCPY_SUPPORT_EXP"):
        unsupported("the device answers UR_DEVICE_INFO_USM_CONTEXT_MEMCPY_SUPPORT_EXP with 0")
    ur.ok("urUSMContextMemcpyExp", context, target, source, SIZE)
    equal(make.get(queue, target), list(range(COUNT)), "the target")


@rule("urUSMImportExp", "host memory can be imported and released again")
def test_import(ur: URCalls, make: URObjects, context: int, queue: int) -> None:
    data = ints(range(COUNT))
    ur.ok("urUSMImportExp", context, data, SIZE)
    memory = make.usm()
    ur.ok("urEnqueueUSMMemcpy", queue, True, memory, data, SIZE)
    ur.ok("urUSMReleaseExp", context, data)
    equal(make.get(queue, memory), list(range(COUNT)), "what was copied from it")


@rule("urUSMPitchedAllocExp", "rows lie a pitch apart that holds them")
def test_pitched(ur: URCalls, make: URObjects, context: int, device: int) -> None:
    make.usm()
    pointer, pitch = ctypes.c_void_p(), ctypes.c_size_t()
    ur.ok("urUSMPitchedAllocExp", context, device, None, None, 60, 4, 4, pointer, pitch)
    make.own("urUSMFree", context, pointer.value or 0)
    if pitch.value < 60:
        failed("a pitch of 60 or more", pitch.value)


@rule("urEnqueueUSMDeviceAllocExp", "memory from a queue can be used and freed in the queue")
def test_asynchronous_allocation(ur: URCalls, make: URObjects, queue: int) -> None:
    ur.require("UR_DEVICE_INFO_ASYNC_USM_ALLOCATIONS_SUPPORT_EXP")
    pointer = ctypes.c_void_p()
    ur.ok("urEnqueueUSMDeviceAllocExp", queue, None, SIZE, None, 0, None, pointer)
    make.launch(queue, make.kernel(), PointerValue(pointer.value or 0), ints([2]))
    found = make.get(queue, pointer.value or 0)
    ur.ok("urEnqueueUSMFreeExp", queue, None, pointer)
    ur.ok("urQueueFinish", queue)
    equal(found, [2] * COUNT, "what a launch wrote")
