"""What the suite leaves behind, and what it asks of a device, when something fails."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.conformance import harness
from fairlead.conformance.checks import Unsupported
from fairlead.conformance.child import SuiteRequest
from fairlead.conformance.ur import fixtures
from fairlead.conformance.ur.calls import URCalls
from fairlead.loader.ur.abi import UR


class _Calls(URCalls):
    """An adapter that answers every query for a number with the same one."""

    def __init__(self, answer: int) -> None:
        self.answer, self.released = answer, []

    def device_says(self, query: str) -> int:
        return self.answer

    def ok(self, routine: str, *arguments: Any) -> None:
        self.released.append((routine, *arguments))


def _get_function(fixture: Any) -> Callable[..., Any]:
    return inspect.unwrap(fixture)


def test_a_child_that_cannot_start_leaves_no_pipe_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(harness, "_start", refuse)
    before = os.listdir("/proc/self/fd")
    with (
        tempfile.TemporaryFile() as printed,
        pytest.raises(OSError, match="no more processes"),
        harness._run_process(SuiteRequest("library", "ur"), {}, printed),
    ):
        pass
    assert os.listdir("/proc/self/fd") == before


def test_a_device_without_queues_out_of_order_is_asked_for_none() -> None:
    answer = UR["UR_QUEUE_FLAG_PROFILING_ENABLE"]
    with pytest.raises(Unsupported, match="QUEUE_PROPERTIES"):
        _get_function(fixtures.out_of_order)(_Calls(answer), None)


def test_the_objects_of_threads_are_released_at_the_end_of_a_case() -> None:
    ur = _Calls(0)
    steps = _get_function(fixtures.opened_objects)(ur, 1, 2, 3, None)
    open_objects = next(steps)
    for handle in (10, 11):
        open_objects().own("urContextRelease", handle)
    assert ur.released == []
    assert list(steps) == []
    assert sorted(ur.released) == [("urContextRelease", 10), ("urContextRelease", 11)]


def test_a_child_without_a_group_of_its_own_yet_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM may end the command before a fork has its group."""
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    monkeypatch.setattr(harness, "_start", lambda *_: child)
    with (
        tempfile.TemporaryFile() as printed,
        harness._run_process(SuiteRequest("library", "ur"), {}, printed),
    ):
        pass
    assert child.returncode == -signal.SIGKILL
