"""Every info query of every object: the size first, then the value.

The size fits the type that the specification gives for the answer. The value has exactly that size.
A string ends with NUL, and an enumeration's value is one of its own. Nothing is written beyond the
given size. An adapter that does not support a query may answer UNSUPPORTED_ENUMERATION.
"""

from __future__ import annotations

import ctypes

import pytest

from fairlead.conformance.checks import equal, expect, failed, name_of, rule, unsupported
from fairlead.conformance.ur.arguments import Call
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.world import World
from fairlead.loader.base.abi import Constant
from fairlead.loader.ur.abi import UR

_GUARD = b"\xa5" * 64
_LARGEST = 1 << 22

#: Answers that are written elsewhere: the caller passes pointers, and the size is that of the
#: pointers.
_INDIRECT = frozenset({"UR_PROGRAM_INFO_BINARIES"})
#: Listed answers to a query that this object does not support, besides UNSUPPORTED_ENUMERATION.
_ALSO_UNSUPPORTED = {"urQueueGetInfo": "UR_RESULT_ERROR_INVALID_QUEUE"}
#: The end of the names of fairlead's own queries, which other adapters do not know.
_OWN = "_FAIRLEAD"
_NEWEST = next(iter(UR.layouts))

CASES = [
    pytest.param(
        f.name,
        c,
        id=f"{f.name}-{c.name}",
        marks=rule(f.name, f"{c.name} gives its size, then its value"),
    )
    for f in UR.slots
    for p in f.parameters
    if p.name == "propName" and {"propSize", "pPropSizeRet"} <= {q.name for q in f.parameters}
    for c in UR.constants.values()
    if c.group == p.type and not c.name.endswith(_OWN)
]


def ask_query(call: Call, constant: Constant, size: int, value: object, returned: object) -> int:
    """Call a query and return the code."""
    call.arguments.update(
        propName=constant.value, propSize=size, pPropValue=value, pPropSizeRet=returned
    )
    return call()


@pytest.mark.parametrize(("function", "constant"), CASES)
def test_query(ur: URCalls, world: World, function: str, constant: Constant) -> None:
    if not ur.has(function):
        ur.ok(function)
    call, size = Call(world, function), ctypes.c_size_t(_LARGEST)
    code = ask_query(call, constant, 0, None, ctypes.byref(size))
    ur.check_supported(function, code)
    answer = name_of(UR, code)
    if answer == "UR_RESULT_ERROR_UNSUPPORTED_ENUMERATION":
        unsupported("the adapter answers UNSUPPORTED_ENUMERATION")
    if answer == "UR_RESULT_ERROR_INVALID_ENUMERATION" and ur.plugin.binding.layout != _NEWEST:
        unsupported(f"an adapter of {ur.plugin.binding.layout} may not know this query yet")
    if answer == _ALSO_UNSUPPORTED.get(function):
        unsupported(f"the adapter answers {answer}")
    expect(UR, code, "UR_RESULT_SUCCESS")
    check_size(constant, size.value)
    if constant.name in _INDIRECT or not size.value:  # an empty answer has no value to ask for
        return
    room = ctypes.create_string_buffer(size.value + len(_GUARD))
    ctypes.memmove(ctypes.addressof(room) + size.value, _GUARD, len(_GUARD))
    again = ctypes.c_size_t()
    expect(
        UR, ask_query(call, constant, size.value, room, ctypes.byref(again)), "UR_RESULT_SUCCESS"
    )
    equal(again.value, size.value, "the size that is returned with the value")
    equal(room.raw[size.value :], _GUARD, "what lies behind the value")
    check_value(constant, room.raw[: size.value])
    expect(
        UR,
        ask_query(call, constant, size.value, room, None),
        "UR_RESULT_SUCCESS",
        what="without pPropSizeRet",
    )


def check_size(constant: Constant, size: int) -> None:
    """Check that the answer's type can have this size."""
    name, is_array = constant.answer.removesuffix("[]"), constant.answer.endswith("[]")
    if size == _LARGEST:
        failed("the size", "pPropSizeRet was not written")
    if not name or UR.resolve(name) in ("callback", "void"):
        return
    one = ctypes.sizeof(UR.make_ctype(name))
    if is_array and size % one:
        failed(f"a multiple of {one} bytes ({constant.answer})", f"{size} bytes")
    if not is_array and size != one:
        failed(f"{one} bytes ({constant.answer})", f"{size} bytes")


def check_value(constant: Constant, value: bytes) -> None:
    """Check that the answer's type can have this value."""
    if constant.answer == "char[]":
        if value and not value.endswith(b"\0"):
            failed("a string that ends with NUL", repr(value[-16:]))
        return
    if constant.answer not in UR.groups:
        return
    number = int.from_bytes(value, "little")
    legal = UR.groups[constant.answer]
    if UR.is_bitfield(constant.answer):
        unknown = number & ~sum(legal)
        equal(unknown, 0, f"bits that {constant.answer} does not have")
    elif number not in legal:
        failed(f"a value of {constant.answer}", number)
