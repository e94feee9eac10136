"""Searches for libraries, and records the reason for everything that it did not use.

A search step is a small function that yields *findings* in search order. A `Place` was searched, a
`Candidate` is worth opening, a `Refusal` was not used. `collect` sorts the findings of all steps
into a `SearchResult`. Of several candidates for one real file it takes the first. Each API has its
own list of steps.

A *manifest* is a text file that names libraries, one a line. The manifests of a directory are read
in the order of their names, so the result does not depend on the file system. Nothing here opens a
library.
"""

from __future__ import annotations

import codecs
import ctypes
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Final, TypeAlias

#: A manifest has a line or two. A larger file is something else.
MAX_MANIFEST_BYTES: Final = 64 * 1024

_AT_SECURE: Final = 23  # <elf.h>
_CONTROL_CHARACTER: Final = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")
_KINDS: Final = {
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@dataclass(frozen=True)
class Candidate:
    """A library worth opening.

    Attributes:
        library: the argument of dlopen, an absolute path or a bare soname.
        found_via: the search step that found it.
        manifest: the manifest that names it, None if it was named directly.
    """

    library: str
    found_via: str
    manifest: Path | None = None


@dataclass(frozen=True)
class Refusal:
    """Something that was not used.

    Attributes:
        what: a path or a name.
        reason: why it was not used, in plain words.
        remedy: what to do about it, "" if nothing.
        found_via: the search step that found it.
    """

    what: str
    reason: str
    remedy: str = ""
    found_via: str = ""


@dataclass(frozen=True)
class Place:
    """A place that was searched.

    Attributes:
        path: the place.
        found_via: the search step.
        state: what was found, such as "3 manifests", "does not exist" or "not readable: ...".
    """

    path: str
    found_via: str
    state: str


Finding: TypeAlias = Candidate | Refusal | Place


@dataclass(frozen=True)
class SearchResult:
    """The result of a search, each kind in search order."""

    candidates: tuple[Candidate, ...]
    refusals: tuple[Refusal, ...]
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Variable:
    """An environment variable.

    Attributes:
        name: the variable.
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


@dataclass(frozen=True)
class VariableInUse:
    """A variable that is set, its value, and what fairlead did with it."""

    variable: Variable
    value: str
    outcome: str


def in_secure_process() -> bool:
    """Return whether the kernel forbids this process to trust its environment.

    That is so for set-uid and set-gid programs and those with file capabilities (getauxval(3),
    AT_SECURE).
    """
    getauxval = ctypes.CDLL(None).getauxval
    getauxval.argtypes, getauxval.restype = [ctypes.c_ulong], ctypes.c_ulong
    return bool(getauxval(_AT_SECURE))


def secure_environ(
    environ: Mapping[str, str] | None = None, secure: bool | None = None
) -> Mapping[str, str]:
    """Return the environment, empty in a secure process, as secure_getenv(3) does.

    Args:
        environ: the environment, `os.environ` by default.
        secure: whether the process is a secure one; None asks the kernel.
    """
    if in_secure_process() if secure is None else secure:
        return {}
    return os.environ if environ is None else environ


def python_libraries() -> tuple[Path, ...]:
    """Return the `lib` directories of the Python environment and of its base environment.

    Wheels install shared libraries there.
    """
    return tuple(dict.fromkeys(Path(prefix) / "lib" for prefix in (sys.prefix, sys.base_prefix)))


def excluding_pattern(*libraries: str) -> str:
    """Return the pattern of FAIRLEAD_EXCLUDE that matches one of these libraries, else "".

    The variable is a `:`-list. A pattern matches a path, a real path or a base name.
    """
    names = {*libraries, *(os.path.realpath(name) for name in libraries if "/" in name)}
    names |= {os.path.basename(name) for name in names}
    patterns = secure_environ().get("FAIRLEAD_EXCLUDE", "").split(":")
    return next(
        (
            pattern
            for pattern in patterns
            if pattern and any(fnmatch(name, pattern) for name in names)
        ),
        "",
    )


def explain_variables(
    variables: Iterable[Variable],
    effect: Callable[[Variable, Mapping[str, str]], str],
    environ: Mapping[str, str] | None = None,
) -> tuple[VariableInUse, ...]:
    """Return what fairlead did with each variable that is set, in the order of `variables`.

    Args:
        variables: the variables to explain.
        effect: called with a variable that fairlead reads and the trusted environment. It returns
            why the variable has no effect, "" if it has one.
        environ: the environment, `os.environ` by default.
    """
    trusted = secure_environ(environ)
    environ = os.environ if environ is None else environ

    def outcome(variable: Variable) -> str:
        if variable.name not in trusted:
            return "ignored: this process is set-uid or set-gid"
        if not variable.honoured:
            return f"not honoured: {variable.here}"
        if not trusted[variable.name]:
            return "empty, which counts as not set"
        return effect(variable, trusted) or f"honoured: {variable.here}"

    return tuple(
        VariableInUse(v, environ[v.name], outcome(v)) for v in variables if v.name in environ
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


def kind_of(path: str | Path) -> str:
    """Return the kind of a file: "a file", "a directory", "a named pipe" and so on.

    Links are followed.

    Raises:
        OSError: the file cannot be examined.
    """
    return _KINDS.get(stat.S_IFMT(os.stat(path).st_mode), "not a file")


def read_manifest(path: Path, found_via: str = "") -> tuple[str, ...] | Refusal:
    """Return the names in a manifest, one a line, or a Refusal if it is unusable."""
    lines = manifest_lines(path, found_via)
    return lines if isinstance(lines, Refusal) else tuple(lines.values())


def manifest_lines(path: Path, found_via: str = "") -> dict[int, str] | Refusal:
    """Return the lines of a manifest that name something, by line number, or a Refusal.

    Blanks around a line, empty lines, lines that begin with `#`, a UTF-8 byte-order mark and CRLF
    line ends are ignored. Names that are not UTF-8 are preserved: `os.fsencode` returns their
    bytes.
    """

    def refusal(reason: str, remedy: str) -> Refusal:
        return Refusal(str(path), reason, remedy, found_via)

    try:
        kind = kind_of(path)
        if kind != "a file":
            return refusal(f"is {kind}, not a text file", "move it elsewhere")
        with open(path, "rb", opener=_open_without_waiting) as file:
            content = file.read(MAX_MANIFEST_BYTES + 1) or b""
    except OSError as error:
        return refusal(*_explain(path, error))
    if len(content) > MAX_MANIFEST_BYTES:
        return refusal(
            f"is larger than {MAX_MANIFEST_BYTES // 1024} KiB, so it is no manifest",
            "move it elsewhere",
        )
    if _CONTROL_CHARACTER.search(content):
        return refusal(
            "contains control characters, so it is no plain text",
            "write the library's path into it as UTF-8 text",
        )
    lines = enumerate(map(bytes.strip, content.removeprefix(codecs.BOM_UTF8).splitlines()), start=1)
    said = {
        number: os.fsdecode(line) for number, line in lines if line and not line.startswith(b"#")
    }
    return said or refusal(
        "names no library: it is empty", "write the library's path into it, or delete it"
    )


def search_manifest(path: Path, found_via: str, bases: Sequence[Path] = ()) -> Iterator[Finding]:
    """Yield the libraries that a manifest names.

    Args:
        path: the manifest.
        found_via: the search step.
        bases: more directories that its relative paths may be relative to.
    """
    path = Path(os.path.abspath(path))
    names = read_manifest(path, found_via)
    if isinstance(names, Refusal):
        yield names
        return
    for name in names:
        yield _resolve(name, path, found_via, bases)


def search_directory(
    directory: Path, found_via: str, bases: Sequence[Path] = (), suffix: str = ".icd"
) -> Iterator[Finding]:
    """Yield the libraries that the manifests of a directory name, in the order of their names.

    Args:
        directory: the directory.
        found_via: the search step.
        bases: see `search_manifest`.
        suffix: how the name of a manifest ends.
    """
    directory = Path(os.path.abspath(directory))
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        yield Place(str(directory), found_via, "does not exist")
        return
    except OSError as error:
        yield Place(str(directory), found_via, f"not readable: {error.strerror}")
        yield Refusal(str(directory), *_explain(directory, error), found_via)
        return
    manifests = [name for name in names if name.endswith(suffix)]
    yield Place(str(directory), found_via, _count(len(manifests), len(names)))
    for name in names:
        if name.endswith(suffix):
            yield from search_manifest(directory / name, found_via, bases)
        elif name.lower().endswith(suffix):
            reason, remedy = (
                f"does not end in {suffix}: upper case counts",
                f"rename it to end in {suffix}",
            )
            yield Refusal(str(directory / name), reason, remedy, found_via)


def check_library(
    library: str, found_via: str, manifest: Path | None = None
) -> Candidate | Refusal:
    """Return the candidate for an absolute path or a bare soname.

    A path that exists and is no file is refused. A path that does not exist is a candidate: the
    function that opens it may know how to repair the path.
    """
    try:
        kind = kind_of(library) if "/" in library else "a file"
    except OSError:
        kind = "a file"
    if kind == "a file":
        return Candidate(library, found_via, manifest)
    return Refusal(
        str(manifest or library),
        f"{library} is {kind}, not a library",
        "name the library itself",
        found_via,
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
                what = str(finding.manifest or library)
                reason = f"same file as {first.library}, already found via {first.found_via}"
                refusals.append(Refusal(what, reason, found_via=finding.found_via))
    return SearchResult(tuple(candidates.values()), tuple(refusals), tuple(places))


def _resolve(
    name: str, manifest: Path, found_via: str, bases: Sequence[Path]
) -> Candidate | Refusal:
    """Turn a name from a manifest into a candidate.

    A relative path is never relative to the current directory.
    """
    if os.path.isabs(name):
        return check_library(name, found_via, manifest)
    directories = [manifest.parent, *(bases if "/" in name else ())]
    for directory in directories:
        if os.path.isfile(directory / name):
            return check_library(str(directory / name), found_via, manifest)
    if "/" not in name:
        return check_library(name, found_via, manifest)
    reason = f"names {name}, and there is no such file in {' nor in '.join(map(str, directories))}"
    remedy = (
        f"install what the manifest stands for ({manifest.stem}), or write the library's "
        "absolute path into it"
    )
    return Refusal(str(manifest), reason, remedy, found_via)


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file without waiting for a writer, should somebody replace it by a named pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def _explain(path: Path, error: OSError) -> tuple[str, str]:
    """Return the reason and the remedy for a file that cannot be read."""
    if isinstance(error, FileNotFoundError) and os.path.islink(path):
        return (
            f"is a link to {os.path.realpath(path)}, which does not exist",
            "install what it points to, or delete the link",
        )
    if isinstance(error, FileNotFoundError):
        return "does not exist", "correct its name, or do not ask for it"
    if isinstance(error, PermissionError):
        return (
            f"not readable: {error.strerror}",
            "let this user read it (chmod a+r) and enter the directories above it",
        )
    return f"not readable: {error.strerror}", "repair or remove it"


def _count(manifests: int, files: int) -> str:
    """Describe the contents of a directory."""
    if manifests:
        return "1 manifest" if manifests == 1 else f"{manifests} manifests"
    return f"no manifest (other files: {files})" if files else "no manifest"
