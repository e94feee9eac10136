"""Runs a case in a forked process, so that a crash ends only the fork.

Not every library works in a fork: CUDA answers NOT_INITIALIZED there to everything. `works_in_fork`
asks the library a question here and in a fork. If the answers differ, cases run in the child
itself. A crash then costs a new child, but the verdict is about the library.
"""

from __future__ import annotations

import functools
import json
import os
import signal
from collections.abc import Callable
from typing import Any, Final, NoReturn

from fairlead.loader.base.children import describe_exit
from fairlead.loader.base.processes import TimeLimit, hold_signals, tie_to_parent

from .checks import Mismatch, Unsupported, alternatives, equal

#: Seconds until a forked case counts as hung. Such a case asks for an answer that comes at once.
_LONGEST: Final = 5.0


def works_in_fork(answer: Callable[[], object], timeout: float) -> bool:
    """Return whether the library answers a question in a fork as it does here.

    Args:
        answer: asks the library something that it has to ask its device.
        timeout: seconds that the fork may take.
    """
    here = answer()
    try:
        _fork(lambda: equal(answer(), here), {}, timeout)
    except Mismatch:
        return False
    return True


def in_fork(
    function: Callable[..., object], timeout: float, works: Callable[[], bool]
) -> Callable[..., None]:
    """Return the same case, run in a fork. The caller gets what the case raised.

    Args:
        timeout: seconds that the fork may take.
        works: says whether the library works in forks. Else the case runs in this process.
    """

    @functools.wraps(function)
    def run(**arguments: Any) -> None:
        if works():
            _fork(function, arguments, timeout)
        else:
            function(**arguments)

    return run


def _fork(function: Callable[..., object], arguments: dict[str, Any], timeout: float) -> None:
    """Call a function in a fork. Raise what it raised, as Mismatch or Unsupported."""
    reader, writer = os.pipe()
    parent = os.getpid()
    with hold_signals():
        child = os.fork()
    if not child:
        tie_to_parent(parent, timeout)
        _answer(writer, function, arguments)
    os.close(writer)
    with open(reader, "rb") as pipe:
        text = _read(pipe.fileno(), child, min(timeout, _LONGEST))
    _, status = os.waitpid(child, 0)
    _raise(text, status)


def _answer(writer: int, function: Callable[..., object], arguments: dict[str, Any]) -> NoReturn:
    """In the fork: run the case, write how it ended, and exit without any clean-up."""
    answer: list[str] = ["passed"]
    try:
        function(**arguments)
    except Unsupported as error:
        answer = ["unsupported", str(error)]
    except Mismatch as error:
        answer = ["failed", error.expected, error.got]
    except BaseException as error:
        answer = ["failed", "", f"{type(error).__name__}: {error}"]
    finally:
        try:
            with open(writer, "wb") as pipe:
                pipe.write(json.dumps([alternatives, *answer]).encode())
        finally:
            os._exit(0)


def _read(pipe: int, child: int, timeout: float) -> bytes:
    """Return what the fork writes. If its time is over, kill it and return b"hung"."""
    text, limit = b"", TimeLimit(child, timeout)
    while limit.wait_for(pipe):
        part = os.read(pipe, 1 << 16)
        if not part:
            return text
        text += part
    os.kill(child, signal.SIGKILL)
    return b"hung"


def _raise(text: bytes, status: int) -> None:
    """Raise what a fork reported with its text, or with the status of its end."""
    if text == b"hung":
        raise Mismatch("an answer", "it hung")
    if not text:
        raise Mismatch(
            "an answer",
            describe_exit(
                -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            ),
        )
    alternatives[:], outcome, *rest = json.loads(text)
    if outcome == "unsupported":
        raise Unsupported(*rest)
    if outcome == "failed":
        raise Mismatch(*rest)
