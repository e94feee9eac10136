"""The command line: `fairlead devices`, `fairlead info`, errors, pipes and locales.

`doctor` and `trace` have tests of their own.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from helpers.support import FakeDriver, FakePlugin, Output, RunPython, list_imports, vendors

from fairlead.cli.env import write_manifests
from fairlead.cli.main import main
from fairlead.loader.base.search import Candidate
from fairlead.loader.gpu.places import PLACES, is_there
from fairlead.loader.ur.abi import UR
from fairlead.loader.ur.discovery import FIND

pytestmark = pytest.mark.slow

COMMAND = "from fairlead.cli.main import main; main(prog_name='fairlead')"

#: Makes Python's standard output ASCII. The C locale alone would switch Python to UTF-8.
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": None}


def listed(run_python: RunPython, env: dict[str, str], *options: str) -> Output:
    return run_python(COMMAND, "devices", *options, env=env, check=False)


def numbers(table: str) -> list[str]:
    """The first cell of each row of a table of devices."""
    return [re.split("  +", line)[0] for line in table.splitlines()[1:] if line[0] != " "]


def test_one_line_a_device(run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path) -> None:
    first, second = fake_driver(name='"A   wide\\nname"'), fake_driver(name='"B"', icd=2, devices=2)
    done = listed(run_python, vendors(tmp_path, first, second))
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "device  type         name         platform       driver",
        "0:0     accelerator  Fake device  A wide name 0  1.2.3",
        "1:0     accelerator  Fake device  B 0            1.2.3",
        "1:1     accelerator  Fake device  B 0            1.2.3",
    ]


def test_the_table_fits_80_columns_and_nothing_is_cut_off(
    run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    words = [f"word{number}" for number in range(30)]
    driver = fake_driver(device_name=f'"{" ".join(words)}"', name=f'"{"x" * 50}"')
    done = listed(run_python, vendors(tmp_path, driver))
    assert max(map(len, done.out.splitlines())) <= 80
    assert set(words) <= set(done.out.split())
    assert done.out.count("x") == 50


def test_what_devices_imports(fake_driver: FakeDriver, tmp_path: Path) -> None:
    """People wait for it: once its verdict is known, a driver costs no child and no parser."""
    if any(is_there(one) for places in PLACES.values() for one in places):
        pytest.skip("needs a machine without drivers of CUDA and HIP, which it asks for devices")
    env = vendors(tmp_path, fake_driver()) | {"XDG_CACHE_HOME": str(tmp_path)}
    list_imports("devices", env=env)
    imported = list_imports("devices", env=env)
    assert "fairlead.icd.drivers" in imported
    unwanted = {"click", "dataclasses", "shlex", "subprocess", "selectors", "numpy", "pyopencl"}
    unwanted |= {"pathlib", "traceback", "typing", "re", "json", "textwrap", "fnmatch"}
    assert not imported & {*unwanted, "fairlead.icd.probe", "fairlead.plugins"}
    own = {name for name in imported if name.startswith("fairlead")}
    assert len(own) <= 60, sorted(own)
    assert len(imported) <= 124, sorted(imported - own)  # 118 in Python 3.11


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
            "interface": "OpenCL",
            "interface_version": "",
            "layout": "",
            "selector": "",
            "selected": True,
        }
    ]


def test_devices_of_the_pocl_wheel_and_intels_driver_with_no_variable_set(
    run_python: RunPython, pocl_wheel: Candidate, intel_cpu: Candidate
) -> None:
    rows = json.loads(run_python(COMMAND, "devices", "--json", env={"LD_LIBRARY_PATH": None}).out)
    libraries = {os.path.basename(row["library"]): row for row in rows}
    assert libraries[os.path.basename(pocl_wheel.library)]["type"] == "CPU"
    assert libraries["libintelocl.so"]["platform_name"] == "Intel(R) OpenCL"


# Adapters and plugins


def plugins(ur: Path | None = None, pi: Path | None = None) -> dict[str, str]:
    """The environment that leads to an adapter and a plugin."""
    return {"UR_ADAPTERS_FORCE_LOAD": str(ur or "")} | (
        {"SYCL_OVERRIDE_PI_LEVEL_ZERO": str(pi)} if pi else {}
    )


def test_devices_of_adapters_and_plugins_come_after_those_of_drivers(
    run_python: RunPython, fake_driver: FakeDriver, fake_plugin: FakePlugin, tmp_path: Path
) -> None:
    adapter = fake_plugin(devices=2)
    plugin = fake_plugin(interface=2, device_type="PI_DEVICE_TYPE_CPU")
    done = listed(run_python, vendors(tmp_path, fake_driver()) | plugins(adapter, plugin))
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[2:] == [
        "ur level_zero:0  gpu          Fake device 0  Fake 0    1.2.3",
        "ur level_zero:1  gpu          Fake device 1  Fake 0    1.2.3",
        "pi level_zero:0  cpu          Fake device 0  Fake 0    1.2.3",
    ]


def test_a_device_of_an_adapter_as_json(run_python: RunPython, fake_plugin: FakePlugin) -> None:
    adapter = fake_plugin(layout=2, platforms=2)
    rows = json.loads(listed(run_python, plugins(adapter), "--json", "--interface", "ur").out)
    assert rows[1] == {
        "platform": 1,
        "device": 0,
        "type": "gpu",
        "name": "Fake device 0",
        "platform_name": "Fake 1",
        "platform_version": "1.2 fake",
        "driver_version": "1.2.3",
        "icd_version": 0,
        "library": str(adapter),
        "interface": "UR",
        "interface_version": "0.12",
        "layout": tuple(UR.layouts)[1],
        "selector": "level_zero:1",
        "selected": True,
    }


@pytest.mark.parametrize(
    ("variable", "value", "selected"),
    [
        ("ONEAPI_DEVICE_SELECTOR", "level_zero:1", [False, True, False]),
        ("ONEAPI_DEVICE_SELECTOR", "!*:0", [False, True, True]),
        ("ONEAPI_DEVICE_SELECTOR", "level_zero:2.*", [False, False, True]),
        ("ONEAPI_DEVICE_SELECTOR", "opencl:*", [False, False, False]),
        ("SYCL_DEVICE_FILTER", "gpu", [True, True, True]),
        ("SYCL_BE", "PI_OPENCL", [False, False, False]),
    ],
)
def test_devices_that_the_selector_leaves_out_are_marked_and_keep_their_numbers(
    run_python: RunPython, fake_plugin: FakePlugin, variable: str, value: str, selected: list[bool]
) -> None:
    done = listed(
        run_python, plugins(fake_plugin(devices=3)) | {variable: value}, "--interface", "UR"
    )
    assert numbers(done.out) == ["ur level_zero:0", "ur level_zero:1", "ur level_zero:2"]
    head, *lines = done.out.splitlines()
    assert head.endswith("selected") == (not all(selected))
    ends = [line.split()[-1] for line in lines]
    assert ends == ["1.2.3" if all(selected) else "yes" if one else "no" for one in selected]


def test_a_selector_that_cannot_be_understood(
    run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    env = vendors(tmp_path, fake_driver()) | {"ONEAPI_DEVICE_SELECTOR": "opncl:0"}
    done = listed(run_python, env)
    assert (done.code, done.out) == (1, "")
    assert "'opncl' is not a backend, at character 1" in done.err and "selector = term" in done.err
    assert (
        listed(run_python, env, "--interface", "opencl").code == 0
    )  # OpenCL knows no such variable


def test_an_adapter_that_fails_is_a_line_on_stderr(
    run_python: RunPython, fake_plugin: FakePlugin, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    good = fake_plugin()
    bad = fake_plugin(at_load="abort()")
    worse = fake_plugin(at_devices="return UR_RESULT_ERROR_DEVICE_LOST;")
    env = vendors(tmp_path, fake_driver()) | {"UR_ADAPTERS_FORCE_LOAD": f"{bad},{worse},{good}"}
    done = listed(run_python, env)
    assert done.code == 0 and numbers(done.out) == ["0:0", "ur level_zero:0"]
    first, second = (line for line in done.err.splitlines() if line.startswith("warning: "))
    assert first.startswith(f"warning: {bad}: it crashed with SIGABRT while opening the library (")
    assert (
        str(worse) in second
        and "failed to list its devices: urDeviceGet [UR_RESULT_ERROR_DEVICE_LOST]" in second
    )
    excluded = listed(run_python, env | {"FAIRLEAD_EXCLUDE": f"{bad.name}:{worse.name}"})
    assert (excluded.out, excluded.err) == (done.out, "")


def test_devices_of_one_interface_only_are_no_error(
    run_python: RunPython, fake_plugin: FakePlugin, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    no_driver = {"OCL_ICD_VENDORS": str(tmp_path)} | plugins(pi=fake_plugin(interface=2))
    assert numbers(listed(run_python, no_driver).out) == ["pi level_zero:0"]
    (tmp_path / "vendors").mkdir()
    no_plugin = vendors(tmp_path / "vendors", fake_driver()) | plugins()
    assert numbers(listed(run_python, no_plugin).out) == ["0:0"]
    both = listed(run_python, no_driver | no_plugin, "--interface", "pi", "--interface", "opencl")
    assert numbers(both.out) == ["0:0", "pi level_zero:0"]


def test_no_device_of_the_interface_that_was_asked_for(
    run_python: RunPython, fake_plugin: FakePlugin
) -> None:
    done = listed(run_python, plugins(fake_plugin(platforms=0)), "--interface", "ur")
    assert (done.code, done.out) == (1, "")
    assert "[UR_RESULT_ERROR_DEVICE_NOT_FOUND]: no device can be used" in done.err
    assert (
        "it has no platform: urPlatformGet gives none" in done.err
        and "run `fairlead doctor`" in done.err
    )


def test_real_adapters_and_plugins_see_the_drivers_that_fairlead_sees(
    run_python: RunPython,
    real_plugins: Path,
    pocl_wheel: Candidate,
    intel_cpu: Candidate,
    tmp_path: Path,
) -> None:
    """In this Python environment no other OpenCL loader finds them all."""
    for library in ("ur-then/libur_adapter_opencl.so.0", "umf/libumf.so.1"):
        (tmp_path / os.path.basename(library)).symlink_to(real_plugins / library)
    env = {
        "UR_ADAPTERS_FORCE_LOAD": str(tmp_path / "libur_adapter_opencl.so.0"),
        "SYCL_OVERRIDE_PI_OPENCL": str(real_plugins / "pi/libpi_opencl.so"),
        "ONEAPI_DEVICE_SELECTOR": "opencl:1",
        "LD_LIBRARY_PATH": None,
    }
    done = run_python(COMMAND, "devices", "--json", env=env)
    rows = [row for row in json.loads(done.out) if row["interface"] != "OpenCL"]
    assert done.err == ""
    for interface in ("UR", "PI"):
        own = [row for row in rows if row["interface"] == interface]
        assert {"Intel(R) OpenCL", "Portable Computing Language"} <= {
            row["platform_name"] for row in own
        }
        assert [row["selected"] for row in own] == [row["selector"] == "opencl:1" for row in own]


# fairlead info


def described(run_python: RunPython, env: dict[str, str], *options: str) -> list[dict[str, Any]]:
    return json.loads(run_python(COMMAND, "info", "--json", *options, env=env).out)


def test_info_of_a_fake_device_has_what_it_answers_and_nothing_else(
    run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    env = vendors(tmp_path, fake_driver(icd=2))
    (device,) = described(run_python, env)
    assert device["name"] == device["info"]["CL_DEVICE_NAME"] == "Fake device"
    assert device["info"]["CL_DEVICE_TYPE"] == 8 and "CL_DEVICE_PROFILE" not in device["info"]
    lines = run_python(COMMAND, "info", env=env).out.splitlines()
    assert lines[:2] == ["0:0: Fake device", "  Version"]
    assert "    type: CL_DEVICE_TYPE_ACCELERATOR" in lines
    assert "    driver version: 1.2.3" in lines


def test_info_says_limits_memory_and_extensions_of_a_real_device(
    run_python: RunPython, pocl_wheel: Candidate, tmp_path: Path
) -> None:
    env = vendors(tmp_path, Path(pocl_wheel.library))
    text = run_python(COMMAND, "info", env=env).out
    sections = re.findall("^  (?! )(.*)", text, re.M)
    assert sections[:4] == ["Version", "Limits", "Memory", "USM and shared virtual memory"]
    assert sections[-1] == "Extensions" and "cl_khr_fp64" in text
    assert re.search(r"global mem size: [\d.]+ GiB \(\d+ bytes\)", text)
    paths = [line for line in text.splitlines() if len(line) > 80]
    assert all("/" in line for line in paths)


def test_info_of_the_reference_adapter_has_its_usm(
    run_python: RunPython, wheel_drivers: dict[str, str]
) -> None:
    adapter = run_python("from fairlead.plugins import reference_adapter as a; print(a())").out
    env = wheel_drivers | {"UR_ADAPTERS_FORCE_LOAD": adapter.strip()}
    (device,) = described(run_python, env, "--interface", "ur", "opencl:0")
    assert device["info"]["UR_DEVICE_INFO_USM_DEVICE_SUPPORT"] & 1


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [("0:1", ["0:1"]), ("second", ["1:0"]), ("FAKE", ["0:0", "0:1"]), ("", ["0:0", "0:1", "1:0"])],
)
def test_info_takes_a_number_or_a_part_of_a_name(
    run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path, wanted: str, expected: list[str]
) -> None:
    env = vendors(tmp_path, fake_driver(devices=2), fake_driver(device_name='"The second"'))
    found = described(run_python, env, *filter(None, [wanted]))
    assert [f"{one['platform']}:{one['device']}" for one in found] == expected


def test_info_of_a_device_that_is_not_there_names_those_that_are(
    run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    env = vendors(tmp_path, fake_driver(devices=2))
    done = run_python(COMMAND, "info", "7:0", env=env, check=False)
    assert done.code == 1 and done.out == ""
    assert "no device is called '7:0'" in done.err and "name one of 0:0, 0:1" in done.err


# The command itself


@pytest.mark.parametrize("command", ["devices", "info"])
def test_no_device_is_an_empty_array(run_python: RunPython, tmp_path: Path, command: str) -> None:
    env = {"OCL_ICD_VENDORS": str(tmp_path)}
    done = run_python(COMMAND, command, "--json", "--interface", "opencl", env=env)
    assert json.loads(done.out) == []
    assert done.err.startswith("warning: clGetPlatformIDs [CL_PLATFORM_NOT_FOUND_KHR]")


def test_every_help_text_is_whole_sentences() -> None:
    for name, command in main.commands.items():
        assert command.help and command.help.split("\n\n")[0].endswith("."), name
        for option in command.params:
            if isinstance(option, click.Option) and option.name != "help":
                text = re.sub(r" \[default: [^]]*\]$", "", option.help or "")
                assert text[:1].isupper() and text.endswith("."), (name, option.name)


def test_the_list_of_commands_has_whole_sentences(run_python: RunPython) -> None:
    listed = " ".join(run_python(COMMAND, "--help").out.partition("Commands:")[2].split())
    for name, command in main.commands.items():
        first = " ".join((command.help or "").split("\n\n")[0].split())
        assert f"{name} {first.partition('. ')[0].rstrip('.')}." in listed


def test_shells_complete_the_command(run_python: RunPython) -> None:
    script = {"_FAIRLEAD_COMPLETE": "bash_source"}
    assert "complete -o nosort -F" in run_python(COMMAND, env=script).out
    for words, expected in (("fairlead de", "devices"), ("fairlead info --js", "--json")):
        asked = {
            "_FAIRLEAD_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
        }
        assert run_python(COMMAND, env=asked).out.split() == [f"plain,{expected}"]


# Errors


def test_the_error_is_its_message_and_exit_code_1(run_python: RunPython, tmp_path: Path) -> None:
    done = listed(run_python, {"OCL_ICD_VENDORS": str(tmp_path)})
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(
        "Error: clGetPlatformIDs [CL_PLATFORM_NOT_FOUND_KHR]: no OpenCL platform can be used"
    )
    assert (
        f"{tmp_path}: no manifest" in done.err
        and "run `fairlead doctor`" in done.err
        and "Traceback" not in done.err
    )


def test_a_platform_that_fails_to_list_its_devices_is_a_line_on_stderr(
    run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    env = vendors(
        tmp_path,
        fake_driver(null_slot="SLOT_clGetDeviceIDs", name='"Bad"'),
        fake_driver(name='"Good"'),
    )
    done = listed(run_python, env)
    assert done.code == 0 and numbers(done.out) == ["1:0"]
    assert done.err.startswith("warning: the platform 'Bad 0' failed to list its devices")


#: What a device answers to every query, and what is said of it.
FAULTS = {
    "return CL_OUT_OF_RESOURCES": "clGetDeviceInfo [CL_OUT_OF_RESOURCES]",
    'return give("", 0, room, into, size)': "answer to CL_DEVICE_TYPE has 0 bytes, which is not",
    'return give("abc", 3, room, into, size)': "the answer to CL_DEVICE_TYPE has 3 bytes",
    "if (size) *size = 1ull << 40; return 0": "an answer of 1099511627776 bytes, which is "
    "impossible",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_device_that_does_not_describe_itself_hides_no_other(
    run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path, fault: str
) -> None:
    bad = fake_driver(devices=2, faulty_device=0, at_query=fault, name='"Bad"')
    done = listed(run_python, vendors(tmp_path, bad, fake_driver(name='"Good"')))
    assert done.code == 0
    assert numbers(done.out) == ["0:1", "1:0"]
    (warning,) = done.err.splitlines()
    assert warning.startswith(f"warning: the OpenCL device 0:0 failed to describe itself ({bad}): ")
    assert FAULTS[fault] in warning


def test_clgetdeviceinfo_that_is_not_there(
    run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    """With no other driver the command fails, and says why."""
    bad = fake_driver(null_slot="SLOT_clGetDeviceInfo")
    done = listed(run_python, vendors(tmp_path, bad, fake_driver(name='"Good"')))
    assert done.code == 0 and numbers(done.out) == ["1:0"]
    (tmp_path / "1.icd").unlink()
    done = listed(run_python, vendors(tmp_path, bad))
    assert done.code == 1 and not done.out
    assert "no OpenCL device describes itself" in done.err
    assert "clGetDeviceInfo [CL_INVALID_OPERATION]" in done.err


def test_lists_of_devices_that_cannot_be(
    run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    """An absurd number and NULL handles are reported; the other devices are listed."""
    env = vendors(
        tmp_path,
        fake_driver(device_count="0xFFFFFFFFu", name='"Many"'),
        fake_driver(null_device=0, name='"Null"'),
        fake_driver(null_device=0, devices=2, name='"Half"'),
    )
    done = listed(run_python, env)
    assert done.code == 0
    assert numbers(done.out) == ["2:0"]
    many, null, half = done.err.splitlines()
    assert "the driver says that it has 4294967295 devices, which cannot be" in many
    assert "clGetDeviceIDs gave 1 devices, and 1 of their handles are NULL" in null
    assert "clGetDeviceIDs gave 2 devices, and 1 of their handles are NULL" in half


def test_sorting_by_devices_needs_no_answer_of_all(
    run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    bad = fake_driver(null_slot="SLOT_clGetDeviceIDs", name='"Bad"')
    gpu = fake_driver(device_type="CL_DEVICE_TYPE_GPU", name='"GPU"')
    env = {**vendors(tmp_path, bad, gpu), "OCL_ICD_PLATFORM_SORT": "devices"}
    assert listed(run_python, env).out.splitlines()[1].startswith("0:0     gpu ")


NOISE = 'setvbuf(stdout, NULL, _IONBF, 0), puts("noise")'


@pytest.mark.parametrize("command", [["devices", "--json"], ["devices"], ["doctor", "--json"]])
def test_what_a_driver_prints_is_no_output_of_ours(
    run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path, command: list[str]
) -> None:
    noisy = fake_driver(at_load=NOISE, at_list=NOISE, at_query=NOISE, at_exit=NOISE)
    quiet = fake_driver()
    env = {"FAIRLEAD_PROBE": "0", "FAIRLEAD_EXCLUDE": noisy.name}
    outputs = []
    for exclude in (noisy.name, ""):
        env = {**vendors(tmp_path, quiet, noisy), "FAIRLEAD_EXCLUDE": exclude}
        outputs.append(run_python(COMMAND, *command, env=env, check=False))
    without, with_noise = outputs
    assert "noise" not in with_noise.out
    if command[0] == "devices":
        assert with_noise.err.count("noise\n") > 3
    if "--json" in command:
        assert json.loads(with_noise.out) and json.loads(without.out)
    else:
        assert with_noise.out.startswith(without.out)


@pytest.mark.slow
def test_what_a_driver_under_test_prints_is_no_output_of_ours(
    run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    """Neither what it prints, in this process too, nor control characters in what it is called."""
    noise = dict.fromkeys(("at_load", "at_list", "at_query", "at_exit"), NOISE)
    noisy = fake_driver(**noise, version='"OpenCL 3.0 \\033[31mred\\a"')
    command, env = ("conformance", "--json", "--area", "core", str(noisy)), vendors(tmp_path, noisy)
    done = run_python(COMMAND, *command, env=env, check=False)
    assert "noise" not in done.out
    assert not any(ord(letter) < 32 and letter != "\n" for letter in done.out)
    assert "red" in json.loads(done.out)["facts"]["platform"]


def test_noise_where_stderr_is_closed(fake_driver: FakeDriver, tmp_path: Path) -> None:
    env = vendors(tmp_path, fake_driver(at_list=NOISE))
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-c", COMMAND, "devices", "--json"],
        env={**os.environ, **env},
        check=True,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
    )
    assert json.loads(done.stdout)


@pytest.mark.parametrize("command", [["devices"], ["doctor"]])
def test_control_characters_of_a_driver_do_not_reach_the_terminal(
    run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path, command: list[str]
) -> None:
    """Neither in a table nor in the words of an error."""
    red = '"\\033[31mred\\a"'
    crash = 'puts("\\033[32mlast words"), abort()'
    env = vendors(
        tmp_path,
        fake_driver(name=red, device_name=red),
        fake_driver(at_load=crash),
        fake_driver(null_slot="SLOT_clGetDeviceIDs", name=red),
    )
    done = run_python(COMMAND, *command, env=env | {"PYTHONUNBUFFERED": None}, check=False)
    assert "\\x1b[31mred\\x07" in done.out
    assert not any(ord(letter) < 32 and letter != "\n" for letter in done.out + done.err)
    if command == ["doctor"]:
        assert "last words" in done.out


@pytest.mark.parametrize(
    "env", [ASCII, {"PYTHONIOENCODING": "latin-1"}, {"PYTHONIOENCODING": "ascii"}]
)
def test_names_that_the_locale_has_no_characters_for(
    run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path, env: dict[str, str | None]
) -> None:
    """A driver calls itself what it likes, and paths need not be UTF-8 at all."""
    folder = tmp_path / os.fsdecode(b"f\xf6lder")
    folder.mkdir()
    registered = vendors(folder, fake_driver(name='"\\u2603 \\xff"'))
    code = """
from fairlead.cli.main import main
for command in ["devices"], ["devices", "--json"], ["doctor"], ["doctor", "--json"]:
    print("end", main(command, prog_name="fairlead", standalone_mode=False) or 0)
"""
    done = run_python(code, env={**env, **registered})
    outputs = done.out.split("end 0\n")
    assert ["Fake device" in output for output in outputs] == [*[True] * 4, False]
    assert "Traceback" not in done.err


def test_no_colour_unless_to_a_terminal(
    run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    done = run_python(COMMAND, "doctor", env=vendors(tmp_path, fake_driver()))
    assert "\x1b" not in done.out
    result = CliRunner().invoke(main, ["doctor"], env=vendors(tmp_path, fake_driver()), color=True)
    assert "\x1b[" in result.output


def test_python_m_fairlead_and_a_reader_that_goes_away(
    fake_driver: FakeDriver, tmp_path: Path
) -> None:
    env = {**os.environ, **vendors(tmp_path, fake_driver(devices=20))}
    command = [sys.executable, "-m", "fairlead", "devices"]
    reader, writer = os.pipe()
    os.close(reader)
    gone = subprocess.run(
        command, stdout=writer, stderr=subprocess.PIPE, text=True, env=env, timeout=120
    )
    os.close(writer)
    assert "Traceback" not in gone.stderr
    assert (
        len(subprocess.run(command, capture_output=True, env=env, timeout=120).stdout.splitlines())
        == 21
    )


def test_a_plain_list_of_devices_imports_nothing_for_what_is_not_here(
    fake_driver: FakeDriver, tmp_path: Path
) -> None:
    """Neither a parser of options or files, nor what opens adapters and drivers of GPUs."""
    env = {**os.environ, **vendors(tmp_path, fake_driver()), "FAIRLEAD_PROBE": "0"}
    command = [sys.executable, "-X", "importtime", "-m", "fairlead", "devices"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
    assert "Fake device" in done.stdout and "fairlead.cli.devices" in imported
    assert not imported & {"click", "elftools", "tempfile", "shutil", "fairlead.icd.probe"}
    if not any(find().candidates for find in FIND.values()) and not any(
        is_there(one) for places in PLACES.values() for one in places
    ):
        assert not imported & {"dataclasses", "fairlead.loader.ur.adapters"}
    for name, places in PLACES.items():
        assert any(map(is_there, places)) or f"fairlead.loader.{name}.driver" not in imported


def test_a_plain_list_of_devices_is_the_one_of_the_parser(
    run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    """And so are its warnings, its error and its exit code."""
    faulty = fake_driver(null_slot="SLOT_clGetDeviceIDs")
    for libraries in ((fake_driver(), faulty), (faulty,)):
        folder = tmp_path / str(len(libraries))
        folder.mkdir()
        env = vendors(folder, *libraries)
        command = [sys.executable, "-m", "fairlead", "devices"]
        plain = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True)
        parsed = listed(run_python, env)
        assert (plain.returncode, plain.stdout, plain.stderr) == (
            parsed.code,
            parsed.out,
            parsed.err,
        )


def test_version_and_help() -> None:
    from importlib.metadata import version

    assert CliRunner().invoke(main, ["--version"]).output == f"fairlead {version('fairlead')}\n"
    text = CliRunner().invoke(main, ["--help"]).output
    assert "devices" in text and "doctor" in text
    assert "exit code is 1" in CliRunner().invoke(main, ["doctor", "-h"]).output


@pytest.mark.parametrize(
    "arguments", [["doctor", "--timeout", "0"], ["doctor", "--timeout", "soon"], ["dcotor"]]
)
def test_wrong_arguments_are_exit_code_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2 and "Traceback" not in result.output


def test_json_is_json_whatever_is_traced(run_python: RunPython, fake_plugin: FakePlugin) -> None:
    env = {
        "UR_ADAPTERS_FORCE_LOAD": str(fake_plugin()),
        "SYCL_PI_TRACE": "-1",
        "SYCL_UR_TRACE": "2",
    }
    code = "from fairlead.cli.main import main; main(['devices', '--json', '--interface', 'ur'])"
    assert [row["interface"] for row in json.loads(run_python(code, env=env).out)] == ["UR"]


def test_a_manifest_is_complete_when_other_programs_see_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, create = list[str](), os.open

    def note_name(path: Any, flags: int, *others: Any, **more: Any) -> int:
        if flags & os.O_CREAT:
            written.append(Path(path).suffix)
        return create(path, flags, *others, **more)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(os, "open", note_name)
    folder = write_manifests(["/a/libx.so.1", "/b/liby.so"])
    assert len(written) == 2 and ".icd" not in written
    contents = {path.name: path.read_text() for path in Path(folder).iterdir()}
    assert contents == {"00-x.icd": "/a/libx.so.1\n", "01-y.icd": "/b/liby.so\n"}
