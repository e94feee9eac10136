"""What a library must not change in the process that opens it: before and after, in words."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path
from typing import Final

from .frozen_value import Value

_LC_ALL: Final = 6  # <locale.h>
_SIGACTION_BYTES: Final = 256  # more than a struct sigaction has; it begins with the handler
_SIGNALS: Final = range(1, 65)

_libc: Final = ctypes.CDLL(None)
# char *setlocale(int category, const char *)
_libc.setlocale.argtypes, _libc.setlocale.restype = [ctypes.c_int, ctypes.c_char_p], ctypes.c_char_p


class ProcessState(Value):
    """The state of this process that belongs to its program: make one with `ProcessState.read()`.

    Attributes:
        umask: the file mode creation mask, in octal digits.
        locale: the C library's locale (setlocale).
        handlers: the addresses of signal handlers, by signal numbers.
    """

    directory: str
    umask: str
    locale: str
    handlers: tuple[tuple[int, int], ...]

    @classmethod
    def read(cls) -> ProcessState:
        """The state as it is."""
        locale = _libc.setlocale(_LC_ALL, None) or b""
        handlers = tuple((number, _query_handler(number)) for number in _SIGNALS)
        return cls(_find_directory(), _read_umask(), locale.decode("utf-8", "replace"), handlers)

    def describe_changes(self) -> tuple[str, ...]:
        """A sentence for each difference between then and now, signal handlers left aside."""
        now = ProcessState.read()
        texts = (
            ("working directory", self.directory, now.directory),
            ("umask", self.umask, now.umask),
            ("locale", self.locale, now.locale),
        )
        return tuple(
            f"it changes the {what} of the process from {old} to {new}"
            for what, old, new in texts
            if old != new
        )

    def find_changed_handlers(self) -> tuple[str, ...]:
        """The names of the signals whose handlers are others now."""
        changed = {number for number, _ in {*self.handlers} ^ {*ProcessState.read().handlers}}
        return tuple(map(_name, sorted(changed)))


def _find_directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "one that was removed"


def _read_umask() -> str:
    """Read from /proc, because umask() itself changes it."""
    try:
        text = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:  # without /proc a change is not seen
        return ""
    lines = text.splitlines()
    return next((line.split()[1] for line in lines if line.startswith("Umask:")), "")


def _query_handler(number: int) -> int:
    action = (ctypes.c_void_p * (_SIGACTION_BYTES // ctypes.sizeof(ctypes.c_void_p)))()
    return (action[0] or 0) if _libc.sigaction(number, None, action) == 0 else 0


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
