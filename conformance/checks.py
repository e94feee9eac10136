"""The marks that name a case's rule, and the functions that end a case.

A case passes when it returns. It fails when it raises `Mismatch`, which says what the specification
demands and what the library did. Any other exception fails it, too. `unsupported` ends a case that
is neither passed nor failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn

import pytest

from fairlead.loader.base.abi import Api


class Mismatch(Exception):
    """The library did something else than the specification demands."""

    def __init__(self, expected: object, got: object) -> None:
        super().__init__(f"expected {expected}, got {got}")
        self.expected, self.got = str(expected), str(got)


class Unsupported(Exception):
    """The library does not implement what the case tests, or the device does not have it."""


#: How the name of a code ends by which a library says that it does not implement a function.
NOT_IMPLEMENTED: Final = "_UNSUPPORTED_FEATURE"


_SHORT: Final = 12

#: How a text about the library is written. A suite that runs the cases of another interface puts a
#: function here, which gives it the names of its own. Two codes that get the same name are one.
spelling: Final[list[Callable[[str], str]]] = []

#: The codes that the library has answered in the present case although `expect` was given another
#: one first: the case takes several, and the report says which it got.
alternatives: Final[list[str]] = []

#: The specification leaves undefined what happens, for a garbage handle for example. Such cases are
#: counted separately.
beyond_specification: Final = pytest.mark.beyond_specification

#: The case may run in a fork. It is for calls that return at once or crash. See README.md.
forked: Final = pytest.mark.forked
#: The case ends the library, which later cases need. It always runs in a fork.
ends_library: Final = pytest.mark.forked(ends=True)


def rule(entry_point: str, text: str) -> pytest.MarkDecorator:
    """Return the mark that every case has.

    Args:
        entry_point: the function that the case tests.
        text: what the function has to do, in a few words.
    """
    return pytest.mark.rule(entry_point, text)


def each(values: Iterable[Any], entry_point: str, text: str) -> list[Any]:
    """Return one case for each value, as `pytest.mark.parametrize` takes them.

    Args:
        entry_point: the function that is tested; `{}` stands for the value.
        text: the rule; `{}` stands for the value.
    """
    return [
        pytest.param(value, marks=rule(entry_point.format(value), text.format(value)))
        for value in values
    ]


def spell(text: str) -> str:
    """Return a text with the names of the interface under test."""
    for write in spelling:
        text = write(text)
    return text


def name_of(api: Api, code: int) -> str:
    """Return the symbolic name of an API's code, or its number if the API has no such code."""
    return api.errors[code][0] if code in api.errors else f"{code} (no code of this API)"


def expect(api: Api, code: int, *names: str, what: str = "") -> str:
    """Check that a call answers an expected code, and return the code's symbolic name.

    Args:
        code: what the call returned.
        names: the symbolic names of the expected codes, the best one first.
        what: the report puts it before the code.

    Raises:
        Mismatch: it is another code.
        Unsupported: the library says that it does not implement the function.
    """
    got = name_of(api, code)
    spelt = spell(got)
    same = [name for name in names if spell(name) == spelt]
    if not same:
        if got.endswith(NOT_IMPLEMENTED):
            unsupported(f"{what or 'the function'} answers {got}")
        prefix = f"{what}: " if what else ""
        failed(prefix + " or ".join(names), prefix + got)
    if names[0] not in same:
        alternatives.append(spelt)
    return got


def equal(got: object, expected: object, what: str = "") -> None:
    """Check that two values are equal. Of long lists the report has the first difference.

    Args:
        got: what the library gave.
        expected: what the specification demands.
        what: says in the report what the values are.

    Raises:
        Mismatch: they differ.
    """
    if got == expected:
        return
    prefix = f"{what}: " if what else ""
    if isinstance(got, list) and isinstance(expected, list) and len(got) == len(expected) > _SHORT:
        place = next(
            i for i, pair in enumerate(zip(got, expected, strict=True)) if pair[0] != pair[1]
        )
        differ = sum(a != b for a, b in zip(got, expected, strict=True))
        failed(
            f"{prefix}[{place}] = {expected[place]}",
            f"{prefix}[{place}] = {got[place]} ({differ} of {len(got)} differ)",
        )
    failed(f"{prefix}{expected}", f"{prefix}{got}")


def failed(expected: object, got: object) -> NoReturn:
    """End the case as failed."""
    raise Mismatch(expected, got)


def unsupported(reason: str) -> NoReturn:
    """End the case as unsupported: there is nothing to test."""
    raise Unsupported(reason)
