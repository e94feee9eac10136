"""What an adapter and a Level Zero driver have in common: entry points, and codes of exceptions.

An entry point is a function with the name of the specification. It has those of its parameters that
it needs, under their own names. wrap.py says in which form they come, and what is returned.

What an entry point raises becomes a code. An error of the API becomes its own code. An exception of
a class in `codes` becomes the code given there. NotImplementedError becomes UNSUPPORTED_FEATURE,
MemoryError OUT_OF_HOST_MEMORY. Anything else becomes UNKNOWN, and its traceback is logged.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from ...loader.base.abi import Function
from ...loader.base.errors import CodeError, explain_error
from ...loader.base.interrupts import is_main_thread
from ...loader.base.log import get_logger
from ._native import ffi, lib
from .objects import Registry
from .wrap import check_parameters

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Front:
    """The entry points of an adapter or a driver, by their names.

    Attributes:
        in_c: the entry points that begin in C (native/calls.h, ze_calls.h), unless
            FAIRLEAD_CALLS=python.
        codes: the codes of exceptions by their classes: a name, or a function of the exception.
        after_queues: see `Registry.close`.
        registry: its objects by their handles, None before it is started.
        at_exit: who opens drivers or other libraries calls this after that. Then its own end comes
            before theirs.
    """

    error_kind: ClassVar[type[CodeError]]

    def __init__(self, name: str) -> None:
        self.name = name
        self.codes: dict[type[BaseException], str | Callable[[Any], str]] = {
            NotImplementedError: "UNSUPPORTED_FEATURE",
            MemoryError: "OUT_OF_HOST_MEMORY",
        }
        self.in_c: set[str] = set()
        self.after_queues: list[Callable[[], object]] = []
        self.registry: Registry | None = None
        self.at_exit: Callable[[], None] = lambda: None  # start.py replaces it
        self._functions: dict[str, Callable[..., Any]] = {}
        self._last = threading.local()

    # what an author uses

    def entry(self, function: _Function) -> _Function:
        """Declare the entry point of a function's name. A decorator.

        Raises:
            TypeError: the API has no such function, or it has other parameters.
        """
        self.declare(**{function.__name__: function})
        return function

    def declare(self, **functions: Callable[..., Any]) -> None:
        """Declare entry points by their names.

        `declare(urQueueCreate=Queue, urQueueFinish=lambda hQueue: hQueue.wait())`.

        Raises:
            TypeError: see `entry`.
        """
        for name, function in functions.items():
            check_parameters(self.find_function(name), function)
            self._functions[name] = function

    def find_function(self, name: str) -> Function:
        """Return a function of the API. Raises TypeError if there is none of the name."""
        if name not in self.error_kind.api.functions:
            raise TypeError(f"{self.error_kind.api_name} has no function {name}")
        return self.error_kind.api.functions[name]

    @property
    def objects(self) -> Registry:
        """Return the objects by their handles.

        Raises:
            RuntimeError: it is not started.
        """
        if self.registry is None:
            raise RuntimeError(f"{self.name} is not started")
        return self.registry

    def log(self, level: str, message: str) -> None:
        """Log a message, to where UR_LOG_FAIRLEAD says. By default warnings and errors are printed.

        Args:
            level: "debug", "info", "warning" or "error".
        """
        get_logger("FAIRLEAD", "warning").write(
            level, f"<{self.name}>[{level.upper()}]: {message}\n"
        )

    def explain(self, code: int, message: str) -> None:
        """Set what the program is told about the last failure in this thread.

        Args:
            code: the driver's code, 0 for a failure of another kind.
        """
        self._last.message, self._last.code = message, code

    @property
    def last_message(self) -> Any:
        """Return what the last failure in this thread says, as a `char *`.

        It is valid until this thread asks again.
        """
        text = getattr(self._last, "message", "").encode("utf-8", "replace")
        self._last.text = ffi.new("char[]", text)
        return self._last.text

    # what start.py uses

    def fail(self, error: BaseException, routine: str) -> int:
        """Return the code for what an entry point raised."""
        try:
            return self._find_code(error, routine)
        except BaseException:  # raised by an exception's text, or by the program's callback
            traceback.print_exc()
            return self._get_code("UNKNOWN")

    def close_all(self) -> None:
        """Close all objects that are alive."""
        if self.registry is not None:
            self.registry.close(self._report_failed_close, self.after_queues)

    def call_last_first(self, functions: list[Callable[[], None]]) -> None:
        """Call functions, the last one first. What they raise is logged."""
        for function in reversed(functions):
            try:
                function()
            except Exception as error:
                self._report_failed_close(error)

    # private

    def _get_code(self, name: str) -> int:
        codes = self.error_kind.api.codes
        prefix = next(iter(codes)).removesuffix("SUCCESS")
        return codes[name if name in codes else f"{prefix}ERROR_{name}"]

    def _find_code(self, error: BaseException, routine: str) -> int:
        if isinstance(error, self.error_kind):
            self.explain(error.value, str(error))
            self.log("info", f"{routine}: {error}")
            return error.value
        for cls in type(error).__mro__:
            name = self.codes.get(cls)
            if name is not None:
                code = self._get_code(name if isinstance(name, str) else name(error))
                if isinstance(error, CodeError):
                    text = explain_error(error)
                else:  # the code's sentence shows a runtime that the text is of this code
                    text = f"{self.error_kind.describe(code)[1]} {error}".rstrip()
                self.explain(getattr(error, "value", 0), text)
                self.log("info", f"{routine}: {error}")
                return code
        self.explain(0, f"{type(error).__name__}: {error}")
        if isinstance(error, KeyboardInterrupt) and is_main_thread():
            lib.fl_put_off_interrupt()  # the caller gets it
            return self._get_code("UNKNOWN")
        self.log("error", f"{routine} failed\n{_format_traceback(error)}")
        return self._get_code("UNKNOWN")

    def _report_failed_close(self, error: Exception) -> None:
        self.log("error", f"an object could not be closed\n{_format_traceback(error)}")


def _format_traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip()
