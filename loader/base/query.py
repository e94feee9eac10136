"""Asks C functions for values of unknown length: first for the length, then for the value.

`query` calls functions like `…GetInfo(…, size, value, size_ret)`. `query_handles` calls functions
like `…Get(…, num_entries, entries, num_entries_ret)`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from .errors import FairleadError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final, TypeAlias

#: Raises unless the code means success: (code, routine, detail).
Check: TypeAlias = Callable[[int, str, str], None]

_LARGEST_ANSWER: Final = 1 << 24
_MOST_HANDLES: Final = 1 << 16
_DIGITS: Final = "0123456789"


def query(call: Any, routine: str, check: Check, *arguments: Any, detail: str = "") -> bytes:
    """Return the bytes that `call(*arguments, size, value, size_ret)` writes.

    Args:
        check: raises an error unless a code means success.
        *arguments: the arguments before the size.
        detail: text to append to the error's sentence.

    Raises:
        FairleadError: the size is impossibly large. Also whatever `check` raises.
    """
    size = ctypes.c_size_t()
    check(call(*arguments, 0, None, ctypes.byref(size)), routine, detail)
    if size.value > _LARGEST_ANSWER:
        raise FairleadError(
            f"it reports an answer of {size.value} bytes, which is impossible", routine=routine
        )
    buffer = ctypes.create_string_buffer(max(size.value, 1))
    if size.value:
        check(call(*arguments, size.value, buffer, None), routine, detail)
    return buffer.raw[: size.value]


def query_handles(
    call: Any, routine: str, check: Check, *arguments: Any, detail: str = ""
) -> list[int]:
    """Return the handles that `call(*arguments, count, entries, count_ret)` writes, without NULLs.

    The arguments are those of `query`.

    Raises:
        FairleadError: the number is impossibly large. Also whatever `check` raises.
    """
    count = ctypes.c_uint32()
    check(call(*arguments, 0, None, ctypes.byref(count)), routine, detail)
    if count.value > _MOST_HANDLES:
        raise FairleadError(
            f"it reports {count.value} handles, which is impossible", routine=routine
        )
    if not count.value:
        return []
    entries = (ctypes.c_void_p * count.value)()
    check(call(*arguments, count.value, entries, None), routine, detail)
    return [handle for handle in entries if handle]


def decode_text(value: bytes) -> str:
    """Decode a C string up to its NUL, without the blanks around it."""
    return value.split(b"\0", 1)[0].decode("utf-8", "replace").strip()


#: C0 but tab and newline, DEL, and C1: a terminal may take them for commands.
_ESCAPES: Final = {
    code: repr(chr(code))[1:-1] for code in (*range(9), *range(11, 32), *range(127, 160))
}


def read_version(text: str, before: str) -> tuple[int, int] | None:
    """Return (major, minor) where a text has a version behind some words, None if it has none.

    No regular expression is used: `re` takes as long to import as all of fairlead's search.
    """
    for rest in text.split(before)[1:]:
        major, _, minor = rest.partition(".")
        minor = minor[: len(minor) - len(minor.lstrip(_DIGITS))]
        if minor and major and not major.strip(_DIGITS):
            return int(major), int(minor)
    return None


def escape_text(value: Any) -> Any:
    """A text with its control characters escaped, as in repr; newlines and tabs stay.

    Drivers and files choose the texts that reports show. A list, a tuple or a dict is returned with
    all of its texts made printable; other values are returned as they are.
    """
    if isinstance(value, str):
        return value if value.isprintable() else value.translate(_ESCAPES)
    if isinstance(value, (list, tuple)):
        return type(value)(map(escape_text, value))
    if isinstance(value, dict):
        return {key: escape_text(item) for key, item in value.items()}
    return value
