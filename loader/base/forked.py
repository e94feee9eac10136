"""Children that are forks of this process: they begin with all that it has imported.

A Python that starts and imports fairlead takes longer than most probes. `fork_children` lets
loader/base/children.py fork instead. It is for a process that fairlead has for itself: the command
line, and the Python of libOpenCL.so.1. They fork as long as they have one thread and have opened no
library (`stop_forking`).
"""

from __future__ import annotations

import atexit
import ctypes
import io
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress

from .processes import count_threads, hold_signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final, NoReturn

_DESCRIPTORS: Final = "/proc/self/fd"
_UNBUFFERED: Final = 2  # _IONBF of setvbuf
_allowed = False
_parents: list[object] = []


def fork_children() -> None:
    """Allow this process's children to be forks."""
    global _allowed
    _allowed = True


def stop_forking() -> None:
    """Forbid forks again: this process opens a library, and forks would copy its state."""
    global _allowed
    _allowed = False


def may_fork() -> bool:
    """Whether children are forks: it is allowed, and no other thread could hold a lock.

    Without /proc nobody knows.
    """
    return _allowed and count_threads() == 1


class ForkedChild:
    """A child that calls a function, and ends as a C program does: libraries' ends run.

    Args:
        output: the descriptor that becomes its stdout and stderr; its stdin is empty.
        kept: the descriptor that stays open beside these three.

    Raises:
        OSError: there can be no further process.

    Attributes:
        pid: the number of its process, which leads a session of its own.
    """

    def __init__(
        self, work: Callable[[], None], environ: Mapping[str, str], output: int, kept: int
    ) -> None:
        self._code: int | None = None
        self.pid = -1
        try:
            # An exception of a signal's handler is lost in what Python runs at a fork
            # (os.register_at_fork).
            with hold_signals():
                self.pid = os.fork()
        except BaseException:
            if self.pid > 0:  # nobody else knows of it
                os.kill(self.pid, signal.SIGKILL)
                self.wait()
            raise
        if not self.pid:
            _run_child(work, environ, output, kept)

    def poll(self) -> int | None:
        """Return the child's exit code as `wait` does, None while it runs."""
        if self._code is None:
            try:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                return self.wait()
            if ended:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def wait(self) -> int:
        """Wait for the child's end. Returns its exit code, as `subprocess` has it.

        It is 0 if this process ignores SIGCHLD: then nobody gets to know it.
        """
        if self._code is None:
            try:
                self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            except ChildProcessError:
                self._code = 0
        return self._code


def _run_child(
    work: Callable[[], None], environ: Mapping[str, str], output: int, kept: int
) -> NoReturn:
    code: object = 1  # as `exit` takes it
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        for number in map(int, os.listdir(_DESCRIPTORS)):
            if number > 2 and number != kept:
                with suppress(OSError):  # that of the listing itself is closed
                    os.close(number)
        _write_at_once()
        os.environ.clear()
        os.environ.update(environ)
        work()
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    end_like_c(code if isinstance(code, int) else int(code is not None))


def end_like_c(code: int) -> NoReturn:
    """End this process as a C program does. A Python that is taken down costs 10 ms."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream:
            stream.flush()
    ctypes.CDLL(None).exit(code)
    raise AssertionError("exit returns")


def _write_at_once() -> None:
    """Write what C and Python print to this process's own stdout and stderr, unbuffered.

    A crash would lose the rest of a buffer. The parent's streams are kept for ever, because their
    ends would write what the parent has yet to write.
    """
    libc = ctypes.CDLL(None)
    libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, _UNBUFFERED, 0)
    _parents.extend((sys.stdout, sys.stderr))
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(
            io.FileIO(number, "w", closefd=False), errors="backslashreplace", write_through=True
        )
        for number in (1, 2)
    )
