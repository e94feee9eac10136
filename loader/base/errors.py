"""Typed errors: every exception names the routine, the symbolic code, what happened in plain words, and the remedy.

`FairleadError` is the root of all of them, so `except fairlead.FairleadError` catches whatever fairlead itself raises.
Each API (OpenCL, Unified Runtime, PI) derives one class from `CodeError`, which takes names and sentences from the API's ABI data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from typing_extensions import Self

    from .abi import Api


class FairleadError(Exception):
    """Something failed, and this says what and what to do.

    Attributes:
        message: what happened, one sentence in plain words.
        routine: the C function or file operation that failed, "" when there is none.
        code: the symbolic code, such as "CL_INVALID_OPERATION", "" when there is none.
        remedy: what to do next, "" when nothing is known to help.
    """

    def __init__(
        self, message: str, *, routine: str = "", code: str = "", remedy: str = ""
    ) -> None:
        super().__init__(message)
        self.message, self.routine, self.code, self.remedy = message, routine, code, remedy

    def __str__(self) -> str:
        head = " ".join(
            part for part in (self.routine, f"[{self.code}]" if self.code else "") if part
        )
        text = f"{head}: {self.message}" if head else self.message
        return f"{text}\n  remedy: {self.remedy}" if self.remedy else text


class LibraryError(FairleadError):
    """A shared library was refused: unreadable, not ELF, of another architecture, a dependency missing, no entry point.

    `missing` names the shared libraries that it needs and that were not found, in the order of the search.
    """

    def __init__(
        self, message: str, *, missing: Sequence[str] = (), routine: str = "dlopen", **parts: str
    ) -> None:
        super().__init__(message, routine=routine, **parts)
        self.missing = tuple(missing)


def reason_of(error: FairleadError, *, with_code: bool = False) -> str:
    """What an exception says, as a Refusal has it: the file that a LibraryError names is known there."""
    parts = (error.routine, f"[{error.code}]" if with_code and error.code else "")
    head = "" if isinstance(error, LibraryError) else " ".join(filter(None, parts))
    return f"{head}: {error.message}" if head else error.message


class NotFoundError(FairleadError):
    """A search found nothing usable. `reasons` holds every place and candidate with why it was passed over."""

    def __init__(self, message: str, reasons: Sequence[str] = (), **parts: str) -> None:
        super().__init__("\n".join([message, *(f"  - {reason}" for reason in reasons)]), **parts)
        self.reasons = tuple(reasons)


class CodeError(FairleadError):
    """A function of an API answered with an error code; `value` is the number.

    A subclass names its `api` and how users call that, how a code is called that the API does not define, and the remedies that are
    known for some codes.
    """

    api: ClassVar[Api]
    api_name: ClassVar[str]
    unknown: ClassVar[str]
    remedies: ClassVar[Mapping[str, str]] = {}
    value: int = 0

    def __init__(
        self, message: str, *, routine: str = "", code: str = "", value: int = 0, remedy: str = ""
    ) -> None:
        super().__init__(message, routine=routine, code=code, remedy=remedy)
        self.value = value

    @classmethod
    def describe(cls, code: int) -> tuple[str, str]:
        """The symbolic name and the plain sentence of a code."""
        unknown = (
            cls.unknown.format(value=code),
            f"The function returned a code that {cls.api_name} does not define.",
        )
        return cls.api.errors.get(code, unknown)

    @classmethod
    def of(cls, code: int, routine: str, detail: str = "", remedy: str = "") -> Self:
        """The exception for `code`; `detail` is put after the code's own sentence."""
        name, sentence = cls.describe(code)
        text = f"{sentence} {detail}" if detail else sentence
        return cls(
            text,
            routine=routine,
            code=name,
            value=code,
            remedy=remedy or cls.remedies.get(name, ""),
        )
