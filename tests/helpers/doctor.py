"""A machine of fake drivers, and `fairlead doctor` on it."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from fairlead.cli.doctor.diagnosis import Diagnosis
from fairlead.cli.doctor.problems import find_problems
from helpers.support import RunPython

COMMAND = "from fairlead.cli.main import main; main(prog_name='fairlead')"
#: What makes the machine one without a GPU: it has only the drivers of GPUs that LD_LIBRARY_PATH
#: leads to.
NO_GPU = """
import os
from pathlib import Path
from fairlead.cli.doctor import gpus, machine
machine.find_device_nodes = tuple
folders = list(map(Path, filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))))
gpus.find_library = lambda name: next(
    (str(one / name) for one in folders if (one / name).exists()), None
)
for search in gpus.SEARCHES.values():
    search.steps = tuple(one for one in search.steps if not Path(one.library).is_absolute())
"""
#: One examination, as `fairlead doctor --json` and as `fairlead doctor` print it. The machine has
#: only drivers that variables name: those of this Python are not there, and no GPU is.
EXAMINE = f"""{NO_GPU}
import functools, sys
from fairlead.cli.doctor import diagnosis, hiding
is_there = hiding._is_there
hiding._is_there = lambda candidate: candidate.found_via.isupper() and is_there(candidate)
from fairlead.cli.main import main
diagnosis.examine = functools.cache(diagnosis.examine)
def doctor(*options):
    return main(["doctor", *options, *sys.argv[1:]], prog_name="fairlead", standalone_mode=False)
code = doctor("--json")
print(end="\\0")
assert doctor() == code
sys.exit(code)
"""

KEYS = [
    "ok",
    "versions",
    "variables",
    "places",
    "drivers",
    "hidden",
    "refusals",
    "quirks",
    "loaders",
    "default_loader",
    "pyopencl",
    "nodes",
    "caches",
    "plugins",
    "level_zero",
    "gpus",
    "packages",
    "clients",
    "misread",
    "problems",
    "no_cache",
]


class Machine:
    """A vendor directory of its own.

    `examine` runs `fairlead doctor --json` on it and checks the exit code. `text` is what
    `fairlead doctor` prints of the last examination.
    """

    def __init__(self, run_python: RunPython, vendors: Path) -> None:
        self.run_python, self.vendors = run_python, vendors
        # only a test knows of drivers of GPUs, and of variables for them
        hidden = ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
        self.env: dict[str, str | None] = {**dict.fromkeys(hidden), "OCL_ICD_VENDORS": str(vendors)}
        self.text = ""

    def register(self, name: str, content: str | Path) -> None:
        (self.vendors / f"{name}.icd").write_text(f"{content}\n" if content else "")

    def examine(self, *options: str) -> dict[str, Any]:
        done = self.run_python(EXAMINE, *options, env=self.env, check=False)
        assert "Traceback" not in done.err
        report, _, self.text = done.out.partition("\0")
        facts = json.loads(report)
        assert list(facts) == KEYS
        assert done.code == (0 if facts["ok"] else 1)
        return facts

    def follow(self) -> None:
        """Do what `eval "$(fairlead env)"` does."""
        for line in self.run_python(COMMAND, "env", env=self.env).out.splitlines():
            command, _, rest = line.partition(" ")
            name, _, value = rest.partition("=")
            assert command in ("export", "unset") and (command == "unset") != bool(value)
            self.env[name] = shlex.split(value)[0] if value else None


@pytest.fixture
def machine(run_python: RunPython, tmp_path: Path) -> Machine:
    (tmp_path / "vendors").mkdir()
    return Machine(run_python, tmp_path / "vendors")


def states(facts: dict[str, Any]) -> dict[str, str]:
    return {os.path.basename(driver["library"]): driver["state"] for driver in facts["drivers"]}


def of(facts: dict[str, Any], severity: str) -> dict[str, tuple[str, str]]:
    """The problems of one severity: the base name of what is wrong → reason and remedy."""
    found = (problem for problem in facts["problems"] if problem["severity"] == severity)
    return {
        os.path.basename(problem["what"]): (problem["reason"], problem["remedy"])
        for problem in found
    }


def judge(driver: Any, **changes: Any) -> Diagnosis:
    """Return what the doctor makes of a machine with a driver, and of changes of its facts."""
    names = "fairlead", "python", "executable", "system", "user"
    versions: dict[str, str] = dict(zip(names, ("1", "3", "python", "Linux", "me"), strict=True))
    facts = Diagnosis(versions, (), (), (driver,), {}, (), (), (), "", None, (), ())
    facts = dataclasses.replace(facts, **changes)
    return dataclasses.replace(facts, problems=find_problems(facts))
