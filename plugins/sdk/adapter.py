"""`Adapter`: the entry points and objects of a Unified Runtime adapter written in Python.

    adapter = Adapter("toy")

    @adapter.kind
    class Queue(Object):
        type = "ur_queue_handle_t"

    @adapter.entry
    def urQueueFinish(hQueue: Queue) -> None:
        hQueue.wait()

front.py says what an entry point is, and which code an exception becomes. An author raises
`failure("INVALID_VALUE")`. Where a class of objects has `get_native`, ur…GetNativeHandle calls it.

`Adapter` has the entry points that need nothing of a device: references of every type of object,
the adapter's own handle, the last error, the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import methodcaller
from typing import Any, Final, TypeVar, overload

from ...loader.base.log import LEVELS
from ...loader.base.search import filter_environ
from ...loader.ur.abi import UR, URError
from ._native import ffi
from .answers import is_handle
from .conversions import failure
from .front import Front
from .objects import Object, Registry
from .wrap import Entries, name_parameters

_Kind = TypeVar("_Kind", bound=type[Object])
_LOGGER_CALLBACK: Final = "void (*)(int32_t, const char *, void *)"


class Adapter(Front, Object):
    """An adapter: its name, its entry points, and its objects.

    Everything that is still alive is closed when the last reference to the adapter is released, and
    when the process ends (`Registry.close`). Then the functions in `on_close` are called, the last
    added first.

    Args:
        backend: what queries say that it drives, a name of ur_backend_t.
        version: what queries say about its version.
        stoppable: whether Ctrl-C ends all of its waits (loader/base/interrupts.py). Then the
            runtime waits in the main thread itself.

    Attributes:
        prefix_in_c: the beginning of the names of C functions that are this adapter's alone.
        adopters: see `Registry.adopters`.
        on_close: what is called at the end.
    """

    type = "ur_adapter_handle_t"
    error_kind = URError

    def __init__(
        self,
        name: str,
        *,
        backend: str = "UR_BACKEND_UNKNOWN",
        version: int = 1,
        stoppable: bool = False,
    ) -> None:
        super().__init__(name)
        self.backend, self.version, self.stoppable = UR[backend], version, stoppable
        self.on_close: list[Callable[[], None]] = []
        self.prefix_in_c = "c_"
        self.adopters: dict[str, Callable[[Any], Object]] = {}
        self._kinds: dict[str, type[Object]] = {}
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
        parameters = {p.name: p for p in self.find_function(function).parameters}
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
        """
        if self._callback is not None:
            call, data = self._callback
            wanted = LEVELS.index(level) >= self._callback_level
            if wanted:
                call(LEVELS.index(level), message.encode("utf-8", "replace"), data)
            if "UR_LOG_FAIRLEAD" not in filter_environ() and not (wanted and level == "error"):
                return
        super().log(level, message)

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
        self.objects.retain(hAdapter)

    def urAdapterRelease(self, hAdapter: Object) -> None:
        if self.objects.release(hAdapter):
            self.shut()

    def urAdapterGetInfo(self, propName: int) -> Any:
        return {
            UR["UR_ADAPTER_INFO_BACKEND"]: self.backend,
            UR["UR_ADAPTER_INFO_REFERENCE_COUNT"]: self.references,
            UR["UR_ADAPTER_INFO_VERSION"]: self.version,
        }.get(propName)

    def urAdapterGetLastError(self) -> tuple[Any, int]:
        return self.last_message, getattr(self._last, "code", 0)

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

    def shut(self) -> None:
        """Close everything that is still alive, and call the functions in `on_close`."""
        self.close_all()
        self.call_last_first(self.on_close)

    def end(self) -> None:
        """Close everything at the end of the process.

        The program is not called any more, because parts of it may have ended.
        """
        self._callback = None
        self.shut()

    # private

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


def get_live_object(adapter: Adapter, type_name: str, handle: int, code: str) -> Any:
    """Return the object of a handle that a struct has.

    Args:
        type_name: the type of the handle.
        code: the code if it is not alive.

    Raises:
        URError: `code`.
    """
    registry = adapter.objects
    found = registry.list_owned(type_name).get(handle) or registry.find_lent(type_name, handle)
    if found is None:
        raise failure(code, f"the {type_name} {handle:#x} is not alive")
    return found
