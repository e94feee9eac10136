"""Makes an entry point of Level Zero of a Python function.

`compile_ze_entry` writes the source of a function, as plugins/sdk/wrap.py does for Unified
Runtime. That function checks and converts each argument in turn, calls the driver's function, and
stores what it returns. The codes are those that the specification lists:

| parameter | the function gets | refused with |
|---|---|---|
| a handle | the object; None for NULL if allowed | INVALID_NULL_HANDLE; see `INVALID` |
| an array of handles | a list of objects | INVALID_NULL_POINTER, INVALID_SIZE; as for a handle |
| `const char *` | a str | INVALID_NULL_POINTER |
| an enumeration; flags, also in a struct | the number | INVALID_ENUMERATION |
| a number | the number | |
| `void *`, a callback | the address, 0 for NULL | INVALID_NULL_POINTER unless it may be NULL |
| a pointer | a cffi pointer, None for NULL | INVALID_NULL_POINTER unless it may be NULL |
| a struct | the struct, by cffi | |

A function returns what is written to `out` parameters that it does not name, in their order: an
object for a handle, or a number. Where the caller asks for a list of handles by a count, the
function returns the list. It writes to all other outputs itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from ....loader.base.abi import Function, Parameter
from ....loader.base.interrupts import ENTRY
from ....loader.ze.abi import ZE
from .._native_ze import ffi
from ..conversions import Refused
from ..objects import Registry
from ..wrap import compile_function, list_parameters
from .chains import find_code

#: The code for a handle that is not ours, or not alive, by its type. Other types: INVALID_ARGUMENT.
INVALID: Final = {
    "ze_event_handle_t": "INVALID_SYNCHRONIZATION_OBJECT",
    "ze_fence_handle_t": "INVALID_SYNCHRONIZATION_OBJECT",
    "ze_kernel_handle_t": "INVALID_KERNEL_HANDLE",
    "ze_graph_handle_t": "INVALID_GRAPH",
    "ze_executable_graph_handle_t": "INVALID_GRAPH",
}
_LONGEST: Final = 1 << 20  # handles of an array; a larger count cannot be a count
_NULL_HANDLE: Final = find_code("INVALID_NULL_HANDLE")
_INVALID_SIZE: Final = find_code("INVALID_SIZE")

#: What a caller may set to anything: it is read for what it is, or asks for all that there is.
_UNCHECKED: Final = frozenset({"ze_structure_type_t", "ze_init_driver_type_flags_t"})

#: Arrays of handles in which NULL has a meaning. The function gets None for it.
_MAY_HAVE_NULL: Final = frozenset(
    {("zeCommandListUpdateMutableCommandWaitEventsExp", "phWaitEvents")}
)


def _read(owned: dict[int, Any], pointer: Any, count: int, code: int, null: bool) -> list[Any]:
    """Return the objects of an array of handles, or raise `Refused`."""
    if count > _LONGEST:
        raise Refused(_INVALID_SIZE)
    things = []
    for handle in ffi.unpack(pointer, count) if count else ():
        thing = owned.get(handle)
        if thing is None and not (null and not handle):
            raise Refused(code if handle else _NULL_HANDLE)
        things.append(thing)
    return things


def _give_list(registry: Registry, things: Any, count: Any, into: Any) -> None:
    """Write a list of handles as zeDeviceGet does. No room means that the caller asks how many."""
    if not into or not count[0] or count[0] > len(things):
        room = count[0] if into else 0
        count[0] = len(things)
    else:
        room = count[0]
    for index, thing in enumerate(things[:room]):
        into[index] = registry.show(thing)


def compile_ze_entry(
    registry: Registry,
    function: Function,
    body: Callable[..., Any],
    fail: Callable[[BaseException, str], int],
) -> Callable[..., int]:
    """Make the function that C calls for an entry point.

    Args:
        registry: the driver's objects.
        function: the entry point in the ABI data.
        body: does the work.
        fail: returns the code for what `body` raises, given that and the entry point's name.

    Returns:
        A function of the driver's number and the arguments as they come. It returns a code, or what
        the entry point returns instead of one.
    """
    return _ZeEntry(registry, function, body).compile(fail)


def _refuse_if(condition: str, code: str) -> str:
    return f"if {condition}: raise _Refused({find_code(code)})"


class _ZeEntry:
    """The source of one entry point. Names of its own variables begin with `_`."""

    def __init__(self, registry: Registry, function: Function, body: Callable[..., Any]) -> None:
        self.function = function
        self.named = list_parameters(body)
        self.scope: dict[str, Any] = {
            "_body": body,
            "_registry": registry,
            "_give": registry.give,
            "_show": registry.show,
            "_give_list": _give_list,
            "_read": _read,
            "_string": ffi.string,
            "_Refused": Refused,
        }

    def compile(self, fail: Callable[[BaseException, str], int]) -> Callable[..., int]:
        """Return the function that C calls."""
        function = self.function
        returns_code = ZE.resolve(function.returns) != "handle"
        lines = (
            "try:",
            *(f"    {line}" for line in (*self._emit_inputs(), *self._call(returns_code))),
            "except _Refused as _refused:",
            f"    return {'_refused.code' if returns_code else '0'}",
            "except BaseException as _error:",
            f"    _code = _fail(_error, {function.name!r})",
            f"    return {'_code' if returns_code else '0'}",
        )
        self.scope["_fail"] = fail
        parameters = "_number", *(p.name for p in function.parameters)
        file = f"{ENTRY}{function.name}>"
        return compile_function(function.name, parameters, lines, self.scope, file)

    def _emit_inputs(self) -> Iterator[str]:
        for p in self.function.parameters:
            yield from self._emit_input(p)

    def _emit_input(self, p: Parameter) -> Iterator[str]:
        base = "callback" if p.type == "callback" else ZE.resolve(p.type)
        optional = "optional" in p.words
        if base == "handle" and not p.stars:
            yield from self._emit_handle(p, optional)
        elif base == "handle" and p.length and not _is_output(p):
            yield from self._emit_handles(p, optional)
        elif base in ("void", "callback") and p.stars <= 1:
            if not optional:
                yield _refuse_if(f"not {p.name}", "INVALID_NULL_POINTER")
        elif p.stars:
            yield from self._emit_pointer(p, base, optional)
        elif base != "struct":
            yield from self._emit_value_check(p.name, p.type)

    def _emit_handle(self, p: Parameter, optional: bool) -> Iterator[str]:
        self.scope[f"_get_{p.type}"] = self.scope["_registry"].list_owned(p.type).get
        code = find_code(INVALID.get(p.type, "INVALID_ARGUMENT"))
        wanted = f"{code} if _handle else {_NULL_HANDLE}"
        yield f"_handle, {p.name} = {p.name}, _get_{p.type}({p.name})"
        condition = f"{p.name} is None" + (" and _handle" if optional else "")
        yield f"if {condition}: raise _Refused({wanted})"

    def _emit_handles(self, p: Parameter, optional: bool) -> Iterator[str]:
        code = "INVALID_SIZE" if optional else "INVALID_NULL_POINTER"
        null = (self.function.name, p.name) in _MAY_HAVE_NULL
        if not null:
            yield _refuse_if(f"not {p.name}" + (f" and {p.length}" if optional else ""), code)
        self.scope[f"_of_{p.type}"] = self.scope["_registry"].list_owned(p.type)
        given = find_code(INVALID.get(p.type, "INVALID_ARGUMENT"))
        read = f"_read(_of_{p.type}, {p.name}, {p.length}, {given}, {null})"
        nothing = "None" if null else "[]"
        yield f"{p.name} = {read} if {p.name} else {nothing}"

    def _emit_pointer(self, p: Parameter, base: str, optional: bool) -> Iterator[str]:
        if not optional:
            yield _refuse_if(f"not {p.name}", "INVALID_NULL_POINTER")
        if base == "char" and p.const and p.stars == 1:
            text = f"_string({p.name}).decode('utf-8', 'replace')"
            yield f"{p.name} = {text} if {p.name} else None"
            return
        if base == "struct" and p.stars == 1 and not p.length and not _is_output(p):
            for field in ZE.structs[p.type].fields if p.type in ZE.structs else ():
                if not field.stars and not field.length:
                    yield from self._emit_value_check(f"{p.name}.{field.name}", field.type, p.name)
        if optional:
            yield f"if not {p.name}: {p.name} = None"

    def _emit_value_check(self, value: str, type_name: str, where: str = "True") -> Iterator[str]:
        """Check an enumeration or flags, if the condition `where` is true."""
        if type_name in _UNCHECKED:
            return
        if ZE.is_bitfield(type_name):
            mask = 0
            for bits in ZE.groups.get(type_name, ()):
                mask |= bits
            if mask:
                yield _refuse_if(f"{where} and {value} & ~{mask}", "INVALID_ENUMERATION")
        elif type_name in ZE.groups:
            self.scope[f"_values_{type_name}"] = frozenset(ZE.groups[type_name])
            yield _refuse_if(
                f"{where} and {value} not in _values_{type_name}", "INVALID_ENUMERATION"
            )

    def _call(self, returns_code: bool) -> Iterator[str]:
        call = f"_body({', '.join(self.named)})"
        outputs = [p for p in self.function.parameters if _is_output(p)]
        if not returns_code:
            yield f"return _show({call})"
            return
        if (found := self._list()) is not None:
            yield f"_give_list(_registry, {call}, {found[0]}, {found[1]})"
            yield "return 0"
            return
        targets = [p for p in outputs if p.name not in self.named and "inout" not in p.words]
        if not targets:
            yield f"return {call} or 0"
            return
        gives = "_show" if "Get" in self.function.name else "_give"  # a reference
        names = [f"_r{index}" for index in range(len(targets))]
        yield f"{', '.join(names)} = {call}"
        for name, p in zip(names, targets, strict=True):
            value = f"{gives}({name})" if ZE.resolve(p.type) == "handle" else name
            condition = f"if {p.name}: " if "optional" in p.words else ""
            yield f"{condition}{p.name}[0] = {value}"
        yield "return 0"

    def _list(self) -> tuple[str, str] | None:
        """Return the names of a count and of the handles that it counts, if there are any."""
        for p in self.function.parameters:
            if p.length.startswith("*") and ZE.resolve(p.type) == "handle":
                return None if p.name in self.named else (p.length[1:], p.name)
        return None


def _is_output(p: Parameter) -> bool:
    """Return whether the function writes a value there.

    The address of raw memory is an input like any other, also if the function writes there.
    """
    levels = p.stars - (p.type == "void")
    return levels > 0 and ("out" in p.words or "inout" in p.words)
