"""What this process may use, and how long it lives: cores, parents, signals to end."""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final, NoReturn


_PR_SET_PDEATHSIG: Final = 1
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
#: Seconds that a child may live longer than its parent lets it.
_GRACE: Final = 60
#: Seconds that a busy machine adds to a limit at most.
_LONGEST_LINE: Final = 300
#: Of Linux: the control group of this process, and the folder of all of them.
_CGROUP: Final = "/proc/self/cgroup"
_CGROUPS: Final = "/sys/fs/cgroup"


def count_cores() -> int:
    """Return how many cores this process may use: by its affinity, and by the time that its control
    groups give it."""
    try:
        count = len(os.sched_getaffinity(0))
    except OSError:  # a filter of system calls (seccomp) may forbid it
        count = os.cpu_count() or 1
    return max(1, min(count, *_list_quotas(_CGROUP, _CGROUPS)))


def _list_quotas(cgroup: str, root: str) -> Iterator[int]:
    """Yield for how many cores' time the limits are: of the process's group and those around it.

    Args:
        cgroup: the file that names the group.
        root: the folder of all groups, of version 2.
    """
    yield sys.maxsize
    with suppress(OSError, ValueError, StopIteration):
        with open(cgroup, encoding="utf-8") as file:
            group = next(line[4:].strip() for line in file if line.startswith("0::/"))
        names = group.split("/")
        for count in range(len(names), -1, -1):
            with suppress(OSError, ValueError, ZeroDivisionError):
                with open(os.path.join(root, *names[:count], "cpu.max"), encoding="utf-8") as file:
                    quota, period = file.read().split()
                # int("max") is not tried: up to Python 3.11 its ValueError takes the place of a
                # KeyboardInterrupt that is raised while Python formats the error's text.
                if quota != "max":  # which says that there is no limit
                    yield -(-int(quota) // int(period))


def count_threads() -> int | None:
    """Return how many threads this process has, those of libraries too; None without /proc."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return None


def tie_to_parent(parent: int, seconds: float | None = None) -> None:
    """Let this process end when its parent does.

    A driver may compute for ever, and a parent may be killed before it can end its children.

    Args:
        parent: the parent's process number. If it is gone, this process ends at once.
        seconds: the `TimeLimit` that the parent sets this process. The kernel ends it a minute
            later. None sets no limit.
    """
    # The signal comes when the thread ends that has started this process. It waits for the end.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    if seconds is None:
        return
    limit = int(seconds) + _GRACE
    signal.alarm(limit + _LONGEST_LINE)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    # What a driver starts has this limit, too. The kernel counts each core.
    cpu = limit * count_cores()
    if most == resource.RLIM_INFINITY or cpu < most:
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, most))


class TimeLimit:
    """How long a process may take. Time in which it, or what it started, waits for a core does not
    count: else a busy machine would turn a slow library into one that hangs.

    Args:
        process: the number of the process.
        seconds: how long it may take from now on.
    """

    def __init__(self, process: int, seconds: float) -> None:
        self._process, self._until = process, time.monotonic() + seconds
        self._before = dict(_list_times_in_line(process))
        self._in_line = 0.0

    def find_rest(self) -> float:
        """Return how many seconds are left at least, 0 if the limit is over."""
        rest = self._until - time.monotonic()
        if rest <= 0:
            self._measure()
            rest += min(self._in_line, _LONGEST_LINE)
        return max(rest, 0)

    def wait_for(self, pipe: int) -> bool:
        """Wait until a pipe can be read. Returns False if the limit is over before that."""
        while not select.select([pipe], [], [], min(rest := self.find_rest(), 1))[0]:
            if not rest:
                return False
            self._measure()  # as long as the processes are there
        return True

    def _measure(self) -> None:
        """Add the time in which the processes waited for a core since it was last measured.

        Threads and processes that wait side by side wait once: the one that waited longest counts.
        """
        now = dict(_list_times_in_line(self._process))
        added = (waited - self._before.get(thread, 0) for thread, waited in now.items())
        self._in_line += max(added, default=0)
        self._before = now


def _list_times_in_line(process: int) -> Iterator[tuple[int, float]]:
    """Yield each thread of a process and of those that it started, and its seconds in line.

    In line, it was ready to run while all cores were busy.

    It yields nothing if the kernel does not tell.
    """
    threads = f"/proc/{process}/task"
    with suppress(OSError, ValueError, IndexError):
        for thread in os.listdir(threads):
            with open(f"{threads}/{thread}/schedstat", "rb") as file:
                yield int(thread), int(file.read().split()[1]) / 1e9
            with open(f"{threads}/{thread}/children", "rb") as file:
                children = file.read().split()
            for child in children:
                yield from _list_times_in_line(int(child))


def end_in_order() -> None:
    """Let SIGTERM and SIGHUP end this process as an exit does: files and children go first."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        signal.signal(number, signal.SIG_DFL)  # the second one does not wait
        sys.exit(128 + number)

    for number in _ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, end)


@contextmanager
def hold_signals() -> Iterator[None]:
    """Keep back the signals that end this process or interrupt it, until the end of the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        # It holds them, and then raises an interrupt that came before.
        signal.pthread_sigmask(signal.SIG_BLOCK, {*_ENDING, signal.SIGINT})
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
