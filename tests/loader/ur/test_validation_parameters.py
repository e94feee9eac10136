"""Validation of names and parameters, in front of a fake adapter."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest
from helpers.validated import CODES, Adapter, Attach

from fairlead.loader.base.abi import Function, Parameter
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.validation import BOUNDS, LEAK, LIFETIME, PARAMETER, parse_layer_names


def names_and_lines(value: str) -> tuple[frozenset[str], list[str]]:
    lines: list[str] = []
    return parse_layer_names({"UR_ENABLE_LAYERS": value}, report=lines.append), lines


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
    assert parse_layer_names({}) == frozenset()


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
    if function.name == "urMemImageCreate":  # a host pointer needs a flag
        return [0x1000, UR["UR_MEM_FLAG_USE_HOST_POINTER"], *[ctypes.addressof(MEMORY)] * 4]
    return [right_argument(p) for p in function.parameters]


def right_argument(p: Parameter) -> Any:
    base = UR.resolve(p.type)
    if p.type == "char" and p.stars == 1:
        return b"text"
    if p.stars or base == "callback":
        return ctypes.addressof(MEMORY)
    if base == "struct":
        return UR.get_struct(p.type)()
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


@pytest.mark.parametrize("value", [0, 4])
def test_launches_have_one_to_three_dimensions(refuse: Any, adapter: Adapter, value: int) -> None:
    for function, p in parameters(lambda p: p.name in ("workDim", "numWorkDim")):
        answer, lines = refuse(function, p.name, value)
        assert (function.name, answer) == (function.name, CODES["INVALID_WORK_DIMENSION"])
        assert len(lines) == 1 and "it is not 1 to 3" in lines[0]
    assert not adapter.calls


def test_optional_handles_and_pointers_may_be_null(refuse: Any) -> None:
    alone = parameters(  # but those of which a row says that they are needed
        lambda p: (
            "optional" in p.words
            and not p.length
            and (p.stars or is_handle(p))
            and p.name not in ("pSyncPointWaitList", "ppIPCMemHandleData", "pHost")
            and p.name != "pIPCMemHandleDataSizeRet"
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
            expected = code
            if function.name == "urEventGetProfilingInfo":  # a query with rules of its own
                expected = "INVALID_VALUE" if value and not size else None
            assert getattr(table, function.name)(*values.values()) == (
                CODES[expected] if expected else 0
            ), function.name
            assert len(lines) == bool(expected)


def test_what_is_wrong_is_said_with_the_line_that_called(attach: Attach) -> None:
    table, _, lines = attach(PARAMETER)
    assert table.urContextRelease(None) == CODES["INVALID_NULL_HANDLE"]  # this line
    assert len(lines) == 1 and "\n" not in lines[0]
    assert lines[0].startswith(
        "urContextRelease: hContext: it is required; answered UR_RESULT_ERROR_INVALID_NULL_HANDLE; "
        "called at "
    )
    assert f"{__file__}:" in lines[0] and lines[0].endswith("# this line")
