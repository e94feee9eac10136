"""What the cases of the suite call: the marks that name a case's rule, and the ways in which a case ends.

A case passes when it returns. It fails by raising `Mismatch`, which carries what the specification demands and what the library did,
or by raising anything else. `unsupported` ends it as neither.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NoReturn

import pytest

from fairlead.loader.base.abi import Api


class Mismatch(Exception):
    """The library did something else than the specification demands."""

    def __init__(self, expected: object, got: object) -> None:
        super().__init__(f"expected {expected}, got {got}")
        self.expected, self.got = str(expected), str(got)


class Unsupported(Exception):
    """The library says that it does not support what the case is about, and the specification lets it."""


_SHORT: Final = 12

#: The specification leaves undefined what happens (a garbage handle, say); such a case is counted apart from all others.
beyond_specification: Final = pytest.mark.beyond_specification

#: Run in a forked copy of the process: for calls that are answered at once or crash. See README.md.
forked: Final = pytest.mark.forked


def rule(entry_point: str, text: str) -> pytest.MarkDecorator:
    """The mark that every case has: which function it is about, and what that has to do, in a few words."""
    return pytest.mark.rule(entry_point, text)


def each(values: Iterable[Any], entry_point: str, text: str) -> list[Any]:
    """What `pytest.mark.parametrize` takes: a case for each value, whose rule is the text with the value in the place of `{}`."""
    return [
        pytest.param(value, marks=rule(entry_point.format(value), text.format(value)))
        for value in values
    ]


def name_of(api: Api, code: int) -> str:
    """The symbolic name of a code of an API; its number if the API has none for it."""
    return api.errors[code][0] if code in api.errors else f"{code} (no code of this API)"


def expect(api: Api, code: int, *names: str, what: str = "") -> str:
    """The answer of a call must be one of these codes; returns which. `what` is put before it in the report."""
    got = name_of(api, code)
    if got not in names:
        prefix = f"{what}: " if what else ""
        failed(prefix + " or ".join(names), prefix + got)
    return got


def equal(got: object, expected: object, what: str = "") -> None:
    """Two values must be equal. `what` says in the report what they are. Of long lists the first difference is reported."""
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
    """The case has failed."""
    raise Mismatch(expected, got)


def unsupported(reason: str) -> NoReturn:
    """The case has nothing to test: the library does not support it, as the specification allows."""
    raise Unsupported(reason)
