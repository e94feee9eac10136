"""A PI plugin over a Unified Runtime adapter: what the plugin's shell calls in `piPluginInit`.

The shell (native/shell.c with FL_PI) has a configuration that names the library of an adapter: a
path, or the name of a file of this package. `start` opens it by its C ABI, like any other adapter.
`loader.pi.serve` makes a PI table of it, whose functions are put into the shell.

These functions are C. They reach the adapter through Python. After Python has ended they answer
PI_ERROR_UNINITIALIZED, and so does the shell. Functions that count references lead straight to the
adapter's, because a host counts where it must not wait for the GIL (native/counts.c).

`piTearDown` releases the adapter and empties the shell. A host that calls piPluginInit again gets
another table of the same adapter.
"""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path
from typing import Any, Final

from ...loader.base import layers
from ...loader.base.ends import call_at_end
from ...loader.base.forks import make_lock
from ...loader.base.library import Library
from ...loader.base.shell_copies import parse_configuration
from ...loader.base.table import DispatchTable
from ...loader.pi.abi import PI
from ...loader.pi.mapping import convert_result
from ...loader.pi.serve import serve
from ...loader.ur.abi import UR
from ...loader.ur.adapters import open_and_bind
from ...loader.ur.binding import PluginBinding
from ...loader.ur.discovery import PluginCandidate
from ._native import ffi
from .start import get_shell

_shells: Final[list[Any]] = []  # all that were ever started, by their numbers
_adapters: Final[dict[str, DispatchTable]] = {}  # by the adapter's path; they stay open
_lock = make_lock()
_COUNTS: Final = re.compile("pi([A-Z][a-z]+)(Retain|Release)")
#: PI's codes for those of UR by their numbers, and at the end the code for other numbers.
_CODES: Final = ffi.new("int32_t[]", [*map(convert_result, range(256)), convert_result(-1)])


def start(address: int) -> None:
    """Fill a shell.

    Raises:
        FairleadError: its adapter cannot be opened, or is not an adapter.
    """
    shell = get_shell(address)
    with _lock:
        adapter = _bind_adapter(
            parse_configuration(os.fsdecode(ffi.string(shell.config)))["module"]
        )
        table = serve(adapter, ended=shell.reset)
        for index in range(shell.entry_count):
            function = PI.functions[ffi.string(shell.names[index]).decode()]
            shell.bodies[index] = ffi.cast("void *", table.get_pointer(function.slot or 0))
            shell.direct[index] = ffi.cast("void *", _find_direct(adapter, function.name))
        shell.codes, shell.code_count = _CODES, len(_CODES) - 1
        if shell not in _shells:
            _shells.append(shell)
        shell.number = _shells.index(shell)
        shell.at_exit(_close)


def _find_direct(adapter: DispatchTable, name: str) -> int:
    """Return the adapter's function for a function of PI that only counts references.

    0 means that PI's function does more.
    """
    if not _COUNTS.fullmatch(name):
        return 0
    unsupported = layers.make_stubs(UR, "unsupported")
    if (
        name == "piKernelRelease"
        and adapter.get_pointer(_find_slot("urKernelSetArgValue")) in unsupported
    ):
        return 0  # this side keeps the arguments of kernels, and drops them at the release
    return adapter.get_pointer(_find_slot(_COUNTS.sub(r"ur\1\2", name)))


def _find_slot(name: str) -> int:
    slot = UR.functions[name].slot
    assert slot is not None, name
    return slot


def _bind_adapter(library: str) -> DispatchTable:
    path = library if "/" in library else str(Path(__file__).parents[1] / library)
    if path not in _adapters:
        opened, binding = open_and_bind(
            PluginCandidate(path, "the plugin's configuration"), previewed=True
        )
        _add_missing_functions(binding, opened)
        _adapters[path] = binding.table
    return _adapters[path]


def _add_missing_functions(binding: PluginBinding, library: Library) -> None:
    """Add the functions that our library exports but the newest tables lack.

    With urKernelSetArgValue and others an argument is checked when it is set, as PI defines it. In
    older releases the names meant other functions.
    """
    if binding.layout != next(iter(UR.layouts)):
        return
    slots = (ctypes.c_void_p * len(UR.slots)).from_address(binding.table.address)
    for name in binding.missing:
        address = library.find_own_symbol(name)
        if address:
            slots[UR.functions[name].slot or 0] = address


@ffi.callback("void(uint32_t)")
def _close(number: int) -> None:
    """Close a shell if Python does not end by itself. The adapter closes itself."""
    _shells[number].close()


@call_at_end("pi")
def _close_all() -> None:
    """Close all shells at the end of Python."""
    for shell in _shells:
        shell.close()
