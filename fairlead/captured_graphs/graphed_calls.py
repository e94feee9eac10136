"""The arguments of a call of a graphed function, and what has to be the same for another call.

Each call comes here, also one that takes microseconds. So what is known of a type is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from .held_buffers import is_of_program, read_slots
from .parameter import GraphParameter

#: Types whose values say all about them.
_PLAIN: Final = (int, bool, str, bytes, type(None))
#: Kinds of numbers: "float" of Python, "whole" ones of NumPy, and others "of NumPy".
NumberKinds = frozenset[str]
#: The module of PyOpenCL's own class of arrays.
_ARRAYS: Final = "pyopencl.array"


class CannotBeGraphedError(Exception):
    """Why a call is not captured."""


class AttributeOwner:
    """An argument whose attributes are arguments, too.

    Args:
        place: the place of the object among the arguments.
        first: the place of the first attribute among the arguments.
    """

    def __init__(self, place: int, thing: Any, names: Sequence[str], first: int) -> None:
        self.place, self.names = place, names
        self._thing, self._first = thing, first

    def _list_values(self, values: Sequence[Any]) -> Iterator[tuple[str, Any]]:
        return zip(self.names, values[self._first :], strict=False)

    def put(self, values: Sequence[Any]) -> None:
        """Set all attributes, and remove others."""
        for name in set(_read_attributes(self._thing)) - set(self.names):
            object.__delattr__(self._thing, name)
        for name, value in self._list_values(values):
            object.__setattr__(self._thing, name, value)

    def list_changes(self, values: Sequence[Any]) -> Iterator[tuple[int, str, Any]]:
        """Yield what is not as `put` has set it: the object's place, the attribute and its value.

        Raises:
            CannotBeGraphedError: an attribute was deleted.
        """
        present, before = _read_attributes(self._thing), dict(self._list_values(values))
        if before.keys() - present.keys():
            raise CannotBeGraphedError("it deletes an attribute")
        for name, value in present.items():
            if name not in before or value is not before[name]:
                yield self.place, name, value


class GraphedCall:
    """The arguments of a call.

    Args:
        given: the arguments. Attributes of objects with arrays are added to it.
        names: the names of the last arguments.

    Attributes:
        key: what has to be the same for a graph to be used again. After the names it has a member
            for each argument.
        queues: those of the arrays or, if they have none, among the arguments, by handle. The
            first one runs the graph.
        owners: the objects whose attributes are arguments.
        identical: what is compared by its identity.
        memory: the handles of the memory of arrays and buffers.
        buffers: the same as PyOpenCL's objects.

    Raises:
        CannotBeGraphedError: there is no queue, or an argument cannot be told from others.
    """

    queues: dict[int, Any]
    owners: list[AttributeOwner]
    identical: list[Any]

    def __init__(self, given: list[Any], names: tuple[str, ...]) -> None:
        self.given, self.names = given, names  # no more work than this: each call comes here
        self.queues, self.owners, self.identical = {}, [], []
        self._other_queues: dict[int, Any] = {}
        self.memory: list[int] = []
        self.buffers: list[Any] = []
        self._lists: list[int] = []
        self._refusal, self._reads_attributes = "", False
        kinds: list[Hashable] = [names]
        attributes: list[Any] = []
        for place, value in enumerate(given):
            read = _find_reader(type(value))
            owner = None
            if read is _READ_OBJECT:
                owner = self._make_owner(place, value, len(given) + len(attributes))
            if owner is None:
                kinds.append(read(self, value))
            else:
                attributes += _read_attributes(value).values()
                kinds.append((type(value), owner.names))
        if attributes:
            self._reads_attributes = True
            kinds += [_find_reader(type(value))(self, value) for value in attributes]
            given += attributes
        self.queues = self.queues or self._other_queues
        if not self.queues:
            raise CannotBeGraphedError("no argument is an array with a queue, or a queue")
        if self._refusal:
            raise CannotBeGraphedError(self._refusal)
        memory = self.memory
        if len(set(memory)) < len(memory):  # several arguments are the same memory
            kinds.append(tuple(map(memory.index, memory)))
            # Those with the same list of events are ordered by it, as an array and its views are.
            kinds.append(tuple(map(self._lists.index, self._lists)))
        self.key: tuple[Hashable, ...] = tuple(kinds)

    def _make_owner(self, place: int, value: Any, first: int) -> AttributeOwner | None:
        """Return an object with memory in its attributes, None for another one."""
        members = _read_attributes(value)
        if not any(_is_memory(type(one)) for one in members.values()):
            return None
        owner = AttributeOwner(place, value, tuple(members), first)
        self.owners.append(owner)
        return owner

    def list_choices(self) -> list[NumberKinds]:
        """Return which of its numbers may be constants, if a function takes no Parameters for
        them. They are to be tried in this order."""
        there = frozenset(filter(None, map(_find_number_kind, self.given)))
        choices = [frozenset(("whole",)), frozenset(("float",)), there]
        return [one for one in dict.fromkeys(choices) if one and one <= there]

    def make_constant_key(self, constants: NumberKinds) -> tuple[Hashable, ...]:
        """Return the key if numbers of some kinds are constants."""
        names, *kinds = self.key
        for place, value in enumerate(self.given):
            if _find_number_kind(value) in constants:
                kinds[place] = _distinguish(value[()] if isinstance(value, np.ndarray) else value)
        return (names, *kinds)

    def list_names(self, parameters: Mapping[str, Any]) -> list[str]:
        """Return what the arguments are called, in the order of `given`."""
        count = len(self.given) - sum(len(owner.names) for owner in self.owners) - len(self.names)
        names = list(parameters)[:count]
        names += [f"argument {i}" for i in range(len(names), count)] + list(self.names)
        for owner in self.owners:
            names += [f"{names[owner.place]}.{name}" for name in owner.names]
        return names

    # what each kind of argument is compared by

    def _read_array(self, value: Any) -> Hashable:
        queue, memory = value.queue, value.base_data
        if type(value).__module__ != _ARRAYS:  # it may have operators and attributes of its own
            raise CannotBeGraphedError(f"{type(value).__name__} is a class derived from Array")
        if memory is None:
            raise CannotBeGraphedError("an argument is an array without elements")
        handle = 0 if queue is None else queue.int_ptr
        if handle:
            self.queues[handle] = queue
        try:
            self.memory.append(memory.int_ptr)
        except AttributeError:
            raise CannotBeGraphedError("an argument is an array in SVM") from None
        self.buffers.append(memory)
        self._lists.append(id(value.events))
        # A Parameter takes no smaller memory, and an array may be a part of a larger one.
        return value.dtype, value.shape, value.strides, value.offset, memory.size, handle

    def _read_buffer(self, value: Any) -> Hashable:
        self.memory.append(value.int_ptr)
        self.buffers.append(value)
        return "buffer", value.size

    def _read_queue(self, value: Any) -> Hashable:
        self._other_queues[value.int_ptr] = value
        return "queue", value.int_ptr

    def _read_local_memory(self, value: Any) -> Hashable:
        return "local", value.size

    def _read_number(self, value: Any) -> Hashable:
        return value.dtype

    def _read_float(self, value: Any) -> Hashable:
        return float

    def _read_plain(self, value: Any) -> Hashable:
        return type(value), value

    def _read_complex(self, value: Any) -> Hashable:
        return _distinguish(value)

    def _read_numpy_array(self, value: Any) -> Hashable:
        return value.dtype if value.shape == () else self._read_object(value)

    def _read_object(self, value: Any) -> Hashable:
        if self._reads_attributes:
            self.identical.append(value)
            return type(value), id(value)
        try:
            key = _distinguish(value)
            hash(key)
        except (TypeError, RecursionError):
            self._refusal = (
                f"an argument of the type {type(value).__name__} cannot be told from others"
            )
            return None
        return key


_READ_OBJECT: Final = GraphedCall._read_object


@lru_cache(maxsize=256)
def _find_reader(kind: type[Any]) -> Callable[[GraphedCall, Any], Hashable]:
    """Return what reads arguments of a type, `GraphedCall._read_object` for any other object."""
    import pyopencl
    from pyopencl.array import Array

    if kind in _PLAIN:
        return GraphedCall._read_plain
    if kind is float:
        return GraphedCall._read_float
    if kind is complex:
        return GraphedCall._read_complex
    readers: tuple[tuple[type[Any], Callable[[GraphedCall, Any], Hashable]], ...] = (
        (Array, GraphedCall._read_array),
        (pyopencl.Buffer, GraphedCall._read_buffer),
        (pyopencl.CommandQueue, GraphedCall._read_queue),
        (pyopencl.LocalMemory, GraphedCall._read_local_memory),
        (np.generic, GraphedCall._read_number),
        (np.ndarray, GraphedCall._read_numpy_array),
    )
    return next(
        (read for base, read in readers if issubclass(kind, base)), GraphedCall._read_object
    )


def _distinguish(value: Any) -> Hashable:
    """Return what is equal only for values that a function cannot tell apart.

    Python takes 1, 1.0 and True for equal, and 0.0 and -0.0. So it does in tuples, and in objects
    whose class says what is equal.
    """
    kind = type(value)
    if kind in (float, complex):
        return kind, repr(value)
    if isinstance(value, np.generic):
        return value.dtype, value.tobytes()
    if isinstance(value, (tuple, frozenset)):
        return kind, tuple(map(_distinguish, value))
    if kind.__eq__ is object.__eq__:
        return kind, value
    return kind, value, tuple(map(_distinguish, _read_attributes(value).items()))


@lru_cache(maxsize=256)
def _is_memory(kind: type[Any]) -> bool:
    return _find_reader(kind) in (GraphedCall._read_array, GraphedCall._read_buffer)


@lru_cache(maxsize=256)
def _describe_class(kind: type[Any]) -> tuple[bool, bool]:
    """Return whether a class is the program's, and whether it has slots."""
    has_slots = any("__slots__" in vars(base) for base in kind.__mro__)
    return not issubclass(kind, type) and is_of_program(kind.__module__), has_slots


def _read_attributes(thing: Any) -> Mapping[str, Any]:
    """Return what an object of a program's class holds, without its properties."""
    is_own, has_slots = _describe_class(type(thing))
    if not is_own:
        return {}
    members: dict[str, Any] = getattr(thing, "__dict__", {})
    return members | dict(read_slots(thing)) if has_slots else members


def find_whole(buffer: Any) -> int:
    """Return the handle of the buffer that a sub-buffer is a part of, 0 for other buffers."""
    import pyopencl

    whole: Any = buffer.get_info(pyopencl.mem_info.ASSOCIATED_MEMOBJECT)
    return 0 if whole is None else whole.int_ptr


def is_array(thing: Any) -> bool:
    """Whether a value is a pyopencl.array.Array."""
    return _find_reader(type(thing)) is GraphedCall._read_array


def _find_number_kind(value: Any) -> str:
    """Return the kind of a number that may be a Parameter, "" for other arguments."""
    read = _find_reader(type(value))
    if read is GraphedCall._read_float:
        return "float"
    if read is GraphedCall._read_number or (
        read is GraphedCall._read_numpy_array and value.shape == ()
    ):
        return "whole" if value.dtype.kind in "biu" else "of NumPy"
    return ""


def make_parameter(value: Any, place: int, constants: NumberKinds) -> Any:
    """Return what a function gets in its block for an argument: a Parameter, or the value itself.

    Args:
        place: its place among the arguments.
        constants: the kinds of numbers that do not become Parameters.
    """
    kind, name = _find_number_kind(value), f"p{place}"
    if kind in constants or not (kind or _is_memory(type(value))):
        return value
    return (
        GraphParameter.from_float(value, name)
        if kind == "float"
        else GraphParameter(value, name=name)
    )
