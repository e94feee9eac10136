"""docs/no_driver_found.md shows what `fairlead doctor` prints, and its programs run."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from helpers.doctor import EXAMINE
from helpers.support import ROOT, RunPython

from fairlead.loader.base.search import Candidate

PAGE = (ROOT / "docs/no_driver_found.md").read_text(encoding="utf-8")
COMMAND = """
import sys
from fairlead.cli.main import main
main(sys.argv[1:])
"""

#: Libraries that are no drivers: the name of each on the page, and its C code.
LIBRARIES = {
    "broken": "int x;",
    "crash": "#include <stdlib.h>\n__attribute__((constructor)) static void f(void) { abort(); }",
    "hang": "#include <unistd.h>\n"
    "__attribute__((constructor)) static void f(void) { for (;;) pause(); }",
}


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the broken drivers of the page, and a manifest of each."""
    folder = tmp_path_factory.mktemp("machine")
    for name, code in LIBRARIES.items():
        library = folder / f"lib{name}.so"
        command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
        subprocess.run(command, input=code, text=True, check=True)
        (folder / f"{name}.icd").write_text(f"{library}\n")
    (folder / "vendor.icd").write_text("/opt/vendor/lib/libvendorocl.so\n")
    return folder


def test_the_reports_of_broken_drivers_are_those_of_doctor(
    machine: Path, run_python: RunPython
) -> None:
    env = {"OCL_ICD_VENDORS": str(machine)}
    printed = run_python(COMMAND, "doctor", "--timeout", "2", env=env, check=False).out
    for name in (
        *(f"/home/ada/lib{each}.so" for each in LIBRARIES),
        "/opt/vendor/lib/libvendorocl",
    ):
        here = name.replace("/home/ada", str(machine))
        shown = re.search(rf"  refused: {name}.*\n.*\n( +why: .*\n +next: .*\n)", PAGE)
        said = re.search(rf"  refused: {here}.*\n.*\n( +why: .*\n +next: .*\n)", printed)
        assert shown and said and shown[1] == said[1]


def test_a_variable_that_leads_nowhere_is_reported_as_shown(run_python: RunPython) -> None:
    env = {"OCL_ICD_VENDORS": "/nowhere"}
    printed = run_python(COMMAND, "doctor", env=env, check=False).out
    (shown,) = re.findall(r"^  OCL_ICD_VENDORS=/nowhere\n.*\n", PAGE, re.M)
    assert shown in printed
    for line in re.findall(r"^  error: /nowhere.*\n.*\n", PAGE, re.M):
        assert line in printed


def test_without_a_driver_it_says_what_to_install(tmp_path: Path, run_python: RunPython) -> None:
    env = {"OCL_ICD_VENDORS": str(tmp_path)}
    printed = run_python(EXAMINE, env=env, check=False).out
    (shown,) = re.findall(r"^  error: OpenCL: no driver.*\n.*\n", PAGE, re.M)
    assert shown in printed + "\n"


def test_the_states_of_the_table_are_those_of_doctor() -> None:
    source = (ROOT / "fairlead/cli/doctor/diagnosis.py").read_text(encoding="utf-8")
    named = re.findall(r"^\| `(\w+)` \|", PAGE, re.M)
    assert len(named) == 6 and all(f'"{state}"' in source for state in named)


def test_the_programs_run(pocl_wheel: Candidate, run_python: RunPython) -> None:
    for program in re.findall(r"```python\n(.*?)```", PAGE, re.S):
        assert run_python(program).out
