"""What the arguments of Level Zero's functions have to be, as the ABI data says.

The checks of `validation`, and those in C of `libze_loader.so.1`, are made from these rules. The
native build loads this file by its path, so it imports nothing of fairlead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple


class Rule(NamedTuple):
    """A rule for an argument.

    Attributes:
        place: the number of the argument.
        code: what a call that breaks it returns, without ZE_RESULT_ERROR_INVALID_.
        values: the numbers that are allowed; None if only 0 is forbidden.
        bits: the bits that are allowed; None if it is not a set of flags.
        counted_by: the argument that may only be 0 if this one is NULL; -1 if there is none.
    """

    place: int
    code: str
    values: frozenset[int] | None = None
    bits: int | None = None
    counted_by: int = -1


def get_rules(api: Any, function: Any) -> tuple[Rule, ...]:
    """Return the rules for the calls of a function, in the order in which they are checked.

    zeDriverGetDefaultContext has none: it returns a handle, and has no code to return.

    Args:
        api: the ABI data of Level Zero.
    """
    return tuple(_make_rules(api, function)) if function.error_channel == "return" else ()


def _make_rules(api: Any, function: Any) -> Iterator[Rule]:
    names = [parameter.name for parameter in function.parameters]
    for place, parameter in enumerate(function.parameters):
        optional = "optional" in parameter.words
        base = api.resolve(parameter.type)
        if parameter.stars or base == "callback":
            if not optional:
                yield Rule(place, "NULL_POINTER")
            elif parameter.type == "ze_event_handle_t" and parameter.length == "numWaitEvents":
                yield Rule(place, "SIZE", counted_by=names.index(parameter.length))
        elif base == "handle":
            if not optional:
                yield Rule(place, "NULL_HANDLE")
        elif api.is_bitfield(parameter.type):
            bits = 0
            for value in api.groups[parameter.type]:
                bits |= value
            yield Rule(place, "ENUMERATION", bits=bits)
        elif values := api.groups.get(parameter.type):
            yield Rule(place, "ENUMERATION", values=frozenset(values))
