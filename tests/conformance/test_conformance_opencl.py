"""The OpenCL and the PI cases of the conformance suite.

The fake driver that breaks a rule of the ICD protocol fails that rule's case. The fake plugin does
so for piPluginInit. The real libraries fail what they are known to fail, and nothing else.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from helpers.suites import RunSuite, check_own_adapter
from helpers.support import FakeDriver, FakePlugin, RunPython

from fairlead.api import register_drivers
from fairlead.cli.doctor import loaders
from fairlead.conformance import harness
from fairlead.conformance.device import UsageError
from fairlead.conformance.opencl import commands
from fairlead.conformance.report import SuiteReport
from fairlead.icd import driver_profiles
from fairlead.icd.abi import OPENCL
from fairlead.loader.base.search import Candidate
from fairlead.plugins import build_plugin, level_zero_adapter, reference_adapter

pytestmark = pytest.mark.slow


def failures(report: SuiteReport) -> dict[str, str]:
    """The names of the cases that failed, and what was got."""
    assert not report.trouble and not report.left, report.trouble
    return {case.name: case.got for case in report.cases if case.outcome == "failed"}


@pytest.fixture(scope="session")
def good(fake_driver: FakeDriver, run_suite: RunSuite) -> Callable[[str, int], dict[str, str]]:
    """What the fake driver of an ICD version fails of an area, for it has few functions."""

    @cache
    def run(area: str, icd: int) -> dict[str, str]:
        return failures(run_suite(fake_driver(icd=icd), area=area))

    return run


@pytest.fixture(scope="session")
def broken(
    fake_driver: FakeDriver, good: Callable[[str, int], dict[str, str]], run_suite: RunSuite
) -> Callable[..., dict[str, str]]:
    """Returns what a variant of the fake driver fails of an area, and the unchanged one does
    not."""

    def run(area: str, **knobs: object) -> dict[str, str]:
        found = failures(run_suite(fake_driver(**knobs), area=area))
        icd = knobs.get("icd", 1)
        assert isinstance(icd, int)
        before = good(area, icd)
        return {name: got for name, got in found.items() if before.get(name) != got}

    return run


EVERY_PLATFORM = ("icd::platforms", "icd::version", "icd::suffix", "icd::tags")
#: Knobs of tests/fake/driver.c, and cases that such a driver must fail.
BROKEN: list[tuple[str, dict[str, object], tuple[str, ...]]] = [
    ("icd", {"exports": 1}, ("icd::entry", "icd::list_is_given")),
    ("icd", {"count": 0}, EVERY_PLATFORM),
    ("icd", {"count_error": -6}, EVERY_PLATFORM),
    ("icd", {"fetch_error": -5}, EVERY_PLATFORM),
    ("icd", {"platforms": 2, "handle": "NULL"}, EVERY_PLATFORM),
    ("icd", {"platforms": 2, "handle": "&platforms[1]"}, ("icd::platforms",)),
    ("icd", {"table": "NULL"}, ("icd::tags", "icd::version")),
    ("icd", {"null_slot": 1}, ("icd::version", "icd::suffix", "icd::core_functions[1.0]")),
    ("icd", {"null_slot": 3}, ("icd::core_functions[1.0]",)),
    ("icd", {"tag_in_slot_0": 1}, ("icd::tags", "icd::functions_of_icd2")),
    ("icd", {"icd": 2, "tag_in_slot_31": 0}, ("icd::tags",)),
    ("icd", {"icd": 2, "has_get_function": 0}, ("icd::functions_of_icd2", "icd::version")),
    ("icd", {"icd": 2, "has_set_data": 0}, ("icd::functions_of_icd2",)),
    ("icd", {"extensions": '"cl_khr_fp64"'}, ("icd::extension",)),
    ("icd", {"suffix_error": -30}, ("icd::suffix",)),
    ("icd", {"version": '"3.0"'}, ("icd::version",)),
    (
        "dispatch",
        {"object_table": '(void **)"none"'},
        ("dispatch::objects[context]", "dispatch::objects[queue]"),
    ),
    (
        "dispatch",
        {"icd": 2, "object_data": "NULL"},
        ("dispatch::objects[context]", "dispatch::objects[queue]"),
    ),
    ("dispatch", {"icd": 2, "set_stores": 0}, ("dispatch::devices", "dispatch::data_is_stored")),
]


@pytest.mark.parametrize(
    ("area", "knobs", "names"),
    [pytest.param(*row, id=" ".join(f"{k}={v}" for k, v in row[1].items())) for row in BROKEN],
)
def test_a_broken_driver_fails_the_rule(
    broken: Callable[..., dict[str, str]],
    area: str,
    knobs: dict[str, object],
    names: tuple[str, ...],
) -> None:
    found = broken(area, **knobs)
    assert set(names) <= set(found), found


def test_what_a_null_slot_costs_is_named(broken: Callable[..., dict[str, str]]) -> None:
    assert "'clGetDeviceInfo'" in broken("icd", null_slot=3)["icd::core_functions[1.0]"]


def test_a_good_driver_of_either_kind_fails_nothing_of_what_is_tried(
    good: Callable[[str, int], dict[str, str]],
) -> None:
    """Otherwise the table above would show nothing."""
    for icd in (1, 2):
        for area in ("icd", "dispatch"):
            tried = {name for other, _, names in BROKEN if other == area for name in names}
            assert tried & set(good(area, icd)) <= {
                "icd::core_functions[1.0]"
            }  # the fake driver has few functions


def test_a_driver_without_command_buffers_has_nothing_to_fail_there(
    pocl_wheel: Candidate, run_suite: RunSuite
) -> None:
    report = run_suite(pocl_wheel.library, area="command-buffer")
    assert {case.outcome for case in report.cases if case.area == "command-buffer"} == {
        "unsupported"
    }
    assert all(
        "cl_khr_command_buffer" in case.got
        for case in report.cases
        if case.area == "command-buffer"
    )


def known(name: str) -> set[str]:
    """The cases that a driver is known to fail, from the list beside this file."""
    lines = (
        (Path(__file__).parent / "conformance_opencl.txt").read_text(encoding="utf-8").splitlines()
    )
    return {line.split(" ", 1)[1] for line in lines if line.startswith(f"{name} ")}


def check_known(report: SuiteReport, name: str, passed: int | dict[str, int]) -> None:
    """A library fails what it is known to fail, and passes so many cases at least, of each area."""
    assert set(failures(report)) <= known(name)
    found = Counter(case.area for case in report.cases if case.outcome == "passed")
    if isinstance(passed, int):
        assert found.total() >= passed
    else:
        assert all(found[area] >= least for area, least in passed.items()), found


@pytest.mark.driver("intel_cpu")
def test_a_real_driver(intel_cpu: Candidate, run_suite: RunSuite) -> None:
    check_known(run_suite(driver_profiles.locate(intel_cpu)[0]), "intel", 660)


@pytest.mark.thorough
def test_another_real_driver(pocl_wheel: Candidate, run_suite: RunSuite) -> None:
    check_known(run_suite(pocl_wheel.library), "pocl", 260)


def test_areas_of_another_real_driver(pocl_wheel: Candidate, run_suite: RunSuite) -> None:
    passed = {"icd": 29, "dispatch": 19, "null-handles": 89}
    check_known(run_suite(pocl_wheel.library, area=tuple(passed)), "pocl", passed)


@pytest.mark.parametrize("text", ["bogus", "7", "opencl:gpu"])
def test_a_device_that_there_is_not_is_an_error_and_those_that_there_are_are_listed(
    text: str, fake_driver: FakeDriver, fake_plugin: FakePlugin
) -> None:
    for library in (fake_driver(), fake_plugin(interface=2)):
        with pytest.raises(UsageError, match=f"the library has no device {text}") as caught:
            harness.run(str(library), device=text)
        assert re.search(r"there are: 0 \(\w+:\w+, Fake device[ 0]*\)$", caught.value.remedy)


def test_a_device_is_chosen_by_a_selector(fake_driver: FakeDriver) -> None:
    report = harness.run(str(fake_driver()), device="opencl:acc", area="icd")
    assert report.cases and not report.trouble


def test_a_loader_is_refused_before_it_is_called(
    compile_c: Callable[..., Path], tmp_path: Path, run_python: RunPython
) -> None:
    wheels = loaders.find_pyopencl()
    assert wheels and wheels.loader
    (tmp_path / "loader.c").write_text(
        "__attribute__((constructor)) static void load(void) { __builtin_trap(); }\n"
        '__attribute__((visibility("default"))) void '
        "*clGetExtensionFunctionAddress(void) { __builtin_trap(); }\n"
    )
    (tmp_path / "loader.map").write_text("OPENCL_1.0 { global: cl*; local: *; };")
    mine = compile_c(
        tmp_path / "loader.c",
        tmp_path / "libmine.so.1",
        f"-Wl,--version-script={tmp_path / 'loader.map'}",
    )
    for library in (mine, wheels.loader):
        done = run_python(
            "from fairlead.cli.main import main; main()", "conformance", str(library), check=False
        )
        assert (done.code, done.out) == (1, "")
        assert f"{library}: it is an OpenCL loader" in done.err and "remedy: name a" in done.err


def test_a_loader_without_symbol_versions_is_refused_when_it_is_open(
    fake_driver: FakeDriver, run_suite: RunSuite
) -> None:
    report = run_suite(fake_driver(is_loader=1))
    assert report.trouble.startswith("it is an OpenCL loader, not a driver")


# PI

#: Knobs of tests/fake/plugin.c, and cases that such a plugin must fail.
BROKEN_PLUGINS: list[tuple[dict[str, object], tuple[str, ...]]] = [
    ({"getter_error": -59}, ("library::opening",)),
    ({"plugin_version": '"14.30"'}, ("library::opening",)),
    ({"null_entry": "piQueueFinish"}, ("plugin::table",)),
    ({"wild": "piQueueFinish"}, ("plugin::exported_names",)),
    ({"shifted": 2}, ("plugin::exported_names",)),
    ({"written": "length + 3"}, ("plugin::table",)),
    ({"exports": 1}, ("plugin::exports",)),
    ({"release_error": -5}, ("plugin::tear_down",)),
]


@pytest.fixture(scope="session")
def broken_plugin(fake_plugin: FakePlugin, run_suite: RunSuite) -> Callable[..., set[str]]:
    """What a variant of the fake PI plugin fails, that the fake plugin itself does not fail."""

    def failed(**knobs: object) -> set[str]:
        report = run_suite(fake_plugin(interface=2, **knobs), area="plugin")
        return {case.name for case in report.cases if case.outcome == "failed"}

    good = cache(failed)
    return lambda **knobs: failed(**knobs) - good()


@pytest.mark.parametrize(
    ("knobs", "names"),
    [
        pytest.param(*row, id=" ".join(f"{k}={v}" for k, v in row[0].items()))
        for row in BROKEN_PLUGINS
    ],
)
def test_a_broken_plugin_fails_the_rule(
    broken_plugin: Callable[..., set[str]], knobs: dict[str, object], names: tuple[str, ...]
) -> None:
    found = broken_plugin(**knobs)
    assert set(names) <= found, found


@pytest.mark.parametrize(
    "passed",
    [
        pytest.param(500, marks=pytest.mark.thorough, id="all"),
        pytest.param({"usm": 60, "images": 25, "native-handles": 22, "info": 140}, id="areas"),
    ],
)
def test_a_real_plugin(
    intel_cpu: Candidate, real_plugins: Path, run_suite: RunSuite, passed: int | dict[str, int]
) -> None:
    """Intel's plugin of 2024 can do little of command-buffers on today's drivers, and refuses all
    buffers."""
    driver = register_drivers([driver_profiles.locate(intel_cpu)[0]])
    library = str(real_plugins / "pi/libpi_opencl.so")
    area = tuple(passed) if isinstance(passed, dict) else ""
    check_known(run_suite(library, area=area, environment=driver), "pi", passed)


@pytest.mark.parametrize(
    ("adapter", "driver"),
    [
        (reference_adapter(), "intel_cpu"),
        (reference_adapter(), "pocl_wheel"),
        (level_zero_adapter(), "intel_cpu"),
    ],
    ids=["cl", "cl-pocl", "ze"],
)
def test_our_plugins(
    adapter: str, driver: str, request: pytest.FixtureRequest, run_suite: RunSuite, tmp_path: Path
) -> None:
    """A case ends the plugin in the middle of them, but only in a fork."""
    library = build_plugin(Path(adapter), tmp_path / "libpi_opencl.so")
    found = driver_profiles.locate(request.getfixturevalue(driver))[0]
    # PoCL aborts at what it finds compiled and not linked in the cache of other tests
    env = {"POCL_CACHE_DIR": str(tmp_path)}
    report = run_suite(library, environment=register_drivers([found]), timeout=120.0, env=env)
    check_own_adapter(report)
    ended = next(case for case in report.cases if case.name == "plugin::tear_down")
    assert ended.outcome == "passed"


@pytest.mark.parametrize(("version", "has_it"), [((0, 9, 4), False), ((0, 9, 8), True)])
def test_commands_of_an_older_version_have_no_properties(
    version: tuple[int, int, int], has_it: bool
) -> None:
    class Device:
        """Of OpenCL 3.0, with the extension in that version."""

        version_number = (3, 0)

        def info(self, name: str) -> object:
            return ((commands.EXTENSION, version),)

    found = commands.CommandBuffers(Device())  # type: ignore[arg-type]
    function = found.function("clCommandCopyBufferKHR")
    assert ("properties" in function.c_parameters) == has_it
    whole = len(OPENCL.functions["clCommandCopyBufferKHR"].parameters)
    assert len(function.parameters) == whole - (not has_it) and function.prototype
