"""Looks for libraries to open, and keeps the reason for everything that it passed over.

How data goes through: a step is a small function that yields *findings* in the order of the search: a `Place` that was looked
at, a `Candidate` worth opening, a `Refusal`. `collect` sorts the findings of all steps into a `SearchResult` and keeps only the
first candidate of each real file. Which places are searched, and in what order, is the business of each API's own catalogue.

A *manifest* is a text file that names libraries, one a line; a directory of manifests is read in the order of their names, so
that the result never depends on the order in which the file system lists them. Nothing here opens a library.
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

#: A manifest is a line or two: whatever is larger is some other file.
MAX_MANIFEST_BYTES: Final = 64 * 1024

_AT_SECURE: Final = (
    23  # <elf.h>: the kernel's answer to "does this process have more rights than its user?"
)
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

    `library` is what dlopen is given: an absolute path, or a bare soname that the system's own search resolves. `found_via` is
    the step that found it and `manifest` the manifest that names it, None if the library was named directly.
    """

    library: str
    found_via: str
    manifest: Path | None = None


@dataclass(frozen=True)
class Refusal:
    """Something that was passed over: `what` (a path or a name), the reason in plain words, and what to do about it."""

    what: str
    reason: str
    remedy: str = ""
    found_via: str = ""


@dataclass(frozen=True)
class Place:
    """A place that was looked at, and the state it was in: "3 manifests", "does not exist", "not readable: ..."."""

    path: str
    found_via: str
    state: str


Finding: TypeAlias = Candidate | Refusal | Place


@dataclass(frozen=True)
class SearchResult:
    """All that a search came to, each kind in the order of the search."""

    candidates: tuple[Candidate, ...]
    refusals: tuple[Refusal, ...]
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Variable:
    """An environment variable: who knows it, what it means to them, what fairlead does with it.

    `replaced_by` are the variables each of which, when set, takes its effect away.
    """

    name: str
    loaders: tuple[str, ...]
    meaning: str
    honoured: bool
    here: str
    replaced_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class VariableInUse:
    """A variable that is set, its value, and what came of it in plain words."""

    variable: Variable
    value: str
    outcome: str


def in_secure_process() -> bool:
    """Whether this process is set-uid, set-gid or has file capabilities, so that its environment is not to be trusted."""
    getauxval = ctypes.CDLL(None).getauxval
    getauxval.argtypes, getauxval.restype = [ctypes.c_ulong], ctypes.c_ulong
    return bool(getauxval(_AT_SECURE))


def secure_environ(
    environ: Mapping[str, str] | None = None, secure: bool | None = None
) -> Mapping[str, str]:
    """The environment (`os.environ` unless another is given), empty in a secure process: secure_getenv for all of it.

    `secure` says whether the process is one; None asks the kernel.
    """
    if in_secure_process() if secure is None else secure:
        return {}
    return os.environ if environ is None else environ


def python_libraries() -> tuple[Path, ...]:
    """The `lib` directories of the Python environment and of the one that it was made from: wheels put shared libraries there."""
    return tuple(dict.fromkeys(Path(prefix) / "lib" for prefix in (sys.prefix, sys.base_prefix)))


def excluding_pattern(*libraries: str) -> str:
    """The pattern of FAIRLEAD_EXCLUDE (a `:`-list) that fits one of these paths or its base name, else ""."""
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
    """What each variable that is set did, in the order of `variables`.

    `effect` is given a variable that is honoured and the environment that may be trusted; it says why the variable does not do what it
    is for, "" if it does.
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
    """The elements of a `:`-list. An empty one is refused: taken as a library's name it would be the program itself."""
    for number, element in enumerate(text.split(":"), start=1):
        if element.strip():
            yield element
        else:
            yield Refusal(
                variable, f"element {number} of {text!r} is empty", "remove the extra ':'", variable
            )


def kind_of(path: str | Path) -> str:
    """What `path` is, links followed: "a file", "a directory", "a named pipe", … Raises OSError if it cannot be told."""
    return _KINDS.get(stat.S_IFMT(os.stat(path).st_mode), "not a file")


def read_manifest(path: Path, found_via: str = "") -> tuple[str, ...] | Refusal:
    """The names that a manifest holds, one a line, or why it is unusable."""
    lines = manifest_lines(path, found_via)
    return lines if isinstance(lines, Refusal) else tuple(lines.values())


def manifest_lines(path: Path, found_via: str = "") -> dict[int, str] | Refusal:
    """The lines of a manifest that say something, by their number, or why it is unusable.

    They are without the blanks around them; empty lines, lines that begin with `#`, a UTF-8 byte-order mark and CRLF ends of line are
    taken for what they mean. The bytes of a name that are not UTF-8 survive (`os.fsencode` gives them back).
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
            f"is larger than {MAX_MANIFEST_BYTES // 1024} KiB: this is no manifest",
            "move it elsewhere",
        )
    if _CONTROL_CHARACTER.search(content):
        return refusal(
            "holds control characters: this is no plain text",
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
    """The libraries that a manifest names. `bases` are further directories that its relative paths may be relative to."""
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
    """The libraries that the manifests of a directory name, in the order of the manifests' names. `bases`: see above."""
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
    """The candidate for an absolute path or a bare soname, unless something lies there that is surely not a library.

    A path where nothing lies stays a candidate: whoever opens it knows how a broken path may be repaired.
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
    """Sort findings by what they are; of several candidates for one real file the first stays, the others are refused."""
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
    """One name of a manifest as a candidate. A relative path is never relative to the current directory."""
    if os.path.isabs(name):
        return check_library(name, found_via, manifest)
    directories = [manifest.parent, *(bases if "/" in name else ())]
    for directory in directories:
        if os.path.isfile(directory / name):
            return check_library(str(directory / name), found_via, manifest)
    if "/" not in name:
        return check_library(name, found_via, manifest)
    reason = f"names {name}, and there is no such file in {' nor in '.join(map(str, directories))}"
    remedy = f"install what the manifest stands for ({manifest.stem}), or write the library's absolute path into it"
    return Refusal(str(manifest), reason, remedy, found_via)


def _open_without_waiting(path: str, flags: int) -> int:
    """An opener: a named pipe put in the place of a file at the last moment cannot make us wait."""
    return os.open(path, flags | os.O_NONBLOCK)


def _explain(path: Path, error: OSError) -> tuple[str, str]:
    """Reason and remedy for a file that cannot be read."""
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
    """A directory's state in words."""
    if manifests:
        return "1 manifest" if manifests == 1 else f"{manifests} manifests"
    return f"no manifest (other files: {files})" if files else "no manifest"
