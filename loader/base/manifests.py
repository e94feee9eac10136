"""Reads manifests, the text files that name libraries, and yields what they name.

A manifest has one library a line. The manifests of a directory are read in the order of their
names, so the result does not depend on the file system. Nothing here opens a library.
"""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Iterator, Sequence

from .search import Candidate, Finding, Place, Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

#: A manifest has a line or two. A larger file is something else.
MAX_MANIFEST_BYTES: Final = 64 * 1024


_CONTROL_CHARACTERS: Final = bytes({*range(32), 127} - {*b"\t\n\v\f\r"})


_KINDS: Final = {
    stat.S_IFREG: "a file",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def describe_kind(path: str) -> str:
    """Return the kind of a file: "a file", "a directory", "a named pipe" and so on.

    Links are followed.

    Raises:
        OSError: the file cannot be examined.
    """
    return _KINDS.get(stat.S_IFMT(os.stat(path).st_mode), "not a file")


def read_manifest(path: str, found_via: str = "") -> tuple[str, ...] | Refusal:
    """Return the names in a manifest, one a line, or a Refusal if it is unusable."""
    lines = read_manifest_lines(path, found_via)
    return lines if isinstance(lines, Refusal) else tuple(lines.values())


def read_manifest_lines(path: str, found_via: str = "") -> dict[int, str] | Refusal:
    """Return the lines of a manifest that name something, by line number, or a Refusal.

    Blanks around a line, empty lines, lines that begin with `#`, a UTF-8 byte-order mark and CRLF
    line ends are ignored. Names that are not UTF-8 are preserved: `os.fsencode` returns their
    bytes.
    """

    def make_refusal(reason: str, remedy: str) -> Refusal:
        return Refusal(path, reason, remedy, found_via)

    try:
        kind = describe_kind(path)
        if kind != "a file":
            return make_refusal(f"is {kind}, not a text file", "move it elsewhere")
        with open(path, "rb", opener=_open_without_waiting) as file:
            content = file.read(MAX_MANIFEST_BYTES + 1) or b""
    except OSError as error:
        return make_refusal(*_explain(path, error))
    if len(content) > MAX_MANIFEST_BYTES:
        return make_refusal(
            f"is larger than {MAX_MANIFEST_BYTES // 1024} KiB, so it is not a manifest",
            "move it elsewhere",
        )
    if len(content.translate(None, _CONTROL_CHARACTERS)) < len(content):
        return make_refusal(
            "contains control characters, so it is not plain text",
            "write the library's path into it as UTF-8 text",
        )
    lines = enumerate(map(bytes.strip, content.removeprefix(codecs.BOM_UTF8).splitlines()), start=1)
    said = {
        number: os.fsdecode(line) for number, line in lines if line and not line.startswith(b"#")
    }
    return said or make_refusal(
        "names no library: it is empty", "write the library's path into it, or delete it"
    )


def search_manifest(path: str, found_via: str, bases: Sequence[str] = ()) -> Iterator[Finding]:
    """Yield the libraries that a manifest names.

    Args:
        bases: more directories that its relative paths may be relative to.
    """
    path = os.path.abspath(path)
    names = read_manifest(path, found_via)
    if isinstance(names, Refusal):
        yield names
        return
    for name in names:
        yield _resolve(name, path, found_via, bases)


def search_directory(
    directory: str, found_via: str, bases: Sequence[str] = (), suffix: str = ".icd"
) -> Iterator[Finding]:
    """Yield the libraries that the manifests of a directory name, in the order of their names.

    Args:
        bases: see `search_manifest`.
        suffix: how the name of a manifest ends.
    """
    directory = os.path.abspath(directory)
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        yield Place(directory, found_via, "does not exist")
        return
    except OSError as error:
        yield Place(directory, found_via, f"not readable: {error.strerror}")
        yield Refusal(directory, *_explain(directory, error), found_via)
        return
    manifests = [name for name in names if name.endswith(suffix)]
    yield Place(directory, found_via, _count(len(manifests), len(names)))
    for name in names:
        if name.endswith(suffix):
            yield from search_manifest(os.path.join(directory, name), found_via, bases)
        elif name.lower().endswith(suffix):
            reason = f"does not end in {suffix}: upper case counts"
            remedy = f"rename it to end in {suffix}"
            yield Refusal(os.path.join(directory, name), reason, remedy, found_via)


def check_library(library: str, found_via: str, manifest: str | None = None) -> Candidate | Refusal:
    """Return the candidate for an absolute path or a bare soname.

    A path that exists and is not a file is refused. A path that does not exist is a candidate: the
    function that opens it may know how to repair the path.
    """
    try:
        kind = describe_kind(library) if "/" in library else "a file"
    except OSError:
        kind = "a file"
    if kind == "a file":
        return Candidate(library, found_via, manifest)
    return Refusal(
        manifest or library,
        f"{library} is {kind}, not a library",
        "name the library itself",
        found_via,
    )


def _resolve(name: str, manifest: str, found_via: str, bases: Sequence[str]) -> Candidate | Refusal:
    """Turn a name from a manifest into a candidate.

    A relative path is never relative to the current directory.
    """
    if os.path.isabs(name):
        return check_library(name, found_via, manifest)
    directories = [os.path.dirname(manifest), *(bases if "/" in name else ())]
    for directory in directories:
        if os.path.isfile(os.path.join(directory, name)):
            return check_library(os.path.join(directory, name), found_via, manifest)
    if "/" not in name:
        return check_library(name, found_via, manifest)
    stem, _ = os.path.splitext(os.path.basename(manifest))
    reason = f"names {name}, and there is no such file in {' nor in '.join(map(str, directories))}"
    remedy = (
        f"install what the manifest stands for ({stem}), or write the library's absolute path "
        "into it"
    )
    return Refusal(manifest, reason, remedy, found_via)


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file without waiting for a writer, should somebody replace it by a named pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def _explain(path: str, error: OSError) -> tuple[str, str]:
    """Return the reason and the remedy for a file that cannot be read."""
    if isinstance(error, FileNotFoundError) and os.path.islink(path):
        return (
            f"is a link to {os.path.realpath(path)}, which does not exist",
            "install what it points to, or delete the link",
        )
    if isinstance(error, FileNotFoundError):
        return "does not exist", "correct its path, or unset the variable that names it"
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
