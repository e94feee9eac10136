"""Makes an entry point of a Python function.

`compile_entry` writes the source of a function. That function checks and converts each argument in
turn, calls the adapter's function, and stores what it returns. The rules of
loader/base/argument_rules.py say what is refused, and with which code. What is converted:

| parameter | the function gets |
|---|---|
| a handle | the object; None for NULL if allowed |
| an array of handles | a list of objects |
| an array of numbers | a list, None for NULL unless NULL means that there are none |
| `const char *` | a str, None for NULL |
| a number, an enumeration, flags, `bool` | the number |
| `void *`, a callback | the address, 0 for NULL |
| a pointer to structs | a cffi pointer, None for NULL |
| a struct | the struct, by cffi |

`Entry` does that for every API. `_UREntry` has what only Unified Runtime has, and ze/driver.py what
only Level Zero has.

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
from typing import Any, ClassVar, Final

from ...loader.base.abi import Api, Function, Parameter
from ...loader.base.argument_rules import (
    Rule,
    find_dead_code,
    find_null_code,
    is_unchecked,
    list_call_rules,
    list_parameter_rules,
)
from ...loader.base.errors import CodeError
from ...loader.base.interrupts import ENTRY
from ...loader.ur.abi import UR
from . import conversions
from ._native import ffi
from .answers import describe_wrong_return, list_encoders
from .conversions import HandleErrors, Refused, failure
from .objects import Registry, close_released, gone

#: The functions that may use an event again, one whose `reusable` is true.
_REUSING: Final = frozenset({"urEnqueueEventsWaitWithBarrierExt"})

#: The parameters of a query. The function that answers it gets the first one only.
_QUERY: Final = ("propName", "propSize", "pPropValue", "pPropSizeRet")

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
        function: the entry point in the ABI data.
        body: does the work.
        fail: returns the code for what `body` raises, given that and the entry point's name.

    Returns:
        A function of the adapter's number and the arguments as they come. It returns a code.
    """
    return _UREntry(registry, function, body).compile(fail)


class Entries(Mapping[str, Callable[..., int]]):
    """The Python functions that C calls, by the names of the entry points.

    An entry point is compiled when it is first looked up, because a program uses a few of them.

    Args:
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


class Entry:
    """The source of one entry point. Names of its own variables begin with `_`.

    Args:
        function: the entry point in the ABI data.
        body: does the work.

    Attributes:
        first: lines that come before everything else.
        other: the code for a handle that is not alive, of a type that has none.
        fails: makes the error for a code and a sentence.
    """

    api: ClassVar[Api]
    first: ClassVar[tuple[str, ...]] = ()
    other: ClassVar[str]
    fails: Callable[[str, str], CodeError]

    def __init__(self, registry: Registry, function: Function, body: Callable[..., Any]) -> None:
        self.function, self.registry = function, registry
        self.parameters = {p.name: p for p in function.parameters}
        self.named = list_parameters(body)
        self.outputs = [p for p in function.parameters if is_output(p)]
        self.scope: dict[str, Any] = {
            "_body": body,
            "_registry": registry,
            "_give": registry.give,
            "_show": registry.show,
            "_find": conversions.find_object,
            "_objects": conversions.read_objects,
            "_numbers": conversions.read_numbers,
            "_unpack": ffi.unpack,
            "_text": conversions.read_text,
            "_Refused": Refused,
            "_fails": self.fails,
        }

    def compile(self, fail: Callable[[BaseException, str], int]) -> Callable[..., int]:
        """Return the function that C calls. `compile_entry` has the arguments."""
        name = self.function.name
        returns_code = self.function.error_channel == "return"
        lines = (
            "try:",
            *(f"    {line}" for line in (*self.first, *self._emit_inputs(), *self._call())),
            "except _Refused as _refused:",
            f"    return {'_refused.code' if returns_code else '0'}",
            "except BaseException as _error:",
            f"    _code = _fail(_error, {name!r})",
            f"    return {'_code' if returns_code else '0'}",
        )
        self.scope["_fail"] = fail
        parameters = "_adapter", *self.parameters
        return compile_function(name, parameters, lines, self.scope, f"{ENTRY}{name}>")

    # what comes in

    def _emit_inputs(self) -> Iterator[str]:
        for p in self.function.parameters:
            is_handle = self.api.resolve(p.type) == "handle" and not p.stars
            for rule in self._list_rules(p):
                if not (is_handle and rule.code == "INVALID_NULL_HANDLE"):  # its lookup refuses it
                    yield _refuse(rule)
            yield from self._convert(p)
        yield from map(_refuse, list_call_rules(self.function, own=True))

    def _list_rules(self, p: Parameter) -> Iterator[Rule]:
        return list_parameter_rules(self.function, p, own=True)

    def _convert(self, p: Parameter) -> Iterator[str]:
        base, count = self.api.resolve(p.type), self.parameters.get(p.length)
        optional = "optional" in p.words
        if base == "handle" and not p.stars:
            yield from self._find_object(p, optional=optional)
        elif is_output(p):
            if optional and p.name in self.named and not self._is_option(p):
                yield f"if not {p.name}: {p.name} = None"
        elif base == "handle" and count is not None:
            yield self._read_objects(p)
        elif base in ("void", "callback") and p.stars <= 1:
            return
        elif base == "char" and p.stars == 1:
            yield f"{p.name} = _text({p.name}) if {p.name} else None"
        elif count is not None and p.stars == 1 and base != "struct":
            yield self._read_numbers(p, count)
        elif p.stars and optional:
            yield f"if not {p.name}: {p.name} = None"

    def _find_object(self, p: Parameter, *, optional: bool) -> Iterator[str]:
        self.scope[f"_get_{p.type}"] = self.registry.list_owned(p.type).get
        self.scope[f"_errors_{p.name}"] = self._find_errors(p)
        wanted = f" and _{p.name}" if optional else ""
        yield f"_{p.name}, {p.name} = {p.name}, _get_{p.type}({p.name})"
        found = f"_find(_registry, {p.type!r}, _{p.name}, _errors_{p.name})"
        yield f"if {p.name} is None{wanted}: {p.name} = {found}"

    def _read_objects(self, p: Parameter) -> str:
        self.scope[f"_errors_{p.name}"] = self._find_errors(p)
        arguments, nothing = f"_registry, {p.type!r}, {p.name}, {p.length}, _errors_{p.name}", "[]"
        if is_unchecked(self.function, p):
            arguments, nothing = f"{arguments}, may_be_null=True", "None"
        return f"{p.name} = _objects({arguments}) if {p.name} else {nothing}"

    def _find_errors(self, p: Parameter) -> HandleErrors:
        dead = find_dead_code(self.api, p, self.other)
        return HandleErrors(self.fails, dead, find_null_code(self.api, p))

    def _read_numbers(self, p: Parameter, count: Parameter) -> str:
        if next(self._list_rules(count), None):  # they bound it
            read = f"_unpack({p.name}, {p.length})"
        else:
            read = f"_numbers({p.name}, {p.length}, _fails)"
        has_rule = next(self._list_rules(p), None)  # NULL means that there are none, or is refused
        return f"{p.name} = {read} if {p.name} else {'[]' if has_rule else 'None'}"

    # what goes out

    def _call(self) -> Iterator[str]:
        """Yield the call of the body, and what stores what it returns."""
        raise NotImplementedError

    def _is_option(self, p: Parameter) -> bool:
        """Return whether it is an output of one handle that the caller may not want."""
        return False


def _refuse(rule: Rule) -> str:
    sentence = f"{rule.parameter}: {rule.what}"
    return f"if {rule.condition}: raise _fails({rule.code!r}, f{sentence!r})"


def is_output(p: Parameter) -> bool:
    """Return whether the function writes a value there.

    The address of raw memory is an input like any other, also if the function writes there.
    """
    levels = p.stars - (p.type == "void")
    return levels > 0 and ("out" in p.words or "inout" in p.words)


class _UREntry(Entry):
    """The source of one entry point of Unified Runtime."""

    api = UR
    first = ("if _gone[0]: _reap()",)
    other = "INVALID_VALUE"
    fails = staticmethod(failure)

    def __init__(self, registry: Registry, function: Function, body: Callable[..., Any]) -> None:
        super().__init__(registry, function, body)
        self.is_query = self.parameters.keys() >= set(_QUERY) and "pPropValue" not in self.named
        self.scope |= {
            "_keep": conversions.keep_text,
            "_give_list": conversions.give_list,
            "_answer": conversions.answer,
            "_unfit": describe_wrong_return,
            "_gone": gone,
            "_reap": close_released,
            "_reused": partial(_find_reused, registry),
        }
        self.list_count = self._list_count()

    def _emit_inputs(self) -> Iterator[str]:
        yield from super()._emit_inputs()
        if (context := find_context(self.function)) and self.registry.checks_devices:
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

    def _call(self) -> Iterator[str]:
        wanted = "_reused" if self.function.name in _REUSING else "bool"
        arguments = ", ".join(
            f"_{name}" if self._is_option(self.parameters[name]) else name for name in self.named
        )
        for name in self.named:
            if self._is_option(self.parameters[name]):
                yield f"_{name} = {wanted}({name})"
        if self.is_query:
            yield f"_value = _body({arguments})"
            self.scope["_encoders"] = list_encoders(self.parameters["propName"].type)
            yield f"_answer(_encoders, _registry, _value, {', '.join(_QUERY)})"
            yield "return 0"
            return
        returned = [
            p
            for p in self.outputs
            if p.name != self.list_count and (p.name not in self.named or self._is_option(p))
        ]
        targets = [f"_r{index}" for index in range(len(returned))]
        yield f"_value = _body({arguments})"
        if not targets:
            yield "return 0"
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
        yield "return 0"

    def _is_option(self, p: Parameter) -> bool:
        is_single = "optional" in p.words and not p.length
        return is_single and is_output(p) and UR.resolve(p.type) == "handle"

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


def find_context(function: Function) -> str:
    """Return whose devices the devices of a call must be, "" if they may be any.

    Another device is refused with INVALID_DEVICE.

    Returns:
        The context: a parameter or, of one that belongs to a context, "hKernel.context".
    """
    names = [parameter.name for parameter in function.parameters]
    if "hDevice" not in names and "phDevices" not in names:
        return ""
    owners = {"hContext": "", **dict.fromkeys(("hProgram", "hKernel", "hMem"), ".context")}
    return next((f"{name}{owners[name]}" for name in owners if name in names), "")


def _find_reused(registry: Registry, place: Any) -> Any:
    """Return the event at a place that is to be used again, or whether there is a place."""
    found = registry.list_owned("ur_event_handle_t").get(int(place[0])) if place else None
    return found if found is not None and getattr(found, "reusable", False) else bool(place)


def _is_list(p: Parameter) -> bool:
    """Return whether it is an output of as many handles as there is room for."""
    return is_output(p) and bool(p.length) and UR.resolve(p.type) == "handle"
