"""The rules for calls of Unified Runtime functions, derived from the ABI data for `validation`.

`all_rules` makes them for all functions of ur.abi. A parameter that is not `optional` must not be
NULL. An enumeration must have the value. A list and its length belong together. `alloc`, `retain`
and `release` say what happens to an object. Four small tables contain what the data does not say.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from ..base.abi import Function, Parameter
from ..base.memory import read_words
from .abi import UR

#: Type of an optional list to the code if only the list or only its count is given.
_MISMATCH: Final = {
    "ur_event_handle_t": "UR_RESULT_ERROR_INVALID_EVENT_WAIT_LIST",
    "ur_exp_command_buffer_sync_point_t": (
        "UR_RESULT_ERROR_INVALID_COMMAND_BUFFER_SYNC_POINT_WAIT_LIST_EXP"
    ),
    "ur_kernel_handle_t": "UR_RESULT_ERROR_INVALID_VALUE",
}
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
#: The most handles of an array that are read, because the count may be garbage.
_MAX_HANDLES: Final = 4096


class Violation(NamedTuple):
    """Why a call is refused: the parameter, what is wrong with it, the name of the code."""

    parameter: str
    what: str
    code: str


@dataclass(frozen=True)
class InputObjects:
    """A parameter with objects that must be alive.

    Attributes:
        index: its position.
        parameter: the parameter.
        kind: the kind of the objects.
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
        index: its position.
        kind: the kind of the objects.
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
        parameter: its name.
        begin: the position of the offset, None if the pointer is the beginning.
        size: the position of the size in bytes.
    """

    index: int
    parameter: str
    begin: int | None
    size: int


_Check: TypeAlias = Callable[[Sequence[int]], "Violation | None"]


class Rules(NamedTuple):
    """All rules for a function."""

    function: Function
    checks: tuple[_Check, ...]
    inputs: tuple[InputObjects, ...]
    outputs: tuple[OutputObjects, ...]
    query: HandleQuery | None
    ranges: tuple[MemoryRange, ...]


@functools.cache
def all_rules() -> tuple[Rules, ...]:
    """Return the rules of all functions by slot."""
    return tuple(
        Rules(
            f,
            tuple(_checks(f)),
            tuple(_inputs(f)),
            tuple(_outputs(f)),
            _handle_query(f),
            tuple(_memory_ranges(f)),
        )
        for f in UR.slots
    )


@functools.cache
def counted_kinds() -> frozenset[str]:
    """Return the kinds of objects that a program can release."""
    ends = ((f, p) for f in UR.slots for p in f.parameters if _change(f, p) < 0)
    return frozenset(_kind(p) for _, p in ends)


def _kind(p: Parameter) -> str:
    return MEMORY if p.type == "void" else p.type


def _change(function: Function, p: Parameter) -> int:
    """Return how a call changes the references of the object in a parameter: -1, 0 or 1."""
    if _ENDS.get(function.name) == p.name:
        return -1
    if p.stars or UR.resolve(p.type) != "handle":
        return 0
    return ("retain" in p.words) - ("release" in p.words)


def _index(function: Function, name: str) -> int | None:
    return next((i for i, p in enumerate(function.parameters) if p.name == name), None)


def _count_index(function: Function, index: int) -> int | None:
    """Return the position of the number of elements in a parameter, None if there is none.

    For a list of sync points it is the parameter before.
    """
    p = function.parameters[index]
    if p.type == "ur_exp_command_buffer_sync_point_t" and "out" not in p.words and p.stars:
        return index - 1
    return _index(function, p.length) if p.length else None


def _is_handle_list(p: Parameter) -> bool:
    return (
        p.stars == 1 and bool(p.length) and UR.resolve(p.type) == "handle" and "out" not in p.words
    )


def _invalid(kind: str) -> str:
    """Return the code for an invalid object of a kind. Not every kind has one."""
    stem = kind.removeprefix("ur_").removeprefix("exp_").removesuffix("_handle_t").upper()
    names = (
        f"UR_RESULT_ERROR_INVALID_{stem}{suffix}"
        for suffix in ("", "_OBJECT", "_EXP", "_HANDLE_EXP")
    )
    return next((name for name in names if name in UR.codes), "UR_RESULT_ERROR_INVALID_NULL_HANDLE")


# Rules for parameters


def _checks(function: Function) -> Iterator[_Check]:
    """Yield the checks of a function's arguments in order."""
    for find in (_null_checks, _value_checks, _list_checks, _query_checks):
        yield from find(function)


def _null_checks(function: Function) -> Iterator[_Check]:
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


def _value_checks(function: Function) -> Iterator[_Check]:
    for i, p in enumerate(function.parameters):
        if not p.stars and p.type in UR.groups:
            values = UR.groups[p.type]
            mask = functools.reduce(int.__or__, values) if UR.is_bitfield(p.type) else None
            yield functools.partial(_check_value, i, p, mask)


def _check_value(
    index: int, p: Parameter, mask: int | None, arguments: Sequence[int]
) -> Violation | None:
    value = arguments[index] & 0xFFFFFFFF
    if mask is None:
        what = "" if value in UR.groups[p.type] else f"{p.type} has no value {value:#x}"
    else:
        what = f"{p.type} has no bits {value & ~mask:#x}" if value & ~mask else ""
    return Violation(p.name, what, "UR_RESULT_ERROR_INVALID_ENUMERATION") if what else None


def _list_checks(function: Function) -> Iterator[_Check]:
    for i, p in enumerate(function.parameters):
        count = _count_index(function, i)
        if count is None or p.type == "void":
            continue
        optional, code = "optional" in p.words, _MISMATCH.get(p.type, "")
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
        if _is_handle_list(p):
            is_wait_list = optional and p.type == "ur_event_handle_t"
            element = code if is_wait_list else "UR_RESULT_ERROR_INVALID_NULL_HANDLE"
            yield functools.partial(_check_elements, i, count, p.name, element)


def _check_pair(
    index: int, count: int, name: str, no_list: str, no_count: str, arguments: Sequence[int]
) -> Violation | None:
    """Check that a list and its number of elements are both given, or both 0.

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


def _query_checks(function: Function) -> Iterator[_Check]:
    value, returned = _index(function, "pPropValue"), _index(function, "pPropSizeRet")
    if value is None or returned is None:
        return
    null = "UR_RESULT_ERROR_INVALID_NULL_POINTER"
    size = _count_index(function, value)
    if size is not None:
        yield functools.partial(
            _check_pair, value, size, "pPropValue", null, "UR_RESULT_ERROR_INVALID_SIZE"
        )
    neither = Violation(
        "pPropValue", "it is NULL, and so is pPropSizeRet: nothing can be answered", null
    )
    yield lambda arguments: None if arguments[value] or arguments[returned] else neither


# Rules for objects


def _inputs(function: Function) -> Iterator[InputObjects]:
    for i, p in enumerate(function.parameters):
        change = _change(function, p)
        if change or (not p.stars and UR.resolve(p.type) == "handle") or _is_handle_list(p):
            kind = _kind(p)
            code = "UR_RESULT_ERROR_INVALID_MEM_OBJECT" if kind == MEMORY else _invalid(kind)
            if _is_handle_list(p) and "optional" in p.words:
                code = _MISMATCH.get(p.type, code)
            yield InputObjects(i, p, kind, _count_index(function, i), change, code)


def _outputs(function: Function) -> Iterator[OutputObjects]:
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
        kind = _kind(p)
        # The data lacks `alloc` for some functions. An object belongs to the caller if it can be
        # released and does not come from a Get function.
        created = "alloc" in p.words or (kind in counted_kinds() and not gets)
        # urDeviceRelease leaves root devices alone
        always = not created or (gets and kind == "ur_device_handle_t")
        yield OutputObjects(
            i,
            kind,
            _count_index(function, i),
            i + 1,
            _index(function, "size"),
            created,
            always,
            "inout" in p.words,
        )


def _handle_query(function: Function) -> HandleQuery | None:
    value, returned = _index(function, "pPropValue"), _index(function, "pPropSizeRet")
    if value is None or returned is None or not function.parameters[value].type_from:
        return None
    name, size = (
        _index(function, function.parameters[value].type_from),
        _index(function, function.parameters[value].length),
    )
    assert name is not None and size is not None
    group = function.parameters[name].type
    answers = {
        c.value: c.answer.removesuffix("[]") for c in UR.constants.values() if c.group == group
    }
    kinds = {
        constant: answer for constant, answer in answers.items() if UR.resolve(answer) == "handle"
    }
    return HandleQuery(name, value, size, returned, kinds) if kinds else None


def _memory_ranges(function: Function) -> Iterator[MemoryRange]:
    size = _index(function, "size")
    for i, p in enumerate(function.parameters):
        if size is not None and p.name in _BEGINS and function.name not in _ENDS:
            yield MemoryRange(i, p.name, _index(function, _BEGINS[p.name]), size)


# Reading arguments


def read_handles(address: int, count: int) -> list[int]:
    """Return the words of an array, up to the first one that cannot be read."""
    words = read_words(address, min(count, _MAX_HANDLES)) if address else []
    return [word for word in words if word is not None]
