"""Runs functions in child processes. A library that crashes or hangs does not harm the caller.

To use it, write a module with `main(data, progress)`. The child calls it with the request's data.
`main` calls `progress("opening the library")` before each risky step, and returns its report. Data
and report must be what JSON can express. Then call
`run_all([Request("fairlead.loader.ur.plugin_probe", data), ...])`. It returns an `Outcome` for each
request, in their order.

`run_all` starts as many children at once as there are cores: new Pythons, or forks of this process
where forked.py allows that. Each writes steps and report as lines of JSON to a pipe of its own;
what the library prints goes elsewhere. The parent reads until the child ends, or until its time
(FAIRLEAD_PROBE_TIMEOUT, 20 s) is over. Time in which the child waits for a core does not count:
else a driver would be refused on a busy machine, and the refusal be remembered for minutes.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from .errors import FairleadError, LibraryError, explain_error
from .forked import ForkedChild, may_fork
from .frozen_value import Value
from .processes import TimeLimit, count_cores, tie_to_parent
from .query import escape_text
from .search import Candidate, filter_environ
from .table import TRACE_VARIABLES

if TYPE_CHECKING:
    import subprocess

DEFAULT_TIMEOUT: Final = 20.0
_REMEDY: Final = "update or reinstall it; FAIRLEAD_PROBE=0 opens it all the same"
_KEPT: Final = {"answer": 1 << 22, "printed": 4096}  # of each pipe so many bytes, the last ones
_LONGEST_WORK: Final = 1.0  # seconds
_PIPE_SIZE: Final = 1 << 16
# The child imports the parent's own package by its file. An import hook that the child does not
# have may have found the package. The path is passed, too: `-m` would search the working directory
# first.
_CHILD: Final = """
import sys
sys.path[:] = sys.argv[7:]
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("fairlead", sys.argv[6])
sys.modules["fairlead"] = module_from_spec(spec)
spec.loader.exec_module(sys.modules["fairlead"])
from fairlead.loader.base.children import answer
answer(sys.stdin.read(), *sys.argv[1:6])
"""


class Request(Value):
    """What one child does: it calls `main(data)` of a module.

    Attributes:
        data: values of the types that JSON has; paths become texts.
    """

    module: str
    data: Any


class Outcome(Value):
    """The result of one request: an answer, or how the child failed.

    Attributes:
        report: what its `main` returned; None if it did not.
        reason: why there is no report.
        seconds: how long the child lived, its start included.
        notes: what is odd although there is a report.
        probed: False if no child came as far as `main`. Then nothing is known of the library, and a
            note says why.
        printed: the last line that it printed.
        step: what it was doing when it ended, "" if it wrote a report.
    """

    report: dict[str, Any] | None = None
    reason: str = ""
    remedy: str = ""
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    probed: bool = True
    printed: str = ""
    step: str = ""


def run_all(requests: Sequence[Request], timeout: float | None = None) -> list[Outcome]:
    """Run requests in child processes, as many at once as there are cores.

    A child that has run for a second waits for something. It holds up no other from then on.

    Args:
        timeout: seconds for each; None means FAIRLEAD_PROBE_TIMEOUT.

    Returns:
        The outcomes, in the order of the requests.
    """
    limit = _read_timeout() if timeout is None else timeout
    cores = count_cores()
    outcomes: dict[int, Outcome] = {}
    running: dict[int, _Child] = {}
    waiting = list(enumerate(requests))[::-1]
    with selectors.DefaultSelector() as selector:
        try:
            while waiting or running:
                while waiting and sum(child.is_busy() for child in running.values()) < cores:
                    number, request = waiting.pop()
                    try:
                        running[number] = _Child(request, limit, selector)
                    except OSError as error:
                        note = "it was not probed, because no child process could be started"
                        outcomes[number] = Outcome(notes=(f"{note}: {error}",), probed=False)
                for key, _ in selector.select(0.02 if running else 0):
                    key.data()
                for number in [number for number, child in running.items() if child.has_ended()]:
                    outcomes[number] = running.pop(number).outcome
        finally:
            for child in running.values():
                child.kill()
    return [outcomes[number] for number in range(len(requests))]


def make_refusal(error: FairleadError, *, with_code: bool = False) -> dict[str, Any]:
    """What a `main` returns for a refused library. `explain_error` says what `with_code` does."""
    missing = error.missing if isinstance(error, LibraryError) else ()
    return {
        "ok": False,
        "reason": explain_error(error, with_code=with_code),
        "remedy": error.remedy,
        "missing": list(missing),
    }


def decode_candidate(data: dict[str, Any]) -> Candidate:
    """The candidate whose `fields` went through JSON."""
    return Candidate(data["library"], data["found_via"], data["manifest"])


def _make_environment() -> dict[str, str]:
    """The child's environment: it probes nothing itself, shares nothing, and does not trace."""
    own = (*TRACE_VARIABLES, "FAIRLEAD_TRACE_FILE", "FAIRLEAD_TRACE_LOG", "FAIRLEAD_CUDA")
    trusted = {name: value for name, value in filter_environ().items() if name not in own}
    return {**trusted, "FAIRLEAD_PROBE": "0"}


class _Child:
    """A running child: its process, what it has written so far, and in the end its outcome."""

    def __init__(self, request: Request, timeout: float, selector: selectors.BaseSelector) -> None:
        self.timeout, self.selector = timeout, selector
        self.killed = self.begun = self.reaped = False
        self.outcome = Outcome(reason="its probe was interrupted")
        self.kept = {name: bytearray() for name in _KEPT}
        # a line without the mark was written by a library to a descriptor that is not its own
        self.mark = os.urandom(8).hex()
        self.started = time.monotonic()
        self.pipes: dict[str, int] = {}
        writers: list[int] = []
        try:
            for name in _KEPT:
                self.pipes[name], writer = os.pipe()
                writers.append(writer)
            data = json.dumps(request.data, default=str)
            pipe, output = writers
            tie = str(os.getpid()), str(timeout)
            self.process = _start(pipe, output, data, *tie, self.mark, request.module)
            self.limit = TimeLimit(self.process.pid, timeout)
        except BaseException:
            for pipe in self.pipes.values():
                os.close(pipe)
            raise
        finally:
            for writer in writers:
                os.close(writer)
        for name, pipe in self.pipes.items():
            os.set_blocking(pipe, False)
            selector.register(pipe, selectors.EVENT_READ, lambda name=name: self._read(name))

    def is_busy(self) -> bool:
        """Whether the child may still be at work, and not wait for something."""
        return time.monotonic() - self.started < _LONGEST_WORK

    def has_ended(self) -> bool:
        """Whether the child is over; then `outcome` is complete."""
        code = self._find_exit_code()
        if code is None and self.limit.find_rest():
            return False
        self.kill()
        self.outcome = self._make_outcome(code)
        return True

    def kill(self) -> None:
        """Kill the child and whatever it has started. Read the rest of the pipes and close them."""
        if self.killed:
            return
        self.killed = True
        if not self.reaped:  # else its number may be that of another group by now
            for stop in (os.killpg, os.kill):  # a fork may have no group of its own yet
                with suppress(OSError):
                    stop(self.process.pid, signal.SIGKILL)
            self.process.wait()
        for name in tuple(self.pipes):
            self._read(name)  # a pipe holds no more than one read takes
            self._close(name)

    def _find_exit_code(self) -> int | None:
        """Return the child's exit code, None while it runs.

        It is not reaped: its process group keeps its number.
        """
        look = os.WEXITED | os.WNOHANG | os.WNOWAIT
        try:
            ended = os.waitid(os.P_PID, self.process.pid, look)
        except ChildProcessError:  # this process ignores SIGCHLD
            self.reaped = True
            return self.process.wait()
        except OSError:  # a filter of system calls (seccomp) forbids it
            code = self.process.poll()
            self.reaped = code is not None
            return code
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def _read(self, name: str) -> None:
        try:
            data = os.read(self.pipes[name], _PIPE_SIZE)
        except BlockingIOError:
            return
        self.kept[name] += data
        self.begun = self.begun or self.mark.encode() in self.kept["answer"]
        del self.kept[name][: -_KEPT[name]]
        if not data:
            self._close(name)

    def _close(self, name: str) -> None:
        if name in self.pipes:
            self.selector.unregister(self.pipes[name])
            os.close(self.pipes.pop(name))

    def _make_outcome(self, code: int | None) -> Outcome:
        """The child's report if it wrote one and ended; `code` is None if it was killed."""
        late = f"within {self.timeout:g} s"
        if not self.begun:
            how = (
                f"did not start {late}"
                if code is None
                else f"failed to start: {describe_exit(code)}"
            )
            note = add_printed(
                f"it was not probed: the child process {how}", self._read_last_printed()
            )
            return Outcome(notes=(note,), probed=False, seconds=time.monotonic() - self.started)
        lines = self._read_lines()
        if not lines or "report" not in lines[-1]:
            how = f"it did not answer {late}" if code is None else describe_exit(code)
            step = lines[-1]["step"] if lines else "taking an unknown step"
            return self._make_failure(f"{how} while {step}", step)
        if code is None:
            return self._make_failure(f"it answers, but does not let the process end {late}")
        notes = (f"{describe_exit(code)} while the process was ending",) if code else ()
        return Outcome(
            lines[-1]["report"],
            seconds=time.monotonic() - self.started,
            notes=notes,
            printed=self._read_last_printed(),
        )

    def _read_lines(self) -> list[dict[str, Any]]:
        """The lines that the child wrote, without those that another writer has damaged."""
        mark, lines = self.mark.encode(), []
        for line in self.kept["answer"].split(b"\n")[:-1]:
            if line.startswith(mark):
                with suppress(ValueError):
                    lines.append(escape_text(json.loads(line.removeprefix(mark))))
        return lines

    def _read_last_printed(self) -> str:
        lines = self.kept["printed"].decode("utf-8", "replace").split("\n")
        return escape_text(
            next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")
        )

    def _make_failure(self, reason: str, step: str = "") -> Outcome:
        printed = self._read_last_printed()
        return Outcome(
            None,
            add_printed(reason, printed),
            _REMEDY,
            time.monotonic() - self.started,
            printed=printed,
            step=step,
        )


def _start(pipe: int, output: int, data: str, *words: str) -> ForkedChild | subprocess.Popen[bytes]:
    """Start a process that calls `answer` with the pipe, words and data, and prints to `output`."""
    arguments = (str(pipe), *words)
    if may_fork():
        return ForkedChild(lambda: answer(data, *arguments), _make_environment(), output, pipe)
    import subprocess  # a process that forks does without these

    from .files import open_nameless

    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    package = os.path.join(root, "__init__.py")
    # Every user may read a process's arguments.
    with open_nameless() as stdin:
        stdin.write(data.encode())
        stdin.seek(0)
        return subprocess.Popen(  # -u: a crash would lose what C has not written yet
            [_find_python(), "-u", "-c", _CHILD, *arguments, package, *sys.path],
            stdin=stdin,
            stdout=output,
            stderr=output,
            pass_fds=(pipe,),
            start_new_session=True,
            env=_make_environment(),
        )


def add_printed(reason: str, printed: str) -> str:
    """A reason with the last line that the child printed, if it did."""
    return f"{reason}; the last it printed was: {printed}" if printed else reason


def describe_exit(code: int) -> str:
    """Return how a process ended, in words. The exit code is one of `subprocess`."""
    if code >= 0:
        return f"it ended the process with exit code {code}"
    try:
        return f"it crashed with {signal.Signals(-code).name}"
    except ValueError:
        return f"it crashed with signal {-code}"


def _find_python() -> str:
    """Return the path of this process's Python.

    In a program that embeds Python, sys.executable may be that program, or "".
    """
    places = (sys.executable or "", os.path.join(sys.exec_prefix, "bin", "python3"))
    for path in places:
        if os.path.basename(path).startswith(("python", "pypy")) and os.access(path, os.X_OK):
            return path
    raise FileNotFoundError("there is no Python interpreter to start")


def _read_timeout() -> float:
    try:
        seconds = float(filter_environ()["FAIRLEAD_PROBE_TIMEOUT"])
    except (KeyError, ValueError):
        return DEFAULT_TIMEOUT
    return seconds if seconds > 0 else DEFAULT_TIMEOUT


def answer(data: str, descriptor: str, parent: str, seconds: str, mark: str, module: str) -> None:
    """The child's work: call the module's `main`, and write steps and report as lines to the pipe.

    Args:
        data: the request's data as JSON.
        descriptor: the number of the pipe's end.
        parent: the number of the parent's process.
        seconds: how long the parent waits.
        mark: what each line begins with.
    """
    tie_to_parent(int(parent), float(seconds))
    pipe = int(descriptor)
    os.set_inheritable(pipe, False)

    def say(**line: Any) -> None:
        with suppress(OSError), open(pipe, "w", encoding="utf-8", closefd=False) as stream:
            stream.write(
                f"\n{mark}{json.dumps(line, default=str)}\n"
            )  # the line that someone else has begun ends here

    say(report=import_module(module).main(json.loads(data), lambda step: say(step=step)))
