"""`LevelZeroDriver`: the entry points and objects of a Level Zero driver written in Python.

    driver = LevelZeroDriver("toy")

    @driver.kind
    class Fence(Object):
        type = "ze_fence_handle_t"

    @driver.entry
    def zeFenceReset(hFence: Fence) -> None:
        hFence.reset()

An entry point returns what is written to `out` parameters that it does not name, in their order: an
object for a handle, or a number. Where the caller asks for a list of handles by a count, it returns
the list. It writes to all other outputs itself.

front.py says what an entry point is, and which code an exception becomes. What is not declared
answers UNSUPPORTED_FEATURE. Every declared kind has an entry point that destroys its objects, if
the API has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from ....loader.base.abi import Function
from ....loader.ze.abi import ZE, LevelZeroError
from .._native_ze import lib as ze_lib
from ..front import Front
from ..objects import Object, Registry
from ..wrap import Entry, name_parameters
from .chains import make_failure


def _give_list(registry: Registry, things: Any, count: Any, into: Any) -> None:
    """Write a list of handles as zeDeviceGet does. No room means that the caller asks how many."""
    if not into or not count[0] or count[0] > len(things):
        room = count[0] if into else 0
        count[0] = len(things)
    else:
        room = count[0]
    for index, thing in enumerate(things[:room]):
        into[index] = registry.show(thing)


class ZEEntry(Entry):
    """The source of one entry point of Level Zero.

    It returns a code, or what the entry point returns instead of one.
    """

    api = ZE
    other = "INVALID_ARGUMENT"
    fails = staticmethod(make_failure)

    def __init__(self, registry: Registry, function: Function, body: Callable[..., Any]) -> None:
        super().__init__(registry, function, body)
        self.scope["_give_list"] = _give_list

    def _call(self) -> Iterator[str]:
        call = f"_body({', '.join(self.named)})"
        if self.function.error_channel != "return":
            yield f"return _show({call})"
            return
        if (found := self._list()) is not None:
            yield f"_give_list(_registry, {call}, {found[0]}, {found[1]})"
            yield "return 0"
            return
        targets = [p for p in self.outputs if p.name not in self.named and "inout" not in p.words]
        if not targets:
            yield f"return {call} or 0"
            return
        gives = "_show" if "Get" in self.function.name else "_give"  # a reference
        names = [f"_r{index}" for index in range(len(targets))]
        yield f"{', '.join(names)} = {call}"
        for name, p in zip(names, targets, strict=True):
            value = f"{gives}({name})" if ZE.resolve(p.type) == "handle" else name
            condition = f"if {p.name}: " if "optional" in p.words else ""
            yield f"{condition}{p.name}[0] = {value}"
        yield "return 0"

    def _list(self) -> tuple[str, str] | None:
        """Return the names of a count and of the handles that it counts, if there are any."""
        for p in self.function.parameters:
            if p.length.startswith("*") and ZE.resolve(p.type) == "handle":
                return None if p.name in self.named else (p.length[1:], p.name)
        return None


_Kind = TypeVar("_Kind", bound=type[Object])
_KINDS: Final = {
    name: getattr(ze_lib, f"kind_{name}") for name, base in ZE.types.items() if base == "handle"
}


class LevelZeroDriver(Front):
    """A driver: its name, its entry points, and its objects.

    Everything that is still alive is closed when the process ends (`Registry.close`). The functions
    in `on_end` are called before that, the last added first.

    Attributes:
        on_end: what is called at the end, before objects are closed.
    """

    error_kind = LevelZeroError

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.on_end: list[Callable[[], None]] = []

    # what a driver's author uses

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
    def declared(self) -> frozenset[str]:
        """Return the names of all its entry points."""
        return frozenset(self._functions)

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

    def end(self) -> None:
        """Call the functions in `on_end`, and close all that is alive."""
        self.call_last_first(self.on_end)
        self.close_all()


def _list_destroying(kind: str) -> Iterator[Any]:
    """Yield the functions that destroy objects of a type and do nothing else."""
    for function in ZE.functions.values():
        last = function.parameters[-1]
        if "Destroy" in function.name and last.type == kind and "release" in last.words:
            yield function
