"""The rules for calls of Unified Runtime functions, derived from the ABI data for `validation`.

`make_rules` makes them for all functions of ur.abi. Arguments are checked by the rules of
loader/base/argument_rules.py, and no handle of a list may be NULL. `alloc`, `retain` and `release`
say what happens to an object. Small tables contain what the data does not say.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from ..base.abi import Function, Parameter
from ..base.argument_rules import Check, compile_rules, find_dead_code, list_rules
from ..base.memory import read_words
from .abi import UR

#: Function to the parameter whose object it releases, where the data has no `release`.
_ENDS: Final = {
    "urUSMFree": "pMem",
    "urEnqueueUSMFreeExp": "pMem",
    "urUSMPoolDestroyExp": "hPool",
    "urIPCClosePhysMemHandleExp": "hPhysMem",
    "urGraphDestroyExp": "hGraph",
    "urGraphExecutableGraphDestroyExp": "hExecutableGraph",
}
#: Functions that allocate USM memory.
_ALLOCATES: Final = {
    *("urUSMHostAlloc", "urUSMDeviceAlloc", "urUSMSharedAlloc", "urUSMPitchedAllocExp"),
    *("urEnqueueUSMHostAllocExp", "urEnqueueUSMDeviceAllocExp", "urEnqueueUSMSharedAllocExp"),
}
#: Memory that a function with a `size` accesses, to the parameter with its offset ("" for a
#: pointer).
_BEGINS: Final = {
    "hBuffer": "offset",
    "hBufferSrc": "srcOffset",
    "hBufferDst": "dstOffset",
    "hSrcMem": "srcOffset",
    "hDstMem": "dstOffset",
    **dict.fromkeys(("pMem", "pMemory", "pDst", "pSrc"), ""),
}

MEMORY: Final = "USM memory"
_NO_HANDLE: Final = "INVALID_NULL_HANDLE"  # for kinds of objects that have no code of their own

#: The most handles of an array that are read, because the count may be garbage.
_MAX_HANDLES: Final = 4096


class Violation(NamedTuple):
    """Why a call is refused: the parameter, what is wrong with it, the name of the code."""

    parameter: str
    what: str
    code: str


ArgumentCheck: TypeAlias = Callable[[Sequence[int]], "Violation | None"]


@dataclass(frozen=True)
class InputObjects:
    """A parameter with objects that must be alive.

    Attributes:
        count: the position of their number, None for a single handle.
        change: the change of the references: -1, 0 or 1.
        code: the code for an invalid object.
    """

    index: int
    parameter: Parameter
    kind: str
    count: int | None
    change: int
    code: str


@dataclass(frozen=True)
class OutputObjects:
    """A parameter through which a function returns objects.

    Attributes:
        count: the position of the caller's number of entries, None for a single handle.
        total: the position of the pointer to the total number.
        size: the position of the size of USM memory.
        created: whether the caller owns the objects.
        always: whether they exist without references.
        inout: whether an object may have existed before.
    """

    index: int
    kind: str
    count: int | None
    total: int
    size: int | None
    created: bool
    always: bool
    inout: bool


@dataclass(frozen=True)
class HandleQuery:
    """An info query that may return handles.

    Attributes:
        name: the position of what is asked for.
        value: the position of the answer.
        size: the position of the answer's size.
        returned: the position of the pointer to the returned size.
        kinds: what is asked for to the kind of the handles.
    """

    name: int
    value: int
    size: int
    returned: int
    kinds: Mapping[int, str]


@dataclass(frozen=True)
class MemoryRange:
    """Memory that a function accesses.

    Attributes:
        index: the position of the buffer or the pointer.
        begin: the position of the offset, None if the pointer is the beginning.
        size: the position of the size in bytes.
    """

    index: int
    parameter: str
    begin: int | None
    size: int


class Rules(NamedTuple):
    """All rules for a function."""

    function: Function
    checks: tuple[ArgumentCheck, ...]
    inputs: tuple[InputObjects, ...]
    outputs: tuple[OutputObjects, ...]
    query: HandleQuery | None
    ranges: tuple[MemoryRange, ...]


@functools.cache
def make_rules() -> tuple[Rules, ...]:
    """Return the rules of all functions by slot."""
    return tuple(
        Rules(
            f,
            tuple(_make_checks(f)),
            tuple(_find_inputs(f)),
            tuple(_find_outputs(f)),
            _find_handle_query(f),
            tuple(_find_memory_ranges(f)),
        )
        for f in UR.slots
    )


def _make_checks(function: Function) -> Iterator[ArgumentCheck]:
    yield functools.partial(_check_arguments, compile_rules(function, list_rules(function)))
    for i, p in enumerate(function.parameters):
        count = _find_position(function, p.length)
        if _is_handle_list(p) and count is not None:
            yield functools.partial(_check_elements, i, count, p.name, _find_element_code(p))


def _check_arguments(check: Check, arguments: Sequence[int]) -> Violation | None:
    if (broken := check(arguments)) is None:
        return None
    rule, what = broken
    return Violation(rule.parameter, what, f"UR_RESULT_ERROR_{rule.code}")


def _check_elements(
    index: int, count: int, name: str, code: str, arguments: Sequence[int]
) -> Violation | None:
    handles = read_handles(arguments[index], arguments[count])
    return Violation(f"{name}[{handles.index(0)}]", "it is NULL", code) if 0 in handles else None


def _find_element_code(p: Parameter) -> str:
    """Return the code for a handle of a list that is NULL: that of a wait list."""
    is_wait_list = "optional" in p.words and p.type == "ur_event_handle_t"
    return f"UR_RESULT_ERROR_{find_dead_code(UR, p, '') if is_wait_list else _NO_HANDLE}"


def read_handles(address: int, count: int) -> list[int]:
    """Return the words of an array, up to the first one that cannot be read."""
    words = read_words(address, min(count, _MAX_HANDLES)) if address else []
    return [word for word in words if word is not None]


def _find_position(function: Function, name: str) -> int | None:
    return next((i for i, p in enumerate(function.parameters) if p.name == name), None)


def _is_handle_list(p: Parameter) -> bool:
    return (
        p.stars == 1 and bool(p.length) and UR.resolve(p.type) == "handle" and "out" not in p.words
    )


@functools.cache
def find_counted_kinds() -> frozenset[str]:
    """Return the kinds of objects that a program can release."""
    ends = ((f, p) for f in UR.slots for p in f.parameters if _find_change(f, p) < 0)
    return frozenset(_find_kind(p) for _, p in ends)


def _find_kind(p: Parameter) -> str:
    return MEMORY if p.type == "void" else p.type


def _find_change(function: Function, p: Parameter) -> int:
    """Return how a call changes the references of the object in a parameter: -1, 0 or 1."""
    if _ENDS.get(function.name) == p.name:
        return -1
    if p.stars or UR.resolve(p.type) != "handle":
        return 0
    return ("retain" in p.words) - ("release" in p.words)


# Rules for objects


def _find_inputs(function: Function) -> Iterator[InputObjects]:
    for i, p in enumerate(function.parameters):
        change = _find_change(function, p)
        if change or (not p.stars and UR.resolve(p.type) == "handle") or _is_handle_list(p):
            kind = _find_kind(p)
            code = find_dead_code(UR, p, _NO_HANDLE) if kind != MEMORY else "INVALID_MEM_OBJECT"
            count = _find_position(function, p.length)
            yield InputObjects(i, p, kind, count, change, f"UR_RESULT_ERROR_{code}")


def _find_outputs(function: Function) -> Iterator[OutputObjects]:
    gets = "Get" in function.name
    for i, p in enumerate(function.parameters):
        is_memory = p.name == "ppMem" and function.name in _ALLOCATES
        is_out = (
            bool(p.stars)
            and UR.resolve(p.type) == "handle"
            and not {"out", "inout"}.isdisjoint(p.words)
        )
        if not (is_memory or is_out):
            continue
        kind = _find_kind(p)
        # The data lacks `alloc` for some functions. An object belongs to the caller if it can be
        # released and does not come from a Get function.
        created = "alloc" in p.words or (kind in find_counted_kinds() and not gets)
        # urDeviceRelease leaves root devices alone
        always = not created or (gets and kind == "ur_device_handle_t")
        yield OutputObjects(
            i,
            kind,
            _find_position(function, p.length),
            i + 1,
            _find_position(function, "size"),
            created,
            always,
            "inout" in p.words,
        )


def _find_handle_query(function: Function) -> HandleQuery | None:
    value = _find_position(function, "pPropValue")
    returned = _find_position(function, "pPropSizeRet")
    if value is None or returned is None or not function.parameters[value].type_from:
        return None
    name = _find_position(function, function.parameters[value].type_from)
    size = _find_position(function, function.parameters[value].length)
    assert name is not None and size is not None
    group = function.parameters[name].type
    answers = {
        c.value: c.answer.removesuffix("[]") for c in UR.constants.values() if c.group == group
    }
    kinds = {
        constant: answer for constant, answer in answers.items() if UR.resolve(answer) == "handle"
    }
    return HandleQuery(name, value, size, returned, kinds) if kinds else None


def _find_memory_ranges(function: Function) -> Iterator[MemoryRange]:
    size = _find_position(function, "size")
    for i, p in enumerate(function.parameters):
        if size is not None and p.name in _BEGINS and function.name not in _ENDS:
            yield MemoryRange(i, p.name, _find_position(function, _BEGINS[p.name]), size)
