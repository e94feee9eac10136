"""Checks of a call's arguments, derived from the ABI data for `validation_rules`.

A parameter that is not `optional` must not be NULL. An enumeration must have the value. A list and
its length belong together. A query must be able to return something. refusals.py has the numbers
that may have a few values only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from ..base.abi import Function, Parameter
from ..base.memory import read_words
from .abi import UR
from .refusals import RANGES

#: Type of an optional list to the code if only the list or only its count is given.
LIST_CODES: Final = {
    "ur_event_handle_t": "UR_RESULT_ERROR_INVALID_EVENT_WAIT_LIST",
    "ur_exp_command_buffer_sync_point_t": (
        "UR_RESULT_ERROR_INVALID_COMMAND_BUFFER_SYNC_POINT_WAIT_LIST_EXP"
    ),
    "ur_kernel_handle_t": "UR_RESULT_ERROR_INVALID_VALUE",
}


#: The most handles of an array that are read, because the count may be garbage.
_MAX_HANDLES: Final = 4096


class Violation(NamedTuple):
    """Why a call is refused: the parameter, what is wrong with it, the name of the code."""

    parameter: str
    what: str
    code: str


ArgumentCheck: TypeAlias = Callable[[Sequence[int]], "Violation | None"]


def find_position(function: Function, name: str) -> int | None:
    return next((i for i, p in enumerate(function.parameters) if p.name == name), None)


def find_count_position(function: Function, index: int) -> int | None:
    """Return the position of the number of elements in a parameter, None if there is none.

    For a list of sync points it is the parameter before.
    """
    p = function.parameters[index]
    if p.type == "ur_exp_command_buffer_sync_point_t" and "out" not in p.words and p.stars:
        return index - 1
    return find_position(function, p.length) if p.length else None


def is_handle_list(p: Parameter) -> bool:
    return (
        p.stars == 1 and bool(p.length) and UR.resolve(p.type) == "handle" and "out" not in p.words
    )


def make_checks(function: Function) -> Iterator[ArgumentCheck]:
    """Yield the checks of a function's arguments in order."""
    for find in (_make_null_checks, _make_value_checks, _make_list_checks, _make_query_checks):
        yield from find(function)


def _make_null_checks(function: Function) -> Iterator[ArgumentCheck]:
    for handles_first in (True, False):
        for i, p in enumerate(function.parameters):
            base = UR.resolve(p.type)
            is_handle = not p.stars and base == "handle"
            if (
                "optional" in p.words
                or is_handle != handles_first
                or not (is_handle or p.stars or base == "callback")
            ):
                continue
            code = (
                "UR_RESULT_ERROR_INVALID_NULL_HANDLE"
                if is_handle
                else "UR_RESULT_ERROR_INVALID_NULL_POINTER"
            )
            yield functools.partial(_check_null, i, Violation(p.name, "it is NULL", code))


def _check_null(index: int, wrong: Violation, arguments: Sequence[int]) -> Violation | None:
    return None if arguments[index] else wrong


def _make_value_checks(function: Function) -> Iterator[ArgumentCheck]:
    for i, p in enumerate(function.parameters):
        if not p.stars and p.type in UR.groups:
            values = UR.groups[p.type]
            mask = functools.reduce(int.__or__, values) if UR.is_bitfield(p.type) else None
            yield functools.partial(_check_value, i, p, mask)

        elif p.name in RANGES and not p.stars:
            allowed, code = RANGES[p.name]
            wrong = Violation(p.name, f"it is not {allowed[0]} to {allowed[-1]}", code)
            yield functools.partial(_check_range, i, allowed, wrong)


def _check_range(
    index: int, allowed: range, wrong: Violation, arguments: Sequence[int]
) -> Violation | None:
    return None if arguments[index] in allowed else wrong


def _check_value(
    index: int, p: Parameter, mask: int | None, arguments: Sequence[int]
) -> Violation | None:
    value = arguments[index] & 0xFFFFFFFF
    if mask is None:
        what = "" if value in UR.groups[p.type] else f"{p.type} has no value {value:#x}"
    else:
        what = f"{p.type} has no bits {value & ~mask:#x}" if value & ~mask else ""
    return Violation(p.name, what, "UR_RESULT_ERROR_INVALID_ENUMERATION") if what else None


def _make_list_checks(function: Function) -> Iterator[ArgumentCheck]:
    for i, p in enumerate(function.parameters):
        count = find_count_position(function, i)
        if count is None or p.type == "void":
            continue
        optional, code = "optional" in p.words, LIST_CODES.get(p.type, "")
        if "out" in p.words:
            if UR.resolve(p.type) == "handle":
                yield functools.partial(
                    _check_pair, i, count, p.name, "", "UR_RESULT_ERROR_INVALID_SIZE"
                )
        elif optional and code:
            yield functools.partial(_check_pair, i, count, p.name, code, code)
        elif optional and UR.resolve(p.type) == "struct":
            yield functools.partial(
                _check_pair, i, count, p.name, "UR_RESULT_ERROR_INVALID_NULL_POINTER", ""
            )
        if is_handle_list(p):
            is_wait_list = optional and p.type == "ur_event_handle_t"
            element = code if is_wait_list else "UR_RESULT_ERROR_INVALID_NULL_HANDLE"
            yield functools.partial(_check_elements, i, count, p.name, element)


def _check_pair(
    index: int, count: int, name: str, no_list: str, no_count: str, arguments: Sequence[int]
) -> Violation | None:
    """ArgumentCheck that a list and its number of elements are both given, or both 0.

    An empty code allows that half to be missing.
    """
    pointer, elements = arguments[index], arguments[count]
    if elements and not pointer and no_list:
        return Violation(name, f"it is NULL, and {elements} elements are announced", no_list)
    if pointer and not elements and no_count:
        return Violation(name, "it is there, and 0 elements are announced", no_count)
    return None


def _check_elements(
    index: int, count: int, name: str, code: str, arguments: Sequence[int]
) -> Violation | None:
    handles = read_handles(arguments[index], arguments[count])
    return Violation(f"{name}[{handles.index(0)}]", "it is NULL", code) if 0 in handles else None


def _make_query_checks(function: Function) -> Iterator[ArgumentCheck]:
    value, returned = find_position(function, "pPropValue"), find_position(function, "pPropSizeRet")
    if value is None or returned is None:
        return
    null = "UR_RESULT_ERROR_INVALID_NULL_POINTER"
    size = find_count_position(function, value)
    if size is not None:
        yield functools.partial(
            _check_pair, value, size, "pPropValue", null, "UR_RESULT_ERROR_INVALID_SIZE"
        )
    neither = Violation(
        "pPropValue", "it is NULL, and so is pPropSizeRet: nothing can be answered", null
    )
    yield lambda arguments: None if arguments[value] or arguments[returned] else neither


def read_handles(address: int, count: int) -> list[int]:
    """Return the words of an array, up to the first one that cannot be read."""
    words = read_words(address, min(count, _MAX_HANDLES)) if address else []
    return [word for word in words if word is not None]
