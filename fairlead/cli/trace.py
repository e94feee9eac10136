"""`fairlead trace`: runs a command, and gathers the calls that its processes made into one trace.

Variables in the command's environment make fairlead (`loader.trace`) and the OpenCL layer
(`icd.trace_layer`) record calls. Each of its processes writes files into a temporary folder.
`gather` makes events of the Chrome trace format of them, and `summarize_events` counts the events.
Without an output file the calls are printed as they happen. Those that only the layer saw are
printed at the end.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..icd import trace_layer
from ..loader.base.errors import FairleadError
from ..loader.base.files import replace_file
from ..loader.trace.device import make_device_events, make_kernel_table
from ..loader.trace.environment import Wanted
from ..loader.trace.summary import Span, Summary, summarize
from ..loader.trace.trace import format_line, make_chrome_event, save_events
from .execution import SIGNALLED, execute
from .output import count_things, say
from .trace_page import make_page

if TYPE_CHECKING:
    from ..loader.trace.names import Names
    from ..loader.trace.printing import TracedCall

_OTHER_PLACE: Final = "name another one with -o, --perfetto, --html or --dump"

NOTHING: Final = """\
no call was traced, and no trace was written. Traced are
  - OpenCL calls of any program whose libOpenCL loads layers: the Khronos loader, or ocl-icd 2.3 or
    later. Not those of a program that is linked with its driver, or that is set-uid;
  - Unified Runtime, PI and OpenCL calls that Python programs make through fairlead.
A program whose libOpenCL loads no layers or finds no driver can take fairlead's:
fairlead trace -- fairlead run -- PROGRAM.
A DPC++ program calls Unified Runtime through its own loader. With `fairlead trace --sycl` that
loader prints its calls to stdout."""


@dataclass
class Gathered:
    """What the processes recorded.

    Attributes:
        events: all calls, as events of the Chrome trace format.
        calls: the calls that only the layer saw, and the names of their objects.
        warnings: a sentence for each file that cannot be used.
    """

    events: list[dict[str, Any]] = field(default_factory=list)
    calls: list[tuple[TracedCall, Names]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def processes(self) -> int:
        """The number of processes that made calls."""
        return len({event["pid"] for event in self.events if event["ph"] == "X"})


def run(
    command: Sequence[str],
    apis: Sequence[str],
    output: Path | None,
    times: bool = False,
    sycl: bool = False,
    device: bool = False,
    wanted: Wanted | None = None,
    html: Path | None = None,
    dump: Path | None = None,
) -> int:
    """Run a command and trace it, and return the exit code for the shell.

    Args:
        apis: what to trace: "ur", "pi", "cl", "ze".
        output: the file to write; None prints the calls to stderr as they happen.
        times: print durations, too.
        sycl: have a real DPC++ runtime print its calls to stdout as well.
        device: say what devices did, too.
        wanted: which calls are shown, None for all.
        html: the file for a page of it, None for none.
        dump: the folder for sources and build logs of programs, None for none.

    Raises:
        CommandError: the command cannot be run.
        FairleadError: the trace cannot be written; that is found before the run if possible.
    """
    wanted = wanted or Wanted()
    for file in filter(None, (output, html)):
        _check_writable(file)
    if dump:
        with _convert_write_errors(dump):
            dump.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fairlead-trace-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        added = make_environment(
            os.environ,
            folder,
            apis,
            record=bool(output or html),
            times=times,
            sycl=sycl,
            device=device,
            wanted=wanted,
        )
        if dump:
            added["FAIRLEAD_TRACE_DUMP"] = str(dump.resolve())
        code = execute(command, {**os.environ, **added})
        found = gather(folder)
    for warning in found.warnings:
        say(f"warning: {warning}")
    if not (output or html):
        sys.stderr.write(
            "".join(
                format_line(call, times, names)
                for call, names in found.calls
                if wanted.includes(call.name) and (call.failed or not wanted.errors)
            )
        )
    elif not found.processes:
        say(NOTHING + _describe_signal(code))
    else:
        everything, kernels = found.events, make_kernel_table(found.events)
        who = f"{count_things(found.processes, 'process', 'es')} traced, see"
        found.events = [event for event in everything if _is_wanted(event, wanted)]
        if output:
            _save(found.events, output)
            say(f"{who} {output} in ui.perfetto.dev or chrome://tracing")
        if html:
            title = f"Trace of {shlex.join(command)}"
            with _convert_write_errors(html):
                text = make_page(
                    title, found.events, summarize_events(found.events), kernels, has_failed
                )
                with replace_file(html) as stream:
                    stream.write(text.encode(errors="replace"))
            say(f"{who} {html} in a browser")
        sys.stderr.write(f"{summarize_events(found.events)}\n")
        if device and kernels:
            sys.stderr.write(f"\n{kernels}\n")
    return code


def _is_wanted(event: Mapping[str, Any], wanted: Wanted) -> bool:
    """Whether an event is a call that is wanted, or no call."""
    if event["ph"] != "X" or event.get("cat") == "device":
        return True
    return wanted.includes(event["name"]) and (has_failed(event) or not wanted.errors)


def make_environment(
    environ: Mapping[str, str],
    folder: Path,
    apis: Sequence[str],
    *,
    record: bool,
    times: bool = False,
    sycl: bool = False,
    device: bool = False,
    wanted: Wanted | None = None,
) -> dict[str, str]:
    """Return the variables to add for a traced command.

    Args:
        folder: where its processes write their files.
        apis: what to trace: "ur", "pi", "cl", "ze".
        record: write files; otherwise its processes print calls.
        times: print durations, too.
        sycl: have a real DPC++ runtime print its calls.
        device: say what devices did, too.
        wanted: which calls are printed, None for all.
    """
    names = [
        *apis,
        *(["times"] if times else []),
        *(["errors"] if wanted and wanted.errors else []),
    ]
    added = {"FAIRLEAD_TRACE": ",".join(names), "FAIRLEAD_TRACE_FILE": ""}
    if wanted and wanted.patterns:
        added["FAIRLEAD_TRACE_ONLY"] = ",".join(wanted.patterns)
    if device:
        added["FAIRLEAD_TRACE_DEVICE"] = "1"
    if record:
        added["FAIRLEAD_TRACE_FILE"] = str(folder / "%p.json")
    if "cl" in apis:
        added |= trace_layer.make_environment(environ, folder, device)
    if sycl:
        added |= {"SYCL_UR_TRACE": "2", "SYCL_PI_TRACE": "2"}
    return added


def gather(folder: Path) -> Gathered:
    """Return what the processes of a traced command left in `folder`."""
    found = Gathered()
    for path in sorted(folder.glob("*.json")):
        try:
            found.events += json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
        except (OSError, ValueError, KeyError, TypeError):
            found.warnings.append(f"the trace of process {path.stem} is not complete, and left out")
    # Not `event`: in the next list Python 3.12.1 takes that for the variable of this set.
    named = {one["pid"] for one in found.events if one["ph"] == "M"}
    threads = {(one["pid"], one["tid"]) for one in found.events if one["name"] == "thread_name"}
    for process in trace_layer.read_processes(folder):
        if process.calls and process.pid not in named:
            who = {"name": process.name}
            found.events.append(
                {
                    "ph": "M",
                    "name": "process_name",
                    "pid": process.pid,
                    "tid": process.pid,
                    "args": who,
                }
            )
        found.events += [
            {
                "ph": "M",
                "name": "thread_name",
                "pid": process.pid,
                "tid": thread,
                "args": {"name": name},
            }
            for thread, name in process.threads.items()
            if (process.pid, thread) not in threads
        ]
        found.events += [
            make_chrome_event(call, process.pid, process.names) for call in process.calls
        ]
        found.events += make_device_events(process.commands, process.pid)
        found.calls += [(call, process.names) for call in process.calls]
    return found


def summarize_events(events: Sequence[Mapping[str, Any]]) -> Summary:
    """Return how often each function was called by all processes, how often it failed, and its
    time."""
    calls = (one for one in events if one["ph"] == "X" and one.get("cat") != "device")
    return summarize(map(_make_span, calls))


def _make_span(event: Mapping[str, Any]) -> Span:
    begin, took = round(1000 * event["ts"]), round(1000 * event["dur"])
    return Span(event["name"], (event["pid"], event["tid"]), begin, begin + took, has_failed(event))


def has_failed(event: Mapping[str, Any]) -> bool:
    """As `TracedCall.failed`: an error code, or NULL where an object was wanted."""
    result = event["args"].get("result", "")
    return result == "nullptr" or bool(re.fullmatch(r"-\d+|(?!\w+_SUCCESS$)(UR|PI|CL)_\w+", result))


def _check_writable(output: Path) -> None:
    """Raise FairleadError before the run if the trace cannot be written."""
    place = output if output.exists() else output.parent
    if output.is_dir() or not os.access(place, os.W_OK):
        raise FairleadError(f"the trace cannot be written to {output}", remedy=_OTHER_PLACE)


def _save(events: Sequence[Mapping[str, Any]], output: Path) -> None:
    with _convert_write_errors(output):
        save_events(events, output)


@contextmanager
def _convert_write_errors(output: Path) -> Iterator[None]:
    """Raise FairleadError if a file cannot be written."""
    try:
        yield
    except OSError as error:
        raise FairleadError(
            f"the trace cannot be written to {output}: {error.strerror}", remedy=_OTHER_PLACE
        ) from None


def _describe_signal(code: int) -> str:
    """Return a sentence about a command that a signal has ended, which then cannot write its
    trace."""
    number = code - SIGNALLED
    return (
        f"\nThe command was ended by {signal.Signals(number).name}."
        if number in set(signal.Signals)
        else ""
    )
