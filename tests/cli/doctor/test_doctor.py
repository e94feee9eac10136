"""`fairlead doctor`: its findings, problems and remedies, on good and broken machines."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from helpers.doctor import COMMAND, Machine, of, states
from helpers.support import FakeDriver, RunPython, with_short_limit

from fairlead.icd.driver_profiles import ROWS
from fairlead.icd.drivers import name_first_driver
from fairlead.loader.base.linker import find_library
from fairlead.loader.base.search import Candidate

pytestmark = pytest.mark.slow


def test_a_machine_where_all_is_well(machine: Machine, fake_driver: FakeDriver) -> None:
    path = fake_driver(icd=2)
    machine.register("fake", path)
    facts = machine.examine()
    assert facts["ok"] and not of(facts, "error")
    (driver,) = facts["drivers"]
    assert (driver["state"], driver["real_path"], driver["icd_version"]) == ("usable", str(path), 2)
    assert (
        driver["manifest"] == f"{machine.vendors}/fake.icd"
        and driver["found_via"] == "OCL_ICD_VENDORS"
    )
    assert driver["platforms"][0]["devices"][0]["global_mem"] == 3 << 30
    text = machine.text
    assert (
        "1 driver usable, 0 problems" in text
        and "ACCELERATOR: Fake device, driver 1.2.3, 7 compute units, 3.0 GiB" in text
    )


def test_it_says_whether_kernels_may_run_in_cuda(machine: Machine, fake_driver: FakeDriver) -> None:
    machine.register("nvidia", fake_driver(name='"NVIDIA CUDA"', numbered=0))
    (driver,) = machine.examine()["drivers"]
    assert (driver["state"], driver["direct"]) == ("usable", "")
    assert driver["cuda"] == "off: its self-test: no device of it shares its memory with CUDA"
    assert f"engine cuda: {driver['cuda']}" in " ".join(machine.text.split())


def test_real_drivers_with_no_variable_set(
    run_python: RunPython, pocl_wheel: Candidate, intel_cpu: Candidate
) -> None:
    """Intel's wheel registers an FPGA emulator that it does not ship.

    That is no problem, because its CPU driver beside it works.
    """
    done = run_python(COMMAND, "doctor", "--json", env={"LD_LIBRARY_PATH": None}, check=False)
    drivers = {
        os.path.basename(driver["library"]): driver for driver in json.loads(done.out)["drivers"]
    }
    assert drivers[os.path.basename(pocl_wheel.library)]["state"] == "usable"
    assert drivers["libintelocl.so"]["state"] == "usable"
    if intel_cpu.manifest and not os.path.exists(intel_cpu.library):
        assert drivers["libintelocl.so"]["quirks"][0] == "pip-icd-prefix"
    if "libintelocl_emu.so" in drivers:
        assert drivers["libintelocl_emu.so"]["state"] == "absent"
        assert "did not install it" in drivers["libintelocl_emu.so"]["reason"]
        told = json.loads(done.out)["problems"]
        assert not any("libintelocl_emu.so" in problem["what"] for problem in told)


def test_a_second_way_to_a_driver_is_no_problem(
    machine: Machine, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    """By another path the search knows it; by a bare soname it shows when it has been opened."""
    path = fake_driver(name='"Twice"')
    shutil.copy(path, tmp_path / "libtwice.so")
    machine.env["LD_LIBRARY_PATH"] = str(tmp_path)
    machine.register("a", tmp_path / "libtwice.so")
    machine.register("b", tmp_path / "vendors/../libtwice.so")
    machine.register("c", "libtwice.so")
    facts = machine.examine()
    assert [driver["state"] for driver in facts["drivers"]] == ["usable", "duplicate"]
    assert facts["refusals"][0]["reason"].startswith("same file as") and facts["problems"] == []


# Broken drivers


def test_no_driver_at_all(machine: Machine) -> None:
    facts = machine.examine()
    assert of(facts, "error") == {
        "OpenCL": ("no driver with a device is usable", doctor_install(facts))
    }
    assert {
        "path": str(machine.vendors),
        "found_via": "OCL_ICD_VENDORS",
        "state": "no manifest",
    } in facts["places"]
    assert "0 drivers usable, 1 problem (1 error, 0 warnings)" in machine.text


class Situation(NamedTuple):
    """What is wrong with a machine, and what is said first.

    Attributes:
        code: the exit code.
        what: how the name of what is wrong ends; "" if nothing is.
        reason: how the reason begins.
        advice: what the remedy has in it.
        variables: what the environment has.
        knobs: of a driver that is registered; None if there is none.
        library: what that driver's file is called, or one that is not there.
        good: whether a good driver is registered, too.
    """

    code: int
    what: str = ""
    reason: str = ""
    advice: str = ""
    variables: Mapping[str, str] = {}
    knobs: Mapping[str, object] | None = None
    library: str = ""
    good: bool = False


IDLE: Mapping[str, object] = {"devices": 0}
RUSTICL = "libRusticlOpenCL.so.1"
LIBC = str(find_library("libc.so.6"))
FOLDERS = ("vendors", "empty")
SITUATIONS = {
    "no driver": Situation(1, "OpenCL", "no driver with a device", name_first_driver()),
    "a variable that names no folder": Situation(
        1, "/nowhere", "does not exist", "unset OCL_ICD_VENDORS", {"OCL_ICD_VENDORS": "/nowhere"}
    ),
    "a variable that names no file": Situation(
        1,
        "/nowhere/libx.so",
        "the file does not exist",
        "take it out of OCL_ICD_FILENAMES",
        {"OCL_ICD_FILENAMES": "/nowhere/libx.so"},
    ),
    "a library that is no driver": Situation(
        1,
        LIBC,
        "it has no clIcdGetPlatformIDsKHR",
        "take it out of OCL_ICD_FILENAMES",
        {"OCL_ICD_FILENAMES": LIBC},
        good=True,
    ),
    "a pattern that excludes all": Situation(
        1, "FAIRLEAD_EXCLUDE", "it hides /", "unset FAIRLEAD_EXCLUDE", {"FAIRLEAD_EXCLUDE": "*"}, {}
    ),
    "a place that hides another": Situation(
        1,
        "OCL_ICD_VENDORS",
        "it hides /",
        "unset OCL_ICD_VENDORS",
        {"OPENCL_VENDOR_PATH": "vendors", "OCL_ICD_VENDORS": "empty"},
        {},
    ),
    "PoCL without the devices of a variable": Situation(
        1,
        "libpocl.so",
        "it has no device: it offers only the devices that POCL_DEVICES names",
        "unset POCL_DEVICES",
        {"POCL_DEVICES": "none"},
        IDLE,
        "libpocl.so",
    ),
    "PoCL without a folder that it can write": Situation(
        1,
        "libpocl.so",
        "it has no device: it keeps compiled kernels in /dev/null/pocl, which",
        "export POCL_CACHE_DIR=/tmp/pocl",
        {"POCL_CACHE_DIR": "/dev/null/pocl"},
        IDLE,
        "libpocl.so",
    ),
    "a time that no driver keeps": Situation(
        1,
        ".so",
        "it did not answer within 1 s while opening the library",
        "unset FAIRLEAD_PROBE_TIMEOUT",
        {"FAIRLEAD_PROBE_TIMEOUT": "1"},
        {"at_load": "hang()"},
    ),
    "a selector that selects nothing": Situation(
        0,
        "ONEAPI_DEVICE_SELECTOR",
        "it selects none of the devices that are there: opencl:0",
        "correct or unset ONEAPI_DEVICE_SELECTOR",
        {"ONEAPI_DEVICE_SELECTOR": "cuda:*"},
        good=True,
    ),
    "a manifest with a wrong path": Situation(
        1, "/nowhere/libx.so", "the file does not exist", "delete ", library="/nowhere/libx.so"
    ),
    "another architecture": Situation(
        1,
        "libother.so",
        "it was built for another processor architecture, AArch64",
        "install the driver for x86-64; or leave it out: export FAIRLEAD_EXCLUDE=libother.so",
        knobs={},
        library="libother.so",
    ),
    "another architecture, left out": Situation(
        1,
        "OpenCL",
        "no driver with a device",
        name_first_driver(),
        {"FAIRLEAD_EXCLUDE": "libother.so"},
        {},
        "libother.so",
    ),
    "a driver that crashes, left out": Situation(
        1,
        "OpenCL",
        "no driver with a device",
        name_first_driver(),
        {"FAIRLEAD_EXCLUDE": "*"},
        {"at_load": "abort()"},
    ),
    "a driver that crashes": Situation(
        1,
        ".so",
        "it crashed with SIGABRT while opening the library",
        "or leave it out: export FAIRLEAD_EXCLUDE=",
        knobs={"at_load": "abort()"},
        good=True,
    ),
    "a driver without a platform": Situation(
        0,
        ".so",
        "clIcdGetPlatformIDsKHR: it has no platform",
        "permissions",
        {},
        {"count": 0},
        "",
        True,
    ),
    "a driver without a device": Situation(
        0, ".so", "it has no device", "if it is not, there is nothing to do", {}, IDLE, "", True
    ),
    "Intel's driver for GPUs without a GPU": Situation(
        0,
        "libigdrcl.so",
        "clIcdGetPlatformIDsKHR: it has no platform",
        "permissions",
        knobs={"count_error": -6},
        library="libigdrcl.so",
        good=True,
    ),
    "rusticl without its variable": Situation(
        0,
        RUSTICL,
        "it has no device: rusticl offers only the devices that RUSTICL_ENABLE names",
        "export RUSTICL_ENABLE=llvmpipe",
        knobs=IDLE,
        library=RUSTICL,
        good=True,
    ),
    "rusticl that finds nothing": Situation(
        0,
        RUSTICL,
        "it has no device",
        "if it is not, there is nothing to do",
        {"RUSTICL_ENABLE": "llvmpipe"},
        IDLE,
        RUSTICL,
        True,
    ),
    "a version that ends in a blank": Situation(0, knobs={"version": '"OpenCL 3.0 "'}),
    "a driver that works": Situation(0, good=True),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_cause_comes_first_and_advice_cures_it(
    machine: Machine, fake_driver: FakeDriver, tmp_path: Path, name: str
) -> None:
    """What PyPI's drivers come to: `test_real_drivers_with_no_variable_set`."""
    case = SITUATIONS[name]
    (tmp_path / "empty").mkdir()
    for key, value in case.variables.items():
        machine.env[key] = str(tmp_path / value) if value in FOLDERS else value
    library = Path(case.library)
    if case.knobs is not None:
        library = fake_driver(**case.knobs)
        if case.library:
            library = Path(shutil.copy(library, tmp_path / case.library))
    if case.library == "libother.so":
        with library.open("r+b") as file:
            file.seek(18)  # e_machine
            file.write((183).to_bytes(2, "little"))
    if case.library or case.knobs is not None:
        machine.register("0", library)
    if case.good:
        machine.register("1", fake_driver())
    facts = machine.examine()
    assert facts["ok"] == (case.code == 0)
    if not case.what:
        assert facts["problems"] == []
        return
    first = facts["problems"][0]
    assert first["severity"] == ("error" if case.code else "warning")
    assert first["what"].endswith(case.what) and first["reason"].startswith(case.reason)
    assert case.advice in first["remedy"]
    others = [one["remedy"] for one in facts["problems"][1:]]
    assert not any("install" in remedy for remedy in others), "what is named first is the cure"


def test_variables_that_hide_installed_drivers(
    run_python: RunPython, pocl_wheel: Candidate, tmp_path: Path
) -> None:
    """Whatever is installed next is hidden, too, and no manifest is to be deleted."""
    for name, value in (("OCL_ICD_VENDORS", str(tmp_path)), ("FAIRLEAD_EXCLUDE", "*")):
        env = {"OCL_ICD_VENDORS": None, name: value}
        done = run_python(COMMAND, "doctor", "--json", env=env, check=False)
        first = json.loads(done.out)["problems"][0]
        assert (first["what"], first["remedy"]) == (name, f"unset {name}")
        assert pocl_wheel.library in first["reason"]


def test_a_switched_off_repair_is_the_cause(run_python: RunPython, intel_cpu: Candidate) -> None:
    if os.path.exists(intel_cpu.library):
        pytest.skip("its manifest needs no repair")
    env = {"OCL_ICD_VENDORS": None, "FAIRLEAD_QUIRKS": "-pip-icd-prefix"}
    done = run_python(COMMAND, "doctor", "--json", env=env, check=False)
    told = {one["what"]: one["remedy"] for one in json.loads(done.out)["problems"]}
    why = "unset FAIRLEAD_QUIRKS, which switches off the repair pip-icd-prefix"
    assert told[intel_cpu.library] == why


def doctor_install(facts: dict[str, Any]) -> str:
    (problem,) = [problem for problem in facts["problems"] if problem["what"] == "OpenCL"]
    assert "pip install" in problem["remedy"]
    return problem["remedy"]


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        ({"at_load": "abort()"}, "it crashed with SIGABRT while opening the library"),
        ({"at_list": "crash()"}, "it crashed with SIGSEGV while listing its platforms"),
        ({"at_list": "hang()"}, "it did not answer within {limit} s while listing its platforms"),
        ({"at_load": "_exit(3)"}, "it ended the process with exit code 3"),
    ],
)
def test_a_driver_that_crashes_or_hangs_is_named_and_the_others_are_listed(
    machine: Machine, fake_driver: FakeDriver, knobs: dict[str, object], reason: str
) -> None:
    bad = fake_driver(**knobs)
    machine.register("0", bad)
    machine.register("1", fake_driver())

    def check(limit: int) -> None:
        facts = machine.examine("--timeout", str(limit))
        why = reason.format(limit=limit)
        assert list(states(facts).values()) == ["refused", "usable"]
        problem = of(facts, "error").pop(bad.name)
        assert why in problem[0]
        assert f"export FAIRLEAD_EXCLUDE={bad.name}" in problem[1]
        assert {client["reason"].split(" while ")[0] for client in facts["clients"]} == {
            why.split(" while ")[0]
        }

    if "hang()" in knobs.values():
        with_short_limit(check)
    else:
        check(200)


def test_following_the_advice_leaves_no_problem(machine: Machine, fake_driver: FakeDriver) -> None:
    """FAIRLEAD_EXCLUDE leaves a driver out; `fairlead env` does so for other loaders, too."""
    bad = fake_driver(at_load="abort()")
    machine.register("0", bad)
    machine.register("1", fake_driver())
    machine.env["FAIRLEAD_EXCLUDE"] = bad.name
    facts = machine.examine()
    assert list(states(facts).values()) == ["excluded", "usable"]
    assert {problem["what"] for problem in facts["problems"]} == {
        client["name"] for client in facts["clients"]
    }
    assert {problem["remedy"] for problem in facts["problems"]} == {'eval "$(fairlead env)"'}
    machine.follow()
    assert machine.examine()["problems"] == []
    machine.env["OCL_ICD_VENDORS"] = str(machine.vendors)
    facts = machine.examine()
    assert {"name": "FAIRLEAD_EXCLUDE", "value": bad.name, "outcome": f"leaves out {bad}"} in facts[
        "variables"
    ]


def test_a_verdict_that_programs_remember_is_not_used(
    machine: Machine, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    """A driver that was repaired is usable at once."""
    path = tmp_path / "libdriver.so"
    shutil.copy(fake_driver(at_load="abort()"), path)
    machine.register("driver", path)
    machine.run_python(
        "import fairlead\ntry:\n    fairlead.platforms()\nexcept fairlead.FairleadError:\n    pass",
        env=machine.env,
    )
    assert not machine.examine()["ok"]
    shutil.copy(fake_driver(), path)
    assert machine.examine()["ok"]


def test_a_missing_dependency_is_named(
    machine: Machine, fake_driver: FakeDriver, compile_c: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "svml.c").write_text("int present = 1;\n")
    needed = compile_c(
        tmp_path / "svml.c", tmp_path / "libsvml.so", "-Wl,-soname,libsvml-of-nobody.so.7"
    )
    driver = fake_driver("-Wl,--no-as-needed", needed)
    needed.unlink()
    machine.register("needs", driver)
    facts = machine.examine()
    assert facts["drivers"][0]["missing"] == ["libsvml-of-nobody.so.7"]
    reason, remedy = of(facts, "error")[driver.name]
    assert reason == "it needs libsvml-of-nobody.so.7, which is not found"
    assert "pip install intel-cmplr-lib-rt" in remedy


def test_manifests_that_lead_to_no_driver(
    machine: Machine, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    (tmp_path / "notes.so").write_text("I am no library.\n")
    loader = tmp_path / "libOpenCL.so.1"
    shutil.copy(fake_driver(), loader)
    machine.register("good", fake_driver())
    machine.register("empty", "")
    machine.register("text", tmp_path / "notes.so")
    machine.register("loader", loader)
    machine.register("gone", tmp_path / "gone.so")
    machine.register("library", fake_driver(exports=0))
    facts = machine.examine()
    errors = of(facts, "error")
    assert errors["empty.icd"] == (
        "names no library: it is empty",
        "write the library's path into it, or delete it",
    )
    assert errors["notes.so"][0] == "it is a text file, not a shared library"
    assert "is an OpenCL loader" in errors["loader.icd"][0]
    assert (
        errors["gone.so"][0] == "the file does not exist"
        and f"delete {machine.vendors}/gone.icd" in errors["gone.so"][1]
    )
    assert "so it is not an OpenCL driver" in errors[fake_driver(exports=0).name][0]
    assert len(errors) == 5 and all(remedy for _, remedy in errors.values())
    text = machine.text
    assert "1 driver usable, 5 problems (5 errors, 0 warnings)" in text
    for _, (reason, remedy) in errors.items():
        assert reason in text and remedy in text


def test_an_odd_driver_is_a_warning(machine: Machine, fake_driver: FakeDriver) -> None:
    odd = fake_driver(platforms=2, handle="NULL", context_error=-6)
    machine.register("odd", odd)
    facts = machine.examine()
    assert facts["ok"] and len(facts["problems"]) == 2
    assert {problem["severity"] for problem in facts["problems"]} == {"warning"}
    text = " ".join(problem["reason"] for problem in facts["problems"])
    assert "its handle is NULL" in text and "clCreateContext [CL_OUT_OF_HOST_MEMORY]" in text


# Variables


def test_ocl_icd_vendors_that_does_not_exist(machine: Machine, tmp_path: Path) -> None:
    machine.env["OCL_ICD_VENDORS"] = str(tmp_path / "nowhere")
    facts = machine.examine()
    assert (
        facts["variables"][0]["name"] == "OCL_ICD_VENDORS"
        and "honoured" in facts["variables"][0]["outcome"]
    )
    reason, remedy = of(facts, "error")["nowhere"]
    assert reason == "does not exist" and "OCL_ICD_VENDORS" in remedy
    assert f"OCL_ICD_VENDORS={tmp_path}/nowhere" in machine.text


def test_variables_that_name_what_is_not_there(
    machine: Machine, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    machine.register("good", fake_driver())
    machine.env |= {
        "OCL_ICD_FILENAMES": str(tmp_path / "gone.so"),
        "PYOPENCL_HOME": str(tmp_path / "home"),
        "OCL_ICD_DEFAULT_PLATFORM": "1",
    }
    errors = of(machine.examine(), "error")
    assert (
        errors["gone.so"][0] == "the file does not exist"
        and "take it out of OCL_ICD_FILENAMES" in errors["gone.so"][1]
    )
    assert errors["PYOPENCL_HOME"][0] == f"{tmp_path}/home is not a directory"
    found = errors["OCL_ICD_DEFAULT_PLATFORM"][0]
    assert found == "there is no platform 1: they are numbered 0 to 0"
    assert len(errors) == 3


def test_variables_of_our_own(machine: Machine, fake_driver: FakeDriver) -> None:
    machine.register("good", fake_driver())
    machine.env |= {
        "FAIRLEAD_EXCLUDE": "nothing*",
        "FAIRLEAD_QUIRKS": "0",
        "FAIRLEAD_PROBE": "0",
        "FAIRLEAD_PROBE_TIMEOUT": "9",
    }
    facts = machine.examine()
    outcomes = {variable["name"]: variable["outcome"] for variable in facts["variables"]}
    assert facts["ok"] and states(facts)[fake_driver().name] == "usable"
    assert outcomes["FAIRLEAD_EXCLUDE"] == "no effect: it fits no driver that was found"
    assert outcomes["FAIRLEAD_QUIRKS"] == "all repairs are switched off"
    assert outcomes["FAIRLEAD_PROBE"].endswith("this report probes them all the same")
    assert "FAIRLEAD_PROBE_TIMEOUT" in outcomes
    off = [row["id"] for row in facts["quirks"] if row["state"].startswith("switched off")]
    assert off == [row.id for row in ROWS if row.is_repair]


def test_each_documented_variable_is_told(machine: Machine, tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs/variables.md").read_text(encoding="utf-8")
    names = set(re.findall(r"^\| `(CONDA_PREFIX|FAIRLEAD_\w+|ZE_\w+)` \|", text, re.MULTILINE))
    assert len(names) > 20
    machine.env |= dict.fromkeys(names, "1")
    machine.env |= {"FAIRLEAD_TRACE": "errors", "FAIRLEAD_TRACE_FILE": str(tmp_path / "calls")}
    told = {variable["name"]: variable["outcome"] for variable in machine.examine()["variables"]}
    assert names - told.keys() == set() and all(told[name] for name in names)


def test_a_device_that_does_not_describe_itself(machine: Machine, fake_driver: FakeDriver) -> None:
    """The driver is not idle, and no queue has to be finished; with another device it is usable."""
    fault = "return CL_OUT_OF_RESOURCES"
    bad = fake_driver(at_query=fault)
    half = fake_driver(at_query=fault, faulty_device=1, devices=2)
    machine.register("bad", bad)
    machine.register("half", half)
    facts = machine.examine()
    assert states(facts) == {bad.name: "refused", half.name: "usable"}
    said = "fails to describe itself: clGetDeviceInfo [CL_OUT_OF_RESOURCES]"
    reason, remedy = of(facts, "error")[bad.name]
    assert f"the device 'device 0' {said}" in reason and "update the driver" in remedy
    reason, _ = of(facts, "warning")[half.name]
    assert f"the device 'device 1' {said}" in reason
    assert "finish" not in machine.text


def test_a_child_process_that_does_not_start_is_no_fault_of_a_driver(
    machine: Machine, fake_driver: FakeDriver
) -> None:
    """Nor is all well then."""
    path = fake_driver()
    machine.register("good", path)
    code = f"""
import sys
from fairlead.loader.base import children
children.answer = lambda *given: sys.exit(3)
{COMMAND}"""
    done = machine.run_python(code, "doctor", "--json", env=machine.env, check=False)
    facts = json.loads(done.out)
    assert done.code == 1 and states(facts) == {path.name: "unprobed"}
    reason, remedy = of(facts, "error")[path.name]
    assert "the child process failed to start: it ended the process with exit code 3" in reason
    assert "run `fairlead doctor` by the Python that fairlead is installed for" in remedy
    assert machine.examine()["ok"]


def test_a_list_of_devices_that_cannot_be(machine: Machine, fake_driver: FakeDriver) -> None:
    many, null = fake_driver(device_count="0xFFFFFFFFu"), fake_driver(devices=2, null_device=1)
    machine.register("many", many)
    machine.register("null", null)
    facts = machine.examine()
    assert states(facts) == {many.name: "refused", null.name: "usable"}
    assert "4294967295 devices" in of(facts, "error")[many.name][0]
    assert "handles are NULL" in of(facts, "warning")[null.name][0]


def test_rows_of_driver_profiles_that_apply(machine: Machine, fake_driver: FakeDriver) -> None:
    """Listed are those that are applied to a driver, and those that are switched off."""
    path = fake_driver(name='"NVIDIA CUDA"', numbered=0)
    machine.register("habits", path)
    machine.env["FAIRLEAD_QUIRKS"] = "-svm-arguments-stick,-nothing"
    facts = machine.examine()
    (driver,) = facts["drivers"]
    assert driver["habits"] == [
        "svm-needs-lock",
        "waiting-markers-without-times",
        "nvidia-ptx",
        "nvidia-argument-infos",
        "nvidia-early-kernels",
    ]
    states = {row["id"]: row["state"] for row in facts["quirks"]}
    assert states["svm-needs-lock"] == f"applied to {path}"
    assert states["svm-arguments-stick"] == "switched off by FAIRLEAD_QUIRKS"
    assert states["waits-one-at-a-time"] == "not needed"
    outcomes = {variable["name"]: variable["outcome"] for variable in facts["variables"]}
    said = outcomes["FAIRLEAD_QUIRKS"]
    assert said.startswith("svm-arguments-stick is switched off; -nothing is not understood")
    problems = {problem["what"]: problem["severity"] for problem in facts["problems"]}
    assert facts["ok"] and problems["FAIRLEAD_QUIRKS"] == "warning"
    text = machine.text
    assert "svm-needs-lock: applied to" in text and "waits-one-at-a-time" not in text
