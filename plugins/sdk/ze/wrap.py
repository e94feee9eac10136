"""Makes an entry point of Level Zero of a Python function, as plugins/sdk/wrap.py says.

A function returns what is written to `out` parameters that it does not name, in their order: an
object for a handle, or a number. Where the caller asks for a list of handles by a count, the
function returns the list. It writes to all other outputs itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ....loader.base.abi import Function
from ....loader.ze.abi import ZE
from ..objects import Registry
from ..wrap import Entry
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
