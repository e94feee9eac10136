"""Trust in a driver's kernels: threads that ask at the same time wait for one self-test."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from fairlead.icd import driver_profiles
from fairlead.icd.command_buffer import direct_self_test, direct_trust, self_tests
from fairlead.icd.command_buffer.direct_trust import why_not_device
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

    def judge(handle: int, identity: Sequence[str]) -> str:
        judged.append(handle)
        with suppress(threading.BrokenBarrierError):  # nobody comes
            met.wait(0.5)
        return "only the number of self-tests counts here"

    monkeypatch.setattr(direct_trust, "_known", {})
    monkeypatch.setattr(direct_trust, "identify_device", identity_when_all_ask)
    monkeypatch.setattr(direct_trust, "_judge", judge)
    with ThreadPoolExecutor(threads) as pool:
        answers = list(pool.map(why_not_device, [device] * threads))
    assert judged == [device]
    assert answers == ["only the number of self-tests counts here"] * threads


def test_the_self_test_has_no_inline_assembly() -> None:
    """PoCL 5.0 and 6.0 abort on it."""
    assert b"asm" not in self_tests.SOURCE and "asm" not in direct_self_test._SOURCE


def test_a_row_forbids_a_version(pocl_wheel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    platform = next(one for one in platforms() if "PoCL" in one.version)
    row = driver_profiles.ProfileRow(
        id="forbidden",
        applies=driver_profiles.Applies(product="PoCL", since=(3, 0), before=(3, 1)),
        does="calls no kernels",
        evidence="none: it is a test",
        test="this one",
        sets={"has_kernels_in_process": False},
    )
    monkeypatch.setattr(driver_profiles, "ROWS", (*driver_profiles.ROWS, row))
    monkeypatch.setattr(direct_trust, "_known", {})
    monkeypatch.setattr(direct_trust, "SELF_TEST", "a module that does not exist")
    driver_profiles._make_profile.cache_clear()
    try:
        why_not = why_not_device(platform.devices[0].handle)
    finally:
        driver_profiles._make_profile.cache_clear()
    assert why_not is not None and "a row of driver_profiles.py forbids" in why_not
