"""The variables of running functions."""

from __future__ import annotations

import sys
from inspect import CO_OPTIMIZED
from types import FrameType
from typing import Any


def get_variables(frame: FrameType) -> dict[str, Any]:
    """The variables of a running function.

    Before Python 3.13 its frame keeps a dict of them as they are now, until the function returns.
    So it is emptied, unless somebody else has it (`locals()`): what the program deletes is to be
    gone.
    """
    present = frame.f_locals
    found = dict(present)
    if frame.f_code.co_flags & CO_OPTIMIZED and sys.version_info < (3, 13):
        if sys.getrefcount(present) <= 3:  # the frame's, ours, and that of this call
            present.clear()
    return found
