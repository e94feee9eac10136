"""What ends when Python ends, in one order: what calls something ends before it.

Handlers of `atexit` run in the reverse order of their registration. That is the order of imports,
which differs from program to program. So all of fairlead has one handler, which goes through
`ORDER`. What a program registers after it has imported fairlead runs before that.
"""

from __future__ import annotations

import atexit
import sys
import weakref
from collections.abc import Callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final, TypeVar

    _Function = TypeVar("_Function", bound=Callable[[], object])


#: The places of the functions, in their order.
ORDER: Final = (
    "submissions",  # Submitted commands are waited for, and threads that compile.
    "loaders",  # Loaders close the plugins that they have opened.
    "pi",  # PI plugins end before the adapters that they call.
    "adapters",  # Adapters end before the drivers that they call.
    "level_zero",  # Drivers of Level Zero end before OpenCL.
    "layers",  # Layers release what they hold of OpenCL's drivers.
    "queues",  # OpenCL's queues are released whose release was put off.
    "memory",  # Memory that devices still use is kept.
    "traces",  # Traces close their files.
    "tables",  # Tables call no Python any more.
)
_functions: Final[dict[str, list[Callable[[], object]]]] = {place: [] for place in ORDER}


def call_at_end(place: str) -> Callable[[_Function], _Function]:
    """Return a decorator that lets a function be called when Python ends.

    Functions of one place are called in the reverse order of their declaration.

    Args:
        place: one of `ORDER`.
    """

    def declare(function: _Function) -> _Function:
        _functions[place].append(function)
        return function

    return declare


def _end() -> None:
    """Call everything. What one raises keeps none of the others."""
    for place in ORDER:
        for function in reversed(_functions[place]):
            try:
                function()
            except BaseException as error:
                sys.excepthook(type(error), error, error.__traceback__)


def _begin_to_end() -> None:
    """Call everything after the finalizers of others, which may use adapters.

    dpctl waits for queues in a `weakref.finalize`, and has registered that before an adapter
    starts.
    """
    finalizers: Any = weakref.finalize
    are_waiting = any(one.atexit for one in list(getattr(finalizers, "_registry", ())))
    if not are_waiting or getattr(finalizers, "_shutdown", True):
        _end()
        return
    last = finalizers(_end, _end)
    finalizers._registry[last].index = -1


# Once the handler of `weakref` has run, no finalizer releases anything. So it is registered first.
weakref.finalize(_begin_to_end, int).atexit = False
atexit.register(_begin_to_end)
