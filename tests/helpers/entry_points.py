"""Calls of compiled entry points without a shell: valid arguments for each, and all wrong ones.

The arguments are what cffi would pass: the types are those of the native module.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from fairlead.loader.base.abi import Function, Parameter
from fairlead.loader.base.argument_rules import Rule, list_rules
from fairlead.loader.ur.abi import UR, URError
from fairlead.plugins import Object
from fairlead.plugins.sdk._native import ffi, lib
from fairlead.plugins.sdk.objects import Registry
from fairlead.plugins.sdk.wrap import compile_entry

TABLE: Final = 0x1000  # what every handle of these tests begins with
ROOM: Final = 2  # elements of every list
BYTES: Final = 64  # of all raw memory
WILD: Final = 0xDEAD0  # no handle
CODES: Final = {
    value: name.removeprefix("UR_RESULT_").removeprefix("ERROR_")
    for name, value in UR.codes.items()
}

#: The entry points that an adapter may have.
FUNCTIONS: Final = {f.name: f for f in UR.slots if hasattr(lib, f"py_{f.name}")}

#: Arguments that other arguments, or the fields of a struct, decide.
_GOOD: Final[dict[str, dict[str, int]]] = {
    "urMemImageCreate": {"pHost": 0},
    "urKernelSetExecInfo": {"propSize": 1},
}
_EXTENT: Final = {"width": 1, "height": 1, "depth": 1}
_FIELDS: Final[dict[str, dict[str, Any]]] = {
    "ur_rect_region_t": _EXTENT,
    "ur_buffer_region_t": {"size": 1},
    "ur_device_partition_properties_t": {
        "PropCount": 1,
        "pProperties": ffi.new("ur_device_partition_property_t[1]"),
    },
    "ur_exp_image_copy_region_t": {"copyExtent": _EXTENT},
}

_QUERY: Final = {"propName", "propSize", "pPropValue", "pPropSizeRet"}


def is_query(function: Function) -> bool:
    """Whether it is one of the queries, which all have the same form."""
    return {p.name for p in function.parameters} >= _QUERY


def kind_of(p: Parameter) -> str:
    """What a parameter is to a test."""
    base = "callback" if p.type == "callback" else UR.resolve(p.type)
    writes = "out" in p.words or "inout" in p.words
    if base == "callback" or (base == "void" and p.stars == 1):
        return "address"
    if p.stars and writes:
        return "list out" if base == "handle" and p.length else "out"
    if base == "handle":
        return "handles" if p.stars else "handle"
    if p.stars:
        return "text" if base == "char" else "structs" if base == "struct" else "numbers"
    if base == "struct":
        return "struct"
    return (
        ("flags" if UR.is_bitfield(p.type) else "enumeration")
        if UR.groups.get(p.type)
        else "number"
    )


def make(type_name: str) -> Object:
    """A new object of a type of handle."""
    return type("Thing", (Object,), {"type": type_name})()


@dataclass
class Call:
    """An entry point whose body only records its arguments and returns what it has to."""

    function: Function
    registry: Registry = field(default_factory=lambda: Registry(TABLE))
    seen: dict[str, Any] | None = None
    given: dict[str, Any] = field(default_factory=dict)
    failed: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kept: list[Any] = []  # cffi's memory lives as long as what new() gave
        self.parameters = {p.name: p for p in self.function.parameters}
        self.ctypes = dict(
            zip(
                self.parameters,
                ffi.typeof(getattr(lib, f"py_{self.function.name}")).args[1:],
                strict=True,
            )
        )
        named = [
            p
            for p in self.function.parameters
            if kind_of(p) not in ("out", "list out") and not self._of_query(p)
        ]
        scope: dict[str, Any] = {"_body": self._body}
        names = ", ".join(p.name for p in named)
        exec(
            f"def body({names}): return "
            f"_body(dict({', '.join(f'{p.name}={p.name}' for p in named)}))",
            scope,
        )
        self.body = scope["body"]
        self.entry = compile_entry(self.registry, self.function, self.body, self._fail)

    def __call__(self, arguments: dict[str, Any]) -> str:
        """The name of the code."""
        self.seen = None
        return CODES[self.entry(0, *arguments.values())]

    def good(self) -> dict[str, Any]:
        """Arguments that are right."""
        counts = {p.length for p in self.function.parameters}
        found = {name: self._good(p, name in counts) for name, p in self.parameters.items()}
        return found | _GOOD.get(self.function.name, {})

    def wrong(self) -> Iterator[tuple[str, str, Callable[[dict[str, Any]], object]]]:
        """Yield each wrong argument: a description, the expected code, and how to make it wrong.

        These are handles of no object, and what breaks a rule of the ABI data.
        """
        for p in self.function.parameters:
            if kind_of(p) == "handle":
                yield from self._list_wrong_handles(p)
            elif kind_of(p) == "handles":
                yield from self._list_wrong_lists(p)
        for rule, changes in find_breaks(self.function.name):
            yield f"breaks {rule}", rule.code, functools.partial(_put_all, changes)

    def outputs(self) -> list[Parameter]:
        """What the body gives, in the order in which it is given."""
        return [
            p
            for p in self.function.parameters
            if kind_of(p) in ("out", "list out") and not p.name.startswith("pNum")
        ]

    def keep(self, made: Any) -> Any:
        """Memory that lives as long as this call."""
        self.kept.append(made)
        return made

    # the two sides

    def _body(self, seen: dict[str, Any]) -> Any:
        self.seen = seen
        if is_query(self.function):
            return b"answer"
        values = [self._output(p) for p in self.outputs()]
        self.given = dict(zip((p.name for p in self.outputs()), values, strict=True))
        return tuple(values) if len(values) > 1 else values[0] if values else None

    def _fail(self, error: BaseException, routine: str) -> int:
        if isinstance(error, URError):
            return error.value
        self.failed.append(error)
        return UR.codes["UR_RESULT_ERROR_UNKNOWN"]

    def _output(self, p: Parameter) -> Any:
        if kind_of(p) == "list out":
            return [make(p.type) for _ in range(ROOM + 1)]
        return make(p.type) if UR.resolve(p.type) == "handle" else "text" if p.type == "char" else 1

    # arguments

    def _of_query(self, p: Parameter) -> bool:
        return is_query(self.function) and p.name in _QUERY - {"propName"}

    def _good(self, p: Parameter, is_count: bool) -> Any:
        kind = kind_of(p)
        if p.name == "propSize":
            return BYTES
        if is_count or p.name in ("workDim", "numWorkDim"):
            return ROOM
        if kind == "handle":
            return self.registry.give(make(p.type))
        if kind == "handles":
            return self.keep(
                ffi.new("uintptr_t[]", [self.registry.give(make(p.type)) for _ in range(ROOM)])
            )
        if kind == "address":
            return int(ffi.cast("uintptr_t", self.keep(ffi.new(f"char[{BYTES}]"))))
        if kind == "text":
            return self.keep(ffi.new("char[]", b"text"))
        if kind in ("flags", "enumeration"):
            return next(iter(UR.groups[p.type]))
        if kind == "struct":
            made = self.keep(ffi.new(ffi.getctype(self.ctypes[p.name], "*")))
            return _fill(made, p.type)[0]
        if kind == "structs" and not p.length:
            return self._struct(p)
        return (
            1
            if kind == "number"
            else self.keep(ffi.new(ffi.getctype(self.ctypes[p.name].item, f"[{ROOM + 1}]")))
        )

    def _struct(self, p: Parameter) -> Any:
        """A pointer to a struct whose enumerations have values that they may have."""
        made = ffi.cast(
            self.ctypes[p.name],
            self.keep(ffi.new(ffi.getctype(self.ctypes[p.name].item, f"[{ROOM + 1}]"))),
        )
        for name, values in _enumerations(p.type).items():
            setattr(made, name, next(iter(values)))
        return _fill(made, p.type)

    def _list_wrong_handles(self, p: Parameter) -> Iterator[tuple[str, str, Any]]:
        other = "ur_queue_handle_t" if p.type != "ur_queue_handle_t" else "ur_event_handle_t"
        for what, handle in (
            ("wild", WILD),
            ("of another kind", self.registry.give(make(other))),
            ("stale", self._stale(p.type)),
        ):
            change = functools.partial(_put_all, [(p.name, handle)])
            yield f"{p.name} {what}", invalid(p.type), change

    def _list_wrong_lists(self, p: Parameter) -> Iterator[tuple[str, str, Any]]:
        is_list = p.name == "phEventWaitList" and "optional" in p.words
        code = "INVALID_EVENT_WAIT_LIST" if is_list else invalid(p.type)
        null = code if p.name == "phEventWaitList" else "INVALID_NULL_HANDLE"
        for what, handle, expected in (
            ("NULL", 0, null),
            ("a wild one", WILD, code),
            ("a stale one", self._stale(p.type), code),
        ):
            handles = [self.registry.give(make(p.type)), handle]
            changes = [(p.name, self.keep(ffi.new("uintptr_t[]", handles)))]
            yield f"{p.name} with {what}", expected, functools.partial(_put_all, changes)
        too_long = functools.partial(_put_all, [(p.length, 1 << 31)])
        yield f"{p.name} too long", "INVALID_SIZE", too_long

    def _stale(self, type_name: str) -> int:
        thing = make(type_name)
        handle = self.registry.give(thing)
        self.registry.release(thing)
        return handle


def _fill(made: Any, struct: str) -> Any:
    """Give a struct the fields that may not be 0, and return it."""
    for name, value in _FIELDS.get(struct, {}).items():
        setattr(made, name, value)
    return made


#: Places in the arguments of a call, and their new values.
Changes: TypeAlias = list[tuple[str, Any]]


@functools.cache
def find_breaks(name: str) -> list[tuple[Rule, Changes]]:
    """Return what breaks each rule for a function, and none that is checked before it."""
    call, rules = Call(FUNCTIONS[name]), list_rules(FUNCTIONS[name], own=True)
    found = [(rule, _break_rule(call, rule, rules)) for rule in rules]
    missing = [rule.parameter for rule, changes in found if changes is None]
    # a row of its own refuses more
    assert missing == (["flags"] if name == "urMemBufferPartition" else []), (name, missing)
    return [(rule, changes) for rule, changes in found if changes is not None]


def _break_rule(call: Call, rule: Rule, rules: Sequence[Rule]) -> Changes | None:
    before = rules[: rules.index(rule)]
    own = _list_places(call, rule)
    near = [set(_list_places(call, one)) for one in before]  # what keeps those before from it
    places = [*own, *{place for one in near if not one.isdisjoint(own) for place in one - set(own)}]
    for values in itertools.product(*([None, *_TRIED] for _ in places)):
        arguments, changes = call.good(), [*zip(places, values, strict=True)]
        if _put_all(changes, arguments):
            broken = [one for one in (*before, rule) if eval(one.condition, {}, arguments)]
            if broken == [rule]:
                return changes
    return None


def _put_all(changes: Changes, arguments: dict[str, Any]) -> bool:
    """Make all changes. Returns whether they can be."""
    return all(_put(arguments, *one) for one in changes)


def _list_places(call: Call, rule: Rule) -> list[str]:
    """List the arguments and the fields of arguments in the condition of a rule."""
    places = re.findall(r"(?<![\w.])[A-Za-z_][\w.]*", rule.condition)
    return [one for one in dict.fromkeys(places) if one.split(".")[0] in call.parameters]


#: What arguments and fields are set to, besides NULL, to break a rule.
_TRIED: Final = (
    ffi.NULL,
    ffi.cast("void *", TABLE),
    0,
    1,
    2,
    3,
    4,
    0x18,
    0x60,
    0x180,
    65537,
    0x40000000,
)


def _put(arguments: dict[str, Any], place: str, value: Any) -> bool:
    """Set an argument, or a field of one, unless the value is None. Returns whether it can be."""
    name, _, field = place.partition(".")
    given = arguments[name]
    is_pointer = isinstance(given, ffi.CData) and ffi.typeof(given).kind in ("pointer", "array")
    if value is None:
        return True
    if not field:
        if is_pointer != isinstance(value, ffi.CData) or isinstance(given, ffi.CData) > is_pointer:
            return False
        arguments[name] = value
        return True
    try:
        *way, last = field.split(".")
        setattr(functools.reduce(getattr, way, given), last, value)
    except (
        AttributeError,
        TypeError,
        RuntimeError,
        OverflowError,
    ):  # another type, or through NULL
        return False
    return True


def _enumerations(struct: str) -> dict[str, dict[int, str]]:
    """The fields of a struct that have only certain values, and these."""
    fields = UR.structs[struct].fields if struct in UR.structs else ()
    return {
        f.name: UR.groups[f.type]
        for f in fields
        if f.type in UR.groups and not f.stars and f.name != "stype"
    }


def invalid(type_name: str) -> str:
    """The code for a handle of a type that is none."""
    word = type_name.removeprefix("ur_").removesuffix("_handle_t").upper()
    names = {
        "MEM": "INVALID_MEM_OBJECT",
        "ADAPTER": "INVALID_ARGUMENT",
        "EXP_COMMAND_BUFFER": "INVALID_COMMAND_BUFFER_EXP",
        "EXP_COMMAND_BUFFER_COMMAND": "INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP",
        "EXP_GRAPH": "INVALID_GRAPH",
        "EXP_EXECUTABLE_GRAPH": "INVALID_GRAPH",
    }
    plain = f"INVALID_{word}"
    return names.get(word) or (plain if f"UR_RESULT_ERROR_{plain}" in UR.codes else "INVALID_VALUE")
