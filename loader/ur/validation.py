"""Validation layers: they check the calls to an adapter before it receives them.

`UR_ENABLE_LAYERS` names the layers (`parse_layer_names`). A `Validation` checks for them. `attach`
puts a layer in front of a table. Then `_check_before` refuses an invalid call with the code from
the specification, or counts the references that it takes and releases. `_check_after` records the
objects that a call returned. An object that still has references at `close` has leaked.

validation_rules.py derives the rules from the ABI data.

A correct program is never refused, so the rules accept whatever is uncertain. Objects from queries
(platforms, root devices, the context of a queue) belong to others and live forever. An unknown
handle is accepted if it points to the adapter's dispatch table, as every handle must (UR 0.12,
ur_ddi.h). Such handles exist if the layer was attached late, or after a failed urProgramLink.

Not checked: the contents of structs, references to bindless images and to memory other than USM.
UR_LAYER_BOUNDS_CHECKING does not check rectangles, images and 2D copies.
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
from ..base.forks import make_lock
from ..base.layers import Layer
from ..base.memory import POINTER_SIZE, read_word
from ..base.search import filter_environ
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
    find_counted_kinds,
    make_rules,
    read_handles,
)

_DEPTH: Final = 8  # the frames that are stored for an object


_PACKAGE: Final = __name__.partition(".")[0]


Stack: TypeAlias = "tuple[tuple[str, int], ...]"  # innermost first: file, line


@dataclass(frozen=True)
class Leak:
    """An object that still had references at the end. `str()` describes it.

    Attributes:
        kind: its C type, or "USM memory".
        count: the number of its references.
        stack: the lines of Python that created it, innermost first, as `file:line: source`. Empty
            if C created it.
    """

    kind: str
    handle: int
    count: int
    stack: tuple[str, ...]

    def __str__(self) -> str:
        references = "1 reference" if self.count == 1 else f"{self.count} references"
        created = " < ".join(self.stack) or "a line of C"
        return f"{self.kind} {self.handle:#x} has leaked: {references} left; created at {created}"


def capture_stack() -> Stack:
    """Return the innermost frames of the running thread that do not belong to fairlead."""
    frame, found = sys._getframe(1), list[tuple[str, int]]()
    while frame is not None and len(found) < _DEPTH:
        if str(frame.f_globals.get("__name__")).partition(".")[0] != _PACKAGE:
            found.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)


def format_stack(stack: Stack) -> tuple[str, ...]:
    """Return the frames as text."""
    sources = (linecache.getline(file, line).strip() for file, line in stack)
    return tuple(
        f"{file}:{line}: {source}" if source else f"{file}:{line}"
        for (file, line), source in zip(stack, sources, strict=True)
    )


def format_innermost(stack: Stack) -> str:
    """Return the innermost frame as text."""
    return next(iter(format_stack(stack[:1])), "a line of C")


@dataclass
class TrackedObject:
    """An object that validation has seen.

    Attributes:
        kind: its C type, or "USM memory".
        count: the number of its references.
        made: whether a call created it, so that `count` is exact.
        lent: whether it belongs to another owner, and exists without references.
        size: the size of USM memory in bytes.
    """

    kind: str
    handle: int
    count: int = 0
    made: bool = False
    lent: bool = False
    size: int = 0
    created: Stack = ()
    released: Stack = ()


PARAMETER: Final = "UR_LAYER_PARAMETER_VALIDATION"
LIFETIME: Final = "UR_LAYER_LIFETIME_VALIDATION"
LEAK: Final = "UR_LAYER_LEAK_CHECKING"
BOUNDS: Final = "UR_LAYER_BOUNDS_CHECKING"
FULL: Final = "UR_LAYER_FULL_VALIDATION"

#: Name to the layers that it stands for. As in the real loader, lifetimes are checked only with
#: leaks.
_STANDS_FOR: Final = {
    PARAMETER: {PARAMETER},
    LIFETIME: {LIFETIME, LEAK},
    LEAK: {LEAK},
    BOUNDS: {BOUNDS},
    FULL: {PARAMETER, LIFETIME, LEAK},
    "UR_LAYER_TRACING": set[str](),  # another layer's
}
_SANITIZERS: Final = {"UR_LAYER_ASAN", "UR_LAYER_MSAN", "UR_LAYER_TSAN"}

#: The slot of urAdapterGet in every layout. Its function identifies the adapter.
_ADAPTER_GET: Final = 0

Report: TypeAlias = Callable[[str], None]


def parse_layer_names(
    environ: Mapping[str, str] | None = None, *, report: Report | None = None
) -> frozenset[str]:
    """Return the validation layers that `UR_ENABLE_LAYERS`, a comma list, asks for.

    UR_LAYER_FULL_VALIDATION is replaced by what it stands for.

    Args:
        environ: the environment, `os.environ` by default.
        report: called with a line for each unknown name, and for each sanitizer, which needs
            instrumented kernels. By default a warning of the logger UR_LOG_VALIDATION.
    """
    listed = filter_environ(environ).get("UR_ENABLE_LAYERS", "")
    names = list(dict.fromkeys(name.strip() for name in listed.split(",") if name.strip()))
    for name in names:
        if name in _SANITIZERS:
            (report or _warn)(
                f"UR_ENABLE_LAYERS: {name} is not offered: it needs kernels that the DPC++ "
                "compiler instrumented"
            )
        elif name not in _STANDS_FOR:
            (report or _warn)(
                f"UR_ENABLE_LAYERS is a comma list, and there is no layer {name}; there are "
                f"{', '.join(_STANDS_FOR)}"
            )
    return _resolve_names(names)


def _resolve_names(names: Iterable[str]) -> frozenset[str]:
    return frozenset[str]().union(*(_STANDS_FOR.get(name, ()) for name in names))


class Validation:
    """Checks the calls through the tables that it is attached to, from any thread.

    Args:
        names: the layers, as returned by `parse_layer_names`.
        report: called with a line for each refused call and each leak. By default an error of the
            logger UR_LOG_VALIDATION. Its exceptions are printed.
    """

    def __init__(self, names: Iterable[str], *, report: Report | None = None) -> None:
        self.names = _resolve_names(names)
        self._report = report or _print_error
        self._objects: dict[tuple[str, int], TrackedObject] = {}
        self._memory: list[int] = []  # where live USM memory begins, sorted
        self._late = False  # whether objects were found that are older than the layer
        self._attached: list[tuple[DispatchTable, Layer]] = []
        self._lock = make_lock()  # re-entrant: a finalizer may call the table

    def attach(self, table: DispatchTable) -> None:
        """Check the calls through a table from now on.

        Attach before the first call. Objects that were created earlier are accepted only if their
        handles point to the adapter's dispatch table.

        Raises:
            FairleadError: the table belongs to another API, or all layers are in use.
        """
        if table.api is not UR:
            raise FairleadError(
                "validation layers are for Unified Runtime adapters, and this is a table of "
                f"{table.api.name}",
                remedy="unset UR_ENABLE_LAYERS, or trace the plugin instead",
            )
        with layers_lock, self._lock:
            if not self.names or any(table is other for other, _ in self._attached):
                return
            layer = Layer(UR, table.top)
            layer.handle(self._check_before, functools.partial(self._check_after, layer))
            table.push(layer)
            self._attached.append((table, layer))

    def find_leaks(self) -> list[Leak]:
        """Return the objects that have references now, in the order of their creation."""
        with self._lock:
            objects = list(self._objects.values())  # the garbage collector may release some
            left = [o for o in objects if o.count > 0 and o.kind in find_counted_kinds()]
        return [Leak(o.kind, o.handle, o.count, format_stack(o.created)) for o in left]

    def close(self) -> None:
        """Remove the layers, and report leaks if UR_LAYER_LEAK_CHECKING is on.

        A second call does nothing.
        """
        with self._lock:
            attached, self._attached = self._attached, []
        for table, layer in reversed(attached):
            table.remove(layer)
            layer.release()
        for leak in self.find_leaks() if attached and LEAK in self.names else ():
            self._report_line(str(leak))

    # Calls

    def _check_before(self, slot: int, arguments: Sequence[int]) -> int | None:
        rules = make_rules()[slot]
        with self._lock:
            wrong = self._find_violation(rules, arguments)
            if wrong is None:
                self._count_references(rules, arguments, 1)
                return None
            line = (
                f"{rules.function.name}: {wrong.parameter}: {wrong.what}; answered "
                f"{wrong.code}; called at {format_innermost(capture_stack())}"
            )
        self._report_line(line)
        return UR.codes[wrong.code]

    def _check_after(self, layer: Layer, slot: int, arguments: Sequence[int], result: int) -> None:
        rules = make_rules()[slot]
        if result != UR_RESULT_SUCCESS:
            with self._lock:
                self._count_references(rules, arguments, -1)
            return
        # Without the lock, because this may call the adapter.
        given = [
            (each, _read_output_handles(each, rules.function, layer.next, arguments))
            for each in rules.outputs
        ]
        with self._lock:
            for each, handles in given:
                size = arguments[each.size] if each.size is not None else 0
                for handle in handles:
                    self._record_output(each, handle, size)
            if rules.query:
                self._record_answer(rules.query, arguments)

    def _report_line(self, line: str) -> None:
        try:
            self._report(line)
        except Exception:  # the caller is C
            traceback.print_exc()

    def _find_violation(self, rules: Rules, arguments: Sequence[int]) -> Violation | None:
        """Return the first violation in a call, None if there is none."""
        if PARAMETER in self.names:
            for check in rules.checks:
                if wrong := check(arguments):
                    return wrong
        if LIFETIME in self.names:
            for used in rules.inputs:
                if wrong := self._find_dead(used, arguments):
                    return wrong
        if BOUNDS in self.names:
            for extent in rules.ranges:
                if wrong := self._find_outside(extent, rules.function, arguments):
                    return wrong
        return None

    # Objects

    def _find_dead(self, used: InputObjects, arguments: Sequence[int]) -> Violation | None:
        """Return a violation if an object in a parameter is not alive.

        NULL is checked by the parameter checks.
        """
        one = used.count is None
        for i, handle in enumerate(
            [arguments[used.index]] if used.count is None else self._list_inputs(used, arguments)
        ):
            found = self._objects.get((used.kind, handle))
            if not handle or (found is None and self._is_older(used.kind, handle)):
                continue
            name = used.parameter.name if one else f"{used.parameter.name}[{i}]"
            if found is None:
                other = self._find_other_kind(handle)
                text = f"{used.kind} {handle:#x} did not come from the adapter's functions"
                text += f": it is a {other}" if other else ""
                return Violation(name, text, used.code)
            enough = found.count > 0 or (found.lent and not (used.change < 0 and found.made))
            if not enough:
                released = format_innermost(found.released)
                created = format_innermost(found.created)
                text = (
                    f"{used.kind} {handle:#x} was released for the last time at {released}; it "
                    f"was created at {created}"
                )
                return Violation(name, text, used.code)
        return None

    def _list_inputs(self, used: InputObjects, arguments: Sequence[int]) -> list[int]:
        assert used.count is not None
        return read_handles(arguments[used.index], arguments[used.count])

    def _is_older(self, kind: str, handle: int) -> bool:
        """Return whether an unknown object may be the adapter's from before. If so, record it."""
        if kind == MEMORY:
            return self._late
        table = read_word(handle)
        function = read_word(table) if table else None
        ours = function and any(
            function == other.get_pointer(_ADAPTER_GET) for other, _ in self._attached
        )
        if not ours or self._find_other_kind(handle):
            return False
        self._late = True
        self._objects[kind, handle] = TrackedObject(kind, handle, lent=True)
        return True

    def _find_other_kind(self, handle: int) -> str:
        """Return the kind of a handle, "" if it is unknown."""
        return next(
            (
                o.kind
                for o in list(self._objects.values())
                if o.handle == handle and (o.count > 0 or o.lent)
            ),
            "",
        )

    def _count_references(self, rules: Rules, arguments: Sequence[int], sign: int) -> None:
        """Count how a call changes references. With `sign` -1, undo it, because the call failed.

        This happens before the call: after a release, another thread may get the same address.
        """
        for used in rules.inputs:
            found = self._objects.get((used.kind, arguments[used.index])) if used.change else None
            if found:
                found.count += used.change * sign
                if found.count <= 0:
                    found.released = capture_stack()
                self._note_memory(found)

    def _record_output(self, given: OutputObjects, handle: int, size: int) -> None:
        """Record a reference from a call, to a known object or to a new one."""
        found = self._objects.get((given.kind, handle))
        if given.inout and found and (found.count > 0 or found.lent):
            return  # it was handed in, to be used again
        if found is None or (found.made and found.count <= 0):
            self._objects.pop((given.kind, handle), None)  # leaks come in the order of creation
            found = TrackedObject(
                given.kind, handle, made=not given.always, lent=given.always, size=size
            )
            self._objects[given.kind, handle] = found
        found.created = found.created or capture_stack()
        found.count += given.created
        self._note_memory(found)

    def _note_memory(self, memory: TrackedObject) -> None:
        if memory.kind == MEMORY:
            at = bisect.bisect_left(self._memory, memory.handle)
            there = self._memory[at : at + 1] == [memory.handle]
            if memory.count > 0 and not there:
                self._memory.insert(at, memory.handle)
            elif there and memory.count <= 0:
                del self._memory[at]

    def _record_answer(self, query: HandleQuery, arguments: Sequence[int]) -> None:
        """Record the handles that a query returned. Their references belong to others."""
        kind = query.kinds.get(arguments[query.name] & 0xFFFFFFFF)
        if kind and arguments[query.value]:
            returned = read_word(arguments[query.returned]) if arguments[query.returned] else None
            room = arguments[query.size]
            for handle in read_handles(
                arguments[query.value],
                min(room, room if returned is None else returned) // POINTER_SIZE,
            ):
                if handle:
                    self._objects.setdefault(
                        (kind, handle), TrackedObject(kind, handle)
                    ).lent = True

    # Bounds

    def _find_outside(
        self, extent: MemoryRange, function: Function, arguments: Sequence[int]
    ) -> Violation | None:
        """Return a violation if a call accesses memory behind the end of a buffer or USM memory."""
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
        text = (
            f"bytes {begin} to {begin + size}, where {found.kind} has {found.size}; it was "
            f"created at {format_innermost(found.created)}"
        )
        return Violation(extent.parameter, text, "UR_RESULT_ERROR_INVALID_SIZE")


def _read_output_handles(
    given: OutputObjects, function: Function, next: int, arguments: Sequence[int]
) -> list[int]:
    """Return the objects that a call wrote to a parameter.

    They are as many as fit and as the function reports. If the caller did not ask for the number,
    ask the adapter.
    """
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


def _print_error(text: str) -> None:
    from ..base.log import get_logger

    get_logger("VALIDATION", default="warning").error(text)


def _warn(text: str) -> None:
    from ..base.log import get_logger

    get_logger("VALIDATION", default="warning").warning(text)
