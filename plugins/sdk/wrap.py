"""Makes an entry point of a Python function: the arguments come from C as the ABI data says, and the results go back there.

`compile_entry` writes the source of a function that checks and converts each argument in turn, calls the adapter's, and stores what it
returns. What is checked follows from the ABI data alone, with the codes that the specification lists:

| parameter | the function gets | refused with |
|---|---|---|
| a handle | the object; None for NULL if allowed | INVALID_NULL_HANDLE; none of ours, or not alive: INVALID_QUEUE and so on |
| an array of handles | a list of objects | INVALID_NULL_POINTER; as for a handle; in a wait list: INVALID_EVENT_WAIT_LIST |
| an array of numbers | a list, None for NULL | INVALID_NULL_POINTER |
| `const char *` | a str, None for NULL | INVALID_NULL_POINTER |
| an enumeration; flags, also in a struct | the number | INVALID_ENUMERATION |
| a number, `bool` | the number | `workDim`: INVALID_WORK_DIMENSION |
| `void *`, a callback | the address, 0 for NULL | INVALID_NULL_POINTER unless it may be NULL |
| a pointer to a struct, or to several | a cffi pointer, None for NULL | INVALID_NULL_POINTER |
| a struct | it, by cffi | |

What is written is returned, in the order of the parameters: an object for a handle, a number, a str; a list of objects where
the caller asks how many there are; for `…GetInfo` the value of the property `propName`, None if there is no answer. An optional
handle (an event) may be named as a parameter: it is True if the caller wants it, and only then has to be returned. Any other
output that is named as a parameter is handed over as the pointer that it is, and is the function's own affair.
"""

from __future__ import annotations

import inspect
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any, Final

from ...loader.base.abi import Function, Parameter
from ...loader.base.interrupts import ENTRY
from ...loader.ur.abi import UR, URError
from ._native import ffi
from .answers import Encode, describe_wrong_answer, encode_pointers, properties, wrong_return_value
from .objects import Object, Registry, gone, reap

#: The code for a handle that is none of ours, or not alive, by its type; else INVALID_VALUE.
INVALID: Final = {
    "ur_adapter_handle_t": "INVALID_ARGUMENT",
    "ur_platform_handle_t": "INVALID_PLATFORM",
    "ur_device_handle_t": "INVALID_DEVICE",
    "ur_context_handle_t": "INVALID_CONTEXT",
    "ur_queue_handle_t": "INVALID_QUEUE",
    "ur_event_handle_t": "INVALID_EVENT",
    "ur_program_handle_t": "INVALID_PROGRAM",
    "ur_kernel_handle_t": "INVALID_KERNEL",
    "ur_mem_handle_t": "INVALID_MEM_OBJECT",
    "ur_sampler_handle_t": "INVALID_SAMPLER",
    "ur_exp_command_buffer_handle_t": "INVALID_COMMAND_BUFFER_EXP",
    "ur_exp_command_buffer_command_handle_t": "INVALID_COMMAND_BUFFER_COMMAND_HANDLE_EXP",
    "ur_exp_graph_handle_t": "INVALID_GRAPH",
    "ur_exp_executable_graph_handle_t": "INVALID_GRAPH",
}

#: The code for what is wrong with a list that may be left out, by its name; else INVALID_VALUE, and as above for a handle in it.
_WAIT_LISTS: Final = {
    "phEventWaitList": "INVALID_EVENT_WAIT_LIST",
    "pSyncPointWaitList": "INVALID_COMMAND_BUFFER_SYNC_POINT_WAIT_LIST_EXP",
}

#: Numbers that say how much of other arguments is read: the largest one, and the code for another.
_RANGES: Final = {
    name: (range(1, 4), "INVALID_WORK_DIMENSION") for name in ("workDim", "numWorkDim")
}

#: What the specification has for one function alone: a condition, and its code.
_OWN_RULES: Final = {
    "urPlatformGet": ("not phPlatforms and not pNumPlatforms", "INVALID_VALUE"),
    "urDeviceGet": ("NumEntries and not phDevices", "INVALID_NULL_POINTER"),
    "urEventGetProfilingInfo": ("pPropValue and not propSize", "INVALID_VALUE"),
}
#: Queries that lack the rules of the others: one without room for an answer asks whether there is one.
_MAY_ASK_FOR_NOTHING: Final = frozenset({"urEventGetProfilingInfo"})

#: What it has for every query. They are no inputs of the function that answers it.
_QUERY: Final = ("propName", "propSize", "pPropValue", "pPropSizeRet")
_QUERY_RULES: Final = (
    ("pPropValue and not propSize", "INVALID_SIZE"),
    ("propSize and not pPropValue", "INVALID_NULL_POINTER"),
    ("not pPropValue and not pPropSizeRet", "INVALID_NULL_POINTER"),
)

_LONGEST: Final = 1 << 20  # elements of a list; more is taken for a count that is no count


def code_of(name: str) -> int:
    """The number of a code by its name, with or without UR_RESULT_ERROR_."""
    return UR.codes[name if name.startswith("UR_RESULT_") else f"UR_RESULT_ERROR_{name}"]


def failure(name: str, detail: str = "", routine: str = "") -> URError:
    """An exception that becomes the code `name`, "INVALID_VALUE", of the entry point that it leaves."""
    return URError.of(code_of(name), routine, detail)


#: What makes a function's signature another than its code's.
_DISGUISES: Final = frozenset({"__signature__", "__wrapped__"})


def check_parameters(function: Function, body: Callable[..., Any]) -> None:
    """Raise TypeError if `body` names a parameter that the entry point does not have."""
    known = [p.name for p in function.parameters]
    if unknown := [name for name in parameters_of(body) if name not in known]:
        raise TypeError(
            f"{function.name} has no parameter {', '.join(unknown)}; it has {', '.join(known)}"
        )


def parameters_of(body: Callable[..., Any]) -> Sequence[str]:
    """Return the names of a function's parameters.

    A plain function's code has them. That takes a hundredth of the time of a signature.
    """
    if isinstance(body, FunctionType) and not vars(body).keys() & _DISGUISES:
        code = body.__code__
        if not code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
            return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return list(inspect.signature(body).parameters)


def with_parameters(function: Any, *names: str) -> Any:
    """Give a function a signature with parameters of these names, and return the function."""
    kind = inspect.Parameter.POSITIONAL_ONLY
    function.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    return function


def compile_entry(
    registry: Registry,
    function: Function,
    body: Callable[..., Any],
    fail: Callable[[BaseException, str], int],
) -> Callable[..., int]:
    """What C calls for `function`: with the adapter's number, and the arguments as they come. `body` does the work, and `fail`
    turns what it raises into a code."""
    return _Entry(registry, function, body).compile(fail)


class Entries(Mapping[str, Callable[..., int]]):
    """What C calls, by the names of the entry points. One is compiled when it is first asked for: a program uses a few of them."""

    def __init__(
        self,
        registry: Registry,
        bodies: Mapping[str, Callable[..., Any]],
        fail: Callable[[BaseException, str], int],
    ) -> None:
        self._registry, self._bodies, self._fail = registry, bodies, fail
        self.compiled: dict[str, Callable[..., int]] = {}

    def __getitem__(self, name: str) -> Callable[..., int]:
        found = self.compiled.get(name)
        if found is None:
            found = compile_entry(
                self._registry, UR.functions[name], self._bodies[name], self._fail
            )
            self.compiled[name] = found
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._bodies

    def __iter__(self) -> Iterator[str]:
        return iter(self._bodies)

    def __len__(self) -> int:
        return len(self._bodies)


class Refused(Exception):
    """An argument was refused: the code, without the cost of a sentence."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


_NULL_HANDLE: Final = code_of("INVALID_NULL_HANDLE")
_INVALID_SIZE: Final = code_of("INVALID_SIZE")
_NO_ANSWER: Final = code_of("UNSUPPORTED_ENUMERATION")
_CHARS: Final = ffi.typeof("char *")
_cast, _memmove = ffi.cast, ffi.memmove  # what every answer takes


# what the generated functions call


def _find(registry: Registry, type_name: str, handle: int, code: int) -> Object:
    """The object of a handle that is not owned."""
    thing = registry.find_lent(type_name, handle)
    if thing is None:
        raise Refused(code if handle else _NULL_HANDLE)
    return thing


def _objects(registry: Registry, type_name: str, pointer: Any, count: int, code: int) -> list[Any]:
    """The objects of an array of handles."""
    owned, handles = registry.of(type_name), _numbers(pointer, count)
    things = [owned.get(handle) for handle in handles]
    if None in things:
        lent = (registry.find_lent(type_name, handle) for handle in handles)
        things = [
            other if thing is None else thing for thing, other in zip(things, lent, strict=True)
        ]
        if None in things:
            raise Refused(code if all(handles) or code in _LIST_CODES else _NULL_HANDLE)
    return things


#: The codes that a list of events has, also where an element of it is NULL.
_LIST_CODES: Final = frozenset(map(code_of, (*_WAIT_LISTS.values(), "INVALID_EVENT")))


def _numbers(pointer: Any, count: int) -> list[Any]:
    if count > _LONGEST:
        raise Refused(_INVALID_SIZE)
    return ffi.unpack(pointer, count) if count else []


def _text(pointer: Any) -> str:
    return ffi.string(pointer).decode("utf-8", "replace")


_kept: dict[str, Any] = {}


def _keep(text: Any) -> Any:
    """A `char *` for a text, good for ever. What is one already is the function's own affair."""
    if not isinstance(text, str):
        return text
    return _kept.setdefault(text, ffi.new("char[]", text.encode("utf-8", "replace")))


def _give_list(registry: Registry, things: list[Any], room: int, into: Any, count: Any) -> None:
    """The protocol of urDeviceGet: as many as there is room for, and how many there are."""
    if not isinstance(things, Sequence):
        raise TypeError("it is no list")
    if into:
        for index, thing in enumerate(things[:room]):
            into[index] = registry.give(thing)
    if count:
        count[0] = len(things)


def _answer(
    encoders: dict[int, Encode],
    registry: Registry,
    value: Any,
    name: int,
    size: int,
    into: int,
    size_ret: Any,
) -> None:
    """The protocol of ur…GetInfo."""
    if value is None:
        raise Refused(_NO_ANSWER)
    encode = encoders[name]
    try:
        data = encode(value, registry.show)
    except (TypeError, ValueError, OverflowError, struct.error) as error:
        raise TypeError(f"{describe_wrong_answer(encoders, name, value)}: {error}") from None
    if into:
        if size < len(data):
            raise Refused(_INVALID_SIZE)
        if encode is encode_pointers:
            for index, each in enumerate(
                value
            ):  # the one answer that leads further: the caller's array has the addresses
                _copy(ffi.cast("uintptr_t *", into)[index], each)
        else:
            _memmove(_cast(_CHARS, into), data, len(data))
    if size_ret:
        size_ret[0] = len(data)


def _copy(into: int, data: bytes) -> None:
    if into:
        _memmove(_cast(_CHARS, into), data, len(data))


def _refuse_if(condition: str, code: str) -> str:
    return f"if {condition}: raise _Refused({code_of(code)})"


class _Entry:
    """The source of one entry point, line by line. A name that begins with `_` is none of a parameter."""

    def __init__(self, registry: Registry, function: Function, body: Callable[..., Any]) -> None:
        self.function = function
        self.parameters = {p.name: p for p in function.parameters}
        self.named = parameters_of(body)
        self.is_query = self.parameters.keys() >= set(_QUERY) and "pPropValue" not in self.named
        self.scope: dict[str, Any] = {
            "_body": body,
            "_registry": registry,
            "_give": registry.give,
            "_find": _find,
            "_objects": _objects,
            "_numbers": _numbers,
            "_unpack": ffi.unpack,
            "_text": _text,
            "_keep": _keep,
            "_give_list": _give_list,
            "_answer": _answer,
            "_unfit": wrong_return_value,
            "_Refused": Refused,
            "_gone": gone,
            "_reap": reap,
        }
        self.outputs = [p for p in function.parameters if _is_output(p)]
        self.list_count = self._list_count()

    def compile(self, fail: Callable[[BaseException, str], int]) -> Callable[..., int]:
        """The function that C calls."""
        name = self.function.name
        source = "\n".join(
            [
                f"def {name}(_adapter, {', '.join(self.parameters)}):",
                "    try:",
                "        if _gone[0]: _reap()",
                *(f"        {line}" for line in (*self._inputs(), *self._call())),
                "        return 0",
                "    except _Refused as _refused:",
                "        return _refused.code",
                "    except BaseException as _error:",
                f"        return _fail(_error, {name!r})",
            ]
        )
        self.scope["_fail"] = fail
        exec(compile(source, f"{ENTRY}{name}>", "exec"), self.scope)
        return self.scope[name]

    # what comes in

    def _inputs(self) -> Iterator[str]:
        if self.function.name in _OWN_RULES:
            yield _refuse_if(*_OWN_RULES[self.function.name])
        if self.is_query and self.function.name not in _MAY_ASK_FOR_NOTHING:
            yield from (_refuse_if(*rule) for rule in _QUERY_RULES)
        for p in self.function.parameters:
            if not (self.is_query and p.name in _QUERY[1:]):
                yield from self._input(p)

    def _input(self, p: Parameter) -> Iterator[str]:
        base = "callback" if p.type == "callback" else UR.resolve(p.type)
        if base == "handle" and not p.stars:
            yield from self._handle(p)
        elif _is_output(p):
            yield from self._output(p)
        elif base == "handle":
            yield from self._handle_array(p)
        elif base in ("void", "callback"):
            yield from self._null(p)
        elif p.stars:
            yield from self._pointer(p, base)
        else:
            yield from self._number(p)

    def _null(self, p: Parameter) -> Iterator[str]:
        if "optional" not in p.words:
            yield _refuse_if(f"not {p.name}", "INVALID_NULL_POINTER")

    def _handle(self, p: Parameter) -> Iterator[str]:
        self.scope[f"_get_{p.type}"] = self.scope["_registry"].of(p.type).get
        code = code_of(INVALID.get(p.type, "INVALID_VALUE"))
        wanted = f" and _{p.name}" if "optional" in p.words else ""
        yield f"_{p.name}, {p.name} = {p.name}, _get_{p.type}({p.name})"
        yield f"if {p.name} is None{wanted}: {p.name} = _find(_registry, {p.type!r}, _{p.name}, {code})"

    def _handle_array(self, p: Parameter) -> Iterator[str]:
        code = INVALID.get(p.type, "INVALID_VALUE")
        if (
            "optional" in p.words
        ):  # a wait list, as a rule; urEventWait's is none, and another code is listed there
            code = _WAIT_LISTS.get(p.name, code)
            yield self._consistent(p)
        yield from self._null(p)
        yield f"{p.name} = _objects(_registry, {p.type!r}, {p.name}, {p.length}, {code_of(code)}) if {p.name} else []"

    def _consistent(self, p: Parameter) -> str:
        """A list is there if, and only if, its count is not 0."""
        return _refuse_if(
            f"bool({p.name}) != ({p.length} > 0)", _WAIT_LISTS.get(p.name, "INVALID_VALUE")
        )

    def _output(self, p: Parameter) -> Iterator[str]:
        if p.name != self.list_count:
            yield from self._null(p)
        if _is_list(p):
            yield _refuse_if(f"{p.name} and not {p.length}", "INVALID_SIZE")

    def _pointer(self, p: Parameter, base: str) -> Iterator[str]:
        count = self.parameters.get(p.length)
        if p.name in _WAIT_LISTS:
            yield self._consistent(p)
        elif "optional" in p.words and base == "struct" and count is not None:
            yield _refuse_if(f"{p.length} and not {p.name}", "INVALID_NULL_POINTER")
        yield from self._null(p)
        if base == "char":
            yield f"{p.name} = _text({p.name}) if {p.name} else None"
        elif count is not None and p.stars == 1 and base != "struct":
            numbers = (
                "_unpack" if p.length in _RANGES else "_numbers"
            )  # a count that was looked at already
            yield f"{p.name} = {numbers}({p.name}, {p.length}) if {p.name} else {'[]' if p.name in _WAIT_LISTS else 'None'}"
        elif "optional" in p.words:
            yield f"if not {p.name}: {p.name} = None"
        if base == "struct" and not p.length:
            for field in UR.structs[p.type].fields if p.type in UR.structs else ():
                if not field.stars and UR.is_bitfield(field.type):
                    yield from self._value(f"{p.name}.{field.name}", field.type, p.name)

    def _number(self, p: Parameter) -> Iterator[str]:
        if p.name in _RANGES:
            bounds, code = _RANGES[p.name]
            yield _refuse_if(f"not {bounds.start} <= {p.name} < {bounds.stop}", code)
        else:
            yield from self._value(p.name, p.type)

    def _value(self, value: str, type_name: str, where: str = "True") -> Iterator[str]:
        """The check of an enumeration or of flags; `where` says when there is a value."""
        values = UR.groups.get(type_name)
        if values and UR.is_bitfield(type_name):
            mask = 0
            for bits in values:
                mask |= bits
            yield _refuse_if(f"{where} and {value} & ~{mask}", "INVALID_ENUMERATION")
        elif values:
            self.scope[f"_values_{type_name}"] = frozenset(values)
            yield _refuse_if(
                f"{where} and {value} not in _values_{type_name}", "INVALID_ENUMERATION"
            )

    # what goes out

    def _call(self) -> Iterator[str]:
        arguments = ", ".join(
            f"bool({name})" if _is_option(self.parameters[name]) else name for name in self.named
        )
        if self.is_query:
            yield f"_value = _body({arguments})"
            self.scope["_encoders"] = properties(self.parameters["propName"].type)
            yield f"_answer(_encoders, _registry, _value, {', '.join(_QUERY)})"
            return
        returned = [
            p
            for p in self.outputs
            if p.name != self.list_count and (p.name not in self.named or _is_option(p))
        ]
        targets = [f"_r{index}" for index in range(len(returned))]
        yield f"_value = _body({arguments})"
        if not targets:
            return
        self.scope["_returned"] = returned
        yield "try:"
        yield f"    {', '.join(targets)} = _value"
        for target, p in zip(targets, returned, strict=True):
            yield f"    {self._store(target, p)}"
        yield "except (TypeError, ValueError, AttributeError, OverflowError) as _error:"
        yield f"    raise _unfit({self.function.name!r}, _value, _returned, _error) from None"

    def _store(self, target: str, p: Parameter) -> str:
        if _is_list(p):
            return f"_give_list(_registry, {target}, {p.length}, {p.name}, {self.list_count})"
        value = (
            f"_give({target})"
            if UR.resolve(p.type) == "handle"
            else f"_keep({target})"
            if p.type == "char"
            else target
        )
        return (
            f"if {p.name}: {p.name}[0] = {value}"
            if "optional" in p.words
            else f"{p.name}[0] = {value}"
        )

    def _list_count(self) -> str:
        """The output that says how many there are, where an array of handles is asked for; "" in all other functions."""
        counts = [p.name for p in self.outputs if p.name.startswith("pNum")]
        return counts[0] if counts and any(map(_is_list, self.outputs)) else ""


def _is_output(p: Parameter) -> bool:
    """Whether the function writes a value there. Where raw memory is written to, the address is an input like any other."""
    levels = p.stars - (p.type == "void")
    return levels > 0 and ("out" in p.words or "inout" in p.words)


def _is_list(p: Parameter) -> bool:
    """Whether it is an output of as many handles as there is room for."""
    return _is_output(p) and bool(p.length) and UR.resolve(p.type) == "handle"


def _is_option(p: Parameter) -> bool:
    """Whether it is an output of one handle that the caller may not want, which a function may ask for by naming it."""
    return (
        _is_output(p) and "optional" in p.words and not p.length and UR.resolve(p.type) == "handle"
    )


assert set(INVALID) <= set(UR.types)
