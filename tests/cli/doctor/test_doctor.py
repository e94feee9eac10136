"""`fairlead doctor`: what it finds, what it calls a problem, and what it tells the user to do, on good and broken machines."""

from __future__ import annotations

import dataclasses
import grp
import json
import os
import pwd
import shutil
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.doctor import COMMAND, KEYS, Machine, problems_of
from helpers.support import FakeDriver, RunPython

from fairlead.cli.doctor import diagnosis as doctor
from fairlead.cli.doctor import loaders
from fairlead.cli.doctor import machine as nodes
from fairlead.cli.doctor.diagnosis import Diagnosis, DriverReport
from fairlead.cli.doctor.report import render
from fairlead.cli.doctor.verdict import problems
from fairlead.loader.base.search import Candidate

pytestmark = pytest.mark.slow


def states(facts: dict[str, Any]) -> dict[str, str]:
    return {os.path.basename(driver["library"]): driver["state"] for driver in facts["drivers"]}


# Good drivers


def test_a_machine_where_all_is_well(machine: Machine, fake_driver: FakeDriver) -> None:
    path = fake_driver(icd=2)
    machine.register("fake", path)
    facts = machine.examine()
    assert facts["ok"] and not problems_of(facts, "error")
    (driver,) = facts["drivers"]
    assert (driver["state"], driver["real_path"], driver["icd_version"]) == ("usable", str(path), 2)
    assert (
        driver["manifest"] == f"{machine.vendors}/fake.icd"
        and driver["found_via"] == "OCL_ICD_VENDORS"
    )
    assert driver["platforms"][0]["devices"][0]["global_mem"] == 3 << 30
    text = machine.text()
    assert (
        "1 driver usable, 0 problems" in text
        and "ACCELERATOR: Fake device, driver 1.2.3, 7 compute units, 3.0 GiB" in text
    )


def test_real_drivers_with_no_variable_set(
    run_python: RunPython, pocl_wheel: Candidate, intel_cpu: Candidate
) -> None:
    """Intel's wheel registers an FPGA emulator that it does not ship: no error, as its CPU driver beside it works."""
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
        warnings = problems_of(json.loads(done.out), "warning")
        assert "did not install it" in warnings["libintelocl_emu.so"][0]


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
    assert problems_of(facts, "error") == {
        "OpenCL": ("no driver with a device is usable", doctor_install(facts))
    }
    assert {
        "path": str(machine.vendors),
        "found_via": "OCL_ICD_VENDORS",
        "state": "no manifest",
    } in facts["places"]
    assert "0 drivers usable, 1 problem (1 error, 0 warnings)" in machine.text()


def doctor_install(facts: dict[str, Any]) -> str:
    (problem,) = [problem for problem in facts["problems"] if problem["what"] == "OpenCL"]
    assert "pip install" in problem["remedy"]
    return problem["remedy"]


@pytest.mark.parametrize(
    ("knobs", "options", "reason"),
    [
        ({"at_load": "abort()"}, (), "it crashed with SIGABRT while opening the library"),
        ({"at_list": "crash()"}, (), "it crashed with SIGSEGV while listing its platforms"),
        (
            {"at_list": "hang()"},
            ("--timeout", "3"),
            "it did not answer within 3 s while listing its platforms",
        ),
        ({"at_load": "_exit(3)"}, (), "it ended the process with exit code 3"),
    ],
)
def test_a_driver_that_crashes_or_hangs_is_named_and_the_others_are_listed(
    machine: Machine,
    fake_driver: FakeDriver,
    knobs: dict[str, object],
    options: tuple[str, ...],
    reason: str,
) -> None:
    bad = fake_driver(**knobs)
    machine.register("0", bad)
    machine.register("1", fake_driver())
    facts = machine.examine(*options)
    assert list(states(facts).values()) == ["refused", "usable"]
    problem = problems_of(facts, "error").pop(bad.name)
    assert reason in problem[0]
    assert f"export FAIRLEAD_EXCLUDE={bad.name}" in problem[1]
    assert {client["reason"].split(" while ")[0] for client in facts["clients"]} == {
        reason.split(" while ")[0]
    }


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
    reason, remedy = problems_of(facts, "error")[driver.name]
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
    errors = problems_of(facts, "error")
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
    text = machine.text()
    assert "1 driver usable, 5 problems (5 errors, 0 warnings)" in text
    for _, (reason, remedy) in errors.items():
        assert reason in text and remedy in text


@pytest.mark.parametrize("knobs", [{"count": 0}, {"devices": 0}])
def test_a_driver_without_its_device_is_a_warning(
    machine: Machine, fake_driver: FakeDriver, knobs: dict[str, object]
) -> None:
    idle = fake_driver(**knobs)
    machine.register("0", idle)
    machine.register("1", fake_driver())
    facts = machine.examine()
    assert facts["ok"] and list(states(facts).values()) == ["idle", "usable"]
    assert "it has no" in problems_of(facts, "warning")[idle.name][0]


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
    reason, remedy = problems_of(facts, "error")["nowhere"]
    assert reason == "does not exist" and "OCL_ICD_VENDORS" in remedy
    assert f"OCL_ICD_VENDORS={tmp_path}/nowhere" in machine.text()


def test_variables_that_name_what_is_not_there(
    machine: Machine, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    machine.register("good", fake_driver())
    machine.env |= {
        "OCL_ICD_FILENAMES": str(tmp_path / "gone.so"),
        "PYOPENCL_HOME": str(tmp_path / "home"),
        "OCL_ICD_DEFAULT_PLATFORM": "1",
    }
    errors = problems_of(machine.examine(), "error")
    assert (
        errors["gone.so"][0] == "the file does not exist"
        and "take it out of OCL_ICD_FILENAMES" in errors["gone.so"][1]
    )
    assert errors["PYOPENCL_HOME"][0] == f"{tmp_path}/home is no directory"
    assert (
        errors["OCL_ICD_DEFAULT_PLATFORM"][0] == "there is no platform 1: they are numbered 0 to 0"
    )
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
    assert off == ["pip-icd-prefix", "sibling-libraries", "pocl-generic-cpu"]


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
    reason, remedy = problems_of(facts, "error")[bad.name]
    assert f"the device 'device 0' {said}" in reason and "update the driver" in remedy
    reason, _ = problems_of(facts, "warning")[half.name]
    assert f"the device 'device 1' {said}" in reason
    assert "finish" not in machine.text()


def test_a_child_process_that_does_not_start_is_no_fault_of_a_driver(
    machine: Machine, fake_driver: FakeDriver
) -> None:
    """Nor is all well then."""
    path = fake_driver()
    machine.register("good", path)
    code = f"from fairlead.loader.base import children; children._CHILD = 'exit(3)'; {COMMAND}"
    done = machine.run_python(code, "doctor", "--json", env=machine.env, check=False)
    facts = json.loads(done.out)
    assert done.code == 1 and states(facts) == {path.name: "unprobed"}
    reason, remedy = problems_of(facts, "error")[path.name]
    assert "the child process failed to start: it ended the process with exit code 3" in reason
    assert "run `fairlead doctor` by the Python that fairlead is installed for" in remedy
    assert machine.examine()["ok"]


def test_a_list_of_devices_that_cannot_be(machine: Machine, fake_driver: FakeDriver) -> None:
    many, null = fake_driver(device_count="0xFFFFFFFFu"), fake_driver(devices=2, null_device=1)
    machine.register("many", many)
    machine.register("null", null)
    facts = machine.examine()
    assert states(facts) == {many.name: "refused", null.name: "usable"}
    assert "4294967295 devices" in problems_of(facts, "error")[many.name][0]
    assert "handles are NULL" in problems_of(facts, "warning")[null.name][0]


def test_rows_of_driver_profiles_that_apply(machine: Machine, fake_driver: FakeDriver) -> None:
    """Listed are those that are applied to a driver, and those that are switched off."""
    path = fake_driver(name='"NVIDIA CUDA"', numbered=0)
    machine.register("habits", path)
    machine.env["FAIRLEAD_QUIRKS"] = "-svm-arguments-stick,-nothing"
    facts = machine.examine()
    (driver,) = facts["drivers"]
    assert driver["habits"] == ["svm-needs-lock", "waiting-markers-without-times"]
    states = {row["id"]: row["state"] for row in facts["quirks"]}
    assert states["svm-needs-lock"] == f"applied to {path}"
    assert states["svm-arguments-stick"] == "switched off by FAIRLEAD_QUIRKS"
    assert states["waits-one-at-a-time"] == "not needed"
    outcomes = {variable["name"]: variable["outcome"] for variable in facts["variables"]}
    said = outcomes["FAIRLEAD_QUIRKS"]
    assert said.startswith("svm-arguments-stick is switched off; -nothing is not understood")
    problems = {problem["what"]: problem["severity"] for problem in facts["problems"]}
    assert facts["ok"] and problems["FAIRLEAD_QUIRKS"] == "warning"
    text = machine.text()
    assert "svm-needs-lock: applied to" in text and "waits-one-at-a-time" not in text


# Copies of libOpenCL


def test_the_copy_inside_pyopencls_wheel_is_found_and_is_the_one_it_uses(
    machine: Machine, fake_driver: FakeDriver
) -> None:
    import pyopencl

    bundled = sorted((Path(pyopencl.__file__).parent / ".libs").glob("libOpenCL*"))
    assert bundled, "the wheel of PyOpenCL brings a loader of its own"
    machine.register("good", fake_driver())
    facts = machine.examine()
    assert facts["pyopencl"]["version"] == pyopencl.VERSION_TEXT
    assert facts["pyopencl"]["loader"] == str(bundled[0].resolve())
    assert facts["pyopencl"]["reads"][0] == f"{machine.vendors}/good.icd"
    (copy,) = [copy for copy in facts["loaders"] if copy["path"] == facts["pyopencl"]["loader"]]
    assert copy["kind"] == "ocl-icd" and copy["symbols"] == "3.0"
    line = next(
        line for line in machine.text().splitlines() if line.strip().startswith(copy["path"])
    )
    assert line.endswith("ocl-icd, symbols up to OPENCL_3.0, the one PyOpenCL uses")


def test_the_loader_that_pyopencl_has_in_memory_is_the_one_named(run_python: RunPython) -> None:
    code = """
import pyopencl
from fairlead.cli.doctor import loaders
used = loaders.pyopencl().loader
print(used in {line.split()[-1] for line in open("/proc/self/maps")}, used)
"""
    assert run_python(code).out.startswith("True /")


def test_a_driver_that_pyopencl_does_not_see_is_named(
    machine: Machine, fake_driver: FakeDriver
) -> None:
    """ocl-icd does not know OCL_ICD_FILENAMES."""
    seen, unseen = fake_driver(name='"Seen"'), fake_driver(name='"Unseen"')
    machine.register("seen", seen)
    machine.env["OCL_ICD_FILENAMES"] = str(unseen)
    facts, text = machine.examine(), machine.text()
    kind = next(
        copy["kind"] for copy in facts["loaders"] if copy["path"] == facts["pyopencl"]["loader"]
    )
    assert (f"it does not find {unseen}" in text) == (kind == "ocl-icd")
    assert f"it does not find {seen}" not in text


@pytest.mark.parametrize("vendors", [None, "/nowhere"], ids=["default", "missing"])
def test_doctor_and_pyopencl_agree_on_the_driver_of_the_wheel(
    run_python: RunPython, pocl_wheel: Candidate, vendors: str | None
) -> None:
    """A missing default directory does not stop PyOpenCL's loader; a missing OCL_ICD_VENDORS does."""
    code = "import pyopencl; print([p.version for p in pyopencl.get_platforms()])"
    env = {"OCL_ICD_VENDORS": vendors}
    listed = "PoCL 3.0-rc2" in run_python(code, env=env, check=False).out
    done = run_python(COMMAND, "doctor", "--json", env=env, check=False)
    reads = json.loads(done.out)["pyopencl"]["reads"]
    assert listed == any(str(pocl_wheel.manifest) == file for file in reads)


@pytest.mark.parametrize(
    ("content", "kind", "symbols"),
    [
        (
            b"\x7fELF OCL_ICD_PLATFORM_SORT\0/etc/OpenCL/vendors\0OPENCL_1.0\0OPENCL_3.0\0",
            "ocl-icd",
            "3.0",
        ),
        (
            b"\x7fELF Khronos OpenCL ICD Loader\0/build/ocl-icd-src/\0OPENCL_3.1\0OPENCL_2.0\0",
            "Khronos",
            "3.1",
        ),
        (b"\x7fELF KHR ICD trace\0", "Khronos", ""),
        (b"\x7fELF /etc/OpenCL/vendors\0", "another loader", ""),
        (b"\x7fELF clGetPlatformIDs\0", "no loader: a vendor's own library", ""),
        (b"", "not readable", ""),
    ],
)
def test_whose_loader_a_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, kind: str, symbols: str
) -> None:
    path = tmp_path / "libOpenCL.so.1"
    path.write_bytes(content)
    (tmp_path / "libOpenCL.so").symlink_to(path)
    (tmp_path / "libOpenCL_adreno.so").write_bytes(content)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    (copy,) = [copy for copy in loaders.copies() if copy.path.startswith(str(tmp_path))]
    assert (copy.kind, copy.symbols) == (kind, symbols)
    assert set(copy.names) == {str(path), str(tmp_path / "libOpenCL.so")}


def test_loaders_in_wheels_and_in_a_conda_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site-packages"
    places = (
        site / "pyopencl.libs/libOpenCL-5519dec5.so.1.0.0",
        site / "other/lib/libOpenCL.so",
        tmp_path / "conda/lib/libOpenCL.so.1",
    )
    for place in places:
        place.parent.mkdir(parents=True)
        place.write_bytes(b"\x7fELF")
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / "conda"))
    assert {str(place) for place in places} <= {copy.path for copy in loaders.copies()}


# Device nodes and caches


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    """A /dev with a render node."""
    node = tmp_path / "dev/dri/renderD128"
    node.parent.mkdir(parents=True)
    node.touch()
    node.chmod(0o660)
    return tmp_path / "dev"


def close(
    monkeypatch: pytest.MonkeyPatch, group: str | None, members: tuple[str, ...] = ()
) -> None:
    """Makes every file closed to this process and the property of `group`, which may have no name."""

    def getgrgid(number: int) -> types.SimpleNamespace:
        if group is None:
            raise KeyError(number)
        return types.SimpleNamespace(gr_name=group, gr_mem=list(members))

    monkeypatch.setattr(nodes.os, "access", lambda path, mode: False)
    monkeypatch.setattr(grp, "getgrgid", getgrgid)


def test_a_node_that_is_open(dev: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes.os, "access", lambda path, mode: True)
    (node,) = nodes.device_nodes(dev)
    assert node.accessible and node.remedy == "" and node.mode == "-rw-rw----"


def test_a_node_that_is_closed_names_its_group_and_the_command(
    dev: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close(monkeypatch, "render")
    (node,) = nodes.device_nodes(dev)
    assert (node.path, node.group, node.accessible) == (f"{dev}/dri/renderD128", "render", False)
    assert node.remedy == "sudo usermod -aG render $USER, then log in again"


def test_a_group_joined_after_login(dev: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    close(monkeypatch, "video", (pwd.getpwuid(os.geteuid()).pw_name,))
    assert (
        nodes.device_nodes(dev)[0].remedy
        == "you joined the group video after this session began: log in again"
    )


def test_a_group_without_a_name_as_in_a_container(
    dev: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close(monkeypatch, None)
    number = os.stat(dev / "dri/renderD128").st_gid
    assert nodes.device_nodes(dev)[0].remedy.endswith(
        f"start the container with --group-add {number}"
    )


def test_a_node_that_gives_its_group_nothing(dev: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    close(monkeypatch, "render")
    (dev / "dri/renderD128").chmod(0o600)
    assert "udev rule" in nodes.device_nodes(dev)[0].remedy


def test_no_nodes(tmp_path: Path) -> None:
    assert nodes.device_nodes(tmp_path) == ()


def test_the_cache_that_pocl_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is looked at where PoCL was found only; a directory that can be made is as good as one that is there."""
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path / "not/yet/there"))
    (cache,) = nodes.cache_directories(["/usr/lib/libpocl.so.2.10.0"])
    assert cache == nodes.CacheDirectory(
        f"{tmp_path}/not/yet/there", "POCL_CACHE_DIR", writable=True, essential=True
    )
    (tmp_path / "not").write_text("a file\n")
    assert not nodes.cache_directories(["/usr/lib/libpocl.so.2.10.0"])[0].writable
    monkeypatch.delenv("POCL_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert nodes.cache_directories(["libpocl-21062cec.so"])[0].path == f"{tmp_path}/pocl"
    assert nodes.cache_directories(["libintelocl.so"]) == ()


def test_pocl_without_its_cache_is_an_error(
    run_python: RunPython, pocl_wheel: Candidate, tmp_path: Path
) -> None:
    """It then has no device, and says nothing about it."""
    (tmp_path / "file").touch()
    machine = Machine(run_python, tmp_path)
    machine.env |= {
        "POCL_CACHE_DIR": str(tmp_path / "file/cache"),
        "OCL_ICD_VENDORS": pocl_wheel.library,
    }
    reason, remedy = problems_of(machine.examine(), "error")["cache"]
    assert "has no device" in reason and "POCL_CACHE_DIR" in remedy


# The verdict, on facts that this machine may not have

USABLE = DriverReport(
    "/lib/libgood.so", "/etc/OpenCL/vendors", "/etc/OpenCL/vendors/good.icd", "usable"
)
NVIDIA = nodes.DeviceNode("/dev/nvidiactl", "root", "crw-rw-rw-", accessible=True)
CLOSED = nodes.DeviceNode(
    "/dev/kfd", "render", "crw-rw----", accessible=False, remedy="sudo usermod -aG render $USER"
)


def judged(**changes: Any) -> Diagnosis:
    versions = {
        "fairlead": "1",
        "python": "3",
        "executable": "python",
        "system": "Linux",
        "user": "me",
    }
    facts = Diagnosis(versions, (), (), (USABLE,), (), (), (), "", None, (), ())
    facts = dataclasses.replace(facts, **changes)
    return dataclasses.replace(facts, problems=problems(facts))


def test_an_idle_driver_is_an_error_when_a_device_node_is_closed() -> None:
    idle = dataclasses.replace(
        USABLE, library="/lib/libamdocl64.so", state="idle", reason="it has no platform"
    )
    facts = judged(drivers=(idle, USABLE), nodes=(CLOSED,))
    assert not facts.ok
    assert [(p.severity, p.what, p.remedy) for p in facts.problems] == [
        ("error", "/lib/libamdocl64.so", CLOSED.remedy),
        ("warning", "/dev/kfd", CLOSED.remedy),
    ]
    assert judged(drivers=(USABLE,), nodes=(CLOSED,)).ok


def test_a_gpu_without_its_driver_is_a_warning() -> None:
    """As in containers whose runtime does not pass the .icd file on."""
    facts = judged(nodes=(NVIDIA,))
    assert facts.ok and "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in facts.problems[0].remedy
    registered = dataclasses.replace(USABLE, library="libnvidia-opencl.so.1")
    assert judged(nodes=(NVIDIA,), drivers=(registered,)).problems == ()


def test_pyopencl_without_its_loader_is_an_error() -> None:
    facts = judged(pyopencl=loaders.PyOpenCL("2026.1", "libOpenCL.so.1", "", ()))
    assert (
        not facts.ok and facts.problems[0].reason == "it needs libOpenCL.so.1, which is not found"
    )
    assert "PyOpenCL 2026.1 uses libOpenCL.so.1, which is not found" in render(facts)


def test_the_text_of_a_machine_with_nothing() -> None:
    text = render(judged(drivers=()))
    assert (
        "no GPU device nodes here" in text
        and "0 drivers usable, 1 problem (1 error, 0 warnings)" in text
    )
    assert text.isascii()


def test_a_report_is_json() -> None:
    facts = doctor.examine()
    assert json.loads(json.dumps(facts.as_dict()))["ok"] == facts.ok
    assert list(facts.as_dict()) == KEYS
