"""What the commands print. Standard output is theirs; what drivers print goes to standard error."""

from __future__ import annotations

import fcntl
import io
import os
import sys
from collections.abc import Sequence

from ..loader.base.query import escape_text

_STDOUT, _STDERR = 1, 2


def say(text: str) -> None:
    """Print a line of fairlead's own to standard error."""
    sys.stderr.write(f"fairlead: {text}\n")


def count_things(number: int, thing: str, ending: str = "s") -> str:
    """Return a number with the name of what it counts, which gets the ending unless it is one."""
    return f"{number} {thing}{'' if number == 1 else ending}"


def print_any_text() -> None:
    """Print escapes where the locale has no character: names of drivers and files may hold any."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def print_warnings(warnings: Sequence[str]) -> None:
    """Print warnings to standard error, unless it is closed."""
    for warning in warnings if sys.stderr else ():
        sys.stderr.write(f"warning: {escape_text(warning)}\n")


def keep_stdout_to_ourselves() -> None:
    """Send what libraries print to stdout to stderr from now on; sys.stdout stays the real one.

    Drivers print while they are opened, while they work and when the process ends.
    """
    stream = sys.stdout
    if not isinstance(stream, io.TextIOWrapper) or stream is not sys.__stdout__:
        return  # it is closed, or a test's
    stream.flush()
    ours = fcntl.fcntl(_STDOUT, fcntl.F_DUPFD_CLOEXEC, _STDERR + 1)
    try:
        os.dup2(_STDERR, _STDOUT)
    except OSError:  # stderr is closed
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, _STDOUT)
        os.close(nowhere)
    buffering = 1 if stream.line_buffering else -1
    sys.stdout = os.fdopen(ours, "w", buffering, stream.encoding, stream.errors)
