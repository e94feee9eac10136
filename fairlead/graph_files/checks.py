"""The rules of graph files. A file is written by others, so nothing of it is used before it was
checked: types, numbers, references, sizes, and the order.

Every rule is a line of a table, or one small function.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np

from ..loader.base.errors import with_article
from .document import CONTENTS, FORMAT, KERNEL, LONGEST_ARGUMENT, MARKER, VERSION, Document
from .errors import NEWER, GraphFileError, invalid
from .operations import BUFFER, HOST, IMAGE, OPERATIONS, SVM, extent
from .parameters import is_step

#: No number of a file is larger; a sum or product of some is still exact in Python.
_MOST: Final = (1 << 63) - 1
_MEMBER: Final = re.compile(r"(?:programs|contents|result)/[A-Za-z0-9_][A-Za-z0-9_.-]{0,80}")
_DTYPE: Final = re.compile(r"[<>|][biufcV]\d{1,4}")
_NAME: Final = re.compile(r"[^\W\d]\w{0,200}")
_HEX: Final = re.compile(r"(?:[0-9a-f]{2})*")
_WORD: Final = re.compile(r"[A-Za-z0-9_]{1,40}")


def document_of(value: Any) -> Document:
    """Check a value of graph.json.

    Raises:
        GraphFileError: it is not a graph, of a later version, or breaks a rule.
    """
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise invalid("the file is a zip archive, and not a graph of fairlead")
    version = value.get("version")
    if type(version) is int and version > VERSION:
        raise GraphFileError(
            f"the file has version {version} of the format, and this fairlead reads version "
            f"{VERSION}",
            routine="load",
            code=NEWER,
            remedy="install a newer fairlead, or have the file saved by this one",
        )
    if version != VERSION:
        raise invalid(f"the file's version is {_shown(version)}, and the first one is 1")
    names = {one.name for one in fields(Document)}
    missing = sorted(names - value.keys())
    if missing:
        raise invalid(f"graph.json has no {missing[0]}")
    made = Document(**{name: value[name] for name in names})
    _Check(made).all()
    return made


def _shown(value: Any) -> str:
    """A wrong value for a message: not all of it, if it is long."""
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "…"


@dataclass(frozen=True, slots=True)
class _ValueRule:
    """What a value has to be: a name for it, and whether a value is that."""

    what: str
    holds: Callable[[Any], Any]

    def check(self, path: str, value: Any) -> None:
        """Raise GraphFileError if a value is not that."""
        if not self.holds(value):
            raise invalid(f"{path} is {_shown(value)}, and not {with_article(self.what)}")


class _Members:
    """The members of a record: the rule of each by name; a "?" marks one that may be missing."""

    def __init__(self, rules: Mapping[str, _ValueRule]) -> None:
        self.rules = {name.rstrip("?"): rule for name, rule in rules.items()}
        self.needed = frozenset(name for name in rules if not name.endswith("?"))

    def __or__(self, other: _Members) -> _Members:
        made = _Members(self.rules | other.rules)
        made.needed = self.needed | other.needed
        return made


def _is_number(value: Any, most: int = _MOST) -> bool:
    return type(value) is int and 0 <= value <= most


def _matches(pattern: re.Pattern[str]) -> Callable[[Any], Any]:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value)


def _is_dtype(value: Any) -> bool:
    """Whether NumPy knows a type, and it has no objects of Python."""
    if not isinstance(value, str) or not _DTYPE.fullmatch(value):
        return False
    try:
        return np.dtype(value).itemsize == int(value[2:]) > 0
    except TypeError:
        return False


def _one_of(*names: str) -> _ValueRule:
    return _ValueRule(
        "one of " + ", ".join(names), lambda value: isinstance(value, str) and value in names
    )


def _three(least: int, most: int = _MOST) -> Callable[[Any], bool]:
    return lambda value: (
        isinstance(value, list)
        and len(value) == 3
        and all(_is_number(one, most) and one >= least for one in value)
    )


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and 1 <= len(value) <= 3 and all(map(_is_number, value))


def _is_argument(value: Any) -> Any:
    return isinstance(value, str) and len(value) <= 2 * LONGEST_ARGUMENT and _HEX.fullmatch(value)


_number = _ValueRule("whole number from 0", _is_number)
_size = _ValueRule("size of at least 1", lambda value: _is_number(value) and value > 0)
_text = _ValueRule("text", lambda value: isinstance(value, str) and "\0" not in value)
_flag = _ValueRule("true or false", lambda value: type(value) is bool)
_name = _ValueRule("name", _matches(_NAME))
_word = _ValueRule("word", _matches(_WORD))
_hex = _ValueRule("bytes in hexadecimal digits", _matches(_HEX))
_member = _ValueRule("member of programs/, contents/ or result/", _matches(_MEMBER))
_dtype = _ValueRule("type of NumPy's, such as <f4", _is_dtype)
_words = _ValueRule(
    "list of words",
    lambda value: isinstance(value, list) and len(value) < 20 and all(map(_matches(_WORD), value)),
)
_shape = _ValueRule(
    "shape",
    lambda value: isinstance(value, list) and len(value) <= 32 and all(map(_is_number, value)),
)
_steps = _ValueRule(
    "list of steps of a computation",
    lambda value: isinstance(value, list) and 1 <= len(value) <= 100 and all(map(is_step, value)),
)
_list = _ValueRule("list", lambda value: isinstance(value, list))
_anything = _ValueRule(
    "reference", lambda value: True
)  # which is checked when its members are known

_PROGRAM: Final = _Members(
    {"options": _text, "source?": _member, "il?": _member, "binaries?": _list}
)
_BINARY: Final = _Members({"device": _text, "driver": _text, "file": _member})
_KERNEL: Final = _Members({"program": _number, "name": _name, "arguments?": _list})
_ARGUMENT_INFO: Final = _Members({"type": _text, "name": _text, "constant": _flag})
_ANY_MEMORY: Final = _Members(
    {
        "kind": _one_of("buffer", "sub_buffer", "image", "host", "svm"),  # checked first
        "size": _size,
        "name?": _name,
        "dtype?": _dtype,
        "shape?": _shape,
        "contents?": _member,
        "result?": _member,
    }
)
_MEMORY: Final[Mapping[str, _Members]] = {
    "buffer": _ANY_MEMORY | _Members({"flags": _words}),
    "sub_buffer": _ANY_MEMORY | _Members({"flags": _words, "of": _number, "offset": _number}),
    "image": _ANY_MEMORY
    | _Members(
        {
            "flags": _words,
            "type": _one_of(
                "image1d", "image1d_array", "image1d_buffer", "image2d", "image2d_array", "image3d"
            ),
            "order": _word,
            "channel_type": _word,
            "element_size": _size,
            "extent": _ValueRule("extent of three", _three(1, 1 << 32)),
            "of?": _number,
            "row_pitch?": _number,
        }
    ),
    "host": _ANY_MEMORY,
    "svm": _ANY_MEMORY | _Members({"flags": _words}),
}
_SAMPLER: Final = _Members({"normalized": _flag, "addressing": _word, "filter": _word})
_NUMBER_PARAMETER: Final = _Members({"name?": _name, "dtype": _dtype, "value": _hex})
_MEMORY_PARAMETER: Final = _Members({"name?": _name, "memory": _number, "is_array": _flag})
_DERIVED_PARAMETER: Final = _Members({"from": _number, "steps": _steps})
_AFTER: Final = _Members({"op": _text, "after": _list})
_LAUNCH: Final = _AFTER | _Members(
    {
        "kernel": _number,
        "global": _ValueRule("range of one to three sizes", _sizes),
        "local?": _ValueRule("range of one to three sizes", _sizes),
        "offset?": _ValueRule("range of one to three sizes", _sizes),
        "args": _list,
    }
)
_ARGUMENT: Final[Mapping[str, _Members]] = {
    "value": _Members({"value": _ValueRule("value", _is_argument)}),
    "local": _Members({"local": _size}),
    "memory": _Members({"memory": _number, "start?": _number}),
    "sampler": _Members({"sampler": _number}),
    "parameter": _Members({"parameter": _number}),
}
_REFERENCE: Final = _Members({"parameter": _number})


def _record(path: str, value: Any, members: _Members) -> None:
    """Check that a value is an object with these members, each as its rule says, and no others."""
    if not isinstance(value, dict):
        raise invalid(f"{path} is {_shown(value)}, and no object")
    rules = members.rules
    for name, one in value.items():
        rule = rules.get(name)
        if rule is None:
            raise invalid(f"{path} has the unknown member {_shown(name)}")
        if not rule.holds(one):
            rule.check(f"{path}.{name}", one)
    if not value.keys() >= members.needed:
        raise invalid(f"{path} has no {min(members.needed - value.keys())}")


def _reference(path: str, value: Any, among: list[Any]) -> None:
    if not _is_number(value) or value >= len(among):
        raise invalid(f"{path} is {_shown(value)}, and there are {len(among)} of these")


class _Check:
    """Checks all of a document. Each method raises GraphFileError."""

    def __init__(self, document: Document) -> None:
        self.document = document
        #: What arguments refer to.
        self._among = {
            "memory": document.memory,
            "sampler": document.samplers,
            "parameter": document.parameters,
        }
        self._seen: set[tuple[str, int | str]] = set()

    def all(self) -> None:
        one = self.document
        _one_of(*CONTENTS).check("contents", one.contents)
        for name in ("device", "inputs", "outputs"):
            if not isinstance(getattr(one, name), dict):
                raise invalid(f"{name} is not an object")
        for name, text in one.device.items():
            _text.check(f"device.{name}", text)
        for name, check in (
            ("programs", self._program),
            ("kernels", self._kernel),
            ("memory", self._memory),
            ("samplers", lambda path, value, number: _record(path, value, _SAMPLER)),
            ("parameters", self._parameter),
            ("swaps", self._swap),
            ("commands", self._command),
        ):
            rows = getattr(one, name)
            _list.check(name, rows)
            for number, row in enumerate(rows):
                check(f"{name}[{number}]", row, number)
        self._check_names()

    def _check_names(self) -> None:
        one = self.document
        for title, names in (("inputs", one.inputs), ("outputs", one.outputs)):
            for name, number in names.items():
                _name.check(f"a name of {title}", name)
                _reference(f"{title}.{name}", number, one.memory)
        given = [row["name"] for row in one.parameters if "name" in row]
        if len(given) > len(set(given)):
            raise invalid("two Parameters have the same name")

    def _program(self, path: str, value: Any, number: int) -> None:
        _record(path, value, _PROGRAM)
        for index, binary in enumerate(value.get("binaries", ())):
            _record(f"{path}.binaries[{index}]", binary, _BINARY)
        if not value.keys() & {"source", "il", "binaries"}:
            raise invalid(f"{path} has neither source nor IL nor binaries")

    def _kernel(self, path: str, value: Any, number: int) -> None:
        _record(path, value, _KERNEL)
        _reference(f"{path}.program", value["program"], self.document.programs)
        for index, argument in enumerate(value.get("arguments", ())):
            _record(f"{path}.arguments[{index}]", argument, _ARGUMENT_INFO)

    def _memory(self, path: str, value: Any, number: int) -> None:
        kind = value.get("kind") if isinstance(value, dict) else None
        _ANY_MEMORY.rules["kind"].check(f"{path}.kind", kind)
        assert isinstance(kind, str)
        _record(path, value, _MEMORY[kind])
        if "of" in value:  # only of an earlier one: so none is a part of itself
            _reference(f"{path}.of", value["of"], self.document.memory[:number])
            whole = self.document.memory[value["of"]]
            if whole["kind"] not in ("buffer", "sub_buffer"):
                raise invalid(f"{path} is a part of memory[{value['of']}], which is not a buffer")
            if value.get("offset", 0) + value["size"] > whole["size"] and kind == "sub_buffer":
                raise invalid(f"{path} does not lie within the buffer that it is a part of")
        if kind == IMAGE:
            x, y, z = value["extent"]
            if x * y * z * value["element_size"] != value["size"]:
                raise invalid(f"{path}.size is not that of its extent")
        if "dtype" in value and "shape" in value:
            length = int(value["dtype"][2:])
            for one in value["shape"]:
                length = min(length * one, _MOST)
            if length > value["size"]:
                raise invalid(f"{path}.shape is larger than its size")

    def _parameter(self, path: str, value: Any, number: int) -> None:
        if isinstance(value, dict) and "from" in value:
            _record(path, value, _DERIVED_PARAMETER)
            _reference(f"{path}.from", value["from"], self.document.parameters[:number])
            if "memory" in self.document.parameters[value["from"]]:
                raise invalid(f"{path} is computed from a Parameter that is memory")
            return
        if isinstance(value, dict) and "memory" in value:
            _record(path, value, _MEMORY_PARAMETER)
            _reference(f"{path}.memory", value["memory"], self.document.memory)
            if self.document.memory_of(value["memory"])["kind"] not in ("buffer", "sub_buffer"):
                raise invalid(f"{path}.memory is not a buffer")
            return
        _record(path, value, _NUMBER_PARAMETER)
        if len(value["value"]) != 2 * int(value["dtype"][2:]) or not value["value"]:
            raise invalid(f"{path}.value has not the size of its type")

    def _swap(self, path: str, value: Any, number: int) -> None:
        if not isinstance(value, list) or len(value) != 2 or value[0] == value[1]:
            raise invalid(f"{path} is not a pair")
        for one in value:
            _reference(path, one, self.document.memory)
            if self.document.memory[one]["kind"] not in ("buffer", "sub_buffer"):
                raise invalid(f"{path} is not a pair of buffers")

    def _command(self, path: str, value: Any, number: int) -> None:
        name = value.get("op") if isinstance(value, dict) else None
        if name == KERNEL:
            self._launch(path, value)
        elif name == MARKER:
            _record(path, value, _AFTER)
        elif isinstance(name, str) and name in OPERATIONS:
            self._transfer(path, value, name)
        else:
            raise invalid(f"{path} is not a command that this version knows: {_shown(name)}")
        for before in value["after"]:
            if not _is_number(before) or before >= number:
                raise invalid(
                    f"{path} comes after command {_shown(before)}, which is not before it: the "
                    "order would be a cycle"
                )

    def _launch(self, path: str, value: Any) -> None:
        _record(path, value, _LAUNCH)
        _reference(f"{path}.kernel", value["kernel"], self.document.kernels)
        for name in ("local", "offset"):
            if name in value and len(value[name]) != len(value["global"]):
                raise invalid(f"{path}.{name} has not as many dimensions as the range")
        if len(value["args"]) > 4096:
            raise invalid(f"{path} has {len(value['args'])} arguments, and 4096 are the most")
        for index, argument in enumerate(value["args"]):
            if self._is_new(argument):
                self._argument(f"{path}.args[{index}]", argument)

    def _is_new(self, argument: Any) -> bool:
        """Whether no equal argument has been checked. One with several members is always new."""
        if type(argument) is not dict or len(argument) != 1:
            return True
        ((kind, value),) = argument.items()
        if type(value) is not int and type(value) is not str:  # True is equal to 1
            return True
        before = len(self._seen)
        self._seen.add((kind, value))
        return len(self._seen) > before

    def _argument(self, path: str, value: Any) -> None:
        for kind in value if isinstance(value, dict) else ():
            if kind in _ARGUMENT:
                break
        else:
            raise invalid(f"{path} is {_shown(value)}, and not an argument")
        _record(path, value, _ARGUMENT[kind])
        one = self.document
        if kind in self._among:
            _reference(path, value[kind], self._among[kind])
        if kind == "memory":
            memory = one.memory[value["memory"]]
            if memory["kind"] == HOST or value.get("start", 0) >= memory["size"]:
                raise invalid(f"{path} is not memory that a kernel can use")
            if value.get("start", 0) and memory["kind"] != SVM:
                raise invalid(f"{path} begins within memory that has no address")

    def _transfer(self, path: str, value: Any, name: str) -> None:
        operation = OPERATIONS[name]
        rules: dict[str, _ValueRule] = {}
        for one in operation.numbers:
            is_region, is_origin = one == "region", one.endswith("origin")
            rules[one] = (
                _ValueRule("three numbers", _three(int(is_region)))
                if is_region or is_origin
                else _number
            )
        if operation.has_pattern:
            rules["pattern"] = _hex
        sides = [side for side in ("source", "target") if getattr(operation, side)]
        for side in sides:
            rules[side], rules[f"{side}_start?"] = _anything, _number
        _record(path, value, _AFTER | _Members(rules))
        for side in sides:
            self._check_memory(f"{path}.{side}", value[side], getattr(operation, side))
        if operation.has_pattern and not 1 <= len(value["pattern"]) // 2 <= 128:
            raise invalid(f"{path}.pattern has {len(value['pattern']) // 2} bytes")
        found = {side: self.document.memory_of(value[side]) for side in sides}
        for side in sides:
            other = found.get("target" if side == "source" else "source")
            first, end = extent(value, side, found[side], other)
            if end > found[side]["size"] or end <= first:
                raise invalid(f"{path} leads out of its {side}: bytes {first} to {end}")
            if found[side]["kind"] not in (HOST, SVM) and value.get(f"{side}_start"):
                raise invalid(f"{path}.{side}_start is for memory that has an address")
            if found[side]["kind"] == IMAGE:
                self._region(path, value, side, found[side])

    def _region(self, path: str, value: Any, side: str, image: Mapping[str, Any]) -> None:
        origin = value.get(f"{side}_origin", value.get("origin"))
        for at, size, there in zip(origin, value["region"], image["extent"], strict=True):
            if at + size > there:
                raise invalid(f"{path} leads out of its image")

    def _check_memory(self, path: str, value: Any, kind: str) -> None:
        """Check that a value refers to memory of a kind, perhaps through a Parameter."""
        one, reference = self.document, value
        if isinstance(value, dict):
            _record(path, value, _REFERENCE)
            _reference(path, value["parameter"], one.parameters)
            reference = one.parameters[value["parameter"]].get("memory")
        _reference(path, reference, one.memory)
        kinds = {BUFFER: ("buffer", "sub_buffer"), SVM: ("svm", "host")}.get(kind, (kind,))
        if one.memory[reference]["kind"] not in kinds:
            raise invalid(
                f"{path} is {one.memory[reference]['kind']} memory, and not {kind} memory"
            )
