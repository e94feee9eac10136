"""Runs the cases for a library in child processes, and survives what the library does to them.

>>> report = run("/usr/lib/libur_adapter_opencl.so.0", environment=make_nested_environment())
>>> print(render(report))

A child writes a line before and after each case. If it crashes, or is silent for longer than a case
may take, the running case has failed. A new child continues with the remaining cases. The first
child that crashes leaves the running case to the next one, because another case may be to blame.
Cases that are beyond the specification come last, in children of their own, because they may
corrupt memory.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, Any, Final

from fairlead.loader.base.children import describe_exit
from fairlead.loader.base.errors import FairleadError
from fairlead.loader.base.forked import ForkedChild, may_fork
from fairlead.loader.base.processes import TimeLimit
from fairlead.loader.base.registered import Registered, list_registered
from fairlead.loader.ur.preview import examine_file

from .child import ENDING, OPENING, SuiteRequest, find_files, run_request
from .device import UsageError
from .report import Case, SuiteReport

#: After so many children that crashed or hung, the remaining cases are not run.
_MOST_CRASHES: Final = 60
#: Seconds that a child may take to start: Python, the suite, a driver's compiler.
_START: Final = 60.0
_CHILD: Final = """
import sys
sys.path[:] = sys.argv[3:]
from fairlead.conformance.child import run_request
run_request(int(sys.argv[1]), int(sys.argv[2]), sys.stdin.read())
"""

#: Called with each case when it is over.
Progress = Callable[[Case], None]


def find_interface(library: str) -> str:
    """Return the interface of a file, from its symbols.

    Returns:
        "ur", "pi", "ze" or "opencl".

    Raises:
        FairleadError: the suite has no cases for this file.
    """
    seen = examine_file(library)
    if seen.interface and not seen.reason:
        return seen.interface.lower()
    if "zeGetGlobalProcAddrTable" in seen.exports and "zelLoaderGetVersions" not in seen.exports:
        return "ze"
    if {
        "clGetExtensionFunctionAddress",
        "clIcdGetPlatformIDsKHR",
        "clGetPlatformIDs",
    } & seen.exports and not seen.is_loader:
        return "opencl"
    raise FairleadError(
        f"{library}: {seen.reason}",
        remedy=(
            "name a Unified Runtime adapter, a PI plugin, a Level Zero driver, or an OpenCL "
            "driver: the library itself, which `fairlead doctor` lists, and no .icd file"
        ),
    )


def find_suite(name: str) -> Registered:
    """Return a suite that a package registers in the group `fairlead.suites`.

    The suite of an interface has its name.

    Raises:
        UsageError: there is no such suite.
    """
    known = {one.name: one for one in list_registered("fairlead.suites")}
    if name not in known:
        remedy = f"name one of {', '.join(known)}, or install the package that has it"
        again = "install fairlead again: its metadata has no suites"
        raise UsageError(
            f"there is no conformance suite {name!r}", remedy=remedy if known else again
        )
    return known[name]


def list_areas(suite: Registered) -> list[str]:
    """Import the package of a suite, and return the areas that it has cases for.

    Raises:
        FairleadError: it cannot be imported, or has no cases.
    """
    areas = sorted(find_files(suite.load()))
    if not areas:
        remedy = "register NAME=PACKAGE, a package with fixtures.py and test_….py"
        raise suite.refuse("has no cases", remedy)
    return areas


def run(
    library: str,
    *,
    suite: str = "",
    area: str | Sequence[str] = "",
    device: str = "",
    timeout: float = 20.0,
    environment: Mapping[str, str] | None = None,
    progress: Progress = lambda case: None,
) -> SuiteReport:
    """Run the cases on a library, in child processes.

    Args:
        suite: the name of a suite. "" is the one of the library's interface.
        area: run the cases of one area only, or of several. "" means all.
        device: the device to test: its number, or a device selector's term. "" is the first one.
        timeout: seconds that a case may take.
        environment: variables for the children, in addition to this process's.
        progress: called with each case when it is over.

    Raises:
        UsageError: there is no such suite, area or device.
        FairleadError: the suite's package cannot be imported.
    """
    path = os.path.abspath(library)
    report = SuiteReport(path, suite or find_interface(path))
    found = find_suite(report.interface)
    known = list_areas(found)
    areas = ((area,) if area else ()) if isinstance(area, str) else tuple(area)
    for name in areas:
        if name not in known:
            raise UsageError(
                f"there is no area {name!r} for this library",
                remedy=f"name one of {', '.join(known)}",
            )
    begun = time.monotonic()
    for beyond in (False, True):
        request = SuiteRequest(path, found.module, device, areas, beyond, timeout=timeout)
        cases_beyond = _run_all(report, request, {**os.environ, **(environment or {})}, progress)
        if report.trouble or not cases_beyond:
            break
    report.seconds = time.monotonic() - begun
    return report


def _run_all(
    report: SuiteReport, request: SuiteRequest, environ: Mapping[str, str], progress: Progress
) -> int:
    """Run children until no case of the request remains.

    Returns how many cases are beyond the specification.
    """
    for number in range(_MOST_CRASHES):
        done = tuple(case.name for case in report.cases)
        child = _SuiteChild(dataclasses.replace(request, done=done, forks=number > 0), environ)
        for case in child.cases():
            if case.name not in done:  # every child opens the library
                report.cases.append(case)
                progress(case)
        report.facts.update(child.facts)
        report.left, report.trouble = child.left, child.trouble
        if child.finished or child.trouble:
            return child.beyond
    report.trouble = f"the library has crashed or hung {_MOST_CRASHES} times"
    return 0


@dataclass
class _SuiteChild:
    """A child process.

    `cases` yields its finished cases; the other attributes are known after that.
    """

    request: SuiteRequest
    environ: Mapping[str, str]
    facts: dict[str, str] = field(default_factory=dict)
    left: int = 0
    beyond: int = 0
    trouble: str = ""
    finished: bool = False
    running: Case | None = None
    any_began: bool = False
    hung: bool = False

    def cases(self) -> Iterator[Case]:
        """Start the process and read its lines to the end."""
        with (
            tempfile.TemporaryFile() as printed,
            _run_process(self.request, self.environ, printed) as (process, pipe),
        ):
            try:
                for line in _read_lines(
                    pipe,
                    lambda: TimeLimit(
                        process.pid, self.request.timeout if self.any_began else _START
                    ),
                ):
                    yield from self._take(line)
            except TimeoutError:
                self.hung = True
                _kill(process)
            code = process.wait()
            got = describe_exit(code) if code else ""
            if self.hung:
                got = f"it hung for {self.request.timeout:g} s"
            yield from self._judge_end(got, printed)

    def _take(self, line: Mapping[str, Any]) -> Iterator[Case]:
        """Read one line. Yields the case that it ends."""
        if "usage" in line:
            raise UsageError(**line["usage"])
        self.left = line.get("collected", self.left)
        self.beyond = line.get("beyond", self.beyond)
        self.facts.update(line.get("facts", {}))
        self.trouble = self.trouble or line.get("trouble", "")
        self.finished = line.get("finished", False)
        if "begin" in line:
            self.running = Case(**line["begin"])
            self.any_began |= self.running.name != OPENING.name
        if "end" in line and self.running:
            case, self.running = dataclasses.replace(self.running, **line["end"]), None
            if case.name != OPENING.name:
                self.left -= 1
            elif case.outcome != "passed":
                self.trouble = case.got
            yield case

    def _judge_end(self, got: str, printed: IO[bytes]) -> Iterator[Case]:
        """Interpret the end of the process, for the case that was running or for the whole run."""
        if self.running is None:
            if not self.finished and not self.trouble:
                end = got or "it ended the process"
                self.trouble = f"{end} while no case was running{_quote_printed(printed)}"
            return
        if self.running.name == ENDING.name:
            ok, self.finished = self.finished and not got, True
            if not ok or not (self.request.beyond or self.request.areas):
                yield dataclasses.replace(
                    self.running,
                    outcome="passed" if ok else "failed",
                    got=got,
                    beyond=self.request.beyond,
                )
            return
        got = got or "it ended the process"
        if self.running.name == OPENING.name:
            self.trouble = f"{got} while it was opened{_quote_printed(printed)}"
        elif not self.request.forks and not self.hung:
            return  # an earlier case may be to blame: the next child runs this one again
        else:
            self.left -= 1
        yield dataclasses.replace(self.running, outcome="failed", expected="an answer", got=got)


@contextmanager
def _run_process(
    request: SuiteRequest, environ: Mapping[str, str], printed: IO[bytes]
) -> Iterator[tuple[ForkedChild | subprocess.Popen[bytes], int]]:
    """Start a child. Yields it and the pipe of its lines; at the end the child is dead."""
    reader, writer = os.pipe()
    process = None
    text = json.dumps(dataclasses.asdict(request))
    try:
        try:
            process = _start(text, environ, printed.fileno(), writer)
        finally:
            os.close(writer)
        yield process, reader
    finally:
        os.close(reader)
        if process:
            _kill(process)
            process.wait()


def _kill(process: ForkedChild | subprocess.Popen[bytes]) -> None:
    """Kill a child and what it has started."""
    # A fork may have no group of its own yet. A number that was waited for may be another's by now.
    for stop in (os.killpg, os.kill) if process.poll() is None else (os.killpg,):
        with suppress(OSError):
            stop(process.pid, signal.SIGKILL)


def _start(
    request: str, environ: Mapping[str, str], printed: int, writer: int
) -> ForkedChild | subprocess.Popen[bytes]:
    """Start a process that runs a request, writes lines to `writer`, and prints to `printed`."""
    if may_fork():
        parent = os.getpid()
        work = functools.partial(run_request, writer, parent, request)
        return ForkedChild(work, environ, printed, writer)
    process = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(writer), str(os.getpid()), *sys.path],
        stdin=subprocess.PIPE,
        stdout=printed,
        stderr=printed,
        pass_fds=(writer,),
        start_new_session=True,
        env=dict(environ),
    )
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin as stream:
        stream.write(request.encode())
    return process


def _read_lines(pipe: int, begin: Callable[[], TimeLimit]) -> Iterator[dict[str, Any]]:
    """Yield the lines of a pipe. `begin` begins a limit for the next one; TimeoutError: it is
    over."""
    rest = b""
    while True:
        if not begin().wait_for(pipe):
            raise TimeoutError
        data = os.read(pipe, 1 << 16)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        yield from map(json.loads, lines)


def _quote_printed(file: IO[bytes]) -> str:
    """Return the last line that a child printed, for a message."""
    file.seek(0)
    lines = [
        line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()
    ]
    return f"; the last it printed was: {lines[-1][:300]}" if lines else ""
