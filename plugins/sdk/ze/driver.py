"""`LevelZeroDriver`: the entry points and objects of a Level Zero driver written in Python.

    driver = LevelZeroDriver("toy")

    @driver.kind
    class Fence(Object):
        type = "ze_fence_handle_t"

    @driver.entry
    def zeFenceReset(hFence: Fence) -> None:
        hFence.reset()

An entry point is a function with the name of the specification. It has those of its parameters that
it needs, under their own names. wrap.py says in which form they come, and what is returned. Others
answer UNSUPPORTED_FEATURE. Every declared kind has an entry point that destroys its objects, if the
API has one.

What an entry point raises becomes a code, as for adapters (plugins/sdk/adapter.py).
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from ....loader.base.errors import CodeError, explain_error
from ....loader.base.interrupts import is_main_thread
from ....loader.base.log import get_logger
from ....loader.ze.abi import ZE, LevelZeroError
from .._native import lib
from .._native_ze import ffi
from .._native_ze import lib as ze_lib
from ..objects import Object, Registry
from ..wrap import list_parameters, name_parameters
from .chains import find_code
from .wrap import ZEEntry

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Kind = TypeVar("_Kind", bound=type[Object])
_UNKNOWN: Final = find_code("UNKNOWN")
_KINDS: Final = {
    name: getattr(ze_lib, f"kind_{name}") for name, base in ZE.types.items() if base == "handle"
}


class LevelZeroDriver:
    """A driver: its name, its entry points, and its objects.

    Everything that is still alive is closed when the process ends (`Registry.close`). The functions
    in `on_end` are called before that, the last added first.

    Attributes:
        codes: the codes of exceptions by their classes: a name, or a function of the exception.
        on_end: what is called at the end, before objects are closed.
        after_queues: see `Registry.close`.
        in_c: the entry points that begin in C (native/ze_calls.h), unless FAIRLEAD_CALLS=python.
        at_exit: a driver that opens other libraries calls this after that. Then its end comes
            before theirs.
        registry: its objects by their handles, None before it is started.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.codes: dict[type[BaseException], str | Callable[[Any], str]] = {
            NotImplementedError: "UNSUPPORTED_FEATURE",
            MemoryError: "OUT_OF_HOST_MEMORY",
        }
        self.in_c: set[str] = set()
        self.on_end: list[Callable[[], None]] = []
        self.after_queues: list[Callable[[], object]] = []
        self.registry: Registry | None = None
        self.at_exit: Callable[[], None] = lambda: None  # start.py replaces it
        self._functions: dict[str, Callable[..., Any]] = {}
        self._last = threading.local()

    # what a driver's author uses

    def entry(self, function: _Function) -> _Function:
        """Declare the entry point of a function's name. A decorator.

        Raises:
            TypeError: Level Zero has no such function, or it has other parameters.
        """
        self.declare(**{function.__name__: function})
        return function

    def declare(self, **functions: Callable[..., Any]) -> None:
        """Declare entry points by their names.

        Raises:
            TypeError: see `entry`.
        """
        for name, function in functions.items():
            if name not in ZE.functions:
                raise TypeError(f"Level Zero has no function {name}")
            known = [p.name for p in ZE.functions[name].parameters]
            if unknown := [one for one in list_parameters(function) if one not in known]:
                raise TypeError(
                    f"{name} has no parameter {', '.join(unknown)}; it has {', '.join(known)}"
                )
            self._functions[name] = function

    def kind(self, cls: _Kind) -> _Kind:
        """Declare a class of objects, and the entry point that destroys them. A decorator.

        Raises:
            TypeError: `cls.type` is not a type of handles.
        """
        if cls.type not in _KINDS:
            raise TypeError(f"{cls.__name__}.type is not a type of handles of Level Zero")
        for function in _list_destroying(cls.type):
            self._functions.setdefault(
                function.name,
                name_parameters(lambda thing: self.destroy(thing), function.parameters[-1].name),
            )
        return cls

    def destroy(self, thing: Object) -> None:
        """End the program's reference to an object. Others may still hold the object."""
        self.objects.release(thing)

    @property
    def objects(self) -> Registry:
        """Return the driver's objects by their handles.

        Raises:
            RuntimeError: the driver is not started.
        """
        if self.registry is None:
            raise RuntimeError(f"the driver {self.name} is not started")
        return self.registry

    @property
    def declared(self) -> frozenset[str]:
        """Return the names of all its entry points."""
        return frozenset(self._functions)

    def log(self, level: str, message: str) -> None:
        """Log a message, to where UR_LOG_FAIRLEAD says. By default warnings and errors are printed.

        Args:
            level: "debug", "info", "warning" or "error".
            message: one line or more.
        """
        get_logger("FAIRLEAD", "warning").write(
            level, f"<{self.name}>[{level.upper()}]: {message}\n"
        )

    @property
    def last_message(self) -> Any:
        """Return what the last failure in this thread says, as a `char *`.

        It is valid until this thread asks again.
        """
        text = getattr(self._last, "message", "").encode("utf-8", "replace")
        self._last.text = ffi.new("char[]", text)
        return self._last.text

    # what start.py uses

    def begin(self, table: int, number: int) -> None:
        """Make the registry of its objects.

        Args:
            table: what every handle begins with.
            number: its number among the drivers of the process.
        """
        self.registry = Registry(table, ze_lib.FL_ZE_DRIVERS + number, kinds=_KINDS)

    def compile_entry(self, name: str) -> Callable[..., int]:
        """Return what C calls for an entry point."""
        return ZEEntry(self.objects, ZE.functions[name], self._functions[name]).compile(self.fail)

    def fail(self, error: BaseException, routine: str) -> int:
        """Return the code for what an entry point raised."""
        try:
            return self._find_code(error, routine)
        except BaseException:  # raised by an exception's text
            traceback.print_exc()
            return _UNKNOWN

    def end(self) -> None:
        """Call the functions in `on_end`, and close all that is alive."""
        for function in reversed(self.on_end):
            try:
                function()
            except Exception as error:
                self._report_failed_close(error)
        if self.registry is not None:
            self.registry.close(self._report_failed_close, self.after_queues)

    # private

    def _find_code(self, error: BaseException, routine: str) -> int:
        self._last.message = f"{type(error).__name__}: {error}"
        if isinstance(error, CodeError):
            self._last.message = explain_error(error)
        if isinstance(error, LevelZeroError):
            self.log("info", f"{routine}: {error}")
            return error.value
        for cls in type(error).__mro__:
            name = self.codes.get(cls)
            if name is not None:
                self.log("info", f"{routine}: {error}")
                return find_code(name if isinstance(name, str) else name(error))
        if isinstance(error, KeyboardInterrupt) and is_main_thread():
            lib.fl_put_off_interrupt()  # the caller gets it
            return _UNKNOWN
        self.log("error", f"{routine} failed\n{_format_traceback(error)}")
        return _UNKNOWN

    def _report_failed_close(self, error: Exception) -> None:
        self.log("error", f"an object could not be closed\n{_format_traceback(error)}")


def _list_destroying(kind: str) -> Iterator[Any]:
    """Yield the functions that destroy objects of a type and do nothing else."""
    for function in ZE.functions.values():
        last = function.parameters[-1]
        if "Destroy" in function.name and last.type == kind and "release" in last.words:
            yield function


def _format_traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip()
