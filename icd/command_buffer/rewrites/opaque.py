"""Values of which a compiler knows nothing but their types."""

from __future__ import annotations

import re
from typing import Final

_BITS: Final = {
    "char": ("uchar", 1),
    "short": ("ushort", 2),
    "half": ("ushort", 2),
    "int": ("uint", 4),
    "float": ("uint", 4),
    "long": ("ulong", 8),
    "double": ("ulong", 8),
}
_KIND: Final = re.compile(r"u?(char|short|half|int|float|long|double)(2|3|4|8|16)?")


def measure_kind(kind: str) -> int:
    """Return the bytes of a built-in type, 0 if the name is another one's."""
    found = _KIND.fullmatch(kind)
    lanes = int(found[2] or 1) if found else 0
    return _BITS[found[1]][1] * (4 if lanes == 3 else lanes) if found else 0


def isolate(text: str, kind: str, zero: str) -> str:
    """Return an expression with the same bits, of whose value a compiler knows nothing.

    Zero is added. A `^` would let a bit pass that the compiler takes for known. It takes the sign
    of a square for known.

    Args:
        kind: its type, a built-in one.
        zero: the name of a zero.
    """
    found = _KIND.fullmatch(kind)
    assert found, kind
    bits = _BITS[found[1]][0] + (found[2] or "")
    return f"as_{kind}(({bits})(as_{bits}({text}) + ({bits})({zero})))"
