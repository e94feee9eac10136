"""What calls are refused for: the rows of the ABI files, and the forms in which rules are used."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fairlead.loader.base.abi import Api, Function
from fairlead.loader.base.argument_rules import (
    compile_rules,
    format_c_condition,
    is_unchecked,
    list_rules,
)
from fairlead.loader.ur.abi import UR
from fairlead.loader.ze.abi import ZE

APIS = pytest.mark.parametrize("api", [UR, ZE], ids=["ur", "ze"])
SECTIONS = "invalid", "refusals", "own refusals", "unchecked"


def names(function: Function) -> set[str]:
    return {p.name for p in function.parameters}


def known_names(api: Api) -> set[str]:
    """Functions, parameters and types, and `function.parameter`."""
    found = {*api.functions, *api.types}
    for function in api.functions.values():
        found |= names(function) | {f"{function.name}.{name}" for name in names(function)}
    return found


@APIS
def test_every_row_is_of_something_that_the_api_has(api: Api) -> None:
    rows = [line for section in SECTIONS for line in api.list_lines(section)]
    owners = {name for row in rows for name in re.split(r" = |: ", row)[0].split(" ")}
    assert owners and not owners - known_names(api)


@APIS
def test_every_rule_has_a_code_and_a_condition_of_the_calls_arguments(api: Api) -> None:
    prefix = "UR_RESULT_ERROR_" if api is UR else "ZE_RESULT_ERROR_"
    for function in api.functions.values():
        for rule in list_rules(function, own=True):
            assert f"{prefix}{rule.code}" in api.codes, rule
            words = set(re.findall(r"(?<![\w.])[A-Za-z_]\w*", rule.condition))
            assert words - {"not", "and", "or", "in", "x"} <= names(function), rule
            assert rule.parameter in names(function)


@APIS
def test_every_rule_is_broken_by_nothing_or_by_words_of_ones(api: Api) -> None:
    """Each function that has rules refuses NULL everywhere, or bits everywhere, with a sentence."""
    for function in api.functions.values():
        rules = [rule for rule in list_rules(function) if "." not in rule.condition]
        check = compile_rules(function, rules)
        answers = [check([word] * len(function.parameters)) for word in (0, (1 << 64) - 1)]
        assert any(answers) or not any(rule.condition.startswith("not ") for rule in rules)
        for answer in filter(None, answers):
            assert answer[0] in rules and "{" not in answer[1]


def check(name: str, **arguments: int) -> Any:
    function = UR.functions[name]
    words = [arguments.get(p.name, 0x1000) for p in function.parameters]
    broken = compile_rules(function, list_rules(function))(words)
    return broken and (broken[0].parameter, broken[0].code, broken[1])


def test_a_row_of_a_parameter_holds_for_every_function_that_has_it() -> None:
    lists = {"numEventsInWaitList": 0, "phEventWaitList": 0}
    assert check("urEnqueueEventsWait", **lists) is None
    for wrong in ("numEventsInWaitList", "phEventWaitList"):
        found = check("urEnqueueEventsWait", **{**lists, wrong: 1})
        assert found[:2] == ("phEventWaitList", "INVALID_EVENT_WAIT_LIST")


def test_only_the_bits_of_an_argument_count() -> None:
    """The upper half of a register is what the caller left there."""
    garbage, room = 0xABCD_0000_0000, {"propSize": 8}
    assert check("urQueueGetInfo", propName=garbage, **room) is None
    code = check("urQueueGetInfo", propName=garbage + 0x7777, **room)[1:]
    assert code == ("INVALID_ENUMERATION", "ur_queue_info_t has no value 0x7777")


def test_what_is_unchecked_has_no_rule() -> None:
    function = UR.functions["urDeviceCreateWithNativeHandle"]
    assert is_unchecked(function, function.parameters[0])
    assert "hNativeDevice" not in {rule.parameter for rule in list_rules(function, own=True)}


def test_our_own_entry_points_refuse_more() -> None:
    function = UR.functions["urPlatformCreateWithNativeHandle"]
    more = set(list_rules(function, own=True)) - set(list_rules(function))
    assert [(rule.parameter, rule.code) for rule in more] == [
        ("hNativePlatform", "INVALID_NULL_HANDLE")
    ]


def test_conditions_in_c() -> None:
    rules = list_rules(ZE.functions["zeCommandListAppendMemAdvise"])
    found = {rule.parameter: format_c_condition(rule) for rule in rules}
    assert found["ptr"] == "!ptr"
    assert found["advice"].startswith("advice != 0 && advice != 1 && ")
    (flags,) = list_rules(ZE.functions["zeInit"])
    assert format_c_condition(flags) == "flags & ~0x3u"
    rules = list_rules(ZE.functions["zeCommandListAppendBarrier"])
    assert format_c_condition(rules[-1]) == "numWaitEvents && !phWaitEvents"
