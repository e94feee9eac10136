"""What validation knows of objects: their references, and the Python lines that created them."""

from __future__ import annotations

import linecache
import sys
from dataclasses import dataclass
from typing import Final, TypeAlias

_DEPTH: Final = 8  # the frames that are stored for an object


_PACKAGE: Final = __name__.partition(".")[0]


Stack: TypeAlias = "tuple[tuple[str, int], ...]"  # innermost first: file, line


@dataclass(frozen=True)
class Leak:
    """An object that still had references at the end. `str()` describes it.

    Attributes:
        kind: its C type, or "USM memory".
        count: the number of its references.
        stack: the lines of Python that created it, innermost first, as `file:line: source`. Empty
            if C created it.
    """

    kind: str
    handle: int
    count: int
    stack: tuple[str, ...]

    def __str__(self) -> str:
        references = "1 reference" if self.count == 1 else f"{self.count} references"
        created = " < ".join(self.stack) or "a line of C"
        return f"{self.kind} {self.handle:#x} has leaked: {references} left; created at {created}"


def capture_stack() -> Stack:
    """Return the innermost frames of the running thread that do not belong to fairlead."""
    frame, found = sys._getframe(1), list[tuple[str, int]]()
    while frame is not None and len(found) < _DEPTH:
        if str(frame.f_globals.get("__name__")).partition(".")[0] != _PACKAGE:
            found.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(found)


def format_stack(stack: Stack) -> tuple[str, ...]:
    """Return the frames as text."""
    sources = (linecache.getline(file, line).strip() for file, line in stack)
    return tuple(
        f"{file}:{line}: {source}" if source else f"{file}:{line}"
        for (file, line), source in zip(stack, sources, strict=True)
    )


def format_innermost(stack: Stack) -> str:
    """Return the innermost frame as text."""
    return next(iter(format_stack(stack[:1])), "a line of C")


@dataclass
class TrackedObject:
    """An object that validation has seen.

    Attributes:
        kind: its C type, or "USM memory".
        count: the number of its references.
        made: whether a call created it, so that `count` is exact.
        lent: whether it belongs to another owner, and exists without references.
        size: the size of USM memory in bytes.
    """

    kind: str
    handle: int
    count: int = 0
    made: bool = False
    lent: bool = False
    size: int = 0
    created: Stack = ()
    released: Stack = ()
