"""Which entry points of an adapter Python is asked for, and whether C is asked first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fairlead.plugins.opencl.core import adapter as reference
from fairlead.plugins.sdk import start
from fairlead.plugins.sdk._native import ffi, lib


def _running(adapter: Any = reference) -> Any:
    return next(one for one in start._running if one.adapter is adapter)


@contextmanager
def asked_of_python(adapter: Any = reference) -> Iterator[list[str]]:
    """Yield the names of the entry points that Python is asked for, of those that begin in C."""
    running, asked = _running(adapter), list[str]()

    def watch(name: str) -> None:
        real = running.entries[name]

        def entry(number: int, *arguments: Any) -> int:
            asked.append(name)
            return real(number, *arguments)

        ffi.def_extern(name=f"py_{name}")(entry)

    for name in adapter.in_c:
        watch(name)
    try:
        yield asked
    finally:
        for name in adapter.in_c:
            start._bind(name)


def bodies(shell: Any) -> dict[str, int]:
    """Return the addresses of a shell's functions, of those that may begin in C."""
    names = (ffi.string(shell.names[index]).decode() for index in range(shell.entry_count))
    found = {name: int(ffi.cast("uintptr_t", shell.bodies[i])) for i, name in enumerate(names)}
    return {name: found[name] for name in reference.in_c}


def python_bodies() -> dict[str, int]:
    """Return the addresses of Python's functions for these entry points."""
    return {name: _address(getattr(lib, f"py_{name}")) for name in reference.in_c}


def _address(function: Any) -> int:
    return int(ffi.cast("uintptr_t", function))


@contextmanager
def calls_in(language: str) -> Iterator[None]:
    """Let these entry points begin in "c" or in "python"."""
    shells = _running().shells
    before = [bodies(shell) for shell in shells]
    _set(shells, [_chosen(language)] * len(shells))
    try:
        yield
    finally:
        _set(shells, before)


def _chosen(language: str) -> dict[str, int]:
    if language == "python":
        return python_bodies()
    return {name: _address(getattr(lib.fl_in_c, f"c_{name}")) for name in reference.in_c}


def _set(shells: Any, wanted: list[dict[str, int]]) -> None:
    for shell, functions in zip(shells, wanted, strict=True):
        for index in range(shell.entry_count):
            name = ffi.string(shell.names[index]).decode()
            if name in functions:
                shell.bodies[index] = ffi.cast("void *", functions[name])
