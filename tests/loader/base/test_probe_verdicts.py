"""Verdicts: what is probed, what is remembered and for how long, and that kinds are separate."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from helpers.support import ROOT, RunPython
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlead.loader.base.probe_verdicts import judge
from fairlead.loader.base.search import Candidate, Refusal


@dataclass(frozen=True)
class Report:
    candidate: Candidate
    ok: bool
    reason: str = ""
    remedy: str = ""
    probed: bool = True


@dataclass
class Probes:
    """A `probe_all` that refuses names with "bad" in them, and records its requests."""

    probed: bool = True
    asked: list[str] = field(default_factory=list[str])

    def __call__(self, candidates: Sequence[Candidate]) -> list[Report]:
        self.asked += [os.path.basename(candidate.library) for candidate in candidates]
        return [self.report(candidate) for candidate in candidates]

    def report(self, candidate: Candidate) -> Report:
        ok = "bad" not in candidate.library
        return Report(
            candidate, ok, "" if ok else "it is bad", "" if ok else "make it good", self.probed
        )

    def take(self) -> list[str]:
        """What it was asked for since the last time."""
        asked, self.asked = self.asked, []
        return asked


@pytest.fixture
def probes() -> Probes:
    return Probes()


@pytest.fixture(autouse=True)
def memory(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path_factory.mktemp(
        "cache"
    )  # not beside the libraries: a new neighbour ends a bad verdict
    monkeypatch.setenv("XDG_CACHE_HOME", str(directory))
    return directory / "fairlead/probes.json"


def library(directory: Path, name: str) -> Candidate:
    path = directory / name
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.touch()
    return Candidate(str(path), "test")


def test_only_what_is_unknown_is_probed(tmp_path: Path, probes: Probes) -> None:
    good, bad, new = (library(tmp_path, name) for name in ("good.so", "bad.so", "new.so"))
    (refusal,) = judge([good, bad], probes, "ur").values()
    assert refusal == Refusal(bad.library, "it is bad", "make it good", "test")
    assert probes.take() == ["good.so", "bad.so"]
    refusals = judge([new, bad, good], probes, "ur")
    assert list(refusals) == [bad] and "remembered" in refusals[bad].reason
    assert probes.take() == ["new.so"]


def test_threads_lose_no_verdicts_of_each_other(tmp_path: Path, memory: Path) -> None:
    candidates = [library(tmp_path, f"{number}.so") for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda one: judge([one], Probes(), "ur"), candidates))
    assert len(json.loads(memory.read_text())) == len(candidates)


def test_a_verdict_of_one_kind_says_nothing_about_another(tmp_path: Path, probes: Probes) -> None:
    good = library(tmp_path, "good.so")
    for expected in (["good.so"], []):
        for kind in ("cl", "ur", "pi"):
            assert judge([good], probes, kind) == {} and probes.take() == expected


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rounds=st.lists(
        st.tuples(
            st.sampled_from(["cl", "ur", "pi"]), st.permutations(["a.so", "bad-b.so", "c|ur|.so"])
        )
    )
)
def test_whatever_the_order_the_bad_ones_are_refused_and_each_is_probed_once(
    tmp_path: Path, memory: Path, rounds: list[tuple[str, list[str]]]
) -> None:
    memory.unlink(missing_ok=True)
    probes, known = Probes(), set[tuple[str, str]]()
    for name in (name for _, names in rounds for name in names):
        library(tmp_path / "libraries", name)  # all of them before the first probe
    for kind, names in rounds:
        candidates = [library(tmp_path / "libraries", name) for name in names]
        assert [os.path.basename(bad.library) for bad in judge(candidates, probes, kind)] == [
            "bad-b.so"
        ]
        assert probes.take() == [name for name in names if (kind, name) not in known]
        known |= {(kind, name) for name in names}


def test_the_file_that_will_be_opened_is_the_one_that_counts(
    tmp_path: Path, probes: Probes
) -> None:
    moved = library(tmp_path, "moved.so")
    registered = Candidate(str(tmp_path / "gone.so"), "test")
    assert (
        judge([registered], probes, "cl") == {} and probes.take() == []
    )  # opening what is not there runs no code
    for expected in (["gone.so"], []):
        assert (
            judge([registered], probes, "cl", lambda candidate: moved.library) == {}
            and probes.take() == expected
        )
    os.utime(moved.library, ns=(1, 1))
    judge([registered], probes, "cl", lambda candidate: moved.library)
    assert probes.take() == ["gone.so"]


def test_a_library_that_was_built_anew_is_probed_again(tmp_path: Path, probes: Probes) -> None:
    """That holds even for the same size and time, as reproducible builds and cp -p make."""
    here = library(tmp_path / "here", "good.so")
    for expected in (["good.so"], []):
        judge([here], probes, "cl")
        assert probes.take() == expected
    old = os.stat(here.library)
    new = tmp_path / "new.so"
    new.touch()
    os.utime(new, ns=(old.st_atime_ns, old.st_mtime_ns))
    os.replace(new, here.library)
    status = os.stat(here.library)
    assert (status.st_mtime_ns, status.st_size) == (old.st_mtime_ns, old.st_size)
    judge([here], probes, "cl")
    assert probes.take() == ["good.so"]


def test_what_could_not_be_probed_is_not_remembered(tmp_path: Path) -> None:
    probes = Probes(probed=False)
    for _ in range(2):
        judge([library(tmp_path, "good.so")], probes, "ur")
        assert probes.take() == ["good.so"]


def test_a_soname_that_only_the_linker_can_find_is_always_probed(probes: Probes) -> None:
    for _ in range(2):
        judge([Candidate("libfairlead-nowhere.so.1", "test")], probes, "ur")
        assert probes.take() == ["libfairlead-nowhere.so.1"]


def test_fairlead_probe_0_probes_nothing(
    tmp_path: Path, probes: Probes, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_PROBE", "0")
    assert (
        judge([library(tmp_path, "bad.so")], probes, "ur") == {}
        and probes.take() == []
        and not memory.exists()
    )


@pytest.mark.parametrize(
    "content",
    ["", "[", "[]", "[" * 200_000, '{"a": {"ok": true}}', '{"a": null}', '{"a": {"at": 1.5}} {}'],
)
def test_a_memory_of_another_form_is_replaced(
    tmp_path: Path, probes: Probes, memory: Path, content: str
) -> None:
    memory.parent.mkdir(parents=True)
    memory.write_text(content)
    assert list(judge([library(tmp_path, "bad.so")], probes, "pi")) and probes.take()
    assert len(json.loads(memory.read_text())) == 1


def test_facts_of_another_version_hide_no_verdict(
    tmp_path: Path, probes: Probes, memory: Path
) -> None:
    good = library(tmp_path, "good.so")
    judge([good], probes, "cl")
    facts = json.loads(memory.read_text())
    old = {"ok": True, "at": 1.5}
    memory.write_text(json.dumps({"an old one": old, **facts, "another one": old}))
    assert probes.take() == ["good.so"]
    assert judge([good], probes, "cl") == {} and not probes.take()


@pytest.mark.parametrize(
    "other", [{"lasts": None}, {"around": None}, {"ok": 0}, {"at": 1.5, "more": 1}]
)
def test_a_verdict_of_other_types_is_as_good_as_none(
    tmp_path: Path, probes: Probes, memory: Path, other: dict[str, Any]
) -> None:
    bad = library(tmp_path, "bad.so")
    judge([bad], probes, "cl")
    facts = json.loads(memory.read_text())
    memory.write_text(json.dumps({key: {**fact, **other} for key, fact in facts.items()}))
    assert probes.take() == ["bad.so"]
    assert list(judge([bad], probes, "cl")) == [bad] and probes.take() == ["bad.so"]


ASK = """
import sys
from types import SimpleNamespace

sys.path.insert(0, sys.argv[1])
from copied.loader.base import probe_verdicts, search


def probe_all(candidates):
    print("probed")
    return [
        SimpleNamespace(candidate=candidate, ok=True, reason="", remedy="", probed=True)
        for candidate in candidates
    ]


probe_verdicts.judge([search.Candidate(sys.argv[2], "test")], probe_all, "ur")
"""


@pytest.mark.parametrize(
    "changed",
    [
        "loader/base/children.py",
        "loader/base/search.py",
        "icd/probe.py",
        "loader/ur/ur.abi",
        "plugins/__init__.py",
        "icd/_native.abi3.so",
        "plugins/libur_adapter_fairlead.so.0",
    ],
)
def test_verdicts_end_when_fairlead_changes(
    tmp_path: Path, run_python: RunPython, changed: str
) -> None:
    """A copy of the package under another name stands for another version of it."""
    for folder in ("loader", "icd", "plugins"):
        shutil.copytree(
            ROOT / folder,
            tmp_path / "copied" / folder,
            ignore=shutil.ignore_patterns("native", "__pycache__"),
        )
    arguments = (str(tmp_path), library(tmp_path / "libraries", "good.so").library)
    assert [run_python(ASK, *arguments).out for _ in range(2)] == ["probed\n", ""]
    os.utime(tmp_path / "copied" / changed, ns=(2**61, 2**61))
    assert run_python(ASK, *arguments).out == "probed\n"
