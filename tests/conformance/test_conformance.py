"""The conformance suite on adapters that break one rule each, and on Intel's adapter.

Only that rule's cases must fail. The fake adapter (tests/fake/adapter.c) implements adapters,
platforms, devices and contexts and nothing else. So some cases fail in any case, and a knob's
failures are those that the fake without knobs does not have.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from helpers.suites import RunSuite
from helpers.support import FakePlugin, RunPython, keep_in_line, with_short_limit

from fairlead.api import register_drivers
from fairlead.conformance.checks import Mismatch, equal
from fairlead.conformance.child import Reporter, SuiteRequest
from fairlead.conformance.forks import in_fork, works_in_fork
from fairlead.conformance.harness import run as run_here
from fairlead.conformance.report import Case, SuiteReport, render
from fairlead.conformance.ur.listed import LISTED
from fairlead.icd.driver_profiles import locate
from fairlead.loader.base.search import Candidate
from fairlead.loader.ur.abi import UR

pytestmark = pytest.mark.slow

COMMAND = "from fairlead.cli.main import main; main(prog_name='fairlead')"


@dataclass(frozen=True)
class Run:
    """What a run came to."""

    code: int
    report: dict[str, Any]

    @property
    def failed(self) -> dict[str, str]:
        """Failed cases and what the library did."""
        return {
            case["name"]: case["got"]
            for case in self.report["cases"]
            if case["outcome"] == "failed"
        }


@pytest.fixture(scope="module")
def conformance(run_suite: RunSuite, wheel_drivers: dict[str, str]) -> Callable[..., Run]:
    """Runs the suite. `driver` is the only OpenCL driver; with several a loader chooses the
    order."""

    def run(library: Path, driver: Candidate | None = None, **options: Any) -> Run:
        found = register_drivers([locate(driver)[0]]) if driver else wheel_drivers
        report = run_suite(library, environment=found, **options)
        return Run(int(not report.ok), report.as_dict())

    return run


def test_an_adapter_that_keeps_the_rules_passes(
    fake_adapter: FakePlugin, conformance: Callable[..., Run]
) -> None:
    areas = ("adapter", "platform", "context")
    run = conformance(fake_adapter(), area=areas)
    assert run.failed == {}
    assert (run.code, run.report["ok"]) == (0, True)
    for area in areas:
        assert run.report["areas"][area]["passed"] >= 4, area


#: Seconds for a case: a busy machine must not make one late.
PATIENT = 60.0
CRASH, HANG = "it crashed with SIGSEGV", "it hung for {limit} s"

#: Knobs, the area, and for each case that fails what is said of the library. Knobs of one row break
#: rules of different cases.
BROKEN: list[tuple[dict[str, object], str, dict[str, str]]] = [
    (
        {"check_retain": 0, "no_devices": "0", "no_deleter": "ERROR(INVALID_VALUE)"},
        "arguments",
        {
            "arguments::listed_error[urContextRetain-hContext]": CRASH,
            "arguments::listed_error[urContextCreate-DeviceCount]": "UR_RESULT_SUCCESS",
            "arguments::listed_error[urContextSetExtendedDeleter-pfnDeleter]": (
                "UR_RESULT_ERROR_INVALID_VALUE"
            ),
        },
    ),
    (
        {"retain_step": 2},
        "lifetime",
        {
            "lifetime::retain_adds_a_reference[context]": "the reference count: 3",
            "lifetime::retained_object_survives_a_release[context]": "the reference count: 4",
        },
    ),
    ({"at_num_devices": "hang()"}, "context", {"context::one_device": HANG}),
    (
        {"at_num_devices": "crash()", "at_properties": "_exit(3)", "at_deleter": "crash()"},
        "context",
        {
            "context::one_device": CRASH,
            "context::properties": "it ended the process with exit code 3",
            "context::deleter": CRASH,
        },
    ),
    ({"second_platform": 1}, "platform", {"platform::same_handles": "the handles"}),
    ({"at_last_release": "crash()"}, "adapter", {"library::ending": CRASH}),
]


@pytest.mark.parametrize(
    ("knobs", "area", "expected"),
    BROKEN,
    ids=["-".join(f"{knob}={value}" for knob, value in knobs.items()) for knobs, _, _ in BROKEN],
)
def test_a_broken_rule_fails_its_cases_and_no_others(
    knobs: dict[str, object],
    area: str,
    expected: dict[str, str],
    fake_adapter: FakePlugin,
    conformance: Callable[..., Run],
) -> None:
    whole = conformance(fake_adapter(), area=area, timeout=PATIENT)

    def check(limit: float) -> None:
        run = conformance(fake_adapter(**knobs), area=area, timeout=limit)
        new = {name: got for name, got in run.failed.items() if name not in whole.failed}
        assert new.keys() == expected.keys()
        for name, got in expected.items():
            assert got.format(limit=f"{limit:g}") in new[name]
        assert whole.failed.keys() <= run.failed.keys(), "no rule is kept by breaking another"
        assert len(run.report["cases"]) >= len(whole.report["cases"]), (
            "the run goes on after a crash"
        )
        assert run.code == 1

    if "hang()" in knobs.values():
        with_short_limit(check)
    else:
        check(PATIENT)


def test_a_case_is_not_blamed_for_a_crash_that_an_earlier_one_has_caused(
    fake_adapter: FakePlugin, conformance: Callable[..., Run]
) -> None:
    """The call that was to be refused leaves something behind. In a copy that is lost."""
    library = fake_adapter(
        no_deleter='(setenv("TAKEN", "1", 1), ERROR(INVALID_VALUE))',
        at_num_devices='if (getenv("TAKEN")) crash()',
    )
    whole, run = (
        conformance(one, area=("arguments", "context"), timeout=PATIENT)
        for one in (fake_adapter(), library)
    )
    assert run.failed.keys() - whole.failed.keys() == {
        "arguments::listed_error[urContextSetExtendedDeleter-pfnDeleter]"
    }
    assert len(run.report["cases"]) == len(whole.report["cases"]) and not run.report["trouble"]


def test_what_is_written_behind_a_value_is_seen(
    fake_adapter: FakePlugin, conformance: Callable[..., Run]
) -> None:
    whole, run = (
        conformance(library, area="queries") for library in (fake_adapter(), fake_adapter(beyond=4))
    )
    new = {name for name in run.failed if name not in whole.failed}
    assert new == {
        f"queries::query[urContextGetInfo-UR_CONTEXT_INFO_{name}]"
        for name in ("NUM_DEVICES", "DEVICES", "REFERENCE_COUNT")
    }
    assert all("what lies behind the value" in run.failed[name] for name in new)


def test_handles_that_are_none_are_counted_apart(
    fake_adapter: FakePlugin, conformance: Callable[..., Run]
) -> None:
    report = conformance(fake_adapter(), area="bad-input").report
    assert set(report["areas"]) == {"library", "beyond the specification"}
    outcomes = {case["name"]: case["outcome"] for case in report["cases"]}
    for how in ("other_memory", "another_kind", "released"):
        assert outcomes[f"bad-input::wrong_handle[urContextGetInfo-hContext-{how}]"] == "passed"


def test_a_library_that_crashes_when_it_is_opened(
    fake_adapter: FakePlugin, conformance: Callable[..., Run]
) -> None:
    run = conformance(fake_adapter(at_load="crash()"))
    assert run.failed == {"library::opening": CRASH}
    assert "it crashed with SIGSEGV while it was opened" in run.report["trouble"]
    assert run.code == 1


def test_the_table_and_the_lines(fake_adapter: FakePlugin, run_python: RunPython) -> None:
    library = fake_adapter(at_properties="crash()")
    done = run_python(COMMAND, "conformance", "--area", "context", str(library), check=False)
    how, head, table, failures, end = done.out.split("\n\n")
    assert how.splitlines() == [
        "1 of 6 cases failed. A failed case is a rule that the library breaks: a line under the "
        "table.",
        "An unsupported case tests what the library does not implement, and is not a failure.",
    ]
    assert head.splitlines() == [
        f"{library} (ur)",
        "device: Fake device",
        "platform: Fake, 1.0",
        "layout: 2026.2",
    ]
    rows = [line.split() for line in table.splitlines()]
    assert rows[0] == ["area", "passed", "failed", "unsupported"]
    assert rows[1] == ["context", "3", "1", "1"]
    assert failures.splitlines() == [
        "failed:",
        "  urContextCreate: flags of 0 are as good as no properties: expected an answer, got "
        f"{CRASH}",
    ]
    assert end.startswith("6 cases in ")
    assert done.code == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--area", "nonsense"), "there is no area 'nonsense' for this library"),
        (("--device", "7"), "the library has no device 7"),
        (("--device", "cuda:*"), "the library has no device cuda:*"),
    ],
)
def test_wrong_options_are_explained(
    arguments: tuple[str, ...], message: str, fake_adapter: FakePlugin, run_python: RunPython
) -> None:
    done = run_python(COMMAND, "conformance", *arguments, str(fake_adapter()), check=False)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert ("there are: 0 (native_cpu:cpu, Fake device)" in done.err) == ("--device" in arguments)


def test_a_case_file_that_cannot_be_imported_is_quoted(
    fake_adapter: FakePlugin, run_python: RunPython, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys; sys.modules['fairlead.conformance.ur.kinds'] = None"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = run_python(COMMAND, "conformance", str(fake_adapter()), check=False)
    assert done.code == 1
    (line,) = [line for line in done.out.splitlines() if line.startswith("not complete")]
    assert re.match(
        r"not complete.*: test_\w+\.py cannot be imported: ModuleNotFoundError: "
        r".*fairlead\.conformance\.ur\.kinds",
        line,
    )


def test_files_that_are_no_libraries_of_an_interface(run_python: RunPython, tmp_path: Path) -> None:
    done = run_python(COMMAND, "conformance", str(tmp_path / "missing.so"), check=False)
    assert (done.code, "there is no such file" in done.err) == (1, True)
    text = tmp_path / "text.so"
    text.write_text("no library")
    done = run_python(COMMAND, "conformance", str(text), check=False)
    assert (done.code, "text.so" in done.err) == (1, True)


def test_without_pytest_the_command_says_what_to_install(
    fake_adapter: FakePlugin, run_python: RunPython
) -> None:
    code = f"import sys; sys.modules['pytest'] = None; {COMMAND}"
    done = run_python(code, "conformance", str(fake_adapter()), check=False)
    assert done.code == 1
    assert "the conformance suite needs pytest" in done.err
    assert "pip install 'fairlead[conformance]'" in done.err


# Intel's adapter


@pytest.fixture(scope="module")
def intels_adapter(real_plugins: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Intel's OpenCL adapter of 2025.3.3, beside the library that it needs."""
    adapter = tmp_path_factory.mktemp("intel") / "libur_adapter_opencl.so.0"
    adapter.symlink_to(real_plugins / "ur-then" / adapter.name)
    (adapter.parent / "libumf.so.1").symlink_to(real_plugins / "umf/libumf.so.1")
    return adapter


def test_intels_adapter_passes(
    intels_adapter: Path, intel_cpu: Candidate, conformance: Callable[..., Run]
) -> None:
    areas = ("adapter", "platform", "images", "native-handles", "sampler")
    run = conformance(intels_adapter, intel_cpu, area=areas)
    assert (run.code, run.failed) == (0, {})
    for area in areas:
        assert run.report["areas"][area]["passed"] >= 6, area


def test_what_intels_command_buffers_are_known_to_do_otherwise_is_found(
    intels_adapter: Path, intel_cpu: Candidate, conformance: Callable[..., Run]
) -> None:
    known = {
        "command-buffer": (
            ("descriptor[isInOrder]", "descriptor[enableProfiling]", "unknown_sync_point"),
            ("finalize_twice", "sync_points_order", "in_order"),
        ),
        "command-buffer-enqueue": (
            ("command_type",),
            ("serialised_across_queues", "release_while_executing"),
        ),
    }
    run = conformance(intels_adapter, intel_cpu, area=tuple(known))
    assert "Intel" in run.report["facts"]["platform"]
    assert run.code == 1
    outcomes = {case["name"]: case["outcome"] for case in run.report["cases"]}
    for area, (failed, passed) in known.items():
        assert set(run.failed) >= {f"{area}::{name}" for name in failed}
        assert [outcomes[f"{area}::{name}"] for name in passed] == ["passed"] * len(passed)


@pytest.mark.parametrize(
    "area", ["usm", "queue", pytest.param("", marks=pytest.mark.thorough, id="all")]
)
def test_what_an_adapter_does_not_implement_is_no_failure(
    area: str, conformance: Callable[..., Run], run_python: RunPython, tmp_path: Path
) -> None:
    """The example of docs/write_an_adapter.md implements 12 entry points of more than 200."""
    source = Path(__file__).parents[2] / "examples/toy_adapter.py"
    library = tmp_path / "libur_adapter_toy.so.0"
    run_python(COMMAND, "build-adapter", "-o", str(library), str(source))
    run = conformance(library, area=area, timeout=PATIENT)
    assert not [got for got in run.failed.values() if "UNSUPPORTED" in got]
    assert set(run.failed) < {
        case["name"]
        for case in run.report["cases"]
        if case["entry_point"] in IMPLEMENTED_BY_THE_TOY
    }
    assert len(run.failed) < 20 and not run.report["trouble"]
    if not area:
        assert run.report["areas"]["adapter"]["failed"] == 0


def test_the_report_names_what_is_not_implemented() -> None:
    cases = [
        Case(f"a::{n}", "a", "urX", "rule", outcome="unsupported", got=f"{name} answers {code}")
        for n, (name, code) in enumerate(
            [("urMissing", "UR_RESULT_ERROR_UNSUPPORTED_FEATURE")] * 3
            + [("urOther", "UR_RESULT_ERROR_UNINITIALIZED"), ("urInfo", "another code")]
        )
    ]
    text = render(SuiteReport("library", "ur", cases=cases))
    assert "not implemented, with the cases that need it: urMissing (3), urOther (1)\n" in text
    assert text.startswith("0 of 5 cases failed.")


def test_a_notebook_shows_the_report_as_a_table() -> None:
    failed = Case("a::1", "a", "urX", "a <rule>", outcome="failed", expected="1", got="2")
    cases = [failed, Case("b::1", "b", "urY", "rule", outcome="passed")]
    page = SuiteReport("library", "ur", cases=cases)._repr_html_()
    for row in ("<td>a</td><td>0</td><td>1</td>", "<td>total</td><td>1</td><td>1</td><td>0</td>"):
        assert row in page
    assert "urX: a &lt;rule&gt;: expected 1, got 2" in page


#: The functions that examples/toy_adapter.py declares, and that it breaks rules of.
IMPLEMENTED_BY_THE_TOY = {
    "urContextCreate",
    "urQueueCreate",
    "urDeviceSelectBinary",
    "urUSMDeviceAlloc",
    "urUSMFree",
    "urUSMGetMemAllocInfo",
    "urEnqueueUSMMemcpy",
}


def test_pocl_without_command_buffers_is_unsupported_and_no_failure(
    intels_adapter: Path, pocl_wheel: Candidate, conformance: Callable[..., Run]
) -> None:
    run = conformance(intels_adapter, pocl_wheel, area="command-buffer-commands")
    assert "Portable Computing Language" in run.report["facts"]["platform"]
    counts = run.report["areas"]["command-buffer-commands"]
    assert (run.code, counts["passed"], counts["failed"]) == (0, 0, 0)
    assert counts["unsupported"] > 40


# The data


def test_the_listed_errors_are_of_all_entry_points() -> None:
    newest = {name for table in next(iter(UR.layouts.values())).values() for name in table}
    assert set(LISTED) == newest
    codes = {name for name, _ in UR.errors.values()}
    for listed in LISTED.values():
        for error in listed.errors:
            assert error.code in codes
            assert error.describe(listed.function)
        assert not listed.condition or listed.condition in UR.constants


@pytest.fixture(scope="module")
def header(headers: Path) -> dict[str, str]:
    """What the header says before each function, in a line."""
    found = re.findall(
        r"((?:^///.*\n)+)^UR_APIEXPORT ur_result_t UR_APICALL\s+(\w+)\(",
        (headers / "unified-runtime/ur_api.h").read_text(encoding="utf-8"),
        re.M,
    )
    return {name: " ".join(text.replace("///", " ").split()) for text, name in found}


def test_the_listed_errors_are_those_of_the_header(header: dict[str, str]) -> None:
    for name, listed in LISTED.items():
        for error in listed.errors:
            assert f"::{error.code}" in header[name], (name, error)
        nulls = {
            change
            for error in listed.errors
            for change, word in [error.change.partition("=")[::2]]
            if not word
        }
        for argument in re.findall(r"`NULL == ([\w>-]+)`", header[name]):
            assert argument.replace("->", ".") in nulls, (name, argument)


@pytest.mark.parametrize("works", [True, False])
def test_a_case_runs_in_a_copy_of_the_process_where_the_library_works_there(works: bool) -> None:
    process = os.getpid()

    def answer() -> bool:
        return works or os.getpid() == process

    assert works_in_fork(answer, 5) is works
    run = in_fork(lambda: equal(os.getpid() != process, works, "in a copy"), 5, lambda: works)
    run()


def test_a_case_that_waits_for_a_core_does_not_hang(
    fake_adapter: FakePlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One takes longer than the limit."""
    keep_in_line(monkeypatch)
    library = fake_adapter(at_num_devices="for (volatile int n = 100000000; n; n--) continue")
    report = run_here(str(library), area="context", timeout=1e-6)
    outcomes = {case.name: case.outcome for case in report.cases}
    assert outcomes["context::one_device"] == "passed"


@pytest.mark.parametrize("every_core_is_busy", [False, True])
def test_a_case_of_a_copy_has_the_time_in_which_it_waits_for_a_core(
    monkeypatch: pytest.MonkeyPatch, every_core_is_busy: bool
) -> None:
    if every_core_is_busy:
        keep_in_line(monkeypatch)
    with nullcontext() if every_core_is_busy else pytest.raises(Mismatch, match="it hung"):
        in_fork(lambda: os.sched_yield(), 1e-6, lambda: True)()


def test_a_case_of_a_copy_fails_with_what_it_has_found() -> None:
    with pytest.raises(Mismatch, match="expected 1, got 2"):
        in_fork(lambda: equal(2, 1), 5, lambda: True)()


def test_what_a_case_of_a_copy_has_found_may_be_long() -> None:
    with pytest.raises(Mismatch) as caught:
        in_fork(lambda: equal("x" * 200_000, ""), 5, lambda: True)()
    assert "x" * 200_000 in caught.value.got


@pytest.mark.parametrize("forks", [False, True])
def test_cases_run_in_copies_once_one_of_their_entry_point_has_failed(
    forks: bool, tmp_path: Path
) -> None:
    """What fails is run again, in a copy."""
    suite = Reporter(SuiteRequest("library", "ur", forks=forks), lambda **line: None)
    process, file = os.getpid(), tmp_path / "where"

    def places(entry_point: str, expected: int) -> list[str]:
        def case() -> None:
            with file.open("a") as ran:
                ran.write("here " if os.getpid() == process else "copy ")
            equal(1, expected)

        file.write_text("")
        with nullcontext() if expected == 1 else pytest.raises(Mismatch):
            suite.guard(case, entry_point)()
        return file.read_text().split()

    def unless_all_fork(*ran: str) -> list[str]:
        return ["copy"] if forks else [*ran]

    assert places("urQueueFlush", 1) == unless_all_fork("here")
    assert places("urQueueFlush", 2) == unless_all_fork("here", "copy")
    assert places("urQueueFlush", 1) == ["copy"]
    assert places("urQueueFinish", 1) == unless_all_fork("here")
