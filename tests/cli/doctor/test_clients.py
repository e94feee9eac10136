"""What PyOpenCL and programs see, beside what fairlead sees: `fairlead doctor`'s first lines, and
`fairlead env`."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.doctor import COMMAND, NO_GPU, Machine, of
from helpers.support import FakeDriver, RunPython
from helpers.tables import table

from fairlead.cli.doctor.clients import find_misread_manifests
from fairlead.cli.doctor.diagnosis import DriverReport
from fairlead.cli.doctor.report import _wrap

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
    """PyOpenCL's own loader (ocl-icd) does not know OCL_ICD_FILENAMES. `fairlead env` makes it see
    the driver."""
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
    short = run_python(f"{NO_GPU}{COMMAND}", "doctor", "--short", env=machine.env, check=False).out
    assert short.splitlines()[2:6] == [
        "Verdict",
        "  2 drivers usable, 0 problems",
        "  fairlead: First, Second",
        f"  {client['name']}: {', '.join(client['sees'])}",
    ]


def test_a_version_that_ends_in_a_blank_hides_no_driver(
    machine: Machine, fake_driver: FakeDriver
) -> None:
    machine.register("a", fake_driver(name='"Blank"', version='"OpenCL 3.0 "'))
    facts = machine.examine()
    assert [client["misses"] for client in facts["clients"]] == [[]] * len(facts["clients"])
    assert facts["problems"] == []


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


def for_another_processor(driver: Path, folder: Path) -> Path:
    """Return a copy of a driver whose ELF header names aarch64."""
    content, e_machine = bytearray(driver.read_bytes()), slice(18, 20)
    content[e_machine] = (183).to_bytes(2, "little")
    (folder / "libother.so").write_bytes(content)
    return folder / "libother.so"


SEES, NONE = "Good", "no platform"
NOT_FOUND = "no platform, clGetPlatformIDs answers CL_PLATFORM_NOT_FOUND_KHR"
#: What is registered → the exit code, the first line, what fairlead and what other loaders see,
#: and what the first problem says. "hidden" is an error only for a client without a platform.
SITUATIONS = {
    "nothing": (1, "0 drivers usable, 2 problems (2 errors", NONE, NOT_FOUND, "OCL_ICD_VENDORS"),
    "good": (0, "1 driver usable, 0 problems", SEES, SEES, ""),
    "good and missing": (1, "1 driver usable, 1 problem (1 error", SEES, SEES, "does not exist"),
    "missing": (1, "0 drivers usable, 2 problems (2 errors", NONE, NOT_FOUND, "does not exist"),
    "windows": (1, "1 driver usable, {} problems", SEES, NOT_FOUND, "other loaders misread it"),
    "hidden": (1, "1 driver usable, {} problem", SEES, NOT_FOUND, "no platform"),
    "no library": (1, "0 drivers usable, 2 problems (2", NONE, NOT_FOUND, "it is a text file"),
    "aarch64": (1, "0 drivers usable, 2 problems (2", NONE, NOT_FOUND, "architecture, AArch64"),
    "crashes": (1, "0 drivers usable, 2 problems", NONE, "no platform, it crashed", "SIGABRT"),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_verdict_of_each_situation(
    machine: Machine, fake_driver: FakeDriver, run_python: RunPython, tmp_path: Path, name: str
) -> None:
    """The exit code, the first line, and a line for each client.

    A system with the README's packages alone has no libOpenCL.so.1, so PyOpenCL is the only client.
    """
    code, first, ours, theirs, problem = SITUATIONS[name]
    good = fake_driver(name='"Good"', numbered=0)
    if name in ("good", "good and missing"):
        machine.register("good", good)
    if name.endswith("missing"):
        machine.register("missing", "/nowhere/libvendor.so")
    if name == "windows":
        (machine.vendors / "windows.icd").write_bytes(f"{good}\r\n".encode())
    if name == "hidden":
        machine.env["OCL_ICD_FILENAMES"] = str(good)
    if name == "no library":
        (tmp_path / "libtext.so").write_text("no library")
        machine.register("text", tmp_path / "libtext.so")
    if name == "aarch64":
        machine.register("other", for_another_processor(good, tmp_path))
    if name == "crashes":
        machine.register("crash", fake_driver(at_load="abort()"))
    done = machine.run_python(
        f"{NO_GPU}{COMMAND}", "doctor", "--short", env=machine.env, check=False
    )
    lines = [line.strip() for line in done.out.splitlines()[2:]]
    clients = [
        line
        for line in lines
        if line.startswith(("PyOpenCL 2", "programs that load "))
        and ": there is none (" not in line
    ]
    if name == "hidden" and all("no platform" not in line for line in clients):
        code, problem = 0, "does not find"
    assert done.code == code and lines[0] == "Verdict"
    assert lines[1].startswith(first.format(len(clients) + (name == "windows")))
    assert lines[2] == f"fairlead: {ours}"
    if name == "crashes":
        seen = theirs
    else:
        out = run_python(PLATFORMS, env=machine.env).out
        seen = ", ".join(ast.literal_eval(out)) if out.startswith("[") else NOT_FOUND
    assert lines[3].startswith("PyOpenCL 2") and lines[3].split(": ", 1)[1].startswith(seen)
    assert all(line.split(": ", 1)[1].startswith(theirs) for line in clients[1:])
    problems = [line for line in lines if line.startswith(("error: ", "warning: "))]
    assert problem in "".join(problems)
    assert all(line.count(" out") < 2 for line in lines if line.startswith("next: ")), "once"


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
        assert list(find_misread_manifests([report])) == []


def test_a_report_is_wrapped_between_words_and_no_path_is_cut() -> None:
    line = f"    why: {'word ' * 9}/a/path/that/is/longer/than/a/line/libvendor.so"
    lines = _wrap(line, 30).split("\n")
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


def test_env_leaves_nothing_of_others_in_its_folder(
    machine: Machine, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    """The folder may have been open to others under an earlier version."""
    machine.env["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    machine.register("a", fake_driver())
    first = machine.run_python(COMMAND, "env", env=machine.env).out
    (manifest,) = (directory := Path(first.split("=")[1].strip())).iterdir()
    (directory / "99-more.icd").write_text("/nowhere/libmore.so\n", encoding="utf-8")
    manifest.rename(directory / "real")
    manifest.symlink_to("real")
    assert machine.run_python(COMMAND, "env", env=machine.env).out == first
    assert [path.name for path in directory.glob("*.icd")] == [manifest.name]
    assert not manifest.is_symlink() and directory.stat().st_mode & 0o777 == 0o700


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
    facts = run_python(f"{NO_GPU}{COMMAND}", "doctor", "--json", check=False).out
    done = run_python(COMMAND, "env")
    assert ('"pocl-generic-cpu"\n' in facts) == ("the repair pocl-generic-cpu" in done.err)
    assert os.path.isdir(done.out.split("=")[1].strip())


CLINFO = shutil.which("clinfo")


@pytest.mark.skipif(CLINFO is None, reason="clinfo is not installed")
def test_clinfo_and_pyopencl_see_the_wheels_under_env(
    run_python: RunPython, pocl_wheel: object, intel_cpu: object, tmp_path: Path
) -> None:
    """No variable is set, and the drivers are those that pip has installed."""
    python = f"{sys.executable} -c"
    script = f'''eval "$({sys.executable} -m fairlead env)"; clinfo -l; {python} "$1"'''
    code = "import os, sys; os.execvp('sh', ['sh', '-c', sys.argv[1], 'sh', sys.argv[2]])"
    unset: dict[str, str | None] = dict.fromkeys(
        ("OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH")
    )
    clinfo, _, pyopencl = run_python(code, script, PLATFORMS, env=unset).out.rpartition("\n[")
    for name in ("Portable Computing Language", "Intel(R) OpenCL"):
        assert f": {name}\n" in clinfo and repr(name) in pyopencl
