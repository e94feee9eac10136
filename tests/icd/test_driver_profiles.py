"""Driver profiles: the table, its switches, and the repairs. test_habits.py tests the habits."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from helpers.profile_document import as_markdown
from helpers.support import ROOT, FakeDriver, RunPython, check_named_tests

from fairlead.icd import driver_profiles
from fairlead.icd.driver_profiles import (
    ROWS,
    Applies,
    DriverProfile,
    ProfileRow,
    find_profile,
    find_profile_by_names,
    list_active,
    parse_switches,
)
from fairlead.icd.drivers import load
from fairlead.icd.repairs import CPU_LEVELS, _read_cpu_flags, find_cpu_level
from fairlead.loader.base.errors import LibraryError
from fairlead.loader.base.search import Candidate


def test_every_row_is_complete() -> None:
    """It says what it is for, names a test that exists, and either repairs or sets a capability."""
    capabilities = {field.name for field in fields(DriverProfile)}
    assert len({row.id for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", row.id)
        assert str(row.applies) and row.does and row.evidence
        assert check_named_tests(f"`{row.test}`") == 1
        repairs = [row.locate, row.repair_open, row.repair_platform, row.means_no_platform]
        assert sum(map(bool, repairs)) == row.is_repair
        assert row.is_repair or (row.sets and set(row.sets) <= capabilities)
    assert {name for row in ROWS for name in row.sets} == capabilities


def test_the_document_is_the_table() -> None:
    document = ROOT / "docs/driver_profiles.md"
    assert document.read_text(encoding="utf-8") == as_markdown(), (
        "run tests/helpers/profile_document.py"
    )
    assert max(map(len, as_markdown().splitlines())) <= 100


def test_names_of_drivers_are_compared_in_one_file() -> None:
    """Elsewhere the product asks for capabilities."""
    compared = re.compile(
        r"(==|!=|\bin\b|startswith\().{0,12}[\"'](Intel|NVIDIA|Portable|PoCL)"
        r"|[\"'](Intel|NVIDIA|Portable|PoCL)[^\"']*[\"'] (==|!=|in|not in) "
        r"|[\"'](Intel\(R\) OpenCL|NVIDIA CUDA|Portable Computing|PoCL \d)"
    )
    for folder in (
        *("icd", "plugins", "graph", "runtime", "loader", "conformance"),
        *("fairlead/cli", "fairlead/captured_graphs", "fairlead/graph_files"),
    ):
        for path in (*ROOT.glob(f"{folder}/**/*.py"), *ROOT.glob(f"{folder}/**/*.[ch]")):
            if path.name != "driver_profiles.py":
                lines = path.read_text(encoding="utf-8").splitlines()
                assert not [line for line in lines if compared.search(line)], path


def test_a_driver_without_habits_takes_the_plain_path() -> None:
    assert find_profile_by_names("Another", "Somebody", "OpenCL 3.0 1.2.3") == DriverProfile()


def test_the_profile_of_a_platform(fake_driver: FakeDriver) -> None:
    path = fake_driver(name='"NVIDIA CUDA"', numbered=0)
    (platform,) = load(Candidate(str(path), "test")).platforms
    assert find_profile(platform) == DriverProfile(
        svm_needs_lock=True,
        svm_arguments_stick=True,
        waiting_markers_have_no_times=True,
        argument_infos_break_builds=True,
        compiles_to_ptx=True,
        starts_kernels_early=True,
        launch_seconds=5e-6,
        wait_seconds=12e-6,
    )


@pytest.mark.parametrize(
    ("version", "fits"),
    [
        ("OpenCL 3.0 PoCL 2.9", False),
        ("OpenCL 3.0 PoCL 3.1+debian", True),
        ("OpenCL 3.0 PoCL 7.0-pre", True),
        ("OpenCL 3.0 PoCL 7.1", False),
        ("OpenCL 3.0 PoCL 10.0", False),
        ("OpenCL 3.0", False),
    ],
)
def test_versions_that_a_habit_applies_to(version: str, fits: bool) -> None:
    applies = Applies(product="PoCL", since=(3, 0), before=(7, 1))
    assert applies.fits("any", "any", version) is fits


def test_a_version_that_cannot_be_read_is_not_proven() -> None:
    assert find_profile_by_names(
        "Portable Computing Language", "", "?"
    ).native_command_buffer_defect


def test_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    """0 switches the repairs off, -ID one row; the rest is reported."""
    repairs = {row.id for row in ROWS if row.is_repair}
    assert repairs == {
        "pip-icd-prefix",
        "sibling-libraries",
        "pocl-generic-cpu",
        "no-platform-is-no-memory",
    }
    for value, off, unknown in (
        ("", set(), ()),
        ("0", repairs, ()),
        ("1", set(), ("1",)),
        ("-svm-needs-lock, -pip-icd-prefix", {"svm-needs-lock", "pip-icd-prefix"}, ()),
        ("0,-svm-needs-lock,", repairs | {"svm-needs-lock"}, ()),
        ("-nothing,svm-needs-lock", set(), ("-nothing", "svm-needs-lock")),
    ):
        assert parse_switches(value) == (off, unknown)
        monkeypatch.setenv("FAIRLEAD_QUIRKS", value)
        assert {row.id for row in ROWS} - {row.id for row in list_active()} == off
        needs_lock = find_profile_by_names("NVIDIA CUDA", "", "").svm_needs_lock
        assert needs_lock is ("svm-needs-lock" not in off)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_each_row_is_switched_off_alone(row: ProfileRow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_QUIRKS", f"-{row.id}")
    assert [one.id for one in ROWS if one not in list_active()] == [row.id]


def test_a_good_driver_needs_none(fake_driver: FakeDriver) -> None:
    assert load(Candidate(str(fake_driver()), "test")).quirks == ()


# pip-icd-prefix


@pytest.fixture
def environment(tmp_path: Path, fake_driver: FakeDriver) -> Candidate:
    """A Python environment whose manifest names the prefix that its driver was built in."""
    (tmp_path / "lib/python3.11/site-packages").mkdir(parents=True)
    vendors = tmp_path / "etc/OpenCL/vendors"
    vendors.mkdir(parents=True)
    shutil.copy(fake_driver(), tmp_path / "lib/libvendor.so")
    return Candidate("/build/prefix/lib/libvendor.so", "test", str(vendors / "vendor.icd"))


def test_a_manifest_that_names_a_build_prefix(environment: Candidate, tmp_path: Path) -> None:
    driver = load(environment)
    assert driver.quirks == ("pip-icd-prefix",)
    assert driver.path == str((tmp_path / "lib/libvendor.so").resolve())


def test_that_manifest_with_repairs_switched_off(
    environment: Candidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_QUIRKS", "0")
    with pytest.raises(LibraryError, match="does not exist"):
        load(environment)


def test_a_path_that_exists_is_left_alone(environment: Candidate, fake_driver: FakeDriver) -> None:
    path = fake_driver(platforms=2)
    given = str(path), "test", environment.manifest
    assert driver_profiles.locate(Candidate(*given)) == (str(path), ())


def test_a_bare_soname_is_left_alone(environment: Candidate) -> None:
    given = "libvendor.so", "test", environment.manifest
    assert driver_profiles.locate(Candidate(*given)) == ("libvendor.so", ())


def test_a_prefix_without_python_is_left_alone(environment: Candidate, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "lib/python3.11")
    assert driver_profiles.locate(environment) == (environment.library, ())


def test_a_manifest_elsewhere_is_left_alone(environment: Candidate, tmp_path: Path) -> None:
    for manifest in (None, str(tmp_path / "vendor.icd"), "/vendor.icd"):
        candidate = Candidate(environment.library, "test", manifest)
        assert driver_profiles.locate(candidate) == (environment.library, ())


def test_a_library_that_is_nowhere_is_left_alone(environment: Candidate, tmp_path: Path) -> None:
    (tmp_path / "lib/libvendor.so").unlink()
    assert driver_profiles.locate(environment) == (environment.library, ())


def test_intel_s_wheel_needs_it(intel_cpu: Candidate) -> None:
    assert "pip-icd-prefix" in load(intel_cpu).quirks


# sibling-libraries

LOAD = """
import sys
from fairlead.icd.drivers import load
from fairlead.loader.base.errors import LibraryError
from fairlead.loader.base.search import Candidate
try:
    driver = load(Candidate(sys.argv[1], "test"))
    print(driver.quirks, [platform.name for platform in driver.platforms])
except LibraryError as error:
    print(error.missing)
"""


@pytest.fixture
def siblings(fake_driver: FakeDriver, compile_c: Callable[..., Path], tmp_path: Path) -> Path:
    """A driver that needs libfl-one.so, which needs libfl-two.so.

    All lie side by side, and none says so.
    """
    (tmp_path / "empty.c").write_text("")

    def library(name: str, *needs: Path) -> Path:
        flags = (f"-Wl,-soname,{name}", "-Wl,--no-as-needed", *map(str, needs))
        return compile_c(tmp_path / "empty.c", tmp_path / name, *flags)

    two = library("libfl-two.so")
    one = library("libfl-one.so", two)
    return Path(shutil.copy(fake_driver("-Wl,--no-as-needed", one, two), tmp_path / "driver.so"))


def test_libraries_that_lie_beside_the_driver(siblings: Path, run_python: RunPython) -> None:
    assert run_python(LOAD, str(siblings)).out.strip() == "('sibling-libraries',) ['Fake 0']"


def test_libraries_beside_the_driver_with_repairs_switched_off(
    siblings: Path, run_python: RunPython
) -> None:
    out = run_python(LOAD, str(siblings), env={"FAIRLEAD_QUIRKS": "0"}).out
    assert out.strip() == "('libfl-one.so', 'libfl-two.so')"


def test_only_what_lies_beside_the_driver_helps(
    siblings: Path, run_python: RunPython, tmp_path: Path
) -> None:
    (tmp_path / "libfl-two.so").unlink()
    out = run_python(LOAD, str(siblings)).out
    assert "libfl-two.so" in out and "Fake" not in out


def test_libraries_that_need_each_other_end_the_attempt(
    fake_driver: FakeDriver, compile_c: Callable[..., Path], tmp_path: Path, run_python: RunPython
) -> None:
    (tmp_path / "empty.c").write_text("")
    ours = ("-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined")
    one = compile_c(
        tmp_path / "empty.c", tmp_path / "libfl-ring1.so", "-Wl,-soname,libfl-ring1.so", *ours
    )
    two = compile_c(
        tmp_path / "empty.c",
        tmp_path / "libfl-ring2.so",
        "-Wl,-soname,libfl-ring2.so",
        *ours,
        str(one),
    )
    compile_c(tmp_path / "empty.c", one, "-Wl,-soname,libfl-ring1.so", *ours, str(two))
    path = shutil.copy(fake_driver("-Wl,--no-as-needed", one), tmp_path / "driver.so")
    assert "libfl-ring1.so" in run_python(LOAD, str(path)).out


# pocl-generic-cpu


@pytest.mark.parametrize(("level", "flags"), CPU_LEVELS)
def test_a_cpu_is_given_the_best_name_that_its_flags_allow(level: str, flags: str) -> None:
    assert find_cpu_level(frozenset(flags.split())) == level
    assert flags == "" or find_cpu_level(frozenset(flags.split()[1:])) != level


def test_this_machine_s_cpu_has_a_name() -> None:
    assert find_cpu_level() in dict(CPU_LEVELS)


#: Gives the driver the CPU that is the second argument, and repairs it if there is a third. Then it
#: builds and runs a kernel through the platform's table.
BUILD = """
import ctypes, json, sys
from fairlead.icd import driver_profiles
from fairlead.icd.abi import OPENCL
from fairlead.icd.drivers import load
from fairlead.loader.base.memory import read_text, read_word
from fairlead.loader.base.search import Candidate

(platform,) = load(Candidate(sys.argv[1], "test")).platforms
(device,) = platform.devices
name = ctypes.create_string_buffer(sys.argv[2].encode())
ctypes.c_void_p.from_address(device.handle + 640).value = ctypes.addressof(name)
repair = next(row.repair_platform for row in driver_profiles.ROWS if row.id == "pocl-generic-cpu")
repaired = repair(platform) if sys.argv[3:] else None

table, code, handle = platform.table, ctypes.c_int32(), ctypes.c_void_p
error, one = ctypes.byref(code), ctypes.c_size_t(4)
devices = (handle * 1)(device.handle)
context = table.clCreateContext(None, 1, devices, None, None, error)
queue = table.clCreateCommandQueue(context, device.handle, 0, error)
source = (
    b"kernel void add(global float *a) { a[get_global_id(0)] = a[get_global_id(0)] * 2.0f + 1.0f; }"
)
lines = (ctypes.c_char_p * 1)(source)
program = table.clCreateProgramWithSource(context, 1, lines, None, error)
built = table.clBuildProgram(program, 1, devices, None, None, None)
log = ctypes.create_string_buffer(100000)
table.clGetProgramBuildInfo(
    program, device.handle, OPENCL["CL_PROGRAM_BUILD_LOG"], len(log), log, None
)
values = (ctypes.c_float * 4)(1, 2, 3, 4)
if built == 0:
    flags = OPENCL["CL_MEM_READ_WRITE"] | OPENCL["CL_MEM_COPY_HOST_PTR"]
    buffer = table.clCreateBuffer(context, flags, ctypes.sizeof(values), values, error)
    kernel = table.clCreateKernel(program, b"add", error)
    built = code.value or table.clSetKernelArg(kernel, 0, 8, ctypes.byref(handle(buffer)))
    built = built or table.clEnqueueNDRangeKernel(
        queue, kernel, 1, None, ctypes.byref(one), None, 0, None, None
    )
    built = built or table.clEnqueueReadBuffer(
        queue, buffer, 1, 0, ctypes.sizeof(values), values, 0, None, None
    )
cpu = read_text(read_word(device.handle + 640)).decode()
print(
    json.dumps(
        {
            "repaired": repaired,
            "cpu": cpu,
            "code": built,
            "log": log.value.decode(),
            "values": list(values),
        }
    )
)
"""


def built(
    run_python: RunPython, driver: Candidate, cache: Path, *arguments: str
) -> dict[str, object]:
    output = run_python(BUILD, driver.library, *arguments, env={"POCL_CACHE_DIR": str(cache)})
    result = json.loads(output.out.splitlines()[-1])
    return {**result, "log": result["log"] + output.err}


def test_pocl_can_build_nothing_for_the_cpu_generic(
    pocl_wheel: Candidate, run_python: RunPython, tmp_path: Path
) -> None:
    """What a user sees on a CPU that is newer than the wheel's LLVM."""
    result = built(run_python, pocl_wheel, tmp_path, "generic")
    assert result["code"] != 0
    assert "unknown target CPU 'generic'" in str(result["log"])


def test_with_the_repair_it_builds_and_runs(
    pocl_wheel: Candidate, run_python: RunPython, tmp_path: Path
) -> None:
    result = built(run_python, pocl_wheel, tmp_path, "generic", "repair")
    assert result["repaired"] is True and result["cpu"] == find_cpu_level()
    assert result["code"] == 0 and result["values"] == [3, 5, 7, 9]


@pytest.mark.parametrize(
    "level", [level for level, flags in CPU_LEVELS if _read_cpu_flags().issuperset(flags.split())]
)
def test_every_name_that_this_cpu_may_be_given_builds_and_runs(
    pocl_wheel: Candidate, run_python: RunPython, tmp_path: Path, level: str
) -> None:
    result = built(run_python, pocl_wheel, tmp_path, level)
    assert result["code"] == 0 and result["values"] == [3, 5, 7, 9]


def test_a_cpu_that_the_driver_knows_is_left_alone(
    pocl_wheel: Candidate, run_python: RunPython, tmp_path: Path
) -> None:
    result = built(run_python, pocl_wheel, tmp_path, "nehalem", "repair")
    assert result["repaired"] is False and result["cpu"] == "nehalem"


def test_other_drivers_are_left_alone(fake_driver: FakeDriver) -> None:
    """Also one that says the same version but holds something else at that place of its devices."""
    for version in ('"OpenCL 3.0 PoCL 3.1"', '"OpenCL 3.0 PoCL 3.0-rc2"'):
        assert load(Candidate(str(fake_driver(version=version)), "test")).quirks == ()
