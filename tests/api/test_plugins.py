"""`fairlead.adapters()` and `fairlead.pi_plugins()`: opened once, reopened after close, and nested.

They see fairlead's own drivers.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from helpers.support import FakeDriver, FakePlugin, RunPython

OPEN = """
import sys, fairlead
listed = getattr(fairlead, sys.argv[1])
first = listed()
assert listed() is first and len(first) == 1
first.close()
second = listed()
assert second is not first and len(second) == 1
second.plugins[0].close()
print([device.name for device in listed().devices])
"""

NESTED = """
import os
from fairlead.api import make_nested_environment

variables = make_nested_environment()
folder = variables["OCL_ICD_VENDORS"]
print(
    folder,
    variables["OCL_ICD_FILENAMES"] == "",
    *(open(f"{folder}/{name}").read().strip() for name in sorted(os.listdir(folder))),
)
"""


@pytest.mark.parametrize("function", ["adapters", "pi_plugins"])
def test_opened_once_and_again_after_closing(
    run_python: RunPython, fake_plugin: FakePlugin, function: str
) -> None:
    env = {
        "UR_ADAPTERS_FORCE_LOAD": str(fake_plugin()),
        "SYCL_OVERRIDE_PI_HIP": str(fake_plugin(interface=2)),
    }
    assert run_python(OPEN, function, env=env).out == "['Fake device 0']\n"


def test_the_drivers_that_a_nested_loader_is_told_of(
    run_python: RunPython, fake_driver: FakeDriver, tmp_path: Path
) -> None:
    drivers = [fake_driver(name='"First"'), fake_driver(name='"Second"')]
    for number, driver in enumerate(drivers):
        (tmp_path / f"{number}.icd").write_text(f"{driver}\n")
    folder, empty, *told = run_python(NESTED, env={"OCL_ICD_VENDORS": str(tmp_path)}).out.split()
    assert (empty, told) == ("True", [str(driver) for driver in drivers])
    assert not os.path.exists(folder)  # removed when that process ended


def test_no_drivers_to_tell_of(run_python: RunPython, tmp_path: Path) -> None:
    code = "from fairlead.api import make_nested_environment; print(make_nested_environment())"
    assert run_python(code, env={"OCL_ICD_VENDORS": str(tmp_path)}).out == "{}\n"
