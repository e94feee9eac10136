"""The PI plugin: through fairlead's loader, and from a C program without Python.

It is tested over the reference adapter, and over Intel's adapter of 2025.3 in its place: what fails
over one of them alone is that one's fault.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from helpers.suites import RunSuite
from helpers.support import ROOT, Output, RunPython, run_program

from fairlead import plugins
from fairlead.api import register_drivers
from fairlead.icd.abi import OPENCL
from fairlead.icd.driver_profiles import locate
from fairlead.loader.base.search import Candidate
from fairlead.loader.pi.abi import API_VERSION, PI
from fairlead.plugins.sdk.build import build_plugin

pytestmark = pytest.mark.slow

HERE: Final = Path(__file__).parent
LIBRARIES: Final = f"{sys.prefix}/lib"  # libOpenCL.so.1 of Intel's wheel, for Intel's adapter
UNINITIALIZED: Final = PI.codes["PI_ERROR_UNINITIALIZED"]
ENTRIES: Final = len(PI.slots)
WHOLE: Final = f"version '{API_VERSION}.1' exported {ENTRIES} nothing 0"
NOTHING: Final = f"version '' exported 0 nothing {ENTRIES}"
#: What a child must not have found in its environment: FAIRLEAD_PYTHON and the like are for users.
_OURS: Final = ("FAIRLEAD_", "OCL_ICD_", "UR_", "SYCL_")


@dataclass(frozen=True)
class Case:
    """A plugin, and the driver that it finds."""

    plugin: Path
    driver: str

    @property
    def environment(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
        return {**own, **register_drivers([self.driver]), "LD_LIBRARY_PATH": LIBRARIES}


@pytest.fixture(scope="session")
def plugin_of_intel(real_plugins: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plugin that leads to Intel's adapter, which lies beside the library that it needs."""
    folder = tmp_path_factory.mktemp("intel")
    (folder / "libumf.so.1").symlink_to(real_plugins / "umf/libumf.so.1")
    adapter = folder / "libur_adapter_opencl.so.0"
    adapter.symlink_to(real_plugins / "ur-then" / adapter.name)
    return build_plugin(adapter, folder / "libpi_opencl.so")


@pytest.fixture(
    params=[
        pytest.param((adapter, driver), id=f"{adapter}-{driver}", marks=pytest.mark.driver(driver))
        for adapter, driver in (
            ("fairlead", "intel_cpu"),
            ("fairlead", "pocl_wheel"),
            ("intel", "intel_cpu"),
        )
    ]
)
def case(request: pytest.FixtureRequest) -> Case:
    """Each plugin on each driver that it can work with."""
    adapter, driver = request.param
    library = locate(request.getfixturevalue(driver))[0]
    plugin = (
        request.getfixturevalue("plugin_of_intel")
        if adapter == "intel"
        else Path(plugins.reference_plugin())
    )
    return Case(plugin, library)


@pytest.fixture
def reference(pocl_wheel: Candidate) -> Case:
    """The reference adapter's plugin on PoCL."""
    return Case(Path(plugins.reference_plugin()), pocl_wheel.library)


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """pi_host.c, compiled. Every prototype in it is that of the ABI data."""
    folder = tmp_path_factory.mktemp("pi-host")
    (folder / "pi_plugin.h").write_text("\n".join(_header()), encoding="utf-8")
    slot = OPENCL.functions["clCreateProgramWithSource"].slot
    command = [
        "cc",
        "-std=gnu11",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{folder}",
        f"-DCREATE_PROGRAM={slot}",
    ]
    command += [str(HERE / "pi_host.c"), "-o", str(folder / "pi_host"), "-pthread", "-ldl"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "pi_host"


def _header() -> list[str]:
    building = runpy.run_path(str(ROOT / "loader/base/native/building.py"))
    members = (f.format_c_declaration(f"(*{f.name})") for f in PI.slots)
    names = ", ".join(f'"{f.name}"' for f in PI.slots)
    return [
        *building["emit_declarations"](PI),
        *(
            f"#define {constant.name} ({constant.value}{'ull' if constant.value >> 63 else ''})"
            for constant in PI.constants.values()
        ),
        f"#define ENTRIES {ENTRIES}",
        f"static const char *const names[] = {{{names}}};",
        "struct plugin { char host_version[20], version[20]; char *targets;",
        f"  union {{ void *table[ENTRIES]; struct {{ "
        f"{' '.join(f'{member};' for member in members)} }}; }}; }};",
        "",
    ]


def run(host: Path, case: Case, *commands: str) -> Output:
    """Run the program in C on a plugin."""
    return run_program(
        host, "open", str(case.plugin), *commands, env=case.environment, cwd=host.parent
    )


def check(output: Output, *lines: str) -> None:
    """The program has printed these lines, and ended well."""
    assert (output.out.splitlines(), output.err, output.code) == (["open: ok", *lines], "", 0)


# a C program


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("14.30", f"init: -59 {NOTHING}"),
        ("1.2", f"init: -59 {NOTHING}"),
        ("NULL", f"init: -30 {NOTHING}"),
        ("15.47", f"init: 0 {WHOLE}"),
        ("15.48", f"init: 0 {WHOLE}"),
        ("16.0", f"init: 0 {WHOLE}"),
    ],
)
def test_hosts_that_are_older_are_refused_and_nothing_is_written(
    host: Path, reference: Case, version: str, expected: str
) -> None:
    check(run(host, reference, "init", version), expected)


def test_program_computes_and_ends(host: Path, case: Case) -> None:
    # Intel's adapter keeps each queue's last event without a lock: two threads on one in-order
    # queue release it twice. DPC++ locks its queues, so its programs never do that.
    queues = "each" if case.plugin.parent.name.startswith("intel") else "one"
    steps = f"init 15.47 devices compute threads {queues} callback release teardown"
    output = run(host, case, *steps.split())
    said = f"init: 0 {WHOLE}", "devices: 0 a CPU", "compute: right times ascend", "threads: right"
    check(output, *said, "callback: told", "release: ok", "teardown: 0 1")


def test_program_that_releases_nothing_ends_too(host: Path, case: Case) -> None:
    output = run(host, case, "init", "15.47", "devices", "compute")
    check(output, f"init: 0 {WHOLE}", "devices: 0 a CPU", "compute: right times ascend")


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_is_released_at_the_very_end_does_no_harm(
    host: Path, reference: Case, when: str
) -> None:
    """A handler that was registered before the plugin was there runs after the adapter has ended,
    as do destructors of static objects."""
    begin = ("init", "15.47", "devices", "compute")
    output = run(host, reference, *(("late", *begin) if when == "before" else (*begin, "late")))
    retained = UNINITIALIZED if when == "before" else 0
    found = output.out.splitlines()[-1]
    assert found == f"at end: wait 0 finish 0 retain {retained} release 0 teardown 0"
    assert (output.err, output.code) == ("", 0)


def test_plugin_that_was_torn_down_can_be_begun_again(host: Path, case: Case) -> None:
    once = ("init", "15.47", "devices", "compute", "release", "teardown")
    output = run(host, case, *once, "devices", "teardown", *once, *once)
    lines = (
        f"init: 0 {WHOLE}",
        "devices: 0 a CPU",
        "compute: right times ascend",
        "release: ok",
        "teardown: 0 1",
    )
    check(output, *lines, f"devices: {UNINITIALIZED} none", "teardown: 0 0", *lines, *lines)


def test_plugin_whose_adapter_is_gone_says_so_and_has_a_table_all_the_same(
    host: Path, reference: Case, tmp_path: Path
) -> None:
    """DPC++ looks at the table alone."""
    gone = tmp_path / "libur_adapter_gone.so.0"
    gone.touch()
    plugin = build_plugin(gone, tmp_path / "libpi_opencl.so")
    gone.unlink()
    output = run(host, Case(plugin, reference.driver), "init", "15.47", "devices", "teardown")
    assert output.out.splitlines()[1:] == [
        f"init: {UNINITIALIZED} {WHOLE}",
        f"devices: {UNINITIALIZED} none",
        f"teardown: {UNINITIALIZED} 0",
    ]
    assert "the file does not exist" in output.err
    assert output.code == 0


def test_plugin_is_built_of_an_adapter_that_is_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        build_plugin(tmp_path / "libur_adapter_none.so.0", tmp_path / "libpi_opencl.so")


# through fairlead's loader


def test_loader_binds_it_like_any_other_plugin(run_python: RunPython, case: Case) -> None:
    code = """
import json, sys
from fairlead.loader.ur.adapters import load
from fairlead.loader.ur.discovery import PluginCandidate

plugin = load(PluginCandidate(sys.argv[1], "test", interface="PI", backend="opencl"))
found = [
    plugin.version,
    list(plugin.binding.notes),
    sorted(plugin.binding.missing),
    [str(device) for device in plugin.devices],
]
plugin.close()
again = load(PluginCandidate(sys.argv[1], "test", interface="PI", backend="opencl"))
print(json.dumps([*found, len(again.devices) == len(found[3])]))
"""
    done = run_python(code, str(case.plugin), env={**case.environment})
    version, notes, missing, devices, same = json.loads(done.out)
    assert (version, notes, missing, len(devices), same) == (f"{API_VERSION}.1", [], [], 1, True)
    assert done.err == ""


#: Areas in which Intel's adapter breaks no rule. The reference adapter's plugin runs all:
#: tests/conformance/test_conformance_opencl.py.
AREAS: Final = (
    *("command-buffer-commands", "usm", "native-handles", "lifetime", "images", "sampler"),
    *("threads", "context", "platform"),
)


def test_the_plugin_of_another_adapter_keeps_the_rules_that_the_adapter_keeps(
    plugin_of_intel: Path, intel_cpu: Candidate, run_suite: RunSuite
) -> None:
    driver = register_drivers([locate(intel_cpu)[0]])
    report = run_suite(plugin_of_intel, area=AREAS, environment=driver, timeout=120.0)
    assert not report.trouble
    assert [case.name for case in report.cases if case.outcome == "failed"] == []
    passed = Counter(case.area for case in report.cases if case.outcome == "passed")
    assert all(passed[area] > 2 for area in AREAS), passed
