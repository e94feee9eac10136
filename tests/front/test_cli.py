"""The command line as a user meets it: `fairlead devices`, errors, pipes and locales. `fairlead doctor` has its own tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from support import FakeDriver, Output, RunPython

from fairlead.cli import main
from fairlead.loader.search import Candidate

COMMAND = "from fairlead.cli import main; main(prog_name='fairlead')"

#: What makes Python's standard output ASCII, and nothing else: the C locale alone would put it into its UTF-8 mode.
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": None}


def vendors(directory: Path, *libraries: Path) -> dict[str, str]:
    """Registers libraries in a directory, and gives the environment that leads to it."""
    for number, library in enumerate(libraries):
        (directory / f"{number}.icd").write_text(f"{library}\n")
    return {"OCL_ICD_VENDORS": str(directory)}


def listed(run_python: RunPython, env: dict[str, str], *options: str) -> Output:
    return run_python(COMMAND, "devices", *options, env=env, check=False)


def test_one_line_a_device(run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path) -> None:
    first, second = fake_driver(name='"A   wide\\nname"'), fake_driver(name='"B"', icd=2, devices=2)
    done = listed(run_python, vendors(tmp_path, first, second))
    tail = "OpenCL 3.0 fake | driver 1.2.3"
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"[0:0] ACCELERATOR | Fake device | A wide name 0, {tail} | ICD 1 | {first}",
        f"[1:0] ACCELERATOR | Fake device | B 0, {tail} | ICD 2 | {second}",
        f"[1:1] ACCELERATOR | Fake device | B 0, {tail} | ICD 2 | {second}",
    ]


def test_devices_as_json(run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path) -> None:
    path = fake_driver(icd=2)
    done = listed(run_python, vendors(tmp_path, path), "--json")
    assert json.loads(done.out) == [
        {
            "platform": 0,
            "device": 0,
            "type": "ACCELERATOR",
            "name": "Fake device",
            "platform_name": "Fake 0",
            "platform_version": "OpenCL 3.0 fake",
            "driver_version": "1.2.3",
            "icd_version": 2,
            "library": str(path),
        }
    ]


def test_devices_of_the_pocl_wheel_and_intels_driver_with_no_variable_set(
    run_python: RunPython, pocl_wheel: Candidate, intel_cpu: Candidate
) -> None:
    rows = json.loads(run_python(COMMAND, "devices", "--json", env={"LD_LIBRARY_PATH": None}).out)
    libraries = {os.path.basename(row["library"]): row for row in rows}
    assert libraries[os.path.basename(pocl_wheel.library)]["type"] == "CPU"
    assert libraries["libintelocl.so"]["platform_name"] == "Intel(R) OpenCL"


def test_the_error_is_its_message_and_exit_code_1(run_python: RunPython, tmp_path: Path) -> None:
    done = listed(run_python, {"OCL_ICD_VENDORS": str(tmp_path)})
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("Error: clGetPlatformIDs [CL_PLATFORM_NOT_FOUND_KHR]: no OpenCL platform can be used")
    assert f"{tmp_path}: no manifest" in done.err and "run `fairlead doctor`" in done.err and "Traceback" not in done.err


def test_a_platform_that_fails_to_list_its_devices_is_a_line_on_stderr(
    run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    env = vendors(tmp_path, fake_driver(null_slot="SLOT_clGetDeviceIDs", name='"Bad"'), fake_driver(name='"Good"'))
    done = listed(run_python, env)
    assert done.code == 0 and done.out.startswith("[1:0] ") and len(done.out.splitlines()) == 1
    assert done.err.startswith("warning: the platform 'Bad 0' failed to list its devices")


@pytest.mark.parametrize("env", [ASCII, {"PYTHONIOENCODING": "latin-1"}, {"PYTHONIOENCODING": "ascii"}])
@pytest.mark.parametrize("command", [["devices"], ["devices", "--json"], ["doctor"], ["doctor", "--json"]])
def test_names_that_the_locale_has_no_characters_for(
    run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path, env: dict[str, str | None], command: list[str]
) -> None:
    """A driver calls itself what it likes, and paths need not be UTF-8 at all."""
    folder = tmp_path / os.fsdecode(b"f\xf6lder")
    folder.mkdir()
    registered = vendors(folder, fake_driver(name='"\\u2603 \\xff"'))
    done = run_python(COMMAND, *command, env={**env, **registered}, check=False)
    assert done.code == 0 and "Fake device" in done.out and "Traceback" not in done.err


def test_no_colour_unless_to_a_terminal(run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path) -> None:
    done = run_python(COMMAND, "doctor", env=vendors(tmp_path, fake_driver()))
    assert "\x1b" not in done.out
    result = CliRunner().invoke(main, ["doctor"], env=vendors(tmp_path, fake_driver()), color=True)
    assert "\x1b[" in result.output


def test_python_m_fairlead_and_a_reader_that_goes_away(fake_driver: FakeDriver, tmp_path: Path) -> None:
    env = {**os.environ, **vendors(tmp_path, fake_driver(devices=20))}
    command = [sys.executable, "-m", "fairlead", "devices"]
    reader, writer = os.pipe()
    os.close(reader)
    gone = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, env=env, timeout=120)
    os.close(writer)
    assert "Traceback" not in gone.stderr
    assert len(subprocess.run(command, capture_output=True, env=env, timeout=120).stdout.splitlines()) == 20


def test_version_and_help() -> None:
    from importlib.metadata import version

    assert CliRunner().invoke(main, ["--version"]).output == f"fairlead {version('fairlead')}\n"
    text = CliRunner().invoke(main, ["--help"]).output
    assert "devices" in text and "doctor" in text
    assert "exit code is 1" in CliRunner().invoke(main, ["doctor", "-h"]).output


@pytest.mark.parametrize("arguments", [["doctor", "--timeout", "0"], ["doctor", "--timeout", "soon"], ["dcotor"]])
def test_wrong_arguments_are_exit_code_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2 and "Traceback" not in result.output
