"""Imports a Level Zero driver and binds its entry points when its shell is first used.

It is to Level Zero what plugins/sdk/start.py is to Unified Runtime. The configuration of a shell
names the module or the file that has the driver, in a variable `driver`.

A process may have several drivers, and several shells of one driver. To the driver these are the
same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ....loader.base.ends import call_at_end
from ....loader.base.forks import make_lock
from ....loader.base.interrupts import ENTRY
from ....loader.ze.abi import ZE
from .._native import ffi as shell_ffi
from .._native_ze import ffi, lib
from ..start import do_calls_begin_in_c, end_shells, get_shell, load, read_module, take_interrupts
from .chains import find_code
from .driver import LevelZeroDriver

_UNKNOWN: Final = find_code("UNKNOWN")


@dataclass(frozen=True)
class _RunningDriver:
    """A driver that was started, with its shells. Its number is its place in `_running`."""

    driver: LevelZeroDriver
    shells: list[Any]


_running: Final[list[_RunningDriver]] = []
_lock = make_lock()


def start(address: int) -> None:
    """Fill a shell with the entry points of its driver.

    Raises:
        StartError: the shell is of another version, or the module has no driver.
        Exception: what the module raises when it is imported.
    """
    shell = get_shell(address, lib.FL_SHELL_VERSION, "fairlead.plugins.build_level_zero_driver")
    public_name = "fairlead.plugins.sdk.ze.LevelZeroDriver"
    driver = load(read_module(shell), "driver", LevelZeroDriver, public_name)
    with _lock:
        take_interrupts(shell)
        shell.number = _get_number(driver, shell)
        _running[shell.number].shells.append(shell)
        in_c = driver.in_c if do_calls_begin_in_c(driver.log) else set()
        for index in range(shell.entry_count):
            name = shell_ffi.string(shell.names[index]).decode()
            if name in driver.declared:
                where, prefix = (lib.fl_in_c, "c_") if name in in_c else (lib, "py_")
                body = getattr(where, f"{prefix}{name}")
                shell.bodies[index] = shell_ffi.cast("void *", int(ffi.cast("uintptr_t", body)))
        end = shell_ffi.cast("void (*)(uint32_t)", int(ffi.cast("uintptr_t", lib.py_ze_teardown)))
        driver.at_exit = lambda: shell.at_exit(end)
        driver.at_exit()


def find_entry(driver: LevelZeroDriver, name: str) -> int:
    """Return the address of an entry point of a driver's shell, 0 if it has none of that name."""
    function = ZE.functions.get(name)
    if function is None or function.slot is None or name not in driver.declared:
        return 0
    for running in _running:
        if running.driver is driver:
            return int(shell_ffi.cast("uintptr_t", running.shells[0].table[function.slot]))
    return 0


def _get_number(driver: LevelZeroDriver, shell: Any) -> int:
    """Return the number of a driver, which is started if it has none."""
    for number, running in enumerate(_running):
        if running.driver is driver:
            return number
    driver.begin(int(shell_ffi.cast("uintptr_t", shell.table)), len(_running))
    _running.append(_RunningDriver(driver, []))
    for name in driver.declared:
        _bind(name)
    return len(_running) - 1


def _bind(name: str) -> None:
    """Connect C's calls of an entry point with the driver that has it.

    If several drivers have it, a call finds the driver by its number. The first call compiles the
    entry point.
    """
    having = [running.driver for running in _running if name in running.driver.declared]
    compiled: dict[int, Callable[..., int]] = {}

    def find(number: int, *arguments: Any) -> int:
        found = compiled.get(number)
        if found is None:
            found = compiled[number] = _running[number].driver.compile_entry(name)
            if len(having) == 1:
                ffi.def_extern(name=f"py_{name}", error=_UNKNOWN)(found)
        return found(number, *arguments)

    # Ctrl-C must not interrupt it.
    find.__code__ = find.__code__.replace(co_filename=f"{ENTRY}{name}, looked for>")
    ffi.def_extern(name=f"py_{name}", error=_UNKNOWN)(find)


@ffi.def_extern()
def py_ze_teardown(number: int) -> None:
    """End a driver before the libraries that it has opened. C calls it if Python does not end."""
    running = _running[number]
    end_shells(running.shells, running.driver.end)


@call_at_end("level_zero")
def _end_all() -> None:
    """End all drivers. Nothing may be called after it."""
    for number in reversed(range(len(_running))):
        py_ze_teardown(number)
