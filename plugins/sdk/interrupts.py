"""Ctrl-C in a Python program that calls an adapter: KeyboardInterrupt is raised in the program, never inside an entry point.

Python handles signals between any two of its instructions. Inside an entry point the exception would become a code and be lost. So
our handler takes the default one's place. If the main thread is in an entry point, the handler only notes the interrupt. The shell
looks at the note when the entry point ends (`fl_left` in native/shell.c) and has the signal come again: then the program has the
control, before its next instruction. A loop that does nothing but wait is interrupted after the wait that it is in.

Some of fairlead's functions are called by C and are no entry points (`_CALLED_BY_C`). For these the signal is sent again a moment
later.

A program with a handler of its own keeps it. A host that has no Python gets its signals itself.
"""

from __future__ import annotations

import signal
import threading
from contextlib import suppress
from types import FrameType
from typing import Any, Final

from ...loader.base import layers
from ._native import ffi

#: The file name of a compiled entry point begins with this (wrap.py).
ENTRY: Final = "<entry point "
#: Files of functions that C calls: an exception in them is printed and forgotten.
_CALLED_BY_C: Final = frozenset({layers.__file__})
_MOMENT: Final = 0.01  # seconds

#: The main thread while an interrupt waits for it to leave an entry point, else 0. Shells read it.
interrupted_thread: Final[Any] = ffi.new("uintptr_t *")


def defer_interrupts() -> None:
    """Put the handler in place, if this is the main thread and the default one is there."""
    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):
        signal.signal(signal.SIGINT, _interrupted)


def _interrupted(number: int, frame: FrameType | None) -> None:
    """The handler of SIGINT. Raises KeyboardInterrupt unless the exception would be lost."""
    inner = frame
    while inner is not None:
        file = inner.f_code.co_filename
        if file.startswith(ENTRY) or file in _CALLED_BY_C:
            interrupted_thread[0] = threading.get_ident()
            again = threading.Timer(_MOMENT, _send_again)
            again.daemon = True
            with suppress(RuntimeError):  # no more threads: the shell remains
                again.start()
            return
        inner = inner.f_back
    signal.default_int_handler(number, frame)


def _send_again() -> None:
    """Send the signal again, if no shell has done so: a real one, which interrupts a sleep."""
    thread = int(interrupted_thread[0])
    if thread:
        interrupted_thread[0] = 0
        signal.pthread_kill(thread, signal.SIGINT)
