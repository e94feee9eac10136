"""Validation of names and parameters, in front of a fake adapter."""

from __future__ import annotations

import ctypes
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from helpers.validated import CODES, Adapter, Attach

from fairlead.loader.base.abi import Function, Parameter
from fairlead.loader.base.argument_rules import Rule, list_rules
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
def refuse(attach: Attach) -> Callable[..., tuple[int, list[str]]]:
    """Calls a function with arguments replaced. Returns its answer and the reported lines."""
    table, _, lines = attach(PARAMETER)

    def call(function: Function, **values: Any) -> tuple[int, list[str]]:
        lines.clear()
        names = [p.name for p in function.parameters]
        given = dict(zip(names, right_arguments(function), strict=True)) | values
        return getattr(table, function.name)(*given.values()), list(lines)

    return call


#: What arguments are set to, to break a rule: none, numbers, and bits or values that no type has.
TRIED = (0, 1, 2, 3, 4, 0x40000000, 0x7FFFFFF0)


def find_broken(function: Function, rule: Rule, before: Sequence[Rule]) -> dict[str, Any]:
    """Return arguments that break a rule, and none that is checked before it."""
    parameters = {p.name: p for p in function.parameters}
    known = dict(zip(parameters, right_arguments(function), strict=True))

    def list_names(one: Rule) -> set[str]:
        return parameters.keys() & {*re.findall(r"\w+", one.condition)}

    own = list_names(rule)
    names = sorted(own.union(*(list_names(one) for one in before if list_names(one) & own)))
    tried = [[known[name], *([0] if parameters[name].stars else TRIED)] for name in names]
    for values in itertools.product(*tried):
        found = known | dict(zip(names, values, strict=True))
        if [one for one in (*before, rule) if eval(one.condition, {}, found)] == [rule]:
            return {name: found[name] or (None if parameters[name].stars else 0) for name in names}
    raise AssertionError(f"{function.name}: nothing breaks {rule}")


def parameters(wanted: Callable[[Parameter], object]) -> list[tuple[Function, Parameter]]:
    return [(f, p) for f in UR.slots for p in f.parameters if wanted(p)]


def is_handle(p: Parameter) -> bool:
    return not p.stars and UR.resolve(p.type) == "handle"


def test_right_arguments_reach_every_function(refuse: Any, adapter: Adapter) -> None:
    assert {f.name: answer for f in UR.slots if (answer := refuse(f)) != (0, [])} == {}
    assert adapter.calls == [f.name for f in UR.slots]


def test_every_rule_is_checked(refuse: Any, adapter: Adapter) -> None:
    """What breaks one is refused and reported once, and the adapter is not called."""
    for function in UR.slots:
        rules = [rule for rule in list_rules(function) if "." not in rule.condition]
        for number, rule in enumerate(rules):
            answer, lines = refuse(function, **find_broken(function, rule, rules[:number]))
            assert (function.name, rule, answer) == (function.name, rule, CODES[rule.code])
            (line,) = lines
            assert line.startswith(f"{function.name}: {rule.parameter}: ") and rule.code in line
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
    assert [
        (f.name, p.name)
        for f, p in alone
        if refuse(f, **{p.name: None if p.stars else 0}) != (0, [])
    ] == []


def test_arguments_of_a_kernel_may_be_there_without_a_count(refuse: Any) -> None:
    assert refuse(UR.functions["urEnqueueKernelLaunchWithArgsExp"], numArgs=0) == (0, [])


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


def test_what_is_wrong_is_said_with_the_line_that_called(attach: Attach) -> None:
    table, _, lines = attach(PARAMETER)
    assert table.urContextRelease(None) == CODES["INVALID_NULL_HANDLE"]  # this line
    assert len(lines) == 1 and "\n" not in lines[0]
    assert lines[0].startswith(
        "urContextRelease: hContext: it is required; answered UR_RESULT_ERROR_INVALID_NULL_HANDLE; "
        "called at "
    )
    assert f"{__file__}:" in lines[0] and lines[0].endswith("# this line")
