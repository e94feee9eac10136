"""Which entry points of an adapter or of a Level Zero driver Python is asked for, and whether C is
asked first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fairlead.plugins.opencl.core import adapter as reference
from fairlead.plugins.sdk import start
from fairlead.plugins.sdk._native import ffi, lib
from fairlead.plugins.sdk.adapter import Adapter


def _parts(owner: Any) -> tuple[Any, Any, Any]:
    """Return the module that starts it, and cffi's objects of its entry points."""
    if isinstance(owner, Adapter):
        return start, ffi, lib
    from fairlead.plugins.sdk._native_ze import ffi as ffi_ze
    from fairlead.plugins.sdk._native_ze import lib as lib_ze
    from fairlead.plugins.sdk.ze import start as start_ze

    return start_ze, ffi_ze, lib_ze


def _running(owner: Any) -> Any:
    name = "adapter" if isinstance(owner, Adapter) else "driver"
    return next(one for one in _parts(owner)[0]._running if getattr(one, name) is owner)


def _places(owner: Any) -> Iterator[tuple[Any, int, str]]:
    """Yield the entry points that may begin in C: the shell, the place and the name."""
    for shell in _running(owner).shells:
        for index in range(shell.entry_count):
            name = ffi.string(shell.names[index]).decode()
            if name in owner.in_c:
                yield shell, index, name


def _body(owner: Any, language: str, name: str) -> Any:
    _, own, functions = _parts(owner)
    in_c, in_python = functions.fl_in_c, functions
    function = getattr(in_c, f"c_{name}") if language == "c" else getattr(in_python, f"py_{name}")
    return ffi.cast("void *", int(own.cast("uintptr_t", function)))


def begin_in_c(owner: Any = reference) -> bool:
    """Return whether entry points begin in C. All of them do, or none."""
    (found,) = {
        shell.bodies[index] == _body(owner, "c", name) for shell, index, name in _places(owner)
    }
    return found


@contextmanager
def calls_in(language: str, owner: Any = reference) -> Iterator[None]:
    """Let these entry points begin in "c" or in "python"."""
    before = [(shell, index, shell.bodies[index]) for shell, index, _ in _places(owner)]
    for shell, index, name in _places(owner):
        shell.bodies[index] = _body(owner, language, name)
    try:
        yield
    finally:
        for shell, index, body in before:
            shell.bodies[index] = body


@contextmanager
def asked_of_python(owner: Any = reference) -> Iterator[list[str]]:
    """Yield the names of the entry points that Python is asked for, of those that begin in C."""
    asked, (module, own, _) = list[str](), _parts(owner)

    def watch(name: str) -> None:
        is_adapter = isinstance(owner, Adapter)
        real = _running(owner).entries[name] if is_adapter else owner.compile_entry(name)

        def entry(number: int, *arguments: Any) -> int:
            asked.append(name)
            return real(number, *arguments)

        own.def_extern(name=f"py_{name}")(entry)

    for name in owner.in_c:
        watch(name)
    try:
        yield asked
    finally:
        for name in owner.in_c:
            module._bind(name)
