"""Trust in a driver's kernels: threads that ask at the same time wait for one self-test."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.icd import driver_profiles
from fairlead.icd.command_buffer import direct_self_test, direct_trust, self_tests
from fairlead.icd.command_buffer.direct_trust import why_not_device
from fairlead.icd.driver_profiles import locate
from fairlead.icd.drivers import platforms
from fairlead.loader.base import probe_verdicts
from fairlead.loader.base.children import Outcome, Request

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


def test_self_tests_run_side_by_side_and_what_has_passed_is_not_tested_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = [tmp_path / name for name in ("sound.so", "other.so", "broken.so")]
    for file in files:
        file.write_bytes(b"")
    paths = [str(file) for file in files]
    batches: list[list[str]] = []

    def run_all(requests: Sequence[Request], timeout: float | None = None) -> list[Outcome]:
        batches.append([request.data["library"] for request in requests])
        differ = ("results differ" if "broken" in path else "" for path in batches[-1])
        return [Outcome({"difference": text}) for text in differ]

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(self_tests, "run_all", run_all)
    expected = {**dict.fromkeys(paths), paths[2]: "its self-test: results differ"}
    assert direct_trust.judge_libraries(paths) == expected
    assert batches == [paths]
    probe_verdicts.forget_refusals()  # as `fairlead doctor` does
    assert direct_trust.judge_libraries(paths) == expected
    assert batches == [paths, paths[2:]]
    monkeypatch.setenv("FAIRLEAD_PROBE", "0")
    forbidden = "FAIRLEAD_PROBE=0 forbids its self-test"
    assert direct_trust.judge_libraries(paths) == dict.fromkeys(paths, forbidden)
    assert len(batches) == 2


def test_the_self_test_has_no_inline_assembly() -> None:
    """PoCL 5.0 and 6.0 abort on it."""
    assert b"asm" not in self_tests.SOURCE and "asm" not in direct_self_test._SOURCE


def test_a_processor_whose_flags_are_unknown_has_it_off(
    pocl_wheel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = locate(pocl_wheel)[0]
    platform = next(one for one in platforms() if one.driver.path == library)
    elsewhere = SimpleNamespace(fl_direct_runs_here=lambda: False)
    monkeypatch.setattr(direct_trust, "lib", elsewhere)
    monkeypatch.setattr(direct_trust, "_known", {})
    why_not = why_not_device(platform.devices[0].handle)
    assert why_not == "it is for x86-64 and aarch64, whose floating point flags it knows"
    assert direct_trust.judge_libraries((library,)) == {library: why_not}


def test_a_row_forbids_a_version(pocl_wheel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    library = locate(pocl_wheel)[0]
    platform = next(one for one in platforms() if one.driver.path == library)
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
