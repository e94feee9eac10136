"""`@fairlead.graphed`: a function of PyOpenCL arrays that captures itself.

The first call with arguments of certain shapes and types captures the function. Later ones replay
it with their own arrays and numbers, which are Parameters. Where that cannot be, the function runs
as it is, and a warning says why.
"""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, TypeVar, cast

import numpy as np

from ..loader.base.forks import count_forks, make_lock
from .context import capture
from .executable import Executable
from .parameter import GraphParameter, find_entry

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: Graphs of a function that are kept. The one that was made first goes first.
_MOST: Final = 32


class GraphedWarning(UserWarning):
    """A function could not be captured and runs as it is."""


class _CannotBeGraphedError(Exception):
    """Why a call is not captured."""


class _Made:
    """A captured call.

    Attributes:
        loop: what is replayed.
        result: what the function returned in the block.
        passed: what it was given: Parameters in the place of arrays and numbers.
    """

    def __init__(self, loop: Executable, result: Any, passed: Sequence[Any]) -> None:
        self.loop, self.result, self.passed = loop, result, list(passed)
        used = set(loop.parameters)
        #: The arguments that the graph uses, by place, and their names.
        self.names = [(place, f"p{place}") for place in range(len(passed)) if f"p{place}" in used]


class Graphed:
    """A function that `graphed` has made.

    Attributes:
        reasons: why calls were not captured, by what their arguments were.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._lock = function, make_lock()
        self._made: dict[Hashable, _Made] = {}
        self._forks = count_forks()
        self.reasons: dict[Hashable, str] = {}

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Replay the function, or capture it first, or call it."""
        given, names = [*arguments, *named.values()], tuple(named)
        try:
            queue = _find_queue(given)
            key: Hashable = (names, queue.int_ptr, *map(_describe_kind, given))
        except _CannotBeGraphedError as reason:
            return self._call(("?", str(reason)), str(reason), arguments, named)
        if key in self.reasons:
            return self._function(*arguments, **named)
        with self._lock:
            if self._forks != count_forks():  # a child captures for itself
                self._made.clear()
                self._forks = count_forks()
            made = self._made.get(key)
            if made is None:
                try:
                    made = self._capture(queue, given, names)
                except Exception as reason:  # whatever the function cannot do in a block
                    why = f"{type(reason).__name__}: {reason}"
                    return self._call(key, why, arguments, named)
                while len(self._made) >= _MOST:
                    del self._made[next(iter(self._made))]
                self._made[key] = made
            values = {name: given[place] for place, name in made.names}
            waits = [event for one in given for event in getattr(one, "events", ())]
            event = made.loop.replay(queue, wait_for=waits or None, **values)
        for one in given:
            if hasattr(one, "add_event"):
                one.add_event(event)
        return _return_results(made, given)

    def _call(
        self, key: Hashable, reason: str, arguments: Sequence[Any], named: dict[str, Any]
    ) -> Any:
        result = self._function(*arguments, **named)  # its own errors come first
        if key not in self.reasons:
            self.reasons[key] = reason
            warnings.warn(
                f"{self._function.__qualname__} runs without a graph: {reason}",
                GraphedWarning,
                stacklevel=3,
            )
        return result

    def _capture(self, queue: Any, given: Sequence[Any], names: Sequence[str]) -> _Made:
        passed = [_pass_argument(value, place) for place, value in enumerate(given)]
        count = len(passed) - len(names)
        with capture(queue, name=self._function.__qualname__) as graph:
            result = self._function(
                *passed[:count], **dict(zip(names, passed[count:], strict=True))
            )
        _check_result(result, passed)
        return _Made(graph.finalize(), result, passed)

    def explain(self) -> str:
        """Tell which calls are replayed, and why others are not."""
        lines = [f"{self._function.__qualname__}: {len(self._made)} graphs"]
        lines += [f"  {len(made.loop)} nodes" for made in self._made.values()]
        lines += [f"  not captured: {reason}" for reason in self.reasons.values()]
        return "\n".join(lines)


def graphed(function: _Function) -> _Function:
    """Capture a function of PyOpenCL arrays at its first call, and replay it from then on.

    A decorator. The queue is that of the first array. Arrays, buffers and NumPy scalars may be
    others in each call. Other shapes or types lead to another capture, as do other values of all
    other arguments. The function may return arrays, or a tuple or list of them. An array that it
    has made is memory of the graph: the next call with such arguments overwrites it.

    The Python code of the function runs only while it is captured. What it reads from elsewhere is
    as it was then.

    A call that cannot be captured is an ordinary call, and GraphedWarning says why, once.
    `explain()` lists the reasons.
    """
    return cast(_Function, Graphed(function))


def _find_queue(given: Sequence[Any]) -> Any:
    for value in given:
        queue = getattr(value, "queue", None)
        if queue is not None and hasattr(value, "base_data"):
            return queue
    raise _CannotBeGraphedError("no argument is an array with a queue")


def _describe_kind(value: Any) -> Hashable:
    """Return what has to be the same for a graph to be used again."""
    import pyopencl
    from pyopencl.array import Array

    if isinstance(value, Array):
        queue = value.queue
        return (
            Array,
            value.shape,
            value.dtype,
            value.strides,
            value.offset,
            queue and queue.int_ptr,
        )
    if isinstance(value, pyopencl.Buffer):
        return pyopencl.Buffer, value.size
    if isinstance(value, np.generic):
        return value.dtype
    try:
        hash(value)
    except TypeError:
        raise _CannotBeGraphedError(
            f"an argument of the type {type(value).__name__} cannot be told from others"
        ) from None
    return type(value), value


def _pass_argument(value: Any, place: int) -> Any:
    import pyopencl
    from pyopencl.array import Array

    if isinstance(value, (Array, pyopencl.Buffer, np.generic)):
        return GraphParameter(value, name=f"p{place}")
    return value


def _check_result(result: Any, passed: Sequence[Any]) -> None:
    from pyopencl.array import Array

    for one in result if isinstance(result, (tuple, list)) else (result,):
        if one is None or any(one is other for other in passed):
            continue
        if not isinstance(one, Array):
            raise _CannotBeGraphedError(f"it returns {type(one).__name__}, which is not an array")
        if find_entry(one) is not None:
            raise _CannotBeGraphedError("it returns a part of an argument")


def _return_results(made: _Made, given: Sequence[Any]) -> Any:
    """Return what the function returns: its own arrays, and the arguments of this call."""

    def copy_result(one: Any) -> Any:
        for passed, value in zip(made.passed, given, strict=True):
            if one is passed:
                return value
        return one

    result = made.result
    if isinstance(result, (tuple, list)):
        make = getattr(type(result), "_make", type(result))  # of a namedtuple, or the type itself
        return make(copy_result(one) for one in result)
    return copy_result(result)
