"""Wrong arguments: every listed error that an adapter can see from the arguments alone.

Such errors are NULL handles and pointers, values that an enumeration lacks, contradicting sizes,
and lists without a count. The specification (INTRO, Error handling) lets an adapter leave them to a
validation layer. So they are an area of their own. The cases are the lines of errors.txt.
"""

from __future__ import annotations

import pytest

from fairlead.conformance.checks import expect, forked, rule, unsupported
from fairlead.conformance.ur.arguments import Call
from fairlead.conformance.ur.calls import URCalls
from fairlead.conformance.ur.listed import LISTED, ListedError
from fairlead.conformance.ur.world import World
from fairlead.loader.ur.abi import UR

CASES = [
    pytest.param(
        listed.function,
        error,
        id=f"{listed.function}-{error.change}",
        marks=rule(listed.function, error.describe(listed.function)),
    )
    for listed in LISTED.values()
    for error in listed.errors
]


@pytest.fixture
def call(world: World, ur: URCalls, function: str, error: ListedError) -> Call:
    """Return a call of the function with the wrong argument."""
    if not ur.has(function):
        unsupported(f"the adapter has no {function}")
    made = Call(world, function)
    for change in error.changes():
        made.change(*change)
    return made


@forked
@pytest.mark.parametrize(("function", "error"), CASES)
def test_listed_error(ur: URCalls, function: str, error: ListedError, call: Call) -> None:
    code = call()
    if error.code != "UR_RESULT_ERROR_UNSUPPORTED_FEATURE":
        ur.check_supported(function, code)
    expect(UR, code, error.code)
