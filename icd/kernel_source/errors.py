"""The one error of this package."""

from __future__ import annotations


class UnreadableKernel(Exception):
    """It is not known what a kernel reads and writes.

    Attributes:
        reason: Why not, as the end of a sentence that begins with "because".
        line: The line of the source, from 1; 0 if no line is meant.
    """

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(f"{reason} (line {line})" if line else reason)
        self.reason = reason
        self.line = line
