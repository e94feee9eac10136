"""Ctrl-C in a Python program that calls an adapter: KeyboardInterrupt is raised in the program, never inside an entry point.

Python handles signals between any two of its instructions, also those of an entry point, where an exception would become a code
and be lost. So the handler that looks at who is running takes the default one's place, and lets the interrupt come a moment later
again if it is an entry point. A program with a handler of its own keeps that, and a host that has no Python gets its signals
itself.
"""

from __future__ import annotations

import _thread
import signal
import threading
from types import FrameType
from typing import Final

#: The file name of a compiled entry point begins with this (wrap.py).
ENTRY: Final = "<entry point "
_MOMENT: Final = 0.01  # seconds


def defer_interrupts() -> None:
    """Put the handler in place, if this is the main thread and the default one is there."""
    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):
        signal.signal(signal.SIGINT, _interrupted)


def _interrupted(number: int, frame: FrameType | None) -> None:
    inner = frame
    while inner is not None:
        if inner.f_code.co_filename.startswith(ENTRY):
            again = threading.Timer(_MOMENT, _thread.interrupt_main)
            again.daemon = True
            again.start()
            return
        inner = inner.f_back
    signal.default_int_handler(number, frame)
