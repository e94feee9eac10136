"""The native code by itself, with a mock driver: each scenario in a process of its own, plain and under ASan and UBSan.

`make sanitize` runs them under ThreadSanitizer and valgrind too (helpers/sanitize.py).
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from helpers.sanitize import ADDRESS, HERE, build, build_shells, scenarios
from helpers.support import CHILD_TIMEOUT

_BUILDS = {"plain": (), "sanitized": ADDRESS}


def _can_compile(flags: tuple[str, ...], directory: Path) -> bool:
    source = directory / "empty.c"
    source.write_text("int main(void) { return 0; }\n", encoding="utf-8")
    command = [
        *os.environ.get("CC", "cc").split(),
        *flags,
        str(source),
        "-o",
        str(directory / "empty"),
    ]
    return subprocess.run(command, capture_output=True).returncode == 0


@pytest.fixture(scope="session", params=_BUILDS)
def harness(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled harness."""
    flags, directory = _BUILDS[request.param], tmp_path_factory.mktemp("native")
    if flags and not _can_compile(flags, directory):
        pytest.skip(f"the compiler has no {flags[0]}")
    return build(directory, flags)


@pytest.mark.parametrize("scenario", scenarios())
def test_scenario(harness: Path, scenario: str) -> None:
    done = subprocess.run(
        [harness, scenario], capture_output=True, text=True, timeout=CHILD_TIMEOUT
    )
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-4000:]


@pytest.mark.parametrize("name", _BUILDS)
def test_the_shells_of_adapters(name: str, tmp_path: Path) -> None:
    if _BUILDS[name] and not _can_compile(_BUILDS[name], tmp_path):
        pytest.skip(f"the compiler has no {_BUILDS[name][0]}")
    for program in build_shells(tmp_path, _BUILDS[name]):
        done = subprocess.run([program], capture_output=True, text=True, timeout=CHILD_TIMEOUT)
        assert done.returncode == 0, done.stdout[-500:] + done.stderr[-4000:]


def test_every_scenario_that_is_written_is_run() -> None:
    """A scenario that scenarios.h does not name would be compiled and never run."""
    written = {
        line.split("(")[1].split(")")[0]
        for source in HERE.glob("check_*.c")
        for line in source.read_text(encoding="utf-8").splitlines()
        if line.startswith("SCENARIO(")
    }
    assert written == set(scenarios())
