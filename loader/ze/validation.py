"""Checks the arguments of Level Zero calls: ZE_ENABLE_PARAMETER_VALIDATION=1.

A layer in front of a driver's table answers a wrong call itself. The rules follow from the ABI data
for all functions alike. They are checked in this order, parameter by parameter:

- a handle that is NULL and not optional: INVALID_NULL_HANDLE,
- a pointer that is NULL and not optional: INVALID_NULL_POINTER,
- an enumeration or flags that the API does not define: INVALID_ENUMERATION,
- a number of events without a list of events: INVALID_SIZE.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

from ..base.abi import Function, Parameter
from ..base.layers import Layer
from ..base.search import secure_environ
from ..base.table import DispatchTable, layers_lock
from .abi import ZE

VARIABLE: Final = "ZE_ENABLE_PARAMETER_VALIDATION"

_CODES: Final = {
    name: ZE.codes[f"ZE_RESULT_ERROR_INVALID_{name}"]
    for name in ("NULL_HANDLE", "NULL_POINTER", "ENUMERATION", "SIZE")
}


def is_wanted(environ: Mapping[str, str] | None = None) -> bool:
    """Whether the environment asks for these checks."""
    return secure_environ(environ).get(VARIABLE) == "1"


class Rule(NamedTuple):
    """A rule for an argument.

    Attributes:
        place: the number of the argument.
        code: what a call that breaks it returns.
        values: the numbers that are allowed; None if only 0 is forbidden.
        bits: the bits that are allowed; None if it is no set of flags.
        counted_by: the argument that may only be 0 if this one is NULL; -1 if there is none.
    """

    place: int
    code: int
    values: frozenset[int] | None = None
    bits: int | None = None
    counted_by: int = -1

    def is_broken(self, arguments: Sequence[int]) -> bool:
        """Whether a call breaks it."""
        word = arguments[self.place]
        if self.bits is not None:
            return bool(word & 0xFFFFFFFF & ~self.bits)
        if self.values is not None:
            return (word & 0xFFFFFFFF) not in self.values
        return not word and (self.counted_by < 0 or bool(arguments[self.counted_by]))


class ParameterValidation:
    """The checks in front of a table, until `remove`.

    Args:
        table: the driver's table.

    Raises:
        FairleadError: all 16 layers of Level Zero are in use.
    """

    def __init__(self, table: DispatchTable) -> None:
        self.table = table
        with layers_lock:
            self.layer = Layer(ZE, table.top)
            self.layer.handle(before=_answer)
            table.push(self.layer)

    def remove(self) -> None:
        """Stop checking."""
        self.table.remove(self.layer)
        self.layer.release()


def _answer(slot: int, arguments: Sequence[int]) -> int | None:
    """Return the code of the first rule that a call breaks, None if it breaks none."""
    broken = (rule.code for rule in rules_of(ZE.slots[slot]) if rule.is_broken(arguments))
    return next(broken, None)


@cache
def rules_of(function: Function) -> tuple[Rule, ...]:
    """Return the rules for the calls of a function.

    zeDriverGetDefaultContext has none: it returns a handle, and has no code to return.
    """
    return tuple(_rules(function)) if function.error_channel == "return" else ()


def _rules(function: Function) -> Iterator[Rule]:
    names = [parameter.name for parameter in function.parameters]
    for index, parameter in enumerate(function.parameters):
        optional = "optional" in parameter.words
        base = ZE.resolve(parameter.type)
        if parameter.stars or base == "callback":
            if not optional:
                yield Rule(index, _CODES["NULL_POINTER"])
            elif _is_list_of_events(parameter):
                counted = names.index(parameter.length)
                yield Rule(index, _CODES["SIZE"], counted_by=counted)
        elif base == "handle":
            if not optional:
                yield Rule(index, _CODES["NULL_HANDLE"])
        elif ZE.is_bitfield(parameter.type):
            bits = 0
            for value in ZE.groups[parameter.type]:
                bits |= value
            yield Rule(index, _CODES["ENUMERATION"], bits=bits)
        elif values := ZE.groups.get(parameter.type):
            yield Rule(index, _CODES["ENUMERATION"], values=frozenset(values))


def _is_list_of_events(parameter: Parameter) -> bool:
    return parameter.type == "ze_event_handle_t" and parameter.length == "numWaitEvents"
