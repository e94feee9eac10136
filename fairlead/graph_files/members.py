"""What the records of a graph file consist of: a rule for each member, in tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ..loader.base.errors import add_article
from .document import LONGEST_ARGUMENT
from .errors import make_invalid_error
from .parameters import is_step

#: No number of a file is larger; a sum or product of some is still exact in Python.
MOST: Final = (1 << 63) - 1
_MEMBER: Final = re.compile(r"(?:programs|contents|result)/[A-Za-z0-9_][A-Za-z0-9_.-]{0,80}")
_DTYPE: Final = re.compile(r"[<>|][biufcV]\d{1,4}")
_NAME: Final = re.compile(r"[^\W\d]\w{0,200}")
_HEX: Final = re.compile(r"(?:[0-9a-f]{2})*")
_NOT_IN_TEXT: Final = re.compile("[\0\ud800-\udfff]")  # UTF-8 has no surrogates
_WORD: Final = re.compile(r"[A-Za-z0-9_]{1,40}")


def shorten(value: Any) -> str:
    """Return a wrong value for a message: not all of it, if it is long."""
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "…"


@dataclass(frozen=True, slots=True)
class ValueRule:
    """What a value has to be: a name for it, and whether a value is that."""

    what: str
    holds: Callable[[Any], Any]

    def check(self, path: str, value: Any) -> None:
        """Raise GraphFileError if a value is not that."""
        if not self.holds(value):
            raise make_invalid_error(
                f"{path} is {shorten(value)}, and not {add_article(self.what)}"
            )


class Members:
    """The members of a record: the rule of each by name; a "?" marks one that may be missing."""

    def __init__(self, rules: Mapping[str, ValueRule]) -> None:
        self.rules = {name.rstrip("?"): rule for name, rule in rules.items()}
        self.needed = frozenset(name for name in rules if not name.endswith("?"))

    def __or__(self, other: Members) -> Members:
        made = Members(self.rules | other.rules)
        made.needed = self.needed | other.needed
        return made


def is_number(value: Any, most: int = MOST) -> bool:
    """Whether a value is a whole number from 0 to `most`."""
    return type(value) is int and 0 <= value <= most


def _make_matcher(pattern: re.Pattern[str]) -> Callable[[Any], Any]:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value)


def _is_dtype(value: Any) -> bool:
    """Whether NumPy knows a type, and it has no objects of Python."""
    if not isinstance(value, str) or not _DTYPE.fullmatch(value):
        return False
    try:
        return np.dtype(value).itemsize == int(value[2:]) > 0
    except TypeError:
        return False


def make_choice_rule(*names: str) -> ValueRule:
    """Return the rule of a value that is one of these names."""
    return ValueRule(
        "one of " + ", ".join(names), lambda value: isinstance(value, str) and value in names
    )


def make_triple_rule(least: int, most: int = MOST) -> Callable[[Any], bool]:
    """Return what a list of three numbers fulfils, each from `least` to `most`."""
    return lambda value: (
        isinstance(value, list)
        and len(value) == 3
        and all(is_number(one, most) and one >= least for one in value)
    )


def are_sizes(value: Any) -> bool:
    """Whether a value is a list of one to three whole numbers."""
    return isinstance(value, list) and 1 <= len(value) <= 3 and all(map(is_number, value))


def _is_argument(value: Any) -> Any:
    return isinstance(value, str) and len(value) <= 2 * LONGEST_ARGUMENT and _HEX.fullmatch(value)


NUMBER = ValueRule("whole number from 0", is_number)
SIZE = ValueRule("size of at least 1", lambda value: is_number(value) and value > 0)
TEXT = ValueRule("text", lambda value: isinstance(value, str) and not _NOT_IN_TEXT.search(value))
FLAG = ValueRule("true or false", lambda value: type(value) is bool)
NAME = ValueRule("name", _make_matcher(_NAME))
WORD = ValueRule("word", _make_matcher(_WORD))
HEX = ValueRule("bytes in hexadecimal digits", _make_matcher(_HEX))
FILE = ValueRule("member of programs/, contents/ or result/", _make_matcher(_MEMBER))
DTYPE = ValueRule("type of NumPy's, such as <f4", _is_dtype)
WORDS = ValueRule(
    "list of words",
    lambda value: (
        isinstance(value, list) and len(value) < 20 and all(map(_make_matcher(_WORD), value))
    ),
)
SHAPE = ValueRule(
    "shape",
    lambda value: isinstance(value, list) and len(value) <= 32 and all(map(is_number, value)),
)
STEPS = ValueRule(
    "list of steps of a computation",
    lambda value: isinstance(value, list) and 1 <= len(value) <= 100 and all(map(is_step, value)),
)
LIST = ValueRule("list", lambda value: isinstance(value, list))
#: What it refers to is checked when its members are known.
ANYTHING = ValueRule("reference", lambda value: True)

PROGRAM: Final = Members({"options": TEXT, "source?": FILE, "il?": FILE, "binaries?": LIST})
BINARY: Final = Members({"device": TEXT, "driver": TEXT, "file": FILE})
KERNEL: Final = Members({"program": NUMBER, "name": NAME, "arguments?": LIST})
ARGUMENT_INFO: Final = Members({"type": TEXT, "name": TEXT, "constant": FLAG})
ANY_MEMORY: Final = Members(
    {
        "kind": make_choice_rule("buffer", "sub_buffer", "image", "host", "svm"),  # checked first
        "size": SIZE,
        "name?": NAME,
        "dtype?": DTYPE,
        "shape?": SHAPE,
        "contents?": FILE,
        "result?": FILE,
    }
)
MEMORY: Final[Mapping[str, Members]] = {
    "buffer": ANY_MEMORY | Members({"flags": WORDS}),
    "sub_buffer": ANY_MEMORY | Members({"flags": WORDS, "of": NUMBER, "offset": NUMBER}),
    "image": ANY_MEMORY
    | Members(
        {
            "flags": WORDS,
            "type": make_choice_rule(
                "image1d", "image1d_array", "image1d_buffer", "image2d", "image2d_array", "image3d"
            ),
            "order": WORD,
            "channel_type": WORD,
            "element_size": SIZE,
            "extent": ValueRule("extent of three", make_triple_rule(1, 1 << 32)),
            "of?": NUMBER,
            "row_pitch?": NUMBER,
        }
    ),
    "host": ANY_MEMORY,
    "svm": ANY_MEMORY | Members({"flags": WORDS}),
}
SAMPLER: Final = Members({"normalized": FLAG, "addressing": WORD, "filter": WORD})
NUMBER_PARAMETER: Final = Members({"name?": NAME, "dtype": DTYPE, "value": HEX})
MEMORY_PARAMETER: Final = Members({"name?": NAME, "memory": NUMBER, "is_array": FLAG})
DERIVED_PARAMETER: Final = Members({"from": NUMBER, "steps": STEPS})
AFTER: Final = Members({"op": TEXT, "after": LIST})
LAUNCH: Final = AFTER | Members(
    {
        "kernel": NUMBER,
        "global": ValueRule("range of one to three sizes", are_sizes),
        "local?": ValueRule("range of one to three sizes", are_sizes),
        "offset?": ValueRule("range of one to three sizes", are_sizes),
        "args": LIST,
    }
)
ARGUMENT: Final[Mapping[str, Members]] = {
    "value": Members({"value": ValueRule("value", _is_argument)}),
    "local": Members({"local": SIZE}),
    "memory": Members({"memory": NUMBER, "start?": NUMBER}),
    "sampler": Members({"sampler": NUMBER}),
    "parameter": Members({"parameter": NUMBER}),
}
REFERENCE: Final = Members({"parameter": NUMBER})


def check_record(path: str, value: Any, members: Members) -> None:
    """Check that a value is an object with these members, each as its rule says, and no others."""
    if not isinstance(value, dict):
        raise make_invalid_error(f"{path} is {shorten(value)}, and no object")
    rules = members.rules
    for name, one in value.items():
        rule = rules.get(name)
        if rule is None:
            raise make_invalid_error(f"{path} has the unknown member {shorten(name)}")
        if not rule.holds(one):
            rule.check(f"{path}.{name}", one)
    if not value.keys() >= members.needed:
        raise make_invalid_error(f"{path} has no {min(members.needed - value.keys())}")
