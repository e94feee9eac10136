"""Checks the arguments of Level Zero calls: ZE_ENABLE_PARAMETER_VALIDATION=1.

A layer in front of a driver's table answers a wrong call itself. The rules follow from the ABI data
for all functions alike (loader/base/argument_rules.py). They are checked in this order, parameter
by parameter:

- a handle that is NULL and not optional: INVALID_NULL_HANDLE,
- a pointer that is NULL and not optional: INVALID_NULL_POINTER,
- an enumeration or flags that the API does not define: INVALID_ENUMERATION,
- a number of events without a list of events: INVALID_SIZE.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from ..base.argument_rules import Check, compile_rules, list_rules
from ..base.layers import Layer
from ..base.search import filter_environ
from ..base.table import DispatchTable, layers_lock
from .abi import ZE

VARIABLE: Final = "ZE_ENABLE_PARAMETER_VALIDATION"


def is_wanted(environ: Mapping[str, str] | None = None) -> bool:
    """Whether the environment asks for these checks."""
    return filter_environ(environ).get(VARIABLE) == "1"


class ParameterValidation:
    """The checks in front of a table, until `remove`.

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
    broken = _get_check(slot)(arguments)
    return ZE.codes[f"ZE_RESULT_ERROR_{broken[0].code}"] if broken else None


@cache
def _get_check(slot: int) -> Check:
    return compile_rules(ZE.slots[slot], list_rules(ZE.slots[slot]))
