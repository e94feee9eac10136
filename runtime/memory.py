"""What has memory objects in contexts, and how commands access it: the access modes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..loader.base.forks import make_lock
from ..loader.base.never_copied import NeverCopied
from ..loader.ur.abi import UR
from .errors import make_invalid_error

if TYPE_CHECKING:
    from .context import Context

#: Access modes: whether a command with one reads, whether it writes, whether it needs what was
#: there before, and the adapter's flag.
MODES: Final = {
    "read": (True, False, True, UR["UR_MEM_FLAG_READ_ONLY"]),
    "write": (False, True, True, UR["UR_MEM_FLAG_READ_WRITE"]),
    "read_write": (True, True, True, UR["UR_MEM_FLAG_READ_WRITE"]),
    "discard": (False, True, False, UR["UR_MEM_FLAG_WRITE_ONLY"]),
}

#: Held while a submission looks at buffers and is entered into them: one at a time.
lock: Final = make_lock()


class Memory(NeverCopied):
    """Something that has a memory object in contexts: a Buffer, an Image, or memory of another
    package.

    Attributes:
        offset: where it begins in its memory object, in bytes.
        nbytes: its size in bytes.
    """

    offset: int = 0
    nbytes: int

    def memory(self, context: Context) -> int:
        """Return the handle of its memory object in a context."""
        raise NotImplementedError


def check_mode(mode: str, routine: str) -> None:
    """Raise SYCLError (invalid) unless `mode` is an access mode."""
    if not isinstance(mode, str) or mode not in MODES:
        raise make_invalid_error(
            f"there is no access mode {mode!r}",
            routine=routine,
            remedy=f"one of {', '.join(MODES)}",
        )
