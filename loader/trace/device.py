"""What devices did: when each command was queued, submitted, started and ended.

A log has a note for each command that has ended (native/device.c). Its times are of the device's
clock. `read_commands` brings them to the clock of the calls: a command was queued while the call
that enqueued it ran.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from ..base.abi import Api
from .names import Names
from .printing import COMMAND, QUEUE, THREAD, TracedCall
from .summary import Table

_HEADER: Final = 6  # words of a record before its arguments
#: Chrome's traces have threads. Queues are threads with numbers that no thread has.
FIRST_QUEUE: Final = 1 << 30
#: The functions whose argument `size` says how many bytes they move.
_TRANSFERS: Final = re.compile("clEnqueue.*(Read|Write|Copy|Fill|Memcpy)")


@dataclass(frozen=True)
class DeviceCommand:
    """A command that has ended. Times are in ns.

    Attributes:
        function: the name of the function that enqueued it.
        kernel: the handle of its kernel, 0 if it is not a launch.
        queue: the handle of its queue.
        begin, end: when the function was called, and returned.
        thread: the kernel's id of the thread that enqueued it.
        name: the kernel's name, or what the function does.
        device: the name of the queue's device, and the version of its driver; "" if not known.
        bytes: how many it moved, 0 if it is no transfer or no argument says it.
    """

    function: str
    kernel: int
    queue: int
    begin: int
    end: int
    queued: int
    submitted: int
    started: int
    ended: int
    thread: int
    name: str = ""
    queue_name: str = ""
    device: str = ""
    bytes: int = 0

    @property
    def duration(self) -> int:
        """How long the device worked on the command."""
        return self.ended - self.started


def read_notes(words: memoryview, kind: int) -> Iterator[tuple[int, memoryview]]:
    """Yield the thread and the words of each record of a kind, one of NOTES."""
    start = 0
    while start < len(words):
        length = words[start] & 0xFFFFFFFF
        if words[start] >> 32 == kind:
            yield words[start + 1] >> 32, words[start : start + length]
        start += length


def read_thread_names(words: memoryview) -> dict[int, str]:
    """The names of the threads in a log, by their ids."""
    return {thread: _read_text(record[_HEADER:]) for thread, record in read_notes(words, THREAD)}


def _read_text(words: memoryview) -> str:
    return bytes(words.cast("B")).partition(b"\0")[0].decode(errors="replace")


def read_commands(
    words: memoryview,
    layers: Mapping[int, tuple[Api, str]],
    names: Names,
    calls: Iterable[TracedCall],
) -> list[DeviceCommand]:
    """Return the commands in a log, in the order in which they started.

    Args:
        words: the contents of a log.
        layers: as of `decode`.
        calls: the calls in the log.
    """
    sizes = {(call.thread, call.begin): _find_bytes(call) for call in calls}
    found = []
    for _, record in read_notes(words, QUEUE):
        names.note_device(record[_HEADER], record[3], _read_text(record[_HEADER + 1 :]))
    for thread, record in read_notes(words, COMMAND):
        api, _ = layers[record[2]]
        slot, queue, kernel, _, queued, submitted, started, ended = record[_HEADER:]
        function, begin = api.slots[slot].name, record[3]
        found.append(
            DeviceCommand(
                function,
                kernel,
                queue,
                begin,
                record[4],
                queued,
                submitted,
                started,
                ended,
                thread,
                names.find_kernel(kernel, begin) or function.removeprefix("clEnqueue"),
                names.find_queue(queue, begin) or f"queue {queue:#x}",
                names.find_device(queue, begin),
                sizes.get((thread, begin), 0),
            )
        )
    return sorted(_convert_clocks(found), key=lambda command: command.started)


def _find_bytes(call: TracedCall) -> int:
    names = [one.name for one in call.function.parameters]
    if "size" not in names or not _TRANSFERS.match(call.name):
        return 0
    return call.arguments[names.index("size")]


def _convert_clocks(commands: Sequence[DeviceCommand]) -> Iterator[DeviceCommand]:
    """Bring the times of each queue to the clock of the calls."""
    queues: dict[int, list[DeviceCommand]] = {}
    for command in commands:
        queues.setdefault(command.queue, []).append(command)
    for of_queue in queues.values():
        least = max(command.begin - command.queued for command in of_queue)
        most = min(command.end - command.queued for command in of_queue)
        offset = 0 if least <= 0 <= most else least if least > most else (least + most) // 2
        for command in of_queue:
            times = ("queued", "submitted", "started", "ended")
            yield replace(command, **{name: getattr(command, name) + offset for name in times})


def make_device_events(commands: Iterable[DeviceCommand], pid: int) -> Iterator[dict[str, Any]]:
    """Yield commands as events of the Chrome trace format: a row for each queue, times in µs.

    A flow, from "s" to "f", leads from the call that enqueued a command to the command.
    """
    rows: dict[str, int] = {}
    for number, command in enumerate(commands):
        if command.queue_name not in rows:
            rows[command.queue_name] = row = FIRST_QUEUE + len(rows)
            queue = f"device: {command.queue_name}"
            name = f"{queue} ({command.device})" if command.device else queue
            args = {"name": name, "queue": queue, "device": command.device}
            yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": row, "args": args}
        row = rows[command.queue_name]
        flow = {"name": "enqueue", "cat": "flow", "pid": pid, "id": f"{pid}.{number}"}
        yield {"ph": "s", "ts": command.begin / 1000, "tid": command.thread, **flow}
        yield {"ph": "f", "bp": "e", "ts": command.started / 1000, "tid": row, **flow}
        yield {
            "ph": "X",
            "name": command.name,
            "cat": "device",
            "ts": command.started / 1000,
            "dur": command.duration / 1000,
            "pid": pid,
            "tid": row,
            "args": {
                "function": command.function,
                "queued": command.queued / 1000,
                "submitted": command.submitted / 1000,
                "started": command.started / 1000,
                "ended": command.ended / 1000,
                "thread": command.thread,
                **({"bytes": command.bytes} if command.bytes else {}),
            },
        }


class KernelRow(NamedTuple):
    """A kernel, or a kind of transfer, on all devices. Times are in ns."""

    name: str
    calls: int
    total_ns: int
    mean_ns: float
    least_ns: int
    most_ns: int


class KernelTable(Table[KernelRow]):
    """The kernels, the longest total time first."""

    __slots__ = ()
    heads = ("on the device", "calls", "total us", "mean us", "min us", "max us")


def make_kernel_table(events: Iterable[Mapping[str, Any]]) -> KernelTable:
    """The table of the commands among events of the Chrome trace format."""
    times: dict[str, list[int]] = {}
    for event in events:
        if event["ph"] == "X" and event.get("cat") == "device":
            times.setdefault(event["name"], []).append(round(1000 * event["dur"]))
    rows = (
        KernelRow(name, len(one), sum(one), sum(one) / len(one), min(one), max(one))
        for name, one in times.items()
    )
    return KernelTable(sorted(rows, key=lambda row: (-row.total_ns, row.name)))
