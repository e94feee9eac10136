"""Checks of what public functions are given.

They raise SYCLError (invalid) with the routine that was called and the remedy, before Python or a
driver raises something less clear.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar, cast

import numpy

from ..loader.base.errors import add_article
from .errors import SYCLError, make_invalid_error

T = TypeVar("T")

#: What sizes and addresses are at most.
MOST: Final = (1 << 63) - 1

#: What kinds are called in messages, where that is not the class's name.
_NAMES: Final = {str: "text", numpy.ndarray: "NumPy array"}


def make_type_error(value: Any, what: str, routine: str, remedy: str = "") -> SYCLError:
    """Return the error for a value of a wrong type.

    Args:
        value: what was given.
        what: what was expected, in words.
        routine: the function that was called.
    """
    kind, package = type(value), type(value).__module__.split(".")[0]
    shown = "None" if value is None else kind.__name__
    if package not in ("builtins", "fairlead"):
        shown = f"{package}'s {shown}"
    if package == "pyopencl" and package not in remedy:
        remedy += "; fairlead.runtime.interop makes the runtime's objects of pyopencl's"
    return make_invalid_error(f"{shown} is not {add_article(what)}", routine=routine, remedy=remedy)


def expect(
    value: Any, kinds: type | tuple[type, ...], routine: str, remedy: str = "", what: str = ""
) -> None:
    """Raise SYCLError (invalid) unless a value is of one of the kinds.

    Args:
        value: what was given.
        kinds: the classes that it may have.
        routine: named in the error.
        what: names the kinds in the message. By default their class names do.
    """
    if not isinstance(value, kinds):
        names = (
            _NAMES.get(kind, kind.__name__)
            for kind in (kinds if isinstance(kinds, tuple) else (kinds,))
        )
        raise make_type_error(value, what or " or ".join(names), routine, remedy)


def as_list(
    given: T | Iterable[T], kind: type[T], routine: str, remedy: str = "", what: str = ""
) -> list[T]:
    """Return one object of a kind, or several, as a list. Raises SYCLError (invalid).

    Args:
        given: the object or objects.
        kind: the class that each must have.
        routine, remedy, what: as of `expect`.
    """
    try:
        found: list[Any] = [given] if isinstance(given, kind) else list(cast("Iterable[T]", given))
    except TypeError:
        found = [given]
    for one in found:
        expect(one, kind, routine, remedy, what)
    return found


def as_integer(value: Any, what: str, routine: str) -> int:
    """Return an integer, NumPy's too, that fits into C's 64 bits. Raises SYCLError (invalid).

    Args:
        value: what was given.
        what: names it in the error.
        routine: named in the error.
    """
    try:
        found = operator.index(value)
    except TypeError as error:
        raise make_type_error(value, what, routine, "give a whole number") from error
    if abs(found) > MOST:
        raise make_invalid_error(
            f"{found} is too large for a {what}", routine=routine, remedy="stay below 2**63"
        )
    return found


def as_shape(
    given: Any, routine: str, remedy: str = "give a number, or a tuple of numbers"
) -> tuple[int, ...]:
    """Return one number, or several, as a tuple. Raises SYCLError (invalid)."""
    try:
        return (
            tuple(map(operator.index, given))
            if isinstance(given, (tuple, list))
            else (operator.index(given),)
        )
    except TypeError as error:
        raise make_invalid_error(
            f"{given!r} is not a shape", routine=routine, remedy=remedy
        ) from error


def check_element_type(dtype: Any, routine: str) -> numpy.dtype[Any]:
    """Return the dtype of elements that a device can have. Raises SYCLError (invalid)."""
    try:
        found = numpy.dtype(dtype)
    except TypeError as error:
        raise make_invalid_error(
            f"{dtype!r} is not a dtype", routine=routine, remedy='numpy.float32, "int32"'
        ) from error
    if found.hasobject:
        raise make_invalid_error(
            "Python objects have no place in a device's memory",
            routine=routine,
            remedy="use a dtype of numbers",
        )
    return found


def is_contiguous(shape: Sequence[int], strides: Sequence[int], step: int = 1) -> bool:
    """Whether the elements of an array follow each other in memory, in C's order.

    Args:
        shape: how many elements there are in each dimension.
        strides: the distance between two elements, in each dimension.
        step: that distance between neighbours: 1, or the size of an element in bytes.
    """
    if 0 in shape:
        return True
    for count, stride in zip(reversed(shape), reversed(strides), strict=True):
        if count > 1 and stride != step:
            return False
        step *= count
    return True


def check_group(error: TypeError, function: Any, routine: str) -> None:
    """Raise SYCLError (invalid) for a TypeError that came from calling a command-group function,
    and not from inside it."""
    if error.__traceback__ is not None and error.__traceback__.tb_next is None:
        name = getattr(function, "__qualname__", None) or type(function).__name__
        raise make_invalid_error(
            f"{name} is not a command-group function: {error}",
            routine=routine,
            remedy=f"{routine}(lambda handler: handler.parallel_for(…))",
        ) from error


def check_executable(value: Any, routine: str) -> None:
    """Raise SYCLError (invalid) unless a value is an executable graph of some package."""
    if not hasattr(value, "find_executable"):
        raise make_type_error(value, "ExecutableGraph", routine, "give what graph.finalize() gives")
