"""Traces programs that do not know fairlead, with an OpenCL layer that writes calls to files.

`make_environment` returns the variables by which an OpenCL loader loads `libfairlead_trace.so`
(native/trace_layer.c) into a program. Each process writes a file `<pid>.cllog` as it runs: a head,
then the chunks of its log (loader/base/native/log.c). `read_processes` reads those files. A process
that is killed, crashes, or ends by _exit has written all calls that returned. A process that goes
on by exec writes another file.

The layer sees the program's own calls through a loader that has layers: Khronos' loader, or ocl-icd
2.3 and later. It sees no calls inside a driver, and no calls of extension functions. Times are of
CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..loader.base.abi import Api
from ..loader.base.errors import FairleadError
from ..loader.base.log import warn
from ..loader.trace.device import DeviceCommand, read_commands, read_thread_names
from ..loader.trace.names import Names
from ..loader.trace.printing import COMMAND, NOTES, QUEUE, THREAD, TracedCall, decode
from .abi import OPENCL

#: The head of a file: magic, format, slots, pid, parent, the two times at the start, calls lost,
#: bytes of a chunk, name.
_HEAD: Final = struct.Struct("=8sIIIIQQQQ32s")
_PAGE: Final = 4096  # bytes of the head
_MAGIC: Final = b"FLCLLOG\n"
_FORMAT: Final = 4
#: How many values the notes have.
_VALUES: Final = {COMMAND: 8, THREAD: 2, QUEUE: 16}
_SUFFIX: Final = ".cllog"


@dataclass(frozen=True, slots=True)
class Process:
    """The calls of one process.

    Attributes:
        parent: the id of the process that started it.
        name: the name of its program, up to 31 bytes.
        begin: when it loaded the layer, in ns of the monotonic clock, as the calls' times.
        time: the same moment in ns since 1970.
        lost: the number of calls for which there was no room in memory.
        calls: in the order in which they began.
    """

    pid: int
    parent: int
    name: str
    begin: int
    time: int
    lost: int
    calls: list[TracedCall]
    commands: list[DeviceCommand]
    threads: dict[int, str]
    names: Names


def find_library() -> Path:
    """The path of the layer's library, which does without Python."""
    return Path(__file__).with_name("libfairlead_trace.so")


def add_layer(environ: Mapping[str, str], library: Path) -> str:
    """The value of OPENCL_LAYERS with one of our layers behind those that it names.

    The last layer is called first, and sees what the program does.

    Raises:
        FairleadError: the layer's library is missing, or OPENCL_LAYERS cannot name its path.
    """
    layer = str(library)
    if not library.exists():
        raise FairleadError(
            f"the OpenCL layer {layer} is missing",
            remedy="install fairlead again, from its wheel or its source",
        )
    if ":" in layer:
        raise FairleadError(
            f"OPENCL_LAYERS cannot name the OpenCL layer {layer}: ':' separates its elements",
            remedy="install fairlead in a folder that has no ':' in its name",
        )
    others = [
        name for name in environ.get("OPENCL_LAYERS", "").split(":") if name not in ("", layer)
    ]
    return ":".join([*others, layer])


def make_environment(
    environ: Mapping[str, str], folder: Path, device: bool = False
) -> dict[str, str]:
    """The variables to add for a program whose processes write their calls into a folder.

    Args:
        environ: the program's environment. The layers that it names are kept; ours comes last, is
            called first and sees what the program does.
        folder: where the files go; it must exist.
        device: whether they say what devices did, too.

    Raises:
        FairleadError: the layer's library is missing, or OPENCL_LAYERS cannot name its path.
    """
    added = {
        "OPENCL_LAYERS": add_layer(environ, find_library()),
        "FAIRLEAD_TRACE_LOG": str(folder.resolve() / f"%p{_SUFFIX}"),
    }
    return added | ({"FAIRLEAD_TRACE_DEVICE": "1"} if device else {})


def read_processes(folder: Path) -> list[Process]:
    """Return the processes that wrote files into a folder, in the order in which they began.

    Incomplete and foreign files are left out, with a warning on stderr. Lost calls cause a warning,
    too.
    """
    found = []
    for file in sorted(folder.glob(f"*{_SUFFIX}")):
        try:
            process = _read_process(file.read_bytes())
        except (OSError, ValueError) as error:
            warn(f"{file} is left out of the trace: {error}")
            continue
        if process.lost:
            who = f"the last {process.lost} OpenCL calls of process {process.pid}"
            warn(f"{who} are not in the trace: its log was full")
        found.append(process)
    return sorted(found, key=lambda process: process.begin)


def _read_process(data: bytes) -> Process:
    """The process that wrote a file. Raises ValueError if the file cannot be read."""
    if len(data) < _HEAD.size or not data.startswith(_MAGIC):
        raise ValueError("it is not a log of OpenCL calls, or only the beginning of one")
    _, version, slots, pid, parent, begin, time, lost, chunk, name = _HEAD.unpack_from(data)
    if (version, slots) != (_FORMAT, len(OPENCL.slots)):
        raise ValueError("another version of fairlead has written it")
    if chunk < 8 or chunk % 8 or len(data) < _PAGE or (len(data) - _PAGE) % chunk:
        raise ValueError("it is cut off: the disk is full")
    words = _join_records(memoryview(data)[_PAGE:].cast("Q"), chunk // 8)
    layers = _read_layers(words)
    calls = decode(words, layers)
    calls.sort(key=lambda call: (call.begin, -call.end))
    program, names = name.partition(b"\0")[0].decode(errors="replace"), Names(calls)
    commands = read_commands(words, layers, names, calls)
    return Process(
        pid, parent, program, begin, time, lost, calls, commands, read_thread_names(words), names
    )


def _join_records(words: memoryview, chunk: int) -> memoryview:
    """The records of all chunks. A chunk's end, which no record fitted in, is zeros."""
    found = bytearray()
    for start in range(0, len(words), chunk):
        end = start
        while end < start + chunk and words[end]:
            end += words[end] & 0xFFFFFFFF or 1  # 0 is found out later
        found += words[start : min(end, start + chunk)]
    return memoryview(found).cast("Q")


def _read_layers(words: memoryview) -> dict[int, tuple[Api, str]]:
    """The layers that the records are of, one for each OpenCL loader of the process.

    Raises:
        ValueError: there is something that is not a record.
    """
    found, start = {}, 0
    while start < len(words):
        length, slot = words[start] & 0xFFFFFFFF, words[start] >> 32
        is_note = slot in NOTES
        if length < 6 or start + length > len(words) or not (is_note or slot < len(OPENCL.slots)):
            raise ValueError(f"word {start} begins no record")
        count = words[start + 1] & 0xFFFF
        if is_note:
            if 6 + count != length or count != _VALUES[slot]:
                raise ValueError(f"the note at word {start} has {count} values")
        elif count != len(OPENCL.slots[slot].parameters) or 6 + count > length:
            raise ValueError(f"the record at word {start} has {count} arguments")
        found[words[start + 2]] = OPENCL, ""
        start += length
    return found
