"""Puts the functions of the extensions into the layer, and ends it before the drivers end.

`start(address)` gets the struct of native/layer.h. C calls it when the first of these functions
needs Python.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from ...icd._native import ffi as icd_ffi
from ...icd._native import lib as icd_lib
from ...icd.calls import get_address
from ...loader.base.ends import call_at_end
from ...loader.base.errors import FairleadError
from ...loader.base.interrupts import defer_interrupts
from ..sdk._native import ffi, lib
from . import buffer_calls, buffers, images, launches, remap, transfers, updates
from .entries import ENTRIES

_VERSION: Final = 1  # FL_LAYER_VERSION

_Pointer: Final = ctypes.c_void_p
_Number: Final = ctypes.c_uint32
_Teardown: Final = ctypes.CFUNCTYPE(None)

#: The modules that declare functions.
_MODULES: Final = (buffer_calls, images, launches, remap, transfers, updates)


class LayerState(ctypes.Structure):
    """fl_command_layer of native/layer.h."""

    _fields_ = (
        ("version", _Number),
        ("entry_count", _Number),
        ("bodies", ctypes.POINTER(_Pointer)),
        ("names", ctypes.POINTER(ctypes.c_char_p)),
        ("config", ctypes.c_char_p),
        ("interrupt_due", _Pointer),
        ("interrupt", _Pointer),
        ("close", ctypes.CFUNCTYPE(None)),
        ("at_exit", ctypes.CFUNCTYPE(None, _Teardown)),
        ("enqueue_again", _Pointer),
        ("new_handle", ctypes.CFUNCTYPE(_Pointer, _Number, _Pointer)),
        ("free_handle", ctypes.CFUNCTYPE(None, _Pointer)),
        ("references", ctypes.CFUNCTYPE(_Number, _Pointer)),
        ("set_route", ctypes.CFUNCTYPE(None, _Pointer, _Pointer)),
        (
            "seen_argument",
            ctypes.CFUNCTYPE(
                *(_Number, _Pointer, _Number, _Pointer, ctypes.c_size_t, _Pointer, _Pointer)
            ),
        ),
        ("exec_changes", ctypes.CFUNCTYPE(_Number, _Pointer)),
        (
            "seen_exec_info",
            ctypes.CFUNCTYPE(_Number, _Pointer, _Number, _Pointer, ctypes.c_size_t, _Pointer),
        ),
        ("note_event", ctypes.CFUNCTYPE(None, _Pointer, _Pointer, _Number)),
    )


_running: Final[list[Any]] = []


class LayerVersionError(FairleadError):
    """The layer's library is of another version of fairlead than its Python modules."""


def start(where: int) -> None:
    """Fill the layer's struct.

    Raises:
        LayerVersionError: the library is of another version.
    """
    state = LayerState.from_address(where)
    if state.version != _VERSION:
        raise LayerVersionError(
            "the command-buffer layer is of another version of fairlead",
            remedy="install fairlead again, and name the layer of that installation",
        )
    defer_interrupts(lib.fl_put_off_interrupt, lambda: lib.fl_interrupt_due()[0] != 0)
    state.interrupt_due = int(ffi.cast("uintptr_t", lib.fl_interrupt_due()))
    state.interrupt = int(ffi.cast("uintptr_t", ffi.addressof(lib, "fl_raise_interrupt")))
    state.enqueue_again = get_address(icd_ffi.addressof(icd_lib, "fl_enqueue_again"))
    buffers.bind(state)
    ended = _Teardown(end)
    _running.append((state, ended))
    for index in range(state.entry_count):
        body = ENTRIES[state.names[index].decode()]
        state.bodies[index] = ctypes.cast(body, _Pointer)
    state.at_exit(ended)


@call_at_end("layers")
def end() -> None:
    """Give up all command-buffers, before the drivers' destructors run. Nothing is called later."""
    while _running:
        state, _ = _running.pop()
        state.close()
        buffers.close_all()
