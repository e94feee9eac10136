"""Makes an entry point of a Python function.

`compile_entry` writes the source of a function. That function checks and converts each argument in
turn, calls the adapter's function, and stores what it returns. ur.abi and loader/ur/refusals.py
say what is checked. The codes are those that the specification lists:

| parameter | the function gets | refused with |
|---|---|---|
| a handle | the object; None for NULL if allowed | INVALID_NULL_HANDLE, INVALID_QUEUE and so on |
| an array of handles | a list of objects | INVALID_NULL_POINTER; as for a handle |
| a wait list | a list of objects | INVALID_EVENT_WAIT_LIST |
| an array of numbers | a list, None for NULL | INVALID_NULL_POINTER |
| `const char *` | a str, None for NULL | INVALID_NULL_POINTER |
| an enumeration; flags, also in a struct | the number | INVALID_ENUMERATION; `_EXCLUSIVE` |
| a number, `bool` | the number | `workDim`: INVALID_WORK_DIMENSION |
| a native handle | the number | INVALID_NULL_HANDLE |
| `void *`, a callback | the address, 0 for NULL | INVALID_NULL_POINTER unless it may be NULL |
| a pointer to structs | a cffi pointer, None for NULL | INVALID_NULL_POINTER |
| a struct | the struct, by cffi | |

Where the contexts of an adapter are `ContextObject`, a device that is not of the context is refused
with INVALID_DEVICE.

A function returns what is written, in the order of the parameters. It returns an object for a
handle, a number, or a str. Where the caller asks how many there are, it returns a list of objects.
For `…GetInfo` it returns the value of the property `propName`, None if there is no answer.

A function may name an optional handle, such as an event, as a parameter. The parameter is True if
the caller wants the handle, and the handle is returned like any other. Where the caller may give an
event to be used again, the parameter is that event. A function may also name
another output. Then it gets the pointer, and has to write there itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import FunctionType
from typing import Any, Final

from ...loader.base.abi import Function, Parameter
from ...loader.base.interrupts import ENTRY
from ...loader.ur.abi import UR
from ...loader.ur.refusals import RANGES, find_context, find_invalid_code, may_be_zero
from . import conversions
from ._native import ffi
from .answers import describe_wrong_return, list_encoders
from .conversions import WAIT_LISTS, Refused, find_code
from .objects import Registry, close_released, gone

#: Rules of the specification for one function alone: a condition, and the code.
_OWN_RULES: Final = {
    "urPlatformGet": ("not phPlatforms and not pNumPlatforms", "INVALID_VALUE"),
    "urContextCreate": ("phDevices and not DeviceCount", "INVALID_SIZE"),
    "urDeviceGet": ("NumEntries and not phDevices", "INVALID_NULL_POINTER"),
    "urEventWait": ("phEventWaitList and not numEvents", "INVALID_VALUE"),
    "urEventGetProfilingInfo": ("pPropValue and not propSize", "INVALID_VALUE"),
    "urBindlessImagesImageGetInfoExp": (
        "not pPropValue and not pPropSizeRet",
        "INVALID_NULL_POINTER",
    ),
}
#: Flags that a caller must not give together, or at all, by their type; and the code.
_EXCLUSIVE: Final = {
    "ur_queue_flags_t": (
        (
            UR["UR_QUEUE_FLAG_PRIORITY_LOW"] | UR["UR_QUEUE_FLAG_PRIORITY_HIGH"],
            UR["UR_QUEUE_FLAG_SUBMISSION_BATCHED"] | UR["UR_QUEUE_FLAG_SUBMISSION_IMMEDIATE"],
            UR["UR_QUEUE_FLAG_ON_DEVICE"],  # the host cannot fill such a queue
            UR["UR_QUEUE_FLAG_ON_DEVICE_DEFAULT"],
        ),
        "INVALID_QUEUE_PROPERTIES",
    )
}
#: The functions that may use an event again, one whose `reusable` is true.
_REUSING: Final = frozenset({"urEnqueueEventsWaitWithBarrierExt"})
#: Queries without the rules of other queries: without room they ask whether there is an answer.
_MAY_ASK_FOR_NOTHING: Final = frozenset({"urEventGetProfilingInfo"})

#: The parameters of a query. The function that answers it gets the first one only.
_QUERY: Final = ("propName", "propSize", "pPropValue", "pPropSizeRet")
_QUERY_RULES: Final = (
    ("pPropValue and not propSize", "INVALID_SIZE"),
    ("propSize and not pPropValue", "INVALID_NULL_POINTER"),
    ("not pPropValue and not pPropSizeRet", "INVALID_NULL_POINTER"),
)

#: Attributes by which a function's signature differs from that of its code.
_DISGUISES: Final = frozenset({"__signature__", "__wrapped__"})


def check_parameters(function: Function, body: Callable[..., Any]) -> None:
    """Raise TypeError if `body` names a parameter that the entry point does not have."""
    known = [p.name for p in function.parameters]
    if unknown := [name for name in list_parameters(body) if name not in known]:
        raise TypeError(
            f"{function.name} has no parameter {', '.join(unknown)}; it has {', '.join(known)}"
        )


def list_parameters(body: Callable[..., Any]) -> Sequence[str]:
    """Return the names of a function's parameters.

    A plain function's code has them. That takes a hundredth of the time of a signature.
    """
    if isinstance(body, FunctionType) and not vars(body).keys() & _DISGUISES:
        code = body.__code__
        if not code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
            return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return list(inspect.signature(body).parameters)


def name_parameters(function: Any, *names: str) -> Any:
    """Give a function a signature with parameters of these names, and return the function."""
    kind = inspect.Parameter.POSITIONAL_ONLY
    function.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    return function


def compile_function(
    name: str,
    parameters: Iterable[str],
    lines: Iterable[str],
    scope: dict[str, Any],
    file: str = "",
) -> Callable[..., Any]:
    """Make a function of its source.

    Args:
        scope: the global names of the source. The function is added.
        file: what tracebacks call the file.
    """
    source = "\n    ".join([f"def {name}({', '.join(parameters)}):", *lines])
    exec(compile(source, file or f"<{name}>", "exec"), scope)
    return scope[name]


def compile_entry(
    registry: Registry,
    function: Function,
    body: Callable[..., Any],
    fail: Callable[[BaseException, str], int],
) -> Callable[..., int]:
    """Make the function that C calls for an entry point.

    Args:
        registry: the adapter's objects.
        function: the entry point in the ABI data.
        body: does the work.
        fail: returns the code for what `body` raises, given that and the entry point's name.

    Returns:
        A function of the adapter's number and the arguments as they come. It returns a code.
    """
    return _Entry(registry, function, body).compile(fail)


class Entries(Mapping[str, Callable[..., int]]):
    """The Python functions that C calls, by the names of the entry points.

    An entry point is compiled when it is first looked up, because a program uses a few of them.

    Args:
        registry: the adapter's objects.
        bodies: the adapter's functions by the names of their entry points.
        fail: see `compile_entry`.
    """

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


def _refuse_if(condition: str, code: str) -> str:
    return f"if {condition}: raise _Refused({find_code(code)})"


class _Entry:
    """The source of one entry point. Names of its own variables begin with `_`.

    Args:
        registry: the adapter's objects.
        function: the entry point in the ABI data.
        body: does the work.
    """

    def __init__(self, registry: Registry, function: Function, body: Callable[..., Any]) -> None:
        self.function = function
        self.parameters = {p.name: p for p in function.parameters}
        self.named = list_parameters(body)
        self.is_query = self.parameters.keys() >= set(_QUERY) and "pPropValue" not in self.named
        self.scope: dict[str, Any] = {
            "_body": body,
            "_registry": registry,
            "_give": registry.give,
            "_find": conversions.find_object,
            "_objects": conversions.read_objects,
            "_numbers": conversions.read_numbers,
            "_unpack": ffi.unpack,
            "_text": conversions.read_text,
            "_keep": conversions.keep_text,
            "_give_list": conversions.give_list,
            "_answer": conversions.answer,
            "_unfit": describe_wrong_return,
            "_Refused": Refused,
            "_gone": gone,
            "_reap": close_released,
            "_reused": partial(_find_reused, registry),
        }
        self.outputs = [p for p in function.parameters if _is_output(p)]
        self.list_count = self._list_count()

    def compile(self, fail: Callable[[BaseException, str], int]) -> Callable[..., int]:
        """Return the function that C calls."""
        name = self.function.name
        lines = (
            "try:",
            "    if _gone[0]: _reap()",
            *(f"    {line}" for line in (*self._emit_inputs(), *self._call())),
            "    return 0",
            "except _Refused as _refused:",
            "    return _refused.code",
            "except BaseException as _error:",
            f"    return _fail(_error, {name!r})",
        )
        self.scope["_fail"] = fail
        parameters = "_adapter", *self.parameters
        return compile_function(name, parameters, lines, self.scope, f"{ENTRY}{name}>")

    # what comes in

    def _emit_inputs(self) -> Iterator[str]:
        if self.function.name in _OWN_RULES:
            yield _refuse_if(*_OWN_RULES[self.function.name])
        if self.is_query and self.function.name not in _MAY_ASK_FOR_NOTHING:
            yield from (_refuse_if(*rule) for rule in _QUERY_RULES)
        for p in self.function.parameters:
            if not (self.is_query and p.name in _QUERY[1:]):
                yield from self._emit_input(p)
        if (context := find_context(self.function)) and self.scope["_registry"].checks_devices:
            yield from self._emit_device_check(context)

    def _emit_device_check(self, context: str) -> Iterator[str]:
        """Check that devices are of their context. A part of one is, too."""
        check = "not in _context.devices: _context.check_device"
        yield f"_context = {context}"
        if "phDevices" in self.parameters:
            yield "for _device in phDevices:"
            yield f"    if _device {check}(_device)"
        elif "optional" in self.parameters["hDevice"].words:
            yield f"if hDevice is not None and hDevice {check}(hDevice)"
        else:
            yield f"if hDevice {check}(hDevice)"

    def _emit_input(self, p: Parameter) -> Iterator[str]:
        base = "callback" if p.type == "callback" else UR.resolve(p.type)
        if base == "handle" and not p.stars:
            yield from self._emit_handle(p)
        elif _is_output(p):
            yield from self._emit_output(p)
        elif base == "handle":
            yield from self._emit_handle_array(p)
        elif base in ("void", "callback"):
            yield from self._emit_null_check(p)
        elif p.stars:
            yield from self._emit_pointer(p, base)
        else:
            yield from self._emit_number(p)

    def _emit_null_check(self, p: Parameter) -> Iterator[str]:
        if "optional" not in p.words:
            yield _refuse_if(f"not {p.name}", "INVALID_NULL_POINTER")

    def _emit_handle(self, p: Parameter) -> Iterator[str]:
        self.scope[f"_get_{p.type}"] = self.scope["_registry"].list_owned(p.type).get
        code = find_code(find_invalid_code(p.type))
        wanted = f" and _{p.name}" if "optional" in p.words else ""
        yield f"_{p.name}, {p.name} = {p.name}, _get_{p.type}({p.name})"
        found = f"_find(_registry, {p.type!r}, _{p.name}, {code})"
        yield f"if {p.name} is None{wanted}: {p.name} = {found}"

    def _emit_handle_array(self, p: Parameter) -> Iterator[str]:
        code = find_invalid_code(p.type)
        if "optional" in p.words:  # a wait list; urEventWait's is not optional, with another code
            code = WAIT_LISTS.get(p.name, code)
            yield self._emit_consistency_check(p)
        yield from self._emit_null_check(p)
        arguments = f"_registry, {p.type!r}, {p.name}, {p.length}, {find_code(code)}"
        yield f"{p.name} = _objects({arguments}) if {p.name} else []"

    def _emit_consistency_check(self, p: Parameter) -> str:
        """Check that there is a list if, and only if, its count is not 0."""
        return _refuse_if(
            f"bool({p.name}) != ({p.length} > 0)", WAIT_LISTS.get(p.name, "INVALID_VALUE")
        )

    def _emit_output(self, p: Parameter) -> Iterator[str]:
        if p.name != self.list_count:
            yield from self._emit_null_check(p)
        if _is_list(p):
            yield _refuse_if(f"{p.name} and not {p.length}", "INVALID_SIZE")

    def _emit_pointer(self, p: Parameter, base: str) -> Iterator[str]:
        count = self.parameters.get(p.length)
        if p.name in WAIT_LISTS:
            yield self._emit_consistency_check(p)
        elif "optional" in p.words and base == "struct" and count is not None:
            yield _refuse_if(f"{p.length} and not {p.name}", "INVALID_NULL_POINTER")
        yield from self._emit_null_check(p)
        if base == "char":
            yield f"{p.name} = _text({p.name}) if {p.name} else None"
        elif count is not None and p.stars == 1 and base != "struct":
            read = "_unpack" if p.length in RANGES else "_numbers"  # _numbers checks the count
            nothing = "[]" if p.name in WAIT_LISTS else "None"
            yield f"{p.name} = {read}({p.name}, {p.length}) if {p.name} else {nothing}"
        elif "optional" in p.words:
            yield f"if not {p.name}: {p.name} = None"
        if base == "struct" and not p.length:
            for field in UR.structs[p.type].fields if p.type in UR.structs else ():
                if not field.stars and UR.is_bitfield(field.type):
                    yield from self._emit_value_check(f"{p.name}.{field.name}", field.type, p.name)

    def _emit_number(self, p: Parameter) -> Iterator[str]:
        if p.name in RANGES:
            values, code = RANGES[p.name]
            yield _refuse_if(f"not {values.start} <= {p.name} < {values.stop}", code)
        elif p.type == "ur_native_handle_t" and not may_be_zero(p.name):
            yield _refuse_if(f"not {p.name}", "INVALID_NULL_HANDLE")
        else:
            yield from self._emit_value_check(p.name, p.type)

    def _emit_value_check(self, value: str, type_name: str, where: str = "True") -> Iterator[str]:
        """Check an enumeration or flags, if the condition `where` is true."""
        values = UR.groups.get(type_name)
        if values and UR.is_bitfield(type_name):
            mask = 0
            for bits in values:
                mask |= bits
            yield _refuse_if(f"{where} and {value} & ~{mask}", "INVALID_ENUMERATION")
            wrong, code = _EXCLUSIVE.get(type_name, ((), ""))
            for bits in wrong:
                yield _refuse_if(f"{where} and {value} & {bits} == {bits}", code)
        elif values:
            self.scope[f"_values_{type_name}"] = frozenset(values)
            yield _refuse_if(
                f"{where} and {value} not in _values_{type_name}", "INVALID_ENUMERATION"
            )

    # what goes out

    def _call(self) -> Iterator[str]:
        wanted = "_reused" if self.function.name in _REUSING else "bool"
        arguments = ", ".join(
            f"_{name}" if _is_option(self.parameters[name]) else name for name in self.named
        )
        for name in self.named:
            if _is_option(self.parameters[name]):
                yield f"_{name} = {wanted}({name})"
        if self.is_query:
            yield f"_value = _body({arguments})"
            self.scope["_encoders"] = list_encoders(self.parameters["propName"].type)
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
        if self.function.name.endswith("CreateWithNativeHandle"):
            yield "    if pProperties and pProperties.isNativeHandleOwned: _value.given = True"
        yield "except (TypeError, ValueError, AttributeError, OverflowError) as _error:"
        yield f"    raise _unfit({self.function.name!r}, _value, _returned, _error) from None"

    def _store(self, target: str, p: Parameter) -> str:
        if _is_list(p):
            return f"_give_list(_registry, {target}, {p.length}, {p.name}, {self.list_count})"
        value = target
        if UR.resolve(p.type) == "handle":
            value = f"_give({target})"
        elif p.type == "char":
            value = f"_keep({target})"
        condition = f"if {p.name}: " if "optional" in p.words else ""
        if self.function.name in _REUSING and p.name in self.named:
            condition = f"if {p.name} and {target} is not _{p.name}: "
        return f"{condition}{p.name}[0] = {value}"

    def _list_count(self) -> str:
        """Return the output for how many handles there are, "" if the caller does not ask."""
        counts = [p.name for p in self.outputs if p.name.startswith("pNum")]
        return counts[0] if counts and any(map(_is_list, self.outputs)) else ""


def _find_reused(registry: Registry, place: Any) -> Any:
    """Return the event at a place that is to be used again, or whether there is a place."""
    found = registry.list_owned("ur_event_handle_t").get(int(place[0])) if place else None
    return found if found is not None and getattr(found, "reusable", False) else bool(place)


def _is_output(p: Parameter) -> bool:
    """Return whether the function writes a value there.

    The address of raw memory is an input like any other, also if the function writes there.
    """
    levels = p.stars - (p.type == "void")
    return levels > 0 and ("out" in p.words or "inout" in p.words)


def _is_list(p: Parameter) -> bool:
    """Return whether it is an output of as many handles as there is room for."""
    return _is_output(p) and bool(p.length) and UR.resolve(p.type) == "handle"


def _is_option(p: Parameter) -> bool:
    """Return whether it is an output of one handle that the caller may not want."""
    is_single = "optional" in p.words and not p.length
    return is_single and _is_output(p) and UR.resolve(p.type) == "handle"
