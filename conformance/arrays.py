"""The arguments that the cases of all interfaces pass: C arrays, and what a call may leave out.

An empty array has room for one element, so that its address is valid.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any, Final

from fairlead.loader.base.abi import Function, Parameter

#: The last arguments of an enqueue without a wait list and an event.
NO_EVENTS: Final = (0, None, None)


def handles(*values: int) -> Any:
    """Return an array of handles."""
    return (ctypes.c_void_p * max(len(values), 1))(*values)


def sizes(*values: int) -> Any:
    """Return an array of size_t."""
    return (ctypes.c_size_t * max(len(values), 1))(*values)


def ints(values: Iterable[int]) -> Any:
    """Return an array of int32."""
    found = list(values)
    return (ctypes.c_int32 * len(found))(*found)


def complete(function: Function, arguments: Sequence[Any], *last: Any) -> list[Any]:
    """Return all arguments of a call.

    Those that are left out at the end are 0 and NULL: most calls have no wait list and no event. A
    struct, and a number, stands for its address where the function takes a pointer.

    Args:
        arguments: the first arguments of the call.
        last: the last arguments, behind those that are left out.
    """
    parameters = function.parameters
    left_out = parameters[len(arguments) : len(parameters) - len(last)]
    given = (*arguments, *(None if p.stars else 0 for p in left_out), *last)
    if len(given) != len(parameters):
        raise TypeError(f"{function.name} has {len(parameters)} arguments, and not {len(given)}")
    return [_pass(p, value) for p, value in zip(parameters, given, strict=True)]


def _pass(parameter: Parameter, value: Any) -> Any:
    """Return a value, or its address if it is what a pointer has to lead to."""
    if not parameter.stars or not isinstance(value, (ctypes.Structure, ctypes._SimpleCData)):
        return value
    if isinstance(value, (ctypes.c_void_p, ctypes.c_char_p)) and not (
        parameter.is_out and (parameter.stars > 1 or parameter.type.endswith("_handle_t"))
    ):
        return value  # it is the pointer
    return ctypes.byref(value)
