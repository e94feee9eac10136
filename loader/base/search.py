"""Searches for libraries, and records the reason for everything that it did not use.

A search step is a small function that yields *findings* in search order. A `Place` was searched, a
`Candidate` is worth opening, a `Refusal` was not used. `collect` sorts the findings of all steps
into a `SearchResult`. Of several candidates for one real file it takes the first. Each API has its
own list of steps. manifests.py reads the files that name libraries.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache

from .frozen_value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final, TypeAlias

_AT_SECURE: Final = 23  # <elf.h>


class Candidate(Value):
    """A library worth opening.

    Attributes:
        library: the argument of dlopen, an absolute path or a bare soname.
        found_via: the search step that found it.
        manifest: the manifest that names it, None if it was named directly.
    """

    library: str
    found_via: str
    manifest: str | None = None


class Refusal(Value):
    """Something that was not used.

    Attributes:
        what: a path or a name.
        reason: why it was not used, in plain words.
        remedy: what to do about it, "" if nothing.
    """

    what: str
    reason: str
    remedy: str = ""
    found_via: str = ""


class Place(Value):
    """A place that was searched.

    Attributes:
        state: what was found, such as "3 manifests", "does not exist" or "not readable: ...".
    """

    path: str
    found_via: str
    state: str


Finding: TypeAlias = Candidate | Refusal | Place


class SearchResult(Value):
    """The result of a search, each kind in search order."""

    candidates: tuple[Candidate, ...]
    refusals: tuple[Refusal, ...]
    places: tuple[Place, ...]


class Variable(Value):
    """An environment variable.

    Attributes:
        loaders: the programs that read it.
        meaning: what it means to them.
        honoured: whether fairlead reads it.
        here: what fairlead does with it.
        replaced_by: the variables that override it when they are set.
    """

    name: str
    loaders: tuple[str, ...]
    meaning: str
    honoured: bool
    here: str
    replaced_by: tuple[str, ...] = ()


class VariableInUse(Value):
    """A variable that is set, its value, and what fairlead did with it."""

    variable: Variable
    value: str
    outcome: str


@cache
def is_secure_process() -> bool:
    """Return whether the kernel forbids this process to trust its environment.

    That is so for set-uid and set-gid programs and those with file capabilities (getauxval(3),
    AT_SECURE).
    """
    # unsigned long getauxval(unsigned long type)
    getauxval = ctypes.CDLL(None).getauxval
    getauxval.argtypes, getauxval.restype = [ctypes.c_ulong], ctypes.c_ulong
    return bool(getauxval(_AT_SECURE))


def filter_environ(
    environ: Mapping[str, str] | None = None, secure: bool | None = None
) -> Mapping[str, str]:
    """Return the environment, empty in a secure process, as secure_getenv(3) does.

    Args:
        environ: the environment, `os.environ` by default.
        secure: whether the process is a secure one; None asks the kernel.
    """
    if is_secure_process() if secure is None else secure:
        return {}
    return os.environ if environ is None else environ


def find_python_libraries() -> tuple[str, ...]:
    """Return the `lib` directories of the Python environment and of its base environment.

    Wheels install shared libraries there.
    """
    prefixes = dict.fromkeys((sys.prefix, sys.base_prefix))
    return tuple(os.path.join(prefix, "lib") for prefix in prefixes)


def find_excluding_pattern(*libraries: str) -> str:
    """Return the pattern of FAIRLEAD_EXCLUDE that matches one of these libraries, else "".

    The variable is a `:`-list. A pattern matches a path, a real path or a base name.
    """
    value = filter_environ().get("FAIRLEAD_EXCLUDE")
    if not value:
        return ""
    from fnmatch import fnmatch  # and regular expressions, for which everybody else need not wait

    names = {*libraries, *(os.path.realpath(name) for name in libraries if "/" in name)}
    names |= {os.path.basename(name) for name in names}
    patterns = value.split(":")
    return next(
        (
            pattern
            for pattern in patterns
            if pattern and any(fnmatch(name, pattern) for name in names)
        ),
        "",
    )


def find_exclusions(
    candidates: Iterable[Candidate],
    find_pattern: Callable[[Candidate], str] = lambda one: find_excluding_pattern(one.library),
) -> dict[Candidate, Refusal]:
    """Return the refusals of the candidates that FAIRLEAD_EXCLUDE leaves out.

    Args:
        find_pattern: returns the pattern that leaves one out, else "".
    """
    return {
        candidate: Refusal(
            candidate.library,
            f"excluded by FAIRLEAD_EXCLUDE ({pattern})",
            "change FAIRLEAD_EXCLUDE",
            candidate.found_via,
        )
        for candidate in candidates
        if (pattern := find_pattern(candidate))
    }


def explain_variables(
    variables: Iterable[Variable],
    effect: Callable[[Variable, Mapping[str, str]], str],
    environ: Mapping[str, str] | None = None,
) -> tuple[VariableInUse, ...]:
    """Return what fairlead did with each variable that is set, in the order of `variables`.

    Args:
        effect: called with a variable that fairlead reads and the trusted environment. It returns
            why the variable has no effect, "" if it has one.
        environ: the environment, `os.environ` by default.
    """
    trusted = filter_environ(environ)
    environ = os.environ if environ is None else environ

    def explain_outcome(variable: Variable) -> str:
        if variable.name not in trusted:
            return "ignored: this process is set-uid or set-gid"
        if not variable.honoured:
            return f"not honoured: {variable.here}"
        if not trusted[variable.name]:
            return "empty, which counts as not set"
        return effect(variable, trusted) or f"honoured: {variable.here}"

    return tuple(
        VariableInUse(v, environ[v.name], explain_outcome(v))
        for v in variables
        if v.name in environ
    )


def split_list(variable: str, text: str) -> Iterator[str | Refusal]:
    """Yield the elements of a `:`-list. An empty element is refused.

    dlopen("") would open the program itself.
    """
    for number, element in enumerate(text.split(":"), start=1):
        if element.strip():
            yield element
        else:
            yield Refusal(
                variable, f"element {number} of {text!r} is empty", "remove the extra ':'", variable
            )


def collect(findings: Iterable[Finding]) -> SearchResult:
    """Sort findings by kind. Of several candidates for one real file, the first is used."""
    candidates: dict[str, Candidate] = {}
    refusals: list[Refusal] = []
    places: list[Place] = []
    for finding in findings:
        if isinstance(finding, Place):
            places.append(finding)
        elif isinstance(finding, Refusal):
            refusals.append(finding)
        else:
            library = finding.library
            first = candidates.setdefault(
                os.path.realpath(library) if "/" in library else library, finding
            )
            if first is not finding:
                what = finding.manifest or library
                reason = f"same file as {first.library}, already found via {first.found_via}"
                refusals.append(Refusal(what, reason, found_via=finding.found_via))
    return SearchResult(tuple(candidates.values()), tuple(refusals), tuple(places))
