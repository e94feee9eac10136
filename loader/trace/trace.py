"""Traces: records every call through dispatch tables.

`TracingLayers` puts a layer (layers.py) in front of every table of the chosen APIs, now and later.
For a `Trace`, the layers write into a log in C, which printing.py decodes on demand. At the end of
a trace its layers are removed, so calls cost nothing more. environment.py starts the traces that
environment variables ask for.

    with fairlead.trace() as calls:
        ...
    print(calls.summary())
    calls.save("calls.json")  # for ui.perfetto.dev or chrome://tracing
"""

from __future__ import annotations

import json
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from ..base._native import lib
from ..base.abi import Api
from ..base.errors import FairleadError
from ..base.files import replace_file
from ..base.forks import call_in_child, make_lock
from ..base.layers import Layer, Log, dump_programs
from ..base.log import warn
from ..base.table import DispatchTable, layers_lock, list_tables, unwatch, watch
from .counters import make_counter_events
from .device import DeviceCommand, make_device_events, make_kernel_table, read_commands
from .names import Names
from .pictures import GraphPictures
from .printing import TracedCall, decode, format_after, format_before
from .summary import Span, Summary, format_sections, summarize

#: The APIs that can be traced, and the names of their ABI files. (loader does not import OpenCL's.)
APIS: Final[Mapping[str, str]] = {
    "ur": "ur",
    "pi": "pi",
    "cl": "opencl",
    "ze": "ze",
    "cuda": "cuda",
    "hip": "hip",
}

#: What a notebook shows of a trace without calls.
_NOTHING: Final = (
    "<p>No call was traced. A trace has calls through fairlead, while it records. PyOpenCL calls "
    "its own loader: <code>fairlead trace -- python PROGRAM</code> records those.</p>"
)

#: Name of an ABI file to the name of the API.
API_NAMES: Final = {stem: name for name, stem in APIS.items()}


@contextmanager
def trace(
    apis: Iterable[str] = tuple(APIS), *, limit: int = 1 << 30, device: bool = False
) -> Iterator[Trace]:
    """Record all calls through fairlead's tables in a block, from all threads. Blocks may nest.

    Args:
        apis: the APIs: "ur" (Unified Runtime), "pi", "cl" (OpenCL), "ze" (Level Zero), "cuda",
            "hip".
        limit: how many bytes of memory the calls may use. `Trace.lost` counts later calls.
        device: whether `Trace.commands` says what devices did. OpenCL queues that are made in the
            block profile then.

    Raises:
        FairleadError: an API is unknown, or an API has more than 16 tables.
    """
    found = Trace(apis, limit, device)
    found.start()
    try:
        yield found
    finally:
        found.stop()


_traces: weakref.WeakSet[Trace] = weakref.WeakSet()


@call_in_child
def _forget_all() -> None:
    for trace in _traces:
        trace.forget()


class Trace:
    """The calls that were recorded. It is a sequence of them, and may be read while it records."""

    def __init__(
        self,
        apis: Iterable[str] = tuple(APIS),
        limit: int = 1 << 30,
        device: bool = False,
        dump: str = "",
    ) -> None:
        self._device, self._dump = device, dump
        self._log = Log(limit)
        self._pictures = GraphPictures()
        self._layers: dict[int, tuple[Api, str]] = {}
        self._tracing = TracingLayers(_check_apis(apis), self._connect)
        self._lock = make_lock()
        self._decoded: list[TracedCall] = []
        self._read = 0  # words
        self._threads: dict[int, str] = {}
        weakref.finalize(self, self._log.clear).atexit = False
        _traces.add(self)

    def forget(self) -> None:
        """Drop the calls that were read: a forked child starts with an empty trace."""
        self._decoded.clear()
        self._read = 0
        self._pictures.clear()

    def start(self) -> None:
        """Start recording.

        Raises:
            FairleadError: an API has more than 16 tables.
        """
        self._tracing.start()
        self._pictures.begin()

    def stop(self) -> None:
        """Stop recording, and remove the layers."""
        self._pictures.end()
        if self._device:
            lib.fl_note_ended()
        self._tracing.stop()
        self._name_threads()

    @property
    def calls(self) -> list[TracedCall]:
        """The calls that have returned, in the order in which they began."""
        with self._lock:
            words = self._log.copy_words(self._read)
            self._read += len(words)
            if words:
                self._decoded += decode(words, self._layers)
                self._decoded.sort(key=lambda call: (call.begin, -call.end))
            return list(self._decoded)

    @property
    def commands(self) -> list[DeviceCommand]:
        """What devices did, in the order in which it began, as far as it has ended.

        It is empty without `device`.
        """
        calls = self.calls
        return read_commands(self._log.copy_words(0), self._layers, Names(calls), calls)

    def __len__(self) -> int:
        return len(self.calls)

    def __iter__(self) -> Iterator[TracedCall]:
        return iter(self.calls)

    def __getitem__(self, index: int) -> TracedCall:
        return self.calls[index]

    @property
    def lost(self) -> int:
        """The number of calls that were not recorded because the memory limit was reached."""
        return self._log.lost

    def summary(self) -> Summary:
        """Return how often each function was called, how often it failed, and how long it took."""
        return summarize(
            Span(call.name, call.thread, call.begin, call.end, call.failed) for call in self.calls
        )

    def _repr_html_(self) -> str:
        """Return the tables of functions and kernels for a notebook, and pictures of graphs."""
        events = list(make_device_events(self.commands, 0))
        graphs = (event["args"] for event in self._pictures.make_events(0))
        shown = format_sections(self.summary(), make_kernel_table(events), graphs)
        return shown or _NOTHING

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the calls as Chrome trace JSON, for ui.perfetto.dev or chrome://tracing.

        Raises:
            OSError: the file cannot be written.
        """
        self._name_threads()
        save_events(self._make_events(), path)

    def save_lines(self, path: str | os.PathLike[str], times: bool = False) -> None:
        """Write the calls as lines, in the order in which they began.

        Args:
            times: whether each line contains the duration.

        Raises:
            OSError: the file cannot be written.
        """
        calls = self.calls
        names = Names(calls)
        text = "".join(format_line(call, times, names) for call in calls)
        with replace_file(path) as stream:
            stream.write(text.encode())

    def _connect(self, layer: Layer, table: DispatchTable) -> None:
        self._layers.setdefault(layer.key, (table.api, table.label))
        is_opencl = table.api.name == APIS["cl"]
        if is_opencl and self._dump:
            dump_programs(table.api, self._dump)
        layer.log(self._log, self._device and is_opencl)

    def _name_threads(self) -> None:
        self._threads.update(
            (thread.native_id, thread.name) for thread in threading.enumerate() if thread.native_id
        )
        # Until Python 3.12 the only thread of a forked process has the number of its parent.
        self._threads[threading.get_native_id()] = threading.current_thread().name

    def _make_events(self) -> Iterator[dict[str, Any]]:
        calls, pid = self.calls, os.getpid()
        names = Names(calls)
        program = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] else "python"
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": pid, "args": {"name": program}}
        for thread in sorted({call.thread for call in calls}):
            name = self._threads.get(thread, f"thread {thread}")
            yield {
                "ph": "M",
                "name": "thread_name",
                "pid": pid,
                "tid": thread,
                "args": {"name": name},
            }
        yield from (make_chrome_event(call, pid, names) for call in calls)
        yield from make_device_events(self.commands, pid)
        yield from self._pictures.make_events(pid)


def save_events(events: Iterable[Mapping[str, Any]], path: str | os.PathLike[str]) -> None:
    """Write events as Chrome trace JSON, one a line, with counters of all queues in them.

    Raises:
        OSError: the file cannot be written.
    """
    events = [event for event in events if event["ph"] != "C"]  # a process has counted its own
    lines = ",\n".join(json.dumps(event) for event in (*events, *make_counter_events(events)))
    text = f'{{"displayTimeUnit": "ns", "traceEvents": [\n{lines}\n]}}\n'
    with replace_file(path) as stream:
        stream.write(text.encode())


def make_chrome_event(call: TracedCall, pid: int, names: Names) -> dict[str, Any]:
    """Return a call as an event of the Chrome trace format, with times in µs."""
    arguments = dict(names.format_arguments(call))
    for key, text in (("result", call.result_text), ("table", call.label)):
        if text:
            arguments[key] = text
    return {
        "ph": "X",
        "name": call.name,
        "cat": API_NAMES[call.api.name],
        "ts": call.begin / 1000,
        "dur": call.duration / 1000,
        "pid": pid,
        "tid": call.thread,
        "args": arguments,
    }


def format_line(call: TracedCall, times: bool = False, names: Names | None = None) -> str:
    """Return the printed line of a recorded call."""
    if call.api.name == "pi":
        return format_before(call) + format_after(call, times=times)
    return format_after(call, times=times, line=names.format_call if names else str).removeprefix(
        "<--- "
    )


@dataclass
class TracingLayers:
    """A layer in front of every table of `apis`, from `start` to `stop`.

    Tables at the same address share a layer, because there are only 16.

    Attributes:
        connect: connects a new layer with the log, or with the output.
        layers: API and address of a table to its layer.
        watched: the function that `watch` calls, None before `start` and after `stop`.
    """

    apis: frozenset[str]
    connect: Callable[[Layer, DispatchTable], None]
    tables: weakref.WeakKeyDictionary[DispatchTable, Layer] = field(
        default_factory=weakref.WeakKeyDictionary
    )
    layers: dict[tuple[Api, int], Layer] = field(default_factory=dict)
    watched: Callable[[DispatchTable], None] | None = None

    def start(self) -> None:
        self.watched = self._add_new
        watch(self.watched)
        try:
            for table in list_tables():
                self._add(table)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        with layers_lock:
            if self.watched is None:
                return
            unwatch(self.watched)
            self.watched = None
            for table, layer in list(self.tables.items()):
                table.remove(layer)
            for layer in self.layers.values():
                layer.release()

    def _add(self, table: DispatchTable) -> None:
        with layers_lock:
            if (
                API_NAMES.get(table.api.name) not in self.apis
                or table in self.tables
                or self.watched is None
            ):
                return
            key = table.api, table.top
            if key not in self.layers:
                self.layers[key] = layer = Layer(*key)
                self.connect(layer, table)
            table.push(self.layers[key])
            self.tables[table] = self.layers[key]

    def _add_new(self, table: DispatchTable) -> None:
        """Trace a new table. If no layer is free, the table works untraced."""
        try:
            self._add(table)
        except FairleadError as error:
            warn(f"the calls through {table!r} are not traced: {error.message}")


def _check_apis(apis: Iterable[str]) -> frozenset[str]:
    given = (apis,) if isinstance(apis, str) or not isinstance(apis, Iterable) else apis
    if unknown := [name for name in given if name not in tuple(APIS)]:
        raise FairleadError(
            f"{unknown[0]!r} is not an API that can be traced",
            remedy=f"choose from {', '.join(APIS)}",
        )
    return frozenset(given)
