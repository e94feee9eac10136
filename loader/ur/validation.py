"""Validation layers: a Unified Runtime table whose calls are checked before the adapter sees them.

`UR_ENABLE_LAYERS` names the layers (`layer_names`), a `Validation` checks for them. `attach` puts a layer in front of a table; from
then on each call goes through `_before`, which refuses it with the code that the specification has for it, or counts the references
that it takes and gives back; and, when the adapter has answered, through `_after`, which writes down the objects that came out. What
still has references at `close` has leaked.

There is no rule for a function in here. `all_rules` makes those of all functions from the ABI data (ur.abi): what is not `optional` must
not be NULL, an enumeration must have the value, `alloc`, `retain` and `release` say what becomes of an object. Four small tables hold
what the data does not say.

A program that is right is never refused, so whoever cannot be known for certain is believed: objects that a query gives (platforms,
root devices, the context of a queue) belong to somebody else and never end, and a handle which nobody has seen, because the layer came
late or a failed urProgramLink left it, is one of the adapter's if it leads to its dispatch table, as each must (UR 0.12, ur_ddi.h).

Not checked: what structs lead to, references to bindless images and to memory other than USM, and, by UR_LAYER_BOUNDS_CHECKING,
rectangles, images and 2D copies.
"""

from __future__ import annotations

import bisect
import ctypes
import functools
import linecache
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from ..base.abi import Function
from ..base.errors import FairleadError
from ..base.forks import new_lock
from ..base.layers import Layer
from ..base.memory import POINTER_SIZE, read_word
from ..base.search import secure_environ
from ..base.table import DispatchTable, layers_lock
from .abi import UR, UR_RESULT_SUCCESS
from .validation_rules import (
    MEMORY,
    HandleQuery,
    InputObjects,
    MemoryRange,
    OutputObjects,
    Rules,
    Violation,
    all_rules,
    counted_kinds,
    read_handles,
)

PARAMETER: Final = "UR_LAYER_PARAMETER_VALIDATION"
LIFETIME: Final = "UR_LAYER_LIFETIME_VALIDATION"
LEAK: Final = "UR_LAYER_LEAK_CHECKING"
BOUNDS: Final = "UR_LAYER_BOUNDS_CHECKING"
FULL: Final = "UR_LAYER_FULL_VALIDATION"

#: Name → the layers that it stands for. As in the real loader, lifetimes are only followed together with leaks.
_STANDS_FOR: Final = {
    PARAMETER: {PARAMETER},
    LIFETIME: {LIFETIME, LEAK},
    LEAK: {LEAK},
    BOUNDS: {BOUNDS},
    FULL: {PARAMETER, LIFETIME, LEAK},
    "UR_LAYER_TRACING": set[str](),  # another layer's
}
_SANITIZERS: Final = {"UR_LAYER_ASAN", "UR_LAYER_MSAN", "UR_LAYER_TSAN"}

_ADAPTER_GET: Final = (
    0  # the slot of urAdapterGet in every layout, so that it tells whose table this is
)
_DEPTH: Final = 8  # frames of a stack that are kept
_PACKAGE: Final = __name__.partition(".")[0]

Report: TypeAlias = Callable[[str], None]
_Stack: TypeAlias = "tuple[tuple[str, int], ...]"  # innermost first: file, line


def layer_names(
    environ: Mapping[str, str] | None = None, *, report: Report | None = None
) -> frozenset[str]:
    """The validation layers that `UR_ENABLE_LAYERS`, a comma-separated list, asks for; UR_LAYER_FULL_VALIDATION is resolved.

    A name that is not known (the real loader says nothing) and a sanitizer, which needs a compiler's help, give a line to `report`,
    by default a warning of the logger UR_LOG_VALIDATION.
    """
    listed = secure_environ(environ).get("UR_ENABLE_LAYERS", "")
    names = list(dict.fromkeys(name.strip() for name in listed.split(",") if name.strip()))
    for name in names:
        if name in _SANITIZERS:
            (report or _warn)(
                f"UR_ENABLE_LAYERS: {name} is not offered: it needs kernels that the DPC++ compiler instrumented"
            )
        elif name not in _STANDS_FOR:
            (report or _warn)(
                f"UR_ENABLE_LAYERS is a comma list, and there is no layer {name}; there are {', '.join(_STANDS_FOR)}"
            )
    return _resolved(names)


def _resolved(names: Iterable[str]) -> frozenset[str]:
    return frozenset[str]().union(*(_STANDS_FOR.get(name, ()) for name in names))


@dataclass(frozen=True)
class Leak:
    """An object that still had `count` references. `kind` is its C type, or "USM memory"; `handle` its address; `stack` the lines of
    Python that created it, innermost first, `file:line: source`; empty if C did."""

    kind: str
    handle: int
    count: int
    stack: tuple[str, ...]

    def __str__(self) -> str:
        references = "1 reference" if self.count == 1 else f"{self.count} references"
        created = " < ".join(self.stack) or "a line of C"
        return f"{self.kind} {self.handle:#x} has leaked: {references} left; created at {created}"


# What is known of a function


def _stack() -> _Stack:
    """The innermost frames of the running thread that are not fairlead's."""
    frame, found = sys._getframe(1), list[tuple[str, int]]()
    while frame is not None and len(found) < _DEPTH:
        if str(frame.f_globals.get("__name__")).partition(".")[0] != _PACKAGE:
            found.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)


def _lines(stack: _Stack) -> tuple[str, ...]:
    sources = (linecache.getline(file, line).strip() for file, line in stack)
    return tuple(
        f"{file}:{line}: {source}" if source else f"{file}:{line}"
        for (file, line), source in zip(stack, sources, strict=True)
    )


def _innermost(stack: _Stack) -> str:
    return next(iter(_lines(stack[:1])), "a line of C")


@dataclass
class _Object:
    """What is known of an object. One that was `made` here has exactly `count` references; one that is `lent` lives without any."""

    kind: str
    handle: int
    count: int = 0
    made: bool = False
    lent: bool = False
    size: int = 0
    created: _Stack = ()
    released: _Stack = ()


class Validation:
    """Checks the calls of the tables that it is attached to.

    `names` are the layers, as `layer_names` gives them. Each refused call, and at the end each leak, is one line for `report`: by
    default an error of the logger UR_LOG_VALIDATION. Whatever `report` raises is printed and goes no further. The calls may come from
    any thread.
    """

    def __init__(self, names: Iterable[str], *, report: Report | None = None) -> None:
        self.names = _resolved(names)
        self._report = report or _error
        self._objects: dict[tuple[str, int], _Object] = {}
        self._memory: list[int] = []  # where live USM memory begins, sorted
        self._late = False  # objects turned up that are older than we are
        self._attached: list[tuple[DispatchTable, Layer]] = []
        self._lock = new_lock()  # a finalizer may call the table while we hold it

    def attach(self, table: DispatchTable) -> None:
        """Check what goes through `table` from now on. Do it before the first call: what was made earlier is only known as far as the
        adapter's handles lead to its dispatch table.

        Raises FairleadError for a table of another API, or when all layers are taken.
        """
        if table.api is not UR:
            raise FairleadError(
                f"validation layers are for Unified Runtime adapters, and this is a table of {table.api.path.stem}",
                remedy="unset UR_ENABLE_LAYERS, or trace the plugin instead",
            )
        with layers_lock, self._lock:
            if not self.names or any(table is other for other, _ in self._attached):
                return
            layer = Layer(UR, table.top)
            layer.handle(self._before, functools.partial(self._after, layer))
            table.push(layer)
            self._attached.append((table, layer))

    def leaks(self) -> list[Leak]:
        """What has references now, in the order in which it was created."""
        with self._lock:
            left = [o for o in self._objects.values() if o.count > 0 and o.kind in counted_kinds()]
        return [Leak(o.kind, o.handle, o.count, _lines(o.created)) for o in left]

    def close(self) -> None:
        """Take the layers out again and report what has leaked, if UR_LAYER_LEAK_CHECKING is among the names. A second call does
        nothing."""
        with self._lock:
            attached, self._attached = self._attached, []
        for table, layer in reversed(attached):
            table.remove(layer)
            layer.release()
        for leak in self.leaks() if attached and LEAK in self.names else ():
            self._tell(str(leak))

    # On the way of a call

    def _before(self, slot: int, arguments: Sequence[int]) -> int | None:
        rules = all_rules()[slot]
        with self._lock:
            wrong = self._find_wrong(rules, arguments)
            if wrong is None:
                self._count(rules, arguments, 1)
                return None
            line = f"{rules.function.name}: {wrong.parameter}: {wrong.what}; answered {wrong.code}; called at {_innermost(_stack())}"
        self._tell(line)
        return UR.codes[wrong.code]

    def _after(self, layer: Layer, slot: int, arguments: Sequence[int], result: int) -> None:
        rules = all_rules()[slot]
        if result != UR_RESULT_SUCCESS:
            with self._lock:
                self._count(rules, arguments, -1)
            return
        # without the lock: this may ask the adapter
        given = [
            (each, _outgoing(each, rules.function, layer.next, arguments)) for each in rules.given
        ]
        with self._lock:
            for each, handles in given:
                size = arguments[each.size] if each.size is not None else 0
                for handle in handles:
                    self._take(each, handle, size)
            if rules.query:
                self._lend(rules.query, arguments)

    def _tell(self, line: str) -> None:
        try:
            self._report(line)
        except Exception:  # the caller is C
            traceback.print_exc()

    def _find_wrong(self, rules: Rules, arguments: Sequence[int]) -> Violation | None:
        """The first thing that is wrong with a call."""
        if PARAMETER in self.names:
            for check in rules.checks:
                if wrong := check(arguments):
                    return wrong
        if LIFETIME in self.names:
            for used in rules.used:
                if wrong := self._find_dead(used, arguments):
                    return wrong
        if BOUNDS in self.names:
            for extent in rules.extents:
                if wrong := self._find_outside(extent, rules.function, arguments):
                    return wrong
        return None

    # Objects

    def _find_dead(self, used: InputObjects, arguments: Sequence[int]) -> Violation | None:
        """What is wrong with the objects in a parameter. NULL is the affair of the parameter checks."""
        one = used.count is None
        for i, handle in enumerate(
            [arguments[used.index]] if used.count is None else self._listed(used, arguments)
        ):
            found = self._objects.get((used.kind, handle))
            if not handle or (found is None and self._is_older(used.kind, handle)):
                continue
            name = used.parameter.name if one else f"{used.parameter.name}[{i}]"
            if found is None:
                other = self._other_kind(handle)
                text = f"{used.kind} {handle:#x} came from none of the adapter's functions"
                text += f": it is a {other}" if other else ""
                return Violation(name, text, used.code)
            enough = found.count > 0 or (found.lent and not (used.change < 0 and found.made))
            if not enough:
                released, created = _innermost(found.released), _innermost(found.created)
                text = f"{used.kind} {handle:#x} was released for the last time at {released}; it was created at {created}"
                return Violation(name, text, used.code)
        return None

    def _listed(self, used: InputObjects, arguments: Sequence[int]) -> list[int]:
        assert used.count is not None
        return read_handles(arguments[used.index], arguments[used.count])

    def _is_older(self, kind: str, handle: int) -> bool:
        """Whether an unknown object can be one of the adapter's from before. If so it is known from now on."""
        if kind == MEMORY:
            return self._late
        table = read_word(handle)
        function = read_word(table) if table else None
        ours = function and any(
            function == other.pointer(_ADAPTER_GET) for other, _ in self._attached
        )
        if not ours or self._other_kind(handle):
            return False
        self._late = True
        self._objects[kind, handle] = _Object(kind, handle, lent=True)
        return True

    def _other_kind(self, handle: int) -> str:
        """What a handle really is, "" if that is not known."""
        return next(
            (
                o.kind
                for o in self._objects.values()
                if o.handle == handle and (o.count > 0 or o.lent)
            ),
            "",
        )

    def _count(self, rules: Rules, arguments: Sequence[int], sign: int) -> None:
        """Count what a call does to references; with `sign` -1, undo that, because the call has failed.

        It is counted before the call: after a release another thread may get a new object at the same address.
        """
        for used in rules.used:
            found = self._objects.get((used.kind, arguments[used.index])) if used.change else None
            if found:
                found.count += used.change * sign
                if found.count <= 0:
                    found.released = _stack()
                self._note_memory(found)

    def _take(self, given: OutputObjects, handle: int, size: int) -> None:
        """A reference came out of a call: to an object that is there already, or to a new one."""
        found = self._objects.get((given.kind, handle))
        if given.inout and found and (found.count > 0 or found.lent):
            return  # it was handed in, to be used again
        if found is None or (found.made and found.count <= 0):
            self._objects.pop((given.kind, handle), None)  # leaks come in the order of creation
            found = _Object(given.kind, handle, made=not given.always, lent=given.always, size=size)
            self._objects[given.kind, handle] = found
        found.created = found.created or _stack()
        found.count += given.created
        self._note_memory(found)

    def _note_memory(self, memory: _Object) -> None:
        if memory.kind == MEMORY:
            at = bisect.bisect_left(self._memory, memory.handle)
            there = self._memory[at : at + 1] == [memory.handle]
            if memory.count > 0 and not there:
                self._memory.insert(at, memory.handle)
            elif there and memory.count <= 0:
                del self._memory[at]

    def _lend(self, query: HandleQuery, arguments: Sequence[int]) -> None:
        """Write down the handles that a query gave. Their references are somebody else's."""
        kind = query.kinds.get(arguments[query.name] & 0xFFFFFFFF)
        if kind and arguments[query.value]:
            returned = read_word(arguments[query.returned]) if arguments[query.returned] else None
            room = arguments[query.size]
            for handle in read_handles(
                arguments[query.value],
                min(room, room if returned is None else returned) // POINTER_SIZE,
            ):
                if handle:
                    self._objects.setdefault((kind, handle), _Object(kind, handle)).lent = True

    # Bounds

    def _find_outside(
        self, extent: MemoryRange, function: Function, arguments: Sequence[int]
    ) -> Violation | None:
        """Whether a call touches what is behind the end of a buffer, or of the USM memory that a pointer leads into."""
        p, begin, size = function.parameters[extent.index], 0, arguments[extent.size]
        if p.stars:
            at = bisect.bisect_right(self._memory, arguments[extent.index]) - 1
            found = self._objects.get((MEMORY, self._memory[at])) if at >= 0 else None
            begin = arguments[extent.index] - found.handle if found else 0
            if found and begin >= found.size:
                return None  # memory of the host
        else:
            found = self._objects.get((p.type, arguments[extent.index]))
            begin = arguments[extent.begin] if extent.begin is not None else 0
        if not found or not found.size or begin + size <= found.size:
            return None
        text = f"bytes {begin} to {begin + size}, where {found.kind} has {found.size}; it was created at {_innermost(found.created)}"
        return Violation(extent.parameter, text, "UR_RESULT_ERROR_INVALID_SIZE")


def _outgoing(
    given: OutputObjects, function: Function, next: int, arguments: Sequence[int]
) -> list[int]:
    """The objects that came out of a parameter: as many as there is room for, and as the function says that there are. If the caller
    did not want to know how many, the adapter is asked."""
    address, total = arguments[given.index], ctypes.c_uint32()
    if given.count is None or not address:
        return [handle for handle in read_handles(address, 1) if handle]
    number = arguments[given.count]
    if arguments[given.total]:
        number = min(number, ctypes.c_uint32.from_address(arguments[given.total]).value)
    else:
        asked = list(arguments)
        asked[given.count], asked[given.index], asked[given.total] = 0, 0, ctypes.addressof(total)
        slot = ctypes.c_void_p.from_address(next + (function.slot or 0) * POINTER_SIZE)
        if function.prototype(slot.value)(*asked) == UR_RESULT_SUCCESS:
            number = min(number, total.value)
    return [handle for handle in read_handles(address, number) if handle]


def _error(text: str) -> None:
    from ..base.log import logger

    logger("VALIDATION", default="warning").error(text)


def _warn(text: str) -> None:
    from ..base.log import logger

    logger("VALIDATION", default="warning").warning(text)
