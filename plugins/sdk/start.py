"""What a shell has Python do when it is first used: import the adapter's module, and put its entry points in their places.

A shell (native/shell.c) is the C side of an adapter. `start(address)` is given its struct, whose configuration names the module
or the file that has the adapter, in a variable called `adapter`.

There may be several adapters in a process, and several shells of one adapter, which are all the same to it.

References are counted in C (native/counts.c). In a Python program that also takes the last one, and asks for `py_reap`.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import __main__

from ...loader.base.errors import FairleadError
from ...loader.base.forks import new_lock
from ...loader.base.interrupts import ENTRY, defer_interrupts
from ._native import ffi, lib
from .adapter import Adapter
from .build import settings
from .objects import reap
from .wrap import Entries, code_of

_UNKNOWN: Final = code_of("UR_RESULT_ERROR_UNKNOWN")
_BEGUN: Final = "begun_by_fairlead"  # a variable of __main__ in a Python that a shell has begun (native/python.c)


@dataclass(frozen=True)
class _Running:
    """An adapter that was started: its entry points by name, and the shells that lead to it. Its number is its place in `_running`."""

    adapter: Adapter
    entries: Entries
    shells: list[Any]


_running: Final[list[_Running]] = []
_lock = new_lock()


class StartError(FairleadError):
    """A shell, or an adapter's module, is not what it should be."""


def start(address: int) -> None:
    """Fill a shell. Raises what the module raises when it is imported; StartError if it has no adapter, or the shell is no fit."""
    shell = shell_at(address)
    adapter = load(settings(os.fsdecode(ffi.string(shell.config)))["module"])
    with _lock:
        defer_interrupts(
            lib.fl_put_off_interrupt,
            lambda: lib.fl_interrupt_due()[0] != 0,
            lib.fl_interrupt_later,
        )
        lib.fl_counting(_BEGUN in vars(__main__), lib.py_reap)
        shell.interrupt_due, shell.interrupt = lib.fl_interrupt_due(), lib.fl_raise_interrupt
        shell.number = _number_of(adapter, shell)
        running = _running[shell.number]
        running.shells.append(shell)
        in_c = {*adapter.counting, "urCommandBufferUpdateKernelLaunchExp"}
        for index in range(shell.entry_count):
            name = ffi.string(shell.names[index]).decode()
            if name in running.entries:
                body = (
                    ffi.addressof(lib, f"c_{name}") if name in in_c else getattr(lib, f"py_{name}")
                )
                shell.bodies[index] = ffi.cast("void *", body)
        adapter.at_exit = lambda: shell.at_exit(lib.py_teardown)
        adapter.at_exit()


def shell_at(address: int) -> Any:
    """The struct of a shell. Raises StartError if it was built by a fairlead that we would misunderstand."""
    shell = ffi.cast("fl_shell *", address)
    if shell.version != lib.FL_SHELL_VERSION:
        raise StartError(
            "the library was built by another version of fairlead",
            remedy="build it again, as it was built: fairlead build-adapter",
        )
    return shell


def load(module: str) -> Adapter:
    """The adapter of a module, `package.module`, or of a file, `/path/to/adapter.py`."""
    found = (
        _import_file(Path(module)) if module.endswith(".py") else importlib.import_module(module)
    )
    adapter = getattr(found, "adapter", None)
    if not isinstance(adapter, Adapter):
        raise StartError(f"{module} has no variable `adapter` that is a fairlead.plugins.Adapter")
    return adapter


def _import_file(path: Path) -> ModuleType:
    """The module of a file, which is imported once, like others. Its name is its path: two files may have the same name."""
    name = str(path)
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None  # it ends in .py
        sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules[name])
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _number_of(adapter: Adapter, shell: Any) -> int:
    """The number of an adapter, which is started if it has none."""
    for number, running in enumerate(_running):
        if running.adapter is adapter:
            return number
    entries = adapter.entries(int(ffi.cast("uintptr_t", shell.table)), len(_running))
    _running.append(_Running(adapter, entries, []))
    for name in entries:
        _bind(name)
    return len(_running) - 1


def _bind(name: str) -> None:
    """Have C's calls of an entry point go to the one adapter that has it, or to whichever of several is meant. The first compiles it."""
    having = [running.entries for running in _running if name in running.entries]

    def find(number: int, *arguments: Any) -> int:
        found = _running[number].entries[name]
        if len(having) == 1:
            with _lock:
                _bind(name)
        return found(number, *arguments)

    find.__code__ = find.__code__.replace(
        co_filename=f"{ENTRY}{name}, looked for>"
    )  # Ctrl-C must not end it half-way
    only = having[0].compiled.get(name) if len(having) == 1 else None
    ffi.def_extern(name=f"py_{name}", error=_UNKNOWN)(only or find)


def _reap() -> None:
    reap()


_reap.__code__ = _reap.__code__.replace(
    co_filename=f"{ENTRY}of C>"
)  # Ctrl-C must not end it half-way
ffi.def_extern(name="py_reap")(_reap)


@ffi.def_extern()
def py_teardown(number: int) -> None:
    """The end of an adapter, before the drivers' own destructors run. Called by C where Python does not end by itself."""
    running = _running[number]
    for shell in running.shells:
        shell.close()
    running.adapter.end()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the program may have closed it
            stream.flush()


@atexit.register
def _teardown_all() -> None:
    """The end of Python: nothing may be called after it."""
    for number in reversed(range(len(_running))):
        py_teardown(number)
