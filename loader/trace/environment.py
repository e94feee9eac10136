"""Starts the traces that environment variables ask for (`follow_environment`)."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from ..base._native import ffi, lib
from ..base.ends import call_at_end
from ..base.errors import FairleadError
from ..base.layers import Layer
from ..base.log import get_logger, put, read_trace_bits, warn
from ..base.search import filter_environ
from ..base.table import DispatchTable
from .names import Names
from .printing import format_after, format_before, make_running_call, split_pieces
from .trace import API_NAMES, APIS, Trace, TracingLayers


def read_pieces(layer: Layer, slot: int, arguments: Sequence[int]) -> dict[int, bytes]:
    """Read the memory behind the arguments of a call through `layer`, as `TracedCall.pieces`."""
    given, into = ffi.new("uint64_t[]", list(arguments)), ffi.new("uint64_t[]", lib.FL_LOOK)
    words = lib.fl_look(layer.pointer, slot, given, len(arguments), into)
    return split_pieces(memoryview(ffi.buffer(into, 8 * words)[:]).cast("Q"))


def follow_environment(environ: Mapping[str, str] | None = None) -> None:
    """Start the traces that the environment asks for. Problems are warning lines, never errors.

    SYCL_UR_TRACE and SYCL_PI_TRACE (bit 2, or -1) print Unified Runtime calls to stdout.
    SYCL_PI_TRACE also prints PI calls. UR_LAYER_TRACING in UR_ENABLE_LAYERS prints Unified Runtime
    calls as UR_LOG_TRACING says.

    ZE_ENABLE_TRACING_LAYER=1 prints Level Zero calls to stderr.

    FAIRLEAD_TRACE is a comma list of ur, pi, cl, ze, cuda, hip, "times" and "errors". It prints
    lines to stderr; with "errors" only those of calls that failed. FAIRLEAD_TRACE_ONLY is a comma
    list of patterns for the names of the functions that are printed.

    With FAIRLEAD_TRACE_FILE, a file is written at the end of the process instead. "%p" in its name
    is the process id. A name that ends in .json gives Chrome trace JSON. With
    FAIRLEAD_TRACE_DEVICE it also says what devices did. With FAIRLEAD_TRACE_DUMP, a folder, the
    sources and build logs of OpenCL programs are written there.

    Args:
        environ: the environment, `os.environ` by default.
    """
    environ = filter_environ(environ)
    outputs = _read_outputs(environ)
    words = [word.strip() for word in environ.get("FAIRLEAD_TRACE", "").split(",") if word.strip()]
    for word in words:
        if word not in (*APIS, "times", "errors"):
            warn(
                f"FAIRLEAD_TRACE has the element {word!r}, which is ignored: it is a comma list of "
                f"{', '.join(APIS)}, times and errors"
            )
    apis, times = [word for word in APIS if word in words], "times" in words
    path = environ.get("FAIRLEAD_TRACE_FILE", "")
    if apis and path:
        device, dump = environ.get("FAIRLEAD_TRACE_DEVICE"), environ.get("FAIRLEAD_TRACE_DUMP", "")
        _record_process(Trace(apis, device=bool(device), dump=dump), path, times)
    for name in apis if not path else ():
        wanted = Wanted.from_patterns(environ.get("FAIRLEAD_TRACE_ONLY", ""), "errors" in words)
        outputs.setdefault(name, []).append(_Output(_print_to_stderr, times=times, wanted=wanted))
    if outputs:
        _start(
            TracingLayers(
                frozenset(outputs),
                lambda layer, table: _print_calls(layer, table, outputs[API_NAMES[table.api.name]]),
            )
        )


@dataclass(frozen=True)
class Wanted:
    """Which calls are shown.

    Attributes:
        patterns: for their names, as of a shell; none means all.
        errors: whether only those that failed.
    """

    patterns: tuple[str, ...] = ()
    errors: bool = False

    @classmethod
    def from_patterns(cls, patterns: str, errors: bool = False) -> Wanted:
        """Make one of a comma list of patterns."""
        return cls(tuple(filter(None, map(str.strip, patterns.split(",")))), errors)

    def includes(self, name: str) -> bool:
        """Whether calls of a function are shown."""
        return not self.patterns or any(fnmatchcase(name, one) for one in self.patterns)


@dataclass(frozen=True)
class _Output:
    """Where lines are printed, and their format."""

    write: Callable[[str], None]
    indent: str = ""
    times: bool = False
    wanted: Wanted = Wanted()


def _print_calls(layer: Layer, table: DispatchTable, outputs: Sequence[_Output]) -> None:
    """Print the calls through a layer.

    Calls that run when the trace starts or stops are printed only in part.
    """
    api, label, begun, names = table.api, table.label, threading.local(), Names()

    def before(slot: int, arguments: Sequence[int]) -> None:
        call = make_running_call(api, slot, arguments, label)
        for output in outputs:
            if not output.wanted.errors and output.wanted.includes(call.name):
                output.write(format_before(call, output.indent))
        begun.times = [*getattr(begun, "times", ()), time.monotonic_ns()]

    def after(slot: int, arguments: Sequence[int], result: int) -> None:
        end, times = time.monotonic_ns(), getattr(begun, "times", None)
        begin = times.pop() if times else end
        call = make_running_call(api, slot, arguments, label, threading.get_native_id(), begin)
        call = replace(call, end=end, result=result, pieces=read_pieces(layer, slot, arguments))
        names.learn(call)
        for output in outputs:
            if output.wanted.includes(call.name) and (call.failed or not output.wanted.errors):
                output.write(format_after(call, output.indent, output.times, names.format_call))

    layer.handle(before, after)


def _read_outputs(environ: Mapping[str, str]) -> dict[str, list[_Output]]:
    """Return the outputs that the variables of other loaders ask for, by API."""
    outputs: dict[str, list[_Output]] = {}
    ur = read_trace_bits("SYCL_UR_TRACE", environ) & 2
    pi = read_trace_bits("SYCL_PI_TRACE", environ) & 2
    if ur or pi:
        outputs["ur"] = [_Output(_print_to_stdout, "   ")]
    if pi:
        outputs["pi"] = [_Output(_print_to_stdout)]
    names = environ.get("UR_ENABLE_LAYERS", "").split(",")
    if "UR_LAYER_TRACING" in map(str.strip, names):
        # Its lines are printed unless UR_LOG_TRACING says otherwise.
        lines = get_logger("TRACING", default="info")
        outputs.setdefault("ur", []).append(_Output(lambda text: lines.write("info", text), "   "))
    if environ.get("ZE_ENABLE_TRACING_LAYER") == "1":
        outputs["ze"] = [_Output(_print_to_stderr)]
    return outputs


def _record_process(found: Trace, path: str, times: bool) -> None:
    """Record the calls of the whole process, and save them when it ends."""
    owner = os.getpid()

    def save() -> None:
        if os.getpid() != owner and "%p" not in path:
            return  # a forked child has no file name of its own
        where = path.replace("%p", str(os.getpid()))
        try:
            if where.endswith(".json"):
                found.save(where)
            else:
                found.save_lines(where, times)
        except OSError as error:
            warn(
                f"the trace cannot be written to {where}, which FAIRLEAD_TRACE_FILE names: "
                f"{error.strerror}"
            )

    _start(found)
    call_at_end("traces")(save)


def _start(tracing: TracingLayers | Trace) -> None:
    try:
        tracing.start()
    except FairleadError as error:
        warn(f"the environment asks for a trace, which is not possible: {error.message}")


def _print_to_stdout(text: str) -> None:
    put(sys.stdout, text)


def _print_to_stderr(text: str) -> None:
    put(sys.stderr, text)
