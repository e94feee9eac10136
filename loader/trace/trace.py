"""Traces: every call through dispatch tables, kept in memory or printed as it happens.

How data goes through: `_Taps` puts a layer (layers.py) in front of every table of the chosen APIs, those that exist and those that are
made later. For a `Trace` the layers write into a log in C, which printing.py decodes when somebody asks; for the lines that the
environment asks for they call Python before and after each call. When a trace ends its layers are taken out: nothing is left to test.

    with fairlead.trace() as calls:
        ...
    print(calls.summary())
    calls.save("calls.json")  # for ui.perfetto.dev or chrome://tracing
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from ..base._native import ffi, lib
from ..base.abi import Api
from ..base.errors import FairleadError
from ..base.forks import in_child, new_lock
from ..base.layers import Layer, Log
from ..base.log import logger, put, trace_bits, warn
from ..base.search import secure_environ
from ..base.table import DispatchTable, layers_lock, live_tables, unwatch, watch
from .printing import TracedCall, decode, head, pieces, tail, unanswered
from .summary import Span, Summary, summary_of

#: The APIs that can be traced, and how their ABI data is called: this package does not know the one of OpenCL.
APIS: Final[Mapping[str, str]] = {"ur": "ur", "pi": "pi", "cl": "opencl"}

_STEMS: Final = {stem: name for name, stem in APIS.items()}


@contextmanager
def trace(apis: Iterable[str] = ("ur", "pi", "cl"), *, limit: int = 1 << 30) -> Iterator[Trace]:
    """Trace all calls through fairlead's tables in a block: Unified Runtime ("ur"), PI ("pi"), OpenCL ("cl").

    Calls of all threads are kept, in `limit` bytes of memory at most; `Trace.lost` counts what came later. Blocks may be nested.
    Raises FairleadError for another name, and when there are more tables than layers (16 of an API).
    """
    found = Trace(apis, limit)
    found.start()
    try:
        yield found
    finally:
        found.stop()


_traces: weakref.WeakSet[Trace] = weakref.WeakSet()


@in_child
def _forget_all() -> None:
    for trace in _traces:
        trace.forget()


class Trace:
    """The calls that were made while it was on: `calls`, or itself as a sequence of them. It can be read at any time, also while it
    is on."""

    def __init__(self, apis: Iterable[str] = tuple(APIS), limit: int = 1 << 30) -> None:
        self._log = Log(limit)
        self._layers: dict[int, tuple[Api, str]] = {}
        self._taps = _Taps(_known(apis), self._connect)
        self._lock = new_lock()
        self._decoded: list[TracedCall] = []
        self._read = 0  # words
        self._threads: dict[int, str] = {}
        weakref.finalize(self, self._log.clear).atexit = False
        _traces.add(self)

    def forget(self) -> None:
        """Give up what was read so far: a forked child begins with nothing."""
        self._decoded.clear()
        self._read = 0

    def start(self) -> None:
        """Begin: `trace` does it."""
        self._taps.start()

    def stop(self) -> None:
        """End: the tables are as they were before."""
        self._taps.stop()
        self._name_threads()

    @property
    def calls(self) -> list[TracedCall]:
        """The calls that have come back, in the order in which they began."""
        with self._lock:
            words = self._log.words(self._read)
            self._read += len(words)
            if words:
                self._decoded += decode(words, self._layers)
                self._decoded.sort(key=lambda call: (call.begin, -call.end))
            return list(self._decoded)

    def __len__(self) -> int:
        return len(self.calls)

    def __iter__(self) -> Iterator[TracedCall]:
        return iter(self.calls)

    def __getitem__(self, index: int) -> TracedCall:
        return self.calls[index]

    @property
    def lost(self) -> int:
        """The number of calls for which there was no room."""
        return self._log.lost

    def summary(self) -> Summary:
        """How often each function was called, how often it failed, and what time it took."""
        return summary_of(
            Span(call.name, call.thread, call.begin, call.end, call.failed) for call in self.calls
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the calls as Chrome trace JSON, which ui.perfetto.dev and chrome://tracing show. Raises OSError."""
        self._name_threads()
        save_events(self._events(), path)

    def save_lines(self, path: str | os.PathLike[str], times: bool = False) -> None:
        """Write the calls as lines, in the order in which they began; with how long each took if `times`. Raises OSError."""
        Path(path).write_text("".join(line(call, times) for call in self.calls), encoding="utf-8")

    def _connect(self, layer: Layer, table: DispatchTable) -> None:
        self._layers.setdefault(layer.key, (table.api, table.label))
        layer.log(self._log)

    def _name_threads(self) -> None:
        self._threads.update(
            (thread.native_id, thread.name) for thread in threading.enumerate() if thread.native_id
        )

    def _events(self) -> Iterator[dict[str, Any]]:
        calls, pid = self.calls, os.getpid()
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
        yield from (event(call, pid) for call in calls)


def save_events(events: Iterable[Mapping[str, Any]], path: str | os.PathLike[str]) -> None:
    """Write events as Chrome trace JSON, one a line. Raises OSError."""
    lines = ",\n".join(json.dumps(event) for event in events)
    Path(path).write_text(
        f'{{"displayTimeUnit": "ns", "traceEvents": [\n{lines}\n]}}\n', encoding="utf-8"
    )


def event(call: TracedCall, pid: int) -> dict[str, Any]:
    """A call as the Chrome trace format has it; times in microseconds."""
    arguments = dict(call.arguments_text())
    for key, text in (("result", call.result_text), ("table", call.label)):
        if text:
            arguments[key] = text
    return {
        "ph": "X",
        "name": call.name,
        "cat": _STEMS[call.api.path.stem],
        "ts": call.begin / 1000,
        "dur": call.duration / 1000,
        "pid": pid,
        "tid": call.thread,
        "args": arguments,
    }


def line(call: TracedCall, times: bool = False) -> str:
    """A call that was recorded, as it would have been printed."""
    if call.api.path.stem == "pi":
        return head(call) + tail(call, times=times)
    return tail(call, times=times).removeprefix("<--- ")


def look(layer: Layer, slot: int, arguments: Sequence[int]) -> dict[int, bytes]:
    """What the arguments of a call through `layer` lead to now, as `TracedCall.pieces` has it."""
    given, into = ffi.new("uint64_t[]", list(arguments)), ffi.new("uint64_t[]", lib.FL_LOOK)
    words = lib.fl_look(layer.pointer, slot, given, len(arguments), into)
    return pieces(memoryview(ffi.buffer(into, 8 * words)[:]).cast("Q"))


def follow_environment(environ: Mapping[str, str] | None = None) -> None:
    """Start the traces that the environment asks for; table.py calls it before the first table is told of.

    SYCL_UR_TRACE and SYCL_PI_TRACE (bit 2, or -1) print Unified Runtime calls to stdout, SYCL_PI_TRACE those of PI too;
    UR_ENABLE_LAYERS with UR_LAYER_TRACING prints them where UR_LOG_TRACING says. FAIRLEAD_TRACE is a comma list of ur, pi, cl and
    "times": lines on stderr or, with FAIRLEAD_TRACE_FILE, a file at the end of the process ("%p" in its name is the process id; Chrome
    trace JSON if it ends in .json). Nothing here raises: what cannot be done is a warning line.
    """
    environ = secure_environ(environ)
    sinks = _sinks(environ)
    words = [word.strip() for word in environ.get("FAIRLEAD_TRACE", "").split(",") if word.strip()]
    for word in words:
        if word not in APIS and word != "times":
            warn(
                f"FAIRLEAD_TRACE has the element {word!r}, which is ignored: it is a comma list of {', '.join(APIS)} and times"
            )
    apis, times, path = (
        [word for word in APIS if word in words],
        "times" in words,
        environ.get("FAIRLEAD_TRACE_FILE", ""),
    )
    if apis and path:
        _record(apis, path, times)
    for name in apis if not path else ():
        sinks.setdefault(name, []).append(_Sink(_to_stderr, times=times))
    if sinks:
        _start(
            _Taps(
                frozenset(sinks),
                lambda layer, table: _print_calls(layer, table, sinks[_STEMS[table.api.path.stem]]),
            )
        )


@dataclass(frozen=True)
class _Sink:
    """Where lines go, and how they look."""

    write: Callable[[str], None]
    indent: str = ""
    times: bool = False


@dataclass
class _Taps:
    """A layer in front of every table of `apis`, from `start` to `stop`; `connect` says what the layer does with the calls.

    Tables at the same address share a layer: there are only 16.
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
            for table in live_tables():
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
                _STEMS.get(table.api.path.stem) not in self.apis
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
        """A table that is being made works also when there is no layer for it."""
        try:
            self._add(table)
        except FairleadError as error:
            warn(f"the calls through {table!r} are not traced: {error.message}")


def _known(apis: Iterable[str]) -> frozenset[str]:
    names = frozenset((apis,) if isinstance(apis, str) else apis)
    if unknown := sorted(names - set(APIS)):
        raise FairleadError(
            f"{unknown[0]!r} is no API that can be traced", remedy=f"choose from {', '.join(APIS)}"
        )
    return names


def _print_calls(layer: Layer, table: DispatchTable, sinks: Sequence[_Sink]) -> None:
    """Print the calls through a layer. What began before, or ends after, is printed by halves."""
    api, label, begun = table.api, table.label, threading.local()

    def before(slot: int, arguments: Sequence[int]) -> None:
        call = unanswered(api, slot, arguments, label)
        for sink in sinks:
            sink.write(head(call, sink.indent))
        begun.times = [*getattr(begun, "times", ()), time.monotonic_ns()]

    def after(slot: int, arguments: Sequence[int], result: int) -> None:
        end, times = time.monotonic_ns(), getattr(begun, "times", None)
        begin = times.pop() if times else end
        call = unanswered(api, slot, arguments, label, threading.get_native_id(), begin)
        call = replace(call, end=end, result=result, pieces=look(layer, slot, arguments))
        for sink in sinks:
            sink.write(tail(call, sink.indent, sink.times))

    layer.handle(before, after)


def _sinks(environ: Mapping[str, str]) -> dict[str, list[_Sink]]:
    """What the variables of other loaders ask for: API → where its lines go."""
    sinks: dict[str, list[_Sink]] = {}
    ur, pi = (bool(trace_bits(name, environ) & 2) for name in ("SYCL_UR_TRACE", "SYCL_PI_TRACE"))
    if ur or pi:
        sinks["ur"] = [_Sink(_to_stdout, "   ")]
    if pi:
        sinks["pi"] = [_Sink(_to_stdout)]
    if "UR_LAYER_TRACING" in (
        name.strip() for name in environ.get("UR_ENABLE_LAYERS", "").split(",")
    ):
        lines = logger("TRACING", default="info")  # who asks for the layer wants the lines
        sinks.setdefault("ur", []).append(_Sink(lambda text: lines.write("info", text), "   "))
    return sinks


def _record(apis: Sequence[str], path: str, times: bool) -> None:
    """Keep the calls of the whole process, and save them when it ends."""
    found, owner = Trace(apis), os.getpid()

    def save() -> None:
        if os.getpid() != owner and "%p" not in path:
            return  # a forked child has no file of its own
        where = path.replace("%p", str(os.getpid()))
        try:
            if where.endswith(".json"):
                found.save(where)
            else:
                found.save_lines(where, times)
        except OSError as error:
            warn(
                f"the trace cannot be written to {where}, which FAIRLEAD_TRACE_FILE names: {error.strerror}"
            )

    _start(found)
    atexit.register(save)


def _start(taps: _Taps | Trace) -> None:
    try:
        taps.start()
    except FairleadError as error:
        warn(f"the environment asks for a trace, which is not possible: {error.message}")


def _to_stdout(text: str) -> None:
    put(sys.stdout, text)


def _to_stderr(text: str) -> None:
    put(sys.stderr, text)
