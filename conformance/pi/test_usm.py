"""Unified shared memory: allocation, commands, queries."""

from __future__ import annotations

import ctypes

import pytest

from fairlead.conformance.checks import equal, rule, unsupported
from fairlead.conformance.pi.objects import PIObjects, PIPointer, codes, waits
from fairlead.loader.pi.abi import PI

KINDS = ("host", "device", "shared")
INFO, COPY, SET = "piextUSMGetMemAllocInfo", "piextUSMEnqueueMemcpy", "piextUSMEnqueueMemset"


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            k, id=k, marks=rule(f"piextUSM{k.capitalize()}Alloc", "what is copied in is copied out")
        )
        for k in KINDS
    ],
)
def test_alloc(bare_objects: PIObjects, queue: int, kind: str) -> None:
    memory = bare_objects.usm(kind, range(64))
    equal(bare_objects.numbers(queue, memory, 64), list(range(64)), "the memory")


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            k, id=k, marks=rule(f"piextUSM{k.capitalize()}Alloc", "is aligned as was asked for")
        )
        for k in KINDS
    ],
)
def test_alignment(bare_objects: PIObjects, kind: str) -> None:
    equal(
        [
            bare_objects.usm(kind, [0] * 3, alignment) % max(alignment, 1)
            for alignment in (0, 1, 4, 64, 128)
        ],
        [0] * 5,
        "what is left",
    )


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(k, id=k, marks=rule(f"piextUSM{k.capitalize()}Alloc", "the host may use it"))
        for k in KINDS
        if k != "device"
    ],
)
def test_host_access(objects: PIObjects, queue: int, kind: str) -> None:
    memory = objects.usm(kind, [0] * 16)
    numbers = (ctypes.c_int32 * 16).from_address(memory)
    numbers[:] = range(16)
    objects.launch(queue, objects.kernel("increment", PIPointer(memory)), 16)
    objects.finish(queue)
    equal(list(numbers), list(range(1, 17)), "what the host sees")


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            k,
            id=k,
            marks=rule(INFO, f"says type, size and beginning of {k} USM, from its middle too"),
        )
        for k in KINDS
    ],
)
def test_info(bare_objects: PIObjects, kind: str) -> None:
    memory = bare_objects.usm(kind, [0] * 16)
    names = ("PI_MEM_ALLOC_TYPE", "PI_MEM_ALLOC_BASE_PTR", "PI_MEM_ALLOC_SIZE")
    answers = [bare_objects.number(INFO, bare_objects.context, memory + 8, name) for name in names]
    equal(answers, [PI[f"PI_MEM_TYPE_{kind.upper()}"], memory, 64], "type, beginning, size")


@rule(INFO, "PI_MEM_TYPE_UNKNOWN for memory that is not USM")
def test_info_of_host_memory(bare_objects: PIObjects) -> None:
    place = ctypes.create_string_buffer(64)
    kind = bare_objects.number(
        INFO, bare_objects.context, ctypes.addressof(place), "PI_MEM_ALLOC_TYPE"
    )
    equal(kind, PI["PI_MEM_TYPE_UNKNOWN"], "the type")


@rule("piextUSMFree", "an error if ptr is not USM, or nothing happens")
def test_free_of_nothing(bare_objects: PIObjects) -> None:
    codes(bare_objects.pi.piextUSMFree(bare_objects.context, None), "PI_SUCCESS", "INVALID_VALUE")


@rule(SET, "sets every byte")
def test_set(bare_objects: PIObjects, queue: int) -> None:
    memory = bare_objects.usm("shared", [0] * 8)
    bare_objects.call(SET, queue, memory + 4, 0x21, 16, 0, None, None)
    equal(bare_objects.numbers(queue, memory, 8), [0] + [0x21212121] * 4 + [0] * 3, "the memory")


@rule(COPY, "copies between the kinds")
@pytest.mark.parametrize("of", KINDS)
@pytest.mark.parametrize("to", KINDS)
def test_copy(bare_objects: PIObjects, queue: int, of: str, to: str) -> None:
    one, two = bare_objects.usm(of, range(32)), bare_objects.usm(to, [0] * 32)
    bare_objects.call(COPY, queue, False, two, one, 128, 0, None, None)
    equal(bare_objects.numbers(queue, two, 32), list(range(32)), "the memory")


@rule(COPY, "waits for events, and gives one")
def test_events(bare_objects: PIObjects, out_of_order: int) -> None:
    objects = bare_objects
    memory, other = objects.usm("shared", [0] * 1024), objects.usm("shared", [0] * 1024)
    event, last = ctypes.c_void_p(), []
    for value in (1, 2, 3):
        objects.call(SET, out_of_order, memory, value, 4096, *waits(*last), ctypes.byref(event))
        last = [objects.owned(event.value or 0, "pi_event")]
    objects.call(COPY, out_of_order, False, other, memory, 4096, *waits(*last), ctypes.byref(event))
    objects.call("piEventsWait", *waits(objects.owned(event.value or 0, "pi_event")))
    equal(objects.numbers(out_of_order, other, 1024), [0x03030303] * 1024, "the memory")


@rule("piextUSMEnqueuePrefetch", "is a hint: it succeeds, and its event completes")
def test_prefetch(bare_objects: PIObjects, queue: int) -> None:
    memory = bare_objects.usm("shared", [0] * 64)
    event = bare_objects.make("piextUSMEnqueuePrefetch", queue, memory, 256, 0, 0, None, ...)
    bare_objects.call("piEventsWait", *waits(event))
    equal(bare_objects.status(event), PI["PI_EVENT_COMPLETE"], "the status")


@rule("piextUSMEnqueueMemAdvise", "is a hint: it succeeds, and its event completes")
def test_advise(bare_objects: PIObjects, queue: int) -> None:
    memory = bare_objects.usm("shared", [0] * 64)
    event = bare_objects.make(
        "piextUSMEnqueueMemAdvise", queue, memory, 256, PI["PI_MEM_ADVICE_RESET"], ...
    )
    bare_objects.call("piEventsWait", *waits(event))
    equal(bare_objects.status(event), PI["PI_EVENT_COMPLETE"], "the status")


@rule("piextUSMEnqueueMemcpy2D", "copies rows")
def test_copy_2d(bare_objects: PIObjects, queue: int) -> None:
    source, target = bare_objects.usm("shared", range(16)), bare_objects.usm("shared", [0] * 16)
    arguments = (queue, True, target, 16, source + 4, 16, 8, 3, 0, None, None)
    code = bare_objects.pi.piextUSMEnqueueMemcpy2D(*arguments)
    if PI.errors[code][0] == "PI_ERROR_UNSUPPORTED_FEATURE":
        unsupported("the plugin has no two-dimensional copies")
    codes(code, "PI_SUCCESS")
    expected = [0] * 16
    for row in range(3):
        expected[4 * row : 4 * row + 2] = [4 * row + 1, 4 * row + 2]
    equal(bare_objects.numbers(queue, target, 16), expected, "the memory")


#: A call that writes 7 to two rows of eight bytes, 16 apart.
FILLS = {
    "piextUSMEnqueueFill2D": lambda memory: (memory, 16, 4, ctypes.byref(ctypes.c_int32(7)), 8, 2),
    "piextUSMEnqueueMemset2D": lambda memory: (memory, 16, 7, 8, 2),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, id=name, marks=rule(name, "fills rows, or is not supported"))
        for name in FILLS
    ],
)
def test_fill_2d(bare_objects: PIObjects, queue: int, name: str) -> None:
    memory = bare_objects.usm("shared", [0] * 8)
    code = getattr(bare_objects.pi, name)(queue, *FILLS[name](memory), 0, None, None)
    if PI.errors[code][0] == "PI_ERROR_UNSUPPORTED_FEATURE":
        return
    codes(code, "PI_SUCCESS")
    number = 7 if "Fill" in name else 0x07070707
    row = [number, number, 0, 0]
    equal(bare_objects.numbers(queue, memory, 8), row * 2, "the memory")


@rule("piKernelSetExecInfo", "takes PI_USM_INDIRECT_ACCESS, and PI_USM_PTRS")
def test_exec_info(objects: PIObjects, queue: int) -> None:
    memory = objects.usm("shared", [0] * 4)
    kernel, yes = objects.kernel("increment", PIPointer(memory)), ctypes.c_uint32(1)
    objects.call("piKernelSetExecInfo", kernel, PI["PI_USM_INDIRECT_ACCESS"], 4, ctypes.byref(yes))
    pointers = (ctypes.c_void_p * 1)(memory)
    objects.call("piKernelSetExecInfo", kernel, PI["PI_USM_PTRS"], 8, pointers)
    objects.launch(queue, kernel, 4)
    equal(objects.numbers(queue, memory, 4), [1] * 4, "the memory")
