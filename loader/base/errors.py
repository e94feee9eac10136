"""Typed errors. Each names the routine, the symbolic code, what happened, and the remedy.

`FairleadError` is the base class: `except fairlead.FairleadError` catches every error of fairlead.
Each API (OpenCL, Unified Runtime, PI, Level Zero, CUDA, HIP) derives one class from `CodeError`.
The names and sentences of its codes are in the section [errors] of its ABI data: opencl.abi,
ur.abi, pi.abi, ze.abi, cuda.abi, hip.abi.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar, Final

    from typing_extensions import Self

    from .abi import Api


#: The first words of phrases that take no article.
_NO_ARTICLE: Final = frozenset(
    ("advice", "bytes", "memory", "one", "source", "text", "three", "true")
)


def add_article(noun: str) -> str:
    """Return a noun with "a" or "an" before it, if it can have one."""
    if noun.split(" ")[0] in _NO_ARTICLE:
        return noun
    return f"{'an' if noun[:1].lower() in set('aeio') else 'a'} {noun}"


class FairleadError(Exception):
    """An operation failed.

    Attributes:
        message: what happened, one sentence in plain words.
        routine: the C function or file operation that failed, "" if there is none.
        code: the symbolic code, such as "CL_INVALID_OPERATION", "" if there is none.
        remedy: what to do next, "" if nothing is known to help.
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
    """A shared library cannot be used.

    It is unreadable, is not ELF, is for another architecture, lacks a dependency, or lacks an entry
    point.

    Attributes:
        missing: the shared libraries that it needs and that were not found, in search order.
    """

    def __init__(
        self, message: str, *, missing: Sequence[str] = (), routine: str = "dlopen", **parts: str
    ) -> None:
        super().__init__(message, routine=routine, **parts)
        self.missing = tuple(missing)


def explain_error(error: FairleadError, *, with_code: bool = False) -> str:
    """Return the text of an error for a `Refusal`, which names the file itself.

    Args:
        with_code: whether the text contains the symbolic code.
    """
    parts = (error.routine, f"[{error.code}]" if with_code and error.code else "")
    head = "" if isinstance(error, LibraryError) else " ".join(filter(None, parts))
    return f"{head}: {error.message}" if head else error.message


class NotFoundError(FairleadError):
    """A search found nothing usable.

    Attributes:
        reasons: every place and candidate, each with the reason why it was not used.
    """

    def __init__(self, message: str, reasons: Sequence[str] = (), **parts: str) -> None:
        super().__init__("\n".join([message, *(f"  - {reason}" for reason in reasons)]), **parts)
        self.reasons = tuple(reasons)


class CodeError(FairleadError):
    """A function of an API returned an error code.

    A subclass defines the class attributes.

    Attributes:
        api: the ABI data that defines the codes.
        unknown: a format for the name of a code that the API does not define.
        remedies: symbolic code to remedy, for the codes whose remedy is known.
        value: the number that the function returned.
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
        """Return the symbolic name of a code and its sentence."""
        unknown = (
            cls.unknown.format(value=code),
            f"The function returned a code that {cls.api_name} does not define.",
        )
        return cls.api.errors.get(code, unknown)

    @classmethod
    def check(cls, code: int, routine: str, detail: str = "", remedy: str = "") -> None:
        """Raise the exception for a code unless it is 0, which is success everywhere."""
        if code:
            raise cls.from_code(code, routine, detail, remedy)

    @classmethod
    def from_code(cls, code: int, routine: str, detail: str = "", remedy: str = "") -> Self:
        """Return the exception for a code.

        Args:
            code: the number that the function returned.
            detail: text to append to the code's sentence.
            remedy: what to do next; by default the known remedy for the code.
        """
        name, sentence = cls.describe(code)
        text = f"{sentence} {detail}" if detail else sentence
        return cls(
            text,
            routine=routine,
            code=name,
            value=code,
            remedy=remedy or cls.remedies.get(name, ""),
        )
