"""Which entry points of the Level Zero driver Python is asked for, and where they begin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fairlead.plugins.level_zero.core import driver
from fairlead.plugins.sdk._native import ffi as shell_ffi
from fairlead.plugins.sdk._native_ze import ffi, lib
from fairlead.plugins.sdk.ze import start


def _running() -> Any:
    return next(one for one in start._running if one.driver is driver)


def _places(shell: Any) -> Iterator[tuple[int, str]]:
    """Yield the entry points that may begin in C, with their places."""
    for index in range(shell.entry_count):
        name = shell_ffi.string(shell.names[index]).decode()
        if name in driver.in_c:
            yield index, name


def begin_in_c() -> bool:
    """Return whether entry points begin in C."""
    shell = _running().shells[0]
    return all(shell.bodies[index] == _body("c", name) for index, name in _places(shell))


def _body(language: str, name: str) -> Any:
    function = getattr(lib.fl_in_c, f"c_{name}") if language == "c" else getattr(lib, f"py_{name}")
    return shell_ffi.cast("void *", int(ffi.cast("uintptr_t", function)))


@contextmanager
def calls_in(language: str) -> Iterator[None]:
    """Let entry points begin in "c" or in "python"."""
    before = "c" if begin_in_c() else "python"
    _begin(language)
    try:
        yield
    finally:
        _begin(before)


def _begin(language: str) -> None:
    for shell in _running().shells:
        for index, name in _places(shell):
            shell.bodies[index] = _body(language, name)


@contextmanager
def asked_of_python() -> Iterator[list[str]]:
    """Yield the names of the entry points that Python is asked for, of those that begin in C."""
    asked = list[str]()

    def watch(name: str) -> None:
        real = driver.compile_entry(name)

        def entry(number: int, *arguments: Any) -> int:
            asked.append(name)
            return real(number, *arguments)

        ffi.def_extern(name=f"py_{name}")(entry)

    for name in driver.in_c:
        watch(name)
    try:
        yield asked
    finally:
        for name in driver.in_c:
            start._bind(name)
