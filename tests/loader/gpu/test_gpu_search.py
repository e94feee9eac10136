"""The drivers of CUDA and HIP are found, or every place has a reason."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from helpers.support import RunPython

import fairlead
from fairlead.loader.base.errors import NotFoundError
from fairlead.loader.base.search import Candidate
from fairlead.loader.cuda import driver as cuda_driver
from fairlead.loader.gpu import search as search_module
from fairlead.loader.gpu.search import GpuSearch
from fairlead.loader.hip import driver as hip_driver


class Found(NamedTuple):
    """An API: its search, its fake driver, the function that finds it, and what begins names."""

    search: GpuSearch[Any]
    path: Path
    name: str
    prefix: str


@pytest.fixture(params=["cuda", "hip"])
def api(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Found:
    """An API of GPUs, whose driver was not searched yet."""
    search = {"cuda": cuda_driver, "hip": hip_driver}[request.param].SEARCH
    monkeypatch.setattr(search, "found", None)
    path = (
        request.getfixturevalue("fake_cuda_path")
        if request.param == "cuda"
        else request.getfixturevalue("fake_hip_paths")("6.4")
    )
    return Found(search, path, request.param, search.driver.names["Init"].removesuffix("Init"))


@pytest.mark.slow
def test_the_first_place_that_works_is_taken(
    api: Found, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"\x7fELF")
    places = (tmp_path / "missing.so", broken, api.path)
    steps = tuple(Candidate(str(path), "a test") for path in places)
    found, refusals = api.search.find(steps)
    assert found is not None and found.path == str(api.path.resolve())
    assert [refusal.what for refusal in refusals] == [str(path) for path in places[:2]]
    assert refusals[0].reason == "there is no such file" and refusals[1].reason
    monkeypatch.setattr(api.search, "steps", steps)
    opened = getattr(fairlead, api.name)()
    assert opened is api.search.found and opened is getattr(fairlead, api.name)()


def test_nothing_is_found(api: Found, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    steps = (Candidate(str(tmp_path / "no.so"), "a test"), Candidate(str(api.path), "b"))
    monkeypatch.setenv("FAIRLEAD_EXCLUDE", api.path.name)
    monkeypatch.setattr(api.search, "steps", steps)
    with pytest.raises(NotFoundError, match=r"no\.so \(a test\).*(\n.*)*FAIRLEAD_EXCLUDE") as one:
        getattr(fairlead, api.name)()
    assert one.value.routine == f"fairlead.{api.name}"
    assert one.value.code == api.search.driver.no_device[0] and len(one.value.reasons) == 2


def test_a_name_that_the_linker_does_not_find_starts_no_child(
    api: Found, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_module, "probe_all", None)
    found, (refusal,) = api.search.find([Candidate("libfairlead_nowhere.so.1", "a test")])
    assert found is None and refusal.reason.startswith("no library of this name is in LD_LIBRARY")
    assert "libfairlead_nowhere.so.1" in refusal.remedy


def test_a_missing_function_is_an_error_and_no_crash(api: Found, tmp_path: Path) -> None:
    library = tmp_path / "libdriver.so"
    command = ["cc", "-shared", "-fPIC", "-xc", "-", "-o", str(library)]
    source = f"int {api.prefix}Init(unsigned flags) {{ return (int)flags; }}"
    subprocess.run(command, input=source, text=True, check=True)
    with pytest.raises(api.search.driver.error, match=r"DriverGetVersion \[\w+NotSupported|NOT_S"):
        api.search.driver.open(str(library))


def test_a_driver_that_crashes_is_tried_in_a_child(api: Found, tmp_path: Path) -> None:
    library = tmp_path / "libdriver.so"
    command = ["cc", "-shared", "-fPIC", "-xc", "-", "-o", str(library)]
    source = f"int {api.prefix}Init(unsigned flags) {{ return *(volatile int *)0; }}"
    subprocess.run(command, input=source, text=True, check=True)
    found, (refusal,) = api.search.find([Candidate(str(library), "a test")])
    assert found is None and "SIGSEGV" in refusal.reason


def test_a_fork_cannot_go_on(api: Found, run_python: RunPython) -> None:
    code = """
import importlib, os, sys
import fairlead
from fairlead.loader.base.search import Candidate
name = sys.argv[2]
search = importlib.import_module(f"fairlead.loader.{name}.driver").SEARCH
search.steps = (Candidate(sys.argv[1], "a test"),)
getattr(fairlead, name)()
if os.fork():
    os.wait()
else:
    try:
        getattr(fairlead, name)()
    except fairlead.FairleadError as error:
        print(type(error).__name__, error, flush=True)
    os._exit(0)
"""
    text = run_python(code, str(api.path), api.name).out
    assert text.startswith(f"{api.search.driver.error.__name__} {api.prefix}Init")
    assert "forked" in text and "spawn" in text
