"""Validation layers in front of a fake adapter with Python functions, which make objects as the ABI
says."""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.loader.base import layers
from fairlead.loader.base.abi import Api, Function, Parameter
from fairlead.loader.base.errors import FairleadError
from fairlead.loader.base.table import DispatchTable
from fairlead.loader.pi.abi import PI
from fairlead.loader.ur import validation
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.validation import BOUNDS, LEAK, LIFETIME, PARAMETER, Validation, layer_names

CODES = {name.removeprefix("UR_RESULT_ERROR_"): code for code, (name, _) in UR.errors.items()}
Attach = Callable[..., tuple[Any, Validation, list[str]]]


class Adapter:
    """Answers every function with UR_RESULT_SUCCESS, or with `answers`, and writes new objects to
    outputs.

    A handle points to the dispatch table, as a real adapter's does. `calls` are the functions that
    were called. `lists` are the objects of urAdapterGet, urPlatformGet and urDeviceGet; `infos` the
    answers of information queries.
    """

    def __init__(self) -> None:
        self.table = (ctypes.c_void_p * len(UR.slots))(*layers.stubs(UR, "unsupported"))
        self.address = ctypes.addressof(self.table)
        self._kept: list[Any] = []
        for function in UR.slots:
            call = function.prototype(self._function(function))
            self._kept.append(call)
            self.table[function.slot or 0] = ctypes.cast(call, ctypes.c_void_p).value
        self.reset()

    def reset(self) -> None:
        self.calls: list[str] = []
        self.answers: dict[str, int] = {}
        self.infos: dict[int, list[int]] = {}
        self.recycled: list[int] = []
        self.lists = {
            "urAdapterGet": [self.object()],
            "urPlatformGet": [self.object()],
            "urDeviceGet": [self.object(), self.object()],
        }

    def object(self) -> int:
        """A new handle."""
        if self.recycled:
            return self.recycled.pop()
        self._kept.append((ctypes.c_void_p * 8)(self.address))
        return ctypes.addressof(self._kept[-1])

    def _function(self, function: Function) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            self.calls.append(function.name)
            self._write(
                function,
                {p.name: value for p, value in zip(function.parameters, arguments, strict=True)},
            )
            return self.answers.get(function.name, 0)

        return call

    def _write(self, function: Function, values: dict[str, Any]) -> None:
        if function.name in self.lists:
            array, count, total = (
                list(values.values())[-2],
                values["NumEntries"],
                list(values.values())[-1],
            )
            self._fill(array, self.lists[function.name][:count] if array else [])
            self._fill(total, [len(self.lists[function.name])], ctypes.c_uint32)
        elif "pPropValue" in values and "pPropSizeRet" in values:
            info = self.infos.get(values["propName"], [])
            self._fill(values["pPropValue"], info)
            self._fill(values["pPropSizeRet"], [8 * len(info)])
        else:
            for p in function.parameters:
                if p.stars and (
                    (UR.resolve(p.type) == "handle" and "out" in p.words) or p.name == "ppMem"
                ):
                    self._fill(values[p.name], [self.object()])

    @staticmethod
    def _fill(address: int | None, words: Iterable[int], ctype: Any = ctypes.c_uint64) -> None:
        for i, word in enumerate(words if address else ()):
            ctype.from_address((address or 0) + i * ctypes.sizeof(ctype)).value = word


@pytest.fixture(scope="module")
def the_adapter() -> Adapter:
    return Adapter()


@pytest.fixture
def adapter(the_adapter: Adapter) -> Adapter:
    """One table for all tests: what was given to C is never freed, and there are 16 layers."""
    the_adapter.reset()
    return the_adapter


@pytest.fixture
def attach(adapter: Adapter) -> Iterator[Attach]:
    """`attach(PARAMETER, LIFETIME)` returns a table, its validation, and the reported lines."""
    attached: list[Validation] = []

    def start(*names: str) -> tuple[Any, Validation, list[str]]:
        lines: list[str] = []
        validated = Validation(names, report=lines.append)
        attached.append(validated)
        table = DispatchTable(UR, adapter.address)
        validated.attach(table)
        return table, validated, lines

    yield start
    for each in attached:
        each.close()


def handle() -> ctypes.c_void_p:
    return ctypes.c_void_p()


def array(*values: ctypes.c_void_p) -> Any:
    return (ctypes.c_void_p * len(values))(*values)


def make(create: Any, *arguments: Any) -> ctypes.c_void_p:
    """The object that a function gives through its last parameter."""
    made = handle()
    assert create(*arguments, ctypes.byref(made)) == 0
    return made


def devices(table: Any, count: int = 1) -> tuple[ctypes.c_void_p, Any]:
    """The platform, and its first devices, as a program finds them."""
    adapter, platform, found = handle(), handle(), (ctypes.c_void_p * count)()
    assert table.urAdapterGet(1, ctypes.byref(adapter), None) == 0
    assert table.urPlatformGet(adapter, 1, ctypes.byref(platform), None) == 0
    assert table.urDeviceGet(platform, UR["UR_DEVICE_TYPE_ALL"], count, found, None) == 0
    return platform, found


def context_of(table: Any) -> tuple[ctypes.c_void_p, ctypes.c_void_p]:
    """A device and a context for it."""
    _, found = devices(table)
    return ctypes.c_void_p(found[0]), make(table.urContextCreate, 1, found, None)


# Names


def names_and_lines(value: str) -> tuple[frozenset[str], list[str]]:
    lines: list[str] = []
    return layer_names({"UR_ENABLE_LAYERS": value}, report=lines.append), lines


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("", set()),
        (PARAMETER, {PARAMETER}),
        (f" {PARAMETER} , {LEAK},", {PARAMETER, LEAK}),
        (LIFETIME, {LIFETIME, LEAK}),
        ("UR_LAYER_FULL_VALIDATION", {PARAMETER, LIFETIME, LEAK}),
        (BOUNDS, {BOUNDS}),
        ("UR_LAYER_TRACING", set()),
    ],
)
def test_known_layers_are_found_without_a_word(value: str, names: set[str]) -> None:
    assert names_and_lines(value) == (names, [])


def test_no_layer_is_the_default() -> None:
    assert layer_names({}) == frozenset()


@pytest.mark.parametrize("sanitizer", ["UR_LAYER_ASAN", "UR_LAYER_MSAN", "UR_LAYER_TSAN"])
def test_a_sanitizer_is_refused_with_a_reason(sanitizer: str) -> None:
    names, (line,) = names_and_lines(f"{sanitizer},{LEAK}")
    assert names == {LEAK}
    assert sanitizer in line and "not offered" in line


def test_an_unknown_layer_is_named_once() -> None:
    names, (line,) = names_and_lines("UR_LAYER_NONSENSE,UR_LAYER_NONSENSE")
    assert not names
    assert "UR_LAYER_NONSENSE" in line and PARAMETER in line


# Parameters


MEMORY = (ctypes.c_uint64 * 64)()


def right_arguments(function: Function) -> list[Any]:
    """Arguments with which the parameter checks find nothing wrong. Pointers lead to MEMORY."""
    MEMORY[:] = [0x1000] * len(MEMORY)
    return [right_argument(p) for p in function.parameters]


def right_argument(p: Parameter) -> Any:
    base = UR.resolve(p.type)
    if p.type == "char" and p.stars == 1:
        return b"text"
    if p.stars or base == "callback":
        return ctypes.addressof(MEMORY)
    if base == "struct":
        return UR.struct(p.type)()
    if base == "handle":
        return 0x1000
    return next(iter(UR.groups[p.type])) if p.type in UR.groups else 1


@pytest.fixture
def refuse(attach: Attach) -> Callable[[Function, str | None, Any], tuple[int, list[str]]]:
    """Calls a function with one argument replaced. Returns its answer and the reported lines."""
    table, _, lines = attach(PARAMETER)

    def call(function: Function, name: str | None, value: Any) -> tuple[int, list[str]]:
        lines.clear()
        values = right_arguments(function)
        for i, p in enumerate(function.parameters):
            if p.name == name:
                values[i] = value or (None if p.stars else 0)
        return getattr(table, function.name)(*values), list(lines)

    return call


def parameters(wanted: Callable[[Parameter], object]) -> list[tuple[Function, Parameter]]:
    return [(f, p) for f in UR.slots for p in f.parameters if wanted(p)]


def is_handle(p: Parameter) -> bool:
    return not p.stars and UR.resolve(p.type) == "handle"


def test_right_arguments_reach_every_function(refuse: Any, adapter: Adapter) -> None:
    assert {f.name: answer for f in UR.slots if (answer := refuse(f, None, 0)) != (0, [])} == {}
    assert adapter.calls == [f.name for f in UR.slots]


@pytest.mark.parametrize(
    ("wanted", "value", "code"),
    [
        pytest.param(
            lambda p: is_handle(p) and "optional" not in p.words,
            0,
            "INVALID_NULL_HANDLE",
            id="handle",
        ),
        pytest.param(
            lambda p: (p.stars or UR.resolve(p.type) == "callback") and "optional" not in p.words,
            0,
            "INVALID_NULL_POINTER",
            id="pointer",
        ),
        pytest.param(
            lambda p: p.type in UR.groups and not p.stars,
            0x7FFFFFF0,
            "INVALID_ENUMERATION",
            id="enumeration",
        ),
        pytest.param(
            lambda p: UR.is_bitfield(p.type) and not p.stars,
            0x40000000,
            "INVALID_ENUMERATION",
            id="flags",
        ),
    ],
)
def test_every_function_is_guarded(
    refuse: Any, adapter: Adapter, wanted: Any, value: int, code: str
) -> None:
    """A forbidden NULL, or a value or bit that the type lacks, is refused and reported once.

    The adapter is not called.
    """
    guarded = parameters(wanted)
    assert len(guarded) > 10
    for function, p in guarded:
        answer, lines = refuse(function, p.name, value)
        assert (function.name, p.name, answer) == (function.name, p.name, CODES[code])
        assert (
            len(lines) == 1
            and lines[0].startswith(f"{function.name}: {p.name}: ")
            and code in lines[0]
        )
    assert not adapter.calls


def test_optional_handles_and_pointers_may_be_null(refuse: Any) -> None:
    alone = parameters(
        lambda p: (
            "optional" in p.words
            and not p.length
            and (p.stars or is_handle(p))
            and p.name != "pSyncPointWaitList"
        )
    )
    assert [(f.name, p.name) for f, p in alone if refuse(f, p.name, 0) != (0, [])] == []


@pytest.mark.parametrize(
    ("function", "count", "wait_list", "code"),
    [
        (
            "urEnqueueEventsWait",
            "numEventsInWaitList",
            "phEventWaitList",
            "INVALID_EVENT_WAIT_LIST",
        ),
        (
            "urCommandBufferAppendUSMMemcpyExp",
            "numEventsInWaitList",
            "phEventWaitList",
            "INVALID_EVENT_WAIT_LIST",
        ),
        (
            "urCommandBufferAppendUSMMemcpyExp",
            "numSyncPointsInWaitList",
            "pSyncPointWaitList",
            "INVALID_COMMAND_BUFFER_SYNC_POINT_WAIT_LIST_EXP",
        ),
        (
            "urCommandBufferAppendKernelLaunchExp",
            "numKernelAlternatives",
            "phKernelAlternatives",
            "INVALID_VALUE",
        ),
    ],
)
def test_a_list_and_its_length_belong_together(
    refuse: Any, function: str, count: str, wait_list: str, code: str
) -> None:
    for name in (count, wait_list):
        answer, (line,) = refuse(UR.functions[function], name, 0)
        assert answer == CODES[code]
        assert line.startswith(f"{function}: {wait_list}: ")


def test_arguments_may_only_be_null_if_there_are_none(refuse: Any) -> None:
    function = UR.functions["urEnqueueKernelLaunchWithArgsExp"]
    assert refuse(function, "pArgs", 0)[0] == CODES["INVALID_NULL_POINTER"]
    assert refuse(function, "numArgs", 0) == (0, [])


def test_room_for_no_objects_is_refused(refuse: Any) -> None:
    for name in ("urAdapterGet", "urPlatformGet", "urDeviceGet"):
        assert refuse(UR.functions[name], "NumEntries", 0)[0] == CODES["INVALID_SIZE"]


def test_an_empty_wait_list_is_refused_where_there_must_be_one(refuse: Any) -> None:
    assert (
        refuse(UR.functions["urEventWait"], "phEventWaitList", 0)[0]
        == CODES["INVALID_NULL_POINTER"]
    )


@pytest.mark.parametrize(
    ("function", "element", "code"),
    [
        ("urEnqueueEventsWait", "phEventWaitList[1]", "INVALID_EVENT_WAIT_LIST"),
        ("urEventWait", "phEventWaitList[1]", "INVALID_NULL_HANDLE"),
    ],
)
def test_null_in_a_list_is_found(attach: Attach, function: str, element: str, code: str) -> None:
    table, _, lines = attach(PARAMETER)
    events = (ctypes.c_void_p * 2)(0x1000, None)
    arguments = (0x1000, 2, events, None) if function == "urEnqueueEventsWait" else (2, events)
    assert getattr(table, function)(*arguments) == CODES[code]
    assert element in lines[0]


@pytest.mark.parametrize(
    ("size", "value", "returned", "code"),
    [
        (8, True, True, None),
        (8, True, False, None),
        (0, False, True, None),
        (0, True, True, "INVALID_SIZE"),
        (8, False, True, "INVALID_NULL_POINTER"),
        (0, False, False, "INVALID_NULL_POINTER"),
    ],
)
def test_information_queries(
    attach: Attach, size: int, value: bool, returned: bool, code: str | None
) -> None:
    table, _, lines = attach(PARAMETER)
    word = ctypes.c_uint64()
    address = ctypes.addressof(word)
    for function in UR.slots:
        name = next((p.name for p in function.parameters if p.type_from), "")
        if name != "" and any(p.name == "pPropSizeRet" for p in function.parameters):
            lines.clear()
            values = dict(
                zip((p.name for p in function.parameters), right_arguments(function), strict=True)
            )
            values |= {
                "propSize": size,
                "pPropValue": address * value,
                "pPropSizeRet": address * returned,
            }
            assert getattr(table, function.name)(*values.values()) == (
                CODES[code] if code else 0
            ), function.name
            assert len(lines) == bool(code)


def test_what_is_wrong_is_said_with_the_line_that_called(attach: Attach) -> None:
    table, _, lines = attach(PARAMETER)
    assert table.urContextRelease(None) == CODES["INVALID_NULL_HANDLE"]  # this line
    assert len(lines) == 1 and "\n" not in lines[0]
    assert lines[0].startswith(
        "urContextRelease: hContext: it is NULL; answered UR_RESULT_ERROR_INVALID_NULL_HANDLE; "
        "called at "
    )
    assert f"{__file__}:" in lines[0] and lines[0].endswith("# this line")


# Objects


def run_a_program(table: Any) -> list[tuple[str, ctypes.c_void_p]]:
    """A program that uses everything as it should: gives what there is to release, in order."""
    platform, found = devices(table, 2)
    device = ctypes.c_void_p(found[0])
    context = make(table.urContextCreate, 2, found, None)
    queue = make(table.urQueueCreate, context, device, None)
    buffer = make(table.urMemBufferCreate, context, UR["UR_MEM_FLAG_READ_WRITE"], 64, None)
    region = UR.struct("ur_buffer_region_t")(UR["UR_STRUCTURE_TYPE_BUFFER_REGION"], None, 0, 32)
    part = make(
        table.urMemBufferPartition,
        buffer,
        UR["UR_MEM_FLAG_READ_WRITE"],
        UR["UR_BUFFER_CREATE_TYPE_REGION"],
        ctypes.byref(region),
    )
    memory = make(table.urUSMDeviceAlloc, context, device, None, None, 64)
    program = make(table.urProgramCreateWithIL, context, b"IL", 2, None)
    assert table.urProgramBuild(context, program, None) == 0
    kernel = make(table.urKernelCreate, program, b"name")
    write = handle()
    data = ctypes.create_string_buffer(64)
    assert (
        table.urEnqueueMemBufferWrite(
            queue, buffer, False, 0, 64, data, 0, None, ctypes.byref(write)
        )
        == 0
    )
    copy = handle()
    assert (
        table.urEnqueueUSMMemcpy(
            queue, False, memory, data, 64, 1, array(write), ctypes.byref(copy)
        )
        == 0
    )
    assert (
        table.urEnqueueMemBufferRead(queue, part, True, 0, 32, data, 2, array(write, copy), None)
        == 0
    )
    assert table.urEventWait(2, array(write, copy)) == 0
    assert table.urQueueRetain(queue) == 0
    assert table.urQueueRelease(queue) == 0
    assert table.urQueueFinish(queue) == 0
    assert table.urUSMFree(context, memory) == 0
    assert table.urPlatformGetInfo(platform, UR["UR_PLATFORM_INFO_NAME"], 64, data, None) == 0
    objects = [
        *(("urEventRelease", event) for event in (copy, write)),
        *(
            ("urKernelRelease", kernel),
            ("urProgramRelease", program),
            ("urMemRelease", part),
            ("urMemRelease", buffer),
        ),
        *(("urQueueRelease", queue), ("urContextRelease", context)),
        *(("urDeviceRelease", ctypes.c_void_p(each)) for each in found),
    ]
    for release, made in objects:
        assert getattr(table, release)(made) == 0
    return objects


def test_a_right_program_is_left_alone(attach: Attach, adapter: Adapter) -> None:
    table, validated, lines = attach(PARAMETER, LIFETIME, LEAK, BOUNDS)
    run_a_program(table)
    assert table.urAdapterRelease(ctypes.c_void_p(adapter.lists["urAdapterGet"][0])) == 0
    assert validated.leaks() == []
    validated.close()
    assert lines == []


def test_a_second_program_may_get_the_same_addresses(attach: Attach, adapter: Adapter) -> None:
    table, validated, lines = attach(PARAMETER, LIFETIME)
    adapter.recycled = [
        made.value or 0 for name, made in run_a_program(table) if name != "urDeviceRelease"
    ]
    run_a_program(table)
    assert [leak.kind for leak in validated.leaks()] == ["ur_adapter_handle_t"]
    assert lines == []


OBJECTS = {
    "context": ("INVALID_CONTEXT", "urContextRelease"),
    "queue": ("INVALID_QUEUE", "urQueueRelease"),
    "mem": ("INVALID_MEM_OBJECT", "urMemRelease"),
    "sampler": ("INVALID_SAMPLER", "urSamplerRelease"),
    "usm_pool": ("INVALID_NULL_HANDLE", "urUSMPoolRelease"),
    "command_buffer": ("INVALID_COMMAND_BUFFER_EXP", "urCommandBufferReleaseExp"),
}


def make_one(table: Any, kind: str) -> ctypes.c_void_p:
    device, context = context_of(table)
    anything = ctypes.create_string_buffer(64)
    return {
        "context": lambda: context,
        "queue": lambda: make(table.urQueueCreate, context, device, None),
        "mem": lambda: make(
            table.urMemBufferCreate, context, UR["UR_MEM_FLAG_READ_WRITE"], 64, None
        ),
        "sampler": lambda: make(table.urSamplerCreate, context, anything),
        "usm_pool": lambda: make(table.urUSMPoolCreate, context, anything),
        "command_buffer": lambda: make(table.urCommandBufferCreateExp, context, device, anything),
    }[kind]()


@pytest.mark.parametrize("kind", OBJECTS)
def test_a_second_release_is_refused(attach: Attach, adapter: Adapter, kind: str) -> None:
    table, _, lines = attach(LIFETIME)
    made, (code, release) = make_one(table, kind), OBJECTS[kind]
    assert getattr(table, release)(made) == 0  # the last one
    assert getattr(table, release)(made) == CODES[code]
    assert adapter.calls.count(release) == 1
    (line,) = lines
    assert f"{made.value:#x}" in line and "# the last one" in line and "test_validation.py" in line


def test_use_after_release_is_refused(attach: Attach) -> None:
    table, _, lines = attach(LIFETIME)
    queue = make_one(table, "queue")
    assert table.urQueueRelease(queue) == 0
    assert table.urQueueFinish(queue) == CODES["INVALID_QUEUE"]
    assert lines[0].startswith("urQueueFinish: hQueue: ur_queue_handle_t")


def test_an_object_of_another_kind_is_refused(attach: Attach) -> None:
    table, _, lines = attach(LIFETIME)
    assert table.urContextRetain(make_one(table, "queue")) == CODES["INVALID_CONTEXT"]
    assert "it is a ur_queue_handle_t" in lines[0]


def test_an_invented_handle_is_refused(attach: Attach) -> None:
    table, _, lines = attach(LIFETIME)
    invented = ctypes.create_string_buffer(64)
    for bad in (0x1234, ctypes.addressof(invented)):
        assert table.urQueueFinish(bad) == CODES["INVALID_QUEUE"]
    assert len(lines) == 2


def test_a_released_event_in_a_wait_list_is_refused(attach: Attach, adapter: Adapter) -> None:
    table, _, lines = attach(LIFETIME)
    queue = make_one(table, "queue")
    good, bad = (make(table.urEnqueueEventsWait, queue, 0, None) for _ in range(2))
    assert table.urEventRelease(bad) == 0
    assert (
        table.urEnqueueEventsWait(queue, 2, array(good, bad), None)
        == CODES["INVALID_EVENT_WAIT_LIST"]
    )
    assert table.urEventWait(2, array(good, bad)) == CODES["INVALID_EVENT"]
    assert all("phEventWaitList[1]" in line for line in lines)
    assert table.urEventWait(1, array(good)) == 0


def test_a_failed_call_changes_nothing(attach: Attach, adapter: Adapter) -> None:
    table, validated, lines = attach(LIFETIME)
    queue = make_one(table, "queue")
    adapter.answers = dict.fromkeys(
        ("urQueueRelease", "urQueueRetain", "urQueueCreate"), CODES["OUT_OF_RESOURCES"]
    )
    device, context = context_of(table)
    assert (
        table.urQueueCreate(context, device, None, ctypes.byref(handle()))
        == CODES["OUT_OF_RESOURCES"]
    )
    for call in (table.urQueueRelease, table.urQueueRetain, table.urQueueRelease):
        assert call(queue) == CODES["OUT_OF_RESOURCES"]
    assert [leak.count for leak in validated.leaks() if leak.kind == "ur_queue_handle_t"] == [1]
    assert lines == []


def test_what_a_query_gives_may_be_used_but_not_released(attach: Attach, adapter: Adapter) -> None:
    """A queue keeps its context alive after the program has released it."""
    table, _, lines = attach(PARAMETER, LIFETIME)
    device, context = context_of(table)
    queue = make(table.urQueueCreate, context, device, None)
    assert table.urContextRelease(context) == 0
    adapter.infos[UR["UR_QUEUE_INFO_CONTEXT"]] = [context.value or 0]
    again = handle()
    assert (
        table.urQueueGetInfo(queue, UR["UR_QUEUE_INFO_CONTEXT"], 8, ctypes.byref(again), None) == 0
    )
    make(table.urQueueCreate, again, device, None)
    assert not lines
    assert table.urContextRetain(again) == table.urContextRelease(again) == 0
    assert table.urContextRelease(again) == CODES["INVALID_CONTEXT"]


def test_every_device_that_a_query_lists_is_known(attach: Attach, adapter: Adapter) -> None:
    table, _, lines = attach(PARAMETER, LIFETIME)
    _, context = context_of(table)
    memory = [(ctypes.c_uint64 * 1)(0) for _ in range(3)]  # leads to no dispatch table
    adapter.infos[UR["UR_CONTEXT_INFO_DEVICES"]] = [ctypes.addressof(word) for word in memory]
    found, size = (ctypes.c_void_p * 3)(), ctypes.c_size_t()
    assert (
        table.urContextGetInfo(
            context, UR["UR_CONTEXT_INFO_DEVICES"], 24, found, ctypes.byref(size)
        )
        == 0
    )
    for device in found:
        make(table.urQueueCreate, context, device, None)
    assert not lines


def test_root_devices_outlive_their_references(attach: Attach) -> None:
    """urDeviceRelease does nothing to them."""
    table, _, lines = attach(PARAMETER, LIFETIME)
    platform, found = devices(table)
    for _ in range(2):
        assert table.urDeviceRelease(ctypes.c_void_p(found[0])) == 0
    make(table.urContextCreate, 1, found, None)
    make(table.urDeviceGet, platform, UR["UR_DEVICE_TYPE_ALL"], 0, None)
    assert not lines


def test_only_the_devices_that_there_are_are_taken(attach: Attach) -> None:
    table, validated, _ = attach(LIFETIME)
    platform, _ = devices(table)
    room, total = (ctypes.c_void_p * 5)(*[0xBAD] * 5), ctypes.c_uint32()
    for asked in (None, ctypes.byref(total)):
        assert table.urDeviceGet(platform, UR["UR_DEVICE_TYPE_ALL"], 5, room, asked) == 0
    counts = [leak.count for leak in validated.leaks() if leak.kind == "ur_device_handle_t"]
    assert counts == [3, 2]
    assert 0xBAD not in [leak.handle for leak in validated.leaks()]


def test_sub_devices_are_counted(attach: Attach) -> None:
    table, _, _ = attach(LIFETIME)
    _, found = devices(table)
    sub = handle()
    anything = ctypes.create_string_buffer(64)
    assert (
        table.urDevicePartition(
            found[0], anything, 1, ctypes.byref(sub), ctypes.byref(ctypes.c_uint32(1))
        )
        == 0
    )
    assert table.urDeviceRelease(sub) == 0
    assert table.urDeviceRelease(sub) == CODES["INVALID_DEVICE"]


def test_objects_from_before_are_believed(attach: Attach, adapter: Adapter) -> None:
    """A layer that comes late cannot know them.

    Their first word points to the adapter's dispatch table.
    """
    before = DispatchTable(UR, adapter.address)
    device, context = context_of(before)
    memory = make(before.urUSMDeviceAlloc, context, device, None, None, 64)
    table, validated, lines = attach(PARAMETER, LIFETIME, LEAK, BOUNDS)
    queue = make(table.urQueueCreate, context, device, None)
    assert (
        table.urUSMFree(context, memory)
        == table.urQueueRelease(queue)
        == table.urContextRelease(context)
        == 0
    )
    validated.close()
    assert not lines


def test_the_program_of_a_failed_link_can_be_asked_and_released(
    attach: Attach, adapter: Adapter
) -> None:
    table, _, lines = attach(PARAMETER, LIFETIME)
    device, context = context_of(table)
    part = make(table.urProgramCreateWithIL, context, b"IL", 2, None)
    adapter.answers["urProgramLink"] = CODES["PROGRAM_LINK_FAILURE"]
    failed, log = handle(), ctypes.create_string_buffer(8)
    assert (
        table.urProgramLink(context, 1, array(part), None, ctypes.byref(failed))
        == CODES["PROGRAM_LINK_FAILURE"]
    )
    assert (
        table.urProgramGetBuildInfo(failed, device, UR["UR_PROGRAM_BUILD_INFO_LOG"], 8, log, None)
        == 0
    )
    assert table.urProgramRelease(failed) == 0
    assert not lines


def test_an_event_that_is_used_again_is_no_new_one(attach: Attach) -> None:
    table, validated, _ = attach(LIFETIME)
    device, context = context_of(table)
    queue = make(table.urQueueCreate, context, device, None)
    event = make(table.urEventCreateExp, context, device, ctypes.create_string_buffer(64))
    assert table.urEnqueueEventsWaitWithBarrierExt(queue, None, 0, None, ctypes.byref(event)) == 0
    assert [leak.count for leak in validated.leaks() if leak.kind == "ur_event_handle_t"] == [1]


def test_a_pool_is_destroyed_and_not_leaked(attach: Attach) -> None:
    table, validated, _ = attach(LIFETIME)
    device, context = context_of(table)
    pool = make(table.urUSMPoolCreateExp, context, device, ctypes.create_string_buffer(64))
    assert table.urUSMPoolDestroyExp(context, device, pool) == 0
    assert table.urUSMPoolDestroyExp(context, device, pool) == CODES["INVALID_NULL_HANDLE"]
    assert "ur_usm_pool_handle_t" not in [leak.kind for leak in validated.leaks()]


# USM memory


def test_memory_is_freed_once(attach: Attach, adapter: Adapter) -> None:
    table, validated, lines = attach(LIFETIME)
    device, context = context_of(table)
    queue = make(table.urQueueCreate, context, device, None)
    for alloc in (table.urUSMDeviceAlloc, table.urUSMSharedAlloc):
        memory = make(alloc, context, device, None, None, 64)
        assert table.urUSMFree(context, memory) == 0
        assert table.urUSMFree(context, memory) == CODES["INVALID_MEM_OBJECT"]
    memory = make(table.urUSMHostAlloc, context, None, None, 64)
    assert table.urEnqueueUSMFreeExp(queue, None, memory, 0, None, None) == 0
    assert table.urUSMFree(context, memory) == CODES["INVALID_MEM_OBJECT"]
    assert len(lines) == 3 and all("USM memory" in line for line in lines)
    assert "USM memory" not in [leak.kind for leak in validated.leaks()]


def test_unknown_memory_is_not_freed(attach: Attach, adapter: Adapter) -> None:
    table, _, lines = attach(LIFETIME)
    _, context = context_of(table)
    assert table.urUSMFree(context, ctypes.create_string_buffer(8)) == CODES["INVALID_MEM_OBJECT"]
    assert "urUSMFree" not in adapter.calls
    assert len(lines) == 1


@pytest.mark.parametrize(
    ("offset", "size", "fits"), [(0, 64, True), (32, 32, True), (0, 65, False), (63, 2, False)]
)
def test_bounds(attach: Attach, offset: int, size: int, fits: bool) -> None:
    table, _, lines = attach(BOUNDS)
    device, context = context_of(table)
    queue = make(table.urQueueCreate, context, device, None)
    host = ctypes.create_string_buffer(128)
    buffer = make(table.urMemBufferCreate, context, UR["UR_MEM_FLAG_READ_WRITE"], 64, None)
    memory = (ctypes.c_char * 64)()
    expected = 0 if fits else CODES["INVALID_SIZE"]
    assert (
        table.urEnqueueMemBufferRead(queue, buffer, True, offset, size, host, 0, None, None)
        == expected
    )
    start = (
        make(table.urUSMDeviceAlloc, context, device, None, None, ctypes.sizeof(memory)).value or 0
    )
    assert (
        table.urEnqueueUSMMemcpy(queue, True, start + offset, host, size, 0, None, None) == expected
    )
    assert (
        table.urEnqueueUSMMemcpy(queue, True, host, start + offset, size, 0, None, None) == expected
    )
    assert table.urEnqueueUSMMemcpy(queue, True, host, host, size, 0, None, None) == 0
    assert table.urUSMFree(context, start) == 0
    assert table.urEnqueueUSMMemcpy(queue, True, start + offset, host, size, 0, None, None) == 0
    assert len(lines) == (0 if fits else 3)


# Leaks


def test_a_leak_is_reported_with_the_line_that_created_it(attach: Attach) -> None:
    table, validated, lines = attach(LEAK)
    device, context = context_of(table)
    queue = make(table.urQueueCreate, context, device, None)  # the leak
    assert table.urQueueRetain(queue) == table.urContextRelease(context) == 0
    (leak,) = (leak for leak in validated.leaks() if leak.kind == "ur_queue_handle_t")
    assert (leak.handle, leak.count) == (queue.value, 2)
    assert leak.stack[0].startswith(f"{__file__}:")  # make()
    assert leak.stack[1].endswith("# the leak")
    validated.close()
    kinds = [line.split()[0] for line in lines]
    assert kinds == ["ur_adapter_handle_t", "ur_device_handle_t", "ur_queue_handle_t"]
    assert "2 references" in lines[2] and "# the leak" in lines[2]


def test_platforms_and_commands_do_not_leak(attach: Attach) -> None:
    """Nobody can release them."""
    table, validated, _ = attach(LEAK)
    adapter = handle()
    assert table.urAdapterGet(1, ctypes.byref(adapter), None) == 0
    make(table.urPlatformCreateWithNativeHandle, 1, adapter, None)
    assert [leak.kind for leak in validated.leaks()] == ["ur_adapter_handle_t"]


def test_nothing_is_reported_for_leaks_if_nobody_asked(attach: Attach) -> None:
    table, validated, lines = attach(PARAMETER)
    context_of(table)
    validated.close()
    assert not lines


# Attaching


def test_close_takes_the_layer_out(attach: Attach, adapter: Adapter) -> None:
    table, validated, _ = attach(PARAMETER)
    assert table.top != adapter.address
    validated.close()
    validated.close()
    assert table.top == adapter.address
    assert table.urContextRelease(None) == 0
    assert adapter.calls == ["urContextRelease"]


def test_without_layers_nothing_is_attached(attach: Attach, adapter: Adapter) -> None:
    table, _, _ = attach()
    assert table.top == adapter.address


def test_a_table_is_only_checked_once(attach: Attach) -> None:
    table, validated, lines = attach(PARAMETER)
    validated.attach(table)
    assert len(table.layers) == 1
    assert table.urContextRelease(None)
    assert len(lines) == 1


def test_another_api_is_refused(adapter: Adapter) -> None:
    api: Api = PI
    with pytest.raises(FairleadError, match="Unified Runtime"):
        Validation([PARAMETER], report=print).attach(DispatchTable(api, adapter.address))


def test_a_report_that_raises_does_not_reach_the_caller(
    adapter: Adapter, capfd: pytest.CaptureFixture[str]
) -> None:
    def report(line: str) -> None:
        raise RuntimeError("no room for lines")

    validated, table = Validation([PARAMETER], report=report), DispatchTable(UR, adapter.address)
    validated.attach(table)
    calls: Any = table
    assert calls.urContextRelease(None) == CODES["INVALID_NULL_HANDLE"]
    validated.close()
    assert "no room for lines" in capfd.readouterr().err
    assert not adapter.calls


def test_a_report_may_call_the_adapter(adapter: Adapter) -> None:
    table: Any = DispatchTable(UR, adapter.address)
    answers: list[int] = []
    validated = Validation(
        [PARAMETER],
        report=lambda line: answers.append(table.urPlatformGet(0x1000, 0, None, answers_at)),
    )
    answers_at = ctypes.byref(ctypes.c_uint32())
    validated.attach(table)
    assert table.urContextRelease(None) == CODES["INVALID_NULL_HANDLE"]
    validated.close()
    assert answers == [0]


def test_threads(attach: Attach) -> None:
    """Each thread has its own objects, and one queue is shared.

    Releases do not affect other threads.
    """
    table, validated, lines = attach(PARAMETER, LIFETIME)
    device, context = context_of(table)
    shared = make(table.urQueueCreate, context, device, None)
    wrong: list[int] = []
    together = threading.Barrier(4)

    def work() -> None:
        together.wait()
        for _ in range(50):
            event = make(table.urEnqueueEventsWait, shared, 0, None)
            codes = [
                table.urQueueRetain(shared),
                table.urEventWait(1, array(event)),
                table.urQueueRelease(shared),
                table.urEventRelease(event),
            ]
            wrong.extend(code for code in codes if code)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (wrong, lines) == ([], [])
    assert [
        leak.count for leak in validated.leaks() if "queue" in leak.kind or "event" in leak.kind
    ] == [1]


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["create", "retain", "release", "use"]), st.integers(0, 3)),
        max_size=30,
    )
)
def test_counts_are_right_in_every_order(
    the_adapter: Adapter, steps: list[tuple[str, int]]
) -> None:
    """In any order of calls, a call passes exactly if there is a reference, and the rest has
    leaked."""
    the_adapter.reset()
    lines: list[str] = []
    validated, table = (
        Validation([LIFETIME], report=lines.append),
        DispatchTable(UR, the_adapter.address),
    )
    validated.attach(table)
    calls: Any = table
    device, context = context_of(table)
    queues: dict[int, ctypes.c_void_p] = {}
    counts: dict[int, int] = {}
    refused = 0
    for step, which in steps:
        if step == "create" and not counts.get(which):
            queues[which], counts[which] = make(calls.urQueueCreate, context, device, None), 1
        elif step != "create" and which in queues:
            name = {"retain": "urQueueRetain", "release": "urQueueRelease", "use": "urQueueFinish"}[
                step
            ]
            answer = getattr(calls, name)(queues[which])
            assert answer == (0 if counts[which] else CODES["INVALID_QUEUE"])
            refused += answer != 0
            counts[which] += {"retain": 1, "release": -1, "use": 0}[step] if answer == 0 else 0
    left = sorted((queues[i].value, n) for i, n in counts.items() if n)
    assert (
        sorted(
            (leak.handle, leak.count)
            for leak in validated.leaks()
            if leak.kind == "ur_queue_handle_t"
        )
        == left
    )
    assert len(lines) == refused
    validated.close()


def test_lines_are_plain() -> None:
    """What a user reads names no internals of fairlead."""
    leak = validation.Leak("ur_queue_handle_t", 0x10, 1, ())
    assert (
        str(leak) == "ur_queue_handle_t 0x10 has leaked: 1 reference left; created at a line of C"
    )
    assert re.fullmatch(r"[ -~]+", str(leak))
