"""What PyOpenCL and programs see, beside what fairlead sees: `fairlead doctor`'s first lines, and `fairlead env`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from helpers.doctor import COMMAND, Machine, of
from helpers.support import FakeDriver, RunPython
from helpers.tables import table

from fairlead.cli.doctor.clients import misread
from fairlead.cli.doctor.diagnosis import DriverReport
from fairlead.cli.doctor.report import _wrapped

pytestmark = pytest.mark.slow

PLATFORMS = """
import pyopencl
try:
    print([platform.name for platform in pyopencl.get_platforms()])
except pyopencl.Error as error:
    print(error)
"""


def test_pyopencl_without_a_platform_is_an_error(
    machine: Machine, fake_driver: FakeDriver, run_python: RunPython
) -> None:
    """PyOpenCL's own loader (ocl-icd) does not know OCL_ICD_FILENAMES. `fairlead env` makes it see the driver."""
    machine.env["OCL_ICD_FILENAMES"] = str(fake_driver(name='"Hidden"'))
    machine.env["OCL_ICD_VENDORS"] = "/nowhere"
    assert "PLATFORM_NOT_FOUND_KHR" in run_python(PLATFORMS, env=machine.env).out
    (client, *_) = machine.examine()["clients"]
    assert client["name"].startswith("PyOpenCL") and client["sees"] == []
    problem = of(machine.examine(), "error")[client["name"]]
    answer = "no platform: clGetPlatformIDs answers CL_PLATFORM_NOT_FOUND_KHR"
    assert problem == (answer, 'eval "$(fairlead env)"')
    machine.follow()
    assert "Hidden" in run_python(PLATFORMS, env=machine.env).out
    assert machine.examine()["problems"] == []


def test_what_the_doctor_says_that_pyopencl_sees_is_what_it_sees(
    machine: Machine, fake_driver: FakeDriver, run_python: RunPython
) -> None:
    machine.register("a", fake_driver(name='"First"', numbered=0))
    machine.register("b", fake_driver(name='"Second"', numbered=0))
    (client, *_) = machine.examine()["clients"]
    assert repr(client["sees"]) == run_python(PLATFORMS, env=machine.env).out.strip()
    assert machine.text("--short").splitlines()[2:6] == [
        "Verdict",
        "  2 drivers usable, 0 problems",
        "  fairlead: First, Second",
        f"  {client['name']}: {', '.join(client['sees'])}",
    ]


def test_a_driver_that_a_client_does_not_find_is_a_warning(
    machine: Machine, fake_driver: FakeDriver
) -> None:
    hidden = fake_driver(name='"Hidden"')
    machine.register("a", fake_driver(name='"Seen"'))
    machine.env["OCL_ICD_FILENAMES"] = str(hidden)
    facts = machine.examine()
    (client, *_) = facts["clients"]
    assert client["misses"] == [str(hidden)] and facts["ok"]
    assert of(facts, "warning")[client["name"]] == (
        f"it does not find {hidden}",
        'eval "$(fairlead env)"',
    )


def test_a_client_that_crashes_at_its_end_has_its_platforms(
    machine: Machine, fake_driver: FakeDriver
) -> None:
    machine.register("a", fake_driver(name='"Late"', at_exit="abort()"))
    facts = machine.examine()
    (client, *_) = facts["clients"]
    assert "Late 0" in client["sees"] and client["reason"] == "" and facts["ok"]
    reason, _ = of(facts, "warning")[client["name"]]
    assert reason == "it crashed with SIGABRT while the process was ending"


#: Manifests that only fairlead understands, and why.
ODD = {
    "windows": ("{}\r\n", "has the line ends of Windows"),
    "mark": ("\ufeff{}\n", "begins with a byte order mark"),
    "blanks": (" {} \n", "has blanks around the path"),
    "comment": ("# a driver\n{}\n", "has a comment"),
    "lines": ("\n{}\n", "has several lines"),
}


def test_manifests_that_only_fairlead_understands_are_errors(
    machine: Machine, fake_driver: FakeDriver
) -> None:
    """The bytes are shown, and the remedies are commands that work."""
    drivers = {name: fake_driver(name=f'"{name}"') for name in ODD}
    for name, (content, _) in ODD.items():
        manifest = machine.vendors / f"{name}.icd"
        manifest.write_bytes(content.format(drivers[name]).encode())
    errors = of(machine.examine(), "error")
    assert errors.keys() >= {f"{name}.icd" for name in ODD}

    @table("name", ODD)
    def follow(name: str) -> None:
        manifest = machine.vendors / f"{name}.icd"
        reason, remedy = errors[manifest.name]
        assert reason.startswith(f"other loaders misread it, because it {ODD[name][1]}: b")
        assert repr(manifest.read_bytes()[:4])[2:-1] in reason
        subprocess.run(remedy, shell=True, check=True)
        assert manifest.read_bytes() == f"{drivers[name]}\n".encode()

    follow()
    assert machine.examine()["problems"] == []


def test_manifests_that_every_loader_reads_are_no_problem(tmp_path: Path) -> None:
    manifest = tmp_path / "good.icd"
    report = DriverReport("/lib/libgood.so", "here", str(manifest), "usable")
    for content in (b"/lib/libgood.so", b"/lib/libgood.so\n", b"/with blanks/libgood.so\n"):
        manifest.write_bytes(content)
        assert list(misread([report])) == []


def test_a_report_is_wrapped_between_words_and_no_path_is_cut() -> None:
    line = f"    why: {'word ' * 9}/a/path/that/is/longer/than/a/line/libvendor.so"
    lines = _wrapped(line, 30).split("\n")
    assert all(len(one) <= 30 for one in lines[:-1])
    assert lines[0].startswith("    why:") and lines[1].startswith("        word")
    assert lines[-1].strip() == line.split()[-1]


# fairlead env


def test_env_keeps_what_it_wrote(machine: Machine, fake_driver: FakeDriver) -> None:
    """A program may be reading the directory: it is the same one for the same drivers."""
    machine.register("a", fake_driver())
    first = machine.run_python(COMMAND, "env", env=machine.env).out
    directory = Path(first.split("=")[1].strip())
    times = {path: path.stat().st_mtime_ns for path in directory.iterdir()}
    assert machine.run_python(COMMAND, "env", env=machine.env).out == first
    assert {path: path.stat().st_mtime_ns for path in directory.iterdir()} == times


def test_env_unsets_what_would_add_drivers(machine: Machine, fake_driver: FakeDriver) -> None:
    machine.env["OCL_ICD_FILENAMES"] = str(fake_driver())
    machine.follow()
    assert machine.env["OCL_ICD_FILENAMES"] is None
    (manifest,) = Path(str(machine.env["OCL_ICD_VENDORS"])).iterdir()
    assert manifest.read_text() == f"{fake_driver()}\n"


def test_env_without_a_driver_says_why(machine: Machine) -> None:
    done = machine.run_python(COMMAND, "env", env=machine.env, check=False)
    assert done.code == 1 and done.out == "" and "no OpenCL platform can be used" in done.err


def test_env_where_nothing_can_be_written(
    machine: Machine, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    machine.register("a", fake_driver())
    (tmp_path / "file").write_text("")
    machine.env["XDG_CACHE_HOME"] = str(tmp_path / "file")
    done = machine.run_python(COMMAND, "env", env=machine.env, check=False)
    assert done.code == 1 and done.out == "" and "set XDG_CACHE_HOME" in done.err


def test_env_names_the_repairs_that_others_do_not_get(
    run_python: RunPython, pocl_wheel: object
) -> None:
    facts = run_python(COMMAND, "doctor", "--json", check=False).out
    done = run_python(COMMAND, "env")
    assert ('"pocl-generic-cpu"\n' in facts) == ("the repair pocl-generic-cpu" in done.err)
    assert os.path.isdir(done.out.split("=")[1].strip())
