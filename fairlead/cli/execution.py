"""Runs a command, for `fairlead record` and `trace`: its exit code is that of shells."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

from ..loader.base.errors import FairleadError

SIGNALLED: Final = 128  # and the signal's number: the exit code that shells give

_PASSED_ON: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
#: A terminal sends these to the command itself.
_FROM_TERMINAL: Final = (signal.SIGINT, signal.SIGQUIT)


class CommandError(FairleadError):
    """The command cannot be run. `exit_code` is as in shells: 127 if it is not found, else 126."""

    def __init__(self, message: str, *, exit_code: int, **parts: str) -> None:
        super().__init__(message, **parts)
        self.exit_code = exit_code


def execute(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a command with our standard streams, and pass signals on to it.

    Returns:
        The exit code as shells give it.

    Raises:
        CommandError: it cannot be run.
    """
    with _forward_signals() as forwarding:
        try:
            process = subprocess.Popen(command, env=environ)
        except OSError as error:
            raise explain_failure(command[0], error) from None
        forwarding.start(process)
        code = process.wait()
    return code if code >= 0 else SIGNALLED - code


def explain_failure(program: str, error: OSError) -> CommandError:
    """Return the error of a program that the system does not start."""
    message = f"{program} cannot be run: {error.strerror}"
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return CommandError(message, exit_code=127, remedy="correct its name, or PATH")
    return CommandError(message, exit_code=126, remedy="name an executable program")


class _Forwarding:
    """Passes signals on to a process, also those that come before it has begun."""

    def __init__(self, signals: Collection[int]) -> None:
        self._signals = signals
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []

    def pass_on(self, number: int, frame: FrameType | None) -> None:
        """Pass a signal on. It is a signal's handler."""
        if number not in self._signals:
            return
        if self._process is None:
            self._early.append(number)
        else:
            self._process.send_signal(number)

    def start(self, process: subprocess.Popen[bytes]) -> None:
        """Note the process, which has begun."""
        self._process = process
        for number in self._early:
            process.send_signal(number)


@contextmanager
def _forward_signals() -> Iterator[_Forwarding]:
    """Pass on signals that would end us. Ignored ones stay ignored."""
    forwarding = _Forwarding(_PASSED_ON if _has_terminal() else (*_PASSED_ON, *_FROM_TERMINAL))
    caught = [
        number
        for number in (*_PASSED_ON, *_FROM_TERMINAL)
        if signal.getsignal(number) != signal.SIG_IGN
    ]
    before = {number: signal.signal(number, forwarding.pass_on) for number in caught}
    try:
        yield forwarding
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _has_terminal() -> bool:
    """Whether a terminal controls this process; it sends ^C to all processes of a command."""
    try:
        with open("/dev/tty", "rb"):
            return True
    except OSError:
        return False
