"""`@fairlead.graphed`: a function of PyOpenCL arrays that captures itself.

The first call with arguments of certain shapes and types captures the function. Later ones replay
it with their own arrays and numbers, which are Parameters. If an argument is an object that has
arrays, as that of a method often is, its attributes count as arguments (graphed_calls.py). Where
that cannot be, the function runs as it is, and a warning says why.
"""

from __future__ import annotations

import functools
import inspect
import types
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar, overload

from numpy import ndarray

from ..icd._native import lib
from ..loader.base.forks import count_forks, make_lock
from .argument_objects import begins_with_contents, has_own_contents
from .context import CapturedGraph, capture
from .graphed_calls import (
    CannotBeGraphedError,
    GraphedCall,
    NumberKinds,
    find_whole,
    is_array,
    make_parameter,
)
from .parameter import GraphParameter, find_entry
from .pyopencl_client import ArgumentError
from .replay_arguments import has_property

_P = ParamSpec("_P")
_Q = ParamSpec("_Q")
_R = TypeVar("_R")
_Object = TypeVar("_Object")

#: Graphs of a function that are kept. The one that was made first goes first.
_MOST: Final = 32
#: Reasons that are kept, which costs no more than a few texts.
_MOST_REASONS: Final = 256
#: So many graphs in a row that are not used again are enough.
_MOST_UNUSED: Final = 4
#: After so many replays it is known whether a graph's one launch becomes another kernel.
_KNOWN_AFTER: Final = 32
#: After so many calls in a row that were not replayed, the next ones are not looked at.
_MOST_PLAIN: Final = 64
#: So many are not looked at. What they have in common costs as much as a launch.
_NEXT: Final = 1024
#: Graphs of calls that differ only in the memory that they must not overwrite.
_MOST_SPARE: Final = 16


#: What kinds of numbers are called.
_KINDS: Final = {
    "float": "floats",
    "whole": "whole numbers of NumPy",
    "of NumPy": "other numbers of NumPy",
}


class GraphedWarning(UserWarning):
    """A function could not be captured and runs as it is."""


class _CapturedCall:
    """A captured call.

    Attributes:
        queue: the first queue, on which it is replayed.
        others: the other queues, which wait for it and it for them.
        used: the places and names of what the graph uses.
        arrays: the places of those that are arrays.
        made: arrays of the graph's own that the program gets.
        constants: the places of arguments that are the same in each call.
        unrepeatable: what the function did beside its commands, "" for nothing.
    """

    def __init__(
        self,
        graph: CapturedGraph,
        call: GraphedCall,
        passed: Sequence[Any],
        result: Any,
        exchanged: str,
        names: Sequence[str],
    ) -> None:
        recording, held = graph.block.recording, graph.block.held
        # Asked before the executable graph has references of its own.
        self._has_contents = has_own_contents(recording.commands, len(recording), held)
        self.loop, (self.queue, *self.others) = graph.finalize(), call.queues.values()
        # What is compared by its identity lives as long as the graph.
        self._replays = 0
        self._held, self._result, self._passed = call.identical, result, list(passed)
        known = set(self.loop.parameters)
        self.used = [(i, f"p{i}") for i in range(len(passed)) if f"p{i}" in known]
        self.arrays = [i for i, _ in self.used if is_array(call.given[i])]
        owners = {owner.place for owner in call.owners}
        self.constants = [
            i for i, one in enumerate(passed) if find_entry(one) is None and i not in owners
        ]
        self._names = names
        self.unrepeatable = exchanged
        self._is_in_order = not has_property(self.queue, "OUT_OF_ORDER_EXEC_MODE_ENABLE")
        self._handle, self._last = self.queue.int_ptr, None
        #: What the graph's Parameters are, in the order of `used`: what was given, and the memory
        #: of an array. Nobody's argument is the class.
        self._present = self._unknown = [(_CapturedCall, None)] * len(self.used)
        self.made = [one for one in self._list_results() if self._find_place(one) is None]
        #: What the function has set: the place of the object, the attribute, and its new value.
        self._set: list[tuple[int, str, Any]] = []
        #: The handles of the memory of `made`, and the objects that keep it, by place.
        self._own: set[int] = set()
        #: Buffers of the last call that do not belong to `made`. They live, and stay what they are.
        self._foreign: dict[int, Any] = {}
        self._keepers: dict[int, int] = {}

    def _list_results(self) -> list[Any]:
        result = self._result
        listed = list(result) if isinstance(result, (tuple, list)) else [result]
        return [one for one in listed if one is not None]

    def _find_place(self, thing: Any) -> int | None:
        return next((i for i, one in enumerate(self._passed) if one is thing), None)

    def note_attributes(
        self, changes: Sequence[tuple[int, str, Any]], given: Sequence[Any]
    ) -> None:
        """Note what the function has set, which replays do, too, if it is an array."""
        for place, name, value in changes:
            if self._find_place(value) is None:
                if isinstance(value, GraphParameter) or not is_array(value):
                    self.unrepeatable = self.unrepeatable or (
                        f"it sets the attribute {name}, which replays would not. Set it outside of "
                        "the function"
                    )
                    value = value.value if isinstance(value, GraphParameter) else value
                else:
                    self.made.append(value)
                    self._keepers[place] = id(given[place])
            self._set.append((place, name, value))
        self._own = {one.base_data.int_ptr for one in self.made if one.base_data is not None}

    def overwrites(self, call: GraphedCall) -> bool:
        """Whether a replay would overwrite an argument, or what the attributes of another object
        are."""
        own, known = self._own, self._foreign
        if not own.isdisjoint(call.memory) or any(
            id(call.given[place]) != keeper for place, keeper in self._keepers.items()
        ):
            return True
        if own:
            buffers = {id(one): one for one in call.buffers}
            # To ask for a buffer's whole takes longer than to look whether it is known.
            if any(find_whole(one) in own for key, one in buffers.items() if key not in known):
                return True
            self._foreign = buffers
        return False

    def costs_more_than_a_call(self) -> bool:
        """Whether the function is faster as it is. Asked after each replay, and seldom looked
        at."""
        self._replays += 1
        return self._replays % _KNOWN_AFTER == 0 and self.loop.costs_more_than_a_call

    def explain(self) -> str:
        """Tell how large the graph is, and what its arguments are."""
        text = f"{len(self.loop)} nodes"
        for title, places in (
            ("Parameters", [place for place, _ in self.used]),
            ("the same in each call", self.constants),
        ):
            if places:
                text += f"; {title}: {', '.join(self._names[place] for place in places)}"
        return text

    def check(self) -> None:
        """Raise CannotBeGraphedError if a replay cannot return or set what the function does."""
        for one in self._list_results():
            if self._find_place(one) is None and not is_array(one):
                raise CannotBeGraphedError(
                    f"it returns {type(one).__name__}, which is not an array"
                )
        if any(find_entry(one) is not None for one in self.made):
            raise CannotBeGraphedError("it returns or keeps a part of an argument")
        if self._has_contents or any(map(begins_with_contents, self._own)):
            raise CannotBeGraphedError(
                "it makes a buffer with COPY_HOST_PTR or USE_HOST_PTR, whose contents no replay "
                "would renew. Make it outside of the function"
            )

    def replay(self, given: Sequence[Any]) -> Any:
        """Replay the call with other arguments. Returns what the function returns."""
        values, present, before = {}, [], self._present
        for (place, name), (one, held) in zip(self.used, before, strict=True):
            value = given[place]
            memory = getattr(value, "base_data", None)
            present.append((value, memory))
            # To set a value takes longer than to look. An array's own value may have changed.
            if one is not value or held is not memory or type(value) is ndarray:
                values[name] = value
        if values:
            self._present = self._unknown  # until it is known that they were set
        arrays = [*(given[i] for i in self.arrays), *self.made]
        waits = [
            event
            for array in arrays
            for event in array.events
            if event is not self._last and not self._comes_before(event)
        ]
        if self.others:
            waits += _mark(self.others)
        event = self.loop.replay(self.queue, wait_for=waits or None, **values)
        self._last = event if self._is_in_order else None
        if values:
            self._present = present
        for array in arrays:
            array.events[:] = (event,)  # it comes after all of the earlier ones
        if self.others:
            _mark(self.others, [event])
        for place, name, value in self._set:
            object.__setattr__(given[place], name, self._take_from_call(value, given))
        return self._return_result(given)

    def _comes_before(self, event: Any) -> bool:
        """Whether the queue itself lets the replay come after an event."""
        if not self._is_in_order:
            return False
        queue = event.command_queue
        return queue is not None and queue.int_ptr == self._handle

    def _take_from_call(self, thing: Any, given: Sequence[Any]) -> Any:
        place = self._find_place(thing)
        return thing if place is None else given[place]

    def _return_result(self, given: Sequence[Any]) -> Any:
        result = self._result
        if isinstance(result, (tuple, list)):
            make = getattr(type(result), "_make", type(result))  # of a namedtuple, or the type
            return make(self._take_from_call(one, given) for one in result)
        return result if result is None else self._take_from_call(result, given)


def _mark(queues: Sequence[Any], waits: Sequence[Any] = ()) -> list[Any]:
    """Enqueue a barrier, after events, on each queue. Returns their events."""
    import pyopencl

    return [pyopencl.enqueue_barrier(queue, wait_for=list(waits) or None) for queue in queues]


class _GraphedBlock(capture):
    """A capture whose exchanges of buffers are a reason, and no warning.

    Attributes:
        exchanged: what exchanged its buffers, "" for nothing.
    """

    exchanged = ""

    def _tell_exchange(self, moved: Sequence[str]) -> None:
        self.exchanged = f"it exchanges the buffers of {', '.join(moved)}"

    def _tell_contents(self, places: Iterable[tuple[str, int]]) -> None:
        """Such calls are refused (`_CapturedCall.check`), unless others have the memory, too."""


class Graphed(Generic[_P, _R]):
    """A function that `graphed` has made.

    Attributes:
        reasons: why calls were not captured, by what their arguments were.
    """

    def __init__(self, function: Callable[_P, _R]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._lock = function, make_lock()
        self._captured: dict[Hashable, _CapturedCall] = {}
        #: Which numbers of calls are constants, and why, by what the arguments are.
        self._constants: dict[Hashable, tuple[NumberKinds, str]] = {}
        self._forks, self._unused = count_forks(), 0
        #: Calls in a row that were not replayed, and calls that nobody need look at.
        self._plain, self._ahead = 0, 0
        self.reasons: dict[Hashable, str] = {}

    @overload
    def __get__(self, instance: None, owner: Any = None) -> Graphed[_P, _R]: ...
    @overload
    def __get__(
        self: Graphed[Concatenate[_Object, _Q], _R], instance: _Object, owner: Any = None
    ) -> Graphed[_Q, _R]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Return the function, or the method of an object: it has the same attributes."""
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *arguments: _P.args, **named: _P.kwargs) -> _R:
        """Replay the function, or capture it first, or call it."""
        if self._ahead or lib.fl_is_recording():  # or it is a part of another capture
            self._ahead = max(self._ahead - 1, 0)
            return self._function(*arguments, **named)
        try:
            call = GraphedCall([*arguments, *named.values()], tuple(named))
            key = call.key
            if self._constants and key in self._constants:
                key = call.make_constant_key(self._constants[key][0])
        except CannotBeGraphedError as reason:
            return self._call(("?", str(reason)), str(reason), arguments, named)
        if key in self.reasons:
            self._plain += 1
            if self._plain == _MOST_PLAIN:
                self._plain, self._ahead = 0, _NEXT
            return self._function(*arguments, **named)
        self._plain = 0
        with self._lock:
            if self._forks != count_forks():  # a child captures for itself
                self._captured.clear()
                self._forks = count_forks()
            captured, spare = self._captured.get(key), ()
            while captured is not None and captured.overwrites(call):
                spare += (None,)  # the next graph has other memory
                captured = self._captured.get(key + spare)
            if captured is not None:
                self._unused = 0
                result = captured.replay(call.given)
                if captured.costs_more_than_a_call():
                    del self._captured[key + spare]
                    self._refuse(key, "a call of its one command costs less than a replay", 3)
                return result
            if len(spare) >= _MOST_SPARE:
                reason = f"{_MOST_SPARE} graphs have memory that is an argument or an attribute"
                return self._call(None, reason, arguments, named)
            if self._unused >= _MOST_UNUSED and not spare:
                return self._call(None, self._describe_change(call, key), arguments, named)
            try:
                key, captured = self._capture(call, key, len(arguments))
            except Exception as reason:  # whatever the function cannot do in a block
                return self._call(key, _describe(reason), arguments, named)
            result = captured.replay(call.given)
            if captured.unrepeatable:
                self._refuse(key, captured.unrepeatable, 3)
                return result
            while len(self._captured) >= _MOST:
                del self._captured[next(iter(self._captured))]
            self._captured[key + spare] = captured
            self._unused += not spare
            return result

    def _call(self, key: Hashable, reason: str, arguments: Any, named: Any) -> _R:
        function: Any = self._function
        result = function(*arguments, **named)  # its own errors come first
        self._refuse(key, reason, 4)
        return result

    def _refuse(self, key: Hashable, reason: str, stacklevel: int) -> None:
        """Remember, and say once, why a kind of call is not captured."""
        if key in self.reasons:
            return
        is_new = reason not in self.reasons.values()
        if len(self.reasons) >= _MOST_REASONS:
            del self.reasons[next(iter(self.reasons))]
        self.reasons[key] = reason
        if is_new:
            warnings.warn(
                f"{self._function.__qualname__} runs without a graph: {reason}",
                GraphedWarning,
                stacklevel=stacklevel,
            )

    def _capture(
        self, call: GraphedCall, key: tuple[Hashable, ...], count: int
    ) -> tuple[tuple[Hashable, ...], _CapturedCall]:
        """Return the captured call, and what distinguishes it from others."""
        known, _ = self._constants.get(call.key, (NumberKinds(), ""))
        choices = [] if known else call.list_choices()
        try:
            return key, self._capture_with(call, count, known)
        except Exception as reason:
            for number, constants in enumerate(choices, 1):
                try:
                    captured = self._capture_with(call, count, constants)
                except Exception:
                    if number == len(choices):
                        raise
                    continue
                self._constants[key] = constants, _describe(reason)
                return call.make_constant_key(constants), captured
            raise

    def _capture_with(self, call: GraphedCall, count: int, constants: NumberKinds) -> _CapturedCall:
        """Capture a call, with numbers of some kinds as they are, and others as Parameters."""
        passed = [make_parameter(one, place, constants) for place, one in enumerate(call.given)]
        last = count + len(call.names)
        function: Any = self._function  # the block looks at what it can reach
        block = _GraphedBlock(*call.queues.values(), name=function.__qualname__)
        with block as graph, _exchange_attributes(call, passed) as changes:
            named = dict(zip(call.names, passed[count:last], strict=True))
            result = function(*passed[:count], **named)
        names = self._list_names(call)
        captured = _CapturedCall(graph, call, passed, result, block.exchanged, names)
        captured.note_attributes(changes, call.given)
        captured.check()
        return captured

    def _list_names(self, call: GraphedCall) -> list[str]:
        return call.list_names(inspect.signature(self._function).parameters)

    def _describe_change(self, call: GraphedCall, key: Any) -> str:
        """Say which arguments lead to a new graph each time."""
        last: Any = next(reversed(self._captured), ())
        names = self._list_names(call)
        changed = [
            name for name, one, other in zip(names, key[1:], last[1:], strict=False) if one != other
        ]
        reason = (
            f"{_MOST_UNUSED} graphs in a row were not used again. What changes is "
            f"{', '.join(changed) or 'the number of arguments'}. A number that changes has to be "
            "a float or a NumPy scalar"
        )
        if call.key in self._constants:
            reason += (
                f", and the function takes no Parameter for it: {self._constants[call.key][1]}"
            )
        return reason

    def explain(self) -> str:
        """Tell which calls are replayed, with which Parameters, and why others are not."""
        count = len(self._captured)
        lines = [f"{self._function.__qualname__}: {count} graph{'s' if count != 1 else ''}"]
        lines += [f"  {one.explain()}" for one in self._captured.values()]
        for constants, reason in self._constants.values():
            names = ", ".join(_KINDS[one] for one in sorted(constants))
            lines.append(f"  {names} are constants: {reason}")
        lines += [f"  not captured: {reason}" for reason in dict.fromkeys(self.reasons.values())]
        return "\n".join(lines)


def _describe(reason: Exception) -> str:
    return f"{type(reason).__name__}: {reason}"


@contextmanager
def _exchange_attributes(
    call: GraphedCall, passed: Sequence[Any]
) -> Iterator[list[tuple[int, str, Any]]]:
    """Give objects their Parameters as attributes for the length of a block.

    Yields:
        A list that gets what the block has set: the place of the object, attribute and value.
    """
    changes: list[tuple[int, str, Any]] = []
    for owner in call.owners:
        owner.put(passed)
    try:
        yield changes
        for owner in call.owners:
            changes += owner.list_changes(passed)
    finally:
        for owner in call.owners:
            owner.put(call.given)


def graphed(function: Callable[_P, _R]) -> Graphed[_P, _R]:
    """Capture a function of PyOpenCL arrays at its first call, and replay it from then on.

    A decorator, also of methods. The queue is that of the first array, or a queue among the
    arguments. Arrays, buffers, floats and NumPy scalars may be others in each call. Other shapes or
    types lead to another capture, as do other values of all other arguments. The function may
    return arrays, or a tuple or list of them. An array that it has made is memory of the graph: the
    next call with such arguments overwrites it. A call that is given the array does not: for such
    calls there is another graph, with memory of its own.

    If an argument is an object with arrays in its attributes, such as a method's own, its
    attributes are arguments, too. An attribute may be set to an array: `self.u, self.v = self.v,
    self.u` happens in each call.

    The Python code of the function runs only while it is captured. What it reads from elsewhere is
    as it was then: variables of closures and globals, and attributes of attributes.

    A call that cannot be captured is an ordinary call, and GraphedWarning says why, once. So it is
    if several graphs in a row were not used again, or a graph of one command costs more. After 64
    ordinary calls in a row the next 1,024 are ordinary, too. `explain()` lists the reasons.

    Args:
        function: a function or method.

    Returns:
        What replaces it.

    Raises:
        ArgumentError: it is not a function.
    """
    if not callable(function):
        raise ArgumentError(
            f"{type(function).__name__} is not a function.",
            routine="graphed",
            remedy="write @fairlead.graphed above the function, without arguments",
        )
    return Graphed(function)
