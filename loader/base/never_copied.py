"""Objects that stand for something outside of Python, of which there is one: no copy is made.

A shallow copy would release what the original still uses, and a deep copy or a pickle has no
meaning in another process.
"""

from __future__ import annotations

from .errors import FairleadError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


class CopyError(FairleadError, TypeError):
    """The object cannot be copied or pickled."""


class NeverCopied:
    """A base class whose objects `copy.copy`, `copy.deepcopy` and `pickle` refuse.

    `remedy_for_copies` is what to do instead.
    """

    __slots__ = ()
    remedy_for_copies = "pass the object itself"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise CopyError(
            f"{type(self).__name__} objects cannot be copied or pickled",
            routine="copy",
            remedy=self.remedy_for_copies,
        )
