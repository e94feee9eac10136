"""Children that are forks of this process: they begin with all that it has imported.

A Python that starts and imports fairlead takes longer than most probes. `fork_children` lets
loader/base/children.py fork instead. It is for a process that fairlead has started for itself: it
has one thread and no open driver, and nothing else uses its streams.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, NoReturn

_THREADS: Final = "/proc/self/task"
_DESCRIPTORS: Final = "/proc/self/fd"
_allowed = False


def fork_children() -> None:
    """Allow this process's children to be forks."""
    global _allowed
    _allowed = True


def may_fork() -> bool:
    """Whether children are forks: it is allowed, and no other thread could hold a lock."""
    return _allowed and len(os.listdir(_THREADS)) == 1


class ForkedChild:
    """A child that calls a function, and ends as a C program does: libraries' ends run.

    Args:
        work: the function.
        environ: the child's environment.
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
        self.pid = os.fork()
        if not self.pid:
            _be_child(work, environ, output, kept)

    def wait(self) -> int:
        """Wait for its end. Returns its exit code, as `subprocess` has it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _be_child(
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
        os.environ.clear()
        os.environ.update(environ)
        work()
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    # the parent's frames below this one must not go on, and a Python that is taken down costs 10 ms
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    ctypes.CDLL(None).exit(code if isinstance(code, int) else int(code is not None))
    raise AssertionError("exit returns")
