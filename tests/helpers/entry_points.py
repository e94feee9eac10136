"""Calls of compiled entry points without a shell: valid arguments for each, and all wrong ones.

The arguments are what cffi would pass: the types are those of the native module.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fairlead.loader.base.abi import Function, Parameter
from fairlead.loader.base.argument_rules import Rule, is_unchecked
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

    def wrong(self) -> Iterator[tuple[str, str, Callable[[dict[str, Any]], None]]]:
        """Yield each wrong argument: a description, the expected code, and how to make it wrong."""
        for p in self.function.parameters:
            if not self._of_query(p):
                yield from (
                    (f"{p.name} {what}", code, change) for what, code, change in self._wrong(p)
                )

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

    def _struct(self, p: Parameter, **fields: int) -> Any:
        """A pointer to a struct whose enumerations have values that they may have."""
        made = ffi.cast(
            self.ctypes[p.name],
            self.keep(ffi.new(ffi.getctype(self.ctypes[p.name].item, f"[{ROOM + 1}]"))),
        )
        for name, values in _enumerations(p.type).items():
            setattr(made, name, fields.get(name, next(iter(values))))
        return _fill(made, p.type)

    def _wrong(self, p: Parameter) -> Iterator[tuple[str, str, Callable[[dict[str, Any]], None]]]:
        kind, optional = kind_of(p), "optional" in p.words
        nothing = 0 if kind in ("handle", "address") else ffi.NULL

        def put(**values: Any) -> Callable[[dict[str, Any]], None]:
            return lambda arguments: arguments.update(values)

        if kind == "handle":
            yield from self._wrong_handle(p, put)
            if not optional:
                yield "NULL", "INVALID_NULL_HANDLE", put(**{p.name: nothing})
        elif (
            kind in ("address", "text", "structs", "numbers", "handles", "out", "list out")
            and not optional
        ):
            yield "NULL", "INVALID_NULL_POINTER", put(**{p.name: nothing})
        if kind == "handles":
            yield from self._wrong_handles(p, put)
        if kind in ("handles", "numbers") and optional and p.length.startswith("num"):
            code = _of_lists(p, "INVALID_VALUE")
            yield "NULL with a count", code, put(**{p.name: ffi.NULL})
            yield "without a count", code, put(**{p.length: 0})
        if kind == "structs" and not p.length:
            for field in filter(
                lambda field: "flags" in field or "hints" in field, _enumerations(p.type)
            ):
                yield (
                    f"{field} no value",
                    "INVALID_ENUMERATION",
                    put(**{p.name: self._struct(p, **{field: 0x40000000})}),
                )
        if kind == "structs" and optional and p.length:
            yield "NULL with a count", "INVALID_NULL_POINTER", put(**{p.name: ffi.NULL})
        if kind == "list out":
            yield "without a count", "INVALID_SIZE", put(**{p.length: 0})
        if (
            kind == "number"
            and p.type == "ur_native_handle_t"
            and not is_unchecked(self.function, p)
        ):
            yield "0", "INVALID_NULL_HANDLE", put(**{p.name: 0})
        if kind in ("enumeration", "flags"):
            yield "no value", "INVALID_ENUMERATION", put(**{p.name: 0x40000000})
        if p.name in ("workDim", "numWorkDim"):
            yield "0", "INVALID_WORK_DIMENSION", put(**{p.name: 0})
            yield "4", "INVALID_WORK_DIMENSION", put(**{p.name: 4})

    def _wrong_handle(
        self, p: Parameter, put: Callable[..., Any]
    ) -> Iterator[tuple[str, str, Any]]:
        code = invalid(p.type)
        other = "ur_queue_handle_t" if p.type != "ur_queue_handle_t" else "ur_event_handle_t"
        yield "wild", code, put(**{p.name: WILD})
        yield "of another kind", code, put(**{p.name: self.registry.give(make(other))})
        yield "stale", code, put(**{p.name: self._stale(p.type)})

    def _wrong_handles(
        self, p: Parameter, put: Callable[..., Any]
    ) -> Iterator[tuple[str, str, Any]]:
        code = _of_lists(p, invalid(p.type)) if "optional" in p.words else invalid(p.type)
        good = self.registry.give(make(p.type))
        for what, handle in (
            ("NULL", 0),
            ("a wild one", WILD),
            ("a stale one", self._stale(p.type)),
        ):
            its = "INVALID_NULL_HANDLE" if not handle and p.name != "phEventWaitList" else code
            yield (
                f"with {what}",
                its,
                put(**{p.name: self.keep(ffi.new("uintptr_t[]", [good, handle]))}),
            )
        yield "too long", "INVALID_SIZE", put(**{p.length: 1 << 31})

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


def break_rule(call: Call, rule: Rule, rules: Sequence[Rule]) -> dict[str, Any] | None:
    """Return arguments of a call that break one rule, and none that is checked before it.

    Returns:
        The arguments, None if none are found.
    """
    before = rules[: rules.index(rule)]
    own = _list_places(call, rule)
    near = [set(_list_places(call, one)) for one in before]  # what keeps those before from it
    places = [*own, *{place for one in near if not one.isdisjoint(own) for place in one - set(own)}]
    for values in itertools.product(*([None, *_TRIED] for _ in places)):
        arguments = call.good()
        if all(_put(arguments, *one) for one in zip(places, values, strict=True)):
            broken = [one for one in (*before, rule) if eval(one.condition, {}, arguments)]
            if broken == [rule]:
                return arguments
    return None


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


def _of_lists(p: Parameter, code: str) -> str:
    """The code of a wait list, else another one."""
    return {
        "phEventWaitList": "INVALID_EVENT_WAIT_LIST",
        "pSyncPointWaitList": "INVALID_COMMAND_BUFFER_SYNC_POINT_WAIT_LIST_EXP",
    }.get(p.name, code)


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
