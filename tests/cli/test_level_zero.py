"""Level Zero drivers in `fairlead devices` and `fairlead doctor`."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from helpers.doctor import COMMAND, Machine
from helpers.support import FakePlugin, RunPython

from fairlead.loader.base.search import Candidate
from fairlead.loader.ze.abi import ZE as API
from fairlead.loader.ze.discovery import NAMES
from fairlead.plugins import level_zero_driver

CODES = API.codes
ZE = ("--interface", "ze")


def test_devices_are_listed(run_python: RunPython, fake_ze: FakePlugin) -> None:
    env = {"ZE_ENABLE_ALT_DRIVERS": f"{fake_ze(devices=2)},{fake_ze()}"}
    done = run_python(COMMAND, "devices", *ZE, env=env)
    assert [line.split()[:5] for line in done.out.splitlines()[1:]] == [
        ["ze", "0:0", "gpu", "Fake", "0"],
        ["ze", "0:1", "gpu", "Fake", "1"],
        ["ze", "1:0", "gpu", "Fake", "0"],
    ]
    rows = json.loads(run_python(COMMAND, "devices", "--json", *ZE, env=env).out)
    assert rows[0]["library"] == str(fake_ze(devices=2))
    assert (rows[0]["interface"], rows[0]["interface_version"]) == ("ZE", "1.17")


def test_devices_of_our_own_driver_name_their_platform(
    run_python: RunPython, pocl_wheel: Candidate, fake_ze: FakePlugin
) -> None:
    env = {
        "OCL_ICD_VENDORS": pocl_wheel.library,
        "ZE_ENABLE_ALT_DRIVERS": f"{level_zero_driver()},{fake_ze()}",
    }
    rows = json.loads(run_python(COMMAND, "devices", "--json", *ZE, env=env).out)
    names = [row["platform_name"] for row in rows]
    assert names == ["Portable Computing Language", fake_ze().name], "Level Zero has no names"


def test_a_device_is_described(run_python: RunPython, pocl_wheel: Candidate) -> None:
    """By what the first column of `fairlead devices --interface ze` says, or by its name."""
    env = {"OCL_ICD_VENDORS": pocl_wheel.library, "ZE_ENABLE_ALT_DRIVERS": str(level_zero_driver())}
    (row,) = json.loads(run_python(COMMAND, "devices", "--json", *ZE, env=env).out)
    done = run_python(COMMAND, "info", "ze 0:0", env=env)
    assert done.out.startswith(f"ze 0:0: {row['name']}\n  Version\n")
    lines = [line.strip() for line in done.out.splitlines()]
    for expected in (
        "interface: ZE 1.13",
        "type: ZE_DEVICE_TYPE_GPU",
        "queue group num queues: 1",
        "max image dims1d:",
        "cache size:",
    ):
        assert any(line.startswith(expected) for line in lines), (expected, done.out)
    (found,) = json.loads(run_python(COMMAND, "info", row["name"], *ZE, "--json", env=env).out)
    info = found["info"]
    assert info["maxTotalGroupSize"] > 0 and info["memoryTotalSize"] > 1 << 20
    names = [name for name, _ in info["extensions"]]
    assert API.strings["ZE_MUTABLE_COMMAND_LIST_EXP_NAME"] in names
    assert "COMPUTE | " in info["queueGroupFlags"]


def test_a_driver_that_describes_little_is_shown(
    run_python: RunPython, fake_ze: FakePlugin
) -> None:
    env = {"ZE_ENABLE_ALT_DRIVERS": str(fake_ze())}
    assert "ze 0:0: Fake 0\n" in run_python(COMMAND, "info", "ze 0:0", env=env).out
    done = run_python(COMMAND, "info", "ze 0:7", env=env, check=False)
    assert done.code == 1 and "name one of ze 0:0" in done.err


def test_no_device_is_an_error_with_the_reasons(run_python: RunPython, fake_ze: FakePlugin) -> None:
    env = {"ZE_ENABLE_ALT_DRIVERS": str(fake_ze(at_init="crash()"))}
    done = run_python(COMMAND, "devices", *ZE, env=env, check=False)
    assert done.code == 1 and "no Level Zero device can be used" in done.err
    assert str(fake_ze(at_init="crash()")) in done.err and "SIGSEGV" in done.err


def test_the_doctor_tells_usable_idle_and_refused_drivers(
    machine: Machine, fake_ze: FakePlugin
) -> None:
    good, idle = fake_ze(), fake_ze(devices=0)
    bad = fake_ze(at_load="crash()")
    machine.env["ZE_ENABLE_ALT_DRIVERS"] = f"{good},{idle},{bad}"
    facts = machine.examine()
    drivers = facts["level_zero"]["drivers"]
    assert [driver["state"] for driver in drivers] == ["usable", "idle", "refused"]
    assert drivers[0]["devices"] == [{"name": "Fake 0", "type": "GPU", "driver_version": "7"}]
    assert (drivers[0]["version"], drivers[0]["tables"]) == ("1.17", "1.17")
    problems = {problem["what"]: problem for problem in facts["problems"]}
    assert problems[str(bad)]["severity"] == "error"
    assert f"FAIRLEAD_EXCLUDE='*{os.path.basename(bad)}'" in problems[str(bad)]["remedy"]
    assert str(good) not in problems
    told = {variable["name"]: variable["outcome"] for variable in facts["variables"]}
    assert told["ZE_ENABLE_ALT_DRIVERS"] == "honoured: only these Level Zero drivers are used"
    text = machine.text
    assert f"usable: {good}" in text and f"refused: {bad}" in text


def test_a_driver_that_is_excluded_is_no_problem(machine: Machine, fake_ze: FakePlugin) -> None:
    machine.env["ZE_ENABLE_ALT_DRIVERS"] = str(fake_ze(at_load="crash()"))
    machine.env["FAIRLEAD_EXCLUDE"] = "*fake_ze*"
    facts = machine.examine()
    (driver,) = facts["level_zero"]["drivers"]
    assert driver["state"] == "excluded" and "FAIRLEAD_EXCLUDE" in driver["reason"]
    assert driver["library"] not in {problem["what"] for problem in facts["problems"]}


LISTS = """
import ctypes
library = ctypes.CDLL("libze_loader.so.1")
count, found = ctypes.c_uint32(), (ctypes.c_void_p * 4)()
print(library.zeInit(0), library.zeDriverGet(ctypes.byref(count), None), count.value)
print(any("/libze_loader/libze_loader.so.1" in line for line in open("/proc/self/maps")))
"""


def test_run_gives_a_program_the_sound_drivers(
    run_python: RunPython, fake_ze: FakePlugin, tmp_path: Path
) -> None:
    """One that crashes does not reach the program."""
    shutil.copy(fake_ze(at_load="crash()"), tmp_path / NAMES[0])
    shutil.copy(fake_ze(), tmp_path / NAMES[1])
    env = {"LD_LIBRARY_PATH": str(tmp_path), "FAIRLEAD_EXCLUDE": "*libze_fairlead*"}
    done = run_python(COMMAND, "run", "--", sys.executable, "-c", LISTS, env=env)
    assert done.out == "0 0 1\nTrue\n"
    os.remove(tmp_path / NAMES[1])
    done = run_python(COMMAND, "run", "--", sys.executable, "-c", LISTS, env=env)
    code = CODES["ZE_RESULT_ERROR_UNINITIALIZED"]
    assert done.out == f"{code} {code} 0\nTrue\n"
