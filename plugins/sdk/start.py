"""Imports an adapter and binds its entry points when its shell is first used.

A shell (native/shell.c) is the C side of an adapter. `start(address)` gets its struct. The
configuration in it names the module or the file that has the adapter, in a variable `adapter`.

A process may have several adapters, and several shells of one adapter. To the adapter these are the
same.

References are counted in C (native/counts.c). In a Python program C takes the last reference, too,
and asks for `py_reap`.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar

import __main__

from ...loader.base.ends import call_at_end
from ...loader.base.errors import FairleadError
from ...loader.base.forks import call_in_child, make_lock
from ...loader.base.interrupts import ENTRY, declare_stoppable, defer_interrupts
from ...loader.base.library import find_file
from ...loader.base.search import filter_environ
from ...loader.base.shell_copies import parse_configuration
from ._native import ffi, lib
from .adapter import Adapter
from .conversions import find_code
from .objects import close_released
from .wrap import Entries

T = TypeVar("T")
_UNKNOWN: Final = find_code("UR_RESULT_ERROR_UNKNOWN")
#: A variable of __main__ in a Python that a shell has started (native/python.c).
_STARTED: Final = "begun_by_fairlead"


@dataclass(frozen=True)
class _RunningAdapter:
    """An adapter that was started, with its entry points and its shells.

    Its number is its place in `_running`.
    """

    adapter: Adapter
    entries: Entries
    shells: list[Any]


_running: Final[list[_RunningAdapter]] = []
_lock = make_lock()


class StartError(FairleadError):
    """A shell is of another version, or a module has no adapter."""


def start(address: int) -> None:
    """Fill a shell with the entry points of its adapter.

    Raises:
        StartError: the shell is of another version, or the module has no adapter.
        Exception: what the module raises when it is imported.
    """
    shell = get_shell(address)
    adapter = load(read_module(shell), "adapter", Adapter, "fairlead.plugins.Adapter")
    with _lock:
        take_interrupts(shell)
        if adapter.stoppable:
            declare_stoppable(find_file(address))
        lib.fl_counting(_STARTED in vars(__main__), lib.py_reap)
        _wait_in_steps()
        shell.number = _get_number(adapter, shell)
        running = _running[shell.number]
        running.shells.append(shell)
        in_c = _begin_in_c(adapter)
        for index in range(shell.entry_count):
            name = ffi.string(shell.names[index]).decode()
            if name in running.entries:
                shell.bodies[index] = ffi.cast("void *", _make_body(adapter, name, name in in_c))
        adapter.at_exit = lambda: shell.at_exit(lib.py_teardown)
        adapter.at_exit()


def _make_body(adapter: Adapter, name: str, in_c: bool) -> Any:
    """Return the C function of an entry point, which calls Python at once or when it has to."""
    if not in_c:
        return getattr(lib, f"py_{name}")
    own = f"{adapter.prefix_in_c}{name}"
    return getattr(lib.fl_in_c, own if hasattr(lib.fl_in_c, own) else f"c_{name}")


def _begin_in_c(adapter: Adapter) -> set[str]:
    """Return the entry points that begin in C.

    FAIRLEAD_CALLS=python leaves only those that count references.
    """
    return {*adapter.counting, *(adapter.in_c if do_calls_begin_in_c(adapter.log) else ())}


def do_calls_begin_in_c(log: Callable[[str, str], None]) -> bool:
    """Return whether calls that programs make all the time begin in C: what FAIRLEAD_CALLS says.

    Args:
        log: is called with a level and a message.
    """
    value = filter_environ().get("FAIRLEAD_CALLS", "").strip().lower()
    if value not in ("", "c", "python"):
        log("warning", f"FAIRLEAD_CALLS={value} is ignored: it may be c or python")
    return value != "python"


@call_in_child
def _wait_in_steps() -> None:
    """Tell C which thread handles signals, if this is a Python program."""
    main = threading.main_thread().ident or 0
    lib.fl_waits_in_steps(0 if _STARTED in vars(__main__) else main)


def take_interrupts(shell: Any) -> None:
    """Put off Ctrl-C while an entry point of a shell is running."""
    defer_interrupts(lib.fl_put_off_interrupt, lambda: lib.fl_interrupt_due()[0] != 0)
    shell.interrupt_due, shell.interrupt = lib.fl_interrupt_due(), lib.fl_raise_interrupt


def get_shell(
    address: int, version: int = lib.FL_SHELL_VERSION, builder: str = "fairlead build-adapter"
) -> Any:
    """Return the struct of a shell.

    Args:
        address: the struct's address.
        version: the version of the struct and the entry points of its API.
        builder: what builds such libraries.

    Raises:
        StartError: it is of another version.
    """
    shell = ffi.cast("fl_shell *", address)
    if shell.version != version:
        raise StartError(
            "the library was built by another version of fairlead",
            remedy=f"build it again with {builder}",
        )
    return shell


def load(module: str, variable: str, kind: type[T], public_name: str) -> T:
    """Import an adapter or a driver.

    Args:
        module: the name of a module, or the path of a `.py` file.
        variable: the module's variable that has it.
        kind: its class, and `public_name` what authors know that as.

    Raises:
        StartError: the module has none.
        Exception: what the module raises when it is imported.
    """
    found = getattr(find_module(module), variable, None)
    if not isinstance(found, kind):
        raise StartError(f"{module} has no variable `{variable}` that is a {public_name}")
    return found


def read_module(shell: Any) -> str:
    """Return the name of the module, or the file, that a shell's configuration names."""
    return parse_configuration(os.fsdecode(ffi.string(shell.config)))["module"]


def find_module(module: str) -> ModuleType:
    """Import the module or the file that a shell's configuration names."""
    return _import_file(Path(module)) if module.endswith(".py") else importlib.import_module(module)


def _import_file(path: Path) -> ModuleType:
    """Import a file, once, like other modules.

    The module's name is the path, because two files may have the same name.
    """
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


def _get_number(adapter: Adapter, shell: Any) -> int:
    """Return the number of an adapter, which is started if it has none."""
    for number, running in enumerate(_running):
        if running.adapter is adapter:
            return number
    entries = adapter.entries(int(ffi.cast("uintptr_t", shell.table)), len(_running))
    _running.append(_RunningAdapter(adapter, entries, []))
    for name in entries:
        _bind(name)
    return len(_running) - 1


def _bind(name: str) -> None:
    """Connect C's calls of an entry point with the adapter that has it.

    If several adapters have it, a call finds the adapter by its number. The first call compiles the
    entry point.
    """
    having = [running.entries for running in _running if name in running.entries]

    def find(number: int, *arguments: Any) -> int:
        found = _running[number].entries[name]
        if len(having) == 1:
            with _lock:
                _bind(name)
        return found(number, *arguments)

    # Ctrl-C must not interrupt it.
    find.__code__ = find.__code__.replace(co_filename=f"{ENTRY}{name}, looked for>")
    only = having[0].compiled.get(name) if len(having) == 1 else None
    ffi.def_extern(name=f"py_{name}", error=_UNKNOWN)(only or find)


def _close_released() -> None:
    close_released()


# Ctrl-C must not interrupt it.
_close_released.__code__ = _close_released.__code__.replace(co_filename=f"{ENTRY}of C>")
ffi.def_extern(name="py_reap")(_close_released)


@ffi.def_extern()
def py_teardown(number: int) -> None:
    """End an adapter before the drivers' destructors run.

    C calls it if Python does not end by itself.
    """
    running = _running[number]
    end_shells(running.shells, running.adapter.end)


def end_shells(shells: Iterable[Any], end: Callable[[], None]) -> None:
    """Close shells, end what is behind them, and write out what it has printed."""
    for shell in shells:
        shell.close()
    end()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the program may have closed it
            stream.flush()


@call_at_end("adapters")
def _end_all() -> None:
    """End all adapters. Nothing may be called after it."""
    for number in reversed(range(len(_running))):
        py_teardown(number)
