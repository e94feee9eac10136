"""The source of a program with its build options, which some drivers forget."""

from __future__ import annotations


class BuiltSource(str):
    """The source of a program that was built, with the options of that."""

    __slots__ = ("options",)
    options: str
