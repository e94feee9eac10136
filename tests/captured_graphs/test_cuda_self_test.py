"""The self-test of CUDA's compiler, on the fake CUDA driver."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.cuda import TranslatedOpenCL
from helpers.cuda_program import Program, find_refusal

from fairlead.icd import cuda_sharing
from fairlead.icd.command_buffer import cuda_functions, cuda_trust
from fairlead.icd.command_buffer.cuda_self_test import find_difference_on_cuda
from fairlead.icd.command_buffer.self_tests import SOURCE as SELF_TEST_SOURCE
from fairlead.icd.driver_profiles import locate
from fairlead.icd.nvidia_ptx import Variant
from fairlead.loader.base.search import Candidate

#: As it is before a test has another one in its place.
_WHY_NOT_DEVICE = cuda_trust.why_not_device


@pytest.fixture
def compiled(
    program: Program, pocl_wheel: Candidate, monkeypatch: pytest.MonkeyPatch
) -> cuda_sharing.SharedDevice:
    """A device whose kernels PoCL compiles, also for CUDA."""
    monkeypatch.setenv("FAKE_CUDA_OPENCL", locate(pocl_wheel)[0])
    monkeypatch.setattr(cuda_functions, "query_ptx", lambda *_: SELF_TEST_SOURCE.decode())
    monkeypatch.setattr(cuda_functions, "PtxProgram", TranslatedOpenCL)
    device = cuda_sharing.find_shared_device(program.context.devices[0].int_ptr)
    assert device is not None
    return device


def test_the_self_test_passes_where_cuda_does_what_opencl_does(
    compiled: cuda_sharing.SharedDevice, program: Program
) -> None:
    steps: list[str] = []
    before = program.fake.calls("cuGraphLaunch")
    assert not find_difference_on_cuda(compiled, ("",), steps.append)
    assert program.fake.calls("cuGraphLaunch") - before == 5 and steps[-1] == "ending"


@pytest.mark.parametrize(
    ("right", "wrong", "shape"),
    [
        ("fl_offset[", "fl_offset[4] = {0}, fl_unused[", "((5, 0, 0), (7, 1, 1), (1, 1, 1))"),
        ("{2, 3, 5, 7}", "{2, 3, 5, 8}", "((0, 0, 0), (24, 1, 1), (8, 1, 1))"),
        ("table[item", "table[1 + item", "((0, 0, 0), (24, 1, 1), (8, 1, 1))"),
    ],
    ids=["offset", "constant", "argument"],
)
def test_the_self_test_finds_what_is_translated_wrongly(
    compiled: cuda_sharing.SharedDevice,
    monkeypatch: pytest.MonkeyPatch,
    right: str,
    wrong: str,
    shape: str,
) -> None:
    translate = TranslatedOpenCL.translate

    def wrongly(self: TranslatedOpenCL, variant: Variant) -> str:
        text = translate(self, variant)
        assert right in text
        return text.replace(right, wrong, 1)

    monkeypatch.setattr(TranslatedOpenCL, "translate", wrongly)
    found = find_difference_on_cuda(compiled, ("",), lambda step: None)
    assert found == f"results differ for {shape}"


@pytest.fixture
def untested(program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Nothing is known of any driver. The self-test is the module of this file."""
    monkeypatch.setattr(cuda_trust, "why_not_device", _WHY_NOT_DEVICE)
    monkeypatch.setattr(cuda_trust, "_known", {})
    monkeypatch.setattr(cuda_trust, "SELF_TEST", "hostile_cuda_test")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "hostile_cuda_test.py"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def main(data, progress): return {'difference': 'results differ'}", "results differ"),
        ("import os\ndef main(data, progress): progress('sharing'); os.abort()", "SIGABRT"),
        ("def main(data, progress): progress('sharing'); raise ValueError('no PTX')", "no PTX"),
    ],
    ids=["differs", "crashes", "raises"],
)
def test_kernels_of_a_compiler_that_fails_the_self_test_do_not_run_in_cuda(
    program: Program, untested: Path, text: str, reason: str
) -> None:
    untested.write_text(text, encoding="utf-8")
    y = program.buffer(1)
    said = find_refusal(program, lambda: program.scale(y, 2, 1))
    assert said.startswith("its self-test: ") and reason in said
    assert program.values(y) == [3]  # by another engine


def test_the_self_test_runs_once_and_is_remembered(
    program: Program, untested: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = "def main(data, progress): return {'difference': ''}"
    untested.write_text(passes, encoding="utf-8")
    device = program.context.devices[0].int_ptr
    assert cuda_trust.why_not_device(device) is None
    untested.write_text("raise AssertionError('it runs again')", encoding="utf-8")
    assert cuda_trust.why_not_device(device) is None
    monkeypatch.setattr(cuda_trust, "_known", {})  # as in another process
    assert cuda_trust.why_not_device(device) is None
    identity = cuda_trust.identify_device(device)
    monkeypatch.setattr(cuda_trust, "_known", {})
    monkeypatch.setattr(
        cuda_trust, "identify_device", lambda device: (*identity[:3], "a newer driver")
    )
    assert "it runs again" in (cuda_trust.why_not_device(device) or "")


@pytest.mark.usefixtures("untested")
def test_without_a_self_test_nothing_runs_in_cuda(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_PROBE", "0")
    y = program.buffer(1)
    said = find_refusal(program, lambda: program.scale(y, 2, 1))
    assert said == "FAIRLEAD_PROBE=0 forbids its self-test"
