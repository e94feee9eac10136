"""Trust in a driver's kernels: threads that ask at the same time wait for one self-test."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from fairlead.icd.command_buffer import direct_trust, self_tests
from fairlead.icd.command_buffer.direct_trust import Trust, find_trust
from fairlead.icd.drivers import platforms

pytestmark = pytest.mark.driver("pocl_wheel")


def test_threads_that_ask_at_once_share_one_self_test(
    pocl_wheel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = next(one for one in platforms() if "PoCL" in one.version).devices[0].handle
    threads = 4
    asked, met, judged = threading.Barrier(threads), threading.Barrier(2), []
    identity_of = direct_trust.identify_device

    def identity_when_all_ask(handle: int) -> tuple[str, ...]:
        found = identity_of(handle)
        asked.wait()
        return found

    def judge(handle: int, identity: Sequence[str]) -> Trust:
        judged.append(handle)
        with suppress(threading.BrokenBarrierError):  # nobody comes
            met.wait(0.5)
        return Trust(why_not="only the number of self-tests counts here")

    monkeypatch.setattr(direct_trust, "_known", {})
    monkeypatch.setattr(direct_trust, "identify_device", identity_when_all_ask)
    monkeypatch.setattr(direct_trust, "_judge", judge)
    with ThreadPoolExecutor(threads) as pool:
        answers = list(pool.map(find_trust, [device] * threads))
    assert judged == [device]
    assert len({id(answer) for answer in answers}) == 1


def test_the_self_test_has_no_inline_assembly() -> None:
    """PoCL 5.0 and 6.0 abort on it."""
    assert b"asm" not in self_tests.SOURCE
