"""The archive of a graph file: a zip with graph.json, and members that it refers to.

Nothing is unpacked to disk. No member is larger than what graph.json says of it, so a zip bomb is
refused before it grows.
"""

from __future__ import annotations

import gc
import io
import json
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from ..loader.base.files import replace_file
from .checks import check_document
from .contents import view_as_array
from .document import Document
from .errors import CANNOT_READ, CANNOT_SAVE, GraphFileError, make_invalid_error

JSON: Final = "graph.json"
#: Bytes that graph.json may have, and a member of programs/.
MOST_JSON: Final = 1 << 26
MOST_PROGRAM: Final = 1 << 26
_MOST_MEMBERS: Final = 100_000
_HEADER: Final = 4096  # bytes of a .npy file before its numbers, at most
_LONGEST_NUMBER: Final = 20  # digits
#: What may be a longer number. Python takes long to read one of many digits.
_LONG: Final = re.compile(rb"(?:^|[:,\[])\s*-?\d{%d}" % (_LONGEST_NUMBER + 1))
_TIME: Final = (1980, 1, 1, 0, 0, 0)  # of every member: equal graphs are equal files
_NPY: Final = re.compile(rb"\x93NUMPY\x01\x00")


#: What a graph is written to, or read from.
Place = str | os.PathLike[str] | BinaryIO


def write(place: Place, document: Document, members: Mapping[str, Any]) -> None:
    """Write a graph. A file is written completely, or not at all.

    Args:
        place: a path, or a binary stream.
        members: bytes, or NumPy arrays that become .npy files, by name.

    Raises:
        GraphFileError: it cannot be written, or graph.json would be too large.
    """
    text = json.dumps(document.to_json(), separators=(",", ":"), ensure_ascii=False).encode()
    if len(text) > MOST_JSON:
        raise GraphFileError(
            f"the graph's description has {len(text)} bytes, and {MOST_JSON} are the most",
            routine="save",
            code=CANNOT_SAVE,
            remedy="save it in several parts",
        )
    if not isinstance(place, (str, os.PathLike)):
        _check_stream(place, "write", "save", CANNOT_SAVE)
        _pack(place, text, members)
        return
    target = Path(place)
    try:
        with replace_file(target) as stream:
            _pack(stream, text, members)
    except OSError as error:
        raise GraphFileError(
            f"{target} cannot be written: {error.strerror}",
            routine="save",
            code=CANNOT_SAVE,
            remedy="name a file in a folder that exists and can be written",
        ) from None


def _check_stream(place: Any, method: str, routine: str, code: str) -> None:
    if isinstance(place, io.TextIOBase) or not hasattr(place, method):
        raise GraphFileError(
            f"an object of the type {type(place).__name__} is neither a path nor a binary stream",
            routine=routine,
            code=code,
            remedy="give a path, or a file that was opened in binary mode",
        )


def _pack(stream: BinaryIO, text: bytes, members: Mapping[str, Any]) -> None:
    with zipfile.ZipFile(stream, "w") as archive:
        _put(archive, JSON, text)
        for name, data in members.items():
            _put(archive, name, data if isinstance(data, bytes) else _encode_array(data))


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays to an archive that `numpy.load` reads. Raises OSError.

    `numpy.savez` refuses an array that is called "file".
    """
    with replace_file(path) as stream, zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            _put(archive, f"{name}.npy", _encode_array(array))


def _put(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, _TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, data, zipfile.ZIP_DEFLATED, 6 if len(data) < 1 << 20 else 1)


def _encode_array(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array, order="C"), (1, 0), allow_pickle=False)
    return stream.getvalue()


@contextmanager
def _convert_errors(path: Path | str) -> Iterator[None]:
    """Turn what Python's modules raise for broken archives into GraphFileError."""
    try:
        yield
    except GraphFileError:
        raise
    except OSError as error:
        raise GraphFileError(
            f"{path} cannot be read: {error.strerror or error}",
            routine="load",
            code=CANNOT_READ,
            remedy="name a file that graph.save(…) wrote",
        ) from None
    except Exception as error:  # Python's readers raise many kinds for what is damaged
        detail = str(error).splitlines()[0][:80] if str(error) else type(error).__name__
        raise make_invalid_error(
            f"{path} is damaged, or not a graph of fairlead: {detail}"
        ) from None


@contextmanager
def _pause_collector() -> Iterator[None]:
    """Let the garbage collector pause: it would look at each of many new objects several times."""
    is_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_on:
            gc.enable()


class GraphArchive:
    """A graph file that was opened for reading. Use it as a context manager, or `close` it.

    Args:
        place: a path, or a binary stream.

    Attributes:
        path: the file's path, or what stands for it in errors.
        document: what graph.json says, checked.

    Raises:
        GraphFileError: it cannot be read, is not a graph, or breaks a rule of the format.
    """

    def __init__(self, place: Place) -> None:
        if isinstance(place, (str, os.PathLike)):
            self.path = Path(place)
        else:
            _check_stream(place, "seek", "load", CANNOT_READ)
            self.path = "the stream"
        with _convert_errors(self.path):
            self._zip = zipfile.ZipFile(place)
        try:
            with _convert_errors(self.path):
                self._entries = self._list_members()
                text = self._read(JSON, MOST_JSON)
                read_number = _parse_whole_number if _LONG.search(text) else None
                with _pause_collector():
                    value = json.loads(text, parse_int=read_number, parse_constant=_refuse_constant)
                    self.document = check_document(value)
            for name in self.document.list_members():
                if name not in self._entries:
                    raise make_invalid_error(f"the file has no {name}, to which graph.json refers")
        except BaseException:
            self.close()
            raise

    def _list_members(self) -> dict[str, zipfile.ZipInfo]:
        entries: dict[str, zipfile.ZipInfo] = {}
        for entry in self._zip.infolist()[: _MOST_MEMBERS + 1]:
            name = entry.filename
            if name in entries or len(entries) == _MOST_MEMBERS:
                raise make_invalid_error(
                    f"the archive has the member {name[:80]} twice, or too many"
                )
            if name.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", name):
                raise make_invalid_error(f"the member {name[:80]!r} leads out of the archive")
            if entry.flag_bits & 1 or entry.compress_type not in (
                zipfile.ZIP_STORED,
                zipfile.ZIP_DEFLATED,
            ):
                raise make_invalid_error(
                    f"the member {name[:80]} is encrypted, or packed by an unknown method"
                )
            entries[name] = entry
        if JSON not in entries:
            raise make_invalid_error(
                f"the file is a zip archive without {JSON}, and not a graph of fairlead"
            )
        return entries

    def _read(self, name: str, most: int) -> bytes:
        entry = self._entries[name]
        if entry.file_size > most:
            raise make_invalid_error(f"{name} has {entry.file_size} bytes, and {most} are the most")
        with self._zip.open(entry) as stream:
            data = stream.read(most + 1)
        if len(data) != entry.file_size:
            raise make_invalid_error(f"{name} has not the size that the archive says")
        return data

    def read_program(self, name: str) -> bytes:
        """Return a member of programs/. Raises GraphFileError."""
        with _convert_errors(self.path):
            return self._read(name, MOST_PROGRAM)

    def read_contents(self, memory: Mapping[str, Any], what: str = "contents") -> np.ndarray | None:
        """Return the contents of a memory of the document, as bytes; None if the file has none.

        Args:
            what: "contents", or "result": what a recorded program had there in the end.

        Raises:
            GraphFileError: it is not a .npy file of exactly that size.
        """
        name = memory.get(what)
        if name is None:
            return None
        with _convert_errors(self.path):
            data = self._read(name, memory["size"] + _HEADER)
            stream = io.BytesIO(data)
            if not _NPY.match(data):
                raise make_invalid_error(f"{name} is not a .npy file of version 1.0")
            np.lib.format.read_magic(stream)
            shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(stream)
            numbers = data[stream.tell() :]
            size = dtype.itemsize
            for one in shape:
                size *= one
            if dtype.hasobject or is_fortran or size != memory["size"] or len(numbers) != size:
                raise make_invalid_error(f"{name} has not the {memory['size']} bytes of its memory")
            return np.frombuffer(numbers, np.uint8)

    def read_results(self) -> dict[str, np.ndarray]:
        """Return what a recorded program had in outputs in the end, by name.

        Raises GraphFileError.
        """
        rows = {name: self.document.memory[at] for name, at in self.document.outputs.items()}
        found = {name: self.read_contents(row, "result") for name, row in rows.items()}
        return {
            name: view_as_array(rows[name], one) for name, one in found.items() if one is not None
        }

    def close(self) -> None:
        """Close the file."""
        self._zip.close()

    def __enter__(self) -> GraphArchive:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


def _parse_whole_number(digits: str) -> int:
    if len(digits) > _LONGEST_NUMBER:
        raise make_invalid_error(f"a number has {len(digits)} digits")
    return int(digits)


def _refuse_constant(name: str) -> Any:
    raise make_invalid_error(f"graph.json has {name}, which is not a number of JSON")
