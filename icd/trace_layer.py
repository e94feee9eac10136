"""Traces of programs that know nothing of fairlead: an OpenCL layer that writes the calls of each process to a file.

How data goes through: `environment` gives the variables that make an OpenCL loader load `libfairlead_trace.so` (native/trace_layer.c)
into a program. At its end each process writes a file `<pid>.cllog`: a head, then the records of its log (loader/base/native/log.c).
`processes` reads those files, `read` gives their calls alone.

Seen are the calls of the program itself, through a loader that has layers (Khronos, ocl-icd 2.3 or later); not those of a driver inside
itself, and not those of extension functions that a program has got from the driver. Times are of CLOCK_MONOTONIC, which the processes of
a machine share. A process that is killed, crashes, or ends by _exit or exec leaves no file.
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
from ..loader.trace.printing import TracedCall, decode
from .abi import OPENCL

#: What a file begins with: magic, format | slots << 32, pid | parent << 32, the times at the start, calls lost, bytes of records, name.
_HEAD: Final = struct.Struct("=8sIIIIQQQQ32s")
_MAGIC: Final = b"FLCLLOG\n"
_FORMAT: Final = 1
_SUFFIX: Final = ".cllog"


@dataclass(frozen=True, slots=True)
class Process:
    """What one process left: its calls in the order in which they began.

    `begin` is when it loaded the layer, in ns of the monotonic clock like the times of the calls, and `time` is the same moment in ns
    since 1970. `name` is that of its program, up to 31 bytes; `lost` counts the calls for which there was no room in memory.
    """

    pid: int
    parent: int
    name: str
    begin: int
    time: int
    lost: int
    calls: list[TracedCall]


def path() -> Path:
    """The layer: a library for OpenCL loaders, without Python in it."""
    return Path(__file__).with_name("libfairlead_trace.so")


def environment(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The variables to add to `environ` for a program whose processes are to leave their calls in `folder`, which must be there.

    Layers that `environ` asks for are kept. Ours is the last of the list, so it is the first to be called and sees what the program did.
    Raises FairleadError if the layer is not there, or lies where OPENCL_LAYERS cannot name it.
    """
    layer = str(path())
    if not path().exists():
        raise FairleadError(
            f"the OpenCL layer {layer} is missing",
            remedy="install fairlead again, from its wheel or its source",
        )
    if ":" in layer:
        raise FairleadError(
            f"the OpenCL layer {layer} cannot be named in OPENCL_LAYERS, a list with ':' between its elements",
            remedy="install fairlead in a folder that has no ':' in its name",
        )
    others = [
        name for name in environ.get("OPENCL_LAYERS", "").split(":") if name not in ("", layer)
    ]
    return {
        "OPENCL_LAYERS": ":".join([*others, layer]),
        "FAIRLEAD_TRACE_LOG": str(folder.resolve() / f"%p{_SUFFIX}"),
    }


def read(folder: Path) -> dict[int, list[TracedCall]]:
    """The calls of the processes that left a file in `folder`, by process id; otherwise as `processes`."""
    return {process.pid: process.calls for process in processes(folder)}


def processes(folder: Path) -> list[Process]:
    """What the processes left in `folder`, in the order in which they began.

    A file that is cut off or that something else has written is left out, with a warning line on stderr; so is said where calls were lost.
    """
    found = []
    for file in sorted(folder.glob(f"*{_SUFFIX}")):
        try:
            process = _process(file.read_bytes())
        except (OSError, ValueError) as error:
            warn(f"{file} is left out of the trace: {error}")
            continue
        if process.lost:
            warn(
                f"the last {process.lost} OpenCL calls of process {process.pid} are not in the trace: its log was full"
            )
        found.append(process)
    return sorted(found, key=lambda process: process.begin)


def _process(data: bytes) -> Process:
    """What is in a file. Raises ValueError that says why it cannot be read."""
    if len(data) < _HEAD.size or not data.startswith(_MAGIC):
        raise ValueError("it is no log of OpenCL calls, or only the beginning of one")
    _, version, slots, pid, parent, begin, time, lost, size, name = _HEAD.unpack_from(data)
    if (version, slots) != (_FORMAT, len(OPENCL.slots)):
        raise ValueError("another version of fairlead has written it")
    if len(data) != _HEAD.size + size or size % 8:
        raise ValueError(
            "it is cut off: the process was killed while it wrote, or the disk is full"
        )
    words = memoryview(data)[_HEAD.size :].cast("Q")
    calls = decode(words, _layers(words))
    calls.sort(key=lambda call: (call.begin, -call.end))
    return Process(
        pid, parent, name.partition(b"\0")[0].decode(errors="replace"), begin, time, lost, calls
    )


def _layers(words: memoryview) -> dict[int, tuple[Api, str]]:
    """The layers whose calls the records are, one for each OpenCL loader of the process. Raises ValueError for what is no record."""
    found, start = {}, 0
    while start < len(words):
        length, slot = words[start] & 0xFFFFFFFF, words[start] >> 32
        if length < 6 or start + length > len(words) or slot >= len(OPENCL.slots):
            raise ValueError(f"word {start} begins no record")
        count = words[start + 1] & 0xFFFF
        if count != len(OPENCL.slots[slot].parameters) or 6 + count > length:
            raise ValueError(f"the record at word {start} has {count} arguments")
        found[words[start + 2]] = OPENCL, ""
        start += length
    return found
