"""`Adapter`: the entry points and objects of a Unified Runtime adapter written in Python.

    adapter = Adapter("toy")

    @adapter.kind
    class Queue(Object):
        type = "ur_queue_handle_t"

    @adapter.entry
    def urQueueFinish(hQueue: Queue) -> None:
        hQueue.wait()

An entry point is a function with the name of the specification. It has those of its parameters that
it needs, under their own names. wrap.py says in which form they come, and what is returned. Where
a class of objects has `get_native`, ur…GetNativeHandle calls it.

What an entry point raises becomes a code. `failure("INVALID_VALUE")` becomes that code. An
exception of a class in `adapter.codes` becomes the code given there. NotImplementedError becomes
UNSUPPORTED_FEATURE, MemoryError OUT_OF_HOST_MEMORY. Anything else becomes UNKNOWN, and its
traceback is logged.

`Adapter` has the entry points that need nothing of a device: references of every type of object,
the adapter's own handle, the last error, the log.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from operator import methodcaller
from typing import Any, Final, TypeVar, overload

from ...loader.base.abi import Function
from ...loader.base.errors import CodeError, explain_error
from ...loader.base.interrupts import is_main_thread
from ...loader.base.log import LEVELS, get_logger
from ...loader.base.search import filter_environ
from ...loader.ur.abi import UR, URError
from ._native import ffi, lib
from .answers import is_handle
from .conversions import failure, find_code
from .objects import Object, Registry
from .wrap import Entries, check_parameters, name_parameters

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Kind = TypeVar("_Kind", bound=type[Object])
_LOGGER_CALLBACK: Final = "void (*)(int32_t, const char *, void *)"
_UNKNOWN: Final = find_code("UR_RESULT_ERROR_UNKNOWN")


class Adapter(Object):
    """An adapter: its name, its entry points, and its objects.

    Everything that is still alive is closed when the last reference to the adapter is released, and
    when the process ends (`Registry.close`): the youngest first, but contexts and devices after the
    functions in `after_queues`. Then the functions in `on_close` are called, the last added first.

    Args:
        backend: what queries say that it drives, a name of ur_backend_t.
        version: what queries say about its version.
        stoppable: whether Ctrl-C ends all of its waits (loader/base/interrupts.py). Then the
            runtime waits in the main thread itself.

    Attributes:
        in_c: the entry points that begin in C (native/calls.h), unless FAIRLEAD_CALLS=python.
        prefix_in_c: the beginning of the names of C functions that are this adapter's alone.
        adopters: see `Registry.adopters`.
        codes: the codes of exceptions by their classes: a name, or a function of the exception.
        after_queues: see `Registry.close`.
        on_close: what is called at the end.
        at_exit: an adapter that opens drivers calls this after that. Then its end comes before the
            drivers' end.
    """

    type = "ur_adapter_handle_t"

    def __init__(
        self,
        name: str,
        *,
        backend: str = "UR_BACKEND_UNKNOWN",
        version: int = 1,
        stoppable: bool = False,
    ) -> None:
        self.name, self.backend, self.version = name, UR[backend], version
        self.stoppable = stoppable
        self.codes: dict[type[BaseException], str | Callable[[Any], str]] = {
            NotImplementedError: "UNSUPPORTED_FEATURE",
            MemoryError: "OUT_OF_HOST_MEMORY",
        }
        self.after_queues: list[Callable[[], object]] = []
        self.on_close: list[Callable[[], None]] = []
        self.registry: Registry | None = None
        self.in_c: set[str] = set()
        self.prefix_in_c = "c_"
        self.adopters: dict[str, Callable[[Any], Object]] = {}
        self.at_exit: Callable[[], None] = lambda: None  # start.py replaces it
        self._functions: dict[str, Callable[..., Any]] = {}
        self._kinds: dict[str, type[Object]] = {}
        self._last = threading.local()
        self._callback: tuple[Any, Any] | None = None
        self._callback_level = LEVELS.index("quiet")
        for function in (
            self.urAdapterGet,
            self.urAdapterGetInfo,
            self.urAdapterGetLastError,
            self.urAdapterSetLoggerCallback,
            self.urAdapterSetLoggerCallbackLevel,
            self.urAdapterRetain,
            self.urAdapterRelease,
        ):
            self.entry(function)

    # what an adapter's author uses

    def entry(self, function: _Function) -> _Function:
        """Declare the entry point of a function's name. A decorator.

        Raises:
            TypeError: Unified Runtime has no such function, or it has other parameters.
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
            check_parameters(_find_function(name), function)
            self._functions[name] = function

    @overload
    def kind(self, cls: _Kind) -> _Kind: ...

    @overload
    def kind(self, cls: str, *, counted: bool = True) -> type[Object]: ...

    def kind(self, cls: Any, *, counted: bool = True) -> Any:
        """Declare a class of objects. Then their handles can be retained and released.

        It is a decorator. Given the name of a type of handles instead, it makes an empty class.

        Args:
            cls: the class, or the type of its handles.
            counted: see `Object.counted`.

        Raises:
            TypeError: a type that is not a handle.
        """
        if isinstance(cls, str):
            cls = type(cls, (Object,), {"type": cls, "counted": counted})
        if UR.resolve(getattr(cls, "type", "")) != "handle":
            raise TypeError(
                f"{cls.__name__}.type is not a type of handles, such as ur_queue_handle_t"
            )
        self._kinds[cls.type] = cls
        return cls

    def info(self, function: str, values: Mapping[str, Any], prefix: str = "") -> None:
        """Declare a query as a table.

        A property that is not in the table has the answer UNSUPPORTED_ENUMERATION. So has the value
        None, except that for a property that is a handle it means NULL.

        Args:
            function: the query, such as "urDeviceGetInfo".
            values: the values by the names of the properties. A function gets the object, and the
                device if the query has one.
            prefix: what the names begin with, if they are given without it.

        Raises:
            TypeError: the query does not have a property.
        """
        parameters = {p.name: p for p in _find_function(function).parameters}
        first, group = next(iter(parameters)), parameters["propName"].type
        answers, nothing = {}, {}
        for name, value in values.items():
            property_ = UR.constants.get(prefix + name)
            if property_ is None or property_.group != group:
                raise TypeError(f"{function} has no property {prefix}{name}")
            answers[property_.value] = value
            nothing[property_.value] = 0 if is_handle(property_.answer) else None

        def answer(thing: Any, name: int) -> Any:
            value = answers.get(name)
            if callable(value):
                value = value(thing)
            return nothing.get(name) if value is None else value

        def answer_for_device(thing: Any, device: Any, name: int) -> Any:
            value = answers.get(name)
            return value(thing, device) if callable(value) else value

        names = [name for name in (first, "hDevice", "propName") if name in parameters]
        if first != "hDevice" and "hDevice" in names:
            self.declare(**{function: name_parameters(answer_for_device, *names)})
        else:
            self.declare(**{function: name_parameters(answer, first, "propName")})

    def log(self, level: str, message: str) -> None:
        """Log a message.

        It goes to the callback that the program has set. Without one it goes to the log that
        UR_LOG_FAIRLEAD configures, which prints warnings and errors by default. If the variable is
        set, it goes to both. So do errors that the callback takes, because libsycl prints only
        warnings.

        Args:
            level: "debug", "info", "warning" or "error".
            message: one line or more.
        """
        if self._callback is not None:
            call, data = self._callback
            wanted = LEVELS.index(level) >= self._callback_level
            if wanted:
                call(LEVELS.index(level), message.encode("utf-8", "replace"), data)
            if "UR_LOG_FAIRLEAD" not in filter_environ() and not (wanted and level == "error"):
                return
        get_logger("FAIRLEAD", "warning").write(
            level, f"<{self.name}>[{level.upper()}]: {message}\n"
        )

    def explain(self, code: int, message: str) -> None:
        """Set what urAdapterGetLastError answers in this thread."""
        self._last.message, self._last.code = message, code

    @property
    def declared(self) -> frozenset[str]:
        """Return the names of all its entry points."""
        return frozenset(self._functions) | {name for name, _ in self._list_inherent()}

    @property
    def counting(self) -> frozenset[str]:
        """Return the names of the entry points that only count references."""
        counting = {name for name, method in self._list_inherent() if method != "get_native"}
        return frozenset(counting - self._functions.keys())

    # the entry points of every adapter

    def urAdapterGet(self) -> list[Object]:
        return [self]

    def urAdapterRetain(self, hAdapter: Object) -> None:
        self._registry.retain(hAdapter)

    def urAdapterRelease(self, hAdapter: Object) -> None:
        if self._registry.release(hAdapter):
            self.shut()

    def urAdapterGetInfo(self, propName: int) -> Any:
        return {
            UR["UR_ADAPTER_INFO_BACKEND"]: self.backend,
            UR["UR_ADAPTER_INFO_REFERENCE_COUNT"]: self.references,
            UR["UR_ADAPTER_INFO_VERSION"]: self.version,
        }.get(propName)

    def urAdapterGetLastError(self) -> tuple[Any, int]:
        text = getattr(self._last, "message", "").encode("utf-8", "replace")
        self._last.text = ffi.new("char[]", text)  # valid until this thread asks again
        return self._last.text, getattr(self._last, "code", 0)

    def urAdapterSetLoggerCallback(
        self, pfnLoggerCallback: int, pUserData: int, level: int
    ) -> None:
        self._callback = (
            ffi.cast(_LOGGER_CALLBACK, pfnLoggerCallback),
            ffi.cast("void *", pUserData),
        )
        self._callback_level = level

    def urAdapterSetLoggerCallbackLevel(self, level: int) -> None:
        self._callback_level = level

    # what start.py uses

    def entries(self, table: int, *number: int) -> Entries:
        """Return what C calls, by the names of the entry points.

        Args:
            table: what every handle begins with.
            number: the adapter's number.
        """
        self.registry = Registry(table, *number)
        self.registry.adopters = self.adopters
        context = self._kinds.get("ur_context_handle_t")
        self.registry.checks_devices = hasattr(context, "check_device")
        functions = dict(self._functions)
        for name, method in self._list_inherent():
            if name not in functions:
                call = getattr(self.registry, method, methodcaller(method))
                functions[name] = name_parameters(
                    lambda thing, call=call: call(thing), UR.functions[name].parameters[0].name
                )
        return Entries(self.registry, functions, self.fail)

    def fail(self, error: BaseException, routine: str) -> int:
        """Return the code for what an entry point raised."""
        try:
            return self._find_code(error, routine)
        except BaseException:  # raised by an exception's text, or by the program's callback
            traceback.print_exc()
            return _UNKNOWN

    def shut(self) -> None:
        """Close everything that is still alive, and call the functions in `on_close`."""
        if self.registry is not None:
            self.registry.close(self._report_failed_close, self.after_queues)
        for function in reversed(self.on_close):
            try:
                function()
            except Exception as error:
                self._report_failed_close(error)

    def end(self) -> None:
        """Close everything at the end of the process.

        The program is not called any more, because parts of it may have ended.
        """
        self._callback = None
        self.shut()

    # private

    @property
    def _registry(self) -> Registry:
        assert self.registry is not None, "the adapter has not been started"
        return self.registry

    def _list_inherent(self) -> Iterator[tuple[str, str]]:
        """Yield the entry points that all objects have, by their kinds, each with a method.

        Those that count references have one of the registry. Those that return a native handle
        have `get_native` of the object.
        """
        for function in UR.functions.values():
            first = function.parameters[0]
            kind = self._kinds.get(first.type)
            if "GetNativeHandle" in function.name and hasattr(kind, "get_native"):
                yield function.name, "get_native"
            elif len(function.parameters) == 1 and kind is not None:
                yield from (
                    (function.name, word) for word in ("retain", "release") if word in first.words
                )

    def _find_code(self, error: BaseException, routine: str) -> int:
        if isinstance(error, URError):
            self.explain(error.value, str(error))
            self.log("info", f"{routine}: {error}")
            return error.value
        for cls in type(error).__mro__:
            name = self.codes.get(cls)
            if name is not None:
                code = find_code(name if isinstance(name, str) else name(error))
                if isinstance(error, CodeError):
                    text = explain_error(error)
                else:  # the code's sentence shows a runtime that the text is of this code
                    text = f"{URError.describe(code)[1]} {error}".rstrip()
                self.explain(getattr(error, "value", 0), text)
                self.log("info", f"{routine}: {error}")
                return code
        self.explain(0, f"{type(error).__name__}: {error}")
        if isinstance(error, KeyboardInterrupt) and is_main_thread():
            lib.fl_put_off_interrupt()  # the caller gets it
            return _UNKNOWN
        self.log("error", f"{routine} failed\n{_format_traceback(error)}")
        return _UNKNOWN

    def _report_failed_close(self, error: Exception) -> None:
        self.log("error", f"an object could not be closed\n{_format_traceback(error)}")


def get_live_object(adapter: Adapter, type_name: str, handle: int, code: str) -> Any:
    """Return the object of a handle that a struct has.

    Args:
        type_name: the type of the handle.
        code: the code if it is not alive.

    Raises:
        URError: `code`.
    """
    registry = adapter.registry
    assert registry is not None
    found = registry.list_owned(type_name).get(handle) or registry.find_lent(type_name, handle)
    if found is None:
        raise failure(code, f"the {type_name} {handle:#x} is not alive")
    return found


def _find_function(name: str) -> Function:
    if name not in UR.functions:
        raise TypeError(f"Unified Runtime has no function {name}")
    return UR.functions[name]


def _format_traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip()
