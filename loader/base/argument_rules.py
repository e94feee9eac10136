"""What the calls of an API are refused for, and with which codes, as its ABI data says.

Our entry points (plugins/sdk/wrap.py), validation layers, libze_loader.so.1 and tests are made of
these rules. Most follow from `[functions]`: a parameter that is not `optional` must not be NULL, an
enumeration must have the value, room for handles is not 0. The rest is rows of the ABI file:

- `[invalid]`: the code for a type. It is for an enumeration without the value, and for a handle
  that is not alive. A list of handles may have one, too,
- `[refusals]`: further rules, `NAMES: CONDITION: CODE: SENTENCE`. NAMES are functions, parameters,
  `function.parameter` or types. CONDITION is Python, true for a wrong call. In it, `it` is the
  parameter's value, and `count` the number of elements of an optional list. Rows of functions are
  checked last,
- `[own refusals]`: the same, for adapters written in Python. Others may do more,
- `[unchecked]`: types and parameters of which everything is accepted.

The native build loads this file by its path, so it imports nothing of fairlead.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

#: A name in a condition, but not that of a field.
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")


class Rule(NamedTuple):
    """A rule for the arguments of a call.

    Attributes:
        condition: a Python expression of parameters, true if the call breaks the rule.
        code: what such a call returns, such as "INVALID_NULL_HANDLE".
        what: a sentence, in which `{name}` stands for an argument.
    """

    parameter: str
    condition: str
    code: str
    what: str


#: Gets the arguments of a call as words. Returns the first broken rule and its sentence, or None.
Check = Callable[[Sequence[int]], "tuple[Rule, str] | None"]


@cache
def _read_rows(api: Any) -> tuple[dict[str, str], dict[str, list[tuple[bool, str, str, str]]]]:
    """Return the codes of `[invalid]`, and of each name the rows of the two lists of refusals."""
    rows: dict[str, list[tuple[bool, str, str, str]]] = {}
    for section in ("refusals", "own refusals"):
        for line in api.list_lines(section):
            names, condition, code, what = line.split(": ", 3)
            condition = _NAME.sub(lambda word: _get_number(api, word[0]), condition)
            for name in names.split(" "):
                rows.setdefault(name, []).append((section != "refusals", condition, code, what))
    return dict(line.split(" = ") for line in api.list_lines("invalid")), rows


def _get_number(api: Any, name: str) -> str:
    return str(api[name]) if name in api.constants else name


def _find_rows(api: Any, name: str, own: bool) -> Iterator[tuple[str, str, str]]:
    """Yield condition, code and sentence of the rows for a function, a parameter or a type."""
    for is_own, condition, code, what in _read_rows(api)[1].get(name, ()):
        if own or not is_own:
            yield condition, code, what


def find_dead_code(api: Any, p: Any, other: str) -> str:
    """Return the code for a handle of a parameter that is not alive, `other` if it has none.

    It is that of the type, unless an optional list has one of its own.
    """
    codes = _read_rows(api)[0]
    return (codes.get(p.name) if "optional" in p.words else "") or codes.get(p.type, other)


def find_null_code(api: Any, p: Any) -> str:
    """Return the code for NULL in place of a handle: that of the list, if it has one of its own."""
    has_own = p.name in _read_rows(api)[0]
    return find_dead_code(api, p, "") if has_own else "INVALID_NULL_HANDLE"


def is_unchecked(function: Any, p: Any) -> bool:
    """Return whether everything is accepted of a parameter, such as NULL."""
    unchecked = function.api.list_lines("unchecked")
    return p.name in unchecked or f"{function.name}.{p.name}" in unchecked


def list_rules(function: Any, *, own: bool = False) -> tuple[Rule, ...]:
    """Return the rules for the calls of a function, in the order in which they are checked.

    A function that returns no code has none.

    Args:
        own: also those of `[own refusals]`.
    """
    if function.error_channel != "return":
        return ()
    of_parameters = (list_parameter_rules(function, p, own=own) for p in function.parameters)
    return *chain.from_iterable(of_parameters), *list_call_rules(function, own=own)


def list_call_rules(function: Any, *, own: bool = False) -> Iterator[Rule]:
    """Yield the rules for the call as a whole. They are checked last."""
    known = {p.name for p in function.parameters}
    for condition, code, what in _find_rows(function.api, function.name, own):
        first = next(name for name in _NAME.findall(condition) if name in known)
        yield Rule(first, condition, code, what)


def list_parameter_rules(function: Any, p: Any, *, own: bool = False) -> Iterator[Rule]:
    """Yield the rules for one parameter."""
    api, name = function.api, p.name
    if is_unchecked(function, p):
        return
    base, optional = api.resolve(p.type), "optional" in p.words
    names = [other.name for other in function.parameters]
    count = p.length if p.length in names else ""
    is_out = {"out", "inout"} & set(p.words) and p.stars > (p.type == "void")
    if not optional and (p.stars or base in ("handle", "callback")):
        is_handle = base == "handle" and not p.stars
        code = "INVALID_NULL_HANDLE" if is_handle else "INVALID_NULL_POINTER"
        yield Rule(name, f"not {name}", code, "it is required")
    if count and is_out and base == "handle":
        what = "it is there, and has room for nothing"
        yield Rule(name, f"{name} and not {count}", "INVALID_SIZE", what)
    elif count and optional and base == "struct":
        what = f"it is NULL, and {{{count}}} elements are announced"
        yield Rule(name, f"{count} and not {name}", "INVALID_NULL_POINTER", what)
    for row in (*_find_rows(api, name, own), *_find_rows(api, f"{function.name}.{name}", own)):
        if "count" not in _NAME.findall(row[0]) or (count and optional):
            yield Rule(name, *_fill(row, name, count))
    if not p.stars:
        yield from _list_value_rules(api, name, name, p.type, own)
    elif p.stars == 1 and base == "struct" and not p.length and not is_out:
        where = f"{name} and " if optional else ""
        for field in api.structs[p.type].fields if p.type in api.structs else ():
            if not field.stars and not field.length:
                value = f"{name}.{field.name}"
                yield from _list_value_rules(api, name, value, field.type, own, where)


def _list_value_rules(
    api: Any, name: str, value: str, type_name: str, own: bool, where: str = ""
) -> Iterator[Rule]:
    """Yield the rules for a value of a type, if the condition `where` is true."""
    values = api.groups.get(type_name)
    if type_name in api.list_lines("unchecked"):
        return
    if values and api.is_bitfield(type_name):
        bits = 0
        for one in values:
            bits |= one
        what = f"{type_name} does not have all bits of {{{value}:#x}}"
        yield Rule(name, f"{where}{value} & ~{bits:#x}", "INVALID_ENUMERATION", what)
    elif values:
        code = _read_rows(api)[0].get(type_name, "INVALID_ENUMERATION")
        listed = ", ".join(map(str, sorted(values)))
        what = f"{type_name} has no value {{{value}:#x}}"
        yield Rule(name, f"{where}{value} not in {{{listed}}}", code, what)
    for row in _find_rows(api, type_name, own):
        condition, code, what = _fill(row, value)
        yield Rule(name, f"{where}({condition})" if where else condition, code, what)


def _fill(row: Iterable[str], value: str, count: str = "count") -> Iterator[str]:
    """Yield condition, code and sentence of a row for a parameter with a value and a count."""
    condition, code, what = row
    words = {"it": value, "count": count}
    yield _NAME.sub(lambda word: words.get(word[0], word[0]), condition)
    yield code
    yield re.sub(r"\{(it|count)\b", lambda word: f"{{{words[word[1]]}", what)


def compile_rules(function: Any, rules: Sequence[Rule]) -> Check:
    """Return what checks calls of a function by rules.

    Rules for what a struct contains are left out: nobody knows whether the memory can be read.
    """
    kept = [rule for rule in rules if "." not in rule.condition]
    used = {name for rule in kept for name in _NAME.findall(rule.condition)}
    lines = ["def check(words):"]
    for place, p in enumerate(function.parameters):
        if p.name in used:
            lines.append(f"    {p.name} = words[{place}]{_mask(function.api, p)}")
    for place, rule in enumerate(kept):
        sentence = f"rules[{place}].what.format(**locals())"
        lines.append(f"    if {rule.condition}: return rules[{place}], {sentence}")
    scope: dict[str, Any] = {"rules": kept}
    exec("\n".join([*lines, "    return None"]), scope)
    return scope["check"]


def _mask(api: Any, p: Any) -> str:
    """Return what leaves the bits of a word that a parameter has: a caller sets no others."""
    size = 8 if p.stars else ctypes.sizeof(api.make_ctype(p.type))
    return f" & {(1 << 8 * size) - 1:#x}" if size < 8 else ""


def format_c_condition(rule: Rule) -> str:
    """Return the condition of a rule in C."""
    text = re.sub(
        r"(\w+) not in \{(.*?)\}",
        lambda found: " && ".join(f"{found[1]} != {value}" for value in found[2].split(", ")),
        rule.condition,
    )
    text = re.sub(r"~(0x\w+)", r"~\1u", text)
    return re.sub(r"\bnot ", "!", text).replace(" and ", " && ").replace(" or ", " || ")
