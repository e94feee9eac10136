"""Records programs that do not know fairlead, with an OpenCL layer that writes commands to files.

`make_environment` returns the variables by which an OpenCL loader loads `libfairlead_record.so`
(native/record_layer). Each process writes a file `<pid>.<n>.record` as it runs. `read_recordings`
reads those files. A process that is killed or crashes has written every command that it enqueued,
with what the command needs.

The layer sees the program's own calls, but not those of extension functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Final

from .trace_layer import add_layer

#: The kinds of records (enum fl_record_kind).
(
    COMMAND,
    QUEUE,
    MEMORY,
    SAMPLER,
    PROGRAM,
    KERNEL,
    DATA,
    CONTENTS,
    SYNC,
    GAP,
    END,
    RESULT,
) = range(1, 13)
#: How many words records have before their pieces. All words of MEMORY are such.
_WORDS: Final = {
    QUEUE: 2,
    SAMPLER: 4,
    PROGRAM: 1,
    KERNEL: 3,
    CONTENTS: 2,
    SYNC: 1,
    GAP: 0,
    END: 4,
    RESULT: 2,
}
_HEAD_OF_COMMAND: Final = 6  # its last word says how many arguments follow
_HEAD_OF_DATA: Final = 6  # head, number, whether it is there, bytes, two of the layer's own
_SUFFIX: Final = ".record"


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a file.

    Attributes:
        words: its numbers.
        pieces: what pointers led to: a tag and the bytes.
    """

    kind: int
    words: tuple[int, ...]
    pieces: tuple[tuple[int, bytes], ...]


@dataclass
class ProcessRecording:
    """The records that one process wrote.

    Attributes:
        records: in the order in which they were written; without those of data.
        data: the bytes of DATA records by their numbers, if they are complete. Equal ones have one
            number.
    """

    pid: int
    records: list[Record] = field(default_factory=list)
    data: dict[int, memoryview] = field(default_factory=dict)

    @property
    def has_commands(self) -> bool:
        """Whether a command was recorded."""
        return any(one.kind == COMMAND for one in self.records)


def find_library() -> Path:
    """The path of the layer's library, which does without Python."""
    return Path(__file__).with_name("libfairlead_record.so")


def make_environment(
    environ: Mapping[str, str],
    folder: Path,
    first: int = 0,
    last: int | None = None,
    kernel: str = "",
    contents: int = 1,
) -> dict[str, str]:
    """The variables to add for a program whose processes write what they enqueue into a folder.

    Args:
        environ: the program's environment. The layers that it names are kept; ours is called first.
        folder: where the files go; it must exist.
        first, last: the numbers of the first and the last command, from 0 on; None: until the end.
        kernel: the kernel whose launches alone are counted and recorded, "" for all commands.
        contents: 0 for none; 1 for those of memory before its first use; 2 for what reads gave the
            program, too.

    Raises:
        FairleadError: the layer's library is missing, or OPENCL_LAYERS cannot name its path.
    """
    return {
        "OPENCL_LAYERS": add_layer(environ, find_library()),
        "FAIRLEAD_RECORD": str(folder.resolve()),
        "FAIRLEAD_RECORD_FROM": str(first),
        "FAIRLEAD_RECORD_TO": "" if last is None else str(last),
        "FAIRLEAD_RECORD_KERNEL": kernel,
        "FAIRLEAD_RECORD_CONTENTS": str(contents),
    }


def read_recordings(folder: Path) -> list[ProcessRecording]:
    """The recordings of the processes that wrote files into a folder, in the order of their start.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is not what the layer writes.
    """
    files = sorted(folder.glob(f"*{_SUFFIX}"), key=lambda file: file.stat().st_ctime_ns)
    return [_read_recording(file) for file in files if file.stat().st_size]


def _read_recording(file: Path) -> ProcessRecording:
    with file.open("rb") as stream:  # the map stays as long as what lies in it
        data = memoryview(mmap(stream.fileno(), 0, access=ACCESS_READ))
    made = ProcessRecording(int(file.name.partition(".")[0]))
    try:
        for kind, words in _split_records(data[: len(data) // 8 * 8].cast("Q")):
            if kind == DATA:
                if words[2]:
                    made.data[words[1]] = words[_HEAD_OF_DATA:].cast("B")[: words[3]]
            else:
                made.records.append(_make_record(kind, words))
    except (IndexError, ValueError) as error:
        raise ValueError(f"{file} is not a recording: {error}") from error
    return made


def _split_records(words: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield the kind and the words of each record, its head among them."""
    chunk = 0
    while chunk < len(words) and words[chunk]:
        start, end = chunk + 1, chunk + words[chunk] // 8
        if not chunk < end <= len(words):
            raise ValueError(f"its chunk at {8 * chunk} has an impossible size")
        while start < end and words[start]:
            size, kind = words[start] & 0xFFFFFFFF, words[start] >> 32
            if not 0 < size <= end - start:
                raise ValueError(f"its record at {8 * start} has an impossible size")
            yield kind, words[start : start + size]
            start += size
        chunk = end


def _make_record(kind: int, words: memoryview) -> Record:
    if kind == COMMAND:
        count = _HEAD_OF_COMMAND + words[_HEAD_OF_COMMAND]
    elif kind == MEMORY:
        count = len(words) - 1
    elif kind in _WORDS:
        count = _WORDS[kind]
    else:
        raise ValueError(f"there is no record of the kind {kind}")
    return Record(kind, tuple(words[1 : 1 + count]), tuple(_split_pieces(words[1 + count :])))


def _split_pieces(words: memoryview) -> Iterator[tuple[int, bytes]]:
    start = 0
    while start < len(words):
        tag, size = words[start] & 0xFFFFFFFF, words[start] >> 32
        count = (size + 7) // 8
        yield tag, bytes(words[start + 1 : start + 1 + count].cast("B")[:size])
        start += 1 + count
